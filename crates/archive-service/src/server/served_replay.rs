//! State of the server for one replay.

use crate::archive_operation::{ReplayBound, ReplayFrom, ReplayRequest};
use crate::message::ReplayState;
use crate::server::job::HeldBlock;
use crate::server::live_recording::LiveRecording;
use seatrial_archive::Cursor;
use seatrial_archive::{Position, RecordingId};

/// What a replay waits for, from opening its cursor to the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayPhase {
    /// A job slot to open its cursor.
    Closed,
    /// The job that opens its cursor.
    Opening,
    /// The job that reads.
    Reading,
    /// Credit, or more of the recording.
    Idle,
    /// An extension of the recording, at the end of a stopped recording.
    Dormant,
}

/// One replay on the server: its cursor, unless a job owns it, and its credit. At most one job reads for it, one data
/// message at a time, and only with credit. While it waits, its cursor holds no buffer.
#[derive(Debug)]
pub(crate) struct ServedReplay {
    pub(crate) recording: RecordingId,
    pub(crate) request: ReplayRequest,
    pub(crate) phase: ReplayPhase,
    pub(crate) cursor: Option<Box<Cursor>>,
    /// A block that was read and may not be sent yet.
    pub(crate) held: Option<HeldBlock>,
    /// The origin at which the cursor was opened.
    pub(crate) from: ReplayFrom,
    /// Was the recording being recorded when the cursor was opened?
    pub(crate) is_live: bool,
    /// The end of the recording, if it was not.
    pub(crate) end: Option<Position>,
    /// Was the request answered?
    pub(crate) is_begun: bool,
    pub(crate) window_bytes: u32,
    /// Bytes sent.
    pub(crate) offset: u64,
    /// Bytes that credit allows to send.
    pub(crate) limit: u64,
    /// The exclusive end of the requested positions.
    pub(crate) until: Position,
    /// The position of the next block to send.
    pub(crate) position: Position,
    /// The visible end at which the cursor found nothing: the replay waits until more is visible.
    pub(crate) stalled_at: Option<Position>,
    /// Has it waited at the live end?
    pub(crate) has_waited: bool,
    /// Its number in the queues of [`Reads`](super::reading_order::Reads), while it waits for a job.
    pub(crate) queue_number: Option<u64>,
}

impl ServedReplay {
    pub(crate) fn new(request: ReplayRequest, window_bytes: u32) -> ServedReplay {
        ServedReplay {
            recording: RecordingId(request.recording),
            request,
            phase: ReplayPhase::Closed,
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
            queue_number: None,
        }
    }

    /// Sets what the end means of a recording that is being recorded: what is visible of it when the cursor is opened, which may
    /// be long after the request, or after the recording was claimed. Without effect on a replay that was begun.
    pub(crate) fn stop_at_end_of(&mut self, live: &LiveRecording) {
        if self.is_begun {
            return;
        }
        let visible = live.visible(self.request.is_eager);
        if self.request.bound == ReplayBound::End {
            self.until = self.until.min(visible);
        }
        if self.from == ReplayFrom::End {
            self.from = ReplayFrom::Position(visible.0);
        }
    }

    /// Bytes in flight: sent, without credit since.
    pub(crate) fn in_flight(&self) -> u64 {
        // Credit is always the bytes taken by the client, plus one window.
        let taken = self.limit.saturating_sub(u64::from(self.window_bytes));
        self.offset.saturating_sub(taken)
    }

    /// The final state at the end of a stopped recording; `None`: the replay waits for an extension.
    pub(crate) fn at_rest(&self) -> Option<ReplayState> {
        match self.request.bound {
            ReplayBound::End => Some(ReplayState::Complete),
            ReplayBound::Live => Some(ReplayState::Stopped),
            // Its last block is also the last of the recording.
            ReplayBound::Position(_) if self.position >= self.until => Some(ReplayState::Complete),
            ReplayBound::Position(_) | ReplayBound::Follow => None,
        }
    }

    pub(crate) fn check_invariants(&self) {
        let has_no_cursor = matches!(
            self.phase,
            ReplayPhase::Closed | ReplayPhase::Opening | ReplayPhase::Reading
        );
        assert!(
            !(has_no_cursor && self.cursor.is_some()),
            "{:?}",
            self.phase
        );
    }
}
