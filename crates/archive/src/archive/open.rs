//! Opening an archive: recovery of operations and writes that a crash interrupted.

use crate::archive::{Archive, ArchiveError, event, known};
use crate::archive_folder::ArchiveFolder;
use crate::catalog::{CATALOG_NEW, CatalogEvent, CatalogLog, EventKind, Recording};
use crate::recording::{Cut, Shared, State, all_segments};
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_blocks::Torn;
use seatrial_machine::Storage;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that the writing process locks.
const LOCK: &str = "lock";

/// The result of recovery when an archive is opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The torn tail cut off the catalog: an event that had no effect yet.
    pub catalog: Option<Torn>,
    /// Recordings that had been left open and were stopped.
    pub recordings: Vec<RecoveredRecording>,
    /// Recordings whose end cannot be determined, because their files are damaged. They were not changed, and can be read,
    /// truncated and deleted, but not extended.
    pub problems: Vec<(RecordingId, ArchiveError)>,
    /// Incomplete files that were removed.
    pub removed: Vec<PathBuf>,
    /// See [`Archive::orphans`].
    pub orphans: Vec<PathBuf>,
}

/// A recording that had been left open and was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecording {
    /// Its number.
    pub recording: RecordingId,
    /// Its end; everything before is durable.
    pub end: Position,
    /// What was cut off after it.
    pub cuts: Vec<Cut>,
}

impl Recovered {
    /// Was nothing to recover: every recording stopped, nothing cut off, nothing damaged?
    pub fn is_clean(&self) -> bool {
        self.catalog.is_none()
            && self.recordings.is_empty()
            && self.problems.is_empty()
            && self.removed.is_empty()
            && self.orphans.is_empty()
    }
}

/// Takes the lock of the writing process.
pub(super) fn lock(folder: &ArchiveFolder) -> Result<Box<dyn Any + Send + Sync>, ArchiveError> {
    folder.lock(LOCK).map_err(|error| {
        if error.cause.kind() == io::ErrorKind::WouldBlock {
            ArchiveError::Locked { path: error.path }
        } else {
            error.into()
        }
    })
}

impl Archive {
    /// Opens an archive for writing; creates the folder if missing. Completes the file changes of the catalog's newest
    /// event, cuts off torn tails, stops recordings that were left open, and returns what it did. Reads only the catalog and
    /// the last segments of open recordings: damage in older segments is found by readers. `now` is the time in nanoseconds
    /// since 1970.
    pub fn open(
        storage: Arc<dyn Storage>,
        folder: &Path,
        now: u64,
    ) -> Result<(Archive, Recovered), ArchiveError> {
        let folder = ArchiveFolder::new(storage, folder);
        folder.make()?;
        let lock = lock(&folder)?;
        let mut recovered = Recovered::default();
        for file in folder.list()? {
            if file == CATALOG_NEW || SegmentName::parse_new(&file).is_some() {
                folder.remove(&file)?;
                recovered.removed.push(folder.path(&file));
            }
        }
        let (log, last, torn) = CatalogLog::open(&folder)?;
        recovered.catalog = torn;
        let archive = Archive {
            shared: Arc::new(Shared::new(folder, log, lock)),
        };
        let mut state = archive.shared.state();
        if let Some(last) = &last
            && let Err(error) = archive.redo(&mut state, last)
        {
            recovered.problems.push((last.recording, error));
        }
        archive.settle_all(&mut state, last.as_ref(), now, &mut recovered)?;
        drop(state);
        Ok((archive, recovered))
    }

    /// Repeats the file changes of the newest event. Those of older events were complete before the next event was appended.
    fn redo(&self, state: &mut State, last: &CatalogEvent) -> Result<(), ArchiveError> {
        let id = last.recording;
        match &last.kind {
            EventKind::Truncated { .. } => {
                let recording = known(state, id)?;
                self.redo_truncated(&recording)?;
            }
            EventKind::StartMoved { start, purge: true } => {
                let first = start.position;
                self.remove_segments(id, |start| start < first)?;
                let start = *start;
                let done = EventKind::StartMoved {
                    start,
                    purge: false,
                };
                state.log.append(&[event(id, last.time, done)])?;
            }
            EventKind::Deleted => {
                self.remove_segments(id, |_| true)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Stops all recordings that were left open.
    fn settle_all(
        &self,
        state: &mut State,
        last: Option<&CatalogEvent>,
        now: u64,
        recovered: &mut Recovered,
    ) -> Result<(), ArchiveError> {
        let starts = all_segments(&self.shared.folder.list()?);
        if let Some((last, _)) = starts.last_key_value() {
            state.log.catalog.pass_over(*last);
        }
        let is_open = |recording: &&Recording| recording.stopped.is_none();
        let open = state.log.catalog.recordings().filter(is_open);
        let mut open: Vec<Recording> = open.cloned().collect();
        // A recording that may have no file yet is the one of the newest event, so settle it before appending other events.
        open.sort_by_key(|recording| last.is_none_or(|last| last.recording != recording.id));
        for recording in open {
            let id = recording.id;
            let may_be_new = last.is_some_and(|last| {
                let is_start = matches!(
                    last.kind,
                    EventKind::Started { .. } | EventKind::CopiedFrom { .. }
                );
                is_start && last.recording == id
            });
            let starts = starts.get(&id).map_or(&[][..], Vec::as_slice);
            match self.settle(state, &recording, starts, may_be_new, now) {
                Ok(settled) => recovered.recordings.push(settled),
                Err(ArchiveError::Tail(error)) => {
                    recovered.problems.push((id, ArchiveError::Tail(error)));
                }
                Err(error) => return Err(error),
            }
        }
        recovered.orphans = self.orphaned(state, &self.shared.folder.list()?);
        Ok(())
    }
}
