//! A store of linearizable objects: sets, logs, block devices, registers, semaphores, locks.

use super::database_options::{DatabaseOptions, DatabaseWorkload};
use super::step::{OperationFate, StepResult};
use seatrial_generator::Places;
use seatrial_history::{Key, OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Permits of each semaphore.
pub(super) const PERMITS: i64 = 3;
/// Blocks of each device.
const BLOCKS: u64 = 8;
/// Registers of each object of several.
const REGISTERS: u64 = 3;

/// What an operation does to its object.
#[derive(Clone, Debug, PartialEq)]
enum TypedAction {
    Add(i64),
    Remove(i64),
    Contains(i64),
    ReadSet,
    Append(i64),
    /// The value at an offset.
    ReadAt(i64),
    ReadLog,
    /// The first block, and what is written to it and those after it.
    WriteBlocks(i64, Vec<i64>),
    /// The first block, and how many.
    ReadBlocks(i64, i64),
    /// Registers with what is written to them.
    WriteRegisters(Vec<(i64, i64)>),
    ReadRegisters(Vec<i64>),
    /// A number of permits.
    Acquire(i64),
    Release(i64),
    Lock,
    Unlock,
}

/// One object.
#[derive(Debug, Default)]
struct TypedObject {
    elements: BTreeSet<i64>,
    log: Vec<i64>,
    /// Blocks, or registers.
    cells: BTreeMap<i64, i64>,
    /// Permits that are taken; of a lock, whether it is held.
    taken: i64,
    fence: i64,
    /// Open operations and holds of permits and locks: it is kept until there are none.
    users: u32,
}

/// The open operation of a client, and what it holds.
#[derive(Debug)]
struct TypedOperation {
    key: i64,
    action: TypedAction,
    result: Value,
    /// The object, and the number of permits, that it releases next.
    holds: Option<(i64, i64)>,
}

/// An object in use.
#[derive(Clone, Copy, Debug)]
struct TypedKey {
    key: i64,
    /// Number of operations drawn, and after how many it is replaced.
    used: u32,
    limit: u32,
}

/// A store of independent objects of one data type. An operation takes place at one instant, in one step, so the store is
/// linearizable. An acquisition of what is not free fails; one whose reply is lost is never released, and its object is
/// replaced as all are: after as many operations as a key has writes.
///
/// Half of the sets only grow and are read as a whole; the other half have removals, and reads of single elements. Operations on
/// several blocks or registers are only on each fourth object, the less likely ones: a checker has to search these.
#[derive(Debug)]
pub(super) struct TypedStore {
    workload: DatabaseWorkload,
    objects: BTreeMap<i64, TypedObject>,
    live: Vec<TypedKey>,
    places: Places,
    limits: RangeInclusive<u32>,
    next_key: i64,
    running: Vec<TypedOperation>,
}

impl TypedStore {
    pub(super) fn new(options: &DatabaseOptions, rng: &mut Rng) -> TypedStore {
        let running = (0..options.concurrency).map(|_| TypedOperation {
            key: 0,
            action: TypedAction::ReadSet,
            result: Value::Nil,
            holds: None,
        });
        let mut store = TypedStore {
            workload: options.workload,
            objects: BTreeMap::new(),
            live: Vec::new(),
            places: Places::new(options.keys as usize, options.distribution),
            limits: options.writes_per_key.clone(),
            next_key: 0,
            running: running.collect(),
        };
        for _ in 0..options.keys {
            let key = store.fresh(rng);
            store.live.push(key);
        }
        store
    }

    fn fresh(&mut self, rng: &mut Rng) -> TypedKey {
        let (low, high) = (*self.limits.start(), *self.limits.end());
        TypedKey {
            key: self.foreign_key(),
            used: 0,
            limit: low + rng.below(u64::from(high - low) + 1) as u32,
        }
    }

    /// A key that no client uses.
    pub(super) fn foreign_key(&mut self) -> i64 {
        self.next_key += 1;
        self.next_key - 1
    }

    /// Does a client hold a lock or permits, which its next operation releases?
    pub(super) fn is_holding(&self, client: u32) -> bool {
        self.running[client as usize].holds.is_some()
    }

    /// A client's next operation: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, rng: &mut Rng) -> (Symbol, Value) {
        let held = self.running[client as usize].holds.take();
        let (key, action) = match held {
            Some((key, 0)) => (key, TypedAction::Unlock),
            Some((key, permits)) => (key, TypedAction::Release(permits)),
            None => {
                let place = self.places.draw(rng);
                if self.live[place].used >= self.live[place].limit {
                    self.live[place] = self.fresh(rng);
                }
                let live = &mut self.live[place];
                live.used += 1;
                let live = *live;
                self.objects.entry(live.key).or_default().users += 1;
                (live.key, self.draw(live, place, rng))
            }
        };
        let f = match action {
            TypedAction::Add(_) => "add",
            TypedAction::Remove(_) => "remove",
            TypedAction::Contains(_) => "contains",
            TypedAction::Append(_) => "append",
            TypedAction::WriteBlocks(..) | TypedAction::WriteRegisters(_) => "write",
            TypedAction::Acquire(_) | TypedAction::Lock => "acquire",
            TypedAction::Release(_) | TypedAction::Unlock => "release",
            _ => "read",
        };
        let running = &mut self.running[client as usize];
        (running.key, running.action) = (key, action);
        (Symbol::new(f), self.invoked(client))
    }

    /// An operation on the object at a place; what it writes is unique for the object.
    fn draw(&self, live: TypedKey, place: usize, rng: &mut Rng) -> TypedAction {
        let unique = i64::from(live.used);
        let below = |rng: &mut Rng, count: u64| rng.below(count).cast_signed();
        let choice = rng.below(8);
        let spans = place % 4 == 3 && choice.is_multiple_of(4);
        match self.workload {
            DatabaseWorkload::LinearizableSet if live.key % 2 == 0 => match choice {
                0..5 => TypedAction::Add(unique),
                _ => TypedAction::ReadSet,
            },
            DatabaseWorkload::LinearizableSet => {
                let element = 1 + below(rng, u64::from(live.used));
                match choice {
                    0..4 => TypedAction::Add(unique),
                    4..6 => TypedAction::Remove(element),
                    _ => TypedAction::Contains(element),
                }
            }
            DatabaseWorkload::AppendLog => match choice {
                0..4 => TypedAction::Append(unique),
                4..7 => TypedAction::ReadAt(below(rng, u64::from(live.used))),
                _ => TypedAction::ReadLog,
            },
            DatabaseWorkload::BlockDevice => {
                let count = if spans { 2 } else { 1 };
                let first = below(rng, BLOCKS - 1);
                if choice < 4 {
                    let contents = (0..count).map(|place| 2 * unique + place);
                    TypedAction::WriteBlocks(first, contents.collect())
                } else {
                    TypedAction::ReadBlocks(first, count)
                }
            }
            DatabaseWorkload::MultiRegister => {
                let first = below(rng, REGISTERS);
                let mut registers = vec![first];
                if spans {
                    registers.push((first + 1) % REGISTERS.cast_signed());
                }
                if choice < 4 {
                    let writes = registers.into_iter().map(|register| (register, unique));
                    TypedAction::WriteRegisters(writes.collect())
                } else {
                    TypedAction::ReadRegisters(registers)
                }
            }
            DatabaseWorkload::Semaphore => TypedAction::Acquire(1 + below(rng, 2)),
            _ => TypedAction::Lock,
        }
    }

    /// The value of a completion that is not `ok`: as it was invoked.
    pub(super) fn invoked(&self, client: u32) -> Value {
        let running = &self.running[client as usize];
        keyed(running.key, invoked(&running.action))
    }

    /// The value of an `ok` completion; the client knows now what it holds.
    pub(super) fn result(&mut self, client: u32) -> Value {
        let running = &mut self.running[client as usize];
        let permits = match running.action {
            TypedAction::Acquire(permits) => Some(permits),
            TypedAction::Lock => Some(0),
            _ => None,
        };
        if let Some(permits) = permits {
            running.holds = Some((running.key, permits));
        }
        keyed(running.key, std::mem::take(&mut running.result))
    }

    /// Carries out a client's operation, in one step.
    pub(super) fn step(&mut self, client: u32, fate: OperationFate) -> StepResult {
        let running = &mut self.running[client as usize];
        let is_aborted = fate == OperationFate::Abort;
        let object = self.objects.entry(running.key).or_default();
        let result = (!is_aborted).then(|| object.run(&running.action)).flatten();
        let Some(result) = result else {
            // A client whose release failed tries again, and holds the object until then.
            running.holds = match running.action {
                TypedAction::Release(permits) => Some((running.key, permits)),
                TypedAction::Unlock => Some((running.key, 0)),
                _ => None,
            };
            if running.holds.is_none() {
                self.end(client);
            }
            return StepResult::Done(OpType::Fail);
        };
        running.result = result;
        let acquires = matches!(running.action, TypedAction::Acquire(_) | TypedAction::Lock);
        // A hold uses the object, until the release; one that the client does not learn of ends now.
        if !acquires || fate != OperationFate::Complete {
            self.end(client);
        }
        StepResult::Done(OpType::Ok)
    }

    /// A client's operation, or its hold, ends. Its object is dropped if it is not in use any more.
    pub(super) fn end(&mut self, client: u32) {
        let key = self.running[client as usize].key;
        let Some(object) = self.objects.get_mut(&key) else {
            return;
        };
        object.users = object.users.saturating_sub(1);
        if object.users == 0 && !self.live.iter().any(|live| live.key == key) {
            self.objects.remove(&key);
        }
    }
}

