//! The keys of a workload: a fixed number in use, each replaced by a fresh one after its maximum number of writes.

use crate::KeyDistribution;
use crate::key_distribution::Places;
use seatrial_history::{Key, Value};
use seatrial_machine::Rng;

/// Number and distribution of keys, and their retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOptions {
    /// Number of keys in use at any time, at least one.
    pub count: usize,
    /// Probability of each of them.
    pub distribution: KeyDistribution,
    /// Number of writes after which a key retires and a fresh one replaces it, at least one.
    pub writes_per_key: u32,
}

impl KeyOptions {
    /// Maximum number of keys in use at a time.
    pub const COUNT_MAX: usize = Places::COUNT_MAX;
}

/// Five keys, exponential, 128 writes each.
impl Default for KeyOptions {
    fn default() -> KeyOptions {
        KeyOptions {
            count: 5,
            distribution: KeyDistribution::Exponential,
            writes_per_key: 128,
        }
    }
}

/// The keys in use. Keys are integers from 0 and are not reused after retirement. A key keeps its place, and with it its
/// probability, until it retires; drawing costs O(1).
#[derive(Debug)]
pub struct RotatingKeys {
    places: Places,
    /// By place: the key, and the number of writes drawn for it so far.
    keys: Vec<(i64, u32)>,
    writes_per_key: u32,
    fresh: i64,
}

impl RotatingKeys {
    /// The first keys, from 0.
    pub fn new(options: KeyOptions) -> RotatingKeys {
        let places = Places::new(options.count, options.distribution);
        let fresh = places.count() as i64;
        RotatingKeys {
            places,
            keys: (0..fresh).map(|key| (key, 0)).collect(),
            writes_per_key: options.writes_per_key.max(1),
            fresh,
        }
    }

    /// Number of keys used so far.
    pub const fn used(&self) -> i64 {
        self.fresh
    }

    /// A key to read.
    #[inline]
    pub fn read(&self, rng: &mut Rng) -> i64 {
        self.keys[self.places.draw(rng)].0
    }

    /// A key to write, and the number of the write, from 1. A key with its maximum number of writes is replaced first.
    #[inline]
    pub fn write(&mut self, rng: &mut Rng) -> (i64, u32) {
        let place = self.places.draw(rng);
        if self.keys[place].1 >= self.writes_per_key {
            self.replace(place);
        }
        let (key, written) = &mut self.keys[place];
        *written += 1;
        (*key, *written)
    }

    /// Like [`RotatingKeys::write`], but returns `Err` with the key when one retires, so that the caller can read it once
    /// more.
    pub fn write_or_retire(&mut self, rng: &mut Rng) -> Result<(i64, u32), i64> {
        let place = self.places.draw(rng);
        let (key, written) = &mut self.keys[place];
        if *written >= self.writes_per_key {
            let retired = *key;
            self.replace(place);
            return Err(retired);
        }
        *written += 1;
        Ok((*key, *written))
    }

    /// Is this key in use?
    pub fn has(&self, key: i64) -> bool {
        self.keys.iter().any(|(known, _)| *known == key)
    }

    /// Replaces this key by a fresh one, if it is in use.
    pub fn retire(&mut self, key: i64) {
        if let Some(place) = self.keys.iter().position(|(known, _)| *known == key) {
            self.replace(place);
        }
    }

    fn replace(&mut self, place: usize) {
        debug_assert!(!self.has(self.fresh), "a key is used twice");
        self.keys[place] = (self.fresh, 0);
        self.fresh += 1;
    }
}

/// The value of an operation on an independent key.
pub(super) fn keyed(key: i64, value: Value) -> Value {
    Value::Keyed(Key::Int(key), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keys_follow_the_distribution_and_retire() {
        let (zipf, halves) = (KeyDistribution::ALL[1], KeyDistribution::Exponential);
        for (distribution, expected) in [
            (KeyDistribution::Uniform, [2_500, 2_500, 2_500, 2_500]),
            (zipf, [4_800, 2_400, 1_600, 1_200]),
            (halves, [5_333, 2_667, 1_333, 667]),
        ] {
            let options = KeyOptions {
                count: 4,
                distribution,
                writes_per_key: 100,
            };
            let mut rng = Rng::from_seed(3);
            let mut keys = RotatingKeys::new(options);
            let mut counts = [0_i32; 4];
            for _ in 0..10_000 {
                counts[keys.read(&mut rng) as usize] += 1;
            }
            let near = |(count, expected): (&i32, &i32)| (count - expected).abs() < 200;
            assert!(counts.iter().zip(&expected).all(near), "{counts:?}");
            let mut written = BTreeMap::new();
            for _ in 0..5_000 {
                match keys.write_or_retire(&mut rng) {
                    Ok((key, number)) => {
                        assert_eq!(written.insert(key, number).unwrap_or(0) + 1, number);
                    }
                    Err(key) => assert_eq!(written[&key], 100),
                }
            }
            for _ in 0..5_000 {
                let (key, number) = keys.write(&mut rng);
                assert_eq!(written.insert(key, number).unwrap_or(0) + 1, number);
                assert!(number <= 100);
            }
            assert!(written.len() > 90, "{distribution} {}", written.len());
            let unfinished = written.values().filter(|&&count| count < 100).count();
            assert!(unfinished <= 4, "every retired key has all its writes");
            assert!(keys.used() >= written.len() as i64);
        }
    }
}
