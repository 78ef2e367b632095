//! Chunk sources: histories that are read chunk by chunk, as often as needed.

use crate::chunk::ChunkAddress;
use crate::fold::{Chunks, Fold};
use crate::store::{ChunkBuffer, Salvaged, TestFile};
use crate::{Chunk, History, Op, TransactionSink};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Why a source cannot be read. `downcast_ref` finds the source's own error.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Receiver of the chunks of one round, in order; it breaks to end the round early.
pub type Take<'a> = dyn FnMut(&Chunk) -> ControlFlow<()> + 'a;

/// A history that can be read from its beginning any number of times: a test file, a text, a history in memory.
///
/// Checkers read histories only through this trait. The chunks of one round follow one another without gap or overlap, and
/// every round yields the same operations.
pub trait ChunkSource: Send + Sync {
    /// Calls `take` with all chunks in order, or up to the chunk at which it breaks.
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError>;

    /// Calls `look` with the beginning of the history, unless it is empty: up to a chunk, and not more work than that. (A round
    /// that breaks may have read ahead.)
    fn first(&self, look: &mut dyn FnMut(&Chunk)) -> Result<(), SourceError> {
        self.round(&mut |chunk| {
            look(chunk);
            ControlFlow::Break(())
        })
    }

    /// Passes all transactions to `sink` without building operations; `None` if this source cannot. Order and contents are
    /// those of the chunks, in which each transaction has its invocation and completion at the next two positions.
    fn transactions(&self, _sink: &mut dyn TransactionSink) -> Option<Result<(), SourceError>> {
        None
    }

    /// Returns the operations at these positions; positions past the end are left out. Costs a round if the source has no
    /// index.
    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        let mut ops = BTreeMap::new();
        let Some(&last) = positions.last() else {
            return Ok(ops);
        };
        self.round(&mut |chunk| {
            let first = chunk.first_position();
            let end = first + chunk.len() as u64;
            for &position in positions.range(first..end) {
                ops.insert(position, chunk.op((position - first) as usize));
            }
            if end > last {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(ops)
    }
}

impl dyn ChunkSource + '_ {
    /// Runs a fold over one round, on the calling thread, and returns its answer.
    pub fn fold<F: Fold>(&self, fold: &F) -> Result<F::Output, SourceError> {
        let mut accumulator = fold.start();
        self.round(&mut |chunk| fold.reduce(&mut accumulator, chunk))?;
        Ok(fold.finish(accumulator))
    }
}

/// One round over chunks with random access, on the calling thread.
fn in_turn<C: Chunks>(chunks: &C, take: &mut Take<'_>) -> Result<(), SourceError> {
    let mut buffer = ChunkBuffer::default();
    for number in 0..chunks.chunk_count() {
        match chunks.read_chunk(number, &mut buffer)? {
            Some(chunk) if take(chunk).is_continue() => {}
            _ => break,
        }
    }
    Ok(())
}

impl ChunkSource for History {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        in_turn(self, take)
    }

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        let op = |&position: &u64| {
            let place = usize::try_from(position).ok()?;
            Some((position, self.ops().get(place)?.clone()))
        };
        Ok(positions.iter().filter_map(op).collect())
    }
}

impl ChunkSource for TestFile {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        in_turn(self, take)
    }

    /// Reads only the chunks that contain these positions.
    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        let mut ops = BTreeMap::new();
        let mut buffer = ChunkBuffer::default();
        let mut left = positions.clone();
        while let Some(&position) = left.first() {
            let stretch = self.chunk_summaries(ChunkAddress::Position(position))?;
            let mut stretch = stretch.into_iter();
            let Some(summary) = stretch.find(|one| one.end_position() > position) else {
                break;
            };
            let range = summary.first_position..summary.end_position();
            if let Some(chunk) = self.read_chunk(summary.number, &mut buffer)? {
                for &position in left.range(range.clone()) {
                    let place = (position - range.start) as usize;
                    ops.insert(position, chunk.op(place));
                }
            }
            left = left.split_off(&range.end);
        }
        Ok(ops)
    }
}

impl ChunkSource for Salvaged {
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
        in_turn(self, take)
    }
}

#[cfg(test)]
mod tests;
