//! What a turn of consensus has for its machine, and what it refuses.

use crate::log_entry::{LogEntry, Members, SnapshotMark, Vote};
use crate::peer_message::PeerMessage;
use seatrial_machine::{NodeId, Ticket};
use thiserror::Error;

/// Everything that a turn has to do. Parts are independent, but for `persist`: until [`crate::Consensus::persisted`] was called
/// with its ticket, the messages that depend on it stay inside of the core.
#[derive(Debug, Default)]
pub struct Ready {
    /// Messages to send now, in this order. They may be lost.
    pub send: Vec<PeerMessage>,
    /// What to make durable.
    pub persist: Option<Persist>,
    /// Committed entries in order, without gaps. Report their application with [`crate::Consensus::applied`].
    pub committed: Vec<Committed>,
    /// Reads that may be answered once everything up to their index is applied.
    pub reads: Vec<ReadGrant>,
    /// Reads that get no index: a leader changed, or messages were lost. Ask again.
    pub reads_failed: Vec<u64>,
    /// Ranges of old entries to read from the journal, for [`crate::Consensus::fetched`].
    pub fetch: Vec<Fetch>,
    /// A checkpoint that another member has and this one needs: pull the state, then call
    /// [`crate::Consensus::transferred`].
    pub transfer: Option<CheckpointOffer>,
    /// A member waits for a checkpoint that knows it (rule 7): make one, then call [`crate::Consensus::checkpointed`].
    pub checkpoint_due: bool,
}

impl Ready {
    /// Length of the payloads of the committed entries.
    pub fn committed_bytes(&self) -> u64 {
        let payloads = self.committed.iter().map(|it| &it.entry.payload);
        payloads.map(|it| it.length() as u64).sum()
    }
}

/// What to make durable, in the order of the tickets.
#[derive(Clone, Debug)]
pub struct Persist {
    /// Report it with [`crate::Consensus::persisted`].
    pub ticket: Ticket,
    /// A transferred checkpoint to install in place of state and log. When its ticket is reported it is installed and applied.
    pub install: Option<SnapshotMark>,
    /// Entries. The first replaces the entry with its index and everything after it.
    pub entries: Vec<LogEntry>,
    /// The vote.
    pub vote: Vote,
}

/// A committed entry.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The entry.
    pub entry: LogEntry,
    /// The membership from this entry on, if it changed. Checkpoints contain the newest one.
    pub membership: Option<Members>,
}

/// The index of a linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadGrant {
    /// The token of [`crate::Consensus::read`].
    pub token: u64,
    /// Answer the read once this index is applied.
    pub index: u64,
}

/// A range of entries that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// First index.
    pub low: u64,
    /// After the last index. Fewer entries than asked for are enough.
    pub high: u64,
}

/// A checkpoint to pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOffer {
    /// The leader that offers it. Any member that has it will do.
    pub from: NodeId,
    /// The checkpoint.
    pub mark: SnapshotMark,
}

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks whether it could win an election.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

impl Role {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Follower => "follower",
            Role::PreCandidate => "pre-candidate",
            Role::Candidate => "candidate",
            Role::Leader => "leader",
        }
    }
}

/// The state of a member, for clients and people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberStatus {
    /// Its role.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// The leader that it knows.
    pub leader: Option<NodeId>,
    /// The last entry.
    pub last: u64,
    /// The last entry that is durable here.
    pub persisted: u64,
    /// The last committed entry.
    pub committed: u64,
    /// The last applied entry.
    pub applied: u64,
}

/// Why a member refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Only the leader can do it.
    #[error("this node is not the leader{}", .0.map(|node| format!("; {node} is")).unwrap_or_default())]
    NotLeader(Option<NodeId>),
    /// The entry is empty or too long.
    #[error("an entry of {0} bytes; allowed are 1 to {max}", max = crate::ENTRY_LENGTH_MAX)]
    Length(usize),
    /// Too many bytes are not committed, a leadership is handed over, or a checkpoint is being installed.
    #[error("no proposals and reads at the moment; try again")]
    Busy,
    /// The membership change contradicts itself or the present membership.
    #[error("membership change refused: {0}")]
    Membership(&'static str),
    /// The node stopped.
    #[error(transparent)]
    Stopped(#[from] ConsensusStopped),
}

/// Consensus stopped: its node must end as if it crashed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("consensus stopped in {during}: {cause}")]
pub struct ConsensusStopped {
    /// The call.
    pub during: &'static str,
    /// The panic or the contradiction.
    pub cause: String,
}
