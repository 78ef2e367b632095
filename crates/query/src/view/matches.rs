//! Finds the operations that pass the filters of a view.

use super::ViewError;
use super::base::{BaseStorage, Spot, ViewBase};
use super::cache::CachedValue;
use super::layers::Layers;
use super::mask::Mask;
use super::view_fold::fold_chunks;
use super::view_op::{Stand, ViewPart};
use seatrial_history::chunk::ChunkAddress;
use seatrial_history::{Chunk, Fold, Order};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The operations that pass the filters of a view: their number per chunk, and a mask per chunk. Shared by a view, its
/// clones, slices and maps.
///
/// Counting proceeds chunk by chunk, only as far as needed; chunks that the directory decides are not read. Finding an
/// operation then takes a binary search in the counts (8 bytes per chunk) and one chunk's mask, which is cached. The length
/// of a filtered view costs one pass over all undecided chunks.
#[derive(Debug)]
pub(super) struct Matches {
    base: Arc<ViewBase>,
    owner: u64,
    layers: Layers,
    /// Positions in the base.
    span: Range<u64>,
    first_chunk: OnceLock<u64>,
    /// For each counted chunk, the number of passing operations up to its end.
    sums: RwLock<Vec<u64>>,
    /// Held by the thread that extends the counts.
    counting: Mutex<()>,
    total: OnceLock<u64>,
}

impl Drop for Matches {
    fn drop(&mut self) {
        self.base.cache.forget(self.owner);
    }
}

/// Where an operation of a filtered view is.
pub(super) struct Hit {
    pub(super) spot: Spot,
    pub(super) place: usize,
}

/// The places of a chunk of this many operations whose positions are in the span.
pub(super) fn within(span: &Range<u64>, first_position: u64, length: usize) -> Mask {
    let place = |position: u64| {
        let place = position.saturating_sub(first_position);
        place.min(length as u64) as usize
    };
    Mask::of(length, place(span.start), place(span.end))
}

impl Matches {
    pub(super) fn new(base: &Arc<ViewBase>, layers: Layers, span: Range<u64>) -> Matches {
        Matches {
            base: base.clone(),
            owner: base.cache.owner(),
            layers,
            span,
            first_chunk: OnceLock::new(),
            sums: RwLock::default(),
            counting: Mutex::default(),
            total: OnceLock::new(),
        }
    }

    /// The chunk that the span begins in.
    fn first_chunk(&self) -> Result<u64, ViewError> {
        if let Some(&number) = self.first_chunk.get() {
            return Ok(number);
        }
        let spot = self.base.spot(ChunkAddress::Position(self.span.start))?;
        let number = spot.map_or(self.base.chunk_count(), |spot| spot.number);
        Ok(*self.first_chunk.get_or_init(|| number))
    }

    fn mask_of(&self, spot: &Spot, part: &ViewPart) -> Mask {
        let mut mask = within(&self.span, spot.first_position, part.stand().len());
        self.layers.retain(part.stand(), &mut mask);
        mask
    }

    /// Which operations of a chunk pass, kept in the cache.
    pub(super) fn mask(&self, spot: &Spot) -> Result<Arc<Mask>, ViewError> {
        let kept = self.base.cache.get((self.owner, spot.number), || {
            let part = self.base.part(spot)?;
            Ok::<_, ViewError>(CachedValue::Mask(Arc::new(
                self.mask_of(spot, &part).indexed(),
            )))
        })?;
        match kept {
            CachedValue::Mask(mask) => Ok(mask),
            CachedValue::Chunk(_) => Err(ViewError::Gone(spot.number)),
        }
    }

    /// The number of passing operations of a chunk, if its summary decides it.
    fn known_count(&self, spot: &Spot) -> Option<u64> {
        let end = spot.first_position + spot.operations;
        let is_whole = self.span.start <= spot.first_position && end <= self.span.end;
        let count = spot.summary.and_then(|summary| self.layers.count(&summary));
        count.filter(|&count| count == 0 || is_whole)
    }

    /// The number of passing operations of a chunk.
    fn count(&self, spot: &Spot) -> Result<u64, ViewError> {
        if let Some(count) = self.known_count(spot) {
            return Ok(count);
        }
        let part = self.base.passing_part(spot)?;
        Ok(self.mask_of(spot, &part).count() as u64)
    }

    /// Counts chunks until `is_enough` or the end.
    fn count_until(&self, is_enough: impl Fn(&[u64]) -> bool) -> Result<(), ViewError> {
        let sums = || self.sums.read().unwrap_or_else(PoisonError::into_inner);
        if is_enough(&sums()) {
            return Ok(());
        }
        let counting = self.counting.lock();
        let _counting = counting.unwrap_or_else(PoisonError::into_inner);
        loop {
            let (number, sum) = {
                let sums = sums();
                if is_enough(&sums) {
                    return Ok(());
                }
                let sum = sums.last().copied().unwrap_or(0);
                (self.first_chunk()? + sums.len() as u64, sum)
            };
            let spot = self.base.spot(ChunkAddress::Chunk(number))?;
            let Some(spot) = spot.filter(|spot| spot.first_position < self.span.end) else {
                return Ok(());
            };
            let sum = sum + self.count(&spot)?;
            let mut sums = self.sums.write().unwrap_or_else(PoisonError::into_inner);
            sums.push(sum);
        }
    }

