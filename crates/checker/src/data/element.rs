//! Elements of collections.

use seatrial_history::Value;
use std::fmt;
use std::sync::Arc;

/// A value that can be ordered and looked up. Integers are stored as such; all other values by their text, which decides
/// equality.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    Int(i64),
    Other(Arc<str>),
}

impl From<&Value> for Element {
    fn from(value: &Value) -> Element {
        match value {
            Value::Int(number) => Element::Int(*number),
            other => Element::Other(other.to_string().into()),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Int(number) => number.fmt(f),
            Element::Other(text) => text.fmt(f),
        }
    }
}

/// The elements of a list or a set, in their order; `None` for anything else.
pub(super) fn elements(value: &Value) -> Option<Vec<Element>> {
    match value {
        Value::List(items) | Value::Set(items) => Some(items.iter().map(Element::from).collect()),
        Value::Cas(first, second) => Some(vec![Element::Int(*first), Element::Int(*second)]),
        // Importers read an empty list as an empty transaction.
        Value::Txn(mops) if mops.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

/// Sorted elements as text, with intervals of integers: `1..3 7`. At most `max` intervals, then the number of elements left out.
pub(super) fn intervals<'e>(sorted: impl Iterator<Item = &'e Element>, max: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(i64, i64)> = None;
    let show = |(first, last): (i64, i64)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}..{last}")
        }
    };
    let mut omitted = 0_u64;
    for element in sorted {
        match (element, run) {
            (Element::Int(number), Some((first, last))) if last.checked_add(1) == Some(*number) => {
                run = Some((first, *number));
                continue;
            }
            _ if parts.len() + usize::from(run.is_some()) >= max => {
                omitted += 1;
                continue;
            }
            _ => parts.extend(run.take().map(show)),
        }
        match element {
            Element::Int(number) => run = Some((*number, *number)),
            Element::Other(text) => parts.push(text.to_string()),
        }
    }
    parts.extend(run.map(show));
    if omitted > 0 {
        parts.push(format!("and {omitted} more"));
    }
    parts.join(" ")
}
