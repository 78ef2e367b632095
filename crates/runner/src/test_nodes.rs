//! Nodes of the system under test: the trait that starts, stops and injects faults into them.

use crate::{BoxFuture, ClientError, Mesh};
use seatrial_generator::Membership;
use seatrial_history::Value;
use seatrial_machine::{Fault, FaultKind, NodeId, Rng};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The system under test as a set of nodes that can be started, stopped and made to fail. [`ProcessNodes`] implements it for
/// local processes, [`NoNodes`] for a test without nodes; another implementation may control nodes elsewhere.
///
/// Each fault returns an [`InjectionResult`], which says whether it had an effect: a test whose faults had none proves nothing
/// about them.
///
/// [`ProcessNodes`]: crate::ProcessNodes
pub trait Nodes: Send + Sync {
    /// All nodes, in the order in which workers are assigned to them.
    fn ids(&self) -> &[NodeId];

    /// Prepares the run folder, chooses addresses and adds them to the mesh. Called once, first.
    fn prepare<'a>(
        &'a self,
        folder: &'a Path,
        mesh: &'a Mesh,
    ) -> BoxFuture<'a, Result<(), NodeError>>;

    /// Starts a node unless it runs, and waits until it is ready. Used at the beginning and for restarts.
    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<InjectionResult, NodeError>>;

    /// Waits until all started nodes have formed a system.
    fn formed(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Injects or ends a fault of a node, and returns when its effect has been verified. The default supports none: implement
    /// the faults that these nodes can have and return [`InjectionResult::unsupported`] for the others. Faults of links never
    /// arrive here (the mesh has them), nor do restarts ([`Nodes::start`]).
    ///
    /// `rng` draws the choices that the fault leaves open, such as which bits flip.
    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        rng: Rng,
    ) -> BoxFuture<'a, Result<InjectionResult, NodeError>> {
        let _ = rng;
        let effect = match fault.kind() {
            FaultKind::Membership => Err(NodeError::NoMembership),
            _ => Ok(InjectionResult::unsupported(fault)),
        };
        Box::pin(std::future::ready(effect))
    }

    /// Asks every reachable node for the members of the system, and which nodes lead.
    fn view(&self) -> BoxFuture<'_, Result<Membership, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::NoMembership)))
    }

    /// Do these nodes report their states? Then the end of a test asks each for it, and the checker `divergence` compares them.
    fn reports_states(&self) -> bool {
        false
    }

    /// The state of a node, asked when all faults are healed and no client is left, again and again until the states of all nodes
    /// are equal or ten seconds are over. `None`: it has none that can be compared.
    fn state(&self, _node: NodeId) -> BoxFuture<'_, Result<Option<NodeState>, NodeError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The name of the nodes with which the state of this one is compared, if not with that of all: nodes that hold another
    /// part of the data have another state.
    fn state_group(&self, _node: NodeId) -> Option<String> {
        None
    }

    /// Commits something that no client reads. Called at the end of a test while one node stays behind the others: in some
    /// systems a node learns that older entries are committed only with a newer one. The default does nothing.
    fn catch_up(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Stops a node gracefully, or kills it after its limit.
    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>>;

    /// Nodes that exited by themselves since the last call.
    fn take_deaths(&self) -> Vec<Death> {
        Vec::new()
    }
}

/// The state of a node as it can be compared with that of another.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// What it has applied: the index of a log, a number of changes. States are compared at the same revision.
    pub revision: String,
    /// A hash of all it holds.
    pub hash: String,
    /// What it holds, a list or a map, if that is small enough to be recorded: a finding shows the first difference.
    pub contents: Option<Value>,
}

/// Result of injecting or ending a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectionResult {
    /// It had an effect, which was verified; a description of it.
    Done(String),
    /// It had no effect; the reason.
    Nothing(String),
}

impl InjectionResult {
    /// A verified effect.
    pub fn done(what: impl Into<String>) -> InjectionResult {
        InjectionResult::Done(what.into())
    }

    /// No effect.
    pub fn nothing(why: impl Into<String>) -> InjectionResult {
        InjectionResult::Nothing(why.into())
    }

    /// No effect: these nodes do not support the fault.
    pub fn unsupported(fault: &Fault) -> InjectionResult {
        InjectionResult::Nothing(format!(
            "these nodes do not support the fault {}",
            fault.name()
        ))
    }
}

