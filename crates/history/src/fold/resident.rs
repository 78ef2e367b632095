//! Decoded chunks that several workers share.

use crate::chunk::Wide;
use crate::store::{ChunkBuffer, Scratch};
use std::collections::VecDeque;
use std::sync::Arc;

/// A decoded chunk; `None` when the history has none with its number.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) buffer: ChunkBuffer,
    pub(super) is_there: bool,
}

/// The last decoded chunks that some fold still wants, and memory for more. A chunk is held by its readers too; the last
/// one gives the memory back. What was used last is used next: it is in the processor's cache.
#[derive(Debug)]
pub(super) struct Resident {
    /// Oldest first.
    ring: VecDeque<(u64, Arc<Decoded>)>,
    free: Vec<ChunkBuffer>,
    /// For what is only needed while a chunk is read.
    scratches: Vec<Scratch>,
    /// For columns of chunks that are looked at.
    wide: Vec<Wide>,
    length_max: usize,
    free_max: usize,
}

impl Resident {
    /// For so many workers.
    pub(super) fn new(threads: usize) -> Resident {
        Resident {
            ring: VecDeque::new(),
            free: Vec::new(),
            scratches: Vec::new(),
            wide: Vec::new(),
            length_max: 4 * threads + 16,
            free_max: threads,
        }
    }

    /// What is here, newest first.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + Clone {
        self.ring.iter().rev().map(|(number, _)| *number)
    }

    /// The chunk with this number.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Decoded>> {
        let found = self.ring.iter().find(|(other, _)| *other == number);
        found.map(|(_, chunk)| chunk.clone())
    }

    /// How many can be here.
    pub(super) fn length_max(&self) -> u64 {
        self.length_max as u64
    }

    /// Keeps a chunk if there is room. Those that are here are wanted sooner: in order, from the one that came first.
    pub(super) fn put(&mut self, number: u64, chunk: Arc<Decoded>) {
        if self.ring.len() < self.length_max {
            self.ring.push_back((number, chunk));
        } else {
            self.release(chunk);
        }
    }

    /// Lets go of all that `is_wanted` no more.
    pub(super) fn sweep(&mut self, is_wanted: impl Fn(u64) -> bool) {
        for _ in 0..self.ring.len() {
            let Some((number, chunk)) = self.ring.pop_front() else {
                return;
            };
            if is_wanted(number) {
                self.ring.push_back((number, chunk));
            } else {
                self.release(chunk);
            }
        }
    }

    /// A reader is done with a chunk.
    pub(super) fn release(&mut self, chunk: Arc<Decoded>) {
        if let Some(decoded) = Arc::into_inner(chunk) {
            self.recycle(decoded.buffer);
        }
    }

    /// Memory that nobody uses.
    pub(super) fn recycle(&mut self, mut buffer: ChunkBuffer) {
        let wide = buffer.chunk.give_memory();
        if self.wide.len() < self.free_max {
            self.wide.push(wide);
        }
        if self.free.len() < self.free_max {
            self.free.push(buffer);
        }
    }

    /// Memory for a chunk that is about to be read.
    pub(super) fn memory(&mut self) -> ChunkBuffer {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.scratch = self.scratches.pop().unwrap_or_default();
        buffer
    }

    /// Memory that is not needed any more as a chunk was read.
    pub(super) fn put_scratch(&mut self, scratch: Scratch) {
        self.scratches.push(scratch);
    }

    /// Memory for the columns of a chunk that is about to be looked at.
    pub(super) fn wide(&mut self) -> Wide {
        self.wide.pop().unwrap_or_default()
    }
}
