//! Truncation of a recording.

use crate::archive::{Archive, ArchiveError, event, holding, implied, known};
use crate::archive_folder::StorageError;
use crate::batch::{BATCH_FRAMES_OFFSET, BatchHeader};
use crate::catalog::{Boundary, EventKind, Recording};
use crate::recording::{SegmentWalk, TailError, WalkedBatch, remove_mark, segments};
use crate::segment::SegmentName;
use crate::{Position, RecordingId};
use seatrial_blocks::WalkError;
use seatrial_blocks::block;
use seatrial_blocks::frame::Frames;
use seatrial_machine::Medium;
use std::sync::Arc;

/// Bytes copied at a time.
const COPY_LENGTH: u64 = 1 << 20;

/// A planned cut of a segment.
struct PlannedCut {
    name: SegmentName,
    medium: Arc<dyn Medium>,
    place: CutPoint,
}

/// The part of a segment that stays.
struct CutPoint {
    /// New end of the recording.
    end: Boundary,
    /// Number of bytes of the file that stay unchanged.
    kept: u64,
    /// The new last block, with the messages that stay of a block that is cut inside; else empty.
    rest: Vec<u8>,
}

impl Archive {
    /// Truncates a recording at `position`: messages whose frames start there or later are removed, and their positions are
    /// used again when the recording is extended. `position` must be that of a message, or the start or end of a block.
    /// Returns the new end: `position`, or the start of the block whose first message it is, or the end of the recording's
    /// first block if it is in that.
    ///
    /// The segment with the new end is copied up to there, and the copy renamed over it, so that a reader with the file open
    /// continues to read the old bytes. Damage after `position` does not matter.
    pub fn truncate(
        &mut self,
        id: RecordingId,
        position: Position,
        now: u64,
    ) -> Result<Position, ArchiveError> {
        let mut state = self.shared.state();
        let recording = match self.stopped(&mut state, id, now) {
            // Its end cannot be determined, so the end of its last file bounds the position.
            Err(ArchiveError::Tail(error)) if !matches!(error, TailError::Storage(_)) => {
                self.up_to_last_file(known(&state, id)?)?
            }
            other => other?,
        };
        let (start, end) = (recording.start.position, recording.end.position);
        if position < start || position > end {
            return Err(ArchiveError::Outside {
                recording: id,
                position,
                start,
                end,
            });
        }
        if position == end && recording.stopped.is_some() {
            return Ok(end);
        }
        let cutting = self.cutting(&recording, position)?;
        let is_shorter = self.write_shortened(&cutting)?;
        let end = cutting.place.end;
        let truncated = EventKind::Truncated { end };
        state.log.append(&[event(id, now, truncated)])?;
        let placed = self.place_shortened(&recording, &cutting, is_shorter);
        implied(&mut state, placed)?;
        Ok(end.position)
    }

    /// Repeats the file changes of a truncation whose event is durable.
    pub(super) fn redo_truncated(&self, recording: &Recording) -> Result<(), ArchiveError> {
        let cutting = self.cutting(recording, recording.end.position)?;
        let is_shorter = self.write_shortened(&cutting)?;
        Ok(self.place_shortened(recording, &cutting, is_shorter)?)
    }