    /// The number of passing operations.
    pub(super) fn total(&self) -> Result<u64, ViewError> {
        if let Some(&total) = self.total.get() {
            return Ok(total);
        }
        let counting = self.counting.lock();
        let _counting = counting.unwrap_or_else(PoisonError::into_inner);
        let known = {
            let sums = self.sums.read().unwrap_or_else(PoisonError::into_inner);
            sums.len() as u64
        };
        // Sum up the remaining chunks that the directory decides, and collect the others.
        let (mut counts, mut numbers) = (Vec::new(), Vec::new());
        let mut number = self.first_chunk()? + known;
        while let Some(spot) = self.base.spot(ChunkAddress::Chunk(number))? {
            if spot.first_position >= self.span.end {
                break;
            }
            let count = self.known_count(&spot);
            if count.is_none() {
                numbers.push(number);
            }
            counts.push(count);
            number += 1;
        }
        let mut counted = match self.base.kind() {
            BaseStorage::Chunks(_) => fold_chunks(&self.base, numbers, &CountChunks(self))?,
            BaseStorage::Rows(_) => self.count_rows(&numbers)?,
        }
        .into_iter();
        let mut sums = self.sums.write().unwrap_or_else(PoisonError::into_inner);
        let mut sum = sums.last().copied().unwrap_or(0);
        for count in counts {
            sum += count.or_else(|| counted.next()).unwrap_or(0);
            sums.push(sum);
        }
        Ok(*self.total.get_or_init(|| sum))
    }

    fn count_rows(&self, numbers: &[u64]) -> Result<Vec<u64>, ViewError> {
        let counts = numbers.iter().map(|&number| {
            let spot = self.base.spot(ChunkAddress::Chunk(number))?;
            let count = spot.map(|spot| self.count(&spot)).transpose()?;
            Ok(count.unwrap_or(0))
        });
        counts.collect()
    }

    /// The operation with this number of passing ones before it.
    pub(super) fn select(&self, rank: u64) -> Result<Option<Hit>, ViewError> {
        self.count_until(|sums| sums.last().is_some_and(|&sum| sum > rank))?;
        let (number, before) = {
            let sums = self.sums.read().unwrap_or_else(PoisonError::into_inner);
            let at = sums.partition_point(|&sum| sum <= rank);
            if at == sums.len() {
                return Ok(None);
            }
            (at, if at == 0 { 0 } else { sums[at - 1] })
        };
        let number = self.first_chunk()? + number as u64;
        let Some(spot) = self.base.spot(ChunkAddress::Chunk(number))? else {
            return Err(ViewError::Gone(number));
        };
        let place = self.mask(&spot)?.select((rank - before) as usize);
        Ok(place.map(|place| Hit { spot, place }))
    }

    /// The number of passing operations before this position of the base, which is in the span.
    pub(super) fn rank(&self, spot: &Spot, position: u64) -> Result<u64, ViewError> {
        let before = self.before(spot.number)?;
        let place = position - spot.first_position;
        Ok(before + self.mask(spot)?.rank(place as usize) as u64)
    }

    /// The number of passing operations before this chunk.
    fn before(&self, number: u64) -> Result<u64, ViewError> {
        let at = number.saturating_sub(self.first_chunk()?) as usize;
        if at == 0 {
            return Ok(0);
        }
        self.count_until(|sums| sums.len() >= at)?;
        let sums = self.sums.read().unwrap_or_else(PoisonError::into_inner);
        Ok(sums.get(at - 1).or(sums.last()).copied().unwrap_or(0))
    }
}

/// Counts the passing operations of each chunk.
struct CountChunks<'a>(&'a Matches);

impl Fold for CountChunks<'_> {
    type Accumulator = Vec<u64>;
    type Output = Vec<u64>;

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> Vec<u64> {
        Vec::new()
    }

    fn reduce(&self, counts: &mut Vec<u64>, chunk: &Chunk) -> ControlFlow<()> {
        let mut mask = within(&self.0.span, chunk.first_position(), chunk.len());
        self.0.layers.retain(Stand::Columns(chunk), &mut mask);
        counts.push(mask.count() as u64);
        ControlFlow::Continue(())
    }

    fn combine(&self, counts: &mut Vec<u64>, later: Vec<u64>) -> ControlFlow<()> {
        counts.extend(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, counts: Vec<u64>) -> Vec<u64> {
        counts
    }
}
