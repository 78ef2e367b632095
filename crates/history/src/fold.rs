//! Folds: questions about a whole history, many of them answered in one pass over its chunks.

use crate::chunk::{Chunk, Encoder, measure};
use crate::store::{ChunkBuffer, OpenError, TestFile};
use crate::{History, HistoryError, Op};
use std::ops::ControlFlow;

mod chunk_set;
mod concurrent;
mod erased;
mod folder;
mod matrix;
mod resident;

pub use concurrent::fold_concurrent;
pub use erased::FoldError;
pub use folder::{FoldBatch, Folder, FolderStatistics, Folding};

/// Execution order that a fold permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// One accumulator reduces all chunks in order; [`Fold::combine`] is never called.
    Linear,
    /// Each chunk has its own accumulator; accumulators are combined one by one, in chunk order, into that of chunk 0.
    #[default]
    Concurrent,
    /// Like [`Order::Concurrent`], and adjacent accumulators may be combined before earlier ones are complete: `combine` is
    /// associative.
    Associative,
}

/// A question about a whole history, computed chunk by chunk. One virtual call per chunk; the loop over operations is the
/// fold's own.
///
/// [`Fold::reduce`] is called exactly once for every chunk. In a linear run one accumulator reduces them in order. In a
/// concurrent run each chunk has its own accumulator, and they are combined in chunk order. Both runs give the same
/// output if `combine(a, b)` equals reducing the chunks of `b` into `a`.
///
/// Early exit: `ControlFlow::Break` from `reduce` or `combine` declares the accumulator final. Later chunks are not read
/// for this fold, or their accumulators are dropped. To skip only the rest of the current chunk, return `Continue`.
pub trait Fold: Send + Sync {
    /// State after some consecutive chunks. One thread owns it at a time, so it needs no lock.
    type Accumulator: Send;
    /// The answer.
    type Output: Send;

    /// Name in errors and statistics; the type's name by default.
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// The execution order that this fold permits.
    fn order(&self) -> Order {
        Order::default()
    }

    /// Returns whether this fold has priority: a folder serves its chunks before those of other folds.
    fn asap(&self) -> bool {
        false
    }

    /// Returns the accumulator of an empty history.
    fn start(&self) -> Self::Accumulator;

    /// Adds one chunk to the accumulator.
    fn reduce(&self, accumulator: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()>;

    /// Adds the accumulator of the chunks that directly follow those of `accumulator`.
    fn combine(
        &self,
        accumulator: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()>;

    /// Computes the answer from the accumulator of all chunks, or of those up to an early exit.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// A history in chunks with random access: the input of folds.
pub trait Chunks: Send + Sync {
    /// Why a chunk cannot be read.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Number of chunks.
    fn chunk_count(&self) -> u64;

    /// Reads chunk `number` (from 0) into `buffer`, whose memory is reused; `None` past the last chunk.
    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, Self::Error>;
}

impl Chunks for TestFile {
    type Error = OpenError;

    fn chunk_count(&self) -> u64 {
        TestFile::chunk_count(self)
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, OpenError> {
        TestFile::read_chunk(self, number, buffer)
    }
}

/// Operations per chunk when a history in memory is folded.
const CHUNK_LENGTH: usize = 16_384;

/// Each read encodes operations into columns, which takes longer than most folds; for a history that is always in memory,
/// iterate over [`History::ops`] instead.
impl Chunks for History {
    type Error = HistoryError;

    fn chunk_count(&self) -> u64 {
        self.len().div_ceil(CHUNK_LENGTH) as u64
    }

    fn read_chunk<'a>(
        &self,
        number: u64,
        buffer: &'a mut ChunkBuffer,
    ) -> Result<Option<&'a Chunk>, HistoryError> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(ops) = self.ops().chunks(CHUNK_LENGTH).nth(number) else {
            return Ok(None);
        };
        let first = number * CHUNK_LENGTH;
        let distance = |position: usize| {
            let invocation = self.pair(position).filter(|&other| other < position);
            invocation.map_or(0, |invocation| (position - invocation) as u64)
        };
        buffer.chunk = in_columns(ops, first as u64, |place| distance(first + place))?;
        Ok(Some(&buffer.chunk))
    }
}

/// Encodes operations as a chunk; `pair(place)` is the distance from the operation at `place` back to its invocation, or 0.
fn in_columns(
    ops: &[Op],
    first_position: u64,
    pair: impl Fn(usize) -> u64,
) -> Result<Chunk, HistoryError> {
    let mut encoder = Encoder::default();
    for (place, op) in ops.iter().enumerate() {
        let index = op.index;
        measure(op).map_err(|reason| HistoryError::Unstorable { index, reason })?;
        encoder.push(op, pair(place));
    }
    let mut bytes = Vec::new();
    encoder.write(first_position, &mut bytes);
    Ok(Chunk::from_bytes(&bytes).expect("a chunk that was just encoded is valid"))
}

impl Chunk {
    /// The operations after the first `count`, as a new chunk: a sealed chunk of a growing test file repeats operations that
    /// a reader already saw as journal blocks. Costs one encoding of these operations.
    #[must_use]
    pub fn after(&self, count: usize) -> Chunk {
        let ops: Vec<Op> = self.ops().skip(count).collect();
        let first = self.first_position() + count as u64;
        let pairs = self.pairs();
        let pair = |place: usize| pairs[count + place].max(0).cast_unsigned();
        in_columns(&ops, first, pair).expect("operations of a chunk fit a chunk")
    }
}

/// Runs one fold over all chunks in order, on the calling thread.
pub fn fold_linear<C: Chunks, F: Fold>(chunks: &C, fold: &F) -> Result<F::Output, C::Error> {
    let mut accumulator = fold.start();
    let mut buffer = ChunkBuffer::default();
    for number in 0..chunks.chunk_count() {
        if let Some(chunk) = chunks.read_chunk(number, &mut buffer)?
            && fold.reduce(&mut accumulator, chunk).is_break()
        {
            break;
        }
    }
    Ok(fold.finish(accumulator))
}

#[cfg(test)]
mod tests;
