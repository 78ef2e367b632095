//! A set: a list of its elements.

use super::{Consumer, MISSING, Procedure, ProcedureStep, argument, cannot, key, keyed, ok};
use crate::encoding::{decimal, list};
use seatrial_history::{Op, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// An operation on a set is one transaction of the store.
#[derive(Debug)]
pub(super) struct SetProcedure;

impl Procedure for SetProcedure {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        read_or_append(op).map(ProcedureStep::Whole)
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        if op.f == "add" {
            return Ok(ok(op, op.value.clone()));
        }
        let answer = answers.iter().next().ok_or(MISSING)?;
        let value = Value::integers(&list(&answer)?);
        Ok(ok(op, keyed(op, value)))
    }
}

/// Reads the list of the operation's key, or appends its argument.
pub(super) fn read_or_append(op: &Op) -> Result<Transaction, String> {
    let mut transaction = Transaction::new();
    let key = key(op)?;
    let put = match op.f.as_str() {
        "read" => transaction.read(&key),
        "add" => {
            let number = argument(op).as_int().ok_or_else(|| cannot(op))?;
            transaction.append(&key, &decimal(number))
        }
        _ => return Err(cannot(op)),
    };
    put.map_err(|error| error.to_string())?;
    Ok(transaction)
}
