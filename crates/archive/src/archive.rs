//! An archive: a folder of recordings, and the operations of the process that writes it.

mod catalog_repair;
mod catalog_view;
mod move_start;
mod open;
mod recording_repair;
mod segment_files;
mod truncate;

pub use catalog_repair::CatalogRepair;
pub use catalog_view::CatalogView;
pub use open::{Recovered, RecoveredRecording};
pub use recording_repair::{RepairError, Repaired};
pub use segment_files::Segment;

use crate::archive_folder::StorageError;
use crate::catalog::{
    Boundary, Catalog, CatalogError, CatalogEvent, EventKind, LABEL_LENGTH_MAX, RECORDINGS_MAX,
    Recording, RecordingFilter, Source,
};
use crate::position::tag_of;
use crate::recording::{
    RecordingOptions, Shared, State, TailError, Writer, WriterProgress, WriterState, create_first,
    recover_tail, remove_mark, segments,
};
use crate::segment::{SEGMENT_LENGTH_MAX, SEGMENT_LENGTH_MIN, SegmentName};
use crate::{Position, RecordingId};
use std::path::PathBuf;
use std::sync::Arc;

/// Why an operation on an archive failed. Unless it says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A storage call failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The catalog cannot be read or appended to.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A file of the recording is missing or is not the expected one.
    #[error("{file} at {offset}: {problem}; nothing was changed")]
    File {
        /// The file.
        file: PathBuf,
        /// Offset of the problem.
        offset: u64,
        /// The problem, with expected and found values.
        problem: String,
    },
    /// The end of a recording cannot be determined from its files.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// Another process is writing this archive.
    #[error("{path} is in use by another process")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// There is no such recording.
    #[error("there is no recording {recording}")]
    Unknown {
        /// The number.
        recording: RecordingId,
    },
    /// A writer of the recording is open.
    #[error("recording {recording} is being recorded")]
    BeingRecorded {
        /// The number.
        recording: RecordingId,
    },
    /// A sync of the recording failed, so reads may return bytes that the medium does not have.
    #[error("a sync of recording {recording} failed; open the archive again")]
    Lost {
        /// The number.
        recording: RecordingId,
    },
    /// A label above the maximum length.
    #[error("a label of {length} bytes is over the maximum of {LABEL_LENGTH_MAX}")]
    LabelLength {
        /// Its length in bytes.
        length: usize,
    },
    /// A segment length outside the allowed range.
    #[error(
        "segment length {length} is not between {SEGMENT_LENGTH_MIN} and {SEGMENT_LENGTH_MAX} bytes"
    )]
    SegmentLength {
        /// The requested length.
        length: u64,
    },
    /// The archive is full.
    #[error(
        "the archive is full: the maximum is {RECORDINGS_MAX} recordings with numbers up to {}",
        RecordingId::MAX
    )]
    Full,
    /// A position outside the recording.
    #[error("position {position} is outside recording {recording}, which spans {start} to {end}")]
    Outside {
        /// The recording.
        recording: RecordingId,
        /// The requested position.
        position: Position,
        /// Start of the recording.
        start: Position,
        /// End of the recording.
        end: Position,
    },
    /// A position inside a message or a header.
    #[error(
        "position {position} of recording {recording} is not the start of a message; the nearest are {before} and {after}"
    )]
    Inside {
        /// The recording.
        recording: RecordingId,
        /// The requested position.
        position: Position,
        /// The nearest allowed position before it.
        before: Position,
        /// The nearest allowed position after it.
        after: Position,
    },
}

/// A recording and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The catalog's entry; with the current end if it is being recorded.
    pub recording: Recording,
    /// Is a writer open?
    pub is_live: bool,
    /// Its segments, in order.
    pub segments: Vec<Segment>,
    /// Segments before its start whose files are still in the folder.
    pub detached: Vec<Segment>,
}

