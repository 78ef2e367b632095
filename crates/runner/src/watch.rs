//! Checkers that run during the test, on the file that is being written.

use crate::Stop;
use crate::history_recorder::error_chain;
use seatrial_check::{Follower, Unwatched};
use seatrial_checker::{Aims, Checker, Finding, Verdict};
use seatrial_machine::Time;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Checkers that run during the test; none by default.
#[derive(Default)]
pub struct LiveChecks {
    /// They read the history while it is written. Their final verdicts replace those of the test's checkers of the same names,
    /// unless those must prove their verdicts.
    pub checkers: Vec<Box<dyn Checker>>,
    /// Does the first definite violation stop the test, as a stop request does?
    pub stops: bool,
}

/// The first definite violation that was found during the test.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// When it was found, since the test began.
    pub at: Time,
    /// Name of the checker that found it.
    pub checker: &'static str,
    /// The violation. No later operation can undo it.
    pub finding: Finding,
    /// Did it stop the test?
    pub stopped: bool,
}

impl Sighting {
    /// The JSON object of the results: `seconds`, `checker`, `anomaly`, `operations` (indexes), `stopped`.
    pub fn json(&self) -> Json {
        json!({
            "seconds": self.at.seconds(),
            "checker": self.checker,
            "anomaly": self.finding.anomaly,
            "operations": self.finding.operations,
            "stopped": self.stopped,
        })
    }

    /// A sentence for the user.
    pub fn sentence(&self) -> String {
        let Sighting { at, checker, .. } = self;
        let operations = self.finding.operations.iter();
        let operations: Vec<_> = operations.take(NAMED_MAX).map(u64::to_string).collect();
        let more = self.finding.operations.len().saturating_sub(NAMED_MAX);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let end = if self.stopped {
            "; it stopped the test early"
        } else {
            ""
        };
        format!(
            "{checker} found {} {at} after the test began (operations {}{more}){end}",
            self.finding.anomaly,
            operations.join(", ")
        )
    }
}

/// Maximum number of operations named in the sentence.
const NAMED_MAX: usize = 8;

/// Result of the checkers that ran during the test.
#[derive(Default)]
pub(crate) struct LiveVerdicts {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sighting: Option<Sighting>,
    /// Why there are no verdicts, if so.
    pub(crate) error: Option<String>,
}

/// Interval at which the file is polled while nothing new is in it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Bound of the search for violations: after a search of length t the next one begins after `SEARCH_PAUSE_FACTOR` · t, so
/// searches take at most 1/9 of the time.
const SEARCH_PAUSE_FACTOR: u32 = 8;
/// Threads that read the history again to explain a violation.
const THREADS: usize = 1;
/// Niceness of the thread: the test itself has priority.
const NICENESS: i32 = 10;

/// The test runs: follow its file.
const FOLLOW: u8 = 0;
/// The history is sealed: check it to its end.
const FINISH: u8 = 1;
/// The result is not needed any more.
const GIVE_UP: u8 = 2;

/// The thread that checks the history while it is written.
///
/// It reads the test file after its writer, and shares no queue with it: the test never waits for this thread, however far it
/// lags. It runs at a low priority. Its downside: on a machine that is busy with the test a violation is found late, and the
/// rest of the history is checked after the end, as without this thread.
pub(crate) struct LiveCheckThread {
    order: Arc<AtomicU8>,
    thread: Option<JoinHandle<LiveVerdicts>>,
}

impl LiveCheckThread {
    /// Starts to check the test file at `path`, which exists, of a test that began at `began`.
    pub(crate) fn start(
        path: PathBuf,
        watch: LiveChecks,
        stop: Stop,
        began: Instant,
    ) -> std::io::Result<LiveCheckThread> {
        let order = Arc::new(AtomicU8::new(FOLLOW));
        let orders = Arc::clone(&order);
        let body = move || {
            let _ = rustix::process::nice(NICENESS); // of this thread only; a failure is harmless
            let mut live = LiveCheck {
                order: orders,
                stops: watch.stops,
                stop,
                began,
                search_from: began,
                sighting: None,
            };
            let aims = Aims::default();
            let follower = Follower::open(&path, &watch.checkers, &aims, THREADS);
            let checked = follower
                .map_err(|error| error_chain(&error))
                .and_then(|follower| live.follow(follower));
            let (verdicts, error) = match checked {
                Ok(verdicts) => (verdicts, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            LiveVerdicts {
                verdicts,
                sighting: live.sighting,
                error,
            }
        };
        let thread = thread::Builder::new()
            .name("live-check".into())
            .spawn(body)?;
        Ok(LiveCheckThread {
            order,
            thread: Some(thread),
        })
    }

    /// Waits for the verdicts on the whole history, which is sealed now.
    pub(crate) fn finish(mut self) -> LiveVerdicts {
        self.order.store(FINISH, Ordering::Release);
        let joined = self.thread.take().map(JoinHandle::join);
        match joined {
            Some(Ok(watched)) => watched,
            _ => LiveVerdicts {
                error: Some("the checker's thread panicked".into()),
                ..LiveVerdicts::default()
            },
        }
    }
}

impl Drop for LiveCheckThread {
    fn drop(&mut self) {
        self.order.store(GIVE_UP, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the result is not needed
        }
    }
}

/// State of the thread.
struct LiveCheck {
    order: Arc<AtomicU8>,
    stops: bool,
    stop: Stop,
    began: Instant,
    /// The next search begins no earlier than this.
    search_from: Instant,
    sighting: Option<Sighting>,
}

impl LiveCheck {
    fn follow(&mut self, mut follower: Follower<'_>) -> Result<Vec<Verdict>, String> {
        loop {
            let order = self.order.load(Ordering::Acquire);
            if order == GIVE_UP {
                return Ok(Vec::new());
            }
            let is_new = follower.advance().map_err(|error| error_chain(&error))?;
            self.search(&mut follower)?;
            if is_new {
                continue;
            }
            if order == FINISH {
                let answer = follower.finish(&Unwatched);
                let verdicts = answer.map(|answer| answer.verdicts);
                return verdicts.map_err(|error| error_chain(&*error));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Searches for a definite violation, unless one was found, or the last search was too recent.
    fn search(&mut self, follower: &mut Follower<'_>) -> Result<(), String> {
        let began = Instant::now();
        if self.sighting.is_some() || began < self.search_from {
            return Ok(());
        }
        let found = follower.look().map_err(|error| error_chain(&*error))?;
        self.search_from = Instant::now() + began.elapsed() * SEARCH_PAUSE_FACTOR;
        if let Some((checker, finding)) = found.into_iter().next() {
            let stopped = self.stops && self.stop.request_first();
            self.sighting = Some(Sighting {
                at: Time::ZERO + self.began.elapsed(),
                checker,
                finding,
                stopped,
            });
        }
        Ok(())
    }
}
