//! Tuples of independent keys in histories of other tools.

use seatrial_history::{History, Key, Op, Value};
use std::sync::Arc;

/// A history in which every client invokes tuples `[key value]`, some of them without a value (`[key nil]`), is one of
/// independent keys (Jepsen's `independent`), whose text does not tell tuples from lists: the same with keyed values. Any
/// other stays as it is. (Data types without keys invoke their reads, dequeues and the like without any value, and so are
/// never taken for keyed.)
pub(crate) fn keyed(history: History) -> History {
    let invocations = || {
        let clients = history.iter().filter(|op| op.process.is_client());
        clients.filter(|op| op.is_invoke())
    };
    let is_bare = |op: &Op| matches!(tuple(op), Some((_, Value::Nil)));
    if !invocations().all(|op| tuple(op).is_some()) || !invocations().any(is_bare) {
        return history;
    }
    let ops = history.iter().map(|op| match tuple(op) {
        Some((key, value)) if op.process.is_client() => Op {
            value: Value::Keyed(key, Arc::new(value)),
            ..op.clone()
        },
        _ => op.clone(),
    });
    History::from_ops(ops.collect())
}

/// The parts of a tuple.
fn tuple(op: &Op) -> Option<(Key, Value)> {
    let Value::List(items) = &op.value else {
        return None;
    };
    let [key, value] = &items[..] else {
        return None;
    };
    let value = match value.as_integers().as_deref() {
        Some(&[from, to]) if op.f == "cas" => Value::Cas(from, to),
        _ => value.clone(),
    };
    Some((key.as_key()?, value))
}
