//! Which keys the clients use.

use super::options::Options;
use super::store::Store;
use seatrial_generator::Places;
use seatrial_machine::Rng;
use std::ops::RangeInclusive;

/// Draws after which the first place that will do is taken.
const MISSES_MAX: usize = 64;

/// A place with the key that is there now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    /// Where the store has it.
    pub(super) slot: u32,
    /// Writes handed out so far.
    written: u32,
    /// Writes after which it gives its place to another.
    limit: u32,
}

/// The keys in use, each at a place that says how often it is taken.
#[derive(Debug)]
pub(super) struct LiveKeys {
    live: Vec<Live>,
    places: Places,
    writes: RangeInclusive<u32>,
}

impl LiveKeys {
    pub(super) fn new(options: &Options, store: &mut Store, rng: &mut Rng) -> LiveKeys {
        let mut keys = LiveKeys {
            live: Vec::new(),
            places: Places::new(options.keys as usize, options.distribution),
            writes: options.writes_per_key.clone(),
        };
        for _ in 0..options.keys {
            let key = keys.fresh(store.fresh(), rng);
            keys.live.push(key);
        }
        keys
    }

    /// A key to read, or to write; with what, each value once per key.
    pub(super) fn draw(
        &mut self,
        store: &mut Store,
        is_write: bool,
        rng: &mut Rng,
    ) -> (Live, Option<i64>) {
        let place = self.places.draw(rng);
        self.take(store, place, is_write, rng)
    }

    /// A place that is not among these, of which there are fewer than places.
    pub(super) fn other(&self, taken: &[usize], rng: &mut Rng) -> usize {
        let drawn = (0..MISSES_MAX).map(|_| self.places.draw(rng));
        let found = { drawn }.find(|place| !taken.contains(place));
        // Some places are hardly ever drawn.
        let first = || (0..self.places.count()).find(|place| !taken.contains(place));
        found.or_else(first).unwrap_or_default()
    }

    /// The key at a place, to read or to write; with what.
    pub(super) fn take(
        &mut self,
        store: &mut Store,
        place: usize,
        is_write: bool,
        rng: &mut Rng,
    ) -> (Live, Option<i64>) {
        if !is_write {
            return (self.live[place], None);
        }
        if self.live[place].written >= self.live[place].limit {
            store.retire(self.live[place].slot);
            self.live[place] = self.fresh(store.fresh(), rng);
        }
        let live = &mut self.live[place];
        live.written += 1;
        (*live, Some(i64::from(live.written)))
    }

    /// A key at the beginning of its time.
    fn fresh(&self, slot: u32, rng: &mut Rng) -> Live {
        let (low, high) = (*self.writes.start(), *self.writes.end());
        Live {
            slot,
            written: 0,
            limit: low + rng.below(u64::from(high - low) + 1) as u32,
        }
    }
}
