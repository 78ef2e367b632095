//! Changes of a recording's start: purge, detach, attach.

use crate::archive::{Archive, ArchiveError, event, holding, implied, known, now_known};
use crate::catalog::{Boundary, EventKind, Recording};
use crate::recording::{SegmentWalk, State, TailError, segments};
use crate::segment::SegmentName;
use crate::{Position, RecordingId};

impl Archive {
    /// Removes the segments of a recording that end at or before `before`, also detached ones. The segment that contains
    /// `before` stays, and so does the last one. The recording may be live. Returns its new start.
    pub fn purge(
        &mut self,
        id: RecordingId,
        before: Position,
        now: u64,
    ) -> Result<Position, ArchiveError> {
        let mut state = self.shared.state();
        let start = self.move_start(&mut state, id, before, true, now)?;
        let removed = self.remove_segments(id, |segment| segment < start.position);
        implied(&mut state, removed)?;
        // Record that the removal is complete: files that are put back later must not be removed by the next open.
        let done = EventKind::StartMoved {
            start,
            purge: false,
        };
        state.log.append(&[event(id, now, done)])?;
        Ok(start.position)
    }

    /// Moves a recording's start to the segment that contains `before`. The files of earlier segments stay in the folder, to
    /// be moved elsewhere or attached again ([`Archive::attach`]). The recording may be live. Returns its new start.
    pub fn detach(
        &mut self,
        id: RecordingId,
        before: Position,
        now: u64,
    ) -> Result<Position, ArchiveError> {
        let mut state = self.shared.state();
        let start = self.move_start(&mut state, id, before, false, now)?;
        Ok(start.position)
    }

    /// Moves a recording's start back over the segments in the folder that end where it starts, without a gap. Every block
    /// of them is checked first. Returns the recording's new start.
    pub fn attach(&mut self, id: RecordingId, now: u64) -> Result<Position, ArchiveError> {
        let mut state = self.shared.state();
        state.log.check()?;
        let recording = known(&state, id)?;
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, id);
        let mut first = recording.start;
        for start in starts.into_iter().rev() {
            if start >= first.position {
                continue;
            }
            let name = SegmentName {
                recording: id,
                start,
            };
            let medium = folder.open(&name.file())?;
            if start.plus(medium.len()) < first.position {
                // The segment in between is not in the folder.
                break;
            }
            let mut walk = SegmentWalk::new(folder, name, recording.tag, &*medium)?;
            walk.finish()?;
            first = joined(&walk, first, || folder.path(&name.file()))?;
        }
        if first != recording.start {
            let moved = EventKind::StartMoved {
                start: first,
                purge: false,
            };
            state.log.append(&[event(id, now, moved)])?;
        }
        Ok(first.position)
    }

    /// Appends the event that moves the start to the segment that contains `before`.
    fn move_start(
        &self,
        state: &mut State,
        id: RecordingId,
        before: Position,
        purge: bool,
        now: u64,
    ) -> Result<Boundary, ArchiveError> {
        state.log.check()?;
        let recording = now_known(state, known(state, id)?);
        let start = self.start_at_segment(&recording, before)?;
        if start.position != recording.start.position || purge {
            let moved = EventKind::StartMoved { start, purge };
            state.log.append(&[event(id, now, moved)])?;
        }
        Ok(start)
    }

    /// The start of the segment that contains the byte at `before`, or of the last segment.
    fn start_at_segment(
        &self,
        recording: &Recording,
        before: Position,
    ) -> Result<Boundary, ArchiveError> {
        let (id, start, end) = (
            recording.id,
            recording.start.position,
            recording.end.position,
        );
        if before < start || before > end {
            return Err(ArchiveError::Outside {
                recording: id,
                position: before,
                start,
                end,
            });
        }
        let folder = &self.shared.folder;
        let starts = segments(&folder.list()?, id);
        // A live recording's newest segment may have no batch yet, so never look past the end.
        let position = before.plus(1).min(end);
        let name = SegmentName {
            recording: id,
            start: holding(&starts, recording, position)?,
        };
        if name.start == start {
            return Ok(recording.start);
        }
        let medium = folder.open(&name.file())?;
        let walk = SegmentWalk::new(folder, name, recording.tag, &*medium)?;
        walk.start().ok_or(ArchiveError::Tail(TailError::Missing {
            recording: id,
            start: name.start,
        }))
    }
}

/// The start of a segment that must end at `next`, or why it does not.
fn joined(
    walk: &SegmentWalk<'_>,
    next: Boundary,
    file: impl Fn() -> std::path::PathBuf,
) -> Result<Boundary, ArchiveError> {
    if let Some(torn) = walk.torn() {
        return Err(ArchiveError::Tail(TailError::Walk {
            file: file(),
            cause: seatrial_blocks::WalkError::Torn(torn),
        }));
    }
    let (Some(start), Some(end)) = (walk.start(), walk.end()) else {
        return Err(ArchiveError::Tail(TailError::Next {
            file: file(),
            offset: 0,
            field: "the file's length",
            expected: crate::SEGMENT_BLOCK_LENGTH,
            found: 0,
        }));
    };
    for (field, expected, found) in [
        ("the end's position", next.position.0, end.position.0),
        ("the next message", next.message, end.message),
        ("the next block", next.sequence, end.sequence),
        (
            "the last time, not above,",
            next.time,
            end.time.max(next.time),
        ),
    ] {
        if expected != found {
            return Err(ArchiveError::Tail(TailError::Next {
                file: file(),
                offset: end.position.since(start.position),
                field,
                expected,
                found,
            }));
        }
    }
    Ok(start)
}
