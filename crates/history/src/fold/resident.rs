//! Decoded chunks that several workers share.

use crate::chunk::Wide;
use crate::store::{ChunkBuffer, ReadScratch};
use std::collections::VecDeque;
use std::sync::Arc;

/// A decoded chunk; `is_there` is false if the history has no chunk of this number.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) buffer: ChunkBuffer,
    pub(super) is_there: bool,
}

/// Decoded chunks that some fold still needs, and free memory for further ones. Readers share a chunk by reference count;
/// the last one returns its memory. Free memory is reused last in, first out, while it is in the processor's cache.
#[derive(Debug)]
pub(super) struct Resident {
    /// Oldest first.
    ring: VecDeque<(u64, Arc<Decoded>)>,
    free: Vec<ChunkBuffer>,
    /// Memory that is needed only while a chunk is read.
    scratches: Vec<ReadScratch>,
    /// Memory for widened columns of chunks in use.
    wide: Vec<Wide>,
    length_max: usize,
    free_max: usize,
}

impl Resident {
    /// Creates an empty set for this many workers.
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

    /// Numbers of the resident chunks, newest first.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + Clone {
        self.ring.iter().rev().map(|(number, _)| *number)
    }

    /// The chunk with this number, if it is resident.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Decoded>> {
        let found = self.ring.iter().find(|(other, _)| *other == number);
        found.map(|(_, chunk)| chunk.clone())
    }

    /// Most chunks that can be resident.
    pub(super) fn length_max(&self) -> u64 {
        self.length_max as u64
    }

    /// Keeps a chunk if there is room. Resident chunks are not evicted: they are needed sooner, since folds run in order.
    pub(super) fn put(&mut self, number: u64, chunk: Arc<Decoded>) {
        if self.ring.len() < self.length_max {
            self.ring.push_back((number, chunk));
        } else {
            self.release(chunk);
        }
        assert!(self.ring.len() <= self.length_max);
    }

    /// Frees the chunks for which `is_wanted` is false.
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

    /// Ends one reader's use of a chunk; the last one frees its memory.
    pub(super) fn release(&mut self, chunk: Arc<Decoded>) {
        if let Some(decoded) = Arc::into_inner(chunk) {
            self.recycle(decoded.buffer);
        }
    }

    /// Keeps memory for reuse.
    pub(super) fn recycle(&mut self, mut buffer: ChunkBuffer) {
        let wide = buffer.chunk.give_memory();
        if self.wide.len() < self.free_max {
            self.wide.push(wide);
        }
        if self.free.len() < self.free_max {
            self.free.push(buffer);
        }
        debug_assert!(self.wide.len() <= self.free_max && self.free.len() <= self.free_max);
    }

    /// Memory for a chunk that is about to be read.
    pub(super) fn memory(&mut self) -> ChunkBuffer {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.scratch = self.scratches.pop().unwrap_or_default();
        buffer
    }

    /// Returns scratch memory after a chunk was read.
    pub(super) fn put_scratch(&mut self, scratch: ReadScratch) {
        self.scratches.push(scratch);
    }

    /// Memory for the widened columns of a chunk that is about to be reduced.
    pub(super) fn wide(&mut self) -> Wide {
        self.wide.pop().unwrap_or_default()
    }
}
