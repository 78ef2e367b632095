//! From a history to the operations of each object.

use super::model::{Action, Model, Values, action, shape};
use seatrial_history::{History, Key, Op, Value};
use std::collections::BTreeMap;

/// An operation that has, or may have, taken place. Positions are those of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// What it does.
    pub(super) action: Action,
    /// Position of its invocation.
    pub(super) call: u32,
    /// Position of its successful completion; [`NEVER`] when nobody knows whether it took place, or will.
    pub(super) ret: u32,
}

/// The completion of an operation whose outcome is unknown: it stays concurrent to the end.
pub(super) const NEVER: u32 = u32::MAX;

impl Entry {
    /// Did it certainly take place?
    pub(super) fn is_required(&self) -> bool {
        self.ret != NEVER
    }
}

/// One register, mutex or key, with its operations by time of invocation.
pub(super) struct Object {
    /// Its key, when the history has independent keys.
    pub(super) key: Option<Key>,
    /// Its operations.
    pub(super) entries: Vec<Entry>,
    /// Its values.
    pub(super) values: Values,
}

/// The operations of a history by key. Checks that the model understands all of them, then builds one object at a time, so
/// that only one object's operations and values are in memory.
///
/// Holds 4 bytes for each operation and the keys, in order. Failed operations did not happen; reads of unknown result and
/// unknown writes whose value no read shows are left out of an object, since they constrain nothing.
pub(super) struct Objects<'h> {
    history: &'h History,
    model: Model,
    keys: Vec<Option<Key>>,
    /// Where the positions of each key begin, and one more: the end of the last.
    starts: Vec<usize>,
    /// Positions of invocations, and of successes without one, by key and in order.
    positions: Vec<u32>,
}

/// An operation that did not fail, as the history has it.
struct Operation<'h> {
    /// The invocation; a success when it has none.
    invocation: &'h Op,
    /// Position of the completion.
    end: Option<usize>,
    completion: Option<&'h Op>,
}

impl<'h> Operation<'h> {
    /// The operation of the client invocation, or of the success without invocation, at this position, unless it failed.
    fn at(history: &'h History, position: usize) -> Option<Operation<'h>> {
        let op = &history.ops()[position];
        if !op.process.is_client() {
            return None;
        }
        let end = match history.pair(position) {
            Some(other) if op.is_invoke() => Some(other),
            // A success without invocation may have begun at any time before.
            None if op.is_ok() => Some(position),
            None if op.is_invoke() => None,
            _ => return None,
        };
        let completion = end.map(|end| &history.ops()[end]);
        (!completion.is_some_and(Op::is_fail)).then_some(Operation {
            invocation: op,
            end,
            completion,
        })
    }

    fn entry(&self, action: Action, position: usize) -> Entry {
        let is_orphan = self.end == Some(position);
        let is_certain = self.completion.is_some_and(Op::is_ok);
        Entry {
            action,
            call: if is_orphan { 0 } else { position as u32 },
            ret: self
                .end
                .filter(|_| is_certain)
                .map_or(NEVER, |end| end as u32),
        }
    }
}

impl<'h> Objects<'h> {
    /// Groups the operations by key. The error says what is not understood.
    pub(super) fn new(history: &'h History, model: Model) -> Result<Objects<'h>, String> {
        let mut numbers: BTreeMap<Option<Key>, u32> = BTreeMap::new();
        let mut numbered: Vec<(u32, u32)> = Vec::new();
        for position in 0..history.len() {
            let Some(operation) = Operation::at(history, position) else {
                continue;
            };
            let Operation {
                invocation,
                completion,
                ..
            } = operation;
            if is_tuple(invocation) {
                let index = invocation.index;
                return Err(format!(
                    "op {index}: its value looks like a tuple [key value]: read the history as keyed"
                ));
            }
            shape(model, invocation, completion)?;
            let next = numbers.len() as u32;
            let number = *numbers.entry(key(&invocation.value)).or_insert(next);
            numbered.push((number, position as u32));
        }
        if numbers.len() > 1 && numbers.contains_key(&None) {
            return Err("some operations have a key and some have none".into());
        }
        // From numbers in the order of appearance to ranks in the order of keys.
        let mut ranks = vec![0; numbers.len()];
        for (rank, number) in numbers.values().enumerate() {
            ranks[*number as usize] = rank;
        }
        let mut starts = vec![0; numbers.len() + 1];
        for (number, _) in &numbered {
            starts[ranks[*number as usize] + 1] += 1;
        }
        for rank in 0..numbers.len() {
            starts[rank + 1] += starts[rank];
        }
        let mut ends = starts.clone();
        let mut positions = vec![0; numbered.len()];
        for (number, position) in numbered {
            let end = &mut ends[ranks[number as usize]];
            positions[*end] = position;
            *end += 1;
        }
        Ok(Objects {
            history,
            model,
            keys: numbers.into_keys().collect(),
            starts,
            positions,
        })
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The key of an object, when the history has independent keys.
    pub(super) fn key(&self, number: usize) -> Option<&Key> {
        self.keys[number].as_ref()
    }

    /// Builds the object of this number.
    pub(super) fn object(&self, number: usize) -> Result<Object, String> {
        let mut values = Values::new(self.model);
        let positions = &self.positions[self.starts[number]..self.starts[number + 1]];
        let mut entries = Vec::with_capacity(positions.len());
        for position in positions.iter().map(|&position| position as usize) {
            if let Some(operation) = Operation::at(self.history, position)
                && let Some(shape) = shape(self.model, operation.invocation, operation.completion)?
            {
                entries.push(operation.entry(action(&shape, &mut values), position));
            }
        }
        entries.sort_by_key(|entry| entry.call);
        drop_unseen(&mut entries);
        Ok(Object {
            key: self.keys[number].clone(),
            entries,
            values,
        })
    }
}

fn key(value: &Value) -> Option<Key> {
    match value {
        Value::Keyed(key, _) => Some(key.clone()),
        _ => None,
    }
}

/// Drops unknown writes and compare-and-sets whose new value is neither read nor compared with: leaving them out of
/// any linearization that has them leaves it correct.
fn drop_unseen(entries: &mut Vec<Entry>) {
    let appends = |entry: &Entry| matches!(entry.action, Action::Append(_));
    if entries.iter().all(Entry::is_required) || entries.iter().any(appends) {
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for entry in entries.iter() {
        match entry.action {
            Action::Read(value) => _ = seen.insert(value),
            Action::Cas(from, _) if entry.is_required() => _ = seen.insert(from),
            _ => {}
        }
    }
    // An unknown compare-and-set that may be needed compares with a value that is then needed too.
    loop {
        let before = seen.len();
        for entry in entries.iter() {
            if let Action::Cas(from, to) = entry.action
                && seen.contains(&to)
            {
                seen.insert(from);
            }
        }
        if seen.len() == before {
            break;
        }
    }
    entries.retain(|entry| match entry.action {
        Action::Write(value) | Action::Cas(_, value) => {
            entry.is_required() || seen.contains(&value)
        }
        Action::Read(_) | Action::Append(_) => true,
    });
}

/// Is this the invocation of a read of a tuple `[key nil]` that was imported as a plain list?
pub(super) fn is_tuple(op: &Op) -> bool {
    match &op.value {
        Value::List(items) => op.is_invoke() && matches!(&items[..], [_, Value::Nil]),
        _ => false,
    }
}
