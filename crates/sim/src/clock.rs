//! A clock that is wrong.

use seatrial_machine::Time;
use std::time::Duration;

/// A node's clock: it jumps and drifts against the world's, but never shows its machine an earlier time than before
/// (after a jump back it stands until it has caught up).
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
    pub(crate) fn new(drift_ppm: i32) -> Clock {
        Clock {
            anchor: (Time::ZERO, 0),
            drift_ppm,
            shown: Time::ZERO,
        }
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

    /// The earliest time of the world at which the clock shows `local`.
    pub(crate) fn world_time(&self, local: Time) -> Time {
        let wanted = i128::from(local.nanoseconds()) - self.anchor.1;
        let passed = (wanted * MILLION).div_euclid(self.speed()) + 1;
        let passed = u64::try_from(passed.max(0)).unwrap_or(u64::MAX);
        self.anchor.0 + Duration::from_nanos(passed)
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

    #[test]
    fn a_right_clock_shows_the_time_of_the_world() {
        let mut clock = Clock::new(0);
        assert_eq!(
            clock.read(Time::from_milliseconds(5)),
            Time::from_milliseconds(5)
        );
    }

    #[test]
    fn it_drifts_jumps_and_never_goes_back() {
        let mut clock = Clock::new(0);
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
        for drift_ppm in [-500_000, -7, 0, 3, 400_000] {
            let mut clock = Clock::new(drift_ppm);
            clock.skew(Time::from_milliseconds(10), -3_000_000, drift_ppm);
            for nanoseconds in [1_u64, 999, 123_456_789, 5_000_000_000] {
                let local = Time::from_nanoseconds(nanoseconds);
                let world = clock.world_time(local);
                assert!(
                    clock.raw(world) >= i128::from(nanoseconds),
                    "{drift_ppm} {nanoseconds}"
                );
            }
        }
    }
}
