//! What the catalog says of a recording that is being read.

use super::{Chain, ContentError, CursorError, Fault, First, system};
use crate::block::Defect;
use crate::catalog::{self, Boundary, CATALOG, Recording};
use crate::recording::with_mark;
use crate::segment::SegmentName;
use crate::{Position, RecordingId, RecordingTag};
use seatrial_machine::{Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far a recording reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// What its blocks are known by.
    pub(crate) tag: Option<RecordingTag>,
    /// Nothing before this is to be read.
    pub(crate) start: Position,
    /// Everything before this was whole once. Where the recording ends if it was stopped, otherwise at least.
    pub(crate) promised: Position,
    /// Was it stopped? Then it ends there.
    pub(crate) is_stopped: bool,
    /// What the catalog says of the first byte and of the end.
    pub(crate) boundaries: [Boundary; 2],
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
        let contents = catalog::read_folder(storage, folder)?;
        let contents = contents.ok_or_else(|| CursorError::NoArchive {
            folder: folder.to_owned(),
        })?;
        let recording = contents.catalog.recording(recording).cloned();
        Ok(recording.map(|recording| Extent::of(&with_mark(storage, folder, recording))))
    }

    /// That of a recording.
    pub(crate) fn of(recording: &Recording) -> Extent {
        Extent {
            tag: recording.tag,
            start: recording.start.position,
            promised: recording.end.position,
            is_stopped: recording.stopped.is_some(),
            boundaries: [recording.start, recording.end],
        }
    }

    /// Is the first segment the one of this recording: with the block, message and time that the catalog says?
    pub(crate) fn check_first(&self, first: &First) -> Result<(), Fault> {
        let [start, _] = self.boundaries;
        if first.segment.start != start.position {
            return Ok(());
        }
        let (expected, found) = (start.sequence, first.block.sequence);
        if expected != found {
            return Err(Defect::Sequence { expected, found }.into());
        }
        let chain = Chain {
            sequence: start.sequence,
            message: Some(start.message),
            time: first.segment.time,
        };
        chain.check_segment(&first.segment)?;
        let (expected, found) = (start.time, first.segment.time);
        if expected != found {
            return Err(ContentError::Begun { expected, found }.into());
        }
        Ok(())
    }

    /// Does the last block lead to what the catalog says of the end? A block of another recording does not.
    pub(crate) fn check_end(&self, chain: &Chain) -> Result<(), Fault> {
        let [_, end] = self.boundaries;
        let (expected, found) = (end.sequence, chain.sequence);
        if expected != found {
            return Err(Defect::Sequence { expected, found }.into());
        }
        if let Some(found) = chain.message {
            let expected = end.message;
            if expected != found {
                return Err(ContentError::FirstMessage { expected, found }.into());
            }
            let (expected, found) = (end.time, chain.time);
            if expected != found {
                return Err(ContentError::Ended { expected, found }.into());
            }
        }
        Ok(())
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Files of recordings without a catalog are an error of their own.
            catalog::read_folder(storage, folder)?;
            Err(CursorError::NoArchive {
                folder: folder.to_owned(),
            })
        }
        Err(error) => Err(system("open", &path, 0, error)),
    }
}
