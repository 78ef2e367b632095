//! Quantiles and histograms of any number of values.

use super::pipeline::Stage;
use super::{Each, Items, Number, Pipeline, Query, Question};
use std::ops::ControlFlow;

/// Up to this many numbers are kept exactly; of more, only bucket counts.
const EXACT_MAX: usize = 512;
/// The buckets of a doubling, as a power of two.
const FINENESS: u32 = 7;
/// Buckets of a doubling.
const BUCKETS: usize = 1 << FINENESS;

impl<I: Items, T: Number, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// The distribution of the numbers. NaN is left out.
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

    /// The non-empty buckets of a histogram, in order; `per_doubling` buckets per doubling, a power of two of at most 128.
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

/// Panics if a quantile is no fraction: when the question is built, not when it is answered.
fn check(fractions: &[f64]) {
    for fraction in fractions {
        let is_fraction = (0.0..=1.0).contains(fraction);
        assert!(is_fraction, "quantile {fraction} is not from 0 to 1");
    }
}

/// The rank, from 1, of the quantile `fraction` among `count` sorted items: the first item that at least this fraction of
/// all does not exceed.
fn rank(fraction: f64, count: u64) -> u64 {
    check(&[fraction]);
    // Rounding must not reach the next rank: 0.07 × 100 is more than 7.
    let place = fraction * count as f64 * (1.0 - 4.0 * f64::EPSILON);
    (place.ceil() as u64).clamp(1, count.max(1))
}

/// A distribution of numbers in bounded memory: up to 512 numbers exactly; more in buckets, 128 per doubling of their
/// magnitude (as in HdrHistogram; the error bound is that of DDSketch: Masson, Rim and Lee, "DDSketch: a fast and
/// fully-mergeable quantile sketch with relative-error guarantees", 2019).
///
/// The bucket of a number depends only on the number. So the answer does not depend on how the numbers were split, and a
/// quantile comes from the bucket of the exact one: its relative error is at most 1/256 (for magnitudes of at least
/// 2^-1022), for any distribution. Least and greatest are exact. Memory: 1 KiB per doubling, so 27 KiB for latencies from
/// microseconds to minutes, at most 4 MiB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    count: u64,
    /// Least and greatest; meaningless while empty.
    range: (f64, f64),
    /// Are all numbers integers?
    is_integer: bool,
    /// All numbers, up to the limit.
    exact: Vec<f64>,
    /// Below zero, by magnitude.
    negative: Buckets,
    zero: u64,
    positive: Buckets,
}

/// A bucket of a histogram: the count of numbers between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The bound nearer to zero, inclusive. In the bucket of zero both are zero.
    pub from: f64,
    /// The bound farther from zero, exclusive.
    pub to: f64,
    /// Numbers in it.
    pub count: u64,
}

impl Distribution {
    /// The number of numbers.
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

    /// The non-empty buckets of a histogram, in order; `per_doubling` buckets per doubling, a power of two of at most 128.
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

    /// The non-empty buckets.
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

    /// Moves the exactly kept numbers into buckets.
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
    /// All doublings from the first non-empty one to the last.
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

    /// The non-empty buckets in order, `per_doubling` to each doubling.
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
                // Infinity has no upper neighbour.
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
