//! Lots: in which order the parts of a generator are asked.

use seatrial_machine::Rng;

use crate::context::mixed;

/// Lots that are picked one by one; for more, all that are left are sorted.
const PICKED_MAX: usize = 8;

/// Numbered parts in a random order, drawn anew for each operation that is taken. Each part draws a lot of its own from the
/// operation's random word and the part's number, and the smaller lot goes first; so the order of two parts does not depend
/// on which others there are, and somebody who learns earlier that a part has ended sees the others in the same order.
///
/// With weights the lot is an exponentially distributed number with the weight as its rate (Efraimidis and Spirakis,
/// "Weighted random sampling with a reservoir", 2006): each part is the first of those that are left with a chance that is
/// proportional to its weight.
///
/// Its downside: every part that has not ended draws a lot for every operation.
#[derive(Clone, Debug)]
pub(crate) struct Lots {
    rng: Rng,
    /// What the present lots are drawn from.
    word: u64,
    /// The weight of each part by number; empty when all weigh the same.
    weights: Vec<u64>,
    /// The lot and the number of each part that has not been removed.
    drawn: Vec<(u64, u32)>,
    /// So many of them are in order; `None` when their lots are not drawn yet.
    sorted: Option<usize>,
}

impl Lots {
    /// Parts of equal weight.
    pub(crate) fn new(mut rng: Rng, parts: usize) -> Lots {
        let word = rng.word();
        Lots {
            rng,
            word,
            weights: Vec::new(),
            drawn: (0..parts as u32).map(|part| (0, part)).collect(),
            sorted: None,
        }
    }

    /// Gives each part a weight. One of weight 0 comes after all that have any.
    pub(crate) fn weigh(&mut self, weights: Vec<u64>) {
        let same = weights.windows(2).all(|pair| pair[0] == pair[1]);
        self.weights = if same { Vec::new() } else { weights };
        self.sorted = None;
    }

    /// The part at this place of the order; `None` behind the last.
    #[inline]
    pub(crate) fn nth(&mut self, place: usize) -> Option<usize> {
        if self.sorted.is_none_or(|sorted| sorted <= place) {
            self.sort(place);
        }
        self.drawn.get(place).map(|&(_, part)| part as usize)
    }

    /// Draws the lots if that was not done, and sees to it that the order is right up to this place.
    fn sort(&mut self, place: usize) {
        let mut sorted = self.sorted.unwrap_or_else(|| {
            self.draw();
            0
        });
        while sorted <= place && sorted < self.drawn.len() {
            if sorted == PICKED_MAX {
                self.drawn[sorted..].sort_unstable();
                sorted = self.drawn.len();
                break;
            }
            let mut least = sorted;
            for other in sorted + 1..self.drawn.len() {
                if self.drawn[other] < self.drawn[least] {
                    least = other;
                }
            }
            self.drawn.swap(sorted, least);
            sorted += 1;
        }
        self.sorted = Some(sorted);
    }

    fn draw(&mut self) {
        for (lot, part) in &mut self.drawn {
            let uniform = lot_of(self.word, *part as usize);
            *lot = match self.weights.get(*part as usize) {
                Some(&weight) => weighted(uniform, weight),
                None => uniform,
            };
        }
    }

    /// The part at this place has ended. The order of the others stays.
    pub(crate) fn remove(&mut self, place: usize) {
        self.drawn.remove(place);
        if let Some(sorted) = &mut self.sorted
            && place < *sorted
        {
            *sorted -= 1;
        }
    }

    /// All parts have ended.
    pub(crate) fn clear(&mut self) {
        self.drawn.clear();
    }

    /// An operation was taken: the next one has lots of its own.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.word = self.rng.word();
        self.sorted = None;
    }
}

