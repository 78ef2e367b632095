//! The keys in use, with their probabilities and retirement.

use super::database_options::DatabaseOptions;
use super::version_store::VersionStore;
use seatrial_generator::Places;
use seatrial_machine::Rng;
use std::ops::RangeInclusive;

/// Draws of a place that is not taken; then the first such place is used.
const MISSES_MAX: usize = 64;

/// The key at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveKey {
    /// Its slot in the store.
    pub(super) slot: u32,
    /// Number of writes drawn so far.
    written: u32,
    /// Number of writes after which it retires.
    limit: u32,
}

/// The keys in use. Each has a place, which determines its probability.
#[derive(Debug)]
pub(super) struct LiveKeys {
    live: Vec<LiveKey>,
    places: Places,
    writes: RangeInclusive<u32>,
}

impl LiveKeys {
    pub(super) fn new(
        options: &DatabaseOptions,
        store: &mut VersionStore,
        rng: &mut Rng,
    ) -> LiveKeys {
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

    /// Draws a key to read, or a key to write with the value, which is unique for the key.
    pub(super) fn draw(
        &mut self,
        store: &mut VersionStore,
        is_write: bool,
        rng: &mut Rng,
    ) -> (LiveKey, Option<i64>) {
        let place = self.places.draw(rng);
        self.take(store, place, is_write, rng)
    }

    /// Draws a place that is not in `taken`, which must be shorter than the number of places.
    pub(super) fn other(&self, taken: &[usize], rng: &mut Rng) -> usize {
        let drawn = (0..MISSES_MAX).map(|_| self.places.draw(rng));
        let found = { drawn }.find(|place| !taken.contains(place));
        // The remaining places may all be very unlikely.
        debug_assert!(taken.len() < self.places.count());
        let first = || (0..self.places.count()).find(|place| !taken.contains(place));
        found.or_else(first).unwrap_or_default()
    }

    /// The key at a place, to read, or to write with the value. A key with all its writes is replaced first.
    pub(super) fn take(
        &mut self,
        store: &mut VersionStore,
        place: usize,
        is_write: bool,
        rng: &mut Rng,
    ) -> (LiveKey, Option<i64>) {
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

    /// A fresh key, with a random limit of writes.
    fn fresh(&self, slot: u32, rng: &mut Rng) -> LiveKey {
        let (low, high) = (*self.writes.start(), *self.writes.end());
        LiveKey {
            slot,
            written: 0,
            limit: low + rng.below(u64::from(high - low) + 1) as u32,
        }
    }
}
