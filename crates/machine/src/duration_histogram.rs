//! Durations counted in buckets, for quantiles and metrics.

use std::time::Duration;

/// Counts of durations in buckets of a quarter of a power of two, from 1 µs to 36 minutes: a quantile is at most 19 % too long.
/// Adding costs O(1) and no memory; 1.1 KB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationHistogram {
    buckets: [u64; BUCKETS],
    count: u64,
    sum: Duration,
    max: Duration,
}

/// Buckets of a power of two, as a shift.
const PART_SHIFT: u32 = 2;
const PARTS: usize = 1 << PART_SHIFT;
/// Powers of two of microseconds; longer durations are in the last bucket.
const OCTAVES: usize = 31;
/// The first bucket has durations below 1 µs.
const BUCKETS: usize = 1 + OCTAVES * PARTS;

impl Default for DurationHistogram {
    fn default() -> DurationHistogram {
        DurationHistogram {
            buckets: [0; BUCKETS],
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn add(&mut self, duration: Duration) {
        self.buckets[bucket_of(duration)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.max = self.max.max(duration);
    }

    /// Number of durations.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest since the start.
    pub const fn max(&self) -> Duration {
        self.max
    }

    /// The end of the bucket in which this share of all durations has ended, or the maximum if that is less; 0 if there is none.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end_of(index).min(self.max);
            }
        }
        self.max
    }

    /// What was added since `earlier`, a copy of this histogram. The maximum stays that of the whole time.
    pub fn since(&self, earlier: &DurationHistogram) -> DurationHistogram {
        let mut difference = self.clone();
        for (mine, theirs) in difference.buckets.iter_mut().zip(&earlier.buckets) {
            *mine = mine.saturating_sub(*theirs);
        }
        difference.count = self.count.saturating_sub(earlier.count);
        difference.sum = self.sum.saturating_sub(earlier.sum);
        difference
    }

    /// Ends of the powers of two, and the number of durations below each. Increasing in both.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut below = self.buckets[0];
        let first = std::iter::once((end_of(0), below));
        let octaves = self.buckets[1..].chunks(PARTS).enumerate();
        first.chain(octaves.map(move |(octave, parts)| {
            below += parts.iter().sum::<u64>();
            (end_of((octave + 1) * PARTS), below)
        }))
    }
}

/// The bucket of a duration: its power of two, and the two bits after the leading one.
fn bucket_of(duration: Duration) -> usize {
    // In quarters of a microsecond, so that the two bits exist from 1 µs on.
    let quarters = (duration.as_nanos() / (1_000 >> PART_SHIFT)) as u64;
    if quarters < PARTS as u64 {
        return 0;
    }
    let octave = quarters.ilog2() - PART_SHIFT;
    let part = (quarters >> octave) as usize - PARTS;
    (1 + octave as usize * PARTS + part).min(BUCKETS - 1)
}

/// The first duration after a bucket.
fn end_of(bucket: usize) -> Duration {
    let Some(index) = bucket.checked_sub(1) else {
        return Duration::from_micros(1);
    };
    let (octave, part) = (index / PARTS, index % PARTS);
    let quarters = ((PARTS + part + 1) as u64) << octave;
    Duration::from_nanos(quarters * (1_000 >> PART_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_bucket_ends_where_the_next_one_begins() {
        let nanosecond = Duration::from_nanos(1);
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!(bucket_of(end), bucket + 1, "{end:?}");
            assert_eq!(bucket_of(end.saturating_sub(nanosecond)), bucket, "{end:?}");
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
        assert_eq!(end_of(BUCKETS - 1), Duration::from_micros(1 << OCTAVES));
    }

    #[test]
    fn quantiles_are_at_most_a_bucket_too_long() {
        let mut rng = Rng::from_seed(1);
        let mut histogram = DurationHistogram::default();
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let duration = Duration::from_nanos(1_000 << rng.below(20) | rng.below(1_000));
            histogram.add(duration);
            all.push(duration);
        }
        all.sort_unstable();
        for share in [0.01, 0.5, 0.99, 0.999, 1.0] {
            let exact = all[(all.len() as f64 * share).ceil() as usize - 1];
            let found = histogram.quantile(share);
            assert!(
                found >= exact && found <= exact + exact / 4 + Duration::from_nanos(250),
                "{share}: {exact:?} {found:?}"
            );
        }
        assert_eq!(histogram.sum(), all.iter().sum());
        assert_eq!(histogram.quantile(1.0), histogram.max());
        assert_eq!(
            DurationHistogram::default().quantile(0.5),
            Duration::ZERO,
            "of nothing"
        );
    }

    #[test]
    fn cumulative_counts_and_differences_add_up() {
        let mut histogram = DurationHistogram::default();
        for micros in [0, 1, 3, 3, 70] {
            histogram.add(Duration::from_micros(micros));
        }
        let earlier = histogram.clone();
        histogram.add(Duration::from_millis(2));
        let cumulative: Vec<(Duration, u64)> = histogram.cumulative().collect();
        let at = |micros| {
            let end = Duration::from_micros(micros);
            let found = cumulative.iter().find(|it| it.0 == end);
            found.map(|it| it.1)
        };
        assert_eq!(
            [at(1), at(2), at(4), at(64), at(128), at(2_048)],
            [Some(1), Some(2), Some(4), Some(4), Some(5), Some(6)]
        );
        assert_eq!(cumulative.last().map(|it| it.1), Some(histogram.count()));
        assert!(cumulative.is_sorted());
        let new = histogram.since(&earlier);
        assert_eq!((new.count(), new.sum()), (1, Duration::from_millis(2)));
        assert_eq!(new.quantile(0.5), Duration::from_millis(2));
    }
}
