//! The values of words in templates: a node of a running test, or none.

use crate::template::{Scope, TemplateWord};
use seatrial_runner::NodePlace;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Folders that do not depend on a node.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The run folder.
    pub(crate) run: PathBuf,
    /// The folder of the file that describes the system.
    pub(crate) home: PathBuf,
    /// The folder with the client helpers of this program.
    pub(crate) helpers: PathBuf,
}

/// What templates know of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct SystemPlaces {
    pub(crate) folders: Folders,
    /// Names of the nodes.
    pub(crate) names: Vec<String>,
    /// By node, the numbers of its named ports.
    pub(crate) ports: Vec<Vec<u16>>,
    /// Addresses and folders of the nodes.
    pub(crate) places: Vec<NodePlace>,
}

/// A node, as the node `seen_from` reaches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeScope<'c> {
    pub(crate) cluster: &'c SystemPlaces,
    pub(crate) node: usize,
    pub(crate) seen_from: usize,
}

/// No node.
#[derive(Clone, Debug)]
pub(crate) struct NoNode<'f> {
    pub(crate) folders: &'f Folders,
    pub(crate) count: usize,
}

fn shown(path: &Path) -> Result<String, String> {
    let text = path.to_str();
    text.map(str::to_owned)
        .ok_or_else(|| format!("{} is not UTF-8", path.display()))
}

impl Folders {
    fn word(&self, word: TemplateWord, count: usize) -> Option<Result<String, String>> {
        match word {
            TemplateWord::Folder => Some(shown(&self.run)),
            TemplateWord::Home => Some(shown(&self.home)),
            TemplateWord::Helpers => Some(shown(&self.helpers)),
            TemplateWord::Count => Some(Ok(count.to_string())),
            _ => None,
        }
    }
}

impl Scope for NodeScope<'_> {
    fn word(&self, word: TemplateWord) -> Result<String, String> {
        let cluster = self.cluster;
        if let Some(value) = cluster.folders.word(word, cluster.names.len()) {
            return value;
        }
        let place = &cluster.places[self.node];
        let address = || {
            if self.seen_from == self.node {
                return Ok(place.address);
            }
            let from = &cluster.places[self.seen_from];
            from.address_of(place.node)
                .map_err(|error| error.to_string())
        };
        Ok(match word {
            TemplateWord::Name => cluster.names[self.node].clone(),
            TemplateWord::Id => place.node.to_string(),
            TemplateWord::Number => (self.node + 1).to_string(),
            TemplateWord::Index => self.node.to_string(),
            TemplateWord::Ip => address()?.ip().to_string(),
            TemplateWord::Port => address()?.port().to_string(),
            TemplateWord::Address => address()?.to_string(),
            TemplateWord::Data => shown(&place.folder)?,
            TemplateWord::Folder
            | TemplateWord::Home
            | TemplateWord::Helpers
            | TemplateWord::Count => {
                unreachable!("words of no node")
            }
        })
    }

    fn own_ip(&self) -> Result<IpAddr, String> {
        let place = &self.cluster.places[self.node];
        let from = &self.cluster.places[self.seen_from];
        Ok(from.ip_of(place.node).unwrap_or_else(|| place.ip()))
    }

    fn port(&self, port: usize) -> Result<u16, String> {
        Ok(self.cluster.ports[self.node][port])
    }

    fn other(&self, node: usize) -> Option<Box<dyn Scope + '_>> {
        let scope = NodeScope {
            cluster: self.cluster,
            node,
            seen_from: self.node,
        };
        (node < self.cluster.places.len()).then(|| Box::new(scope) as Box<dyn Scope>)
    }

    fn index(&self) -> Option<usize> {
        Some(self.node)
    }
}

impl Scope for NoNode<'_> {
    fn word(&self, word: TemplateWord) -> Result<String, String> {
        let value = self.folders.word(word, self.count);
        value.unwrap_or_else(|| Err("a word of nodes has no value here".into()))
    }

    fn own_ip(&self) -> Result<IpAddr, String> {
        Err("an address of nodes has no value here".into())
    }

    fn port(&self, _: usize) -> Result<u16, String> {
        Err("a port of nodes has no value here".into())
    }

    fn other(&self, _: usize) -> Option<Box<dyn Scope + '_>> {
        None
    }

    fn index(&self) -> Option<usize> {
        None
    }
}
