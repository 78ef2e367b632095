//! Sequential models of data types, written plainly: what an operation does to its object.

use super::operation_table::{OperationRow, OperationTable, OperationValue};
use std::collections::{BTreeMap, VecDeque};

/// A data type, by the name of its checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinearModel {
    Register,
    CasRegister,
    Mutex,
    KeyValue,
    FifoQueue,
    Stack,
    PriorityQueue,
    Bag,
    Deque,
    Counter,
}

/// An end of a collection. Queues are added to at the back and taken from at the front, stacks both at the back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EndOfCollection {
    Front,
    Back,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationEffect {
    /// A read of unknown result.
    Nothing,
    Read(OperationValue),
    /// A read of a map that finds no text under the key.
    ReadAbsent,
    Write(OperationValue),
    /// Writes a map's key.
    Replace(OperationValue),
    Cas(OperationValue, OperationValue),
    /// Adds this text.
    Append(OperationValue),
    /// Adds this integer.
    Add(i64),
    Put(EndOfCollection, OperationValue),
    /// Removes this element; nil: finds nothing; `None`: whatever is there.
    Take(EndOfCollection, Option<OperationValue>),
    Peek(EndOfCollection, OperationValue),
}

use EndOfCollection::{Back, Front};
use OperationEffect as Effect;

/// The value of a mutex that is held; a free one has nil.
const HELD: OperationValue = OperationValue::Int(1);

impl LinearModel {
    /// The model of this name.
    pub(super) fn by_name(name: &str) -> Result<LinearModel, String> {
        Ok(match name {
            "register" => LinearModel::Register,
            "cas-register" => LinearModel::CasRegister,
            "mutex" => LinearModel::Mutex,
            "kv-map" => LinearModel::KeyValue,
            "fifo-queue" => LinearModel::FifoQueue,
            "stack" => LinearModel::Stack,
            "priority-queue" => LinearModel::PriorityQueue,
            "bag" => LinearModel::Bag,
            "deque" => LinearModel::Deque,
            "linearizable-counter" => LinearModel::Counter,
            other => return Err(format!("there is no data type {other}")),
        })
    }

    /// Is its state a collection of elements?
    pub(super) fn is_collection(self) -> bool {
        use LinearModel::{Bag, Deque, FifoQueue, PriorityQueue, Stack};
        matches!(self, FifoQueue | Stack | PriorityQueue | Bag | Deque)
    }

    /// What an operation that did not fail does. The error names one that the data type does not have.
    pub(super) fn effect(
        self,
        table: &OperationTable,
        row: &OperationRow,
    ) -> Result<Effect, String> {
        use LinearModel as M;
        let (argument, result) = (row.argument(), row.result());
        let f = table.function(row);
        let error = |what: &str| Err(format!("the operation at {} {what}", row.place));
        let effect = match (self, f) {
            (M::KeyValue, "get" | "read") if result == Some(OperationValue::Nil) => {
                Effect::ReadAbsent
            }
            (M::Register | M::CasRegister | M::Counter, "read") | (M::KeyValue, "get" | "read") => {
                result.map_or(Effect::Nothing, Effect::Read)
            }
            (M::Register | M::CasRegister, "write") => Effect::Write(argument),
            (M::KeyValue, "put" | "write") => Effect::Replace(argument),
            (M::CasRegister, "cas") => match result {
                Some(to) => Effect::Cas(argument, to),
                None => return error("compares and sets without two values"),
            },
            (M::Mutex, "acquire") => Effect::Cas(OperationValue::Nil, HELD),
            (M::Mutex, "release") => Effect::Cas(HELD, OperationValue::Nil),
            (M::KeyValue, "append") => Effect::Append(argument),
            (M::Counter, "add") => match argument {
                OperationValue::Int(integer) => Effect::Add(integer),
                _ => return error("adds no integer"),
            },
            (M::FifoQueue, "enqueue")
            | (M::Stack, "push")
            | (M::PriorityQueue, "insert")
            | (M::Bag, "add" | "enqueue")
            | (M::Deque, "push-back") => Effect::Put(Back, argument),
            (M::Deque, "push-front") => Effect::Put(Front, argument),
            (M::FifoQueue | M::Bag, "drain") if result.is_some() => Effect::Take(Front, result),
            (M::FifoQueue | M::Bag, "dequeue")
            | (M::PriorityQueue, "poll")
            | (M::Bag, "take")
            | (M::Deque, "pop-front") => Effect::Take(Front, result),
            (M::Stack, "pop") | (M::Deque, "pop-back") => Effect::Take(Back, result),
            (M::FifoQueue, "peek" | "front")
            | (M::PriorityQueue, "peek")
            | (M::Deque, "peek-front") => {
                result.map_or(Effect::Nothing, |result| Effect::Peek(Front, result))
            }
            (M::Stack, "peek" | "top") | (M::Deque, "peek-back") => {
                result.map_or(Effect::Nothing, |result| Effect::Peek(Back, result))
            }
            _ => return error(&format!("is none of this data type: {f}")),
        };
        if let Effect::Put(_, OperationValue::Nil) = effect {
            return error("adds nil, which is no element");
        }
        Ok(effect)
    }
}

/// The state of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectState {
    /// Of a register or a mutex, and of a map's key that has no text.
    Value(OperationValue),
    /// Of a map's key.
    Text(String),
    Sum(i64),
    /// Of a queue, a stack, a deque.
    List(VecDeque<OperationValue>),
    /// Of a priority queue, by priority: the elements, and how often each is there.
    Sorted(BTreeMap<(bool, i64), (OperationValue, u64)>),
    /// Of a bag: how often each element is there.
    Bag(BTreeMap<OperationValue, u64>),
}

