//! A random order of numbered parts, drawn anew for each operation: in which order a combinator asks its generators.

use seatrial_machine::Rng;

use crate::context::mixed;

/// Places filled by selection, one at a time; the places after that are filled by one sort of all remaining parts.
/// Callers mostly read one or two places, for which selection costs less than a sort.
const SELECTED_MAX: usize = 8;

/// Numbered parts in a random order, drawn anew for each committed operation.
///
/// Each part gets a sort key, the hash of the operation's random word and the part's number; the smaller key goes first.
/// So the order of two parts does not depend on which others exist: a combinator that notices earlier that a part has
/// ended sees the remaining parts in the same order.
///
/// With weights, the key is exponentially distributed with the weight as its rate (Efraimidis and Spirakis, "Weighted
/// random sampling with a reservoir", 2006): each part is the first of the remaining ones with a probability proportional
/// to its weight.
///
/// Cost: one key per remaining part and operation, O(n); memory of 16 bytes per part.
#[derive(Clone, Debug)]
pub(crate) struct WeightedOrder {
    rng: Rng,
    /// The random word from which the current keys are hashed.
    word: u64,
    /// The weight of each part by number; empty for equal weights.
    weights: Vec<u64>,
    /// The sort key and the number of each part that has not been removed.
    keyed: Vec<(u64, u32)>,
    /// Length of the prefix of `keyed` that is in order; `None` before the keys of this operation are drawn.
    sorted: Option<usize>,
}

impl WeightedOrder {
    /// An order of `parts` parts of equal weight.
    pub(crate) fn new(mut rng: Rng, parts: usize) -> WeightedOrder {
        let word = rng.word();
        WeightedOrder {
            rng,
            word,
            weights: Vec::new(),
            keyed: (0..parts as u32).map(|part| (0, part)).collect(),
            sorted: None,
        }
    }

    /// Sets the weight of each part, by number. A part of weight 0 comes after all parts of positive weight.
    pub(crate) fn set_weights(&mut self, weights: Vec<u64>) {
        // Parts that were removed have a weight too, which is not read.
        let has_weight = |&(_, part): &(u64, u32)| (part as usize) < weights.len();
        debug_assert!(self.keyed.iter().all(has_weight), "a part without a weight");
        let same = weights.windows(2).all(|pair| pair[0] == pair[1]);
        self.weights = if same { Vec::new() } else { weights };
        self.sorted = None;
    }

    /// The part at this place of the order; `None` after the last.
    #[inline]
    pub(crate) fn nth(&mut self, place: usize) -> Option<usize> {
        if self.sorted.is_none_or(|sorted| sorted <= place) {
            self.sort(place);
        }
        self.keyed.get(place).map(|&(_, part)| part as usize)
    }

    /// Draws the keys if necessary, and extends the sorted prefix to include `place`.
    fn sort(&mut self, place: usize) {
        let mut sorted = self.sorted.unwrap_or_else(|| {
            self.draw();
            0
        });
        while sorted <= place && sorted < self.keyed.len() {
            if sorted == SELECTED_MAX {
                self.keyed[sorted..].sort_unstable();
                sorted = self.keyed.len();
                break;
            }
            let mut least = sorted;
            for other in sorted + 1..self.keyed.len() {
                if self.keyed[other] < self.keyed[least] {
                    least = other;
                }
            }
            self.keyed.swap(sorted, least);
            sorted += 1;
        }
        self.sorted = Some(sorted);
    }

    /// Computes the key of every remaining part for the current word.
    fn draw(&mut self) {
        for (key, part) in &mut self.keyed {
            let uniform = sort_key(self.word, *part as usize);
            *key = match self.weights.get(*part as usize) {
                Some(&weight) => weighted_key(uniform, weight),
                None => uniform,
            };
        }
    }

    /// Removes the part at this place, which has ended. The order of the others stays.
    pub(crate) fn remove(&mut self, place: usize) {
        self.keyed.remove(place);
        if let Some(sorted) = &mut self.sorted
            && place < *sorted
        {
            *sorted -= 1;
        }
    }

    /// Removes all parts.
    pub(crate) fn clear(&mut self) {
        self.keyed.clear();
    }

    /// An operation was committed: the next one gets a new order.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.word = self.rng.word();
        self.sorted = None;
    }
}

