//! What clients ask of a member of the replicated log, and the log as a client sees it.

use seatrial_machine::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A command of a client. Numbers are unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Append this number to the log.
    Append(u64),
    /// Return all numbers that were appended before. It takes a position of its own, so it is linearizable.
    Read(u64),
}

/// A request to a member.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Replicate this command.
    Replicate(Command),
    /// Make a snapshot of the decided log, on this member only.
    Snapshot,
    /// End this configuration (omnipaxos).
    StopSign,
    /// Change the membership by this node, if this member leads (raft).
    Change(NodeId),
    /// Hand the leadership to this node, if this member leads (raft).
    Transfer(NodeId),
    /// Send fields that no member sends in the next reply (raft).
    Forge,
}

/// The reply to [`Request::Replicate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The number was appended at this offset.
    Appended(u64),
    /// All numbers so far.
    Values(Vec<u64>),
    /// Not proposed here; the leader, if it is known.
    Refused(Option<NodeId>),
}

/// The content of one position of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Decision {
    /// A command.
    Command(Command),
    /// An entry of the library's own: its term, and what it is.
    Internal(u64, String),
    /// The end of the configuration.
    Stop,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Command(Command::Append(value)) => write!(f, "append {value}"),
            Decision::Command(Command::Read(_)) => f.write_str("read"),
            Decision::Internal(term, what) => write!(f, "{what} of term {term}"),
            Decision::Stop => f.write_str("stop-sign"),
        }
    }
}

/// The state of a member: everything decided, by position, and the numbers appended. A command that was decided twice (the
/// network repeated a proposal) takes effect once.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogState {
    pub(crate) decisions: Vec<Decision>,
    values: Vec<u64>,
    seen: BTreeSet<u64>,
}

impl LogState {
    /// The state after these decisions.
    pub(crate) fn of(decisions: &[Decision]) -> LogState {
        let mut state = LogState::default();
        for decision in decisions {
            state.apply(decision.clone());
        }
        state
    }

    /// Applies the decision at the next position; returns the reply to its client.
    pub(crate) fn apply(&mut self, decision: Decision) -> Option<(Command, Reply)> {
        self.decisions.push(decision.clone());
        let Decision::Command(command) = decision else {
            return None;
        };
        let reply = match command {
            Command::Append(value) => {
                if self.seen.insert(value) {
                    self.values.push(value);
                }
                let offset = self.values.iter().position(|known| *known == value)?;
                Reply::Appended(offset as u64)
            }
            Command::Read(_) => Reply::Values(self.values.clone()),
        };
        Some((command, reply))
    }

    /// Number of positions.
    pub(crate) fn length(&self) -> u64 {
        self.decisions.len() as u64
    }
}
