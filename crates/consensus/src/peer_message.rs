//! Messages between the members of a cluster.

use crate::log_entry::{LogEntry, SnapshotMark};
use crate::peer_codec::ENTRIES_MAX;
use seatrial_machine::NodeId;

/// The place of a message on its link: receivers drop messages that are not newer than the newest they had (rule 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkNumber {
    /// The start of the sender; greater after each restart.
    pub start: u64,
    /// Counted from 1 per receiver and start.
    pub number: u64,
}

/// One message from one member to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Its place on the link.
    pub link: LinkNumber,
    /// The sender's term; of a pre-vote the term it would campaign for; 0 only in `ReadIndex`.
    pub term: u64,
    /// What it says.
    pub body: Body,
}

/// Bytes of a message that an entry takes besides its payload, about.
const ENTRY_OVERHEAD: u64 = 24;

impl PeerMessage {
    /// Cuts an append after as many entries as fit in `bytes_max`, at least one. Returns the append of the entries after them, if
    /// there are any. Other messages stay whole.
    pub(crate) fn split_off(&mut self, bytes_max: u64) -> Option<PeerMessage> {
        let Body::Append {
            commit, entries, ..
        } = &mut self.body
        else {
            return None;
        };
        let (mut bytes, mut kept) = (0, 0);
        for entry in entries.iter().take(ENTRIES_MAX) {
            bytes += entry.payload.length() as u64 + ENTRY_OVERHEAD;
            if kept > 0 && bytes > bytes_max {
                break;
            }
            kept += 1;
        }
        if kept == entries.len() {
            return None;
        }
        let rest = entries.split_off(kept);
        let last = &entries[kept - 1];
        Some(PeerMessage {
            body: Body::Append {
                previous_index: last.index,
                previous_term: last.term,
                commit: *commit,
                entries: rest,
            },
            ..*self
        })
    }
}

/// Identifies a read in messages: node, start and token of the reader. Unique in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadContext {
    /// The node that reads.
    pub node: NodeId,
    /// Its start.
    pub start: u64,
    /// Its own number of the read.
    pub token: u64,
}

/// Why an append was rejected: the receiver's log does not have the entry before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendRejection {
    /// Where the sender should look next.
    pub hint_index: u64,
    /// The receiver's term of that entry.
    pub hint_term: u64,
}

/// What a [`PeerMessage`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Append these entries after (`previous_index`, `previous_term`).
    Append {
        /// Index of the entry before the first.
        previous_index: u64,
        /// Its term.
        previous_term: u64,
        /// The leader's commit index.
        commit: u64,
        /// Consecutive entries; none carries the commit index.
        entries: Vec<LogEntry>,
    },
    /// The log is durable up to `index`, or the append at `index` was rejected.
    AppendReply {
        /// Last index that matches, or the rejected previous index.
        index: u64,
        /// The follower's commit index.
        commit: u64,
        /// Set when the append was rejected.
        rejected: Option<AppendRejection>,
    },
    /// The leader is alive.
    Heartbeat {
        /// Commit index that the follower may take over.
        commit: u64,
        /// The newest read that waits for a quorum.
        context: Option<ReadContext>,
    },
    /// The follower follows.
    HeartbeatReply {
        /// The follower's commit index.
        commit: u64,
        /// The read of the heartbeat.
        context: Option<ReadContext>,
    },
    /// Asks for a vote.
    Vote {
        /// A question whether an election could be won, without a new term?
        pre_vote: bool,
        /// On the leader's demand: granted although a leader is alive.
        transfer: bool,
        /// The candidate's last index.
        last_index: u64,
        /// Its term.
        last_term: u64,
        /// The candidate's commit index.
        commit: u64,
        /// Its term.
        commit_term: u64,
    },
    /// Grants or refuses a vote.
    VoteReply {
        /// Of a pre-vote?
        pre_vote: bool,
        /// Granted?
        granted: bool,
        /// The voter's commit index.
        commit: u64,
        /// Its term.
        commit_term: u64,
    },
    /// Campaign at once: the leader hands its leadership over.
    TimeoutNow,
    /// Which index must a linearizable read that begins now see?
    ReadIndex(ReadContext),
    /// That index.
    ReadIndexReply {
        /// The index.
        index: u64,
        /// The read.
        context: ReadContext,
    },
    /// The log does not reach back far enough: install this checkpoint.
    Snapshot(SnapshotMark),
}

impl Body {
    /// The name of its kind, for messages to people.
    pub fn name(&self) -> &'static str {
        match self {
            Body::Append { .. } => "append",
            Body::AppendReply { .. } => "append reply",
            Body::Heartbeat { .. } => "heartbeat",
            Body::HeartbeatReply { .. } => "heartbeat reply",
            Body::Vote { .. } => "vote",
            Body::VoteReply { .. } => "vote reply",
            Body::TimeoutNow => "timeout now",
            Body::ReadIndex(_) => "read index",
            Body::ReadIndexReply { .. } => "read index reply",
            Body::Snapshot(_) => "snapshot",
        }
    }
}
