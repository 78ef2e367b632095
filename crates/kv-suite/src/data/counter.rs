//! A counter: a list of the added numbers.

use super::set::read_or_append;
use super::{Consumer, MISSING, Procedure, ProcedureStep, keyed, ok};
use crate::encoding::list;
use seatrial_history::{Op, Value};
use seatrial_kv_protocol::Answers;

/// An operation on a counter is one transaction; a read returns the sum of the list.
#[derive(Debug)]
pub(super) struct CounterProcedure;

impl Procedure for CounterProcedure {
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
        let sum = list(&answer)?.iter().sum();
        Ok(ok(op, keyed(op, Value::Int(sum))))
    }
}
