//! Probability distributions of keys: uniform, zipf, exponential; drawn in constant time.

use seatrial_machine::Rng;
use std::fmt;

/// The probability distribution of the keys in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDistribution {
    /// All keys are equally likely.
    Uniform,
    /// The n-th key has the weight 1/n^s, where s is the skew.
    Zipf(Skew),
    /// Each key is half as likely as the one before, so that all rates of contention occur (Elle's, with base 2).
    Exponential,
}

/// The exponent of a zipf distribution, in hundredths, from 0.01 to 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew(u16);

impl Skew {
    /// The exponent 1: Zipf's own.
    pub const ONE: Skew = Skew(100);

    const HUNDREDTHS_MAX: u16 = 1_000;

    /// The skew of this number of hundredths; `None` when it is out of bounds.
    pub fn from_hundredths(hundredths: u16) -> Option<Skew> {
        (1..=Skew::HUNDREDTHS_MAX)
            .contains(&hundredths)
            .then_some(Skew(hundredths))
    }

    fn by_name(text: &str) -> Option<Skew> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !(1..=2).contains(&part.len()) || !digits(whole) || !digits(part) {
            return None;
        }
        let tens = if part.len() == 1 { 10 } else { 1 };
        let hundredths = whole.parse::<u16>().ok()?.checked_mul(100)?;
        Skew::from_hundredths(hundredths.checked_add(part.parse::<u16>().ok()? * tens)?)
    }
}

impl KeyDistribution {
    /// All distributions; zipf with the skew 1.
    pub const ALL: [KeyDistribution; 3] = [
        KeyDistribution::Uniform,
        KeyDistribution::Zipf(Skew::ONE),
        KeyDistribution::Exponential,
    ];

    /// Its name, without the skew.
    pub const fn name(self) -> &'static str {
        match self {
            KeyDistribution::Uniform => "uniform",
            KeyDistribution::Zipf(_) => "zipf",
            KeyDistribution::Exponential => "exponential",
        }
    }

    /// The distribution of this name; `zipf:0.99` has a skew of 0.99.
    pub fn by_name(name: &str) -> Option<KeyDistribution> {
        match name.split_once(':') {
            Some(("zipf", skew)) => Skew::by_name(skew).map(KeyDistribution::Zipf),
            _ => KeyDistribution::ALL
                .into_iter()
                .find(|one| one.name() == name),
        }
    }
}

/// The name that [`KeyDistribution::by_name`] parses.
impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            KeyDistribution::Zipf(skew) if skew != Skew::ONE => {
                write!(f, "zipf:{}.{:02}", skew.0 / 100, skew.0 % 100)
            }
            other => f.write_str(other.name()),
        }
    }
}

/// A sampler of places `0..count` under a distribution, in constant time. Weights are integers, computed only with
/// operations that IEEE 754 rounds exactly, so a seed gives the same places on every machine. Memory for zipf: 16 bytes
/// per place.
#[derive(Clone, Debug)]
pub struct Places {
    count: usize,
    distribution: KeyDistribution,
    /// The alias table of zipf; empty for other distributions.
    urns: Vec<Urn>,
    /// The sum of all weights.
    total: u64,
}

/// One of the equally likely urns of the alias method (Walker 1977, built as in Vose, "A linear algorithm for generating
/// random numbers with a given distribution", 1991). Each urn holds `total` balls: `own` balls of its own place, the rest
/// of the place `other`.
#[derive(Clone, Copy, Debug)]
struct Urn {
    own: u64,
    other: u32,
}

/// The weight of the first place.
const WEIGHT: f64 = (1_u64 << 32) as f64;

impl Places {
    /// Maximum number of places.
    pub const COUNT_MAX: usize = 1 << 24;

    /// A sampler of `count` places, clamped to `1..=`[`Places::COUNT_MAX`].
    pub fn new(count: usize, distribution: KeyDistribution) -> Places {
        let count = count.clamp(1, Places::COUNT_MAX);
        let weights: Vec<u64> = match distribution {
            KeyDistribution::Zipf(skew) => (1..=count).map(|place| weight(place, skew)).collect(),
            _ => Vec::new(),
        };
        Places {
            count,
            distribution,
            urns: urns(&weights),
            total: weights.iter().sum(),
        }
    }

    /// Number of places.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The next place.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> usize {
        match self.distribution {
            KeyDistribution::Uniform => rng.index(self.count),
            KeyDistribution::Zipf(_) => {
                let place = rng.index(self.count);
                let urn = self.urns[place];
                if rng.below(self.total) < urn.own {
                    place
                } else {
                    urn.other as usize
                }
            }
            // The number of leading zeros of a random word is n with probability 2^-(n+1).
            KeyDistribution::Exponential => loop {
                let place = rng.word().leading_zeros() as usize;
                if place < self.count {
                    return place;
                }
            },
        }
    }
}

/// The weight of the n-th place, n from 1; never 0.
fn weight(place: usize, skew: Skew) -> u64 {
    ((WEIGHT / power(place as f64, skew)) as u64).max(1)
}

/// `base` to the power of `skew`, from multiplications and square roots only: the library's `powf` may differ between
/// machines in the last bit. The fraction is expanded in binary: bit k contributes the root of order 2^k.
fn power(base: f64, skew: Skew) -> f64 {
    let mut result = 1.0;
    for _ in 0..skew.0 / 100 {
        result *= base;
    }
    let mut fraction = f64::from(skew.0 % 100) / 100.0;
    let mut root = base;
    for _ in 0..40 {
        root = root.sqrt();
        fraction *= 2.0;
        if fraction >= 1.0 {
            fraction -= 1.0;
            result *= root;
        }
    }
    result
}

