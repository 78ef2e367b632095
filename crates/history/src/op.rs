//! Operations: the elements of a history.

use crate::{Symbol, Value};
use std::fmt;
use std::sync::Arc;

/// Which half of an operation this is, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpType {
    /// The operation begins.
    Invoke,
    /// It took place.
    Ok,
    /// It did not take place.
    Fail,
    /// Nobody knows whether it took place; or a nemesis operation.
    Info,
}

impl OpType {
    /// The name in EDN and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            OpType::Invoke => "invoke",
            OpType::Ok => "ok",
            OpType::Fail => "fail",
            OpType::Info => "info",
        }
    }
}

/// A logically single-threaded actor of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A client; a process that crashed (`info`) never comes back, its thread goes on under a new number.
    Client(u64),
    /// Anything else, as a rule the nemesis.
    Named(Symbol),
}

impl Process {
    /// The process that breaks things.
    pub const NEMESIS: Process = Process::Named(Symbol::new("nemesis"));

    /// Is this a client, whose operations count for the verdict?
    pub const fn is_client(self) -> bool {
        matches!(self, Process::Client(_))
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Process::Client(number) => number.fmt(f),
            Process::Named(name) => write!(f, ":{name}"),
        }
    }
}

/// Fields beyond the six that every operation has: `error`, `node`, `exception`, … Most operations have none or one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra(Option<Arc<[(Symbol, Value)]>>);

impl Extra {
    /// No fields.
    pub const NONE: Extra = Extra(None);

    /// These fields, in this order.
    pub fn new(fields: &[(Symbol, Value)]) -> Extra {
        Extra((!fields.is_empty()).then(|| fields.into()))
    }

    /// The field called `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    /// These fields and one more; a field of the same name is replaced.
    #[must_use]
    pub fn with(&self, name: Symbol, value: Value) -> Extra {
        let others = self.iter().filter(|(field, _)| *field != name).cloned();
        Extra(Some(others.chain([(name, value)]).collect()))
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Symbol, Value)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }

    /// Are there no fields?
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|fields| fields.is_empty())
    }
}

/// An invocation or a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// Position in the whole history, from 0, unique; kept when a history is filtered.
    pub index: u64,
    /// Nanoseconds since the test began; -1 when not known.
    pub time: i64,
    /// Which half, and how it ended.
    pub kind: OpType,
    /// Who did it.
    pub process: Process,
    /// What was done: `read`, `write`, `cas`, `txn`, `kill`, …
    pub f: Symbol,
    /// With what, or what came out.
    pub value: Value,
    /// Further fields.
    pub extra: Extra,
}

impl Op {
    /// An invocation without index and time, as generators make them.
    pub fn invoke(process: Process, f: impl Into<Symbol>, value: Value) -> Op {
        Op {
            index: 0,
            time: -1,
            kind: OpType::Invoke,
            process,
            f: f.into(),
            value,
            extra: Extra::NONE,
        }
    }

    /// The completion of this invocation. Index and time are the interpreter's to set.
    #[must_use]
    pub fn complete(&self, kind: OpType, value: Value) -> Op {
        Op {
            kind,
            value,
            extra: Extra::NONE,
            ..self.clone()
        }
    }

    /// The same with one further field.
    #[must_use]
    pub fn with(mut self, name: impl Into<Symbol>, value: Value) -> Op {
        self.extra = self.extra.with(name.into(), value);
        self
    }

    /// Does an operation begin here? Nemesis operations count as such by their pairing, not by their type.
    pub const fn is_invoke(&self) -> bool {
        matches!(self.kind, OpType::Invoke)
    }

    /// Did it take place?
    pub const fn is_ok(&self) -> bool {
        matches!(self.kind, OpType::Ok)
    }

    /// Did it certainly not take place?
    pub const fn is_fail(&self) -> bool {
        matches!(self.kind, OpType::Fail)
    }

    /// Is the outcome unknown?
    pub const fn is_info(&self) -> bool {
        matches!(self.kind, OpType::Info)
    }
}

/// Prints as Jepsen does: an EDN map on one line.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op {
            index,
            time,
            process,
            value,
            ..
        } = self;
        write!(
            f,
            "{{:index {index}, :time {time}, :type :{}, :process {process}",
            self.kind.name()
        )?;
        write!(f, ", :f :{}, :value {value}", self.f)?;
        for (name, value) in self.extra.iter() {
            write!(f, ", :{name} {value}")?;
        }
        f.write_str("}")
    }
}
