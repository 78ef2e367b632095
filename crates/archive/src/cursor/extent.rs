//! The extent of a recording according to the catalog, for readers.

use super::{BlockDamage, ContentError, CursorError, ExpectedBlock, FirstBlock, system};
use crate::catalog::{self, Boundary, CATALOG, Recording};
use crate::recording::with_mark;
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::Defect;
use seatrial_machine::{Medium, Storage};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Start and end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The tag in its blocks.
    pub(crate) tag: Option<RecordingTag>,
    /// Its start; bytes before are not read.
    pub(crate) start: Position,
    /// Its end if it was stopped, else a lower bound of it. Everything before was valid once.
    pub(crate) known_end: Position,
    /// Was it stopped?
    pub(crate) is_stopped: bool,
    /// The catalog's boundaries of its start and end.
    pub(crate) boundaries: [Boundary; 2],
}

/// Detects a change of the catalog: its length and its last bytes, which include the checksum of the newest event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatalogFingerprint {
    length: u64,
    last: [u8; CatalogFingerprint::LENGTH],
}

impl CatalogFingerprint {
    /// More than the header and payload of the shortest event.
    const LENGTH: usize = 64;
}

impl Extent {
    /// The catalog's fingerprint now.
    pub(crate) fn mark(
        storage: &dyn Storage,
        folder: &Path,
    ) -> Result<CatalogFingerprint, CursorError> {
        let (path, medium) = catalog_file(storage, folder)?;
        let mut mark = CatalogFingerprint {
            length: medium.len(),
            last: [0; CatalogFingerprint::LENGTH],
        };
        let there = (mark.length as usize).min(CatalogFingerprint::LENGTH);
        let at = mark.length - there as u64;
        match medium.read_at(at, &mut mark.last[..there]) {
            Ok(()) => Ok(mark),
            Err(error) => Err(system("read", &path, at, error)),
        }
    }

    /// Reads the extent of a recording from the catalog; `None` if there is no such recording.
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

    /// The extent of a catalog's entry.
    pub(crate) fn of(recording: &Recording) -> Extent {
        assert!(recording.start.position <= recording.end.position);
        Extent {
            tag: recording.tag,
            start: recording.start.position,
            known_end: recording.end.position,
            is_stopped: recording.stopped.is_some(),
            boundaries: [recording.start, recording.end],
        }
    }

    /// Checks that the first segment has the block number, message number and time of the catalog's start.
    pub(crate) fn check_first(&self, first: &FirstBlock) -> Result<(), BlockDamage> {
        let [start, _] = self.boundaries;
        if first.segment.start != start.position {
            return Ok(());
        }
        let (expected, found) = (start.sequence, first.block.sequence);
        if expected != found {
            return Err(Defect::Sequence { expected, found }.into());
        }
        let chain = ExpectedBlock {
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

    /// Checks that the last block ends with the numbers and time of the catalog's end, unlike one of another recording.
    pub(crate) fn check_end(&self, chain: &ExpectedBlock) -> Result<(), BlockDamage> {
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

    /// The end of a stopped recording.
    pub(crate) fn stop(&self) -> Option<Position> {
        self.is_stopped.then_some(self.known_end)
    }

    /// Removes the names of segments outside the recording: detached ones before its start, and remains after its end.
    pub(crate) fn keep(&self, names: &mut Vec<SegmentName>) {
        let first = names.partition_point(|name| name.start <= self.start);
        names.drain(..first.saturating_sub(1));
        if let Some(stop) = self.stop() {
            names.truncate(names.partition_point(|name| name.start < stop).max(1));
        }
    }

    /// How many of the `length` bytes of the segment at `start` no recovery cuts off.
    pub(crate) fn settled(&self, start: Position, length: u64, is_last: bool) -> u64 {
        if is_last {
            self.known_end.since(start).min(length)
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
            // A folder with segments but without a catalog has lost it, which is another error.
            catalog::read_folder(storage, folder)?;
            Err(CursorError::NoArchive {
                folder: folder.to_owned(),
            })
        }
        Err(error) => Err(system("open", &path, 0, error)),
    }
}
