//! Time as machines see it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds since the world of this machine began. Monotone within one machine; a skewed node sees its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The first instant of the world.
    pub const ZERO: Time = Time(0);
    /// Later than any instant a world reaches.
    pub const MAX: Time = Time(u64::MAX);

    /// The instant `nanoseconds` after the beginning.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Time {
        Time(nanoseconds)
    }

    /// The instant `milliseconds` after the beginning.
    pub const fn from_milliseconds(milliseconds: u64) -> Time {
        Time(milliseconds * 1_000_000)
    }

    /// Nanoseconds since the beginning.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Seconds since the beginning, for people and charts.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time that passed since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    /// Saturates at [`Time::MAX`]: a time-out of "never" stays never.
    fn add(self, duration: Duration) -> Time {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanoseconds))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.seconds())
    }
}
