//! A lock: a register with its owner and the fence of its last acquisition.

use super::{Consumer, Procedure, ProcedureStep, cannot, keyed, ok, part};
use crate::encoding::{bytes, number};
use seatrial_history::{Op, Process, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// Reads the lock, then acquires it if it is free, or releases it if the process owns it.
#[derive(Debug, Default)]
pub(super) struct LockProcedure {
    /// The value of the completion once the swap has taken place.
    granted: Option<Value>,
}

impl Procedure for LockProcedure {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        self.granted = None;
        let mut transaction = Transaction::new();
        let put = transaction.read(&part(op, "lock")?);
        put.map_err(|error| error.to_string())?;
        Ok(ProcedureStep::Look(transaction))
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        if let Some(value) = self.granted.take() {
            return Ok(ok(op, value));
        }
        let read = answers.iter().next().and_then(|answer| bytes(&answer));
        let (owner, fence) = match &read {
            Some(bytes) => holder(bytes)?,
            None => (0, 0),
        };
        let Process::Client(process) = op.process else {
            return Err(cannot(op));
        };
        let me = process as i64 + 1;
        let (after, value) = if op.f == "acquire" {
            if owner != 0 {
                return Ok(ProcedureStep::Done(self.failed(op, "held")));
            }
            ((me, fence + 1), keyed(op, Value::Int(fence + 1)))
        } else {
            if owner != me {
                return Ok(ProcedureStep::Done(self.failed(op, "not-held")));
            }
            ((0, fence), op.value.clone())
        };
        let after = format!("{} {}", after.0, after.1);
        let mut transaction = Transaction::new();
        let lock = part(op, "lock")?;
        let put = transaction.compare_and_set(&lock, read.as_deref(), after.as_bytes());
        put.map_err(|error| error.to_string())?;
        self.granted = Some(value);
        Ok(ProcedureStep::Change(transaction))
    }
}

/// The owner of a lock (the number of the process plus one; 0 when it is free) and the fence of its last acquisition.
fn holder(bytes: &[u8]) -> Result<(i64, i64), String> {
    let mut words = bytes.split(|byte| *byte == b' ').map(number);
    match (words.next(), words.next()) {
        (Some(owner), Some(fence)) => Ok((owner?, fence?)),
        _ => Err(format!("{bytes:?} is not a lock")),
    }
}
