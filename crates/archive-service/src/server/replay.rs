//! State of the server for one replay.

use crate::message::ReplayState;
use crate::operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::server::job::HeldBlock;
use seatrial_archive::Cursor;
use seatrial_archive::{Position, RecordingId};

/// What a replay waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its turn to open its cursor.
    Closed,
    /// The job that opens its cursor.
    Opening,
    /// The job that reads.
    Reading,
    /// Credit, or more of the recording.
    Idle,
    /// The recording to be extended, at whose end it is.
    Dormant,
}

/// A replay as the server sees it: a cursor (while no job has it), and how much may be sent. One job at a time reads one
/// message's worth for it, and only when there is credit. While it waits its cursor holds no buffer.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) recording: RecordingId,
    pub(crate) request: ReplayRequest,
    pub(crate) stage: Stage,
    pub(crate) cursor: Option<Box<Cursor>>,
    /// A block that was read and may not be sent yet.
    pub(crate) held: Option<HeldBlock>,
    /// Where the cursor was opened.
    pub(crate) from: ReplayFrom,
    /// Was the recording being recorded when the cursor was opened?
    pub(crate) is_live: bool,
    /// Where the recording ends, if it was not.
    pub(crate) end: Option<Position>,
    /// Was it answered?
    pub(crate) is_begun: bool,
    pub(crate) window_bytes: u32,
    /// Bytes sent, and allowed.
    pub(crate) offset: u64,
    pub(crate) limit: u64,
    /// Messages at or after it are not requested.
    pub(crate) until: Position,
    /// Where it is.
    pub(crate) position: Position,
    /// Nothing was to be read although this was visible: it waits for more.
    pub(crate) stalled_at: Option<Position>,
    /// Has it waited at the live end?
    pub(crate) has_waited: bool,
    /// Its place among the replays that wait for a job.
    pub(crate) place: Option<u64>,
}

impl Replay {
    pub(crate) fn new(request: ReplayRequest, window_bytes: u32) -> Replay {
        Replay {
            recording: RecordingId(request.recording),
            request,
            stage: Stage::Closed,
            cursor: None,
            held: None,
            from: request.from,
            is_live: false,
            end: None,
            is_begun: false,
            window_bytes,
            offset: 0,
            limit: u64::from(window_bytes),
            until: match request.bound {
                ReplayBound::Position(position) => Position(position),
                ReplayBound::End | ReplayBound::Live | ReplayBound::Follow => Position(u64::MAX),
            },
            position: Position(0),
            stalled_at: None,
            has_waited: false,
            place: None,
        }
    }

    /// Bytes that were sent and that no credit was given for since.
    pub(crate) fn under_way(&self) -> u64 {
        let taken = self.limit.saturating_sub(u64::from(self.window_bytes));
        self.offset.saturating_sub(taken)
    }

    /// What it is when there is nothing more in a recording that is not being recorded; `None`: it waits.
    pub(crate) fn at_rest(&self) -> Option<ReplayState> {
        match self.request.bound {
            ReplayBound::End => Some(ReplayState::Complete),
            ReplayBound::Live => Some(ReplayState::Stopped),
            ReplayBound::Position(_) | ReplayBound::Follow => None,
        }
    }

    pub(crate) fn check_invariants(&self) {
        let is_away = matches!(self.stage, Stage::Closed | Stage::Opening | Stage::Reading);
        assert!(!(is_away && self.cursor.is_some()), "{:?}", self.stage);
    }
}
