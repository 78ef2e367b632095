//! State of the server for one open recording.

use crate::message::Reached;
use crate::server::write::{Lane, Pending};
use seatrial_archive::Durability;
use seatrial_archive::Position;
use seatrial_archive::Progress;
use std::collections::VecDeque;
use std::sync::Arc;

/// The session and number of a request.
pub(crate) type Asker = (u64, u64);

/// Boundaries that may wait to become durable; beyond that, one in the middle is dropped, and its messages are reported durable
/// together with later ones.
const BOUNDARIES_MAX: usize = 1_024;

/// A recording that is being recorded: the claim on it, its writer (while no job has it), and the batches that wait for it.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) claim: u64,
    /// The session that may write; `None` when it has ended.
    pub(crate) session: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) lane: Option<Box<Lane>>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes of frames in `pending`, and of those under way.
    pub(crate) pending_bytes: usize,
    /// The number of the next message expected.
    pub(crate) expected: u64,
    pub(crate) reached: Reached,
    boundaries: VecDeque<(Position, u64)>,
    /// Requests that wait for a sync.
    pub(crate) flushes: Vec<Asker>,
    /// Requests that the sync of the running job answers.
    pub(crate) flushing: Vec<Asker>,
    /// Is it to be stopped? [`Track::stoppers`] wait for that.
    pub(crate) is_stopping: bool,
    pub(crate) stoppers: Vec<Asker>,
    /// Bytes of frames that the running job writes.
    pub(crate) under_way_bytes: usize,
    /// The position at which it was claimed.
    pub(crate) start: u64,
    /// Did the recording exist before the claim?
    pub(crate) is_extended: bool,
}

impl Track {
    pub(crate) fn new(
        claim: u64,
        session: u64,
        durability: Durability,
        lane: Box<Lane>,
        end: Position,
    ) -> Track {
        let progress = lane.writer.progress();
        let next_message = progress.next_message();
        Track {
            claim,
            session: Some(session),
            durability,
            lane: Some(lane),
            progress,
            pending: VecDeque::new(),
            pending_bytes: 0,
            expected: next_message,
            reached: Reached {
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
            under_way_bytes: 0,
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

    /// The time at which its writer has to sync: nanoseconds since 1970.
    pub(crate) fn sync_at(&self) -> Option<u64> {
        self.lane.as_ref()?.writer.sync_at()
    }

    /// The end of what may be replayed.
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
    }
}
