//! The nodes of the system under test, whatever they are.

use crate::{BoxFuture, ClientError, Mesh};
use seatrial_generator::View;
use seatrial_machine::{Fault, FaultKind, NodeId, Rng};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The system under test as a set of nodes that can be started, broken and mended. [`ProcessNodes`] does it for
/// local processes, [`NoNodes`] for a test that has none; another implementation may reach nodes elsewhere.
///
/// Breaking and mending answer with an [`Effect`], which tells whether anything happened: a fault that never bit
/// proves nothing.
///
/// [`ProcessNodes`]: crate::ProcessNodes
pub trait Nodes: Send + Sync {
    /// All nodes, in the order in which workers are spread over them.
    fn ids(&self) -> &[NodeId];

    /// Makes the run folder ready, chooses addresses and enters them into the mesh. Called once, first.
    fn prepare<'a>(
        &'a self,
        folder: &'a Path,
        mesh: &'a Mesh,
    ) -> BoxFuture<'a, Result<(), NodeError>>;

    /// Starts a node unless it runs, and waits until it answers. Used at the beginning and to restart it.
    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>>;

    /// Waits until the nodes, all started, have found together.
    fn formed(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Injects or mends a fault of a node, and returns when its effect has been verified. The default supports none:
    /// implement what these nodes can do and answer [`Effect::unsupported`] for the rest. Links are not the nodes' matter,
    /// and a restart is [`Nodes::start`].
    ///
    /// `rng` is for the choices that the fault leaves open, such as which bits flip.
    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        rng: Rng,
    ) -> BoxFuture<'a, Result<Effect, NodeError>> {
        let _ = rng;
        let effect = match fault.kind() {
            FaultKind::Membership => Err(NodeError::NoMembership),
            _ => Ok(Effect::unsupported(fault)),
        };
        Box::pin(std::future::ready(effect))
    }

    /// Asks every node that answers who belongs to the system, and which nodes lead.
    fn view(&self) -> BoxFuture<'_, Result<View, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::NoMembership)))
    }

    /// Ends a node in good order; by force when it does not obey within its limit.
    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>>;

    /// Takes note of the nodes that ended although nobody told them to, since the last call.
    fn take_deaths(&self) -> Vec<Death> {
        Vec::new()
    }
}

/// What came of an attempt to break or mend something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It happened, as was verified; what exactly.
    Done(String),
    /// Nothing happened; why.
    Nothing(String),
}

impl Effect {
    /// It happened.
    pub fn done(what: impl Into<String>) -> Effect {
        Effect::Done(what.into())
    }

    /// Nothing happened.
    pub fn nothing(why: impl Into<String>) -> Effect {
        Effect::Nothing(why.into())
    }

    /// These nodes have no such fault.
    pub fn unsupported(fault: &Fault) -> Effect {
        Effect::Nothing(format!(
            "these nodes do not support the fault {}",
            fault.name()
        ))
    }
}

/// A node that ended by itself.
#[derive(Clone, Debug)]
pub struct Death {
    /// Which one.
    pub node: NodeId,
    /// When that was seen.
    pub at: Instant,
    /// Its exit status or signal, in words.
    pub status: String,
    /// The last lines of its log.
    pub log_tail: String,
}

/// Why a node, or all of them, cannot be used.
#[derive(Debug, Error)]
pub enum NodeError {
    /// Somebody else listens where the node should.
    #[error("port {} is in use: {node} cannot listen on {address}", address.port())]
    PortInUse {
        /// The node.
        node: NodeId,
        /// Its address.
        address: SocketAddr,
    },
    /// The node has no address to listen on.
    #[error("{node} has no address of its own: {error}")]
    Address {
        /// The node.
        node: NodeId,
        /// What the system says.
        error: io::Error,
    },
    /// The node's program cannot be started.
    #[error("{node} cannot be started: {program}: {error}")]
    Program {
        /// The node.
        node: NodeId,
        /// The program's path or name.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The suite could not say how to start the node.
    #[error("{node} cannot be started: {error}")]
    Command {
        /// The node.
        node: NodeId,
        /// Why.
        error: ClientError,
    },
    /// The node's process ended instead of answering.
    #[error("{node} ended ({status}) before it answered{}", tail(.log, .log_tail))]
    Ended {
        /// The node.
        node: NodeId,
        /// Its exit status or signal, in words.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        log_tail: String,
    },
    /// The node runs but does not answer.
    #[error("{node} did not answer within {} s: {reason}{}", limit.as_secs_f64(), tail(.log, .log_tail))]
    Silent {
        /// The node.
        node: NodeId,
        /// How long was waited.
        limit: Duration,
        /// The last answer to the question.
        reason: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        log_tail: String,
    },
    /// The nodes run but have not found together.
    #[error("the nodes did not find together within {} s: {reason}", limit.as_secs_f64())]
    NotFormed {
        /// How long was waited.
        limit: Duration,
        /// The last answer to the question.
        reason: String,
    },
    /// A signal could not be sent, or did not do what it should.
    #[error("{node} could not be {verb}: {error}")]
    Signal {
        /// The node.
        node: NodeId,
        /// What was tried: `killed`, `paused`, …
        verb: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// A file or folder of the node cannot be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Nodes of this system neither join nor leave it.
    #[error("this system does not say who belongs to it; its nodes cannot join or leave")]
    NoMembership,
    /// The test has no such node.
    #[error("there is no node {0}")]
    Unknown(NodeId),
}

/// The end of a log for people, or a word that it is empty.
fn tail(log: &Path, log_tail: &str) -> String {
    if log_tail.is_empty() {
        return format!("; its log {} is empty", log.display());
    }
    format!("; the last lines of {}:\n{log_tail}", log.display())
}

/// No nodes at all: the system is inside the clients, or somebody else runs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNodes;

impl Nodes for NoNodes {
    fn ids(&self) -> &[NodeId] {
        &[]
    }

    fn prepare<'a>(&'a self, _: &'a Path, _: &'a Mesh) -> BoxFuture<'a, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::Unknown(node))))
    }

    fn inject<'a>(&'a self, fault: &'a Fault, _: Rng) -> BoxFuture<'a, Result<Effect, NodeError>> {
        let effect = match fault.node() {
            Some(node) => Err(NodeError::Unknown(node)),
            None => Ok(Effect::unsupported(fault)),
        };
        Box::pin(std::future::ready(effect))
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::Unknown(node))))
    }
}
