//! The files of a recording in the folder, each checked against its name, its first block and its neighbours.

use crate::archive::{Archive, ArchiveError, Description, known, now_known};
use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::catalog::Recording;
use crate::cursor::{Extent, FirstBlock, HeaderReader, OpenSegment};
use crate::recording::{SegmentWalk, TailError, segments};
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_machine::Storage;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The position of its first byte.
    pub start: Position,
    /// Its current length in bytes.
    pub length: u64,
    /// Its path.
    pub file: PathBuf,
    /// Does it lie before the start of its recording? Then readers ignore it until it is attached.
    pub is_detached: bool,
    /// Number of its first message; `None` if its first block is not valid.
    pub first_message: Option<u64>,
    /// What is wrong with its first block, its length, or its position after the previous file. Later blocks are not read:
    /// `verify` does that.
    pub problem: Option<String>,
}

impl Archive {
    /// Describes a recording and its files; reads the first block of each.
    pub fn describe(&self, id: RecordingId) -> Result<Description, ArchiveError> {
        let (recording, is_live) = {
            let state = self.shared.state();
            let recording = now_known(&state, known(&state, id)?);
            (recording, super::is_live(&state, id))
        };
        let found = files(&self.shared.folder, &recording, Position(0), usize::MAX)?;
        let (detached, segments) = found.into_iter().partition(|file| file.is_detached);
        Ok(Description {
            recording,
            is_live,
            segments,
            detached,
        })
    }

    /// The catalog's entry of a recording, with its current end; reads no files.
    pub fn recording(&self, id: RecordingId) -> Result<Recording, ArchiveError> {
        let state = self.shared.state();
        Ok(now_known(&state, known(&state, id)?))
    }

    /// The files of a recording that start at or after `from`, at most `count_max`.
    pub fn segments(
        &self,
        id: RecordingId,
        from: Position,
        count_max: usize,
    ) -> Result<Vec<Segment>, ArchiveError> {
        let recording = self.recording(id)?;
        Ok(files(&self.shared.folder, &recording, from, count_max)?)
    }

    /// The files of a recording of [`Archive::view`], read without a lock and without changes.
    pub fn view_segments(
        storage: Arc<dyn Storage>,
        folder: &Path,
        recording: &Recording,
    ) -> Result<Vec<Segment>, ArchiveError> {
        let folder = ArchiveFolder::new(storage, folder);
        Ok(files(&folder, recording, Position(0), usize::MAX)?)
    }
}

impl Archive {
    /// Checks that all files of a stopped recording exist, each with a valid first block of this recording and the length
    /// that the next file's name implies. One open and one read of 4 KiB per file; `verify` checks the rest.
    pub(super) fn check_files(&self, recording: &Recording) -> Result<(), ArchiveError> {
        let folder = &self.shared.folder;
        let extent = Extent::of(recording);
        let (from, to) = (recording.start.position, recording.end.position);
        let starts = segments(&folder.list()?, recording.id);
        let is_ours = |start: &Position| *start == from || (from < *start && *start < to);
        let wrong = |start: Position, offset: u64, problem: String| {
            let recording = recording.id;
            let file = folder.path(&SegmentName { recording, start }.file());
            Err(ArchiveError::File {
                file,
                offset,
                problem,
            })
        };
        let mut expected = extent.start;
        let mut before: Option<u64> = None;
        for start in starts.into_iter().filter(is_ours) {
            let name = SegmentName {
                recording: recording.id,
                start,
            };
            if start > expected {
                return wrong(expected, 0, "the file is missing".to_owned());
            }
            if start < expected {
                let problem = format!("the file before it ends at {expected}, after its start");
                return wrong(start, 0, problem);
            }
            let first = first_block(folder, name, &extent)?;
            let (length, first) = match first {
                Ok(found) => found,
                Err(problem) => return wrong(start, 0, problem),
            };
            let sequence = first.block.sequence;
            if let Some(before) = before.filter(|before| *before >= sequence) {
                let problem =
                    format!("block number {sequence}, that of the file before is {before}");
                return wrong(start, 0, problem);
            }
            before = Some(sequence);
            expected = start.plus(length);
        }
        Ok(())
    }
}

