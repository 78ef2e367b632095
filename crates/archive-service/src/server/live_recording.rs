//! State of the server for one live recording.

use crate::message::RecordProgress;
use crate::server::write::PendingBatch;
use seatrial_archive::Durability;
use seatrial_archive::Position;
use seatrial_archive::{Writer, WriterProgress};
use std::collections::VecDeque;
use std::sync::Arc;

/// The session of a request and its number in that session. It also identifies the replay that the request began.
pub(crate) type RequestId = (u64, u64);

/// Maximum number of boundaries that are not durable yet. Above it, one in the middle is dropped: its messages are reported
/// durable together with later ones.
const BOUNDARIES_MAX: usize = 1_024;

/// A recording that is being recorded: its claim, its writer, unless a job owns it, and the batches that wait for the writer.
///
/// Batches gather in `pending` while a job writes; the next job takes them together and syncs once, so the cost of a sync is
/// shared by all that arrived during the previous one.
#[derive(Debug)]
pub(crate) struct LiveRecording {
    pub(crate) claim: u64,
    /// The session that may write; `None` when it has ended.
    pub(crate) session: Option<u64>,
    pub(crate) durability: Durability,
    /// `None` while a job owns it.
    pub(crate) writer: Option<Box<Writer>>,
    pub(crate) progress: Arc<WriterProgress>,
    pub(crate) pending: VecDeque<PendingBatch>,
    /// Bytes of frames in `pending` and in the running job.
    pub(crate) pending_bytes: usize,
    /// The number of the next message expected.
    pub(crate) expected: u64,
    pub(crate) reached: RecordProgress,
    /// Ends of written blocks that are not durable yet, each with the number of the next message; both ascend.
    boundaries: VecDeque<(Position, u64)>,
    /// Requests that wait for a sync.
    pub(crate) flushes: Vec<RequestId>,
    /// Requests that the sync of the running job answers.
    pub(crate) flushing: Vec<RequestId>,
    /// Is the recording to be stopped? The requests in `stoppers` wait for that.
    pub(crate) is_stopping: bool,
    pub(crate) stoppers: Vec<RequestId>,
    /// Bytes of frames that the running job writes.
    pub(crate) in_flight_bytes: usize,
    /// Its end when it was claimed.
    pub(crate) start: u64,
    /// Did the recording exist before the claim?
    pub(crate) is_extended: bool,
}

impl LiveRecording {
    pub(crate) fn new(
        claim: u64,
        session: u64,
        durability: Durability,
        writer: Box<Writer>,
        end: Position,
    ) -> LiveRecording {
        let progress = writer.progress();
        let next_message = progress.next_message();
        LiveRecording {
            claim,
            session: Some(session),
            durability,
            writer: Some(writer),
            progress,
            pending: VecDeque::new(),
            pending_bytes: 0,
            expected: next_message,
            reached: RecordProgress {
                written_message: next_message,
                written_position: end.0,
                durable_message: next_message,
                durable_position: end.0,
            },
            boundaries: VecDeque::new(),
            flushes: Vec::new(),
            flushing: Vec::new(),
            is_stopping: false,
            stoppers: Vec::new(),
            in_flight_bytes: 0,
            start: end.0,
            is_extended: false,
        }
    }

    /// Is there work for a job?
    pub(crate) fn has_work(&self, now: u64) -> bool {
        !self.pending.is_empty()
            || !self.flushes.is_empty()
            || self.is_stopping
            || self.sync_at().is_some_and(|at| at <= now)
    }

    /// The time at which its writer has to sync, in nanoseconds since 1970; `None` while a job owns the writer.
    pub(crate) fn sync_at(&self) -> Option<u64> {
        self.writer.as_ref()?.sync_at()
    }

    /// The end up to which replays may read; `is_eager` ones read what is not durable yet.
    pub(crate) fn visible(&self, is_eager: bool) -> Position {
        match self.durability {
            Durability::None => Position(self.reached.written_position),
            _ if is_eager => Position(self.reached.written_position),
            _ => Position(self.reached.durable_position),
        }
    }

    /// Records the progress of a finished job.
    pub(crate) fn advance(
        &mut self,
        boundaries: Vec<(Position, u64)>,
        end: Position,
        next_message: u64,
        durable: Position,
    ) {
        self.boundaries.extend(boundaries);
        self.reached.written_message = next_message;
        self.reached.written_position = end.0;
        while let Some(&(position, message)) = self.boundaries.front()
            && position <= durable
        {
            self.boundaries.pop_front();
            self.reached.durable_message = message;
            self.reached.durable_position = position.0;
        }
        if durable >= end {
            self.reached.durable_message = next_message;
            self.reached.durable_position = end.0;
        }
        while self.boundaries.len() > BOUNDARIES_MAX {
            self.boundaries.remove(self.boundaries.len() / 2);
        }
    }

    pub(crate) fn check_invariants(&self) {
        let reached = &self.reached;
        assert!(reached.durable_message <= reached.written_message);
        assert!(reached.durable_position <= reached.written_position);
        assert!(self.boundaries.len() <= BOUNDARIES_MAX);
        assert!(self.boundaries.iter().is_sorted());
        assert!(self.in_flight_bytes <= self.pending_bytes);
        assert!(self.flushing.is_empty() || self.writer.is_none());
    }
}
