//! The workload `log`: sends to logs and polls of them, by assignment, as in Jepsen's test of Kafka.

use super::rotating_keys::{KeyOptions, RotatingKeys};
use crate::{Context, Generator, Next, Thread, Tree};
use seatrial_history::{Extra, Key, LogMop, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of logs, and the shape of operations.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The logs in use; a log is replaced by a fresh one after its maximum number of messages.
    pub keys: KeyOptions,
    /// Maximum number of sends and polls of an operation. With more than one, an operation may contain both.
    pub length_max: u32,
    /// One operation in this many is an `assign`; at least two.
    pub assign_every: u64,
}

/// Jepsen's defaults, with fewer and longer logs: up to four sends and polls, and one assignment in 16 operations.
impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            keys: KeyOptions {
                writes_per_key: 1_024,
                ..KeyOptions::default()
            },
            length_max: 4,
            assign_every: 16,
        }
    }
}

/// The highest offset of each log that an operation has sent or polled.
type HighestOffsets = Arc<Mutex<BTreeMap<Key, i64>>>;

/// Sends of fresh values (1, 2, 3, … for each log), polls, and operations with both; see [`logs`].
#[derive(Debug)]
pub struct LogWorkload {
    rng: Rng,
    options: LogOptions,
    keys: RotatingKeys,
    /// The logs used most recently, the latest at the end; at most as many as are in use at a time.
    recent: Vec<i64>,
    /// By thread: its process, if that was assigned logs.
    assigned: BTreeMap<Thread, Process>,
    /// Logs with messages that no operation has polled: the highest offsets sent and polled (-1 for none).
    unpolled: BTreeMap<Key, (i64, i64)>,
    /// Shared with [`FinalPolls`].
    highest: HighestOffsets,
    /// The next operation, of any process; kept until it is committed.
    drawn: Option<(&'static str, Value)>,
    /// Set when the operation returned last is the first assignment of a process.
    first_assignment: Option<(Thread, Process)>,
}

/// Endless operations on logs, and the final generator.
///
/// A process is assigned logs before its first operation, and again at random: the logs used most recently, and one time in
/// three also the logs with messages that no operation has polled.
///
/// In the final phase one client polls each log from its beginning, until it has polled every offset that any operation has
/// sent or polled, or until [`POLLS_MAX`] polls in a row returned nothing new.
pub fn logs(rng: Rng, options: LogOptions) -> (LogWorkload, FinalPolls) {
    let highest = HighestOffsets::default();
    let polls = FinalPolls {
        highest: Arc::clone(&highest),
        targets: None,
        poller: None,
        empty_polls: 0,
    };
    let logs = LogWorkload {
        rng,
        keys: RotatingKeys::new(options.keys),
        options,
        recent: Vec::new(),
        assigned: BTreeMap::new(),
        unpolled: BTreeMap::new(),
        highest,
        drawn: None,
        first_assignment: None,
    };
    (logs, polls)
}

/// Final polls in a row that may return nothing new before polling ends.
pub const POLLS_MAX: u32 = 100;

/// The highest offsets that an operation sent and polled, by log; -1 for an unknown offset.
fn highest(op: &Op) -> (BTreeMap<Key, i64>, BTreeMap<Key, i64>) {
    let (mut sent, mut polled) = (BTreeMap::new(), BTreeMap::new());
    let raise = |all: &mut BTreeMap<Key, i64>, key: &Key, offset: i64| {
        let known = all.entry(key.clone()).or_insert(-1);
        *known = offset.max(*known);
    };
    for mop in op.value.as_log().unwrap_or_default() {
        match mop {
            LogMop::Send { key, offset, .. } => raise(&mut sent, &key, offset.unwrap_or(-1)),
            LogMop::Poll { messages } => {
                for (key, messages) in messages.unwrap_or_default() {
                    let offsets = messages.iter().map(|one| one.0);
                    raise(&mut polled, &key, offsets.max().unwrap_or(-1));
                }
            }
        }
    }
    (sent, polled)
}

/// Raises the highest offsets to these, where they are higher.
fn raise<'a>(highest: &HighestOffsets, offsets: impl Iterator<Item = (&'a Key, &'a i64)>) {
    let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
    for (key, &offset) in offsets {
        let known = highest.entry(key.clone()).or_insert(-1);
        *known = offset.max(*known);
    }
}

/// The value of an assignment of these logs.
fn assignment(keys: impl IntoIterator<Item = Key>) -> Value {
    Value::List(keys.into_iter().map(|key| Value::from(&key)).collect())
}

impl LogWorkload {
    /// The logs used most recently; at least one.
    fn recent_keys(&mut self) -> BTreeSet<Key> {
        if self.recent.is_empty() {
            self.recent.push(self.keys.read(&mut self.rng));
        }
        self.recent.iter().map(|&key| Key::Int(key)).collect()
    }

    /// Draws an operation: its `f` and value.
    fn draw(&mut self) -> (&'static str, Value) {
        if self.rng.below(self.options.assign_every.max(2)) == 0 {
            let mut keys = self.recent_keys();
            if self.rng.below(3) == 0 {
                keys.extend(self.unpolled.keys().cloned());
            }
            return ("assign", assignment(keys));
        }
        let count = 1 + self.rng.below(self.options.length_max.max(1).into());
        let mut mops = Vec::new();
        for _ in 0..count {
            if self.rng.below(2) == 0 {
                mops.push(LogMop::Poll { messages: None });
                continue;
            }
            let (key, number) = self.keys.write(&mut self.rng);
            self.recent.retain(|&other| other != key);
            self.recent.push(key);
            if self.recent.len() > self.options.keys.count.max(1) {
                self.recent.remove(0);
            }
            mops.push(LogMop::Send {
                key: Key::Int(key),
                offset: None,
                value: number.into(),
            });
        }
        let polls = mops.iter().filter(|mop| matches!(mop, LogMop::Poll { .. }));
        let f = match polls.count() {
            0 => "send",
            polls if polls == mops.len() => "poll",
            _ => "txn",
        };
        (f, Value::log(&mops))
    }
}

