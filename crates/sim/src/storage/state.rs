//! What is wrong with a storage, and who watches what is done to it.

use super::media::Media;
use crate::crash::Operation;
use seatrial_machine::DiskTrouble;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Who watches the changes of a storage.
#[derive(Debug, Default)]
pub(super) enum Watch {
    #[default]
    Nothing,
    /// Every change is kept, for all crash states of a run.
    Keeps(Vec<Operation>),
    /// What is not durable is kept, for the crashes of a world.
    Tracks(Box<Media>),
}

impl Watch {
    /// The name to be noted with a change of a file: only those who keep changes read it, and it costs an allocation.
    pub(super) fn name_of(&self, path: &Path) -> PathBuf {
        match self {
            Watch::Keeps(_) => path.to_owned(),
            _ => PathBuf::new(),
        }
    }

    /// A change took effect.
    pub(super) fn note(&mut self, operation: impl FnOnce() -> Operation) {
        match self {
            Watch::Nothing => {}
            Watch::Keeps(operations) => operations.push(operation()),
            Watch::Tracks(media) => media.apply(operation()),
        }
    }
}

/// A call of a storage, as far as faults tell calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A file is opened, locked or looked for.
    Open,
    Read,
    Create,
    Rename,
    Remove,
    Write,
    /// Of a folder, or of a file that has no unsynced bytes.
    Sync,
    /// Of a file that has some.
    SyncBytes,
}

impl Call {
    const fn is_change(self) -> bool {
        !matches!(self, Call::Open | Call::Read)
    }
}

/// What is wrong, and who watches.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) watch: Watch,
    pub(super) trouble: Option<DiskTrouble>,
    /// Bytes that may still be written; `None`: any number.
    pub(super) room: Option<u64>,
    pub(super) fails_syncs: bool,
    /// Changes until the process that uses it ends; `None`: it does not.
    pub(super) fuse: Option<u64>,
    /// Syncs so far.
    pub(super) syncs: u64,
}

impl State {
    pub(super) fn new(watch: Watch) -> State {
        State {
            watch,
            ..State::default()
        }
    }

    /// Can this be done?
    pub(super) fn enter(&mut self, call: Call) -> io::Result<()> {
        let other = |text: &str| Err(io::Error::other(text));
        if let Some(left) = &mut self.fuse {
            if *left == 0 {
                return other("the process that used this storage has ended");
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

    /// How many of these bytes there is room for; they are taken.
    pub(super) fn take_room(&mut self, length: usize) -> usize {
        let Some(room) = &mut self.room else {
            return length;
        };
        let fits = (*room).min(length as u64);
        *room -= fits;
        fits as usize
    }
}
