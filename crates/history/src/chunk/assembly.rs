//! Assembles operations into chunks.

use super::{
    CHUNK_BYTES_MAX, Chunk, Encoder, OPERATIONS_MAX, TransactionHead, TransactionPart, Unstorable,
};
use crate::{Op, OpenInvocations};

/// Assembles operations into chunks without a file.
///
/// It owns the open invocations, one open chunk and the memory of the last one. Cost: a chunk is encoded and decoded, as with
/// a test file.
pub struct Assembly {
    encoder: Encoder,
    open: OpenInvocations,
    /// Operations so far.
    position: u64,
    length_max: usize,
    bytes: Vec<u8>,
    chunk: Chunk,
}

impl Assembly {
    /// Creates an assembly of chunks with at most `length_max` operations, at least 1.
    pub fn new(length_max: usize) -> Assembly {
        Assembly {
            encoder: Encoder::default(),
            open: OpenInvocations::default(),
            position: 0,
            length_max: length_max.clamp(1, OPERATIONS_MAX),
            bytes: Vec::new(),
            chunk: Chunk::default(),
        }
    }

    /// Adds an operation, and returns the chunk when it is full. An error changes nothing.
    pub fn push(&mut self, op: &Op) -> Result<Option<&Chunk>, Unstorable> {
        self.add(op)?;
        Ok(if self.is_full() { self.rest() } else { None })
    }

    /// Adds an operation; the chunk must not be full.
    pub fn add(&mut self, op: &Op) -> Result<(), Unstorable> {
        let (open, position) = (&mut self.open, self.position);
        self.encoder.measure_and_push(op, || {
            let invocation = open.follow(position, op);
            invocation.map_or(0, |invocation| position - invocation)
        })?;
        self.position += 1;
        Ok(())
    }

    /// Adds a transaction in parts, which must be storable.
    pub fn push_parts<'a>(
        &mut self,
        head: &TransactionHead,
        parts: impl ExactSizeIterator<Item = TransactionPart<'a>>,
    ) {
        let position = self.position;
        let invocation = self.open.follow_client(position, head.client, head.kind);
        let pair = invocation.map_or(0, |invocation| position - invocation);
        self.encoder.push_parts(head, parts, pair);
        self.position += 1;
    }

    /// Is the open chunk full?
    pub fn is_full(&self) -> bool {
        self.encoder.len() >= self.length_max || self.encoder.bytes() >= CHUNK_BYTES_MAX / 2
    }

    /// Adds an operation. If the chunk is then full, swaps it with `chunk`, whose memory is reused, and returns true.
    pub fn push_to(&mut self, op: &Op, chunk: &mut Chunk) -> Result<bool, Unstorable> {
        self.add(op)?;
        Ok(self.is_full() && self.swap_rest(chunk))
    }

    /// Swaps the remaining operations, as a chunk, with `chunk`, whose memory is reused; false if there are none.
    pub fn swap_rest(&mut self, chunk: &mut Chunk) -> bool {
        let is_there = self.rest().is_some();
        if is_there {
            std::mem::swap(&mut self.chunk, chunk);
        }
        is_there
    }

    /// The remaining operations as a chunk; `None` if there are none.
    pub fn rest(&mut self) -> Option<&Chunk> {
        if self.encoder.is_empty() {
            return None;
        }
        let count = self.encoder.len();
        self.bytes.clear();
        self.encoder
            .write(self.position - count as u64, &mut self.bytes);
        self.encoder.clear();
        let read = self.chunk.read(&self.bytes);
        debug_assert!(read.is_ok(), "what was measured and written is read");
        read.is_ok().then_some(&self.chunk)
    }
}

#[cfg(test)]
mod tests;
