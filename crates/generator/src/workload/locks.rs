//! The workloads `mutex` and `lock`: acquisitions and releases by the same process.

use super::rotating_keys::{KeyOptions, RotatingKeys, keyed};
use crate::{Context, Generator, Next, Thread, Tree};
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Jepsen's tests of locks, with keys. Each process acquires a lock and, if that succeeds, releases it, then continues with
/// a newly drawn lock. A failed acquisition is not retried, a failed release a few times. `depth` acquisitions in a row are
/// followed by as many releases: 1 for locks that are not reentrant.
///
/// ```text
///   process 0   acquire k ──ok──┤ hold ├── release k ──ok── acquire j …
///   process 1        acquire k ─────────────fail── acquire m …
/// ```
///
/// A lock is held for a random time, uniform up to four times the latency of its acquisition. A process that released at
/// once would definitely hold the lock at no instant, and no second holder could ever be proven.
///
/// An acquisition or release that crashed may leave its lock held forever. So after a crash a lock is abandoned, and
/// replaced by a fresh one, once [`REFUSALS_MAX`] acquisitions in a row have failed: late enough for a system that revokes
/// locks of dead processes, early enough to keep the others working.
///
/// Cost: O(1) per operation, but O(threads) while the drawn thread holds its lock.
#[derive(Debug)]
pub struct LockWorkload {
    rng: Rng,
    /// Draws the times for which locks are held.
    pauses: Rng,
    /// Moving average of the latency of acquisitions in nanoseconds; 0 before the first.
    mean_latency: i64,
    keys: RotatingKeys,
    depth: u32,
    /// By thread: the lock that its process acquires, holds or releases.
    holds: BTreeMap<Thread, Hold>,
    /// Locks whose holder may have crashed, each with the number of failed acquisitions in a row since.
    suspects: BTreeMap<i64, u32>,
    /// The lock for the next process without one.
    drawn: Option<i64>,
    /// The operation returned last.
    proposed: Option<(Thread, Hold)>,
}

/// Failed acquisitions in a row after which a lock whose holder may have crashed is abandoned.
pub const REFUSALS_MAX: u32 = 8;

/// Attempts of a release.
const RELEASES_MAX: u32 = 3;

const ACQUIRE: Symbol = Symbol::new("acquire");
const RELEASE: Symbol = Symbol::new("release");

/// The lock of one process.
#[derive(Clone, Copy, Debug)]
struct Hold {
    process: Process,
    key: i64,
    /// Acquisitions that are not released yet.
    acquired: u32,
    is_releasing: bool,
    /// Failed releases in a row.
    failed: u32,
    /// When the last operation began.
    begun: i64,
    /// When the next operation may begin.
    due: i64,
}

/// Endless acquisitions and releases of locks; see [`LockWorkload`].
pub fn locks(rng: Rng, options: KeyOptions, depth: u32) -> LockWorkload {
    LockWorkload {
        pauses: rng.fork("pauses"),
        mean_latency: 0,
        rng,
        keys: RotatingKeys::new(options),
        depth: depth.max(1),
        holds: BTreeMap::new(),
        suspects: BTreeMap::new(),
        drawn: None,
        proposed: None,
    }
}

impl LockWorkload {
    /// The free thread that is due first, with the time; of those due now the drawn one, if it is.
    fn choose(&self, context: &Context) -> Option<(Thread, i64)> {
        let due = |thread: Thread| {
            let hold = self.holds.get(&thread);
            let hold = hold.filter(|hold| hold.process == context.process_of(thread));
            hold.map_or(0, |hold| hold.due)
        };
        let now = context.time().nanoseconds() as i64;
        let drawn = context.some_free_thread()?;
        if due(drawn) <= now {
            return Some((drawn, now));
        }
        // From the drawn thread on and around, so that no thread is preferred.
        let after = context.free_threads().filter(|thread| *thread > drawn);
        let threads = after.chain(context.free_threads());
        let mut best: Option<(Thread, i64)> = None;
        for thread in threads {
            let due = due(thread).max(now);
            if best.is_none_or(|(_, earliest)| due < earliest) {
                best = Some((thread, due));
                if due == now {
                    break;
                }
            }
        }
        best
    }

    /// The time at which to release a lock that was acquired at `now` with this latency, all in nanoseconds.
    fn release_time(&mut self, now: i64, latency: i64) -> i64 {
        let mean = match self.mean_latency {
            0 => latency,
            mean => mean,
        };
        // An acquisition that waited for a paused node must not block all other processes for as long.
        let latency = latency.min(mean.saturating_mul(2));
        self.mean_latency = mean + (latency - mean) / 8;
        let longest = Duration::from_nanos(u64::try_from(latency).unwrap_or(0)) * 4;
        let pause = self.pauses.duration_below(longest).as_nanos();
        now.saturating_add(pause as i64)
    }

    /// Handles the definite outcome of an acquisition.
    fn on_acquire(&mut self, key: i64, succeeded: bool) {
        if succeeded {
            self.suspects.remove(&key);
        } else if let Some(refusals) = self.suspects.get_mut(&key) {
            *refusals += 1;
            if *refusals >= REFUSALS_MAX {
                self.suspects.remove(&key);
                self.keys.retire(key);
            }
        }
    }
}

