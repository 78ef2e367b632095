//! Latencies in buckets of at most 3 % width.

use std::time::Duration;

/// Counts of latencies. A bucket is 256 ns wide up to 16 µs, then a 32nd of its power of two. O(1) to add, 3.7 KB.
#[derive(Clone, Debug)]
pub(crate) struct LatencyHistogram {
    buckets: Vec<u32>,
    count: u64,
    max: Duration,
}

/// Nanoseconds of a unit, as a shift.
const UNIT_SHIFT: u32 = 8;
/// Buckets of a power of two, as a shift.
const PART_SHIFT: u32 = 5;
/// Longer latencies count as this, 18 minutes.
const UNITS_MAX: u64 = (1 << 32) - 1;
const BUCKETS: usize = bucket(UNITS_MAX) + 1;

impl LatencyHistogram {
    pub(crate) fn new() -> LatencyHistogram {
        LatencyHistogram {
            buckets: vec![0; BUCKETS],
            count: 0,
            max: Duration::ZERO,
        }
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        let units = (latency.as_nanos() as u64 >> UNIT_SHIFT).min(UNITS_MAX);
        self.buckets[bucket(units)] += 1;
        self.count += 1;
        self.max = self.max.max(latency);
    }

    pub(crate) fn merge(&mut self, other: &LatencyHistogram) {
        for (mine, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += more;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    /// The latency that this share of all does not exceed; 0 if there is none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                let end = Duration::from_nanos(end_of(index) << UNIT_SHIFT);
                return end.min(self.max);
            }
        }
        self.max
    }
}

/// The bucket of a latency: the units themselves below 64, else the leading six bits.
const fn bucket(units: u64) -> usize {
    let shift = (64 - (units | 63).leading_zeros()) - (PART_SHIFT + 1);
    ((shift as usize) << PART_SHIFT) + (units >> shift) as usize
}

/// The first latency after a bucket, in units.
const fn end_of(bucket: usize) -> u64 {
    let parts = 1 << PART_SHIFT;
    let shift = if bucket < 2 * parts {
        0
    } else {
        bucket / parts - 1
    };
    (bucket - shift * parts + 1) as u64 * (1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for bits in 0..32 {
            for units in [
                (1_u64 << bits) - 1,
                1 << bits,
                (1 << bits) + (1 << bits) / 3,
            ] {
                let index = bucket(units);
                assert!(index >= last || units == (1 << bits) - 1, "{units}");
                last = index;
                let end = end_of(index);
                assert!(
                    end > units && (end - units) * 32 <= units.max(32),
                    "{units} {end}"
                );
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut rng = Rng::from_seed(1);
        let mut histogram = LatencyHistogram::new();
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let latency = Duration::from_nanos(1_000 << rng.below(20) | rng.below(1_000));
            histogram.add(latency);
            all.push(latency);
        }
        all.sort_unstable();
        for share in [0.5, 0.99, 0.999, 1.0] {
            let exact = all[(all.len() as f64 * share).ceil() as usize - 1];
            let found = histogram.quantile(share);
            let slack = exact / 32 + Duration::from_nanos(257);
            assert!(
                found >= exact && found <= exact + slack,
                "{share}: {exact:?} {found:?}"
            );
        }
        assert_eq!(histogram.quantile(1.0), histogram.max());
        assert_eq!(LatencyHistogram::new().quantile(0.5), Duration::ZERO);
    }
}
