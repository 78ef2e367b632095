//! Seeded random numbers.

use std::time::Duration;

/// A seeded stream of random numbers: xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
/// generators", 2021), its state filled by splitmix64. Same seed, same stream, on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64: advances `state` and returns a well-mixed word.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Rng {
    /// The stream that `seed` names.
    pub fn from_seed(seed: u64) -> Rng {
        let mut state = seed;
        Rng {
            state: std::array::from_fn(|_| splitmix(&mut state)),
        }
    }

    /// A stream of its own for the part called `name`. Depends on this stream's present state and the name, and
    /// leaves this stream as it is: adding a part never changes what the others draw.
    #[must_use]
    pub fn fork(&self, name: &str) -> Rng {
        let mut seed = self.state[0] ^ self.state[3].rotate_left(17);
        for byte in name.bytes() {
            seed = splitmix(&mut seed) ^ u64::from(byte);
        }
        Rng::from_seed(splitmix(&mut seed))
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound`; 0 when `bound` is 0. (Lemire's multiply-shift; its bias below 2^-32 for the bounds
    /// used here does not matter to a schedule.)
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `0..length`, as an index. Panics when `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        assert!(length > 0, "an index into nothing");
        self.below(length as u64) as usize
    }

    /// Uniform in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of `items`. Panics when there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Puts `items` in a uniformly random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.index(end));
        }
    }

    /// Uniform between nothing and `limit`.
    pub fn duration_below(&mut self, limit: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Exponentially distributed with this mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        let factor = -(1.0 - self.unit()).ln();
        Duration::from_nanos((mean.as_nanos() as f64 * factor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_stream() {
        let (mut a, mut b) = (Rng::from_seed(7), Rng::from_seed(7));
        for _ in 0..1_000 {
            assert_eq!(a.word(), b.word());
        }
    }

    #[test]
    fn a_fork_leaves_its_parent_alone() {
        let mut parent = Rng::from_seed(7);
        let mut twin = parent.clone();
        let (mut clients, mut nemesis) = (parent.fork("clients"), parent.fork("nemesis"));
        assert_ne!(clients.word(), nemesis.word());
        assert_eq!(parent.word(), twin.word());
    }

    #[test]
    fn bounds_hold_and_every_value_comes() {
        let mut rng = Rng::from_seed(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[rng.index(7)] += 1;
        }
        assert!(
            seen.iter().all(|&count| (800..1_200).contains(&count)),
            "{seen:?}"
        );
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut rng = Rng::from_seed(2);
        let mean = Duration::from_millis(10);
        let total: Duration = (0..20_000).map(|_| rng.exponential(mean)).sum();
        let millis = total.as_secs_f64() * 1e3 / 20_000.0;
        assert!((9.7..10.3).contains(&millis), "{millis}");
    }
}
