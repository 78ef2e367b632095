//! What the catalog says of a recording that is being read.

use super::{CursorError, system};
use crate::catalog::{self, CATALOG, Recording};
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_machine::{Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far a recording reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Nothing before this is to be read.
    pub(crate) start: Position,
    /// Everything before this was whole once. Where the recording ends if it was stopped, otherwise at least.
    pub(crate) promised: Position,
    /// Was it stopped? Then it ends there.
    pub(crate) is_stopped: bool,
}

/// By what a change of the catalog is seen: its length and its last bytes, in which the checksum of the newest event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    length: u64,
    last: [u8; Mark::LENGTH],
}

impl Mark {
    /// More than a block's header and the shortest event.
    const LENGTH: usize = 64;
}

impl Extent {
    /// Looks whether the catalog has changed.
    pub(crate) fn mark(storage: &dyn Storage, folder: &Path) -> Result<Mark, CursorError> {
        let (path, medium) = catalog_file(storage, folder)?;
        let mut mark = Mark {
            length: medium.len(),
            last: [0; Mark::LENGTH],
        };
        let there = (mark.length as usize).min(Mark::LENGTH);
        let at = mark.length - there as u64;
        match medium.read_at(at, &mut mark.last[..there]) {
            Ok(()) => Ok(mark),
            Err(error) => Err(system("read", &path, at, error)),
        }
    }

    /// Looks at the catalog; nothing when it has no such recording.
    pub(crate) fn read(
        storage: &dyn Storage,
        folder: &Path,
        recording: RecordingId,
    ) -> Result<Option<Extent>, CursorError> {
        let (path, medium) = catalog_file(storage, folder)?;
        let contents = catalog::read(&*medium, path)?;
        Ok(contents.catalog.recording(recording).map(Extent::of))
    }

    /// That of a recording.
    pub(crate) fn of(recording: &Recording) -> Extent {
        Extent {
            start: recording.start.position,
            promised: recording.end.position,
            is_stopped: recording.stopped.is_some(),
        }
    }

    /// Where it was stopped.
    pub(crate) fn stop(&self) -> Option<Position> {
        self.is_stopped.then_some(self.promised)
    }

    /// Leaves out the names of what is detached or left over: before the start, and behind the stop.
    pub(crate) fn keep(&self, names: &mut Vec<SegmentName>) {
        let first = names.partition_point(|name| name.start <= self.start);
        names.drain(..first.saturating_sub(1));
        if let Some(stop) = self.stop() {
            names.truncate(names.partition_point(|name| name.start < stop).max(1));
        }
    }

    /// How many of the `length` bytes of the segment that starts at `start` no recovery will cut off.
    pub(crate) fn settled(&self, start: Position, length: u64, is_last: bool) -> u64 {
        if is_last {
            self.promised.since(start).min(length)
        } else {
            length
        }
    }
}

/// The catalog's file, open.
fn catalog_file(
    storage: &dyn Storage,
    folder: &Path,
) -> Result<(PathBuf, Arc<dyn Medium>), CursorError> {
    let path = folder.join(CATALOG);
    match storage.open(&path) {
        Ok(medium) => Ok((path, medium)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CursorError::NoArchive {
            folder: folder.to_owned(),
        }),
        Err(error) => Err(system("open", &path, 0, error)),
    }
}
