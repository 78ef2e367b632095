//! Reading a catalog beside the process that writes it.

use crate::archive::{Archive, ArchiveError, holding};
use crate::batch::BATCH_HEADER_LENGTH;
use crate::block::{self, BlockKind};
use crate::catalog::{self, CATALOG, Catalog, EventKind, Recording};
use crate::folder::{Folder, StorageError};
use crate::recording::{TailError, all_segments, check_torn, with_mark};
use crate::segment::{SEGMENT_HEADER_LENGTH, SegmentHeader, SegmentName};
use crate::walk::{WalkError, Walker};
use crate::{Position, RecordingId, SEGMENT_BLOCK_LENGTH};
use seatrial_machine::{Disk, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Archive {
    /// What an archive holds now, without a lock and without changing anything: beside a process that writes it, or of an
    /// archive that is not in use. The end of a recording that is not stopped is that of the last whole block in its files.
    pub fn view(storage: Arc<dyn Storage>, folder: &Path) -> Result<Catalog, ArchiveError> {
        Ok(Archive::look(storage, folder)?.catalog)
    }

    /// [`Archive::view`], with the recordings whose end cannot be found.
    pub fn look(storage: Arc<dyn Storage>, folder: &Path) -> Result<View, ArchiveError> {
        let contents = catalog::read_folder(&*storage, folder)?;
        let folder = Folder::new(storage, folder);
        let Some(contents) = contents else {
            // The storage's word for that.
            return Err(match folder.open(CATALOG) {
                Err(error) => error.into(),
                Ok(_) => ArchiveError::Locked {
                    path: folder.path(CATALOG),
                },
            });
        };
        let mut view = View {
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
                // Its first file comes next.
                Err(ArchiveError::Tail(TailError::Missing { .. })) if is_new => {}
                Err(error) => view.problems.push((id, error)),
            }
        }
        Ok(view)
    }

    /// Files of recordings that belong to no recording of the catalog, or lie after the end of theirs. A process that
    /// deletes or truncates a recording meanwhile is waited for.
    pub fn strays(storage: &dyn Storage, folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
        let find = || -> Result<Vec<PathBuf>, ArchiveError> {
            // In this order: a recording is in the catalog before its first file is there.
            let files = storage.list(folder).map_err(|source| StorageError {
                action: "list folder",
                path: folder.to_owned(),
                offset: None,
                source,
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
            // One that is on its way out is gone by now, or on the second look.
            let again = find()?;
            strays.retain(|path| again.contains(path));
        }
        Ok(strays)
    }
}

/// What an archive holds, and what of it is damaged.
#[derive(Debug)]
pub struct View {
    /// Its recordings.
    pub catalog: Catalog,
    /// Recordings that were left open and whose end cannot be found: their files are missing or damaged there. Their end in
    /// the catalog is the last one that was certain.
    pub problems: Vec<(RecordingId, ArchiveError)>,
}

/// Does a file of this name belong to no recording?
pub(super) fn is_stray(catalog: &Catalog, file: &str) -> bool {
    SegmentName::parse(file).is_some_and(|name| {
        let recording = catalog.recording(name.recording);
        recording.is_none_or(|recording| {
            recording.stopped.is_some() && name.start >= recording.end.position
        })
    })
}

/// A recording that is open, with its end in its last segment.
fn end_of(
    folder: &Folder,
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
        // A block that its writer has completed meanwhile is whole on the second look.
        again = recording.clone();
        look_ahead(folder, name, &mut again)?;
    }
    Ok(again)
}

/// Moves the end of a recording to that of its last segment, from headers alone.
fn look_ahead(
    folder: &Folder,
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
            Err(source) => {
                let file = folder.path(&file);
                return Err(TailError::Walk { file, source }.into());
            }
        };
        let mut start = [0; SEGMENT_HEADER_LENGTH];
        let place = offset + block::HEADER_LENGTH as u64;
        end.position = name.start.plus(offset + header.block_length());
        end.sequence = header.sequence.saturating_add(1);
        if header.kind == BlockKind::SEGMENT {
            folder.read(&file, &*medium, place, &mut start)?;
            let wrong = |source| TailError::Segment {
                file: folder.path(&file),
                source,
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
    // A batch is written only once the first block is durable: it was whole.
    if torn.offset == 0 && torn.length > SEGMENT_BLOCK_LENGTH && !torn.is_foreign() {
        let (file, source) = (folder.path(&file), WalkError::Torn(torn));
        return Err(TailError::Walk { file, source }.into());
    }
    Ok(check_torn(|| folder.path(&file), torn)?)
}