/// The writing process's side of an archive. It holds the folder's lock and the catalog, and returns a [`Writer`] for each
/// recording that is started or extended. Every change is first an event of the catalog, which takes effect once it is
/// durable; then the files are changed. If changing them fails, the archive accepts no further changes: opening it again
/// completes the last event.
///
/// Readers do not need it: they open the folder with [`Archive::view`] and a [`Cursor`](crate::Cursor), beside the writing
/// process.
///
/// Costs: the catalog is in memory, an event costs one sync, and operations on files list the whole folder. A truncation
/// holds the lock that other operations need.
///
/// ```
/// use seatrial_archive::{Archive, RecordingFilter, RecordingOptions};
/// use seatrial_sim::MemoryStorage;
/// use std::{path::Path, sync::Arc};
///
/// let storage = Arc::new(MemoryStorage::new());
/// let (mut archive, recovered) = Archive::open(storage, Path::new("recordings"), 0)?;
/// assert!(recovered.is_clean());
/// let options = RecordingOptions { label: "trades".to_owned(), ..RecordingOptions::default() };
/// let mut writer = archive.start(&options, 10)?;
/// let id = writer.recording();
/// let appended = writer.append_batch([&b"one"[..], b"two"], 11)?;
/// assert_eq!((appended.first_message, appended.end), (0, writer.end()));
/// writer.stop(12)?;
///
/// let mut writer = archive.extend(id, 13)?;
/// assert_eq!(writer.append_batch([&b"three"[..]], 14)?.first_message, 2);
/// writer.stop(15)?;
/// archive.truncate(id, appended.end, 16)?;
/// let found = archive.list(&RecordingFilter { label: Some("trad".to_owned()), ..RecordingFilter::default() });
/// assert_eq!((found[0].id, found[0].messages()), (id, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Archive {
    shared: Arc<Shared>,
}

impl Archive {
    /// Starts a recording. When this returns, it is in the catalog and its first segment is durable. `now` is the time in
    /// nanoseconds since 1970.
    pub fn start(&mut self, options: &RecordingOptions, now: u64) -> Result<Writer, ArchiveError> {
        let start = Boundary {
            time: now,
            ..Boundary::default()
        };
        self.start_at(options, start, None, now)
    }

    /// Starts a recording that is a copy of another archive's, from `start`, the beginning of one of the source's segments.
    /// Its blocks are appended with [`Writer::append_copied`] and keep their positions.
    pub fn start_copy(
        &mut self,
        options: &RecordingOptions,
        source: Source,
        start: Boundary,
        now: u64,
    ) -> Result<Writer, ArchiveError> {
        check_label(&source.archive)?;
        self.start_at(options, start, Some(source), now)
    }

    fn start_at(
        &mut self,
        options: &RecordingOptions,
        start: Boundary,
        source: Option<Source>,
        now: u64,
    ) -> Result<Writer, ArchiveError> {
        check_label(&options.label)?;
        let length = options.segment_length;
        if !(SEGMENT_LENGTH_MIN..=SEGMENT_LENGTH_MAX).contains(&length) {
            return Err(ArchiveError::SegmentLength { length });
        }
        let mut state = self.shared.state();
        let id = state.log.catalog.next();
        if state.log.catalog.len() >= RECORDINGS_MAX || id > RecordingId::MAX {
            return Err(ArchiveError::Full);
        }
        let folder = &self.shared.folder;
        let started = EventKind::Started {
            tag: Some(tag_of(&folder.path(""), id, now)),
            start,
            segment_length: length,
            durability: options.durability,
            label: options.label.clone(),
        };
        let copied = source.map(|source| EventKind::CopiedFrom { source });
        let events: Vec<CatalogEvent> = (std::iter::once(started).chain(copied))
            .map(|kind| event(id, now, kind))
            .collect();
        state.log.append(&events)?;
        let recording = known(&state, id)?;
        match create_first(&self.shared.folder, &recording) {
            Ok((medium, end)) => {
                let writer = Writer::new(&self.shared, &recording, medium, start.position, end);
                state.writers.insert(id, writer.progress());
                Ok(writer)
            }
            Err(error) => {
                // If this fails too, the next open finds a recording without files and makes it an empty one.
                let name = SegmentName {
                    recording: id,
                    start: start.position,
                };
                let removed = self.shared.folder.remove_if_there(&name.file());
                if removed.is_ok() {
                    let _ = state.log.append(&[event(id, now, EventKind::Deleted)]);
                }
                Err(error.into())
            }
        }
    }

