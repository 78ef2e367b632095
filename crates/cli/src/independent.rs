//! Tuples of independent keys (Jepsen's `independent`), whose text does not distinguish them from lists.

use seatrial_history::{Key, Op, Value};
use std::sync::Arc;

/// Is its value a tuple `[key value]`?
pub(crate) fn is_tuple(op: &Op) -> bool {
    tuple(op).is_some()
}

/// Is its value a tuple without a value, `[key nil]`? Data types without keys invoke their reads, dequeues and the like without
/// any value, and so are never taken for keyed.
pub(crate) fn is_bare_tuple(op: &Op) -> bool {
    matches!(tuple(op), Some((_, Value::Nil)))
}

/// The same operation with a keyed value, if it is a client's and its value is a tuple.
pub(crate) fn keyed_op(op: Op) -> Op {
    match tuple(&op) {
        Some((key, value)) if op.process.is_client() => Op {
            value: Value::Keyed(key, Arc::new(value)),
            ..op
        },
        _ => op,
    }
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
