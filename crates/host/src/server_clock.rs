//! A process's clock, which a test may set wrong.

use seatrial_machine::{Clock, Fault, Time};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval at which the file is read.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

/// A clock fault as written in a process's clock file: one line of words, the first of which is the fault's number.
///
/// - `7 skew 5000000 -200`: jump by 5,000,000 ns, then run 200 ppm slow. Both 0: be right.
/// - `8 strobe 1000 500 60000`: jump ahead by 1,000 ns and back, every 500 ns, for 60,000 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockOrder {
    /// Jump once, then run fast or slow.
    Skew {
        /// Nanoseconds.
        offset_ns: i64,
        /// Parts per million.
        rate_ppm: i32,
    },
    /// Jump ahead and back, repeatedly.
    Strobe {
        /// Size of a jump.
        delta: Duration,
        /// Time that it stays ahead, and then right.
        period: Duration,
        /// It ends after this time.
        length: Duration,
    },
}

impl ClockOrder {
    /// The clock order for a fault; `None` if the fault does not concern a clock.
    pub const fn from_fault(fault: &Fault) -> Option<ClockOrder> {
        match *fault {
            Fault::Skew {
                offset_ns,
                rate_ppm,
                ..
            } => Some(ClockOrder::Skew {
                offset_ns,
                rate_ppm,
            }),
            Fault::Strobe {
                delta,
                period,
                length,
                ..
            } => Some(ClockOrder::Strobe {
                delta,
                period,
                length,
            }),
            _ => None,
        }
    }

    /// Writes the order with this number, atomically: a reader finds all of it or the earlier one.
    pub fn write(&self, path: &Path, number: u64) -> io::Result<()> {
        let line = match self {
            ClockOrder::Skew {
                offset_ns,
                rate_ppm,
            } => format!("{number} skew {offset_ns} {rate_ppm}\n"),
            ClockOrder::Strobe {
                delta,
                period,
                length,
            } => {
                let [delta, period, length] = [delta, period, length].map(Duration::as_nanos);
                format!("{number} strobe {delta} {period} {length}\n")
            }
        };
        let new = path.with_added_extension("new");
        fs::write(&new, line)?;
        fs::rename(new, path)
    }

    fn parse(line: &str) -> Option<(u64, ClockOrder)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let length = |word: &str| Some(Duration::from_nanos(word.parse().ok()?));
        let order = match words[..] {
            [_, "skew", offset, rate] => ClockOrder::Skew {
                offset_ns: offset.parse().ok()?,
                rate_ppm: rate.parse().ok()?,
            },
            [_, "strobe", delta, period, all] => ClockOrder::Strobe {
                delta: length(delta)?,
                period: length(period)?,
                length: length(all)?,
            },
            _ => return None,
        };
        Some((words[0].parse().ok()?, order))
    }

    /// The number of the last order that the process with this clock file executed, and the time that its clock showed then.
    pub fn obeyed(path: &Path) -> Option<(u64, Time)> {
        let text = fs::read_to_string(path.with_added_extension("seen")).ok()?;
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        Some((number, Time::from_nanoseconds(words.next()?.parse().ok()?)))
    }
}

/// A server's clock: the real one, changed by the orders in a file.
#[derive(Debug)]
pub(crate) struct ServerClock {
    began: Instant,
    clock: Clock,
    file: Option<PathBuf>,
    /// Number of the last order executed.
    number: u64,
}

impl ServerClock {
    /// A clock that begins now. An order to an earlier process stays in force, without its jump.
    pub(crate) fn new(file: Option<PathBuf>) -> ServerClock {
        let mut clock = ServerClock {
            began: Instant::now(),
            clock: Clock::new(Time::ZERO, 0),
            file,
            number: 0,
        };
        clock.obey(true);
        clock
    }

    /// Does it read orders from a file?
    pub(crate) fn is_adjustable(&self) -> bool {
        self.file.is_some()
    }

    fn real(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// The machine's present time.
    pub(crate) fn now(&mut self) -> Time {
        if !self.is_adjustable() {
            return self.real();
        }
        self.clock.read(self.real())
    }

    /// Duration until the machine's clock shows this time.
    pub(crate) fn until(&self, time: Time) -> Duration {
        let real = self.real();
        if !self.is_adjustable() {
            return time.since(real);
        }
        let due = self.clock.world_time(time, real);
        due.map_or(Duration::MAX, |due| due.since(real))
    }

    /// Reads the file, and executes its order unless that was executed before.
    pub(crate) fn obey(&mut self, is_first: bool) {
        let Some(file) = &self.file else {
            return;
        };
        let line = fs::read_to_string(file).unwrap_or_default();
        let Some((number, order)) = ClockOrder::parse(&line) else {
            return;
        };
        if number == self.number {
            return;
        }
        self.number = number;
        let real = self.real();
        match order {
            ClockOrder::Skew { rate_ppm, .. } if is_first => self.clock.skew(real, 0, rate_ppm),
            ClockOrder::Skew {
                offset_ns,
                rate_ppm,
            } => self.clock.skew(real, offset_ns, rate_ppm),
            ClockOrder::Strobe {
                delta,
                period,
                length,
            } => self.clock.strobe(real, delta, period, length),
        }
        let shown = self.clock.read(real).nanoseconds();
        let written = fs::write(
            file.with_added_extension("seen"),
            format!("{number} {shown}\n"),
        );
        if let Err(error) = written {
            eprintln!("cannot acknowledge the clock order: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_obeyed_once_and_a_new_life_keeps_the_drift() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("n1.clock");
        let mut clock = ServerClock::new(Some(file.clone()));
        assert!(clock.now() < Time::from_milliseconds(60_000));
        let hour = ClockOrder::Skew {
            offset_ns: 3_600_000_000_000,
            rate_ppm: 100_000,
        };
        hour.write(&file, 1).unwrap();
        clock.obey(false);
        clock.obey(false);
        let shown = clock.now();
        assert!((3_600.0..7_200.0).contains(&shown.seconds()), "{shown}");
        assert!(ClockOrder::obeyed(&file).is_some_and(|(number, _)| number == 1));
        let later = shown + Duration::from_secs(110);
        let wait = clock.until(later);
        assert!(wait <= Duration::from_secs(100), "{wait:?}");
        let strobe = ClockOrder::Strobe {
            delta: Duration::from_secs(1),
            period: Duration::from_secs(2),
            length: Duration::from_secs(3),
        };
        strobe.write(&file, 2).unwrap();
        let line = fs::read_to_string(&file).unwrap();
        assert_eq!(ClockOrder::parse(&line), Some((2, strobe)));
        hour.write(&file, 3).unwrap();
        let mut next = ServerClock::new(Some(file.clone()));
        assert!(
            next.now() < Time::from_milliseconds(60_000),
            "no jump again"
        );
        let later = next.now() + Duration::from_secs(110);
        let wait = next.until(later);
        assert!(wait <= Duration::from_secs(100), "{wait:?}");
        for noise in [
            "",
            "x",
            "1 skew",
            "1 skew a b",
            "1 strobe -1 2 3",
            "1 jump 1 2",
        ] {
            assert_eq!(ClockOrder::parse(noise), None, "{noise}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
