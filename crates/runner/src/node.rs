//! The nodes of the system under test, whatever they are.

use crate::{BoxFuture, ClientError, ClockOrder, Mesh};
use seatrial_generator::View;
use seatrial_machine::{DiskTrouble, NodeId, Rng};
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

    /// Ends a node at once, and returns when it is gone.
    fn kill(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>>;

    /// Stops a node without ending it, and returns when it stands still.
    fn pause(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>>;

    /// Lets a paused node go on.
    fn resume(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>>;

    /// Makes the node's clock wrong from now on, or right again.
    fn set_clock(&self, _: NodeId, _: ClockOrder) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the clocks of these nodes cannot be changed")
    }

    /// Troubles the node's disk from now on, or mends it. What goes down because of it is not started by mending.
    fn trouble(
        &self,
        _: NodeId,
        trouble: Option<DiskTrouble>,
    ) -> BoxFuture<'_, Result<Effect, NodeError>> {
        match trouble {
            None => cannot("nothing was wrong with this disk"),
            Some(_) => cannot("the disks of these nodes cannot be troubled"),
        }
    }

    /// Takes the power away: the node is gone, and all that it had not synced.
    fn lose_unsynced(&self, _: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the power of these nodes cannot be cut")
    }

    /// Flips `bits` bits of what the node has on its disk.
    fn rot(&self, _: NodeId, _bits: u32, _: Rng) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the disks of these nodes cannot be damaged")
    }

    /// Cuts off the end of the file that the node, which is down, wrote last.
    fn truncate(&self, _: NodeId, _bytes: u64) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the disks of these nodes cannot be damaged")
    }

    /// Keeps a copy of what the node has on its disk.
    fn snapshot(&self, _: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the disks of these nodes cannot be copied")
    }

    /// Puts the copy back under the node, which is down.
    fn restore(&self, _: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        cannot("the disks of these nodes cannot be damaged")
    }

    /// Asks every node that answers who belongs to the system, and which nodes lead.
    fn view(&self) -> BoxFuture<'_, Result<View, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::NoMembership)))
    }

    /// Tells a node to join the system; returns when it was told, not when it has joined.
    fn join(&self, _: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::NoMembership)))
    }

    /// Tells a node to leave the system; returns when it was told, not when it has left.
    fn leave(&self, _: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::NoMembership)))
    }

    /// Ends a node in good order; by force when it does not obey within its limit.
    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>>;

    /// Takes note of the nodes that ended although nobody told them to, since the last call.
    fn take_deaths(&self) -> Vec<Death> {
        Vec::new()
    }
}

/// Nothing happens, for this reason.
fn cannot(reason: &str) -> BoxFuture<'static, Result<Effect, NodeError>> {
    Box::pin(std::future::ready(Ok(Effect::nothing(reason))))
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

    fn kill(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        self.start(node)
    }

    fn pause(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        self.start(node)
    }

    fn resume(&self, node: NodeId) -> BoxFuture<'_, Result<Effect, NodeError>> {
        self.start(node)
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Err(NodeError::Unknown(node))))
    }
}