/// The sort key of a part among parts of equal weight: uniform over all words, independent between parts.
#[inline]
pub(crate) const fn sort_key(word: u64, part: usize) -> u64 {
    mixed(word.wrapping_add((part as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// An exponentially distributed sort key with the weight as its rate. The key is the bit pattern of a positive float:
/// such patterns compare as the floats do.
fn weighted_key(uniform: u64, weight: u64) -> u64 {
    let fraction = uniform >> 11;
    if weight == 0 {
        // Above the pattern of infinity: after every positive weight, and in random order among themselves.
        return f64::INFINITY.to_bits() + (fraction >> 1);
    }
    // The midpoint of one of 2^53 equal parts of 0..1: neither 0, whose logarithm is infinite, nor 1.
    let unit = (fraction as f64 + 0.5) / (1_u64 << 53) as f64;
    (-logarithm(unit) / weight as f64).to_bits()
}

/// The natural logarithm of a number in 0..1, with an absolute error below 10^-9.
///
/// It uses only sums, products and quotients, which IEEE 754 rounds exactly, so that a seed gives the same order on every
/// machine; the library's `ln` may differ in the last bit. The number is split into a power of two and a factor between
/// 0.7 and 1.42, whose logarithm is the series of the inverse hyperbolic tangent.
fn logarithm(number: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = number.to_bits();
    let mut power = (bits >> 52) as i64 - 1_023;
    let mut rest = f64::from_bits(bits & MANTISSA | 1_023 << 52);
    if rest > std::f64::consts::SQRT_2 {
        rest *= 0.5;
        power += 1;
    }
    let ratio = (rest - 1.0) / (rest + 1.0);
    let square = ratio * ratio;
    let series = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0]
        .iter()
        .fold(0.0, |sum, odd| sum * square + 1.0 / odd);
    power as f64 * std::f64::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's chi-square statistic of observed and expected counts.
    fn chi_square(counts: &[u32], expected: &[f64]) -> f64 {
        let pairs = counts.iter().zip(expected);
        pairs
            .map(|(&count, &expected)| (f64::from(count) - expected).powi(2) / expected)
            .sum()
    }

    fn all_places(order: &mut WeightedOrder) -> Vec<usize> {
        (0..).map_while(|place| order.nth(place)).collect()
    }

    #[test]
    fn all_orders_are_equally_likely() {
        let mut order = WeightedOrder::new(Rng::from_seed(1), 4);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..240_000 {
            *counts.entry(all_places(&mut order)).or_insert(0) += 1;
            order.commit();
        }
        let counts: Vec<u32> = counts.into_values().collect();
        // 24 orders; a statistic above 49.7 has probability 1 in 1,000.
        let statistic = chi_square(&counts, &[10_000.0; 24]);
        assert!(counts.len() == 24 && statistic < 49.7, "{statistic}");
    }

    #[test]
    fn weighted_orders_are_as_likely_as_sampling_without_replacement() {
        let weights = [1_u64, 2, 5];
        let mut order = WeightedOrder::new(Rng::from_seed(2), 3);
        order.set_weights(weights.to_vec());
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..200_000 {
            *counts.entry(all_places(&mut order)).or_insert(0) += 1;
            order.commit();
        }
        let chance = |order: &Vec<usize>| {
            let [first, second] = [order[0], order[1]].map(|part| weights[part] as f64);
            first / 8.0 * (second / (8.0 - first))
        };
        let expected: Vec<f64> = counts.keys().map(|one| chance(one) * 2e5).collect();
        let counts: Vec<u32> = counts.into_values().collect();
        // 6 orders; a statistic above 20.5 has probability 1 in 1,000.
        let statistic = chi_square(&counts, &expected);
        assert!(counts.len() == 6 && statistic < 20.5, "{statistic}");
    }

    #[test]
    fn a_removed_part_does_not_change_the_order_of_the_others() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let parts = 1 + rng.index(40);
            let weights: Vec<u64> = (0..parts).map(|_| rng.below(4)).collect();
            let mut all = WeightedOrder::new(rng.fork("order"), parts);
            if seed % 2 == 0 {
                all.set_weights(weights);
            }
            let mut fewer = all.clone();
            let mut removed = Vec::new();
            for _ in 0..20 {
                let mut expected = all_places(&mut all);
                expected.retain(|part| !removed.contains(part));
                // Removed at some place, after the places before it have been read.
                if expected.len() > 1 && rng.chance(0.5) {
                    let place = rng.index(expected.len());
                    assert_eq!(fewer.nth(place), Some(expected[place]), "seed {seed}");
                    removed.push(expected.remove(place));
                    fewer.remove(place);
                }
                assert_eq!(all_places(&mut fewer), expected, "seed {seed}");
                all.commit();
                fewer.commit();
            }
        }
    }

    #[test]
    fn parts_of_weight_zero_come_last_in_random_order() {
        let mut order = WeightedOrder::new(Rng::from_seed(3), 3);
        order.set_weights(vec![0, 1, 0]);
        let mut second = 0;
        for _ in 0..1_000 {
            assert_eq!(order.nth(0), Some(1));
            second += u32::from(order.nth(1) == Some(0));
            order.commit();
        }
        assert!((430..570).contains(&second), "{second}");
    }

    #[test]
    fn the_logarithm_agrees_with_the_library() {
        let mut rng = Rng::from_seed(4);
        for power in 0..53 {
            for _ in 0..1_000 {
                let number = (1.0 - rng.unit()) * 0.5_f64.powi(power);
                let number = number.min(1.0 - f64::EPSILON);
                let (found, expected) = (logarithm(number), number.ln());
                let error = (found - expected).abs();
                assert!(error < 1e-9, "{number} {found} {expected}");
            }
        }
    }
}
