//! Keys that come and go.

use crate::database::Distribution;
use seatrial_history::{Key, Value};
use seatrial_machine::Rng;

/// How keys are used.
#[derive(Clone, Copy, Debug)]
pub struct KeyOptions {
    /// Keys in use at any time, at least one.
    pub count: usize,
    /// How often which of them is used.
    pub distribution: Distribution,
    /// Writes after which a key retires and a fresh one takes its place.
    pub writes_per_key: u32,
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

/// The keys in use. Keys are integers from 0 on, never used again once retired; the last operation on a key that retires
/// is a read of it.
#[derive(Debug)]
pub struct RotatingKeys {
    options: KeyOptions,
    /// Key, and writes handed out so far.
    places: Vec<(i64, u32)>,
    fresh: i64,
    /// Sums of the weights up to each place, for [`Distribution::Zipf`]; in integers, the same on every machine.
    sums: Vec<u64>,
}

/// The weight of the first place.
const WEIGHT: u64 = 1 << 32;

impl RotatingKeys {
    /// Fresh keys.
    pub fn new(options: KeyOptions) -> RotatingKeys {
        let count = options.count.max(1) as i64;
        let mut sum = 0;
        let weights = (1..=count.cast_unsigned()).map(|place| {
            sum += WEIGHT / place;
            sum
        });
        RotatingKeys {
            sums: weights.collect(),
            places: (0..count).map(|key| (key, 0)).collect(),
            fresh: count,
            options,
        }
    }

    fn place(&self, rng: &mut Rng) -> usize {
        let count = self.places.len();
        match self.options.distribution {
            Distribution::Uniform => rng.index(count),
            Distribution::Zipf => {
                let point = rng.below(self.sums[count - 1]);
                self.sums.partition_point(|&sum| sum <= point)
            }
            Distribution::Exponential => (rng.word().leading_zeros() as usize).min(count - 1),
        }
    }

    /// A key to read.
    pub fn read(&mut self, rng: &mut Rng) -> i64 {
        self.places[self.place(rng)].0
    }

    /// A key to write to and the number of the write, from 1 on; `Err` with a key that retires and wants a last read.
    pub fn write(&mut self, rng: &mut Rng) -> Result<(i64, u32), i64> {
        let place = self.place(rng);
        let (key, written) = self.places[place];
        if written >= self.options.writes_per_key {
            self.places[place] = (self.fresh, 0);
            self.fresh += 1;
            return Err(key);
        }
        self.places[place].1 += 1;
        Ok((key, written + 1))
    }
}

/// A value of an independent key.
pub(super) fn keyed(key: i64, value: Value) -> Value {
    Value::Keyed(Key::Int(key), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_used_as_the_distribution_says_and_retire_with_a_read() {
        for (distribution, expected) in [
            (Distribution::Uniform, [2_500, 2_500, 2_500, 2_500]),
            (Distribution::Zipf, [4_800, 2_400, 1_600, 1_200]),
            (Distribution::Exponential, [5_000, 2_500, 1_250, 1_250]),
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
            let mut written = std::collections::BTreeMap::new();
            for _ in 0..5_000 {
                match keys.write(&mut rng) {
                    Ok((key, number)) => {
                        assert_eq!(written.insert(key, number).unwrap_or(0) + 1, number);
                    }
                    Err(key) => assert_eq!(written[&key], 100),
                }
            }
            assert!(written.len() > 40, "{distribution:?} {}", written.len());
        }
    }
}
