//! Quantiles and histograms of any number of values.

use super::pipeline::Stage;
use super::{Each, Items, Number, Pipeline, Query, Question};
use std::ops::ControlFlow;

/// So many numbers are kept as they are; of more, only buckets are.
const EXACT_MAX: usize = 512;
/// The buckets of a doubling, as a power of two.
const FINENESS: u32 = 7;
/// Buckets of a doubling.
const BUCKETS: usize = 1 << FINENESS;

impl<I: Items, T: Number, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// How the numbers are distributed. Those that are not a number are left out.
    pub fn distribution(self) -> Question<I, impl Query<I, Output = Distribution>> {
        self.ask(Distributed)
    }

    /// These quantiles, each from 0 to 1: exact of up to 512 numbers, else up to 0.4 % off, see [`Distribution`].
    /// `None` of nothing.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let median_and_all = query::each::<u64>().quantiles([0.5, 1.0]);
    /// assert_eq!(median_and_all.of(0..=100), Some([50.0, 100.0]));
    /// ```
    pub fn quantiles<const N: usize>(
        self,
        fractions: [f64; N],
    ) -> Question<I, impl Query<I, Output = Option<[f64; N]>>> {
        check(&fractions);
        self.distribution().post(move |distribution| {
            let least = distribution.min()?;
            Some(fractions.map(|fraction| distribution.quantile(fraction).unwrap_or(least)))
        })
    }

    /// How many numbers fall into each bucket; a doubling has so many buckets, a power of two of at most 128. Only
    /// buckets that hold something, in order.
    pub fn histogram(self, per_doubling: u32) -> Question<I, impl Query<I, Output = Vec<Bucket>>> {
        let check = per_doubling.is_power_of_two() && per_doubling as usize <= BUCKETS;
        assert!(
            check,
            "{per_doubling} buckets: no power of two of at most {BUCKETS}"
        );
        let histogram = move |distribution: Distribution| distribution.histogram(per_doubling);
        self.distribution().post(histogram)
    }
}

impl<I: Items, T: Ord + Clone + Send, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// These quantiles, each from 0 to 1, exactly. Keeps all items.
    pub fn exact_quantiles<const N: usize>(
        self,
        fractions: [f64; N],
    ) -> Question<I, impl Query<I, Output = Option<[T; N]>>> {
        check(&fractions);
        self.vec().post(move |mut items| {
            items.sort_unstable();
            let count = items.len() as u64;
            let at = |fraction| items[rank(fraction, count) as usize - 1].clone();
            (count > 0).then(|| fractions.map(at))
        })
    }
}

/// Refuses what is no fraction when the question is put together, not when it is answered.
fn check(fractions: &[f64]) {
    for fraction in fractions {
        let is_fraction = (0.0..=1.0).contains(fraction);
        assert!(is_fraction, "quantile {fraction} is not from 0 to 1");
    }
}

/// The quantile `fraction` of `count` items is the one with this number, from 1, when they are sorted: the first for
/// which so large a part of all is not greater.
fn rank(fraction: f64, count: u64) -> u64 {
    check(&[fraction]);
    // What rounding adds must not reach the next one: 0.07 × 100 is more than 7.
    let place = fraction * count as f64 * (1.0 - 4.0 * f64::EPSILON);
    (place.ceil() as u64).clamp(1, count.max(1))
}

/// How numbers are distributed, in bounded memory: up to 512 as they are, more in buckets, 128 to a doubling of their
/// magnitude (as HdrHistogram has them; the guarantee is that of DDSketch: Masson, Rim and Lee, "DDSketch: a fast and
/// fully-mergeable quantile sketch with relative-error guarantees", 2019).
///
/// Which bucket a number falls into depends on itself alone. So the answer does not depend on how the numbers were
/// split, and a quantile comes from the very bucket that holds the exact one: it is off by at most 1/256 of its
/// magnitude (magnitudes below 2^-1022 apart), whatever the distribution. Least and greatest are exact. Its downside:
/// a doubling takes 1 KiB, so latencies from microseconds to minutes take 27 KiB, and the worst numbers 4 MiB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    count: u64,
    /// Least and greatest; not meant while there is nothing.
    range: (f64, f64),
    /// Are there integers only?
    is_integer: bool,
    /// All, as long as they are few.
    exact: Vec<f64>,
    /// Below zero, by magnitude.
    negative: Buckets,
    zero: u64,
    positive: Buckets,
}

/// Part of a histogram: how many numbers lie between two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Not nearer to zero than this. In the bucket of zero both are zero.
    pub from: f64,
    /// Nearer to zero than this.
    pub to: f64,
    /// How many.
    pub count: u64,
}

