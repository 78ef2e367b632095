//! Operations: the elements of a history.

use crate::{Symbol, Value};
use std::fmt;
use std::sync::Arc;

/// Type of an operation: an invocation, or a completion with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpType {
    /// Invocation: the operation begins.
    Invoke,
    /// Completion: the operation took place.
    Ok,
    /// Completion: the operation did not take place, now or later.
    Fail,
    /// Completion: the outcome is unknown, the operation may still take effect; or either half of a nemesis operation.
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

/// A logically single-threaded actor of the test: at most one of its operations is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// A client. After an `info` its process never appears again: the thread continues as a process with a new number.
    Client(u64),
    /// Any other actor, usually the nemesis.
    Named(Symbol),
}

impl Process {
    /// The process that injects faults.
    pub const NEMESIS: Process = Process::Named(Symbol::new("nemesis"));

    /// Is this a client? Only operations of clients are checked.
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

/// Fields of an operation besides the six that all have: `error`, `node`, `exception`, … Most operations have none or one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra(Option<Arc<[(Symbol, Value)]>>);

impl Extra {
    /// No fields.
    pub const NONE: Extra = Extra(None);

    /// Creates fields in this order.
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

/// One element of a history: an invocation or a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// Number in the history, from 0, unique and rising; kept when a history is filtered.
    pub index: u64,
    /// Nanoseconds since the test began; -1 if unknown.
    pub time: i64,
    /// Invocation, or completion and its outcome.
    pub kind: OpType,
    /// The process.
    pub process: Process,
    /// The function: `read`, `write`, `cas`, `txn`, `kill`, …
    pub f: Symbol,
    /// The argument of an invocation; the result in a completion.
    pub value: Value,
    /// Further fields.
    pub extra: Extra,
}

impl Op {
    /// Creates an invocation without time (-1) and with index 0; the interpreter sets both.
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

    /// Creates the completion of this invocation, with its index and time, which the interpreter replaces.
    #[must_use]
    pub fn complete(&self, kind: OpType, value: Value) -> Op {
        Op {
            kind,
            value,
            extra: Extra::NONE,
            ..self.clone()
        }
    }

    /// The same operation with one further field.
    #[must_use]
    pub fn with(mut self, name: impl Into<Symbol>, value: Value) -> Op {
        self.extra = self.extra.with(name.into(), value);
        self
    }

    /// Is the type `invoke`? The first half of a nemesis operation has type `info` and is found only by pairing.
    pub const fn is_invoke(&self) -> bool {
        matches!(self.kind, OpType::Invoke)
    }

    /// Did the operation take place?
    pub const fn is_ok(&self) -> bool {
        matches!(self.kind, OpType::Ok)
    }

    /// Did the operation certainly not take place?
    pub const fn is_fail(&self) -> bool {
        matches!(self.kind, OpType::Fail)
    }

    /// Is the outcome unknown?
    pub const fn is_info(&self) -> bool {
        matches!(self.kind, OpType::Info)
    }
}

/// Prints an EDN map on one line, as Jepsen does.
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
