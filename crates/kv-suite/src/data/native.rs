//! Registers, lists, and transactions of both: the store's own data types.

use super::{Consumer, Procedure, ProcedureStep};
use crate::encoding::{decimal, number};
use seatrial_history::{Key, Mop, Observed, Op, OpType, Symbol, Value};
use seatrial_kv_protocol::{Answer, Answers, Transaction};
use std::sync::Arc;

/// An operation of a register or a transaction is one transaction of the store.
#[derive(Debug)]
pub(super) struct Native;

impl Procedure for Native {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        transaction(op).map(ProcedureStep::Whole)
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        Ok(ProcedureStep::Done(
            op.complete(OpType::Ok, answered(op, answers)?),
        ))
    }
}

/// The field of an operation that is to be aborted at its end: the transaction gets a comparison that cannot hold.
pub(crate) const ABORT: Symbol = Symbol::new("abort");

/// A register that is never written, so a comparison with a value fails.
const NEVER_WRITTEN: &[u8] = b"never-written";

/// The transaction for a transaction or an operation on one register. The error names the part that the store does not support.
fn transaction(op: &Op) -> Result<Transaction, String> {
    let mut transaction = Transaction::new();
    let put = match &op.value {
        Value::Txn(mops) => mops.iter().try_for_each(|mop| put(&mut transaction, mop)),
        Value::Keyed(key, value) => single(&mut transaction, op, key, value),
        other => {
            return Err(format!(
                "{} of {other}: not a transaction, nor a keyed value",
                op.f
            ));
        }
    };
    put?;
    if op.extra.get(ABORT.as_str()) == Some(&Value::Bool(true)) {
        let impossible = transaction.compare_and_set(NEVER_WRITTEN, Some(b"1"), b"2");
        impossible.map_err(|error| error.to_string())?;
    }
    Ok(transaction)
}

/// Adds one micro-operation to the transaction.
fn put(transaction: &mut Transaction, mop: &Mop) -> Result<(), String> {
    let key = mop.key().to_string();
    let done = match mop {
        Mop::Read { .. } => transaction.read(key.as_bytes()),
        Mop::Append { element, .. } => transaction.append(key.as_bytes(), &decimal(*element)),
        Mop::Write { value, .. } => transaction.write(key.as_bytes(), &decimal(*value)),
    };
    done.map_err(|error| error.to_string())
}

/// Adds a read, write or compare-and-set of one register to the transaction.
fn single(transaction: &mut Transaction, op: &Op, key: &Key, value: &Value) -> Result<(), String> {
    let name = key.to_string();
    let key = name.as_bytes();
    let done = match (op.f.as_str(), value) {
        ("read", _) => transaction.read(key),
        ("write", Value::Int(value)) => transaction.write(key, &decimal(*value)),
        ("cas", Value::Cas(from, to)) => {
            transaction.compare_and_set(key, Some(&decimal(*from)), &decimal(*to))
        }
        (f, other) => return Err(format!("{f} of {other}: not supported by the store")),
    };
    done.map_err(|error| error.to_string())
}

/// The operation's value with its answers.
fn answered(op: &Op, answers: &Answers) -> Result<Value, String> {
    let mut answers = answers.iter();
    let mut next = || {
        answers
            .next()
            .ok_or_else(|| "an answer is missing".to_owned())
    };
    match &op.value {
        Value::Txn(mops) => {
            let mops: Result<Arc<[Mop]>, String> =
                mops.iter().map(|mop| seen(mop, &next()?)).collect();
            Ok(Value::Txn(mops?))
        }
        Value::Keyed(key, value) => {
            let value = match next()? {
                Answer::Absent => Value::Nil,
                Answer::Register(bytes) => Value::Int(number(bytes)?),
                Answer::Done => (**value).clone(),
                Answer::List(_) => return Err(format!("{key} holds a list, not a register")),
                Answer::Range(_) => return Err(format!("a range was answered for {key}")),
            };
            Ok(Value::Keyed(key.clone(), Arc::new(value)))
        }
        other => Err(format!("{other} has no place for an answer")),
    }
}

/// A micro-operation with its answer.
fn seen(mop: &Mop, answer: &Answer<'_>) -> Result<Mop, String> {
    let Mop::Read { key, .. } = mop else {
        return Ok(mop.clone());
    };
    let observed = match answer {
        Answer::Absent => Observed::Nil,
        Answer::Register(bytes) => Observed::Register(number(bytes)?),
        Answer::List(list) => {
            let elements: Result<Arc<[i64]>, String> = list.iter().map(number).collect();
            Observed::List(elements?)
        }
        Answer::Done | Answer::Range(_) => {
            return Err(format!("a read of {key} answered with nothing read"));
        }
    };
    Ok(Mop::Read {
        key: key.clone(),
        observed,
    })
}
