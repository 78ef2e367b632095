//! A store of registers or sets: each key is an independent object.

use super::database_options::{DatabaseOptions, DatabaseWorkload, StoreLevel};
use super::live_keys::LiveKeys;
use super::step::{OperationFate, StepResult};
use super::version_store::{LAG_COMMITS_MAX, VersionStore};
use seatrial_history::{Key, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// The action of an operation on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectAction {
    Read,
    /// A write of a register, or an addition to a set.
    Write(i64),
    Cas(i64, i64),
}

/// The open operation of a client.
#[derive(Debug)]
struct OpenOp {
    slot: u32,
    key: i64,
    action: ObjectAction,
    result: Value,
    /// The last commit that the client observed or made.
    seen: u64,
}

/// A store of independent registers or sets. Writes take place one after another; reads are served by the store, or by a
/// lagging replica.
///
/// A read returns a whole set, so its cost is linear in the writes per key.
#[derive(Debug)]
pub(super) struct ObjectStore {
    is_set: bool,
    isolation: StoreLevel,
    pub(super) store: VersionStore,
    keys: LiveKeys,
    running: Vec<OpenOp>,
    /// By slot: the key, and the version of it that was read last; all reads of one version share its allocation.
    sets: Vec<(i64, Arc<[Value]>)>,
}

impl ObjectStore {
    pub(super) fn new(options: &DatabaseOptions, rng: &mut Rng) -> ObjectStore {
        let mut store = VersionStore::default();
        let keys = LiveKeys::new(options, &mut store, rng);
        let running = (0..options.concurrency).map(|_| OpenOp {
            slot: 0,
            key: 0,
            action: ObjectAction::Read,
            result: Value::Nil,
            seen: 0,
        });
        ObjectStore {
            is_set: options.workload == DatabaseWorkload::Set,
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
            None => ObjectAction::Read,
            Some(value) if choice < 7 => ObjectAction::Write(value),
            Some(value) => {
                let elements = &self.store.at(slot).elements;
                let now = elements.last().copied().unwrap_or_default();
                let expected = if rng.below(2) == 0 { now } else { now - 1 };
                ObjectAction::Cas(expected.max(0), value)
            }
        };
        let key = self.store.take(slot);
        let running = &mut self.running[client as usize];
        (running.slot, running.key, running.action) = (slot, key, action);
        let f = match action {
            ObjectAction::Read => "read",
            ObjectAction::Write(_) if self.is_set => "add",
            ObjectAction::Write(_) => "write",
            ObjectAction::Cas(..) => "cas",
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
            ObjectAction::Read => Value::Nil,
            ObjectAction::Write(value) => Value::Int(value),
            ObjectAction::Cas(from, to) => Value::Cas(from, to),
        };
        ObjectStore::keyed(running.key, value)
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        let running = &mut self.running[client as usize];
        if running.action != ObjectAction::Read {
            return self.invoked(client);
        }
        ObjectStore::keyed(running.key, std::mem::take(&mut running.result))
    }

    /// Carries out a client's operation, in one step.
    pub(super) fn step(&mut self, client: u32, fate: OperationFate, rng: &mut Rng) -> StepResult {
        let kind = if fate == OperationFate::Abort {
            OpType::Fail
        } else {
            self.run(client, rng)
        };
        self.end(client);
        StepResult::Done(kind)
    }

    fn run(&mut self, client: u32, rng: &mut Rng) -> OpType {
        let now = self.store.commits;
        let OpenOp {
            slot, action, seen, ..
        } = self.running[client as usize];
        let (kind, seen) = match action {
            ObjectAction::Read => {
                let snapshot = self.snapshot(seen, rng);
                self.running[client as usize].result = self.read(slot, snapshot);
                (OpType::Ok, snapshot)
            }
            ObjectAction::Cas(from, _) if self.store.at(slot).elements.last() != Some(&from) => {
                (OpType::Fail, now)
            }
            ObjectAction::Write(value) | ObjectAction::Cas(_, value) => {
                self.store.commits = now + 1;
                self.store.at_mut(slot).push(value, now + 1);
                (OpType::Ok, now + 1)
            }
        };
        self.running[client as usize].seen = seen;
        kind
    }

    /// The last commit in the snapshot of a read.
    fn snapshot(&self, seen: u64, rng: &mut Rng) -> u64 {
        let now = self.store.commits;
        if self.isolation == StoreLevel::Linearizable || rng.below(2) == 0 {
            return now;
        }
        let snapshot = now.saturating_sub(rng.below(LAG_COMMITS_MAX + 1));
        match self.isolation {
            StoreLevel::Sequential => snapshot.max(seen),
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

    /// Releases the key of a client's operation.
    pub(super) fn end(&mut self, client: u32) {
        self.store.release(self.running[client as usize].slot);
    }
}
