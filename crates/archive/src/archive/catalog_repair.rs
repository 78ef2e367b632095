//! Repair of a damaged catalog from its readable events and from the segments.

use crate::archive::open::lock;
use crate::archive::{Archive, ArchiveError};
use crate::archive_folder::{ArchiveFolder, StorageError};
use crate::catalog::{
    self, CATALOG, CATALOG_DAMAGED, CATALOG_NEW, Catalog, CatalogError, CatalogEvent, CatalogMark,
    Recording, clear_mark, encode_events,
};
use crate::recording::{Durability, all_segments};
use crate::segment::{SegmentHeader, SegmentName};
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::{WalkError, Walker};
use seatrial_machine::{Disk, Storage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of [`Archive::repair_catalog`].
#[derive(Debug, Default)]
pub struct CatalogRepair {
    /// Damage of the catalog, in order; empty if it is valid.
    pub damages: Vec<String>,
    /// Recordings found only by their files: they have no label now.
    pub found: Vec<RecordingId>,
    /// Recordings of the catalog without a usable file.
    pub dropped: Vec<RecordingId>,
    /// The copy of the old catalog; `None` if it was valid and complete, so that nothing was changed.
    pub kept: Option<PathBuf>,
}

impl Archive {
    /// Rebuilds a damaged or missing catalog from every readable event and from the segments in the folder. A recording
    /// without events begins with the earliest of its files that are joined up to the last one without a gap; its label is
    /// lost. Ends are determined by the next [`Archive::open`]. The old catalog is kept as `catalog.damaged`.
    ///
    /// Call it only on a user's request: detached segments, and recordings whose deletion was in a lost event, may reappear.
    pub fn repair_catalog(
        storage: Arc<dyn Storage>,
        folder: &Path,
    ) -> Result<CatalogRepair, ArchiveError> {
        let folder = ArchiveFolder::new(storage, folder);
        let _lock = lock(&folder)?;
        let mut repair = CatalogRepair::default();
        let (known, before) = salvage(&folder, &mut repair)?;
        let starts = all_segments(&folder.list()?);
        let mut catalog = Catalog::default();
        for (id, starts) in &starts {
            let known = known.recording(*id);
            let Some(recording) = rebuild(&folder, *id, starts, known)? else {
                continue;
            };
            if known.is_none() {
                repair.found.push(*id);
            }
            catalog.insert(recording);
        }
        for recording in known.recordings() {
            if catalog.recording(recording.id).is_none() {
                repair.dropped.push(recording.id);
            }
        }
        for last in [
            known.next().0 - 1,
            starts.last_key_value().map_or(0, |(id, _)| id.0),
        ] {
            catalog.pass_over(RecordingId(last));
        }
        if repair.damages.is_empty() && repair.found.is_empty() && repair.dropped.is_empty() {
            return Ok(repair);
        }
        write_whole(&folder, CATALOG_DAMAGED, &before)?;
        let events = encode_events(&catalog.events());
        write_whole(&folder, CATALOG_NEW, &events)?;
        folder.sync()?;
        clear_mark(&folder)?;
        folder.rename(CATALOG_NEW, CATALOG)?;
        folder.sync()?;
        // The next one who opens the archive writes its mark.
        repair.kept = Some(folder.path(CATALOG_DAMAGED));
        Ok(repair)
    }
}

/// The fold of every readable event that can follow the earlier ones, and the bytes of the file.
fn salvage(
    folder: &ArchiveFolder,
    repair: &mut CatalogRepair,
) -> Result<(Catalog, Vec<u8>), ArchiveError> {
    let mut catalog = Catalog::default();
    let medium = match folder.open(CATALOG) {
        Err(error) if error.is_not_found() => {
            repair.damages.push(error.to_string());
            return Ok((catalog, Vec::new()));
        }
        other => other?,
    };
    let marked = CatalogMark::read(&*folder.storage, &folder.path(""));
    let mut bytes = vec![0; medium.len() as usize];
    folder.read(CATALOG, &*medium, 0, &mut bytes)?;
    let disk: &dyn Disk = &bytes;
    let mut walker = Walker::new(disk, 0).expecting(0);
    loop {
        match walker.next_block() {
            Ok(Some(block)) => {
                let event = CatalogEvent::decode(block.header.kind, block.payload);
                let applied = (event.map_err(|error| error.to_string()))
                    .and_then(|event| catalog.apply(&event).map_err(|error| error.to_string()));
                if let Err(error) = applied {
                    repair.damages.push(format!("at {}: {error}", block.offset));
                }
            }
            Ok(None) | Err(WalkError::Torn(_)) => break,
            Err(WalkError::Damaged(damage)) => {
                repair.damages.push(damage.to_string());
                walker = Walker::new(disk, damage.newer_offset).expecting(damage.newer_sequence);
            }
            Err(cause) => {
                let path = folder.path(CATALOG);
                return Err(CatalogError::Log { path, cause }.into());
            }
        }
    }
    // If damage was found already, a lost end adds nothing.
    if repair.damages.is_empty()
        && let Err(lost) = catalog::read(&bytes, folder.path(CATALOG), marked)
    {
        repair.damages.push(lost.to_string());
    }
    Ok((catalog, bytes))
}

/// Rebuilds a recording from its files and its known entry; `None` if it has no usable file.
fn rebuild(
    folder: &ArchiveFolder,
    id: RecordingId,
    starts: &[Position],
    known: Option<&Recording>,
) -> Result<Option<Recording>, StorageError> {
    let mut run: BTreeMap<Position, u64> = BTreeMap::new();
    for start in starts.iter().rev() {
        let name = SegmentName {
            recording: id,
            start: *start,
        };
        let length = folder.open(&name.file())?.len();
        let follows = run.first_key_value();
        if follows.is_some_and(|(next, _)| start.plus(length) != *next) {
            break;
        }
        run.insert(*start, length);
    }
    // Detached segments stay detached, if the start is known.
    let from = known.map(|known| known.start.position);
    let from = from.filter(|from| run.contains_key(from));
    let first = run
        .range(from.unwrap_or_default()..)
        .map(|(start, _)| *start);
    for start in first {
        let Some((boundary, tag, header)) = first_block(folder, id, start) else {
            continue;
        };
        // A file of another recording has another tag.
        if known.is_some_and(|known| known.tag != tag) {
            continue;
        }
        let mut recording = Recording {
            id,
            tag,
            label: known.map_or(String::new(), |known| known.label.clone()),
            segment_length: header.segment_length,
            durability: known.map_or(Durability::None, |known| known.durability),
            start: boundary,
            end: boundary,
            started: known.map_or(header.time, |known| known.started),
            stopped: None,
            source: known.and_then(|known| known.source.clone()),
        };
        // If the files end at the known end, the recording need not be recovered.
        if let Some(known) = known
            && let Some((last, length)) = run.last_key_value()
            && last.plus(*length) == known.end.position
        {
            recording.end = known.end;
            recording.stopped = known.stopped;
        }
        return Ok(Some(recording));
    }
    Ok(None)
}

/// The first block of a segment, if it is valid.
fn first_block(
    folder: &ArchiveFolder,
    id: RecordingId,
    start: Position,
) -> Option<(crate::Boundary, Option<RecordingTag>, SegmentHeader)> {
    let name = SegmentName {
        recording: id,
        start,
    };
    let medium = folder.open(&name.file()).ok()?;
    let disk: &dyn Disk = &*medium;
    let mut walker = Walker::new(disk, 0);
    let block = walker.next_block().ok()??;
    let header = SegmentHeader::decode(block.header.kind, block.payload).ok()?;
    header.check(name).ok()?;
    let boundary = crate::Boundary {
        position: start,
        message: header.first_message,
        sequence: block.header.sequence,
        time: header.time,
    };
    Some((boundary, block.header.tag(), header))
}

/// Replaces a file's contents; they are durable, but its name is not.
fn write_whole(folder: &ArchiveFolder, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
    folder.remove_if_there(name)?;
    let medium = folder.create(name)?;
    folder.write(name, &*medium, 0, bytes)?;
    folder.sync_file(name, &*medium)
}
