//! The store as real processes.

use crate::connection::connect;
use seatrial_host::{Key, Protocol};
use seatrial_kv::message;
use seatrial_kv::{ClientOptions, Outcome, Transaction};
use seatrial_machine::Rng;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, System};
use seatrial_suite::SuiteError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a node of the store is started: this same program, with the verb `node`.
#[derive(Debug)]
pub(crate) struct KvSystem {
    /// The name of a bug to plant.
    pub(crate) bug: Option<&'static str>,
    /// What nodes and clients have to know.
    pub(crate) key: Option<KeyFile>,
}

/// A key, and the file that it is in.
#[derive(Clone, Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) key: Key,
}

impl KeyFile {
    /// The key in a file.
    pub(crate) fn open(path: &Path) -> Result<KeyFile, SuiteError> {
        let key = Key::read_and_warn(path)?;
        // A node is started in the same folder, but the command in its log is to be read anywhere.
        let path = path.canonicalize()?;
        Ok(KeyFile { path, key })
    }
}

/// What is spoken.
pub(crate) const PROTOCOL: Protocol = Protocol {
    name: message::PROTOCOL,
    version: message::VERSION,
    refuse_old: message::refuse_version,
};

impl System for KvSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "node",
            "kv",
            "--listen",
            &place.address.to_string(),
            "--data",
        ]);
        command.arg(&place.folder);
        if let Some(file) = self.clock_file(place) {
            command.arg("--clock").arg(file);
        }
        if let Some(key) = &self.key {
            command.arg("--key-file").arg(&key.path);
        }
        if let Some(bug) = self.bug {
            command.args(["--bug", bug]);
        }
        Ok(command)
    }

    fn clock_file(&self, place: &NodePlace) -> Option<PathBuf> {
        Some(place.folder.with_added_extension("clock"))
    }

    /// Ready is who answers a transaction, not who merely listens.
    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let options = ClientOptions::new(place.node, rand_seed(place.address));
            let key = self.key.as_ref().map(|it| it.key.clone());
            let connection = connect(place.address, options, key).await?;
            match connection.request(Transaction::new()).await {
                Some(Outcome::Ok(_)) => Ok(()),
                other => Err(format!("an empty transaction ended as {other:?}").into()),
            }
        })
    }
}

/// Tokens of sessions have to differ from client to client and from life to life.
fn rand_seed(address: SocketAddr) -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rng::from_seed(since.as_nanos() as u64)
        .fork(&address.to_string())
        .word()
}
