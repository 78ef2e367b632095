//! One operation, borrowed from a chunk.

use super::{Chunk, Tape, ValueView};
use crate::{Key, Op, OpType, Process, Symbol};

/// One operation where it stands in its chunk: two words that are copied freely. Each access reads one column; nothing
/// is built before [`OpView::op`] asks for it.
#[derive(Clone, Copy, Debug)]
pub struct OpView<'a> {
    chunk: &'a Chunk,
    place: usize,
}

impl<'a> OpView<'a> {
    /// The chunk that it is in.
    pub fn chunk(self) -> &'a Chunk {
        self.chunk
    }

    /// Where in the chunk.
    pub fn place(self) -> usize {
        self.place
    }

    /// How many operations the history has before it.
    pub fn position(self) -> u64 {
        self.chunk.first_position() + self.place as u64
    }

    /// The number that it carries.
    pub fn index(self) -> u64 {
        self.chunk.index(self.place)
    }

    /// Nanoseconds since the test began; -1 when not known.
    pub fn time(self) -> i64 {
        self.chunk.times()[self.place]
    }

    /// Invocation, or which completion.
    pub fn kind(self) -> OpType {
        self.chunk.kinds()[self.place]
    }

    /// Who does it.
    pub fn process(self) -> Process {
        self.chunk.process(self.place)
    }

    /// What it does.
    pub fn f(self) -> Symbol {
        self.chunk.f(self.place)
    }

    /// The independent key.
    pub fn key(self) -> Option<&'a Key> {
        self.chunk.key_id(self.place).map(|id| self.chunk.key(id))
    }

    /// The value, without the independent key.
    pub fn value(self) -> ValueView<'a> {
        self.chunk.value(self.place)
    }

    /// The extra fields, in its order.
    pub fn extra(self) -> impl Iterator<Item = (Symbol, Tape<'a>)> {
        self.chunk.extra(self.place)
    }

    /// The position of the invocation that it completes.
    pub fn invocation(self) -> Option<u64> {
        self.chunk.invocation(self.place)
    }

    /// All of it in a value of its own.
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
