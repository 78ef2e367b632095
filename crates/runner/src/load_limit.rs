//! What limited the number of operations per second of a run.

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::Duration;

/// What kept a run from making more operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadLimit {
    /// The rate that was asked for was reached.
    Rate(f64),
    /// The bench: its thread that drives the test, and those of its clients, had no time left.
    Bench {
        /// Processors that this process used on average.
        used: f64,
        /// Processors that it may use.
        available: usize,
    },
    /// The system: every client waited for it, or was not allowed to begin before it was back from a fault.
    System {
        /// Number of clients.
        clients: u32,
    },
}

/// Share of the rate that counts as reached.
const RATE_SHARE: f64 = 0.95;
/// Processors in use from which the bench is the limit: the driver is one thread.
const BUSY: f64 = 0.9;

impl LoadLimit {
    /// The limit of a run that made this number of operations in this time with this rate (`None`: as fast as possible), and
    /// whose process used this much time of processors.
    pub fn of(
        rate: Option<f64>,
        operations: u64,
        elapsed: Duration,
        used: Duration,
        clients: u32,
    ) -> LoadLimit {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let made = operations as f64 / seconds;
        if let Some(rate) = rate.filter(|rate| made >= rate * RATE_SHARE) {
            return LoadLimit::Rate(rate);
        }
        let used = used.as_secs_f64() / seconds;
        if used >= BUSY {
            let available = crate::run::processors();
            return LoadLimit::Bench { used, available };
        }
        LoadLimit::System { clients }
    }
}

impl fmt::Display for LoadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadLimit::Rate(rate) => write!(f, "limited by the rate asked for, {rate} per second"),
            LoadLimit::Bench { used, available } => write!(
                f,
                "limited by the bench, which used {used:.1} of {available} processors"
            ),
            LoadLimit::System { clients } => {
                let plural = if *clients == 1 { "client" } else { "clients" };
                write!(
                    f,
                    "limited by the system, for which {clients} {plural} waited"
                )
            }
        }
    }
}

/// Time of processors that this process has used so far.
pub(crate) fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_first_that_was_reached() {
        let of = |rate, operations, used| {
            let used = Duration::from_secs_f64(used);
            LoadLimit::of(rate, operations, Duration::from_secs(10), used, 12).to_string()
        };
        let rate = "limited by the rate asked for, 100 per second";
        assert_eq!(of(Some(100.0), 990, 20.0), rate);
        assert!(of(Some(100.0), 500, 20.0).starts_with("limited by the bench, which used 2.0 of "));
        let system = "limited by the system, for which 12 clients waited";
        assert_eq!(of(Some(100.0), 500, 2.0), system);
        assert_eq!(of(None, 500, 2.0), system);
    }

    #[test]
    fn time_of_processors_passes_with_work() {
        let before = processor_time();
        let mut word = 1_u64;
        while processor_time() == before {
            word = std::hint::black_box(word.wrapping_mul(3));
        }
        assert!(processor_time() > before);
    }
}
