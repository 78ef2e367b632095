//! How far a writer has got, for those who read beside it.

use crate::Position;
use crate::catalog::Boundary;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a writer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// It may append more.
    Recording,
    /// It was stopped: what is written is all, and durable.
    Stopped,
    /// It was dropped without being stopped, or a write failed: what is written is all; how much of it is durable the next
    /// one finds out who extends the recording.
    Abandoned,
    /// A sync failed: what is beyond [`Progress::durable`] may be lost, and the archive has to be opened again.
    Lost,
}

/// How far one writer has got. Written by it alone, read by any number of threads without a lock.
#[derive(Debug)]
pub struct Progress {
    written: AtomicU64,
    durable: AtomicU64,
    message: AtomicU64,
    sequence: AtomicU64,
    time: AtomicU64,
    state: AtomicU8,
}

impl Progress {
    /// That of a recording that is whole and durable up to `end`.
    pub fn new(end: Boundary) -> Progress {
        Progress {
            written: AtomicU64::new(end.position.0),
            durable: AtomicU64::new(end.position.0),
            message: AtomicU64::new(end.message),
            sequence: AtomicU64::new(end.sequence),
            time: AtomicU64::new(end.time),
            state: AtomicU8::new(0),
        }
    }

    /// The end of what is written and may be read.
    #[inline]
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// The end of what survives a loss of power.
    #[inline]
    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    /// The number of the next message. It belongs to a position at or behind the one that [`Progress::written`] told before.
    #[inline]
    pub fn next_message(&self) -> u64 {
        self.message.load(Ordering::Acquire)
    }

    /// Whether there will be more. Ask before [`Progress::written`]: what is written is all, if this was not
    /// [`WriterState::Recording`].
    #[inline]
    pub fn state(&self) -> WriterState {
        match self.state.load(Ordering::Acquire) {
            0 => WriterState::Recording,
            1 => WriterState::Stopped,
            2 => WriterState::Abandoned,
            _ => WriterState::Lost,
        }
    }

    /// Will there be no more from this writer? See [`Progress::state`].
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.state() != WriterState::Recording
    }

    /// There will be no more from this writer.
    pub fn stop(&self) {
        self.set_state(WriterState::Stopped);
    }

    /// The end of what is written. Of the other fields each is at least as new.
    pub(crate) fn end(&self) -> Boundary {
        Boundary {
            position: self.written(),
            message: self.next_message(),
            sequence: self.sequence.load(Ordering::Acquire),
            time: self.time.load(Ordering::Acquire),
        }
    }

    pub(crate) fn set_end(&self, end: Boundary) {
        self.message.store(end.message, Ordering::Release);
        self.sequence.store(end.sequence, Ordering::Release);
        self.time.store(end.time, Ordering::Release);
        self.written.store(end.position.0, Ordering::Release);
    }

    pub(crate) fn set_durable(&self, durable: Position) {
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
