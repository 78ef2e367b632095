//! Truncating a recording.

use crate::archive::{Archive, ArchiveError, event, holding, implied, known};
use crate::batch::{BATCH_FRAMES_OFFSET, BatchHeader};
use crate::block;
use crate::catalog::{Boundary, EventKind, Recording};
use crate::folder::StorageError;
use crate::frame::Frames;
use crate::recording::{SegmentWalk, TailError, Walked, remove_mark, segments};
use crate::segment::SegmentName;
use crate::walk::WalkError;
use crate::{Position, RecordingId};
use seatrial_machine::Medium;
use std::sync::Arc;

/// Bytes copied at a time.
const COPY_LENGTH: u64 = 1 << 20;

/// Where a segment is cut off.
struct Cutting {
    name: SegmentName,
    medium: Arc<dyn Medium>,
    place: Place,
}

/// What stays of a segment.
struct Place {
    /// The recording's new end.
    end: Boundary,
    /// Bytes of the file that stay as they are.
    kept: u64,
    /// The block behind them, with the messages that stay.
    rest: Vec<u8>,
}

impl Archive {
    /// Cuts a recording off at `position`: messages whose frames start there or behind are gone, and their positions are
    /// given out again when the recording is extended. `position` is that of a message, or the beginning or end of a block.
    /// Answers with the new end: `position`, or the beginning of the block whose first message it is, or the end of the
    /// first block of the recording when that is asked for.
    ///
    /// The segment with the new end is copied up to there, and the copy takes its place, so whoever has the file open goes
    /// on reading what it was. Damage behind `position` is no obstacle.
    pub fn truncate(
        &mut self,
        id: RecordingId,
        position: Position,
        now: u64,
    ) -> Result<Position, ArchiveError> {
        let mut state = self.shared.state();
        let recording = match self.stopped(&mut state, id, now) {
            // Its end is not known, that of its last file is.
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

    /// Does again what a truncation implies whose event is in force.
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

    /// Finds the segment that holds `position` and walks it up to there.
    fn cutting(&self, recording: &Recording, position: Position) -> Result<Cutting, ArchiveError> {
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, recording.id);
        let name = SegmentName {
            recording: recording.id,
            start: holding(&starts, recording, position)?,
        };
        let medium = folder.open(&name.file())?;
        let mut walk = SegmentWalk::new(folder, name, recording.tag, &*medium)?;
        if let Some(place) = walk_to(&mut walk, name, position)? {
            return Ok(Cutting {
                name,
                medium,
                place,
            });
        }
        let file = folder.path(&name.file());
        Err(ArchiveError::Tail(match walk.torn() {
            Some(torn) => TailError::Walk {
                file,
                source: WalkError::Torn(torn),
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

    /// Writes the shortened copy, durable. Not if the file is no longer than that.
    fn write_shortened(&self, cutting: &Cutting) -> Result<bool, StorageError> {
        let Cutting {
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

    /// Puts the shortened copy in its segment's place, if there is one, and removes the segments behind.
    fn place_shortened(
        &self,
        recording: &Recording,
        cutting: &Cutting,
        is_shorter: bool,
    ) -> Result<(), StorageError> {
        let name = cutting.name;
        if is_shorter {
            let folder = &self.shared.folder;
            folder.rename(&name.file_new(), &name.file())?;
        }
        // What was durable behind the new end is gone on purpose.
        remove_mark(&self.shared.folder, recording.id)?;
        self.remove_segments(recording.id, |start| start > name.start)?;
        Ok(())
    }
}

/// What stays of a segment that is cut off at `position`; nothing when it ends before.
fn walk_to(
    walk: &mut SegmentWalk<'_>,
    name: SegmentName,
    position: Position,
) -> Result<Option<Place>, ArchiveError> {
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
            return Ok(Some(Place {
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
    batch: &Walked<'_>,
) -> Result<Place, ArchiveError> {
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
        return Ok(Place {
            end: batch.before,
            kept,
            rest: Vec::new(),
        });
    }
    let header = BatchHeader {
        messages,
        ..batch.header
    };
    // The frames were no frames, or the position is in the last of them.
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
    Ok(Place {
        end: end.unwrap_or(batch.before),
        kept,
        rest,
    })
}
