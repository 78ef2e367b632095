//! One operation, borrowed from a chunk.

use super::{Chunk, Tape, ValueView};
use crate::{Key, Op, OpType, Process, Symbol};

/// One operation in its chunk: two words, copied freely. Each access reads one column; only [`OpView::op`] builds an operation.
#[derive(Clone, Copy, Debug)]
pub struct OpView<'a> {
    chunk: &'a Chunk,
    place: usize,
}

impl<'a> OpView<'a> {
    /// Its chunk.
    pub fn chunk(self) -> &'a Chunk {
        self.chunk
    }

    /// Its place in the chunk.
    pub fn place(self) -> usize {
        self.place
    }

    /// Its position in the history.
    pub fn position(self) -> u64 {
        self.chunk.first_position() + self.place as u64
    }

    /// Its index.
    pub fn index(self) -> u64 {
        self.chunk.index(self.place)
    }

    /// Nanoseconds since the test began; -1 if unknown.
    pub fn time(self) -> i64 {
        self.chunk.times()[self.place]
    }

    /// Its type.
    pub fn kind(self) -> OpType {
        self.chunk.kinds()[self.place]
    }

    /// Its process.
    pub fn process(self) -> Process {
        self.chunk.process(self.place)
    }

    /// Its function.
    pub fn f(self) -> Symbol {
        self.chunk.f(self.place)
    }

    /// Its independent key, if any.
    pub fn key(self) -> Option<&'a Key> {
        self.chunk.key_id(self.place).map(|id| self.chunk.key(id))
    }

    /// Its value, without the independent key.
    pub fn value(self) -> ValueView<'a> {
        self.chunk.value(self.place)
    }

    /// Its extra fields, in order.
    pub fn extra(self) -> impl Iterator<Item = (Symbol, Tape<'a>)> {
        self.chunk.extra(self.place)
    }

    /// The position of the invocation that it completes.
    pub fn invocation(self) -> Option<u64> {
        self.chunk.invocation(self.place)
    }

    /// Builds the operation.
    pub fn op(self) -> Op {
        self.chunk.op(self.place)
    }
}

impl Chunk {
    /// The operation at `place`, borrowed.
    pub fn view(&self, place: usize) -> OpView<'_> {
        assert!(place < self.len(), "place {place} of {}", self.len());
        OpView { chunk: self, place }
    }

    /// All operations in order, borrowed.
    pub fn views(&self) -> impl ExactSizeIterator<Item = OpView<'_>> {
        (0..self.len()).map(|place| OpView { chunk: self, place })
    }
}
