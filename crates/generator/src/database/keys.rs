//! Which keys the clients use.

use super::options::{Distribution, Options};
use super::store::Store;
use seatrial_machine::Rng;
use std::ops::RangeInclusive;

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
    places: Vec<Live>,
    distribution: Distribution,
    writes: RangeInclusive<u32>,
    /// Sums of the weights up to each place, for [`Distribution::Zipf`]. In integers: the same on every machine.
    sums: Vec<u64>,
}

/// The weight of the first place.
const WEIGHT: u64 = 1 << 32;

impl LiveKeys {
    pub(super) fn new(options: &Options, store: &mut Store, rng: &mut Rng) -> LiveKeys {
        let mut sum = 0;
        let weights = (1..=u64::from(options.keys)).map(|place| {
            sum += WEIGHT / place;
            sum
        });
        let mut keys = LiveKeys {
            places: Vec::new(),
            distribution: options.distribution,
            writes: options.writes_per_key.clone(),
            sums: weights.collect(),
        };
        for _ in 0..options.keys {
            let key = keys.fresh(store.fresh(), rng);
            keys.places.push(key);
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
        let place = self.choose(rng);
        if !is_write {
            return (self.places[place], None);
        }
        if self.places[place].written >= self.places[place].limit {
            store.retire(self.places[place].slot);
            self.places[place] = self.fresh(store.fresh(), rng);
        }
        let live = &mut self.places[place];
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

    /// A place.
    fn choose(&self, rng: &mut Rng) -> usize {
        let count = self.places.len();
        match self.distribution {
            Distribution::Uniform => rng.index(count),
            Distribution::Zipf => {
                let point = rng.below(self.sums[count - 1]);
                self.sums.partition_point(|&sum| sum <= point)
            }
            Distribution::Exponential => (rng.word().leading_zeros() as usize).min(count - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Workload;
    use super::*;

    #[test]
    fn places_are_taken_as_often_as_the_distribution_says() {
        for (distribution, expected) in [
            (Distribution::Uniform, [2_500, 2_500, 2_500, 2_500]),
            (Distribution::Zipf, [4_800, 2_400, 1_600, 1_200]),
            (Distribution::Exponential, [5_000, 2_500, 1_250, 1_250]),
        ] {
            let mut options = Options::new(Workload::ListAppend, 1);
            options.keys = 4;
            options.distribution = distribution;
            let mut rng = Rng::from_seed(1);
            let keys = LiveKeys::new(&options, &mut Store::default(), &mut rng);
            let mut limits = keys.places.iter().map(|key| key.limit);
            assert!(limits.all(|limit| (128..=256).contains(&limit)));
            let mut counts = [0_i32; 4];
            for _ in 0..10_000 {
                counts[keys.choose(&mut rng)] += 1;
            }
            let near = |(count, expected): (&i32, &i32)| (count - expected).abs() < 200;
            assert!(
                counts.iter().zip(&expected).all(near),
                "{distribution:?} {counts:?}"
            );
        }
    }
}
