//! A counter: a list of what was added to it.

use super::set::read_or_append;
use super::{Consumer, MISSING, Next, Procedure, keyed, ok};
use crate::encoding::list;
use seatrial_history::{Op, Value};
use seatrial_kv::Answers;

/// An operation on a counter is one transaction of the store; a read adds up what was added.
#[derive(Debug)]
pub(super) struct Counter;

impl Procedure for Counter {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<Next, String> {
        read_or_append(op).map(Next::Whole)
    }

    fn resume(&mut self, op: &Op, answers: &Answers, _: &mut Consumer) -> Result<Next, String> {
        if op.f == "add" {
            return Ok(ok(op, op.value.clone()));
        }
        let answer = answers.iter().next().ok_or(MISSING)?;
        let sum = list(&answer)?.iter().sum();
        Ok(ok(op, keyed(op, Value::Int(sum))))
    }
}
