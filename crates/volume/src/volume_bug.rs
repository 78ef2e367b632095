//! Bugs that can be planted in the volume, for tests of the tests.

use std::fmt;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeBug {
    /// A replica grants a generation without making it durable.
    ForgottenGeneration,
    /// A flush is acknowledged when one replica has done it.
    FlushAtOneCopy,
    /// A replica acknowledges a flush before its sync.
    MissingSync,
    /// A small write is sent before a larger one that is still being encrypted.
    ShortWriteOvertakes,
    /// Repair overwrites what a guest has written meanwhile.
    RepairOverwrites,
    /// Versions, and so nonces, begin anew when a replica reconnects.
    NonceReuse,
    /// Bytes are accepted for another block than the one they were sealed for.
    SwappedBlocks,
    /// A replica that lacks writes is taken as the source of a repair.
    DirtySource,
    /// A flush does not wait for the writes before it.
    BarrierLost,
    /// A replica is used for reads before its repair has ended.
    ReadsWhileRepairing,
    /// Reads do not wait for the writes before them.
    ReadOvertakesWrite,
    /// What a replica changed after its last flush is not repaired.
    GhostsKept,
    /// A replica that lacks a write more than what was kept is not compared.
    ReplayGap,
    /// Filling a clone overwrites what a guest has written meanwhile.
    FillOverwrites,
    /// Sealing with a new key does not keep writes of guests out.
    RekeyWithoutLock,
}

impl VolumeBug {
    /// All of them.
    pub const ALL: [VolumeBug; 15] = [
        VolumeBug::ForgottenGeneration,
        VolumeBug::FlushAtOneCopy,
        VolumeBug::MissingSync,
        VolumeBug::ShortWriteOvertakes,
        VolumeBug::RepairOverwrites,
        VolumeBug::NonceReuse,
        VolumeBug::SwappedBlocks,
        VolumeBug::DirtySource,
        VolumeBug::BarrierLost,
        VolumeBug::ReadsWhileRepairing,
        VolumeBug::ReadOvertakesWrite,
        VolumeBug::GhostsKept,
        VolumeBug::ReplayGap,
        VolumeBug::FillOverwrites,
        VolumeBug::RekeyWithoutLock,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            VolumeBug::ForgottenGeneration => "forgotten-generation",
            VolumeBug::FlushAtOneCopy => "flush-at-one-copy",
            VolumeBug::MissingSync => "missing-sync",
            VolumeBug::ShortWriteOvertakes => "short-write-overtakes",
            VolumeBug::RepairOverwrites => "repair-overwrites",
            VolumeBug::NonceReuse => "nonce-reuse",
            VolumeBug::SwappedBlocks => "swapped-blocks",
            VolumeBug::DirtySource => "dirty-source",
            VolumeBug::BarrierLost => "barrier-lost",
            VolumeBug::ReadsWhileRepairing => "reads-while-repairing",
            VolumeBug::ReadOvertakesWrite => "read-overtakes-write",
            VolumeBug::GhostsKept => "ghosts-kept",
            VolumeBug::ReplayGap => "replay-gap",
            VolumeBug::FillOverwrites => "fill-overwrites",
            VolumeBug::RekeyWithoutLock => "rekey-without-lock",
        }
    }
}

impl fmt::Display for VolumeBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
