//! Locks.

use super::keys::{KeyOptions, RotatingKeys, keyed};
use crate::{Context, Generator, Next, Thread, Tree};
use seatrial_history::{Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Each process acquires a lock and, when that has succeeded, releases it, and goes on to a lock that is drawn anew; a
/// failed acquisition is not tried again, a failed release a few times. `depth` acquisitions in a row, as many releases
/// after them: 1 for locks that are not reentrant.
///
/// A lock is kept for a while (uniform between nothing and four times as long as its acquisition took): who released it at
/// once would hold it for certain at no time at all, and nobody could be caught in it together with him.
///
/// An acquisition or a release that crashed may leave its lock held for ever. So after a crash a lock is given up, and a
/// fresh one takes its place, as soon as [`REFUSALS_MAX`] acquisitions in a row have failed: long enough for a system that
/// takes locks away from the dead, soon enough for the others to have something to do. Jepsen's tests of locks, with keys.
///
/// Its downside: while the thread that is drawn keeps its lock, the other free threads are looked at one by one.
#[derive(Debug)]
pub struct Locks {
    rng: Rng,
    /// How long locks are kept.
    pauses: Rng,
    /// How many nanoseconds an acquisition takes as a rule; 0 before the first.
    usual: i64,
    keys: RotatingKeys,
    depth: u32,
    /// What each process that has begun is at.
    holds: BTreeMap<Thread, Hold>,
    /// Locks that somebody crashed with, and how often in a row they could not be acquired since.
    doubtful: BTreeMap<i64, u32>,
    /// The lock that the next process without one acquires.
    drawn: Option<i64>,
    answered: Option<(Thread, Hold)>,
}

/// A lock that somebody crashed with is given up after so many failed acquisitions in a row.
pub const REFUSALS_MAX: u32 = 8;

/// A release that failed so often in a row is not tried again.
const RELEASES_MAX: u32 = 3;

const ACQUIRE: Symbol = Symbol::new("acquire");
const RELEASE: Symbol = Symbol::new("release");

#[derive(Clone, Copy, Debug)]
struct Hold {
    process: Process,
    key: i64,
    acquired: u32,
    is_releasing: bool,
    /// Releases that failed, in a row.
    failed: u32,
    /// When the last operation began, and when the next may.
    begun: i64,
    due: i64,
}

/// Endless operations on locks.
pub fn locks(rng: Rng, options: KeyOptions, depth: u32) -> Locks {
    Locks {
        pauses: rng.fork("pauses"),
        usual: 0,
        rng,
        keys: RotatingKeys::new(options),
        depth: depth.max(1),
        holds: BTreeMap::new(),
        doubtful: BTreeMap::new(),
        drawn: None,
        answered: None,
    }
}

impl Locks {
    /// A free thread that has something to do now, the drawn one if it has; otherwise the one that has first. With the time.
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
        let behind = context.free_threads().filter(|thread| *thread > drawn);
        let threads = behind.chain(context.free_threads());
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

    /// Until when a lock is kept that was acquired now, in so many nanoseconds.
    fn keep_until(&mut self, now: i64, took: i64) -> i64 {
        let usual = if self.usual == 0 { took } else { self.usual };
        // One that waited for a node to wake up must not stop everybody for as long.
        let took = took.min(usual.saturating_mul(2));
        self.usual = usual + (took - usual) / 8;
        let longest = Duration::from_nanos(u64::try_from(took).unwrap_or(0)) * 4;
        let pause = self.pauses.duration_below(longest).as_nanos();
        now.saturating_add(pause as i64)
    }

    /// An acquisition of this lock ended.
    fn acquired(&mut self, key: i64, succeeded: bool) {
        if succeeded {
            self.doubtful.remove(&key);
        } else if let Some(refusals) = self.doubtful.get_mut(&key) {
            *refusals += 1;
            if *refusals >= REFUSALS_MAX {
                self.doubtful.remove(&key);
                self.keys.retire(key);
            }
        }
    }
}

impl Generator for Locks {
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
        self.answered = Some((thread, hold));
        let f = if hold.is_releasing { RELEASE } else { ACQUIRE };
        let op = context.operation_by(process, f, keyed(hold.key, Value::Nil));
        Next::Op(Op { time, ..op })
    }

    fn commit(&mut self) {
        if let Some((thread, hold)) = self.answered.take() {
            let known = self.holds.insert(thread, hold);
            if known.is_none_or(|known| known.process != hold.process) {
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
                let took = event.time.saturating_sub(hold.begun);
                hold.due = self.keep_until(event.time, took);
                self.acquired(hold.key, true);
            }
            (OpType::Fail, false) => {
                hold.is_releasing = hold.acquired > 0;
                self.acquired(hold.key, false);
            }
            (OpType::Ok, true) => {
                hold.acquired -= 1;
                hold.failed = 0;
            }
            (OpType::Fail, true) if hold.failed + 1 < RELEASES_MAX => hold.failed += 1,
            _ => {
                hold.acquired = 0;
                self.doubtful.retain(|key, _| self.keys.has(*key));
                self.doubtful.entry(hold.key).or_default();
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
    use crate::{Answer, Interpreter, InterpreterOptions, Simulation};
    use seatrial_history::{History, Key};
    use std::collections::BTreeSet;

    /// A service whose locks stay held when their holders crash.
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
            Answer::After(latency, kind, op.value.clone())
        };
        let options = InterpreterOptions::new(6, Rng::from_seed(3));
        let interpreter = Interpreter::new(generator, &options);
        Simulation::new(interpreter, client).run().unwrap()
    }

    #[test]
    fn who_acquires_a_lock_releases_it() {
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
    fn a_lock_is_kept_for_a_while() {
        let history = run(1, u64::MAX);
        let mut begun: BTreeMap<Process, i64> = BTreeMap::new();
        let (mut acquiring, mut kept, mut count) = (0, 0, 0);
        for op in &history {
            let last = begun.insert(op.process, op.time).unwrap_or(0);
            match (op.kind, op.f.as_str()) {
                (OpType::Ok, "acquire") => acquiring += op.time - last,
                (OpType::Invoke, "release") => {
                    kept += op.time - last;
                    count += 1;
                }
                _ => {}
            }
        }
        let ratio = kept as f64 / acquiring as f64;
        assert!(count > 500 && (1.6..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn locks_of_the_dead_are_left_alone_in_time() {
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
