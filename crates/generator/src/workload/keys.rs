//! Keys that come and go.

use crate::Distribution;
use crate::distribution::Places;
use seatrial_history::{Key, Value};
use seatrial_machine::Rng;

/// How keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOptions {
    /// Keys in use at any time, at least one.
    pub count: usize,
    /// How often which of them is used.
    pub distribution: Distribution,
    /// Writes after which a key retires and a fresh one takes its place, at least one.
    pub writes_per_key: u32,
}

impl KeyOptions {
    /// The most keys that can be in use at a time.
    pub const COUNT_MAX: usize = Places::COUNT_MAX;
}

/// Five keys, exponential, 128 writes each.
impl Default for KeyOptions {
    fn default() -> KeyOptions {
        KeyOptions {
            count: 5,
            distribution: Distribution::Exponential,
            writes_per_key: 128,
        }
    }
}

/// The keys in use. Keys are integers from 0 on, never used again once retired.
#[derive(Debug)]
pub struct RotatingKeys {
    places: Places,
    /// Key, and writes handed out so far, by place.
    keys: Vec<(i64, u32)>,
    writes_per_key: u32,
    fresh: i64,
}

impl RotatingKeys {
    /// Fresh keys.
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

    /// How many keys there have been.
    pub const fn used(&self) -> i64 {
        self.fresh
    }

    /// A key to read.
    #[inline]
    pub fn read(&self, rng: &mut Rng) -> i64 {
        self.keys[self.places.draw(rng)].0
    }

    /// A key to write to and the number of the write, from 1 on; a key that has had enough gives its place to a fresh one.
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

    /// The same, but `Err` with a key that retires and wants a last read.
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

    /// Puts a fresh key in the place of this one, if it is in use.
    pub fn retire(&mut self, key: i64) {
        if let Some(place) = self.keys.iter().position(|(known, _)| *known == key) {
            self.replace(place);
        }
    }

    fn replace(&mut self, place: usize) {
        self.keys[place] = (self.fresh, 0);
        self.fresh += 1;
    }
}

/// A value of an independent key.
pub(super) fn keyed(key: i64, value: Value) -> Value {
    Value::Keyed(Key::Int(key), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keys_are_used_as_the_distribution_says_and_retire() {
        let (zipf, halves) = (Distribution::ALL[1], Distribution::Exponential);
        for (distribution, expected) in [
            (Distribution::Uniform, [2_500, 2_500, 2_500, 2_500]),
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
            assert!(unfinished <= 4, "every retired key was written to its end");
            assert!(keys.used() >= written.len() as i64);
        }
    }
}
