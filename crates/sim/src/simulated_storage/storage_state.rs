//! Faults of a storage, and the record of its changes.

use super::media::Media;
use crate::crash::DiskOperation;
use seatrial_machine::DiskTrouble;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// How a storage keeps track of its changes.
#[derive(Debug, Default)]
pub(super) enum ChangeTracker {
    #[default]
    Nothing,
    /// Records every change, for all crash states of a run.
    Keeps(Vec<DiskOperation>),
    /// Tracks the changes that are not durable, for the crashes of a world.
    Tracks(Box<Media>),
}

impl ChangeTracker {
    /// The name to record with a change of a file. Empty unless changes are recorded: it costs an allocation.
    pub(super) fn name_of(&self, path: &Path) -> PathBuf {
        match self {
            ChangeTracker::Keeps(_) => path.to_owned(),
            _ => PathBuf::new(),
        }
    }

    /// Records a change that took effect.
    pub(super) fn note(&mut self, operation: impl FnOnce() -> DiskOperation) {
        match self {
            ChangeTracker::Nothing => {}
            ChangeTracker::Keeps(operations) => operations.push(operation()),
            ChangeTracker::Tracks(media) => media.apply(operation()),
        }
    }
}

/// Kinds of calls that faults distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A file is opened, locked or looked up.
    Open,
    Read,
    Create,
    Rename,
    Remove,
    Write,
    /// A sync of a folder, or of a file without unsynced bytes.
    Sync,
    /// A sync of a file with unsynced bytes.
    SyncBytes,
}

impl Call {
    const fn is_change(self) -> bool {
        !matches!(self, Call::Open | Call::Read)
    }
}

/// Faults and change record of one disk.
#[derive(Debug, Default)]
pub(super) struct StorageState {
    pub(super) watch: ChangeTracker,
    pub(super) trouble: Option<DiskTrouble>,
    /// Bytes that may still be written; `None`: no bound.
    pub(super) room: Option<u64>,
    pub(super) fails_syncs: bool,
    /// Changes until the process that uses the storage ends; `None`: it does not end.
    pub(super) fuse: Option<u64>,
    /// Syncs so far.
    pub(super) syncs: u64,
}

impl StorageState {
    pub(super) fn new(watch: ChangeTracker) -> StorageState {
        StorageState {
            watch,
            ..StorageState::default()
        }
    }

    /// Counts a call and returns the error of the fault that it meets, if any.
    pub(super) fn enter(&mut self, call: Call) -> io::Result<()> {
        let other = |text: &str| Err(io::Error::other(text));
        if let Some(left) = &mut self.fuse {
            if *left == 0 {
                return other("the process that used this storage has ended (simulated)");
            }
            *left -= u64::from(call.is_change());
        }
        self.syncs += u64::from(matches!(call, Call::Sync | Call::SyncBytes));
        if self.fails_syncs && matches!(call, Call::Sync | Call::SyncBytes) {
            return other("the medium is gone");
        }
        match (self.trouble, call) {
            (Some(DiskTrouble::ReadErrors), Call::Read) => other("input/output error on reading"),
            (Some(DiskTrouble::NoSpace), Call::Write | Call::Create) => {
                Err(io::Error::new(ErrorKind::StorageFull, "no space left"))
            }
            (
                Some(DiskTrouble::WriteErrors),
                Call::Write | Call::Create | Call::Rename | Call::Remove | Call::SyncBytes,
            ) => other("input/output error on writing"),
            _ => Ok(()),
        }
    }

    /// Number of these bytes that fit on the disk; their room is taken.
    pub(super) fn take_room(&mut self, length: usize) -> usize {
        let Some(room) = &mut self.room else {
            return length;
        };
        let fits = (*room).min(length as u64);
        *room -= fits;
        fits as usize
    }
}
