//! Folds: questions about a whole history, many of them answered in one pass over its chunks.

use crate::chunk::{Chunk, Encoder, measure};
use crate::store::{ChunkBuffer, OpenError, TestFile};
use crate::{History, HistoryError, Op};
use std::ops::ControlFlow;

mod concurrent;
mod folder;
mod job;
mod matrix;
mod resident;
mod taken;

pub use concurrent::fold_concurrent;
pub use folder::{Batch, Folder, FolderStatistics, Folding};
pub use job::FoldError;

/// How a fold may be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// One accumulator sees all chunks in order; [`Fold::combine`] is never called.
    Linear,
    /// Each chunk gets an accumulator of its own; they are combined one by one in the order of the chunks.
    #[default]
    Concurrent,
    /// As [`Order::Concurrent`], and neighbours may be combined before what is in front of them: `combine` is associative.
    Associative,
}

/// A question about a whole history that is answered chunk by chunk. One virtual call a chunk; what happens per operation
/// is the fold's own loop.
///
/// [`Fold::reduce`] sees every chunk exactly once. Run linearly, one accumulator sees them in order. Run concurrently,
/// each chunk gets an accumulator of its own, and they are combined in the order of the chunks; both give the same if
/// combining is what reducing the later chunks would have done.
///
/// A fold that breaks, from `reduce` or `combine`, says that its accumulator is the answer whatever the chunks behind
/// hold; these are then not asked for, or what they gave is thrown away. To leave only the current chunk early, return.
pub trait Fold: Send + Sync {
    /// What is known so far. Owned by one thread at a time, so it needs no lock.
    type Accumulator: Send;
    /// The answer.
    type Output: Send;

    /// What people see it as.
    fn name(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// How it may be carried out.
    fn order(&self) -> Order {
        Order::default()
    }

    /// Is somebody waiting for just this one? Then its chunks come first.
    fn asap(&self) -> bool {
        false
    }

    /// Nothing is known.
    fn start(&self) -> Self::Accumulator;

    /// Takes one chunk into account.
    fn reduce(&self, accumulator: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()>;

    /// Takes what is known of the chunks right behind into account.
    fn combine(
        &self,
        accumulator: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()>;

    /// The answer when all chunks were seen that matter.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// What can be folded over: a history in chunks.
pub trait Chunks: Send + Sync {
    /// Why a chunk cannot be had.
    type Error: std::error::Error + Send + Sync + 'static;

    /// How many there are.
    fn chunk_count(&self) -> u64;

    /// The chunk with this number, from 0, read into memory that is used again; `None` behind the last one.
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

/// Operations of a chunk that is made from a history in memory.
const CHUNK_LENGTH: usize = 16_384;

/// A history in memory is put into columns chunk by chunk, which takes longer than most folds; a question that is asked
/// of such histories only had better iterate.
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

/// These operations as a chunk; `pair` gives the distance to the invocation of the one at a place.
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
    Ok(Chunk::from_bytes(&bytes).expect("what was measured and written is read"))
}

impl Chunk {
    /// The operations after the first `count`, as a chunk of its own: what is new in one that repeats operations which were taken
    /// before, as a chunk of a test file that is still written does. Costs as much as encoding them.
    #[must_use]
    pub fn after(&self, count: usize) -> Chunk {
        let ops: Vec<Op> = self.ops().skip(count).collect();
        let first = self.first_position() + count as u64;
        let pairs = self.pairs();
        let pair = |place: usize| pairs[count + place].max(0).cast_unsigned();
        in_columns(&ops, first, pair).expect("what was in a chunk fits one")
    }
}

/// Folds chunk after chunk in this thread.
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
