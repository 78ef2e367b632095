//! How far the writer of a recording has got, as its readers see it.

use crate::Position;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a recording has got: told by its writer, asked by any number of readers in the same process, without a lock.
/// Each value only ever grows.
#[derive(Debug, Default)]
pub struct Progress {
    written: AtomicU64,
    durable: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// The progress of a recording that is whole and durable up to `end`.
    pub fn new(end: Position) -> Progress {
        Progress {
            written: AtomicU64::new(end.0),
            durable: AtomicU64::new(end.0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Blocks before it can be read; a crash of the machine may take them.
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// Blocks before it survive a crash of the machine.
    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    /// Has this writer stopped?
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// All blocks before `position` were given to the storage.
    pub fn set_written(&self, position: Position) {
        self.written.store(position.0, Ordering::Release);
    }

    /// All blocks before `position` were synced.
    pub fn set_durable(&self, position: Position) {
        self.durable.store(position.0, Ordering::Release);
    }

    /// There will be no more blocks from this writer.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }
}
