//! Making a damaged catalog again from what is left of it and from the files.

use crate::archive::open::lock;
use crate::archive::{Archive, ArchiveError};
use crate::catalog::{
    self, CATALOG, CATALOG_DAMAGED, CATALOG_NEW, Catalog, CatalogError, CatalogMark, Event,
    Recording, clear_mark, encode_events,
};
use crate::folder::{Folder, StorageError};
use crate::recording::{Durability, all_segments};
use crate::segment::{SegmentHeader, SegmentName};
use crate::walk::{WalkError, Walker};
use crate::{Position, RecordingId, RecordingTag};
use seatrial_machine::{Disk, Storage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`Archive::repair_catalog`] found.
#[derive(Debug, Default)]
pub struct CatalogRepair {
    /// What is wrong with the catalog, in order; empty when it is whole.
    pub damages: Vec<String>,
    /// Recordings that no readable event starts: they have no label now.
    pub found: Vec<RecordingId>,
    /// Recordings that events start, but of which there is no usable file.
    pub dropped: Vec<RecordingId>,
    /// Where the catalog as it was is kept; nothing when it is whole and nothing was found or dropped, so it was left alone.
    pub kept: Option<PathBuf>,
}

impl Archive {
    /// Makes a catalog that is damaged, or lost, again: from every event that can still be read, and from the segments in
    /// the folder. A recording that no event tells of begins where its files follow each other without a gap up to the last;
    /// its label is lost. Ends are found by the next [`Archive::open`]. The catalog as it was is kept as `catalog.damaged`.
    /// Only to be called when somebody asks for it: what was detached, or deleted while the event of that is lost,
    /// may come back.
    pub fn repair_catalog(
        storage: Arc<dyn Storage>,
        folder: &Path,
    ) -> Result<CatalogRepair, ArchiveError> {
        let folder = Folder::new(storage, folder);
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

/// Every event that can be read, added up as far as they follow; and the bytes of the file.
fn salvage(
    folder: &Folder,
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
                let event = Event::decode(block.header.kind, block.payload);
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
            Err(source) => {
                let path = folder.path(CATALOG);
                return Err(CatalogError::Log { path, source }.into());
            }
        }
    }
    // With damage inside, the mark says nothing more.
    if repair.damages.is_empty()
        && let Err(lost) = catalog::read(&bytes, folder.path(CATALOG), marked)
    {
        repair.damages.push(lost.to_string());
    }
    Ok((catalog, bytes))
}

/// A recording from its files, and from what is known of it; nothing when there is no file that belongs to it.
fn rebuild(
    folder: &Folder,
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
    // What was detached stays so, when that is known.
    let from = known.map(|known| known.start.position);
    let from = from.filter(|from| run.contains_key(from));
    let first = run
        .range(from.unwrap_or_default()..)
        .map(|(start, _)| *start);
    for start in first {
        let Some((boundary, tag, header)) = first_block(folder, id, start) else {
            continue;
        };
        // A file of another recording.
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
        // A known end that the files agree with need not be looked for.
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

/// The first block of a segment, if it is whole.
fn first_block(
    folder: &Folder,
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

/// Writes a file in place of one with this name, durable but for its name.
fn write_whole(folder: &Folder, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
    folder.remove_if_there(name)?;
    let medium = folder.create(name)?;
    folder.write(name, &*medium, 0, bytes)?;
    folder.sync_file(name, &*medium)
}
