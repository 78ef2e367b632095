//! What an upstairs is doing, for people and metrics.

use seatrial_machine::NodeId;
use std::fmt;

/// The state of an upstairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Can guests use it?
    pub is_active: bool,
    /// The generation; 0 before the first activation.
    pub generation: u32,
    /// The last flush that is durable on a quorum.
    pub flush: u64,
    /// Bytes of writes that are kept until they are durable.
    pub retained_bytes: u64,
    /// Guest requests under way.
    pub requests: u64,
    /// Guest requests done, by kind: reads, writes, flushes, trims.
    pub done: [u64; 4],
    /// Bytes read and written by guests.
    pub bytes: [u64; 2],
    /// Replies to guests.
    pub replies: u64,
    /// Those of them that are errors.
    pub failed: u64,
    /// The replicas.
    pub replicas: Vec<MirrorStatus>,
    /// Names of the snapshots.
    pub snapshots: Vec<String>,
}

/// How an upstairs sees a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorState {
    /// No session.
    #[default]
    Offline,
    /// Attached; the volume is not active yet.
    Attached,
    /// It gets new writes, and what it missed is copied.
    Repairing,
    /// It has everything.
    Active,
    /// It refuses this upstairs, or is refused: another volume, another shape.
    Refused,
}

impl MirrorState {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MirrorState::Offline => "offline",
            MirrorState::Attached => "attached",
            MirrorState::Repairing => "repairing",
            MirrorState::Active => "active",
            MirrorState::Refused => "refused",
        }
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// The replica.
    pub node: NodeId,
    /// Its state.
    pub state: MirrorState,
    /// Why it is refused, or went offline.
    pub reason: String,
    /// Messages sent that it has not acknowledged.
    pub unacknowledged: u64,
    /// Repairs that were begun, and blocks that they copied.
    pub repairs: [u64; 2],
    /// Chunks left to compare in the repair under way.
    pub chunks_left: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Blocks that it could not deliver intact.
    pub damaged: u64,
}
