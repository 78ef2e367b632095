//! Views of a catalog, for readers beside the writing process.

use crate::archive::{Archive, ArchiveError, holding};
use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::batch::BATCH_HEADER_LENGTH;
use crate::catalog::{self, CATALOG, Catalog, EventKind, Recording};
use crate::recording::{TailError, all_segments, check_torn, with_mark};
use crate::segment::{SEGMENT_HEADER_LENGTH, SegmentHeader, SegmentName};
use crate::{Position, RecordingId, SEGMENT_BLOCK_LENGTH};
use seatrial_blocks::block::{self, BlockKind};
use seatrial_blocks::{WalkError, Walker};
use seatrial_machine::{Disk, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Archive {
    /// The catalog of an archive, read without a lock and without changes, whether a process writes the archive or not. The
    /// end of a recording that is not stopped is that of the last complete block in its files.
    pub fn view(storage: Arc<dyn Storage>, folder: &Path) -> Result<Catalog, ArchiveError> {
        Ok(Archive::look(storage, folder)?.catalog)
    }

    /// [`Archive::view`], with the recordings whose end cannot be determined.
    pub fn look(storage: Arc<dyn Storage>, folder: &Path) -> Result<CatalogView, ArchiveError> {
        let contents = catalog::read_folder(&*storage, folder)?;
        let folder = ArchiveFolder::new(storage, folder);
        let Some(contents) = contents else {
            // Report the storage's own error for a missing catalog.
            return Err(match folder.open(CATALOG) {
                Err(error) => error.into(),
                Ok(_) => ArchiveError::Locked {
                    path: folder.path(CATALOG),
                },
            });
        };
        let mut view = CatalogView {
            catalog: contents.catalog,
            problems: Vec::new(),
        };
        let is_open = |recording: &&Recording| recording.stopped.is_none();
        let open: Vec<Recording> = view.catalog.recordings().filter(is_open).cloned().collect();
        if open.is_empty() {
            return Ok(view);
        }
        let all = all_segments(&folder.list()?);
        for recording in open {
            let id = recording.id;
            let starts = all.get(&id).map_or(&[][..], Vec::as_slice);
            let is_new = contents.last.as_ref().is_some_and(|last| {
                let is_start = matches!(
                    last.kind,
                    EventKind::Started { .. } | EventKind::CopiedFrom { .. }
                );
                is_start && last.recording == id
            });
            match end_of(&folder, &recording, starts) {
                Ok(known) => {
                    if let Some(place) = view.catalog.recording_mut(id) {
                        *place = known;
                    }
                }
                // Just started: its first file is about to be created.
                Err(ArchiveError::Tail(TailError::Missing { .. })) if is_new => {}
                Err(error) => view.problems.push((id, error)),
            }
        }
        Ok(view)
    }

    /// Segments that belong to no recording of the catalog, or lie after the end of theirs. The folder is read twice, so that
    /// files which a process is just deleting are not included.
    pub fn strays(storage: &dyn Storage, folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
        let find = || -> Result<Vec<PathBuf>, ArchiveError> {
            // The files first: a recording is in the catalog before its first file exists.
            let files = storage.list(folder).map_err(|cause| StorageError {
                action: "list folder",
                path: folder.to_owned(),
                offset: None,
                cause,
            })?;
            let catalog = catalog::read_folder(storage, folder)?;
            let catalog = catalog.map(|contents| contents.catalog).unwrap_or_default();
            let strays = files.iter().filter(|file| is_stray(&catalog, file));
            let mut strays: Vec<PathBuf> = strays.map(|file| folder.join(file)).collect();
            strays.retain(|path| storage.open(path).is_ok());
            Ok(strays)
        };
        let mut strays = find()?;
        if !strays.is_empty() {
            // A file that is being removed is missing by now.
            let again = find()?;
            strays.retain(|path| again.contains(path));
        }
        Ok(strays)
    }
}

/// A catalog, and the recordings whose files contradict it.
#[derive(Debug)]
pub struct CatalogView {
    /// Its recordings.
    pub catalog: Catalog,
    /// Recordings that were left open and whose end cannot be determined, because files are missing or damaged. Their end in
    /// the catalog is a lower bound.
    pub problems: Vec<(RecordingId, ArchiveError)>,
}

/// Does a segment with this name belong to no recording?
pub(super) fn is_stray(catalog: &Catalog, file: &str) -> bool {
    SegmentName::parse(file).is_some_and(|name| {
        let recording = catalog.recording(name.recording);
        recording.is_none_or(|recording| {
            recording.stopped.is_some() && name.start >= recording.end.position
        })
    })
}

/// An open recording, with its end determined from its last segment.
fn end_of(
    folder: &ArchiveFolder,
    recording: &Recording,
    starts: &[Position],
) -> Result<Recording, ArchiveError> {
    let recording = &with_mark(&*folder.storage, &folder.path(""), recording.clone());
    let start = holding(starts, recording, Position(u64::MAX))?;
    let name = SegmentName {
        recording: recording.id,
        start,
    };
    let mut again = recording.clone();
    if look_ahead(folder, name, &mut again).is_err() {
        // The writer may have completed the block in between: read once more.
        again = recording.clone();
        look_ahead(folder, name, &mut again)?;
    }
    Ok(again)
}

/// Moves the end of a recording to that of its last segment, from headers alone.
fn look_ahead(
    folder: &ArchiveFolder,
    name: SegmentName,
    recording: &mut Recording,
) -> Result<(), ArchiveError> {
    let file = name.file();
    let medium = folder.open(&file)?;
    let disk: &dyn Disk = &*medium;
    let mut walker = Walker::new(disk, 0).of_recording(recording.tag);
    let mut end = recording.end;
    let mut reached = name.start;
    let problem = loop {
        let (offset, header) = match walker.next_header() {
            Ok(Some(found)) => found,
            Ok(None) => break None,
            Err(WalkError::Torn(torn)) => break Some(torn),
            Err(cause) => {
                let file = folder.path(&file);
                return Err(TailError::Walk { file, cause }.into());
            }
        };
        let mut start = [0; SEGMENT_HEADER_LENGTH];
        let place = offset + block::HEADER_LENGTH as u64;
        end.position = name.start.plus(offset + header.block_length());
        end.sequence = header.sequence.saturating_add(1);
        if header.kind == BlockKind::SEGMENT {
            folder.read(&file, &*medium, place, &mut start)?;
            let wrong = |cause| TailError::Segment {
                file: folder.path(&file),
                cause,
            };
            let header = SegmentHeader::decode(header.kind, &start).map_err(wrong)?;
            header.check(name).map_err(wrong)?;
            (end.message, end.time) = (header.first_message, header.time);
        } else {
            let start = &mut start[..BATCH_HEADER_LENGTH];
            folder.read(&file, &*medium, place, start)?;
            let (words, _) = start.as_chunks::<8>();
            let word = |at: usize| u64::from_le_bytes(words[at]);
            end.time = word(0);
            end.message = word(1).saturating_add(word(2));
        }
        reached = end.position;
        if end.position >= recording.end.position {
            recording.end = end;
        }
    };
    if reached < recording.end.position {
        return Err(TailError::Lost {
            recording: recording.id,
            file: folder.path(&file),
            expected: recording.end.position,
            found: reached,
            torn: problem,
        }
        .into());
    }
    let Some(torn) = problem else {
        return Ok(());
    };
    // A batch is written only after the first block is durable, so the first block was valid once.
    if torn.offset == 0 && torn.length > SEGMENT_BLOCK_LENGTH && !torn.is_foreign() {
        let (file, cause) = (folder.path(&file), WalkError::Torn(torn));
        return Err(TailError::Walk { file, cause }.into());
    }
    Ok(check_torn(|| folder.path(&file), torn)?)
}
