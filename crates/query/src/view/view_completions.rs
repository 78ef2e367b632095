//! Finds the completions of invocations.

use super::ViewError;
use super::base::{Spot, ViewBase};
use super::view_fold::fold_chunks;
use super::view_op::ViewPart;
use seatrial_history::chunk::ChunkAddress;
use seatrial_history::{Chunk, Fold, Order};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Chunks after that of the invocation that are searched before the index is built.
const LOOK_AHEAD_CHUNKS: u64 = 4;
/// Positions of one stretch of the index.
const STRETCH_LENGTH: u64 = 1 << 16;
/// Distances compared at a time.
const BLOCK: usize = 64;

/// The pairs of a stretch of invocations whose completion is in another chunk: place in the stretch, and distance; in
/// the order of places once complete.
#[derive(Debug, Default)]
struct Stretch {
    places: Vec<u16>,
    distances: Vec<u32>,
}

/// Finds the completion of an invocation; the way back is in the pair column.
///
/// Most completions follow soon: a scan of the pair columns of the invocation's chunk and of a few after it finds them. The
/// first invocation that this does not find, or that never completes, costs one pass over the history, which indexes all
/// pairs that cross chunks, 6 bytes each: at most 3 bytes per operation, usually almost nothing. Shared by all views of a
/// history.
#[derive(Debug, Default)]
pub(super) struct Completions {
    index: OnceLock<Index>,
    /// Held by the thread that builds the index.
    building: Mutex<()>,
}

/// All pairs that reach from one chunk into another.
#[derive(Debug, Default)]
struct Index {
    /// By the invocation's position divided by their length.
    stretches: BTreeMap<u64, Stretch>,
    /// Pairs whose distance does not fit: by the invocation's position that of the completion.
    far: BTreeMap<u64, u64>,
}

impl ViewBase {
    /// The position of the completion of the invocation at a place of a chunk, or of the invocation of the completion
    /// there.
    pub(super) fn pair(
        &self,
        spot: &Spot,
        part: &ViewPart,
        place: usize,
    ) -> Result<Option<u64>, ViewError> {
        let position = spot.first_position + place as u64;
        let chunk = match part {
            ViewPart::Columns(chunk) => chunk,
            ViewPart::Rows { history, .. } => {
                let pair = history.pair(position as usize);
                return Ok(pair.map(|other| other as u64));
            }
        };
        if let Some(invocation) = chunk.invocation(place) {
            return Ok(Some(invocation));
        }
        if let Some(completion) = find(chunk, place + 1, position) {
            return Ok(Some(completion));
        }
        self.completion_elsewhere(spot, position)
    }

    fn completion_elsewhere(&self, spot: &Spot, position: u64) -> Result<Option<u64>, ViewError> {
        if let Some(index) = self.completions.index.get() {
            return Ok(index.find(position));
        }
        for number in spot.number + 1..=spot.number + LOOK_AHEAD_CHUNKS {
            let Some(next) = self.spot(ChunkAddress::Chunk(number))? else {
                return Ok(None);
            };
            if let ViewPart::Columns(chunk) = self.part(&next)?
                && let Some(completion) = find(&chunk, 0, position)
            {
                return Ok(Some(completion));
            }
        }
        let building = self.completions.building.lock();
        let _building = building.unwrap_or_else(PoisonError::into_inner);
        let index = if let Some(index) = self.completions.index.get() {
            index
        } else {
            let index = self.index_completions()?;
            self.completions.index.get_or_init(|| index)
        };
        Ok(index.find(position))
    }

    /// Goes through all chunks once.
    fn index_completions(&self) -> Result<Index, ViewError> {
        fold_chunks(self, (0..self.chunk_count()).collect(), &Indexing)
    }
}

/// Collects the pairs that cross chunks.
struct Indexing;

impl Fold for Indexing {
    type Accumulator = Index;
    type Output = Index;

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> Index {
        Index::default()
    }

    fn reduce(&self, index: &mut Index, chunk: &Chunk) -> ControlFlow<()> {
        index.chunk(chunk);
        ControlFlow::Continue(())
    }

