//! A table of rows with rising numbers and timestamps: a list of numbers and one of timestamps. The clock is a register that
//! counts up.

use super::{Consumer, MISSING, Procedure, ProcedureStep, cannot, keyed, ok, part};
use crate::encoding::{RegisterCell, decimal, list};
use seatrial_history::{Op, Symbol, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// The register of the timestamp of the last row.
const CLOCK: &[u8] = b"clock";

/// A read is one transaction; an insertion reads numbers and clock, then appends a row if the clock is unchanged.
#[derive(Debug, Default)]
pub(super) struct TableProcedure {
    /// The row of the last insertion.
    inserted: Option<Value>,
}

impl Procedure for TableProcedure {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        self.inserted = None;
        let mut transaction = Transaction::new();
        let is_read = op.f == "read";
        if !is_read && op.f != "add" {
            return Err(cannot(op));
        }
        let put = transaction.read(&part(op, "rows")?);
        let second = if is_read { &part(op, "stamps")? } else { CLOCK };
        let put = put.and_then(|()| transaction.read(second));
        put.map_err(|error| error.to_string())?;
        Ok(if is_read {
            ProcedureStep::Whole(transaction)
        } else {
            ProcedureStep::Look(transaction)
        })
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        if let Some(row) = self.inserted.take() {
            return Ok(ok(op, row));
        }
        let mut answers = answers.iter();
        let mut next = || answers.next().ok_or(MISSING);
        let numbers = list(&next()?)?;
        if op.f == "read" {
            let stamps = list(&next()?)?;
            let mut rows: Vec<_> = stamps.iter().zip(&numbers).collect();
            rows.sort_by_key(|(stamp, _)| **stamp);
            let rows = rows.into_iter().map(|(stamp, number)| row(*number, *stamp));
            return Ok(ok(op, keyed(op, Value::List(rows.collect()))));
        }
        let number = numbers.into_iter().max().unwrap_or(-1) + 1;
        let clock = RegisterCell::new(&next()?, 0)?;
        let stamp = clock.value + 1;
        let mut transaction = Transaction::new();
        let (rows, stamps) = (part(op, "rows")?, part(op, "stamps")?);
        let put = clock.add(&mut transaction, CLOCK, 1);
        let put = put.and_then(|()| transaction.append(&rows, &decimal(number)));
        let put = put.and_then(|()| transaction.append(&stamps, &decimal(stamp)));
        put.map_err(|error| error.to_string())?;
        self.inserted = Some(keyed(op, row(number, stamp)));
        Ok(ProcedureStep::Change(transaction))
    }
}

/// A row as the checker reads it.
fn row(number: i64, stamp: i64) -> Value {
    let field = |name: &'static str, number| (Value::Word(Symbol::new(name)), Value::Int(number));
    Value::Map([field("val", number), field("sts", stamp)].into())
}
