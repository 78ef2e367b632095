//! Values of operations.

mod equality;
#[cfg(test)]
mod tests;
mod typed;

pub use typed::{LogMop, Polled, Transfer};

use crate::Symbol;
use std::fmt;
use std::sync::Arc;

/// A value of any shape, like EDN or JSON, with compact forms for the values of common workloads. Cloning is cheap: large
/// parts are shared.
///
/// Equality is that of Clojure and Jepsen: sets and maps have no order, and a compact form equals the value that it prints as.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing, or unknown (the value of a read's invocation).
    #[default]
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// A keyword or symbol, printed `:name`.
    Word(Symbol),
    /// An ordered collection.
    List(Arc<[Value]>),
    /// A set, in the order of the source.
    Set(Arc<[Value]>),
    /// Pairs, in the order of the source.
    Map(Arc<[(Value, Value)]>),
    /// A compare-and-set: from the first to the second value. Printed as the list of both.
    Cas(i64, i64),
    /// The micro-operations of a transaction. Printed as a list of lists.
    Txn(Arc<[Mop]>),
    /// A value of one independent key: Jepsen's tuple `[key value]`.
    Keyed(Key, Arc<Value>),
}

/// The key of a micro-operation or of an independent object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An integer key.
    Int(i64),
    /// A keyword key, printed `:name`.
    Word(Symbol),
    /// A text key.
    Text(Arc<str>),
}

/// One micro-operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Mop {
    /// Append `element` to the list at `key`: `[:append key element]`.
    Append {
        /// The list.
        key: Key,
        /// Unique per key in a sound workload.
        element: i64,
    },
    /// Write `value` to the register at `key`: `[:w key value]`.
    Write {
        /// The register.
        key: Key,
        /// Unique per key in a sound workload.
        value: i64,
    },
    /// Read `key`: `[:r key observed]`.
    Read {
        /// The list or register.
        key: Key,
        /// The result; [`Observed::Nil`] in an invocation.
        observed: Observed,
    },
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// In an invocation or an `info` completion: unknown. In an `ok` completion: the initial state (an empty list, an
    /// unwritten register).
    Nil,
    /// The elements of a list, oldest first.
    List(Arc<[i64]>),
    /// The value of a register.
    Register(i64),
}

impl Mop {
    /// The key that this micro-operation accesses.
    pub const fn key(&self) -> &Key {
        match self {
            Mop::Append { key, .. } | Mop::Write { key, .. } | Mop::Read { key, .. } => key,
        }
    }
}

impl Value {
    /// The value as an integer.
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The micro-operations of a transaction.
    pub fn as_txn(&self) -> Option<&[Mop]> {
        match self {
            Value::Txn(mops) => Some(mops),
            _ => None,
        }
    }

    /// A text value.
    pub fn text(text: impl Into<Arc<str>>) -> Value {
        Value::Text(text.into())
    }
}

/// Writes a string in EDN syntax.
fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    let mut plain = text;
    while let Some(at) = plain.find(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
        f.write_str(&plain[..at])?;
        let mut rest = plain[at..].chars();
        match rest.next() {
            Some('\n') => f.write_str("\\n"),
            Some('\t') => f.write_str("\\t"),
            Some('\r') => f.write_str("\\r"),
            Some(special @ ('"' | '\\')) => write!(f, "\\{special}"),
            control => write!(f, "\\u{:04x}", control.map_or(0, u32::from)),
        }?;
        plain = rest.as_str();
    }
    f.write_str(plain)?;
    f.write_str("\"")
}

/// Writes `items` separated by spaces between `open` and `close`.
fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    items: impl IntoIterator<Item = T>,
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            f.write_str(" ")?;
        }
        item.fmt(f)?;
    }
    f.write_str(close)
}

/// Prints a number as Java does: with an exponent at 10^7 and above, and below 10^-3.
fn float(number: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let size = number.abs();
    if number.is_nan() {
        f.write_str("##NaN")
    } else if number.is_infinite() {
        f.write_str(if number > 0.0 { "##Inf" } else { "##-Inf" })
    } else if size == 0.0 || (1e-3..1e7).contains(&size) {
        write!(f, "{number:?}")
    } else {
        let text = format!("{number:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if digits.contains('.') => write!(f, "{digits}E{exponent}"),
            Some((digit, exponent)) => write!(f, "{digit}.0E{exponent}"),
            None => f.write_str(&text),
        }
    }
}

/// Prints as EDN, the way Jepsen prints a value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Bool(truth) => truth.fmt(f),
            Value::Int(number) => number.fmt(f),
            Value::Float(number) => float(*number, f),
            Value::Text(text) => quoted(text, f),
            Value::Word(word) => write!(f, ":{word}"),
            Value::List(items) => list(f, "[", items.iter(), "]"),
            Value::Set(items) => list(f, "#{", items.iter(), "}"),
            Value::Map(pairs) => {
                f.write_str("{")?;
                for (number, (key, value)) in pairs.iter().enumerate() {
                    let separator = if number > 0 { ", " } else { "" };
                    write!(f, "{separator}{key} {value}")?;
                }
                f.write_str("}")
            }
            Value::Cas(from, to) => write!(f, "[{from} {to}]"),
            Value::Txn(mops) => list(f, "[", mops.iter(), "]"),
            Value::Keyed(key, value) => write!(f, "[{key} {value}]"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Int(number) => number.fmt(f),
            Key::Word(word) => write!(f, ":{word}"),
            Key::Text(text) => quoted(text, f),
        }
    }
}

impl fmt::Display for Mop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mop::Append { key, element } => write!(f, "[:append {key} {element}]"),
            Mop::Write { key, value } => write!(f, "[:w {key} {value}]"),
            Mop::Read { key, observed } => write!(f, "[:r {key} {observed}]"),
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observed::Nil => f.write_str("nil"),
            Observed::List(elements) => list(f, "[", elements.iter(), "]"),
            Observed::Register(value) => value.fmt(f),
        }
    }
}