    fn combine(&self, index: &mut Index, later: Index) -> ControlFlow<()> {
        for (number, further) in later.stretches {
            let stretch = index.stretches.entry(number).or_default();
            stretch.places.extend(further.places);
            stretch.distances.extend(further.distances);
        }
        for (invocation, completion) in later.far {
            index.far.entry(invocation).or_insert(completion);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, mut index: Index) -> Index {
        index.settle();
        index
    }
}

/// The completion, at or after place `from` of this chunk, of the invocation at `position`.
fn find(chunk: &Chunk, from: usize, position: u64) -> Option<u64> {
    let first = chunk.first_position();
    let mut place = from;
    for block in chunk.pairs()[from.min(chunk.len())..].chunks(BLOCK) {
        let wanted = (first + place as u64).checked_sub(position)?.cast_signed();
        let mut is_there = false;
        for (offset, &distance) in block.iter().enumerate() {
            is_there |= distance == wanted + offset as i64;
        }
        if is_there {
            let mut distances = block.iter().zip(wanted..);
            let offset = distances.position(|(&distance, wanted)| distance == wanted)?;
            // A distance of 0 means no invocation.
            return Some(first + (place + offset) as u64).filter(|&found| found > position);
        }
        place += block.len();
    }
    None
}

impl Index {
    /// Collects the completions in this chunk whose invocation is in another one.
    fn chunk(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        for (place, &distance) in chunk.pairs().iter().enumerate() {
            if distance <= place as i64 {
                continue;
            }
            let completion = first + place as u64;
            let invocation = completion.saturating_sub(distance.cast_unsigned());
            let Ok(distance) = u32::try_from(distance) else {
                self.far.entry(invocation).or_insert(completion);
                continue;
            };
            let stretch = self.stretches.entry(invocation / STRETCH_LENGTH);
            let stretch = stretch.or_default();
            stretch.places.push((invocation % STRETCH_LENGTH) as u16);
            stretch.distances.push(distance);
        }
    }

    /// Sorts the stretches.
    fn settle(&mut self) {
        for stretch in self.stretches.values_mut() {
            let pairs = stretch
                .places
                .iter()
                .copied()
                .zip(stretch.distances.iter().copied());
            let mut pairs: Vec<(u16, u32)> = pairs.collect();
            pairs.sort_unstable();
            stretch.places = pairs.iter().map(|&(place, _)| place).collect();
            stretch.distances = pairs.iter().map(|&(_, distance)| distance).collect();
        }
    }

    fn find(&self, position: u64) -> Option<u64> {
        let near = self
            .stretches
            .get(&(position / STRETCH_LENGTH))
            .and_then(|stretch| {
                let place = (position % STRETCH_LENGTH) as u16;
                let at = stretch.places.partition_point(|&other| other < place);
                let is_there = stretch.places.get(at) == Some(&place);
                is_there.then(|| position + u64::from(stretch.distances[at]))
            });
        near.or_else(|| self.far.get(&position).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::chunk::Encoder;
    use seatrial_history::{Op, Process, Value};

    /// A chunk of operations with these distances to their invocations.
    fn chunk(first_position: u64, distances: &[u64]) -> Chunk {
        let mut encoder = Encoder::default();
        for (index, &distance) in (first_position..).zip(distances) {
            let op = Op::invoke(Process::Client(1), "read", Value::Nil);
            encoder.push(&Op { index, ..op }, distance);
        }
        let mut bytes = Vec::new();
        encoder.write(first_position, &mut bytes);
        Chunk::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn pairs_of_any_distance_and_position_are_found() {
        const FAR: u64 = 1 << 33;
        let chunks = [
            chunk(FAR + 10, &[FAR + 3, 0, 1, 0]),
            chunk(FAR + 14, &[u64::from(u32::MAX), 6, 2]),
            chunk(FAR + 70_000, &[69_986, FAR + 70_001, 70_002 - 13]),
        ];
        let pairs = [
            (7, FAR + 10),
            (FAR + 14 - u64::from(u32::MAX), FAR + 14),
            (FAR + 9, FAR + 15),
            (FAR + 14, FAR + 70_000),
            (0, FAR + 70_001),
            (FAR + 13, FAR + 70_002),
        ];
        let whole = Indexing;
        let mut index = whole.start();
        for chunk in &chunks {
            let mut part = whole.start();
            let _ = whole.reduce(&mut part, chunk);
            let _ = whole.combine(&mut index, part);
        }
        let index = whole.finish(index);
        for (invocation, completion) in pairs {
            assert_eq!(index.find(invocation), Some(completion), "{invocation}");
        }
        // Pairs within a chunk are found there.
        assert_eq!(index.find(FAR + 11), None);
        assert_eq!(find(&chunks[0], 2, FAR + 11), Some(FAR + 12));
        assert_eq!(find(&chunks[0], 0, FAR + 13), None);
        assert_eq!(find(&chunks[1], 1, FAR + 14), Some(FAR + 16));
    }

    #[test]
    fn completions_are_found_in_any_block() {
        let mut distances = vec![0; 500];
        distances[200] = 199;
        distances[128] = 100;
        distances[499] = 300;
        let chunk = chunk(1 << 40, &distances);
        for (from, to) in [(1, 200), (28, 128), (199, 499)] {
            let found = find(&chunk, from + 1, (1 << 40) + from as u64);
            assert_eq!(found, Some((1 << 40) + to));
        }
        assert_eq!(find(&chunk, 3, (1 << 40) + 2), None);
    }
}
