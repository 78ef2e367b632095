//! The store as node processes.

use crate::checkpoint_options::CheckpointOptions;
use crate::credentials::Credentials;
use crate::shared_connection::connect;
use seatrial_host::{Protocol, SecretKey};
use seatrial_kv_protocol::{Outcome, StateDigest, Transaction, TransactionClientOptions, message};
use seatrial_machine::Rng;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers};
use seatrial_suite::SuiteError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How to start a node: this same program, with the command `node`.
#[derive(Debug)]
pub(crate) struct KvSystem {
    /// Name of a planted bug.
    pub(crate) bug: Option<&'static str>,
    /// How the nodes make checkpoints.
    pub(crate) checkpoints: CheckpointOptions,
    /// The key of nodes and clients.
    pub(crate) key: Option<KeyFile>,
}

/// A key and its file.
#[derive(Clone, Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) key: SecretKey,
}

impl KeyFile {
    /// Reads the key from a file.
    pub(crate) fn open(path: &Path) -> Result<KeyFile, SuiteError> {
        let key = SecretKey::read_and_warn(path)?;
        // Canonical, because the command line in the node's log must be usable from any folder.
        let path = path.canonicalize()?;
        Ok(KeyFile { path, key })
    }
}

/// The protocol of nodes and clients.
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
        command.arg("--node").arg(place.node.number().to_string());
        let others = place.nodes.iter().filter(|node| **node != place.node);
        let peers: Vec<String> = others
            .map(|node| Ok(format!("{node}={}", place.address_of(*node)?)))
            .collect::<std::io::Result<_>>()?;
        if !peers.is_empty() {
            command.arg("--peers").arg(peers.join(","));
        }
        self.checkpoints.pass(&mut command);
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

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    fn reports_states(&self) -> bool {
        true
    }

    /// The digest of its state. A node that has left the cluster has none that can be compared, as it gets no entries any more,
    /// nor has one that does not answer or has not rejoined: whether the others serve clients without it, the clients see.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async move {
            let places = std::slice::from_ref(place);
            let Ok(status) = self.operator(places).digest_of(place.address).await else {
                return Ok(None);
            };
            if status.is_rejoining || !status.members.contains(place.node) {
                return Ok(None);
            }
            Ok(status.digest.map(node_state))
        })
    }

    /// A cluster is ready when each node executes a transaction: a listening port is not enough.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            for place in places {
                let mut options =
                    TransactionClientOptions::new(place.node, rand_seed(place.address));
                options.request_timeout = FORMED_TIMEOUT;
                let credentials = Credentials {
                    key: self.key.as_ref().map(|it| it.key.clone()),
                    tls: None,
                };
                let connection = connect(place.address, options, &credentials).await?;
                match connection.request(Transaction::new()).await {
                    Some(Outcome::Ok(_)) => {}
                    other => {
                        let node = place.node;
                        return Err(
                            format!("{node}: an empty transaction ended as {other:?}").into()
                        );
                    }
                }
            }
            Ok(())
        })
    }
}

/// The state of a node, as it is compared with that of another.
pub(crate) fn node_state(digest: StateDigest) -> NodeState {
    NodeState {
        revision: digest.index.to_string(),
        hash: digest.to_string(),
        contents: None,
    }
}

/// Time limit of the transaction that shows that a cluster has formed; it is repeated.
const FORMED_TIMEOUT: Duration = Duration::from_millis(700);

/// A seed for session tokens, which must differ between clients and between starts.
fn rand_seed(address: SocketAddr) -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rng::from_seed(since.as_nanos() as u64)
        .fork(&address.to_string())
        .word()
}