fn keyed(key: i64, value: Value) -> Value {
    Value::Keyed(Key::Int(key), Arc::new(value))
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::List(items.into_iter().collect())
}

fn integers(items: &[i64]) -> Value {
    list(items.iter().copied().map(Value::Int))
}

/// The value of an invocation.
fn invoked(action: &TypedAction) -> Value {
    match action {
        TypedAction::Add(one)
        | TypedAction::Remove(one)
        | TypedAction::Contains(one)
        | TypedAction::Append(one)
        | TypedAction::ReadAt(one)
        | TypedAction::Acquire(one)
        | TypedAction::Release(one) => Value::Int(*one),
        TypedAction::ReadSet | TypedAction::ReadLog | TypedAction::Lock | TypedAction::Unlock => {
            Value::Nil
        }
        TypedAction::WriteBlocks(first, contents) => list([Value::Int(*first), integers(contents)]),
        TypedAction::ReadBlocks(first, count) => integers(&[*first, *count]),
        TypedAction::WriteRegisters(writes) => {
            let pairs = writes.iter();
            let pairs = pairs.map(|&(register, value)| (Value::Int(register), Value::Int(value)));
            Value::Map(pairs.collect())
        }
        TypedAction::ReadRegisters(registers) => {
            let pairs = registers.iter();
            Value::Map(
                pairs
                    .map(|&register| (Value::Int(register), Value::Nil))
                    .collect(),
            )
        }
    }
}