/// A node that exited by itself.
#[derive(Clone, Debug)]
pub struct Death {
    /// The node.
    pub node: NodeId,
    /// When that was noticed.
    pub at: Instant,
    /// Its exit status or signal, as text.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// Error of a node, or of all of them.
#[derive(Debug, Error)]
pub enum NodeError {
    /// Another process listens on the node's port.
    #[error("port {} is in use: {node} cannot listen on {address}", address.port())]
    PortInUse {
        /// The node.
        node: NodeId,
        /// Its address.
        address: SocketAddr,
    },
    /// No row of that many ports is free.
    #[error("no {in_a_row} ports in a row are free from port {first} on")]
    NoPorts {
        /// Ports that each node needs.
        in_a_row: u16,
        /// The lowest port that was tried.
        first: u16,
    },
    /// The row of ports would go beyond the last port.
    #[error("port {first} leaves no room for {in_a_row} ports of a node, choose a lower one")]
    PortTooHigh {
        /// The port that was asked for.
        first: u16,
        /// Ports that each node needs.
        in_a_row: u16,
    },
    /// The node has no address to listen on.
    #[error("{node} has no address of its own: {error}")]
    Address {
        /// The node.
        node: NodeId,
        /// The system's error.
        error: io::Error,
    },
    /// The node's program cannot be started.
    #[error("{node} cannot be started: {program}: {error}")]
    Program {
        /// The node.
        node: NodeId,
        /// The program's path or name.
        program: String,
        /// The reason.
        error: io::Error,
    },
    /// The suite returned no command for the node.
    #[error("{node} cannot be started: {error}")]
    Command {
        /// The node.
        node: NodeId,
        /// The reason.
        error: ClientError,
    },
    /// The node's process exited before it was ready.
    #[error("{node} exited ({status}) before it was ready{}", tail(.log, .log_tail))]
    Ended {
        /// The node.
        node: NodeId,
        /// Its exit status or signal, as text.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The node's process runs but is not ready.
    #[error("{node} was not ready within {} s: {reason}{}", limit.as_secs_f64(), tail(.log, .log_tail))]
    Silent {
        /// The node.
        node: NodeId,
        /// The time limit.
        limit: Duration,
        /// The last error of the readiness check.
        reason: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The nodes run but have not formed a system.
    #[error("the nodes did not form a system within {} s: {reason}", limit.as_secs_f64())]
    NotFormed {
        /// The time limit.
        limit: Duration,
        /// The last error of the readiness check.
        reason: String,
    },
    /// A signal could not be sent, or had no effect.
    #[error("{node} could not be {verb}: {error}")]
    Signal {
        /// The node.
        node: NodeId,
        /// Past participle of the action: `killed`, `paused`, …
        verb: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A file or folder of the node cannot be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The system's membership cannot be read or changed.
    #[error("this system does not report its members; nodes cannot join or leave it")]
    NoMembership,
    /// The members could not be read or changed this time.
    #[error("{0}")]
    Members(String),
    /// A step before the first operation failed: a set-up command, a configuration file, the start of the client.
    #[error("{0}")]
    SetUp(String),
    /// The test has no such node.
    #[error("unknown node {0}")]
    Unknown(NodeId),
}

/// The last lines of a log as the end of a message, or a note that it is empty.
fn tail(log: &Path, log_tail: &str) -> String {
    if log_tail.is_empty() {
        return format!("; its log {} is empty", log.display());
    }
    format!("; the last lines of {}:\n{log_tail}", log.display())
}

/// A test without nodes: the system runs inside the clients, or is operated outside the test.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNodes;

impl Nodes for NoNodes {
    fn ids(&self) -> &[NodeId] {
        &[]
    }

    fn prepare<'a>(&'a self, _: &'a Path, _: &'a Mesh) -> BoxFuture<'a, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<InjectionResult, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::Unknown(node))))
    }

    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        _: Rng,
    ) -> BoxFuture<'a, Result<InjectionResult, NodeError>> {
        let effect = match fault.node() {
            Some(node) => Err(NodeError::Unknown(node)),
            None => Ok(InjectionResult::unsupported(fault)),
        };
        Box::pin(std::future::ready(effect))
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::Unknown(node))))
    }
}
