//! Reading operations again.

use seatrial_history::chunk::Place;
use seatrial_history::{Chunk, ChunkBuffer, Fold, History, Op, OpenError, TestFile};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::ControlFlow;

/// Whoever can read operations again that a judge has seen.
pub trait Recall {
    /// Why he cannot.
    type Error;

    /// The operations at these positions, as far as there are any.
    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, Self::Error>;
}

/// Reads the chunks that they stand in.
impl Recall for TestFile {
    type Error = OpenError;

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, OpenError> {
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

impl Recall for History {
    type Error = Infallible;

    fn recall(&self, positions: &BTreeSet<u64>) -> Result<BTreeMap<u64, Op>, Infallible> {
        let op = |&position: &u64| Some((position, self.ops().get(position as usize)?.clone()));
        Ok(positions.iter().filter_map(op).collect())
    }
}

/// Reads operations by their positions.
pub(crate) struct Fetch {
    pub(crate) positions: BTreeSet<u64>,
}

impl Fold for Fetch {
    type Accumulator = BTreeMap<u64, Op>;
    type Output = BTreeMap<u64, Op>;

    fn name(&self) -> String {
        "what was found".into()
    }

    fn start(&self) -> BTreeMap<u64, Op> {
        BTreeMap::new()
    }

    fn reduce(&self, ops: &mut BTreeMap<u64, Op>, chunk: &Chunk) -> ControlFlow<()> {
        let first = chunk.first_position();
        for &position in self.positions.range(first..first + chunk.len() as u64) {
            ops.insert(position, chunk.op((position - first) as usize));
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, ops: &mut BTreeMap<u64, Op>, later: BTreeMap<u64, Op>) -> ControlFlow<()> {
        ops.extend(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, ops: BTreeMap<u64, Op>) -> BTreeMap<u64, Op> {
        ops
    }
}
