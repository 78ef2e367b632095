//! LinearObjects: the operations of a history by key, as the search needs them.

use super::model::{Action, InternedValues, Model, action, shape};
use seatrial_history::{History, Key, Op, Value};
use std::collections::BTreeMap;

/// An operation that took effect or may have. Positions are those of the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectOperation {
    /// What it does.
    pub(super) action: Action,
    /// Position of its invocation.
    pub(super) call: u32,
    /// Position of its successful completion; [`NEVER`] if its outcome is unknown.
    pub(super) ret: u32,
}

/// The completion of an operation of unknown outcome: it stays concurrent to the end of the history.
pub(super) const NEVER: u32 = u32::MAX;

impl ObjectOperation {
    /// Did it certainly take effect?
    pub(super) fn is_required(&self) -> bool {
        self.ret != NEVER
    }
}

/// One register, mutex or key, with its operations by time of invocation.
pub(super) struct LinearObject {
    /// Its key, when the history has independent keys.
    pub(super) key: Option<Key>,
    /// Its operations.
    pub(super) entries: Vec<ObjectOperation>,
    /// Number of operations of unknown outcome that were left out, since no operation depends on their effect.
    pub(super) dropped: usize,
    /// Its values.
    pub(super) values: InternedValues,
}

/// The operations of a history by key: a compressed-row table from keys to positions. Checks that the model has all of them,
/// then builds one object at a time, so that only one object's operations and values are in memory.
///
/// Holds 4 bytes for each operation, and the keys, in order. Failed operations are left out, as are reads of unknown result and
/// writes of unknown outcome whose value no read returns, since they constrain nothing.
pub(super) struct LinearObjects<'h> {
    history: &'h History,
    model: Model,
    keys: Vec<Option<Key>>,
    /// Start of each key's range in `positions`, then the end of the last range.
    starts: Vec<usize>,
    /// Positions of invocations, and of successes without invocation, by key and in order.
    positions: Vec<u32>,
}

/// An operation of the history that did not fail.
struct HistoryOperation<'h> {
    /// The invocation; a success when it has none.
    invocation: &'h Op,
    /// Position of the completion.
    end: Option<usize>,
    completion: Option<&'h Op>,
}

impl<'h> HistoryOperation<'h> {
    /// The operation at the position of a client's invocation, or of a success without invocation; `None` if it failed.
    fn at(history: &'h History, position: usize) -> Option<HistoryOperation<'h>> {
        let op = &history.ops()[position];
        if !op.process.is_client() {
            return None;
        }
        let end = match history.pair(position) {
            Some(other) if op.is_invoke() => Some(other),
            // A success without invocation may have begun at any time before: its call is position 0.
            None if op.is_ok() => Some(position),
            None if op.is_invoke() => None,
            _ => return None,
        };
        let completion = end.map(|end| &history.ops()[end]);
        (!completion.is_some_and(Op::is_fail)).then_some(HistoryOperation {
            invocation: op,
            end,
            completion,
        })
    }

    fn entry(&self, action: Action, position: usize) -> ObjectOperation {
        let is_orphan = self.end == Some(position);
        let is_certain = self.completion.is_some_and(Op::is_ok);
        ObjectOperation {
            action,
            call: if is_orphan { 0 } else { position as u32 },
            ret: self
                .end
                .filter(|_| is_certain)
                .map_or(NEVER, |end| end as u32),
        }
    }
}

impl<'h> LinearObjects<'h> {
    /// Groups the operations by key. The error names an operation that the model does not have.
    pub(super) fn new(history: &'h History, model: Model) -> Result<LinearObjects<'h>, String> {
        let mut numbers: BTreeMap<Option<Key>, u32> = BTreeMap::new();
        let mut numbered: Vec<(u32, u32)> = Vec::new();
        for position in 0..history.len() {
            let Some(operation) = HistoryOperation::at(history, position) else {
                continue;
            };
            let HistoryOperation {
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
        // Keys are numbered by appearance while reading; the table is in the order of keys, so that reports are deterministic.
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
        assert!(
            starts[numbers.len()] == positions.len(),
            "the ranges end with the positions"
        );
        assert!(starts.is_sorted(), "the ranges follow one another");
        Ok(LinearObjects {
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
    pub(super) fn object(&self, number: usize) -> Result<LinearObject, String> {
        let mut values = InternedValues::new(self.model);
        let positions = &self.positions[self.starts[number]..self.starts[number + 1]];
        let mut entries = Vec::with_capacity(positions.len());
        for position in positions.iter().map(|&position| position as usize) {
            if let Some(operation) = HistoryOperation::at(self.history, position)
                && let Some(shape) = shape(self.model, operation.invocation, operation.completion)?
            {
                entries.push(operation.entry(action(&shape, &mut values), position));
            }
        }
        entries.sort_by_key(|entry| entry.call);
        assert!(
            entries.iter().all(|entry| entry.call <= entry.ret),
            "no operation completes before its invocation"
        );
        let all = entries.len();
        drop_unseen(&mut entries);
        Ok(LinearObject {
            key: self.keys[number].clone(),
            dropped: all - entries.len(),
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

/// Drops writes and compare-and-sets of unknown outcome whose new value is neither read nor compared with: a linearization
/// stays one without them.
fn drop_unseen(entries: &mut Vec<ObjectOperation>) {
    let appends = |entry: &ObjectOperation| matches!(entry.action, Action::Append(_));
    if entries.iter().all(ObjectOperation::is_required) || entries.iter().any(appends) {
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
    // A needed compare-and-set needs the value that it compares with, too: repeat until nothing is added.
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
