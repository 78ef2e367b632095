//! The cluster that a node belongs to, from its command line.

use seatrial_host::Cluster;
use seatrial_machine::NodeId;
use seatrial_suite::{OptionValues, SuiteError, parse_node_addresses};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Number of this node.
pub(crate) const NODE: &str = "node";
/// The other nodes.
pub(crate) const PEERS: &str = "peers";
/// The founding voters.
pub(crate) const VOTERS: &str = "voters";
/// Number of the cluster.
pub(crate) const CLUSTER: &str = "cluster";

/// The options of a node that define its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeCluster {
    pub(crate) node: NodeId,
    pub(crate) cluster: u64,
    pub(crate) peers: BTreeMap<NodeId, SocketAddr>,
    /// The founding voters.
    pub(crate) voters: BTreeSet<NodeId>,
}

impl NodeCluster {
    /// Reads the options; without them the node is alone.
    pub(crate) fn read(options: &OptionValues) -> Result<NodeCluster, SuiteError> {
        let node = options.number(NODE, 1..=u64::from(u16::MAX), 1)?;
        let node = NodeId::server(node as u32);
        let cluster = options.number(CLUSTER, 1..=u64::MAX, 1)?;
        let mut peers = BTreeMap::new();
        if let Some(text) = options.get(PEERS) {
            let text = text
                .to_str()
                .ok_or_else(|| format!("--{PEERS} is not valid UTF-8"))?;
            peers = parse_node_addresses(PEERS, text, node)?;
        }
        let voters = match options.get(VOTERS) {
            None => peers.keys().copied().chain([node]).collect(),
            Some(text) => parse_voters(&text.to_string_lossy())?,
        };
        Ok(NodeCluster {
            node,
            cluster,
            peers,
            voters,
        })
    }

    /// What the host needs to know.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster {
            id: self.cluster,
            node: self.node,
            addresses: self.peers.clone(),
        }
    }
}

/// Numbers of nodes, separated by commas.
fn parse_voters(text: &str) -> Result<BTreeSet<NodeId>, String> {
    let parse = |one: &str| {
        let number: Option<u16> = one.strip_prefix('n').unwrap_or(one).parse().ok();
        number
            .filter(|number| *number > 0)
            .map(|number| NodeId::server(number.into()))
    };
    let voters: Option<BTreeSet<NodeId>> = text.split(',').map(parse).collect();
    voters.ok_or_else(|| format!("--{VOTERS} takes numbers of nodes such as 1,2,3, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(node: &str, peers: Option<&str>) -> Result<NodeCluster, String> {
        let mut options = OptionValues::default();
        options.insert(NODE, node.into());
        if let Some(peers) = peers {
            options.insert(PEERS, peers.into());
        }
        NodeCluster::read(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn peers_are_nodes_with_addresses() {
        let alone = read("1", None).unwrap();
        assert!(alone.peers.is_empty());
        let one = read("2", Some("n1=127.0.0.1:1,3=[::1]:9")).unwrap();
        let numbers: Vec<u32> = one.voters.iter().map(|it| it.number()).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(parse_voters("n1,3").unwrap().len(), 2);
        assert!(parse_voters("1,,2").unwrap_err().contains("1,,2"));
        assert_eq!(one.cluster().addresses.len(), 2);
    }

    #[test]
    fn wrong_peers_are_refused_with_the_reason() {
        for (peers, reason) in [
            ("n1=127.0.0.1:1,n1=127.0.0.1:2", "n1 is given twice"),
            ("n2=127.0.0.1:1", "n2 is this node itself"),
            ("n0=127.0.0.1:1", "n0=127.0.0.1:1"),
            ("n1=here", "n1=here"),
            ("", "\"\""),
        ] {
            let error = read("2", Some(peers)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