impl Distribution {
    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.range.0)
    }

    /// The greatest.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.range.1)
    }

    /// The least number such that `fraction` (0 to 1) of all are not greater; `None` of nothing.
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let rank = rank(fraction, self.count);
        let (least, greatest) = (self.min()?, self.max()?);
        if rank == 1 || rank == self.count {
            return Some(if rank == 1 { least } else { greatest });
        }
        if !self.exact.is_empty() {
            let mut sorted = self.exact.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            return Some(sorted[rank as usize - 1]);
        }
        let mut passed = 0;
        let bucket = self.buckets(BUCKETS as u32).into_iter().find(|bucket| {
            passed += bucket.count;
            passed >= rank
        })?;
        let mut middle = bucket.from + (bucket.to - bucket.from) / 2.0;
        if self.is_integer {
            middle = middle.trunc();
        }
        if bucket.from.is_infinite() {
            middle = bucket.from;
        }
        Some(middle.clamp(least, greatest))
    }

    /// How many numbers fall into each bucket; a doubling has so many buckets, a power of two of at most 128. Only
    /// buckets that hold something, in order.
    pub fn histogram(&self, per_doubling: u32) -> Vec<Bucket> {
        let check = per_doubling.is_power_of_two() && per_doubling as usize <= BUCKETS;
        assert!(
            check,
            "{per_doubling} buckets: no power of two of at most {BUCKETS}"
        );
        let mut all = self.clone();
        all.pour();
        all.buckets(per_doubling)
    }

    /// What is in buckets.
    fn buckets(&self, per_doubling: u32) -> Vec<Bucket> {
        let mut buckets = self.negative.list(per_doubling);
        buckets.reverse();
        for bucket in &mut buckets {
            (bucket.from, bucket.to) = (-bucket.from, -bucket.to);
        }
        if self.zero > 0 {
            let (from, to, count) = (0.0, 0.0, self.zero);
            buckets.push(Bucket { from, to, count });
        }
        buckets.extend(self.positive.list(per_doubling));
        buckets
    }

    fn add(&mut self, number: f64) {
        if number.is_nan() {
            return;
        }
        self.widen((number, number));
        self.count += 1;
        if self.count > EXACT_MAX as u64 + 1 {
            return self.put(number);
        }
        self.exact.push(number);
        if self.exact.len() > EXACT_MAX {
            self.pour();
        }
    }

    fn widen(&mut self, (least, greatest): (f64, f64)) {
        if least < self.range.0 || self.count == 0 {
            self.range.0 = least;
        }
        if greatest > self.range.1 || self.count == 0 {
            self.range.1 = greatest;
        }
    }

    /// Adds the numbers of another distribution.
    pub fn merge(&mut self, mut later: Distribution) {
        if later.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = later;
            return;
        }
        self.widen(later.range);
        self.count += later.count;
        if self.count <= EXACT_MAX as u64 {
            self.exact.append(&mut later.exact);
            return;
        }
        self.pour();
        later.pour();
        self.negative.merge(later.negative);
        self.zero += later.zero;
        self.positive.merge(later.positive);
    }

    /// Puts what is kept as it is into buckets.
    fn pour(&mut self) {
        for number in std::mem::take(&mut self.exact) {
            self.put(number);
        }
    }

    fn put(&mut self, number: f64) {
        if number > 0.0 {
            self.positive.put(number);
        } else if number < 0.0 {
            self.negative.put(-number);
        } else {
            self.zero += 1;
        }
    }
}

/// Counts of positive numbers by bucket: their exponent and the upper bits of their mantissa, as they stand in them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Buckets {
    /// The exponent of the first of the doublings.
    first: usize,
    /// Every one from the first that holds something to the last.
    doublings: Vec<Option<Box<[u64; BUCKETS]>>>,
}

impl Buckets {
    fn put(&mut self, number: f64) {
        let bits = (number.to_bits() >> (f64::MANTISSA_DIGITS - 1 - FINENESS)) as usize;
        let (exponent, place) = (bits / BUCKETS, bits % BUCKETS);
        let known = self.doublings.get_mut(exponent.wrapping_sub(self.first));
        match known {
            Some(Some(doubling)) => doubling[place] += 1,
            _ => self.doubling(exponent)[place] += 1,
        }
    }

    /// The buckets of numbers with this exponent.
    fn doubling(&mut self, exponent: usize) -> &mut [u64; BUCKETS] {
        if self.doublings.is_empty() {
            self.first = exponent;
        }
        if exponent < self.first {
            let missing = std::iter::repeat_n(None, self.first - exponent);
            self.doublings.splice(..0, missing);
            self.first = exponent;
        }
        let place = exponent - self.first;
        if place >= self.doublings.len() {
            self.doublings.resize(place + 1, None);
        }
        self.doublings[place].get_or_insert_with(|| Box::new([0; BUCKETS]))
    }

    fn merge(&mut self, later: Buckets) {
        for (exponent, doubling) in (later.first..).zip(later.doublings) {
            let Some(doubling) = doubling else { continue };
            for (sum, count) in self.doubling(exponent).iter_mut().zip(*doubling) {
                *sum += count;
            }
        }
    }

    /// What holds something, in order, a doubling divided into so many.
    fn list(&self, per_doubling: u32) -> Vec<Bucket> {
        let width = BUCKETS / per_doubling as usize;
        let edge =
            |bits: usize| f64::from_bits((bits as u64) << (f64::MANTISSA_DIGITS - 1 - FINENESS));
        let mut buckets = Vec::new();
        for (exponent, doubling) in (self.first..).zip(&self.doublings) {
            let counts = doubling.iter().flat_map(|doubling| doubling.chunks(width));
            for (number, counts) in counts.enumerate() {
                let count = counts.iter().sum();
                let bits = exponent * BUCKETS + number * width;
                let from = edge(bits);
                // Nothing lies behind infinity.
                let to = if from.is_infinite() {
                    from
                } else {
                    edge(bits + width)
                };
                if count > 0 {
                    buckets.push(Bucket { from, to, count });
                }
            }
        }
        buckets
    }
}

/// See [`Pipeline::distribution`].
#[derive(Clone, Copy, Debug)]
struct Distributed;

impl<T: Number> Query<Each<T>> for Distributed {
    type Accumulator = Distribution;
    type Output = Distribution;

    fn start(&self) -> Distribution {
        Distribution {
            is_integer: T::IS_INTEGER,
            ..Distribution::default()
        }
    }

    fn step(&self, distribution: &mut Distribution, number: T) -> ControlFlow<()> {
        distribution.add(number.to_f64());
        ControlFlow::Continue(())
    }

    fn combine(&self, distribution: &mut Distribution, later: Distribution) -> ControlFlow<()> {
        distribution.merge(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, distribution: Distribution) -> Distribution {
        distribution
    }
}