impl ObjectState {
    /// The initial state.
    pub(super) fn new(model: LinearModel) -> ObjectState {
        match model {
            LinearModel::Register | LinearModel::CasRegister | LinearModel::Mutex => {
                ObjectState::Value(OperationValue::Nil)
            }
            LinearModel::KeyValue => ObjectState::Text(String::new()),
            LinearModel::Counter => ObjectState::Sum(0),
            LinearModel::FifoQueue | LinearModel::Stack | LinearModel::Deque => {
                ObjectState::List(VecDeque::new())
            }
            LinearModel::PriorityQueue => ObjectState::Sorted(BTreeMap::new()),
            LinearModel::Bag => ObjectState::Bag(BTreeMap::new()),
        }
    }

    /// Number of elements, or of words of memory: at least 1.
    pub(super) fn size(&self) -> u64 {
        let length = match self {
            ObjectState::Text(text) => text.len() / 8,
            ObjectState::List(list) => list.len(),
            ObjectState::Sorted(elements) => elements.len(),
            ObjectState::Bag(elements) => elements.len(),
            ObjectState::Value(_) | ObjectState::Sum(_) => 0,
        };
        length as u64 + 1
    }

    /// Applies an effect. False if its result contradicts the state, which is left as it was.
    pub(super) fn apply(&mut self, table: &OperationTable, effect: Effect) -> bool {
        match effect {
            Effect::Nothing => true,
            Effect::Read(value) => self.holds(table, value),
            Effect::ReadAbsent => *self == ObjectState::Text(String::new()),
            Effect::Write(value) => {
                *self = ObjectState::Value(value);
                true
            }
            Effect::Replace(value) => {
                let text = table.as_text(value).map(str::to_owned);
                *self = text.map_or(ObjectState::Value(value), ObjectState::Text);
                true
            }
            Effect::Cas(from, to) => {
                let holds = self.holds(table, from);
                if holds {
                    *self = ObjectState::Value(to);
                }
                holds
            }
            Effect::Append(value) => {
                let text = table.as_text(value).map(str::to_owned);
                let text = text.unwrap_or_else(|| table.text(value));
                match self {
                    ObjectState::Text(before) => before.push_str(&text),
                    ObjectState::Value(before) => {
                        *self = ObjectState::Text(table.text(*before) + &text);
                    }
                    _ => return false,
                }
                true
            }
            Effect::Add(integer) => match self {
                ObjectState::Sum(sum) => {
                    *sum = sum.wrapping_add(integer);
                    true
                }
                _ => false,
            },
            Effect::Put(end, element) => self.put(table, end, element),
            Effect::Take(end, result) => self.take(end, result),
            Effect::Peek(end, result) => self.next(end) == result,
        }
    }

    /// Is this the state, as a read returns it?
    fn holds(&self, table: &OperationTable, value: OperationValue) -> bool {
        match self {
            ObjectState::Value(state) => *state == value,
            ObjectState::Sum(sum) => value == OperationValue::Int(*sum),
            ObjectState::Text(text) => table.as_text(value) == Some(text.as_str()),
            _ => false,
        }
    }

    fn put(&mut self, table: &OperationTable, end: EndOfCollection, it: OperationValue) -> bool {
        match self {
            ObjectState::List(list) if end == Front => list.push_front(it),
            ObjectState::List(list) => list.push_back(it),
            ObjectState::Sorted(elements) => {
                elements.entry(table.priority(it)).or_insert((it, 0)).1 += 1;
            }
            ObjectState::Bag(elements) => *elements.entry(it).or_default() += 1,
            _ => return false,
        }
        true
    }

    /// The element that a removal at this end takes next; nil if there is none. Of a bag some element.
    pub(super) fn next(&self, end: EndOfCollection) -> OperationValue {
        let next = match self {
            ObjectState::List(list) if end == Front => list.front().copied(),
            ObjectState::List(list) => list.back().copied(),
            ObjectState::Sorted(elements) => elements.values().next().map(|&(element, _)| element),
            ObjectState::Bag(elements) => elements.keys().next().copied(),
            _ => None,
        };
        next.unwrap_or(OperationValue::Nil)
    }

    fn take(&mut self, end: EndOfCollection, result: Option<OperationValue>) -> bool {
        let next = match (&self, result) {
            (ObjectState::Bag(elements), Some(element)) if elements.contains_key(&element) => {
                element
            }
            _ => self.next(end),
        };
        if result.is_some_and(|result| result != next) {
            return false;
        }
        if next == OperationValue::Nil {
            return true;
        }
        match self {
            ObjectState::List(list) if end == Front => _ = list.pop_front(),
            ObjectState::List(list) => _ = list.pop_back(),
            ObjectState::Sorted(elements) => {
                if let Some(mut first) = elements.first_entry() {
                    first.get_mut().1 -= 1;
                    if first.get().1 == 0 {
                        first.remove();
                    }
                }
            }
            ObjectState::Bag(elements) => {
                if let Some(count) = elements.get_mut(&next) {
                    *count -= 1;
                    if *count == 0 {
                        elements.remove(&next);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// The elements of a bag, each once.
    pub(super) fn elements(&self) -> Vec<OperationValue> {
        match self {
            ObjectState::Bag(elements) => elements.keys().copied().collect(),
            _ => Vec::new(),
        }
    }
}
