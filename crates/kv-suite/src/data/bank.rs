//! A bank: a register for each account, opened with [`OPENING_BALANCE`].

use super::{Consumer, MISSING, Procedure, ProcedureStep, cannot, ok};
use crate::encoding::RegisterCell;
use seatrial_generator::workload::BankOptions;
use seatrial_history::{Op, Value};
use seatrial_kv_protocol::{Answers, Transaction};

/// Balance of an account that was never written.
const OPENING_BALANCE: i64 = 10;

/// A read is one transaction; a transfer reads two accounts, then swaps both if they are unchanged.
#[derive(Debug, Default)]
pub(super) struct BankProcedure {
    /// Was the last transaction the swap of a transfer?
    is_swap: bool,
}

impl Procedure for BankProcedure {
    fn begin(&mut self, op: &Op, _: &mut Consumer) -> Result<ProcedureStep, String> {
        self.is_swap = false;
        let mut transaction = Transaction::new();
        let mut read = |account: i64| {
            let read = transaction.read(&account_key(account));
            read.map_err(|error| error.to_string())
        };
        if op.f == "read" {
            for account in 0..BankOptions::default().accounts {
                read(account as i64)?;
            }
            return Ok(ProcedureStep::Whole(transaction));
        }
        let transfer = op.value.as_transfer().ok_or_else(|| cannot(op))?;
        read(transfer.from)?;
        read(transfer.to)?;
        Ok(ProcedureStep::Look(transaction))
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        _: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        if self.is_swap {
            return Ok(ok(op, op.value.clone()));
        }
        let cells = answers
            .iter()
            .map(|answer| RegisterCell::new(&answer, OPENING_BALANCE));
        let cells = cells.collect::<Result<Vec<RegisterCell>, String>>()?;
        if op.f == "read" {
            let balances: Vec<(i64, i64)> =
                (0..).zip(cells.iter().map(|cell| cell.value)).collect();
            return Ok(ok(op, Value::balances(&balances)));
        }
        let [from, to] = &cells[..] else {
            return Err(MISSING.into());
        };
        let transfer = op.value.as_transfer().ok_or_else(|| cannot(op))?;
        if from.value < transfer.amount {
            return Ok(ProcedureStep::Done(self.failed(op, "insufficient-funds")));
        }
        let mut transaction = Transaction::new();
        let giver = account_key(transfer.from);
        let put = from.add(&mut transaction, &giver, -transfer.amount);
        let taker = account_key(transfer.to);
        let put = put.and_then(|()| to.add(&mut transaction, &taker, transfer.amount));
        put.map_err(|error| error.to_string())?;
        self.is_swap = true;
        Ok(ProcedureStep::Change(transaction))
    }
}

fn account_key(account: i64) -> Vec<u8> {
    format!("account {account}").into_bytes()
}