/// A segment's length and first block, or why the block is not valid.
fn first_block(
    folder: &ArchiveFolder,
    name: SegmentName,
    extent: &Extent,
) -> Result<Result<(u64, FirstBlock), String>, StorageError> {
    let opened = OpenSegment::open(&*folder.storage, &folder.path(""), name, extent.tag);
    let mut source = opened.map_err(|(path, cause)| StorageError {
        action: "open",
        path,
        offset: None,
        cause,
    })?;
    let length = source.view.length();
    let there = length.min(HeaderReader::LENGTH as u64);
    let read = source.first(None, there).map_err(|error| StorageError {
        action: "read",
        path: source.path.clone(),
        offset: Some(0),
        cause: error,
    })?;
    let checked = read.and_then(|first| extent.check_first(&first).map(|()| (length, first)));
    Ok(checked.map_err(|fault| fault.to_string()))
}

/// The files of a recording from a position on. Files that are removed in between are left out.
fn files(
    folder: &ArchiveFolder,
    recording: &Recording,
    from: Position,
    count_max: usize,
) -> Result<Vec<Segment>, StorageError> {
    let starts = segments(&folder.list()?, recording.id);
    let first = recording.start.position;
    let mut found = Vec::new();
    for (index, &start) in starts.iter().enumerate() {
        if start < from {
            continue;
        }
        if found.len() >= count_max {
            break;
        }
        let name = SegmentName {
            recording: recording.id,
            start,
        };
        let medium = match folder.open(&name.file()) {
            Err(error) if error.is_not_found() => continue,
            other => other?,
        };
        let length = medium.len();
        let head = head(SegmentWalk::new(folder, name, recording.tag, &*medium));
        let is_first = start > first && starts[..index].iter().all(|before| *before < first);
        let lone = is_first
            .then(|| format!("the recording starts at {first}, and this is its first file"));
        let follows = || {
            follows(
                recording,
                start.plus(length),
                starts.get(index + 1).copied(),
            )
        };
        let (first_message, problem) = match head {
            Ok(first_message) => (Some(first_message), lone.or_else(follows)),
            Err(problem) => (None, Some(problem)),
        };
        found.push(Segment {
            start,
            length,
            file: folder.path(&name.file()),
            is_detached: start < first,
            first_message,
            problem,
        });
    }
    let has_none = found.iter().all(|file| file.is_detached);
    if has_none && from <= first && count_max > 0 && recording.end.position > first {
        let name = SegmentName {
            recording: recording.id,
            start: first,
        };
        found.push(Segment {
            start: first,
            length: 0,
            file: folder.path(&name.file()),
            is_detached: false,
            first_message: None,
            problem: Some("the file is missing".to_owned()),
        });
    }
    Ok(found)
}

/// The number of a segment's first message, or why its first block is not valid.
fn head(walk: Result<SegmentWalk<'_>, TailError>) -> Result<u64, String> {
    let walk = walk.map_err(|error| match error {
        TailError::Walk { cause, .. } => cause.to_string(),
        TailError::Segment { cause, .. } => cause.to_string(),
        other => other.to_string(),
    })?;
    match (walk.start(), walk.torn()) {
        (Some(start), _) => Ok(start.message),
        (None, Some(torn)) => Err(torn.to_string()),
        (None, None) => Err("the file is empty".to_owned()),
    }
}

/// What is wrong with the end of a file: it must be the start of the next one, or the end of the recording.
fn follows(recording: &Recording, end: Position, next: Option<Position>) -> Option<String> {
    let is_open = recording.stopped.is_none();
    match next {
        Some(next) if next != end => {
            Some(format!("it ends at {end}, the next file starts at {next}"))
        }
        Some(_) => None,
        // A live recording may have grown since its end was read.
        None if end == recording.end.position || (is_open && end > recording.end.position) => None,
        None => Some(format!(
            "it ends at {end}, the recording at {}",
            recording.end.position
        )),
    }
}
