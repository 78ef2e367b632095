//! Logs that are sent to and polled.

use super::keys::{KeyOptions, RotatingKeys};
use crate::{Context, Generator, Next, Thread, Tree};
use seatrial_history::{Extra, Key, LogMop, Op, OpType, Process, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// How logs are used.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The logs in use; one gives its place to a fresh one after so many messages.
    pub keys: KeyOptions,
    /// Sends and polls of an operation, at most. With more than one, operations may do both.
    pub length_max: u32,
    /// How often an operation is an `assign` in place of sends and polls: one time in so many, at least two.
    pub assign_every: u64,
}

/// Jepsen's, with fewer and longer logs: up to four sends and polls, and now and then an assignment.
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

/// The highest offset of each log that anybody is known to have sent or polled.
type Heights = Arc<Mutex<BTreeMap<Key, i64>>>;

/// Sends of fresh values (1, 2, 3, … for each log), polls, and mixes of both; see [`logs`].
#[derive(Debug)]
pub struct Logs {
    rng: Rng,
    options: LogOptions,
    keys: RotatingKeys,
    /// The logs that were used lately, the last one at the end; as many as are in use at a time.
    recent: Vec<i64>,
    /// Processes that have logs to poll; those of threads that run now.
    assigned: BTreeMap<Thread, Process>,
    /// Logs with the highest offsets that were sent and, if any was, polled, while the first is the higher one.
    unseen: BTreeMap<Key, (i64, i64)>,
    heights: Heights,
    /// What comes next, whoever is free.
    drawn: Option<(&'static str, Value)>,
    /// Who was answered an assignment because it had none.
    joining: Option<(Thread, Process)>,
}

/// Endless operations on logs, and the generator for the end, when all is healed: one client begins from the beginning
/// of each log and polls until it has seen all offsets that any operation had seen, or [`POLLS_MAX`] polls in a row
/// brought nothing new.
///
/// A process is assigned logs before it does anything else, and again now and then: those that were used lately, and one time
/// in three those of which something was sent that nobody has polled yet. Jepsen's workload for Kafka, by `assign`.
pub fn logs(rng: Rng, options: LogOptions) -> (Logs, LastPolls) {
    let heights = Heights::default();
    let last = LastPolls {
        heights: Arc::clone(&heights),
        targets: None,
        poller: None,
        fruitless: 0,
    };
    let logs = Logs {
        rng,
        keys: RotatingKeys::new(options.keys),
        options,
        recent: Vec::new(),
        assigned: BTreeMap::new(),
        unseen: BTreeMap::new(),
        heights,
        drawn: None,
        joining: None,
    };
    (logs, last)
}

/// Polls at the end that may bring nothing new before it is given up.
pub const POLLS_MAX: u32 = 100;

/// What an operation sent and polled at most, by log.
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

/// Takes note of offsets.
fn raise<'a>(heights: &Heights, offsets: impl Iterator<Item = (&'a Key, &'a i64)>) {
    let mut heights = heights.lock().unwrap_or_else(PoisonError::into_inner);
    for (key, &offset) in offsets {
        let known = heights.entry(key.clone()).or_insert(-1);
        *known = offset.max(*known);
    }
}

/// The value of an assignment of these logs.
fn listed(keys: impl IntoIterator<Item = Key>) -> Value {
    Value::List(keys.into_iter().map(|key| Value::from(&key)).collect())
}

impl Logs {
    /// The logs that were used lately.
    fn lately(&mut self) -> BTreeSet<Key> {
        if self.recent.is_empty() {
            self.recent.push(self.keys.read(&mut self.rng));
        }
        self.recent.iter().map(|&key| Key::Int(key)).collect()
    }

    /// Draws an operation.
    fn draw(&mut self) -> (&'static str, Value) {
        if self.rng.below(self.options.assign_every.max(2)) == 0 {
            let mut keys = self.lately();
            if self.rng.below(3) == 0 {
                keys.extend(self.unseen.keys().cloned());
            }
            return ("assign", listed(keys));
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

impl Generator for Logs {
    fn next(&mut self, context: &Context) -> Next {
        let Some(thread) = context.some_free_thread() else {
            return Next::Pending;
        };
        let process = context.process_of(thread);
        self.joining = None;
        if self.assigned.get(&thread) != Some(&process) {
            self.joining = Some((thread, process));
            let keys = listed(self.lately());
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
        match self.joining.take() {
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
        raise(&self.heights, sent.iter().chain(&polled));
        for (key, offset) in sent {
            let known = self.unseen.entry(key).or_insert((-1, -1));
            known.0 = offset.max(known.0);
        }
        for (key, offset) in polled {
            if let Some(known) = self.unseen.get_mut(&key) {
                known.1 = offset.max(known.1);
            }
        }
        self.unseen.retain(|_, (sent, polled)| polled < sent);
    }
}

/// The end of [`logs`].
#[derive(Debug)]
pub struct LastPolls {
    heights: Heights,
    /// What is still to be seen, from when the polls begin.
    targets: Option<BTreeMap<Key, i64>>,
    /// Who polls, and how far it is.
    poller: Option<(Process, Stage)>,
    /// Polls in a row that brought nothing new.
    fruitless: u32,
}

/// How far the last poller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It gives up the logs that it has polled so far: what it polls next comes before what it has seen.
    Leaving,
    /// It is assigned all logs from their beginnings.
    Joining,
    Polling,
}

impl Generator for LastPolls {
    fn next(&mut self, context: &Context) -> Next {
        let targets = self.targets.get_or_insert_with(|| {
            let heights = self.heights.lock().unwrap_or_else(PoisonError::into_inner);
            heights.clone()
        });
        if targets.is_empty() || self.fruitless > POLLS_MAX {
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
        let stage = self.poller.map_or(Stage::Leaving, |(_, stage)| stage);
        self.poller = Some((process, stage));
        if stage == Stage::Polling {
            let poll = Value::log(&[LogMop::Poll { messages: None }]);
            return Next::Op(context.operation_by(process, Symbol::new("poll"), poll));
        }
        let assign = Symbol::new("assign");
        if stage == Stage::Leaving {
            return Next::Op(context.operation_by(process, assign, listed([])));
        }
        let keys = listed(targets.keys().cloned());
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
        // Operations that were under way when the others had ended are shown to this one alone.
        if self.targets.is_none() && event.is_ok() {
            let (sent, polled) = highest(event);
            raise(&self.heights, sent.iter().chain(&polled));
        }
        let is_own = self
            .poller
            .is_some_and(|(process, _)| process == event.process);
        if !is_own || event.kind == OpType::Invoke {
            return;
        }
        let (Some(targets), Some((_, stage))) = (&mut self.targets, &mut self.poller) else {
            return;
        };
        self.fruitless += 1;
        if event.kind == OpType::Info {
            // The process is gone.
            self.poller = None;
        } else if event.f == "assign" {
            *stage = match *stage {
                Stage::Leaving if event.is_ok() => Stage::Joining,
                Stage::Joining if event.is_ok() => Stage::Polling,
                stage => stage,
            };
        } else if event.kind == OpType::Ok {
            for (key, offset) in highest(event).1 {
                if offset >= 0 {
                    self.fruitless = 0;
                }
                if targets.get(&key).is_some_and(|target| *target <= offset) {
                    targets.remove(&key);
                }
            }
        }
    }
}