    /// Resumes a stopped recording at its end, with the durability and segment length that it was started with. A recording
    /// whose writer was dropped, or ended with its process, is stopped first. All its files must exist, each must begin with
    /// a valid block of this recording and end where the next one starts: one small read per file.
    pub fn extend(&mut self, id: RecordingId, now: u64) -> Result<Writer, ArchiveError> {
        let mut state = self.shared.state();
        let recording = self.stopped(&mut state, id, now)?;
        self.check_files(&recording)?;
        let end = recording.end;
        let start = self.last_start(&recording)?;
        let name = SegmentName {
            recording: id,
            start,
        };
        let file = name.file();
        let medium = self.shared.folder.open_write(&file)?;
        let (expected, found) = (end.position.since(start), medium.len());
        if expected != found {
            return Err(ArchiveError::Tail(TailError::Next {
                file: self.shared.folder.path(&file),
                offset: 0,
                field: "the file's length",
                expected,
                found,
            }));
        }
        let extended = EventKind::Extended { end };
        state.log.append(&[event(id, now, extended)])?;
        let writer = Writer::new(&self.shared, &recording, medium, start, end);
        state.writers.insert(id, writer.progress());
        Ok(writer)
    }

    /// The recordings that match the filter, in the order of their numbers; live ones with their current end.
    pub fn list(&self, filter: &RecordingFilter) -> Vec<Recording> {
        let state = self.shared.state();
        let known = |recording: &Recording| {
            if recording.stopped.is_some() {
                return filter.matches(recording).then(|| recording.clone());
            }
            Some(now_known(&state, recording.clone())).filter(|recording| filter.matches(recording))
        };
        (state.log.catalog.recordings_from(filter.from))
            .filter_map(known)
            .take(filter.count_max)
            .collect()
    }

    /// A snapshot of the catalog, with the current ends of live recordings.
    pub fn catalog(&self) -> Catalog {
        let state = self.shared.state();
        let mut catalog = state.log.catalog.clone();
        for id in state.writers.keys() {
            if let Some(recording) = catalog.recording_mut(*id) {
                *recording = now_known(&state, recording.clone());
            }
        }
        catalog
    }

    /// The progress of a recording's writer; `None` if it has had none since the archive was opened.
    pub fn progress(&self, id: RecordingId) -> Option<Arc<WriterProgress>> {
        self.shared.state().writers.get(&id).cloned()
    }

    /// Changes a recording's label.
    pub fn relabel(&mut self, id: RecordingId, label: &str, now: u64) -> Result<(), ArchiveError> {
        check_label(label)?;
        let mut state = self.shared.state();
        known(&state, id)?;
        let label = label.to_owned();
        let labelled = EventKind::Labelled { label };
        Ok(state.log.append(&[event(id, now, labelled)])?)
    }

    /// Removes a recording and its files, also detached and damaged ones. Fails if it is being recorded.
    pub fn delete(&mut self, id: RecordingId, now: u64) -> Result<(), ArchiveError> {
        let mut state = self.shared.state();
        known(&state, id)?;
        if is_live(&state, id) {
            return Err(ArchiveError::BeingRecorded { recording: id });
        }
        state.log.append(&[event(id, now, EventKind::Deleted)])?;
        state.writers.remove(&id);
        // A leftover mark is harmless: it names a tag that no later recording has.
        let _ = remove_mark(&self.shared.folder, id);
        let removed = self.remove_segments(id, |_| true);
        implied(&mut state, removed)?;
        Ok(())
    }

    /// Rewrites the catalog with the fewest events. Returns its lengths before and after, in bytes.
    pub fn compact(&mut self) -> Result<(u64, u64), ArchiveError> {
        Ok(self.shared.state().log.compact()?)
    }

    /// Sets when the catalog is compacted automatically: before an event is appended, if it has at least `length_min` bytes
    /// and at least `ratio` times as many as a compacted one. Defaults: 64 KiB and 4.
    pub fn compact_when(&mut self, length_min: u64, ratio: u64) {
        self.shared.state().log.compact_when(length_min, ratio);
    }

    /// Segments in the folder that belong to no recording, or lie after the end of theirs: remains of a lost catalog, or
    /// files from another archive. Nothing reads them, and their recordings' numbers are never assigned.
    pub fn orphans(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let state = self.shared.state();
        let files = self.shared.folder.list()?;
        Ok(self.orphaned(&state, &files))
    }

    fn orphaned(&self, state: &State, files: &[String]) -> Vec<PathBuf> {
        let is_orphan = |file: &&String| catalog_view::is_stray(&state.log.catalog, file);
        (files.iter().filter(is_orphan))
            .map(|file| self.shared.folder.path(file))
            .collect()
    }

    /// Removes the files of [`Archive::orphans`] and returns them.
    pub fn remove_orphans(&mut self) -> Result<Vec<PathBuf>, ArchiveError> {
        let state = self.shared.state();
        let folder = &self.shared.folder;
        let orphans = self.orphaned(&state, &folder.list()?);
        for orphan in &orphans {
            if let Some(name) = orphan.file_name().and_then(|name| name.to_str()) {
                folder.remove_if_there(name)?;
            }
        }
        folder.sync()?;
        Ok(orphans)
    }

