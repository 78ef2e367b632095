//! The kinds of data of the workloads, built from what the store has: registers, lists, and transactions of both. The others
//! are built from these as a user of the store would build them.
//!
//! | kind | workloads | in the store |
//! | --- | --- | --- |
//! | [`native`] | registers, transactions | themselves |
//! | [`set`] | `set` | a list of its elements |
//! | [`counter`] | `counter` | a list of what was added; a read adds it up |
//! | [`bank`] | `bank` | a register per account; a transfer reads two and swaps both |
//! | [`queue`] | `queue`, `total-queue` | registers for the numbers of its first and last element, and one per element |
//! | [`identifiers`] | `unique-ids` | a register that counts up |
//! | [`lock`] | `mutex`, `lock` | a register with the owner and the fence of its last acquisition |
//! | [`log`] | `log` | a list of the messages of each log |
//! | [`table`] | `monotonic` | a list of numbers and one of timestamps; the clock is a register that counts up |

mod bank;
mod counter;
mod identifiers;
mod lock;
mod log;
mod native;
mod queue;
mod set;
mod table;

pub(crate) use log::Consumer;
pub(crate) use native::ABORT;

use seatrial_history::{Op, OpType, Symbol, Value};
use seatrial_kv_protocol::{Answers, Transaction};
use std::fmt::Debug;

/// Executes one operation on a data type as transactions of the store, one after the other.
pub(crate) trait Procedure: Debug + Send {
    /// The first transaction. Called again after a conflict. An error says what the store does not support.
    fn begin(&mut self, op: &Op, consumer: &mut Consumer) -> Result<ProcedureStep, String>;

    /// The step after the answers to the last transaction. An error says how the store broke its protocol.
    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        consumer: &mut Consumer,
    ) -> Result<ProcedureStep, String>;

    /// The completion of an operation that did not take place.
    fn failed(&self, op: &Op, reason: &'static str) -> Op {
        op.complete(OpType::Fail, op.value.clone())
            .with("error", word(reason))
    }

    /// The completion of an operation whose last change may have taken place.
    fn unknown(&self, op: &Op, reason: &'static str) -> Op {
        op.complete(OpType::Info, op.value.clone())
            .with("error", word(reason))
    }
}

/// The next step of an operation.
#[derive(Debug)]
pub(crate) enum ProcedureStep {
    /// A transaction that is the whole operation.
    Whole(Transaction),
    /// A transaction that only reads: without an outcome it had no effect.
    Look(Transaction),
    /// A transaction that changes the values that were read, if they are unchanged; otherwise the operation starts again.
    Change(Transaction),
    /// The operation ends with this completion.
    Done(Op),
}

/// The field that names the workload of an operation of a plan, where function and value do not determine it.
pub(crate) const WORKLOAD: Symbol = Symbol::new("workload");
/// The workloads whose operations need that field.
pub(crate) const NAMED: [&str; 3] = ["set", "counter", "monotonic"];

/// The procedure for an operation of a workload; for an operation of a plan (no workload) by [`WORKLOAD`], then by function and
/// value.
pub(crate) fn procedure(workload: &str, op: &Op) -> Box<dyn Procedure> {
    let name = match op.extra.get(WORKLOAD.as_str()) {
        Some(Value::Word(name)) => name.as_str(),
        _ => workload,
    };
    match (name, op.f.as_str(), &op.value) {
        ("set", ..) => Box::new(set::SetProcedure),
        ("counter", ..) => Box::new(counter::CounterProcedure),
        ("monotonic", ..) => Box::new(table::TableProcedure::default()),
        (_, "acquire" | "release", _) => Box::new(lock::LockProcedure::default()),
        (_, "send" | "poll" | "assign", _) | (_, "txn", Value::List(_)) => {
            Box::new(log::LogProcedure)
        }
        (_, "transfer", _) | (_, "read", Value::Nil) => Box::new(bank::BankProcedure::default()),
        (_, "enqueue" | "dequeue" | "drain", _) => Box::new(queue::QueueProcedure::default()),
        (_, "generate", _) => Box::new(identifiers::Identifiers::default()),
        _ => Box::new(native::Native),
    }
}

/// A name of the program as a keyword.
fn word(name: &'static str) -> Value {
    Value::Word(Symbol::new(name))
}

/// The completion of an operation that took place.
fn ok(op: &Op, value: Value) -> ProcedureStep {
    ProcedureStep::Done(op.complete(OpType::Ok, value))
}

/// The error for an operation that the store does not support.
fn cannot(op: &Op) -> String {
    format!("{} of {}: not supported by the store", op.f, op.value)
}

/// The store's key for an operation on independent keys.
fn key(op: &Op) -> Result<Vec<u8>, String> {
    match &op.value {
        Value::Keyed(key, _) => Ok(key.to_string().into_bytes()),
        _ => Err(cannot(op)),
    }
}

/// The store's key of one part of the data under an operation's key.
fn part(op: &Op, kind: &str) -> Result<Vec<u8>, String> {
    Ok([kind.as_bytes(), b" ", &key(op)?].concat())
}

/// Adds the operation's key to a value, if it has one.
fn keyed(op: &Op, value: Value) -> Value {
    match &op.value {
        Value::Keyed(key, _) => Value::Keyed(key.clone(), value.into()),
        _ => value,
    }
}

/// The operation's value without its key.
fn argument(op: &Op) -> &Value {
    match &op.value {
        Value::Keyed(_, value) => value,
        value => value,
    }
}

/// The error for a transaction with too few answers.
const MISSING: &str = "an answer is missing";
