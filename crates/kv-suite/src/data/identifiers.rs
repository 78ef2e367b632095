//! Unique identifiers: a register that counts up.

use super::{Consumer, MISSING, Procedure, ProcedureStep, ok};
use crate::encoding::RegisterCell;
use seatrial_history::{Op, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// The register of the last identifier.
const LAST: &[u8] = b"last";

/// Reads the last identifier, then swaps it for the next one.
#[derive(Debug, Default)]
pub(super) struct Identifiers {
    /// The identifier of the last swap.
    taken: Option<i64>,
}

impl Procedure for Identifiers {
    fn begin(&mut self, _: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        self.taken = None;
        let mut transaction = Transaction::new();
        let put = transaction.read(LAST);
        put.map_err(|error| error.to_string())?;
        Ok(ProcedureStep::Look(transaction))
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        if let Some(identifier) = self.taken {
            return Ok(ok(op, Value::Int(identifier)));
        }
        let answer = answers.iter().next().ok_or(MISSING)?;
        let last = RegisterCell::new(&answer, 0)?;
        let mut transaction = Transaction::new();
        let put = last.add(&mut transaction, LAST, 1);
        put.map_err(|error| error.to_string())?;
        self.taken = Some(last.value + 1);
        Ok(ProcedureStep::Change(transaction))
    }
}