    /// The recording with the end of its last file as its end.
    fn up_to_last_file(&self, mut recording: Recording) -> Result<Recording, ArchiveError> {
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, recording.id);
        let start = holding(&starts, &recording, Position(u64::MAX))?;
        let name = SegmentName {
            recording: recording.id,
            start,
        };
        recording.end.position = start.plus(folder.open(&name.file())?.len());
        Ok(recording)
    }

    /// Finds the segment that contains `position` and walks it up to there.
    fn cutting(
        &self,
        recording: &Recording,
        position: Position,
    ) -> Result<PlannedCut, ArchiveError> {
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, recording.id);
        let name = SegmentName {
            recording: recording.id,
            start: holding(&starts, recording, position)?,
        };
        let medium = folder.open(&name.file())?;
        let mut walk = SegmentWalk::new(folder, name, recording.tag, &*medium)?;
        if let Some(place) = walk_to(&mut walk, name, position)? {
            return Ok(PlannedCut {
                name,
                medium,
                place,
            });
        }
        let file = folder.path(&name.file());
        Err(ArchiveError::Tail(match walk.torn() {
            Some(torn) => TailError::Walk {
                file,
                cause: WalkError::Torn(torn),
            },
            None => TailError::Next {
                file,
                offset: 0,
                field: "the file's length",
                expected: position.since(name.start),
                found: medium.len(),
            },
        }))
    }

    /// Writes the shortened copy and syncs it; false if the file has that length already.
    fn write_shortened(&self, cutting: &PlannedCut) -> Result<bool, StorageError> {
        let PlannedCut {
            name,
            medium,
            place,
        } = cutting;
        if place.kept == medium.len() && place.rest.is_empty() {
            return Ok(false);
        }
        let folder = &self.shared.folder;
        let (from, to) = (name.file(), name.file_new());
        folder.remove_if_there(&to)?;
        let copy = folder.create(&to)?;
        let mut offset = 0;
        let mut buffer = Vec::new();
        while offset < place.kept {
            buffer.resize((place.kept - offset).min(COPY_LENGTH) as usize, 0);
            folder.read(&from, &**medium, offset, &mut buffer)?;
            folder.write(&to, &*copy, offset, &buffer)?;
            offset += buffer.len() as u64;
        }
        if !place.rest.is_empty() {
            folder.write(&to, &*copy, offset, &place.rest)?;
        }
        folder.sync_file(&to, &*copy)?;
        Ok(true)
    }

    /// Renames the shortened copy over its segment, if there is one, and removes later segments.
    fn place_shortened(
        &self,
        recording: &Recording,
        cutting: &PlannedCut,
        is_shorter: bool,
    ) -> Result<(), StorageError> {
        let name = cutting.name;
        if is_shorter {
            let folder = &self.shared.folder;
            folder.rename(&name.file_new(), &name.file())?;
        }
        // The mark is after the new end, which would look like a loss.
        remove_mark(&self.shared.folder, recording.id)?;
        self.remove_segments(recording.id, |start| start > name.start)?;
        Ok(())
    }
}

/// The part of a segment that stays if it is cut at `position`; `None` if it ends before.
fn walk_to(
    walk: &mut SegmentWalk<'_>,
    name: SegmentName,
    position: Position,
) -> Result<Option<CutPoint>, ArchiveError> {
    let Some(first) = walk.end() else {
        return Ok(None);
    };
    if name.start < position && position < first.position {
        return Err(ArchiveError::Inside {
            recording: name.recording,
            position,
            before: name.start,
            after: first.position,
        });
    }
    while let Some(end) = walk.end() {
        if end.position >= position {
            return Ok(Some(CutPoint {
                end,
                kept: end.position.since(name.start),
                rest: Vec::new(),
            }));
        }
        let Some(batch) = walk.next_batch()? else {
            break;
        };
        if batch.after.position > position {
            return cut_batch(name, position, &batch).map(Some);
        }
    }
    Ok(None)
}

/// Cuts a batch before the message at `position`.
fn cut_batch(
    name: SegmentName,
    position: Position,
    batch: &WalkedBatch<'_>,
) -> Result<CutPoint, ArchiveError> {
    let base = batch.before.position.plus(BATCH_FRAMES_OFFSET as u64);
    let kept = batch.before.position.since(name.start);
    let inside = |before, after| ArchiveError::Inside {
        recording: name.recording,
        position,
        before,
        after,
    };
    let mut before = batch.before.position;
    let mut messages = 0;
    for frame in Frames::new(batch.frames).filter_map(Result::ok) {
        let here = base.plus(frame.offset as u64);
        if here > position {
            return Err(inside(before, here));
        }
        if here == position {
            break;
        }
        before = here;
        messages += 1;
    }
    if messages == 0 {
        return Ok(CutPoint {
            end: batch.before,
            kept,
            rest: Vec::new(),
        });
    }
    let header = BatchHeader {
        messages,
        ..batch.header
    };
    // `None` if the bytes are not valid frames, or the position is inside the last one.
    let frames = batch.frames.get(..position.since(base) as usize);
    let frames = frames.filter(|_| messages < batch.header.messages);
    let frames = frames.ok_or_else(|| inside(before, batch.after.position))?;
    let mut rest = Vec::new();
    let start = block::begin(&mut rest);
    rest.extend_from_slice(&header.encode());
    rest.extend_from_slice(frames);
    let of = &batch.block;
    block::finish_tagged(&mut rest, start, (of.kind, of.flags), of.sequence, of.tag());
    let end = (batch.before).after_block(rest.len() as u64, messages, header.time);
    Ok(CutPoint {
        end: end.unwrap_or(batch.before),
        kept,
        rest,
    })
}