impl Generator for LogWorkload {
    fn next(&mut self, context: &Context) -> Next {
        let Some(thread) = context.some_free_thread() else {
            return Next::Pending;
        };
        let process = context.process_of(thread);
        self.first_assignment = None;
        if self.assigned.get(&thread) != Some(&process) {
            self.first_assignment = Some((thread, process));
            let keys = assignment(self.recent_keys());
            return Next::Op(context.operation_by(process, Symbol::new("assign"), keys));
        }
        if self.drawn.is_none() {
            self.drawn = Some(self.draw());
        }
        match &self.drawn {
            Some((f, value)) => {
                Next::Op(context.operation_by(process, Symbol::new(f), value.clone()))
            }
            None => Next::Pending,
        }
    }

    fn commit(&mut self) {
        match self.first_assignment.take() {
            Some((thread, process)) => _ = self.assigned.insert(thread, process),
            None => self.drawn = None,
        }
    }

    fn tree(&self) -> Tree {
        Tree::leaf(format!("logs, {} so far", self.keys.used()))
    }

    fn update(&mut self, _: &Context, event: &Op) {
        if event.kind != OpType::Ok {
            return;
        }
        let (sent, polled) = highest(event);
        if sent.is_empty() && polled.is_empty() {
            return;
        }
        raise(&self.highest, sent.iter().chain(&polled));
        for (key, offset) in sent {
            let known = self.unpolled.entry(key).or_insert((-1, -1));
            known.0 = offset.max(known.0);
        }
        for (key, offset) in polled {
            if let Some(known) = self.unpolled.get_mut(&key) {
                known.1 = offset.max(known.1);
            }
        }
        self.unpolled.retain(|_, (sent, polled)| polled < sent);
    }
}

/// The final generator of [`logs`]: one process polls all logs from their beginnings.
#[derive(Debug)]
pub struct FinalPolls {
    highest: HighestOffsets,
    /// The offsets still to be polled; `None` before the first call of `next`.
    targets: Option<BTreeMap<Key, i64>>,
    /// The polling process, and its phase.
    poller: Option<(Process, PollPhase)>,
    /// Polls in a row that returned nothing new.
    empty_polls: u32,
}

/// The phases of the final poller, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollPhase {
    /// It is assigned no logs, so that a poll of smaller offsets is no anomaly.
    Leaving,
    /// It is assigned all logs, from their beginnings.
    Joining,
    /// It polls.
    Polling,
}

impl Generator for FinalPolls {
    fn next(&mut self, context: &Context) -> Next {
        let targets = self.targets.get_or_insert_with(|| {
            let highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
            highest.clone()
        });
        if targets.is_empty() || self.empty_polls > POLLS_MAX {
            return Next::Exhausted;
        }
        let process = match self.poller {
            Some((process, _)) => process,
            None => match context.some_free_process() {
                Some(process) => process,
                None => return Next::Pending,
            },
        };
        let is_free = |process| {
            context
                .thread_of(process)
                .is_some_and(|thread| context.is_free(thread))
        };
        if !is_free(process) {
            return Next::Pending;
        }
        let phase = self.poller.map_or(PollPhase::Leaving, |(_, phase)| phase);
        self.poller = Some((process, phase));
        if phase == PollPhase::Polling {
            let poll = Value::log(&[LogMop::Poll { messages: None }]);
            return Next::Op(context.operation_by(process, Symbol::new("poll"), poll));
        }
        let assign = Symbol::new("assign");
        if phase == PollPhase::Leaving {
            return Next::Op(context.operation_by(process, assign, assignment([])));
        }
        let keys = assignment(targets.keys().cloned());
        let mut op = context.operation_by(process, assign, keys);
        let seek = Symbol::new("seek-to-beginning?");
        op.extra = Extra::new(&[(seek, Value::Bool(true))]);
        Next::Op(op)
    }

    fn commit(&mut self) {}

    fn tree(&self) -> Tree {
        let left = self.targets.as_ref().map_or(0, BTreeMap::len);
        Tree::leaf(format!("last polls, {left} logs left"))
    }

    fn update(&mut self, _: &Context, event: &Op) {
        // Operations that were still open when `LogWorkload` ended complete here only.
        if self.targets.is_none() && event.is_ok() {
            let (sent, polled) = highest(event);
            raise(&self.highest, sent.iter().chain(&polled));
        }
        let is_own = self
            .poller
            .is_some_and(|(process, _)| process == event.process);
        if !is_own || event.kind == OpType::Invoke {
            return;
        }
        let (Some(targets), Some((_, phase))) = (&mut self.targets, &mut self.poller) else {
            return;
        };
        self.empty_polls += 1;
        if event.kind == OpType::Info {
            // The process crashed; another one begins again.
            self.poller = None;
        } else if event.f == "assign" {
            *phase = match *phase {
                PollPhase::Leaving if event.is_ok() => PollPhase::Joining,
                PollPhase::Joining if event.is_ok() => PollPhase::Polling,
                phase => phase,
            };
        } else if event.kind == OpType::Ok {
            for (key, offset) in highest(event).1 {
                if offset >= 0 {
                    self.empty_polls = 0;
                }
                if targets.get(&key).is_some_and(|target| *target <= offset) {
                    targets.remove(&key);
                }
            }
        }
    }
}
