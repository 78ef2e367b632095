//! Faulty clocks.

use crate::Time;
use std::time::Duration;

/// A node's clock: it jumps, drifts and flickers against the world's, but never shows its machine an earlier time than
/// before (after a jump back it stands until it has caught up). It begins at zero when the node starts: a machine that
/// writes times into its log finds them in the future of its next life.
///
/// The world's time is that of the simulated world, or of the process.
#[derive(Clone, Debug)]
pub struct Clock {
    /// World time and local time of the last change of speed. The local side may be negative after a jump back.
    anchor: (Time, i128),
    /// Parts per million that it runs fast.
    drift_ppm: i32,
    strobe: Option<Strobe>,
    /// The latest time that the machine was shown.
    shown: Time,
}

/// Ahead for a period, right for a period, and so on until the end.
#[derive(Clone, Copy, Debug)]
struct Strobe {
    begin: Time,
    delta: i128,
    /// In nanoseconds, at least 1.
    period: u64,
    end: Time,
}

impl Strobe {
    /// Is the clock ahead at this time of the world?
    fn is_ahead(&self, world: Time) -> bool {
        let passed = world.since(self.begin).as_nanos() as u64;
        (self.begin..self.end).contains(&world) && (passed / self.period).is_multiple_of(2)
    }

    /// The earliest time of the world from `from` on at which the clock is ahead.
    fn next_ahead(&self, from: Time) -> Option<Time> {
        if self.is_ahead(from) {
            return Some(from);
        }
        let passed = from.since(self.begin).as_nanos() as u64;
        let periods = (passed / self.period).checked_add(1)?;
        let time = self.begin + Duration::from_nanos(periods.checked_mul(self.period)?);
        (time < self.end).then_some(time)
    }
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// A clock that begins now.
    pub const fn new(world: Time, drift_ppm: i32) -> Clock {
        Clock {
            anchor: (world, 0),
            drift_ppm,
            strobe: None,
            shown: Time::ZERO,
        }
    }

    /// The same clock after a restart of the node: it begins at zero, with the same drift and strobe.
    pub fn restart(&mut self, world: Time) {
        *self = Clock {
            strobe: self.strobe,
            ..Clock::new(world, self.drift_ppm)
        };
    }

    /// Its speed in millionths; the drift never stops or reverses a clock.
    fn speed(&self) -> i128 {
        (MILLION + i128::from(self.drift_ppm)).max(1)
    }

    /// The local time without regard to the strobe.
    fn base(&self, world: Time) -> i128 {
        let passed = i128::from(world.nanoseconds()) - i128::from(self.anchor.0.nanoseconds());
        self.anchor.1 + passed * self.speed() / MILLION
    }

    /// The local time without regard to what was shown.
    fn raw(&self, world: Time) -> i128 {
        let ahead = self.strobe.filter(|strobe| strobe.is_ahead(world));
        self.base(world) + ahead.map_or(0, |strobe| strobe.delta)
    }

    /// The time that the node's machine is shown at this time of the world.
    pub fn read(&mut self, world: Time) -> Time {
        let raw = u64::try_from(self.raw(world).max(0)).unwrap_or(u64::MAX);
        self.shown = self.shown.max(Time::from_nanoseconds(raw));
        self.shown
    }

    /// The earliest time of the world, from `now` on, at which the machine is shown `local` or later. `None` for a time that is
    /// never shown.
    pub fn world_time(&self, local: Time, now: Time) -> Option<Time> {
        if local <= self.shown {
            return Some(now);
        }
        if local == Time::MAX {
            return None;
        }
        let steady = self.reached(i128::from(local.nanoseconds()), now);
        let early = self.strobe.and_then(|strobe| {
            let ahead = self.reached(i128::from(local.nanoseconds()) - strobe.delta, now)?;
            strobe.next_ahead(ahead)
        });
        match (steady, early) {
            (Some(steady), Some(early)) => Some(steady.min(early)),
            (steady, early) => steady.or(early),
        }
    }

    /// The earliest time of the world from `now` on at which the clock without its strobe shows `local`.
    fn reached(&self, local: i128, now: Time) -> Option<Time> {
        let wanted = local - self.anchor.1;
        let passed = -(-wanted * MILLION).div_euclid(self.speed());
        let passed = u64::try_from(passed.max(0)).ok()?;
        Some((self.anchor.0 + Duration::from_nanos(passed)).max(now))
    }

    /// Jumps by `offset_ns` and runs with this drift from now on; a strobe ends. With neither jump nor drift it continues from
    /// the time that it showed last, at the right speed.
    pub fn skew(&mut self, world: Time, offset_ns: i64, drift_ppm: i32) {
        let mut local = self.base(world) + i128::from(offset_ns);
        if (offset_ns, drift_ppm) == (0, 0) {
            local = local.max(self.shown.nanoseconds().into());
        }
        self.anchor = (world, local);
        self.drift_ppm = drift_ppm;
        self.strobe = None;
    }

    /// Jumps ahead by `delta` and back, every `period`, for `length` from now on.
    pub fn strobe(&mut self, world: Time, delta: Duration, period: Duration, length: Duration) {
        self.strobe = Some(Strobe {
            begin: world,
            delta: delta.as_nanos() as i128,
            period: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1),
            end: world + length,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

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

    #[test]
    fn a_strobe_flickers_and_wakes_at_the_first_time_that_is_shown() {
        let ms = Time::from_milliseconds;
        let milliseconds = Duration::from_millis;
        let mut clock = Clock::new(Time::ZERO, 0);
        clock.strobe(
            ms(100),
            milliseconds(50),
            milliseconds(10),
            milliseconds(45),
        );
        let raws: Vec<i128> = [99, 100, 109, 110, 119, 120, 144, 145]
            .map(|world| clock.raw(ms(world)) / 1_000_000)
            .into();
        assert_eq!(raws, [99, 150, 159, 110, 119, 170, 194, 145]);
        // Shown in the first ahead phase that reaches it; a shown time is not taken back.
        assert_eq!(clock.world_time(ms(165), ms(100)), Some(ms(120)));
        assert_eq!(clock.world_time(ms(155), ms(100)), Some(ms(105)));
        assert_eq!(clock.world_time(ms(196), ms(100)), Some(ms(196)));
        assert_eq!(clock.read(ms(121)), ms(171));
        assert_eq!(clock.read(ms(135)), ms(171));
        clock.skew(ms(136), 0, 0);
        assert_eq!(
            clock.read(ms(140)),
            ms(175),
            "it continues from the time shown"
        );
    }
}
