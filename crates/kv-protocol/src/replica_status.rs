//! The status of a replica: its role and positions, the membership, its checkpoints, the digest of its state.

use seatrial_consensus::{MemberStatus, Members};
use seatrial_machine::NodeId;
use std::fmt;

/// Bound of the past states that a replica keeps for reads at an index.
pub const PAST_STATES_MAX: usize = 16;

/// What a replica is at the moment, for its page, metrics and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// This node.
    pub node: NodeId,
    /// Number of its cluster.
    pub cluster: u64,
    /// Number of this start, from 1.
    pub start: u64,
    /// Role, term, leader and positions.
    pub member: MemberStatus,
    /// The membership that is in force here.
    pub members: Members,
    /// The last applied entry.
    pub applied: u64,
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Is it silent, because its journal is lost, until it has rejoined?
    pub is_rejoining: bool,
    /// Checkpoints and transfers.
    pub checkpoints: CheckpointStatus,
    /// Indices at which it can be read, as far as it keeps past states.
    pub readable: Vec<u64>,
    /// The digest of the state, if it was asked for: at the last applied entry, or at one shortly before.
    pub digest: Option<StateDigest>,
}

/// The checkpoints of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Index of the newest durable one; 0: none.
    pub newest: u64,
    /// Bytes of its file.
    pub length: u64,
    /// Index of the one that is being written.
    pub writing: Option<u64>,
    /// Index of the one that is being received from another node.
    pub receiving: Option<u64>,
    /// Number made since the start.
    pub made: u64,
    /// Those of `made` that hold only the changes since a whole one.
    pub changes: u64,
    /// Number skipped because another was under way.
    pub skipped: u64,
    /// Number given up after an error.
    pub failed: u64,
    /// Number received from another node.
    pub received: u64,
    /// Number of the newest indices at which two nodes have reported different digests.
    pub different: u64,
    /// The last error of this node.
    pub last_error: Option<String>,
}

/// The digest of the state at an index: that of a whole checkpoint at this index, so it covers keys, values, sessions, members
/// and the schedule of checkpoints. Equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateDigest {
    /// The last entry whose effect it covers.
    pub index: u64,
    /// XXH3-128 of the checkpoint's bytes before its root.
    pub bytes: [u8; 16],
}

/// The digest in hexadecimal.
impl fmt::Display for StateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
