//! Registers and sets, each key an object of its own.

use super::keys::LiveKeys;
use super::options::{Isolation, Options, Workload};
use super::step::{Plan, Step};
use super::store::{LAG_COMMITS_MAX, Store};
use seatrial_history::{Key, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// What an operation does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    /// Writes a register, or adds to a set.
    Write(i64),
    Cas(i64, i64),
}

/// A client's operation.
#[derive(Debug)]
struct Running {
    slot: u32,
    key: i64,
    action: Action,
    result: Value,
    /// The last commit that the client saw or made.
    seen: u64,
}

/// A store of independent registers or sets. Writes take place one after another; reads are served by the store, or
/// by a replica that lags behind.
///
/// Its downside: a set is read as a whole, so the cost of a read grows with the writes per key.
#[derive(Debug)]
pub(super) struct Objects {
    is_set: bool,
    isolation: Isolation,
    pub(super) store: Store,
    keys: LiveKeys,
    running: Vec<Running>,
    /// By slot the key and the version of it that was read last; all reads of that version share it.
    sets: Vec<(i64, Arc<[Value]>)>,
}

impl Objects {
    pub(super) fn new(options: &Options, rng: &mut Rng) -> Objects {
        let mut store = Store::default();
        let keys = LiveKeys::new(options, &mut store, rng);
        let running = (0..options.concurrency).map(|_| Running {
            slot: 0,
            key: 0,
            action: Action::Read,
            result: Value::Nil,
            seen: 0,
        });
        Objects {
            is_set: options.workload == Workload::Set,
            isolation: options.store(),
            store,
            keys,
            running: running.collect(),
            sets: Vec::new(),
        }
    }

    /// A client's next operation: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, rng: &mut Rng) -> (Symbol, Value) {
        let choice = rng.below(if self.is_set { 6 } else { 10 });
        let (live, written) = self.keys.draw(&mut self.store, choice >= 3, rng);
        let slot = live.slot;
        let action = match written {
            None => Action::Read,
            Some(value) if choice < 7 => Action::Write(value),
            Some(value) => {
                let elements = &self.store.at(slot).elements;
                let now = elements.last().copied().unwrap_or_default();
                let expected = if rng.below(2) == 0 { now } else { now - 1 };
                Action::Cas(expected.max(0), value)
            }
        };
        let key = self.store.take(slot);
        let running = &mut self.running[client as usize];
        (running.slot, running.key, running.action) = (slot, key, action);
        let f = match action {
            Action::Read => "read",
            Action::Write(_) if self.is_set => "add",
            Action::Write(_) => "write",
            Action::Cas(..) => "cas",
        };
        (Symbol::new(f), self.invoked(client))
    }

    fn keyed(key: i64, value: Value) -> Value {
        Value::Keyed(Key::Int(key), Arc::new(value))
    }

    /// The value of a completion that is not `ok`: as it was invoked.
    pub(super) fn invoked(&self, client: u32) -> Value {
        let running = &self.running[client as usize];
        let value = match running.action {
            Action::Read => Value::Nil,
            Action::Write(value) => Value::Int(value),
            Action::Cas(from, to) => Value::Cas(from, to),
        };
        Objects::keyed(running.key, value)
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        let running = &mut self.running[client as usize];
        if running.action != Action::Read {
            return self.invoked(client);
        }
        Objects::keyed(running.key, std::mem::take(&mut running.result))
    }

    /// A client's operation takes place.
    pub(super) fn step(&mut self, client: u32, plan: Plan, rng: &mut Rng) -> Step {
        let kind = if plan == Plan::Abort {
            OpType::Fail
        } else {
            self.run(client, rng)
        };
        self.end(client);
        Step::Done(kind)
    }

    fn run(&mut self, client: u32, rng: &mut Rng) -> OpType {
        let now = self.store.commits;
        let Running {
            slot, action, seen, ..
        } = self.running[client as usize];
        let (kind, seen) = match action {
            Action::Read => {
                let snapshot = self.snapshot(seen, rng);
                self.running[client as usize].result = self.read(slot, snapshot);
                (OpType::Ok, snapshot)
            }
            Action::Cas(from, _) if self.store.at(slot).elements.last() != Some(&from) => {
                (OpType::Fail, now)
            }
            Action::Write(value) | Action::Cas(_, value) => {
                self.store.commits = now + 1;
                self.store.at_mut(slot).push(value, now + 1);
                (OpType::Ok, now + 1)
            }
        };
        self.running[client as usize].seen = seen;
        kind
    }

    /// The last commit that a read sees.
    fn snapshot(&self, seen: u64, rng: &mut Rng) -> u64 {
        let now = self.store.commits;
        if self.isolation == Isolation::Linearizable || rng.below(2) == 0 {
            return now;
        }
        let snapshot = now.saturating_sub(rng.below(LAG_COMMITS_MAX + 1));
        match self.isolation {
            Isolation::Sequential => snapshot.max(seen),
            _ => snapshot,
        }
    }

    fn read(&mut self, slot: u32, snapshot: u64) -> Value {
        let versions = self.store.at(slot);
        let length = versions.length_at(snapshot);
        let elements = &versions.elements[..length];
        if !self.is_set {
            let last = elements.last().copied();
            return last.map_or(Value::Nil, Value::Int);
        }
        if self.sets.len() <= slot as usize {
            let empty = (versions.key, Arc::from([]));
            self.sets.resize(slot as usize + 1, empty);
        }
        let (key, shared) = &mut self.sets[slot as usize];
        if *key != versions.key || shared.len() != length {
            *key = versions.key;
            *shared = elements.iter().copied().map(Value::Int).collect();
        }
        Value::Set(shared.clone())
    }

    /// The client's operation needs the store no more.
    pub(super) fn end(&mut self, client: u32) {
        self.store.release(self.running[client as usize].slot);
    }
}
