//! How fast a checkpoint is written, so that clients hardly notice it.

use seatrial_machine::Time;
use std::time::Duration;

/// The least share of the time, in thousandths: with it a checkpoint ends, however slow the replies are.
const SHARE_MIN: u32 = 100;
/// Thousandths by which the share grows while replies are as fast as without a checkpoint.
const STEP: u32 = 20;
/// Replies before the first of which nothing is known about their usual latency.
const REPLIES_MIN: u64 = 64;
/// The weight of a reply in the usual latency is one to this.
const WEIGHT: u64 = 256;

/// The share of the time that is spent on writing a checkpoint, by feedback: if replies to changes are slower than they usually
/// are without a checkpoint, by more than a tenth on average, the share shrinks by a quarter; else it grows by 2 %. A tenth of
/// the latency is, for clients that wait for their replies, a tenth of the throughput.
///
/// ```text
///   usual latency ◄── replies without a checkpoint
///        │
///   slice ─ pause ─ slice ─ pause ─ …     pause = slice · (1 − share) / share
///   └── mean of the replies ──► share
/// ```
///
/// Without replies the share grows to its bound.
#[derive(Debug)]
pub(crate) struct CheckpointPace {
    /// Bound of the share, in thousandths.
    share_max: u32,
    share: u32,
    /// Latency of replies without a checkpoint, in nanoseconds, and their number.
    usual: u64,
    replies: u64,
    /// Sum and number of the latencies since the present slice began.
    sum: u64,
    count: u64,
}

impl CheckpointPace {
    /// With a bound in percent.
    pub(crate) fn new(share_max: u32) -> CheckpointPace {
        let share_max = share_max.clamp(1, 100) * 10;
        CheckpointPace {
            share_max,
            share: share_max,
            usual: 0,
            replies: 0,
            sum: 0,
            count: 0,
        }
    }

    /// May it write all of the time?
    pub(crate) fn is_unbounded(&self) -> bool {
        self.share_max == 1_000
    }

    /// A change was requested at `since` and is answered now.
    pub(crate) fn replied(&mut self, since: Time, now: Time, is_writing: bool) {
        let latency = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
        if is_writing {
            self.sum = self.sum.saturating_add(latency);
            self.count += 1;
            return;
        }
        self.replies += 1;
        // The mean of the first replies, then one that forgets.
        let weight = self.replies.min(WEIGHT);
        self.usual = self.usual - self.usual / weight + latency / weight;
    }

    /// The pause after a slice that took this long.
    pub(crate) fn pause(&mut self, took: Duration) -> Duration {
        self.adapt();
        took * (1_000 - self.share) / self.share
    }

    fn adapt(&mut self) {
        let (sum, count) = (
            std::mem::take(&mut self.sum),
            std::mem::take(&mut self.count),
        );
        if self.is_unbounded() {
            return;
        }
        let limit = self.usual.saturating_add(self.usual / 10);
        let is_slow = self.replies >= REPLIES_MIN && count > 0 && sum / count > limit;
        self.share = if is_slow {
            (self.share * 3 / 4).max(SHARE_MIN)
        } else {
            self.share + STEP
        };
        self.share = self.share.min(self.share_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_micros(500);
    const SLICE: Duration = Duration::from_millis(1);

    fn reply(pace: &mut CheckpointPace, latency: Duration, is_writing: bool) {
        pace.replied(Time::ZERO, Time::ZERO + latency, is_writing);
    }

    fn paced(share_max: u32) -> CheckpointPace {
        let mut pace = CheckpointPace::new(share_max);
        for _ in 0..1_000 {
            reply(&mut pace, USUAL, false);
        }
        pace
    }

    /// The mean share over many slices, where writing all of the time makes replies slower by `cost` percent.
    fn mean_share(pace: &mut CheckpointPace, cost: u32) -> u32 {
        let mut shares = 0;
        for _ in 0..1_000 {
            let latency = USUAL + USUAL * cost * pace.share / 100_000;
            for _ in 0..8 {
                reply(pace, latency, true);
            }
            pace.pause(SLICE);
            shares += pace.share;
        }
        shares / 1_000
    }

    #[test]
    fn the_share_is_that_at_which_replies_are_a_tenth_slower() {
        // 10 % slower at the shares of 100 %, 50 %, 20 %.
        for (cost, expected) in [(10, 500), (20, 500), (50, 200)] {
            let share = mean_share(&mut paced(50), cost);
            assert!(share.abs_diff(expected) < expected / 4, "{cost}: {share}");
        }
    }

    #[test]
    fn a_checkpoint_ends_however_slow_replies_are() {
        let mut pace = paced(50);
        assert_eq!(mean_share(&mut pace, 100_000), SHARE_MIN);
        reply(&mut pace, USUAL * 9, true);
        assert_eq!(pace.pause(SLICE), SLICE * 9);
        let mut pace = CheckpointPace::new(1);
        assert_eq!(pace.pause(SLICE), SLICE * 99, "a bound below it counts");
    }

    #[test]
    fn without_replies_or_with_all_of_the_time_nothing_is_adapted() {
        let mut pace = paced(50);
        pace.share = SHARE_MIN;
        for _ in 0..50 {
            pace.pause(SLICE);
        }
        assert_eq!(pace.share, 500, "no client waits");
        let mut pace = paced(100);
        reply(&mut pace, USUAL * 100, true);
        assert_eq!(pace.pause(SLICE), Duration::ZERO);
        let mut unknown = CheckpointPace::new(50);
        reply(&mut unknown, USUAL, true);
        assert_eq!(unknown.pause(SLICE), SLICE, "no usual latency is known");
    }
}
