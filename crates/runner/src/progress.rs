//! Progress of a running test: counters, phases, and the thread that reports them.

use seatrial_history::OpType;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Receives the progress of a test: a few times per second and once at the end, on a thread of its own, so that a slow observer
/// delays nothing.
pub trait Observer: Send + Sync {
    /// Receives the present progress.
    fn progress(&self, progress: &TestProgress);

    /// Receives a message of the generator for the user.
    fn message(&self, _text: &str) {}
}

impl<F: Fn(&TestProgress) + Send + Sync> Observer for F {
    fn progress(&self, progress: &TestProgress) {
        self(progress);
    }
}

/// Phase of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nodes start and form a system.
    Starting,
    /// Operations and faults are executed.
    Running,
    /// No further operation begins; the ones under way complete.
    Draining,
    /// Faults are healed, nodes stop, the history is sealed.
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

/// A snapshot of a running test.
#[derive(Clone, Debug)]
pub struct TestProgress {
    /// Its phase.
    pub phase: Phase,
    /// Time since the first operation could begin; zero before.
    pub elapsed: Duration,
    /// Client operations so far.
    pub counts: OperationCounts,
    /// Client operations completed per second since the last snapshot.
    pub rate: f64,
    /// Faults in force, as text.
    pub faults: Vec<String>,
    /// Faults begun so far.
    pub faults_total: u64,
    /// Nodes that exited by themselves so far.
    pub deaths: u64,
}

/// Numbers of client operations by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Operations invoked.
    pub invoked: u64,
    /// Completions `ok`: the operation took place.
    pub ok: u64,
    /// Completions `fail`: the operation did not take place.
    pub fail: u64,
    /// Completions `info`: the outcome is unknown.
    pub info: u64,
}

impl OperationCounts {
    /// Completed operations, of any type.
    pub const fn completed(&self) -> u64 {
        self.ok + self.fail + self.info
    }
}

/// Shared counters of a running test. Each counter has a single writer, so plain loads and stores are enough.
#[derive(Debug)]
pub(crate) struct ProgressState {
    phase: AtomicU8,
    invoked: AtomicU64,
    ok: AtomicU64,
    fail: AtomicU64,
    info: AtomicU64,
    faults_total: AtomicU64,
    deaths: AtomicU64,
    faults: Mutex<Vec<String>>,
    /// Messages not yet passed to the observer.
    messages: Mutex<Vec<String>>,
    began: Mutex<Option<Instant>>,
}

impl Default for ProgressState {
    fn default() -> ProgressState {
        ProgressState {
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

/// Adds to a counter that only the caller writes: cheaper than an atomic addition.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgressState {
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, now: Instant) {
        *locked(&self.began) = Some(now);
    }

    /// Counts an invocation or a completion of a client.
    pub(crate) fn count(&self, kind: OpType) {
        let counter = match kind {
            OpType::Invoke => &self.invoked,
            OpType::Ok => &self.ok,
            OpType::Fail => &self.fail,
            OpType::Info => &self.info,
        };
        add(counter, 1);
    }

    pub(crate) fn count_deaths(&self, count: u64) {
        add(&self.deaths, count);
    }

    /// Replaces the faults in force, and adds `begun` to the number of faults begun.
    pub(crate) fn set_faults(&self, faults: Vec<String>, begun: u64) {
        add(&self.faults_total, begun);
        *locked(&self.faults) = faults;
    }

    /// Queues a message for the observer; further ones are dropped once [`MESSAGES_MAX`] wait.
    pub(crate) fn push_message(&self, message: String) {
        let mut messages = locked(&self.messages);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
    }

    pub(crate) fn counts(&self) -> OperationCounts {
        OperationCounts {
            invoked: self.invoked.load(Ordering::Relaxed),
            ok: self.ok.load(Ordering::Relaxed),
            fail: self.fail.load(Ordering::Relaxed),
            info: self.info.load(Ordering::Relaxed),
        }
    }

    fn snapshot(&self) -> TestProgress {
        let phase = Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed))];
        let began = *locked(&self.began);
        TestProgress {
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

/// Maximum number of messages that wait for the observer.
const MESSAGES_MAX: usize = 1000;
/// Interval between two calls of the observer.
const INTERVAL: Duration = Duration::from_millis(200);

/// The thread that calls the observer. When this is dropped it calls it once more and ends.
#[derive(Debug)]
pub(crate) struct Ticker {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(state: Arc<ProgressState>, observer: Arc<dyn Observer>) -> Ticker {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&over);
        let report = move || {
            let (mut last, mut completed) = (Instant::now(), 0);
            loop {
                let guard = locked(&signal.0);
                let wait = signal.1.wait_timeout_while(guard, INTERVAL, |over| !*over);
                let over = *wait.unwrap_or_else(PoisonError::into_inner).0;
                let mut progress = state.snapshot();
                let total = progress.counts.completed();
                progress.rate = (total - completed) as f64 / last.elapsed().as_secs_f64();
                (last, completed) = (Instant::now(), total);
                for message in std::mem::take(&mut *locked(&state.messages)) {
                    observer.message(&message);
                }
                observer.progress(&progress);
                if over {
                    return;
                }
            }
        };
        // Without the thread the test runs without progress.
        let thread = thread::Builder::new().name("progress".into()).spawn(report);
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
            let _ = thread.join(); // a panic of the observer does not fail the test
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_sees_the_last_state() {
        let progress = Arc::new(ProgressState::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let observer = move |progress: &TestProgress| locked(&sink).push(progress.clone());
        let ticker = Ticker::start(Arc::clone(&progress), Arc::new(observer));
        progress.set_phase(Phase::Running);
        progress.begin(Instant::now());
        progress.count(OpType::Invoke);
        progress.count(OpType::Ok);
        progress.set_faults(vec!["n1 is paused".into()], 1);
        drop(ticker);
        let seen = locked(&seen);
        let last = seen.last().unwrap();
        assert_eq!(last.phase, Phase::Running);
        assert_eq!((last.counts.invoked, last.counts.completed()), (1, 1));
        assert_eq!(last.faults, ["n1 is paused"]);
        assert!(last.rate > 0.0);
    }
}