    /// A recording with a known end: one that was left open is stopped first. Fails if it is being recorded.
    fn stopped(
        &self,
        state: &mut State,
        id: RecordingId,
        now: u64,
    ) -> Result<Recording, ArchiveError> {
        state.log.check()?;
        let recording = known(state, id)?;
        match state.writers.get(&id).map(|progress| progress.state()) {
            Some(WriterState::Recording) => {
                return Err(ArchiveError::BeingRecorded { recording: id });
            }
            Some(WriterState::Lost) => return Err(ArchiveError::Lost { recording: id }),
            _ => {}
        }
        if recording.stopped.is_none() {
            let starts = segments(&self.shared.folder.list()?, id);
            self.settle(state, &recording, &starts, false, now)?;
        }
        known(state, id)
    }

    /// Finds the end of a recording that was left open, cuts off an interrupted write, and stops it.
    fn settle(
        &self,
        state: &mut State,
        recording: &Recording,
        starts: &[Position],
        may_be_new: bool,
        now: u64,
    ) -> Result<RecoveredRecording, ArchiveError> {
        let tail = recover_tail(&self.shared.folder, recording, starts, may_be_new)?;
        let stopped = EventKind::Stopped { end: tail.end };
        state.log.append(&[event(recording.id, now, stopped)])?;
        let _ = remove_mark(&self.shared.folder, recording.id);
        Ok(RecoveredRecording {
            recording: recording.id,
            end: tail.end.position,
            cuts: tail.cuts,
        })
    }

    /// The start of the segment that contains the recording's end.
    fn last_start(&self, recording: &Recording) -> Result<Position, ArchiveError> {
        let starts = segments(&self.shared.folder.list()?, recording.id);
        holding(&starts, recording, recording.end.position)
    }

    /// Removes the files of a recording whose start position is `selected`, the last first: a crash in between then
    /// leaves no gap. Returns their number.
    fn remove_segments(
        &self,
        id: RecordingId,
        selected: impl Fn(Position) -> bool,
    ) -> Result<usize, StorageError> {
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, id);
        assert!(starts.is_sorted(), "in the order of their positions");
        let starts = starts.into_iter().rev().filter(|start| selected(*start));
        let mut removed = 0;
        for start in starts {
            let name = SegmentName {
                recording: id,
                start,
            };
            folder.remove_if_there(&name.file())?;
            removed += 1;
        }
        folder.sync()?;
        Ok(removed)
    }
}

/// The start of the segment that contains the byte before `position`, or of the first segment.
fn holding(
    starts: &[Position],
    recording: &Recording,
    position: Position,
) -> Result<Position, ArchiveError> {
    let first = recording.start.position;
    let is_ours = |start: &&Position| **start >= first && (**start < position || **start == first);
    let start = starts.iter().rev().find(is_ours);
    start.copied().ok_or(ArchiveError::Tail(TailError::Missing {
        recording: recording.id,
        start: first,
    }))
}

/// Passes on the result of carrying out a durable event; after a failure the archive accepts no further changes.
fn implied<T>(state: &mut State, done: Result<T, StorageError>) -> Result<T, ArchiveError> {
    done.map_err(|error| state.log.poison(error).into())
}

fn event(recording: RecordingId, time: u64, kind: EventKind) -> CatalogEvent {
    CatalogEvent {
        recording,
        time,
        kind,
    }
}

fn check_label(label: &str) -> Result<(), ArchiveError> {
    let length = label.len();
    if length > LABEL_LENGTH_MAX {
        return Err(ArchiveError::LabelLength { length });
    }
    Ok(())
}

fn known(state: &State, id: RecordingId) -> Result<Recording, ArchiveError> {
    let recording = state.log.catalog.recording(id).cloned();
    recording.ok_or(ArchiveError::Unknown { recording: id })
}

/// Is a writer of the recording open?
fn is_live(state: &State, id: RecordingId) -> bool {
    let progress = state.writers.get(&id);
    progress.is_some_and(|progress| progress.state() == WriterState::Recording)
}

/// The recording with its writer's current end.
fn now_known(state: &State, mut recording: Recording) -> Recording {
    if recording.stopped.is_none()
        && let Some(progress) = state.writers.get(&recording.id)
    {
        recording.end = progress.end();
    }
    recording
}

#[cfg(test)]
mod tests;
