//! From a history to the operations of each object.

use super::model::{Action, Model, Values, action};
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

/// The objects of a history, by key. Failed operations did not happen; reads of unknown result and unknown writes
/// whose value nobody can have seen are left out, since they constrain nothing. The error says what is not understood.
pub(super) fn objects(history: &History, model: Model) -> Result<Vec<Object>, String> {
    let mut objects: BTreeMap<Option<Key>, Object> = BTreeMap::new();
    for (position, op) in history.iter().enumerate() {
        if !op.process.is_client() {
            continue;
        }
        let (invocation, other) = match history.pair(position) {
            Some(other) if op.is_invoke() => (op, Some(other)),
            // A success without invocation may have begun at any time before.
            None if op.is_invoke() || op.is_ok() => (op, None),
            _ => continue,
        };
        let completion = other.map(|other| &history.ops()[other]);
        if completion.is_some_and(Op::is_fail) {
            continue;
        }
        if is_tuple(invocation) {
            let index = invocation.index;
            return Err(format!(
                "op {index}: its value looks like a tuple [key value]: read the history as keyed"
            ));
        }
        let key = key(&invocation.value);
        let object = objects.entry(key.clone()).or_insert_with(|| Object {
            key,
            entries: Vec::new(),
            values: Values::new(model),
        });
        let orphan = op.is_ok();
        let completion = if orphan { Some(op) } else { completion };
        if let Some(action) = action(model, invocation, completion, &mut object.values)? {
            object.entries.push(Entry {
                action,
                call: if orphan { 0 } else { position as u32 },
                ret: match (orphan, other) {
                    (true, _) => position as u32,
                    (false, Some(other)) if history.ops()[other].is_ok() => other as u32,
                    _ => NEVER,
                },
            });
        }
    }
    if objects.len() > 1 && objects.contains_key(&None) {
        return Err("some operations have a key and some have none".into());
    }
    let mut objects: Vec<_> = objects.into_values().collect();
    for object in &mut objects {
        object.entries.sort_by_key(|entry| entry.call);
        drop_unseen(&mut object.entries);
    }
    Ok(objects)
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