/// The lot of a part among others of equal weight.
#[inline]
pub(crate) const fn lot_of(word: u64, part: usize) -> u64 {
    mixed(word.wrapping_add((part as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// An exponentially distributed number with this rate as a lot: positive floats are ordered as their bits are.
fn weighted(uniform: u64, weight: u64) -> u64 {
    let fraction = uniform >> 11;
    if weight == 0 {
        return f64::INFINITY.to_bits() + (fraction >> 1);
    }
    // In the middle of one of 2^53 equal parts of 0..1.
    let unit = (fraction as f64 + 0.5) / (1_u64 << 53) as f64;
    (-logarithm(unit) / weight as f64).to_bits()
}

/// The natural logarithm of a number in 0..1, from sums, products and quotients only, which are the same on every machine
/// (the library's logarithm need not be): that of the number's power of two and the series of the inverse hyperbolic
/// tangent for what is left of it, between 0.7 and 1.42. Its error is below 10^-9 of the result's greatest values.
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

    /// Pearson's statistic: how far counts are from what was expected of them.
    fn chi_square(counts: &[u32], expected: &[f64]) -> f64 {
        let pairs = counts.iter().zip(expected);
        pairs
            .map(|(&count, &expected)| (f64::from(count) - expected).powi(2) / expected)
            .sum()
    }

    fn order(lots: &mut Lots) -> Vec<usize> {
        (0..).map_while(|place| lots.nth(place)).collect()
    }

    #[test]
    fn every_order_has_the_same_chance() {
        let mut lots = Lots::new(Rng::from_seed(1), 4);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..240_000 {
            *counts.entry(order(&mut lots)).or_insert(0) += 1;
            lots.commit();
        }
        let counts: Vec<u32> = counts.into_values().collect();
        // 24 orders; more than 49.7 has a chance of 1 in 1,000.
        let statistic = chi_square(&counts, &[10_000.0; 24]);
        assert!(counts.len() == 24 && statistic < 49.7, "{statistic}");
    }

    #[test]
    fn orders_of_weights_have_the_chances_of_drawing_without_replacement() {
        let weights = [1_u64, 2, 5];
        let mut lots = Lots::new(Rng::from_seed(2), 3);
        lots.weigh(weights.to_vec());
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..200_000 {
            *counts.entry(order(&mut lots)).or_insert(0) += 1;
            lots.commit();
        }
        let chance = |order: &Vec<usize>| {
            let [first, second] = [order[0], order[1]].map(|part| weights[part] as f64);
            first / 8.0 * (second / (8.0 - first))
        };
        let expected: Vec<f64> = counts.keys().map(|one| chance(one) * 2e5).collect();
        let counts: Vec<u32> = counts.into_values().collect();
        // 6 orders; more than 20.5 has a chance of 1 in 1,000.
        let statistic = chi_square(&counts, &expected);
        assert!(counts.len() == 6 && statistic < 20.5, "{statistic}");
    }

    #[test]
    fn who_is_gone_does_not_change_the_order_of_the_others() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let parts = 1 + rng.index(40);
            let weights: Vec<u64> = (0..parts).map(|_| rng.below(4)).collect();
            let mut all = Lots::new(rng.fork("lots"), parts);
            if seed % 2 == 0 {
                all.weigh(weights);
            }
            let mut fewer = all.clone();
            let mut gone = Vec::new();
            for _ in 0..20 {
                let mut wanted = order(&mut all);
                wanted.retain(|part| !gone.contains(part));
                // Found out at some time of asking.
                if wanted.len() > 1 && rng.chance(0.5) {
                    let place = rng.index(wanted.len());
                    assert_eq!(fewer.nth(place), Some(wanted[place]), "seed {seed}");
                    gone.push(wanted.remove(place));
                    fewer.remove(place);
                }
                assert_eq!(order(&mut fewer), wanted, "seed {seed}");
                all.commit();
                fewer.commit();
            }
        }
    }

    #[test]
    fn nothing_weighs_less_than_no_weight() {
        let mut lots = Lots::new(Rng::from_seed(3), 3);
        lots.weigh(vec![0, 1, 0]);
        let mut second = 0;
        for _ in 0..1_000 {
            assert_eq!(lots.nth(0), Some(1));
            second += u32::from(lots.nth(1) == Some(0));
            lots.commit();
        }
        assert!((430..570).contains(&second), "{second}");
    }

    #[test]
    fn the_logarithm_is_one() {
        let mut rng = Rng::from_seed(4);
        for power in 0..53 {
            for _ in 0..1_000 {
                let number = (1.0 - rng.unit()) * 0.5_f64.powi(power);
                let number = number.min(1.0 - f64::EPSILON);
                let (found, wanted) = (logarithm(number), number.ln());
                assert!((found - wanted).abs() < 1e-9, "{number} {found} {wanted}");
            }
        }
    }
}
