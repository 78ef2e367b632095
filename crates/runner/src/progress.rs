//! How far a test is.

use seatrial_history::OpType;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Watches a test. Called a few times per second and once in the end, from a thread of its own: a slow observer
/// delays nobody.
pub trait Observer: Send + Sync {
    /// How far the test is now.
    fn progress(&self, progress: &Progress);

    /// The generator has a message for the person at the test.
    fn message(&self, _text: &str) {}
}

impl<F: Fn(&Progress) + Send + Sync> Observer for F {
    fn progress(&self, progress: &Progress) {
        self(progress);
    }
}

/// What a test is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nodes start and find together.
    Starting,
    /// Operations and faults.
    Running,
    /// Operations under way complete.
    Draining,
    /// Faults are healed, nodes end, the history is sealed.
    Ending,
    /// Checkers read the history.
    Checking,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Starting,
        Phase::Running,
        Phase::Draining,
        Phase::Ending,
        Phase::Checking,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Draining => "draining",
            Phase::Ending => "ending",
            Phase::Checking => "checking",
        })
    }
}

/// One look at a running test.
#[derive(Clone, Debug)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Since the first operation could begin; zero before.
    pub elapsed: Duration,
    /// What clients did so far.
    pub counts: Counts,
    /// Client operations completed per second, since the last look.
    pub rate: f64,
    /// Faults in force, in words.
    pub faults: Vec<String>,
    /// Faults begun so far.
    pub faults_total: u64,
    /// Nodes that ended by themselves so far.
    pub deaths: u64,
}

/// What clients did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations begun.
    pub invoked: u64,
    /// Operations that took place.
    pub ok: u64,
    /// Operations that certainly did not.
    pub fail: u64,
    /// Operations of which nobody knows.
    pub info: u64,
}

impl Counts {
    /// Operations that have ended.
    pub const fn completed(&self) -> u64 {
        self.ok + self.fail + self.info
    }
}

/// Where the parts of a running test write how far they are. Each figure has one writer.
#[derive(Debug)]
pub(crate) struct Board {
    phase: AtomicU8,
    invoked: AtomicU64,
    ok: AtomicU64,
    fail: AtomicU64,
    info: AtomicU64,
    faults_total: AtomicU64,
    deaths: AtomicU64,
    faults: Mutex<Vec<String>>,
    /// Messages that the observer has not seen yet.
    messages: Mutex<Vec<String>>,
    began: Mutex<Option<Instant>>,
}

impl Default for Board {
    fn default() -> Board {
        Board {
            phase: AtomicU8::new(0),
            invoked: AtomicU64::new(0),
            ok: AtomicU64::new(0),
            fail: AtomicU64::new(0),
            info: AtomicU64::new(0),
            faults_total: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
            faults: Mutex::default(),
            messages: Mutex::default(),
            began: Mutex::default(),
        }
    }
}

/// Adds to a figure that only the caller writes: cheaper than an atomic addition.
fn add(figure: &AtomicU64, count: u64) {
    figure.store(figure.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, now: Instant) {
        *locked(&self.began) = Some(now);
    }

    /// Counts one half of a client operation.
    pub(crate) fn count(&self, kind: OpType) {
        let figure = match kind {
            OpType::Invoke => &self.invoked,
            OpType::Ok => &self.ok,
            OpType::Fail => &self.fail,
            OpType::Info => &self.info,
        };
        add(figure, 1);
    }

    pub(crate) fn count_deaths(&self, count: u64) {
        add(&self.deaths, count);
    }

    /// Says which faults are in force, and that another has begun.
    pub(crate) fn set_faults(&self, faults: Vec<String>, begun: u64) {
        add(&self.faults_total, begun);
        *locked(&self.faults) = faults;
    }

    /// Leaves a message for the observer; the last are dropped when there are too many.
    pub(crate) fn say(&self, message: String) {
        let mut messages = locked(&self.messages);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            invoked: self.invoked.load(Ordering::Relaxed),
            ok: self.ok.load(Ordering::Relaxed),
            fail: self.fail.load(Ordering::Relaxed),
            info: self.info.load(Ordering::Relaxed),
        }
    }

    fn look(&self) -> Progress {
        let phase = Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))];
        let began = *locked(&self.began);
        Progress {
            phase,
            elapsed: began.map_or(Duration::ZERO, |began| began.elapsed()),
            counts: self.counts(),
            rate: 0.0,
            faults: locked(&self.faults).clone(),
            faults_total: self.faults_total.load(Ordering::Relaxed),
            deaths: self.deaths.load(Ordering::Relaxed),
        }
    }
}

/// Messages that may wait for the observer.
const MESSAGES_MAX: usize = 1000;
/// How often the observer is told.
const INTERVAL: Duration = Duration::from_millis(200);

/// The thread that tells the observer. Ends, after a last look, when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(board: Arc<Board>, observer: Arc<dyn Observer>) -> Ticker {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&over);
        let tell = move || {
            let (mut last, mut completed) = (Instant::now(), 0);
            loop {
                let guard = locked(&signal.0);
                let wait = signal.1.wait_timeout_while(guard, INTERVAL, |over| !*over);
                let over = *wait.unwrap_or_else(PoisonError::into_inner).0;
                let mut progress = board.look();
                let total = progress.counts.completed();
                progress.rate = (total - completed) as f64 / last.elapsed().as_secs_f64();
                (last, completed) = (Instant::now(), total);
                for message in std::mem::take(&mut *locked(&board.messages)) {
                    observer.message(&message);
                }
                observer.progress(&progress);
                if over {
                    return;
                }
            }
        };
        // A test without progress is better than none: no thread, no word.
        let thread = thread::Builder::new().name("progress".into()).spawn(tell);
        Ticker {
            over,
            thread: thread.ok(),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *locked(&self.over.0) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // an observer that panics harms nobody but itself
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_sees_the_last_state() {
        let board = Arc::new(Board::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let observer = move |progress: &Progress| locked(&sink).push(progress.clone());
        let ticker = Ticker::start(Arc::clone(&board), Arc::new(observer));
        board.set_phase(Phase::Running);
        board.begin(Instant::now());
        board.count(OpType::Invoke);
        board.count(OpType::Ok);
        board.set_faults(vec!["n1 is paused".into()], 1);
        drop(ticker);
        let seen = locked(&seen);
        let last = seen.last().unwrap();
        assert_eq!(last.phase, Phase::Running);
        assert_eq!((last.counts.invoked, last.counts.completed()), (1, 1));
        assert_eq!(last.faults, ["n1 is paused"]);
        assert!(last.rate > 0.0);
    }
}