/// Builds the alias table: each urn holds all that is left of a place with less than an urn's share, filled up from a place
/// with more. O(n).
fn urns(weights: &[u64]) -> Vec<Urn> {
    let total: u64 = weights.iter().sum();
    let count = weights.len() as u128;
    // By place: the number of balls not in an urn yet. Scaled by `count`, so that an urn holds exactly `total`.
    let mut left: Vec<u128> = weights.iter().map(|&w| u128::from(w) * count).collect();
    let mut urns: Vec<Urn> = (0..weights.len() as u32)
        .map(|other| Urn { own: total, other })
        .collect();
    let share = u128::from(total);
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|&place| left[place] < share);
    while let (Some(place), Some(&giver)) = (poor.pop(), rich.last()) {
        urns[place] = Urn {
            // Less than `total`.
            own: left[place] as u64,
            other: giver as u32,
        };
        left[giver] -= share - left[place];
        if left[giver] < share {
            rich.pop();
            poor.push(giver);
        }
    }
    // In exact integers the last places fill their urns alone.
    debug_assert!(poor.is_empty() && rich.iter().all(|&place| left[place] == share));
    urns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of balls of each place in all urns.
    fn balls(places: &Places) -> Vec<u128> {
        let mut balls = vec![0_u128; places.count];
        for (place, urn) in places.urns.iter().enumerate() {
            balls[place] += u128::from(urn.own);
            balls[urn.other as usize] += u128::from(places.total - urn.own);
        }
        balls
    }

    #[test]
    fn urns_hold_exactly_the_weights() {
        for count in [1, 2, 3, 10, 97, 1_000] {
            for hundredths in [1, 50, 99, 100, 137, 200, 1_000] {
                let skew = Skew::from_hundredths(hundredths).unwrap();
                let places = Places::new(count, KeyDistribution::Zipf(skew));
                for (place, balls) in balls(&places).into_iter().enumerate() {
                    let exact = u128::from(weight(place + 1, skew)) * count as u128;
                    assert_eq!(balls, exact, "place {place} of {count}, {skew:?}");
                    let real = WEIGHT / ((place + 1) as f64).powf(f64::from(hundredths) / 100.0);
                    let near = (weight(place + 1, skew) as f64 - real.max(1.0)).abs();
                    assert!(near <= 1.0 + real * 1e-9, "{place} {skew:?} {near}");
                }
            }
        }
    }

    /// Pearson's statistic of many draws against the exact distribution.
    fn chi_square(distribution: KeyDistribution, exact: &[f64]) -> f64 {
        let places = Places::new(exact.len(), distribution);
        let mut rng = Rng::from_seed(11);
        let draws = 200_000;
        let mut counts = vec![0_u32; exact.len()];
        for _ in 0..draws {
            counts[places.draw(&mut rng)] += 1;
        }
        let total: f64 = exact.iter().sum();
        let terms = counts.iter().zip(exact).map(|(&count, weight)| {
            let expected = f64::from(draws) * weight / total;
            (f64::from(count) - expected).powi(2) / expected
        });
        terms.sum()
    }

    #[test]
    fn draws_follow_the_exact_distribution() {
        let zipf = |hundredths| {
            let skew = Skew::from_hundredths(hundredths).unwrap();
            let exponent = f64::from(hundredths) / 100.0;
            let exact = (1..=20).map(|place| f64::from(place).powf(-exponent));
            (KeyDistribution::Zipf(skew), exact.collect::<Vec<f64>>())
        };
        let halves = (0..10).map(|place| 0.5_f64.powi(place)).collect();
        for (distribution, exact) in [
            (KeyDistribution::Uniform, vec![1.0; 20]),
            (KeyDistribution::Exponential, halves),
            zipf(50),
            zipf(100),
            zipf(150),
        ] {
            let statistic = chi_square(distribution, &exact);
            // The 99.9 % quantile for 19 degrees of freedom.
            assert!(statistic < 43.8, "{distribution}: {statistic}");
            // The test can fail: it distinguishes a skew of 1 from one of 1.05.
            if distribution == KeyDistribution::Zipf(Skew::ONE) {
                let other = KeyDistribution::Zipf(Skew(105));
                assert!(chi_square(other, &exact) > 200.0);
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for name in ["uniform", "zipf", "exponential", "zipf:0.99", "zipf:1.50"] {
            assert_eq!(KeyDistribution::by_name(name).unwrap().to_string(), name);
        }
        assert_eq!(
            KeyDistribution::by_name("zipf:2"),
            Some(KeyDistribution::Zipf(Skew(200)))
        );
        assert_eq!(
            KeyDistribution::by_name("zipf:0.5"),
            Some(KeyDistribution::Zipf(Skew(50)))
        );
        for wrong in [
            "",
            "zipf:",
            "zipf:0",
            "zipf:11",
            "zipf:0.999",
            "zipf:-1",
            "zipf:+1",
            "zipf:1.",
            "uniform:1",
            "zipf:99999",
        ] {
            assert_eq!(KeyDistribution::by_name(wrong), None, "{wrong}");
        }
    }
}
