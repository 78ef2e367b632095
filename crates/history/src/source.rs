//! Chunk sources: histories that are read chunk by chunk, as often as needed.

use crate::chunk::Place;
use crate::fold::{Chunks, Fold};
use crate::store::{ChunkBuffer, Salvaged, TestFile};
use crate::{Chunk, History, Op, TransactionSink};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Why a source cannot be read. The type of the source's own error is kept: `downcast_ref` finds it.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Receives the chunks of one round, in order; breaks when it needs no more.
pub type Take<'a> = dyn FnMut(&Chunk) -> ControlFlow<()> + 'a;

/// A history that can be read from its beginning any number of times: a test file, a text, a history in memory.
///
/// This is all that a checker sees of where a history is. Chunks of one round follow one another without a gap or an overlap,
/// and each round yields the same ones.
pub trait ChunkSource: Send + Sync {
    /// Yields all chunks in order, or those up to the one at which `take` breaks.
    fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError>;

    /// Hands all transactions to `sink` without making operations of them, the same ones in the same order as the chunks have,
    /// each with an invocation and a completion at the next two positions; `None` when this source cannot.
    fn transactions(&self, _sink: &mut dyn TransactionSink) -> Option<Result<(), SourceError>> {
        None
    }

    /// The operations at these positions, as far as there are any. Costs a round where the source has no index.
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
    /// The answer of this fold after one round, in this thread.
    pub fn fold<F: Fold>(&self, fold: &F) -> Result<F::Output, SourceError> {
        let mut accumulator = fold.start();
        self.round(&mut |chunk| fold.reduce(&mut accumulator, chunk))?;
        Ok(fold.finish(accumulator))
    }
}

/// One round in this thread.
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

    /// Reads the chunks that hold these positions.
    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, SourceError> {
        let mut ops = BTreeMap::new();
        let mut buffer = ChunkBuffer::default();
        let mut left = positions.clone();
        while let Some(&position) = left.first() {
            let stretch = self.chunk_summaries(Place::Position(position))?;
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
mod tests {
    use super::*;
    use crate::{Process, Value};
    use seatrial_machine::Rng;

    fn history(length: u64) -> History {
        let ops = (0..length).map(|number| {
            Op::invoke(
                Process::Client(number % 7),
                "read",
                Value::Int(number as i64),
            )
        });
        History::from_unindexed(ops.collect())
    }

    /// A source without an index.
    struct Plain(History);

    impl ChunkSource for Plain {
        fn round(&self, take: &mut Take<'_>) -> Result<(), SourceError> {
            self.0.round(take)
        }
    }

    #[test]
    fn positions_are_recalled_by_a_round_too() {
        let mut rng = Rng::from_seed(3);
        let history = history(50_000);
        let plain = Plain(history);
        for _ in 0..20 {
            let positions: BTreeSet<u64> = (0..rng.below(30)).map(|_| rng.below(60_000)).collect();
            let by_round = plain.recall(&positions).unwrap();
            assert_eq!(by_round, plain.0.recall(&positions).unwrap());
        }
    }
}
