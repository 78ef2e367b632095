//! Judging beside the test.

use crate::Stop;
use crate::recorder::in_words;
use seatrial_check::{Follower, Unwatched};
use seatrial_checker::{Aims, Checker, Finding, Verdict};
use seatrial_machine::Time;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Checkers that run beside the test; none by default.
#[derive(Default)]
pub struct Watch {
    /// They see the history as it is written. In the end their verdicts take the place of those of the test's checkers of
    /// the same names, unless those prove theirs.
    pub checkers: Vec<Box<dyn Checker>>,
    /// Does the first violation end the test, as a stop request does?
    pub stops: bool,
}

/// The first violation that was seen while the test ran.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// When it was seen.
    pub at: Time,
    /// Who saw it.
    pub checker: &'static str,
    /// What it is. Nothing that comes later takes it back.
    pub finding: Finding,
    /// Was the test ended for that?
    pub stopped: bool,
}

impl Sighting {
    /// As results have it: when, who, what, by which operations, and whether the test was ended for that.
    pub fn json(&self) -> Json {
        json!({
            "seconds": self.at.seconds(),
            "checker": self.checker,
            "anomaly": self.finding.anomaly,
            "operations": self.finding.operations,
            "stopped": self.stopped,
        })
    }

    /// A sentence for people.
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
            "; the test was ended early for that"
        } else {
            ""
        };
        format!(
            "{checker} saw {} {at} after the test began (operations {}{more}){end}",
            self.finding.anomaly,
            operations.join(", ")
        )
    }
}

/// Operations that are named in one line.
const NAMED_MAX: usize = 8;

/// What the judges leave behind.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sighting: Option<Sighting>,
    /// Why there is no verdict of theirs, in words.
    pub(crate) error: Option<String>,
}

/// How often the file is looked at while nothing comes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Looking for violations takes at most this part of the time: once, then so many times as long nothing.
const LOOK_SHARE: u32 = 8;
/// Threads that read the history again when something is to be told.
const THREADS: usize = 1;
/// The judges take the processor only when nobody else wants it as much.
const NICENESS: i32 = 10;

const WATCH: u8 = 0;
/// The history is sealed: judge to its end.
const FINISH: u8 = 1;
/// Nobody wants to know any more.
const GIVE_UP: u8 = 2;

/// The thread that has the history judged while it is written.
///
/// It reads the test file behind its writer: nothing is handed over, so nobody who runs the test ever waits for it, however
/// far it is behind. It runs at a low priority. Its downside: on a machine that is busy with the test a violation is seen
/// late, and the rest is judged after the end, as without it.
pub(crate) struct Watcher {
    order: Arc<AtomicU8>,
    thread: Option<JoinHandle<Watched>>,
}

impl Watcher {
    /// Begins to watch the test file at `path`, which is there, of a test that began at `began`.
    pub(crate) fn start(
        path: PathBuf,
        watch: Watch,
        stop: Stop,
        began: Instant,
    ) -> std::io::Result<Watcher> {
        let order = Arc::new(AtomicU8::new(WATCH));
        let orders = Arc::clone(&order);
        let watching = move || {
            let _ = rustix::process::nice(NICENESS); // of this thread; without it goes as well
            let mut watching = Watching {
                order: orders,
                stops: watch.stops,
                stop,
                began,
                look_from: began,
                sighting: None,
            };
            let aims = Aims::default();
            let follower = Follower::open(&path, &watch.checkers, &aims, THREADS);
            let judged = follower
                .map_err(|error| in_words(&error))
                .and_then(|follower| watching.judge(follower));
            let (verdicts, error) = match judged {
                Ok(verdicts) => (verdicts, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            Watched {
                verdicts,
                sighting: watching.sighting,
                error,
            }
        };
        let thread = thread::Builder::new()
            .name("judges".into())
            .spawn(watching)?;
        Ok(Watcher {
            order,
            thread: Some(thread),
        })
    }

    /// What they say of the whole history, which is sealed now.
    pub(crate) fn finish(mut self) -> Watched {
        self.order.store(FINISH, Ordering::Release);
        let joined = self.thread.take().map(JoinHandle::join);
        match joined {
            Some(Ok(watched)) => watched,
            _ => Watched {
                error: Some("the checker's thread panicked".into()),
                ..Watched::default()
            },
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.order.store(GIVE_UP, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // whatever it says, nobody asks
        }
    }
}

/// What the thread knows.
struct Watching {
    order: Arc<AtomicU8>,
    stops: bool,
    stop: Stop,
    began: Instant,
    /// No look before this.
    look_from: Instant,
    sighting: Option<Sighting>,
}

impl Watching {
    fn judge(&mut self, mut follower: Follower) -> Result<Vec<Verdict>, String> {
        loop {
            let order = self.order.load(Ordering::Acquire);
            if order == GIVE_UP {
                return Ok(Vec::new());
            }
            let is_new = follower.advance().map_err(|error| in_words(&error))?;
            self.look(&mut follower)?;
            if is_new {
                continue;
            }
            if order == FINISH {
                let answer = follower.finish(&Unwatched);
                let verdicts = answer.map(|answer| answer.verdicts);
                return verdicts.map_err(|error| in_words(&*error));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Looks for a violation, unless one was seen or that was done just now.
    fn look(&mut self, follower: &mut Follower) -> Result<(), String> {
        let began = Instant::now();
        if self.sighting.is_some() || began < self.look_from {
            return Ok(());
        }
        let found = follower.look().map_err(|error| in_words(&*error))?;
        self.look_from = Instant::now() + began.elapsed() * LOOK_SHARE;
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
