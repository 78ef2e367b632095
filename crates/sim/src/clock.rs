//! A clock that is wrong.

use seatrial_machine::Time;
use std::time::Duration;

/// A node's clock: it jumps and drifts against the world's, but never shows its machine an earlier time than before
/// (after a jump back it stands until it has caught up). It begins at zero when the node starts, as in `host`: a machine
/// that writes times into its log finds them in the future of its next life.
#[derive(Debug)]
pub(crate) struct Clock {
    /// World time and local time of the last change of speed. The local side may be negative after a jump back.
    anchor: (Time, i128),
    /// Parts per million that it runs fast.
    drift_ppm: i32,
    /// The latest time shown.
    shown: Time,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new(world: Time, drift_ppm: i32) -> Clock {
        Clock {
            anchor: (world, 0),
            drift_ppm,
            shown: Time::ZERO,
        }
    }

    /// The same clock in the node's next life.
    pub(crate) fn restart(&mut self, world: Time) {
        *self = Clock::new(world, self.drift_ppm);
    }

    /// How fast it runs, in millionths; a clock never stands still or runs backwards by its drift.
    fn speed(&self) -> i128 {
        (MILLION + i128::from(self.drift_ppm)).max(1)
    }

    /// The local time without regard to what was shown.
    fn raw(&self, world: Time) -> i128 {
        let passed = i128::from(world.nanoseconds()) - i128::from(self.anchor.0.nanoseconds());
        self.anchor.1 + passed * self.speed() / MILLION
    }

    /// What the node's machine is shown at this time of the world.
    pub(crate) fn read(&mut self, world: Time) -> Time {
        let raw = u64::try_from(self.raw(world).max(0)).unwrap_or(u64::MAX);
        self.shown = self.shown.max(Time::from_nanoseconds(raw));
        self.shown
    }

    /// The earliest time of the world, from `now` on, at which the machine is shown `local` or later. `None` for a time
    /// that never comes.
    pub(crate) fn world_time(&self, local: Time, now: Time) -> Option<Time> {
        if local <= self.shown {
            return Some(now);
        }
        if local == Time::MAX {
            return None;
        }
        let wanted = i128::from(local.nanoseconds()) - self.anchor.1;
        let passed = -(-wanted * MILLION).div_euclid(self.speed());
        let passed = u64::try_from(passed.max(0)).ok()?;
        Some((self.anchor.0 + Duration::from_nanos(passed)).max(now))
    }

    /// Jumps by `offset_ns` and runs with this drift from now on.
    pub(crate) fn skew(&mut self, world: Time, offset_ns: i64, drift_ppm: i32) {
        self.anchor = (world, self.raw(world) + i128::from(offset_ns));
        self.drift_ppm = drift_ppm;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn a_right_clock_shows_the_time_of_the_world() {
        let mut clock = Clock::new(Time::ZERO, 0);
        assert_eq!(
            clock.read(Time::from_milliseconds(5)),
            Time::from_milliseconds(5)
        );
    }

    #[test]
    fn it_drifts_jumps_and_never_goes_back() {
        let mut clock = Clock::new(Time::ZERO, 0);
        let second = Time::from_milliseconds(1_000);
        clock.skew(second, 500_000_000, 100_000);
        assert_eq!(clock.read(second), Time::from_milliseconds(1_500));
        let later = Time::from_milliseconds(2_000);
        assert_eq!(clock.read(later), Time::from_milliseconds(2_600));
        clock.skew(later, -1_000_000_000, 0);
        assert_eq!(clock.read(later), Time::from_milliseconds(2_600));
        assert_eq!(
            clock.read(Time::from_milliseconds(2_900)),
            Time::from_milliseconds(2_600)
        );
        assert_eq!(
            clock.read(Time::from_milliseconds(3_100)),
            Time::from_milliseconds(2_700)
        );
    }

    #[test]
    fn the_time_of_the_world_is_the_earliest_that_shows_the_local_time() {
        let mut rng = Rng::from_seed(5);
        for drift_ppm in [-500_000, -7, 0, 3, 400_000] {
            let start = Time::from_milliseconds(10);
            let mut clock = Clock::new(Time::ZERO, drift_ppm);
            clock.read(start);
            clock.skew(start, rng.below(1 << 24) as i64 - (1 << 23), drift_ppm);
            for _ in 0..1_000 {
                let local = Time::from_nanoseconds(1 << rng.below(40)) + Duration::from_nanos(1);
                let world = clock.world_time(local, start).unwrap();
                let shown = |world| clock.raw(world).max(clock.shown.nanoseconds().into());
                assert!(shown(world) >= local.nanoseconds().into());
                if world > start {
                    let before = Time::from_nanoseconds(world.nanoseconds() - 1);
                    assert!(shown(before) < local.nanoseconds().into());
                }
            }
        }
    }

    #[test]
    fn the_end_of_time_never_comes_and_a_time_that_was_shown_is_now() {
        let mut clock = Clock::new(Time::ZERO, 0);
        let now = Time::from_milliseconds(9);
        clock.read(now);
        clock.skew(now, -5_000_000, 0);
        assert_eq!(clock.world_time(Time::MAX, now), None);
        assert_eq!(clock.world_time(now, now), Some(now));
        let later = Time::from_milliseconds(10);
        let due = Time::from_milliseconds(15);
        assert_eq!(clock.world_time(later, now), Some(due));
    }

    #[test]
    fn a_new_life_begins_at_zero_and_keeps_the_drift() {
        let mut clock = Clock::new(Time::ZERO, 100_000);
        let second = Time::from_milliseconds(1_000);
        clock.skew(second, 7_000_000_000, 100_000);
        clock.restart(second);
        assert_eq!(clock.read(second), Time::ZERO);
        let later = Time::from_milliseconds(2_000);
        assert_eq!(clock.read(later), Time::from_milliseconds(1_100));
    }
}
