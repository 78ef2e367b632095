//! What an upstairs is doing, for people and metrics.

use seatrial_machine::NodeId;
use std::fmt;
use std::time::Duration;

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
    /// The epoch of the key that seals, and whether keys of earlier ones are still needed.
    pub epoch: (u16, bool),
    /// Sweeps over all blocks, the last one of each kind.
    pub sweeps: Vec<SweepStatus>,
    /// Stages of requests that were reached.
    pub stages: Vec<StageStatus>,
}

/// What a sweep over all blocks does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepKind {
    /// Copies from the parent the blocks that were never written.
    Fill,
    /// Seals blocks with the newest key.
    Rekey,
    /// Reads the blocks of each replica and repairs damaged ones.
    Repair,
}

impl SweepKind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            SweepKind::Fill => "fill",
            SweepKind::Rekey => "rekey",
            SweepKind::Repair => "repair",
        }
    }
}

/// The progress of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepStatus {
    /// What it does.
    pub kind: SweepKind,
    /// Blocks that it has looked at, of all.
    pub looked: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that it wrote; of a repair, damaged ones.
    pub changed: u64,
    /// Blocks that no replica could deliver.
    pub failed: u64,
    /// Is it complete, and durable on a quorum?
    pub is_done: bool,
    /// Snapshots that are older than its end: they still need the parent, or earlier keys.
    pub needed_by: Vec<String>,
    /// Why it waits; empty if it does not.
    pub reason: String,
}

/// Durations of one stage of the requests, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageStatus {
    /// What is timed.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Half of them took no longer, …
    pub p50: Duration,
    /// … 99 of 100, …
    pub p99: Duration,
    /// … and all.
    pub max: Duration,
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
    /// How many of the repairs sent what was kept, without a comparison.
    pub replays: u64,
    /// Chunks left to compare in the repair under way.
    pub chunks_left: u64,
    /// Kept writes left to send in it.
    pub writes_left: u64,
    /// Messages sent again.
    pub resent: u64,
    /// Blocks that it could not deliver intact.
    pub damaged: u64,
}
