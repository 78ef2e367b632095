//! The progress of a recording's writer, for readers in other threads.

use crate::Position;
use crate::catalog::Boundary;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The state of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// It may append more.
    Recording,
    /// It was stopped: nothing more is written, and everything is durable.
    Stopped,
    /// It was dropped without a stop, or a write failed: nothing more is written. How much is durable is determined when
    /// the recording is extended.
    Abandoned,
    /// A sync failed: messages after [`WriterProgress::durable`] may be lost, and the archive has to be opened again.
    Lost,
}

/// The progress of one writer: ends of what is written and durable. Written by that writer alone, read by any number of
/// threads without a lock. `written` is stored last and loaded first, so the other fields are at least as new as it.
#[derive(Debug)]
pub struct WriterProgress {
    written: AtomicU64,
    durable: AtomicU64,
    message: AtomicU64,
    sequence: AtomicU64,
    time: AtomicU64,
    state: AtomicU8,
}

impl WriterProgress {
    /// The progress of a recording that is valid and durable up to `end`.
    pub fn new(end: Boundary) -> WriterProgress {
        WriterProgress {
            written: AtomicU64::new(end.position.0),
            durable: AtomicU64::new(end.position.0),
            message: AtomicU64::new(end.message),
            sequence: AtomicU64::new(end.sequence),
            time: AtomicU64::new(end.time),
            state: AtomicU8::new(0),
        }
    }

    /// The end of the messages that are written and may be read.
    #[inline]
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// The end of the messages that survive a power failure.
    #[inline]
    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    /// The number of the next message: that of the position which [`WriterProgress::written`] returned before, or a later one.
    #[inline]
    pub fn next_message(&self) -> u64 {
        self.message.load(Ordering::Acquire)
    }

    /// The writer's state. Load it before [`WriterProgress::written`]: if it was not [`WriterState::Recording`], nothing follows
    /// what is written then.
    #[inline]
    pub fn state(&self) -> WriterState {
        match self.state.load(Ordering::Acquire) {
            0 => WriterState::Recording,
            1 => WriterState::Stopped,
            2 => WriterState::Abandoned,
            _ => WriterState::Lost,
        }
    }

    /// Has the writer ended? See [`WriterProgress::state`].
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.state() != WriterState::Recording
    }

    /// Records that the writer has stopped.
    pub fn stop(&self) {
        self.set_state(WriterState::Stopped);
    }

    /// The end of what is written; message, sequence and time are at least as new as the position.
    pub(crate) fn end(&self) -> Boundary {
        Boundary {
            position: self.written(),
            message: self.next_message(),
            sequence: self.sequence.load(Ordering::Acquire),
            time: self.time.load(Ordering::Acquire),
        }
    }

    pub(crate) fn set_end(&self, end: Boundary) {
        assert!(end.position >= self.written(), "a writer only appends");
        // The position last: readers load it first.
        self.message.store(end.message, Ordering::Release);
        self.sequence.store(end.sequence, Ordering::Release);
        self.time.store(end.time, Ordering::Release);
        self.written.store(end.position.0, Ordering::Release);
    }

    pub(crate) fn set_durable(&self, durable: Position) {
        assert!(
            durable <= self.written(),
            "only what is written can be durable"
        );
        self.durable.store(durable.0, Ordering::Release);
    }

    pub(crate) fn set_state(&self, state: WriterState) {
        let code = match state {
            WriterState::Recording => 0,
            WriterState::Stopped => 1,
            WriterState::Abandoned => 2,
            WriterState::Lost => 3,
        };
        self.state.store(code, Ordering::Release);
    }
}