impl Generator for LockWorkload {
    fn next(&mut self, context: &Context) -> Next {
        let Some((thread, time)) = self.choose(context) else {
            return Next::Pending;
        };
        let process = context.process_of(thread);
        let known = self.holds.get(&thread);
        let known = known.filter(|hold| hold.process == process).copied();
        let hold = known.unwrap_or_else(|| Hold {
            process,
            key: *self
                .drawn
                .get_or_insert_with(|| self.keys.write(&mut self.rng).0),
            acquired: 0,
            is_releasing: false,
            failed: 0,
            begun: 0,
            due: 0,
        });
        self.proposed = Some((thread, hold));
        let f = if hold.is_releasing { RELEASE } else { ACQUIRE };
        let op = context.operation_by(process, f, keyed(hold.key, Value::Nil));
        Next::Op(Op { time, ..op })
    }

    fn commit(&mut self) {
        if let Some((thread, hold)) = self.proposed.take() {
            let known = self.holds.insert(thread, hold);
            if known.is_none_or(|known| known.process != hold.process) {
                // The process had no lock: it took the drawn one.
                self.drawn = None;
            }
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        let Some(thread) = context.thread_of(event.process) else {
            return;
        };
        if event.is_invoke() {
            if let Some(hold) = self.holds.get_mut(&thread) {
                hold.begun = event.time;
            }
            return;
        }
        let Some(mut hold) = self.holds.remove(&thread) else {
            return;
        };
        match (event.kind, hold.is_releasing) {
            (OpType::Ok, false) => {
                hold.acquired += 1;
                hold.is_releasing = hold.acquired == self.depth;
                let latency = event.time.saturating_sub(hold.begun);
                hold.due = self.release_time(event.time, latency);
                self.on_acquire(hold.key, true);
            }
            (OpType::Fail, false) => {
                hold.is_releasing = hold.acquired > 0;
                self.on_acquire(hold.key, false);
            }
            (OpType::Ok, true) => {
                hold.acquired -= 1;
                hold.failed = 0;
            }
            (OpType::Fail, true) if hold.failed + 1 < RELEASES_MAX => hold.failed += 1,
            // A crash, or a release that failed too often: the lock may stay held.
            _ => {
                hold.acquired = 0;
                self.suspects.retain(|key, _| self.keys.has(*key));
                self.suspects.entry(hold.key).or_default();
            }
        }
        if hold.acquired > 0 {
            self.holds.insert(thread, hold);
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf(format!("locks, {} so far", self.keys.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interpreter, InterpreterOptions, SimulatedReply, Simulation};
    use seatrial_history::{History, Key};
    use std::collections::BTreeSet;

    /// The history of a service whose locks stay held when their holders crash.
    fn run(depth: u32, crash_every: u64) -> History {
        let generator = locks(Rng::from_seed(1), KeyOptions::default(), depth);
        let generator = generator.clients().limit(5_000);
        let mut rng = Rng::from_seed(2);
        let mut held: BTreeMap<Key, (Process, u32)> = BTreeMap::new();
        let client = move |op: &Op| {
            let Value::Keyed(key, _) = &op.value else {
                panic!("{op}")
            };
            let latency = rng.duration_below(Duration::from_millis(3));
            let kind = match held.get_mut(key) {
                _ if rng.below(crash_every) == 0 => OpType::Info,
                None if op.f == "acquire" => {
                    held.insert(key.clone(), (op.process, 1));
                    OpType::Ok
                }
                Some((owner, count)) if *owner == op.process => {
                    if op.f == "acquire" {
                        *count += 1;
                    } else {
                        *count -= 1;
                    }
                    if *count == 0 {
                        held.remove(key);
                    }
                    OpType::Ok
                }
                _ => OpType::Fail,
            };
            SimulatedReply::After(latency, kind, op.value.clone())
        };
        let options = InterpreterOptions::new(6, Rng::from_seed(3));
        let interpreter = Interpreter::new(generator, &options);
        Simulation::new(interpreter, client).run().unwrap()
    }

    #[test]
    fn every_acquisition_is_followed_by_a_release() {
        for depth in [1, 2] {
            let mut held: BTreeMap<Process, u32> = BTreeMap::new();
            for op in &run(depth, u64::MAX) {
                let count = held.entry(op.process).or_default();
                match (op.kind, op.f.as_str()) {
                    (OpType::Ok, "acquire") => *count += 1,
                    (OpType::Ok, _) => *count -= 1,
                    (OpType::Invoke, "acquire") => assert!(*count < depth, "{op}"),
                    (OpType::Invoke, _) => assert!(*count > 0, "{op}"),
                    (kind, f) => assert!(kind == OpType::Fail && f == "acquire", "{op}"),
                }
            }
        }
    }

    #[test]
    fn locks_are_held_for_a_multiple_of_the_latency() {
        let history = run(1, u64::MAX);
        let mut begun: BTreeMap<Process, i64> = BTreeMap::new();
        let (mut acquiring, mut holding, mut count) = (0, 0, 0);
        for op in &history {
            let last = begun.insert(op.process, op.time).unwrap_or(0);
            match (op.kind, op.f.as_str()) {
                (OpType::Ok, "acquire") => acquiring += op.time - last,
                (OpType::Invoke, "release") => {
                    holding += op.time - last;
                    count += 1;
                }
                _ => {}
            }
        }
        let ratio = holding as f64 / acquiring as f64;
        assert!(count > 500 && (1.6..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn locks_of_crashed_processes_are_abandoned() {
        let history = run(1, 30);
        let ended = |f: &str, kind: OpType| {
            let ops = history.iter();
            ops.filter(|op| op.f == f && op.kind == kind).count()
        };
        let crashes = ended("acquire", OpType::Info) + ended("release", OpType::Info);
        assert!(crashes > 100, "{crashes}");
        assert!(ended("acquire", OpType::Ok) > 1_000);
        let keys: BTreeSet<String> = history.iter().map(|op| op.value.to_string()).collect();
        assert!(keys.len() > 40, "{} locks", keys.len());
    }
}