impl TypedObject {
    /// The result of an operation; `None` if it cannot take place.
    fn run(&mut self, action: &TypedAction) -> Option<Value> {
        Some(match action {
            TypedAction::Add(element) => Value::Bool(self.elements.insert(*element)),
            TypedAction::Remove(element) => Value::Bool(self.elements.remove(element)),
            TypedAction::Contains(element) => Value::Bool(self.elements.contains(element)),
            TypedAction::ReadSet => {
                Value::Set(self.elements.iter().copied().map(Value::Int).collect())
            }
            TypedAction::Append(value) => {
                self.log.push(*value);
                integers(&[self.log.len() as i64 - 1, *value])
            }
            TypedAction::ReadAt(offset) => {
                let value = usize::try_from(*offset).ok();
                let value = value.and_then(|offset| self.log.get(offset).copied());
                list([Value::Int(*offset), value.map_or(Value::Nil, Value::Int)])
            }
            TypedAction::ReadLog => integers(&self.log),
            TypedAction::WriteBlocks(first, contents) => {
                self.cells.extend((*first..).zip(contents.iter().copied()));
                invoked(action)
            }
            TypedAction::ReadBlocks(first, count) => {
                let blocks = *first..first + count;
                let contents = blocks.map(|block| self.cells.get(&block).copied().unwrap_or(0));
                let contents: Vec<i64> = contents.collect();
                list([Value::Int(*first), integers(&contents)])
            }
            TypedAction::WriteRegisters(writes) => {
                self.cells.extend(writes.iter().copied());
                invoked(action)
            }
            TypedAction::ReadRegisters(registers) => {
                let read = registers.iter().map(|register| {
                    let value = self.cells.get(register).copied();
                    (Value::Int(*register), value.map_or(Value::Nil, Value::Int))
                });
                Value::Map(read.collect())
            }
            TypedAction::Acquire(permits) => {
                let taken = self.taken + permits;
                if taken > PERMITS {
                    return None;
                }
                self.taken = taken;
                invoked(action)
            }
            TypedAction::Release(permits) => {
                self.taken -= permits;
                invoked(action)
            }
            TypedAction::Lock => {
                if self.taken > 0 {
                    return None;
                }
                self.taken = 1;
                self.fence += 1;
                Value::Int(self.fence)
            }
            TypedAction::Unlock => {
                self.taken = 0;
                Value::Nil
            }
        })
    }
}
