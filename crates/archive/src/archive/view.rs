//! Reading a catalog beside the process that writes it.

use crate::Position;
use crate::archive::{Archive, ArchiveError, holding};
use crate::batch::BATCH_HEADER_LENGTH;
use crate::block::{self, BlockKind};
use crate::catalog::{self, CATALOG, Catalog, Recording};
use crate::folder::Folder;
use crate::recording::all_segments;
use crate::segment::{SEGMENT_HEADER_LENGTH, SegmentHeader, SegmentName};
use crate::walk::Walker;
use seatrial_machine::{Disk, Storage};
use std::path::Path;
use std::sync::Arc;

impl Archive {
    /// What an archive holds now, without a lock and without changing anything: beside a process that writes it, or of an
    /// archive that is not in use. The end of a recording that is not stopped is that of the last whole block in its files.
    pub fn view(storage: Arc<dyn Storage>, folder: &Path) -> Result<Catalog, ArchiveError> {
        let folder = Folder::new(storage, folder);
        let medium = folder.open(CATALOG)?;
        let mut catalog = catalog::read(&*medium, folder.path(CATALOG))?.catalog;
        let is_open = |recording: &&Recording| recording.stopped.is_none();
        let open: Vec<Recording> = catalog.recordings().filter(is_open).cloned().collect();
        if open.is_empty() {
            return Ok(catalog);
        }
        let all = all_segments(&folder.list()?);
        for recording in open {
            let starts = all.get(&recording.id).map_or(&[][..], Vec::as_slice);
            if let Ok(start) = holding(starts, &recording, Position(u64::MAX))
                && let Some(known) = catalog.recording_mut(recording.id)
            {
                let name = SegmentName {
                    recording: recording.id,
                    start,
                };
                // Whatever is wrong with the file, a reader of the messages is told, and where.
                let _ = look_ahead(&folder, name, known);
            }
        }
        Ok(catalog)
    }
}

/// Moves the end of a recording to that of its last segment, from headers alone.
fn look_ahead(folder: &Folder, name: SegmentName, recording: &mut Recording) -> Option<()> {
    let medium = folder.open(&name.file()).ok()?;
    let disk: &dyn Disk = &*medium;
    let mut walker = Walker::new(disk, 0);
    let mut end = recording.end;
    while let Ok(Some((offset, header))) = walker.next_header() {
        let mut start = [0; SEGMENT_HEADER_LENGTH];
        let place = offset + block::HEADER_LENGTH as u64;
        end.position = name.start.plus(offset + header.block_length());
        end.sequence = header.sequence.saturating_add(1);
        if header.kind == BlockKind::SEGMENT {
            disk.read_at(place, &mut start).ok()?;
            let header = SegmentHeader::decode(header.kind, &start).ok()?;
            (end.message, end.time) = (header.first_message, header.time);
        } else {
            let start = &mut start[..BATCH_HEADER_LENGTH];
            disk.read_at(place, start).ok()?;
            let words = |at: usize| start.get(at..at + 8)?.try_into().ok();
            end.time = u64::from_le_bytes(words(0)?);
            let messages = u64::from_le_bytes(words(16)?);
            end.message = u64::from_le_bytes(words(8)?).saturating_add(messages);
        }
        if end.position >= recording.end.position {
            recording.end = end;
        }
    }
    Some(())
}
