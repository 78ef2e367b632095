//! The check that an order of transactions follows process order and real time.

use super::transaction_table::{RecordedTransaction, TransactionTable};

/// Follows an order of transactions: one that ended before another began must not stand after it. Linear; 4 bytes a
/// process.
pub(super) struct OrderClock {
    is_timed: bool,
    is_by_process: bool,
    /// The latest invocation of those that have begun so far, plus one; 0 for none.
    all: u32,
    /// By process: the place of its latest transaction so far, plus one.
    sessions: Vec<u32>,
}

impl OrderClock {
    /// A clock for `process`, `realtime` (which includes the order of processes) or neither (an empty text).
    pub(super) fn new(table: &TransactionTable, time: &str) -> OrderClock {
        OrderClock {
            is_timed: time == "realtime",
            is_by_process: !time.is_empty(),
            all: 0,
            sessions: vec![0; table.session_count()],
        }
    }

    /// A transaction begins here in the order.
    pub(super) fn begin(&mut self, one: &RecordedTransaction) {
        self.all = self.all.max(one.begun().map_or(0, |begun| begun + 1));
        let last = &mut self.sessions[one.session as usize];
        *last = (*last).max(one.place + 1);
    }

    /// Checks that a transaction may end here in the order. Nothing has to come after one of unknown outcome.
    pub(super) fn end(&self, one: &RecordedTransaction) -> Result<(), String> {
        let Some(ended) = one.ended.filter(|_| one.is_ok()) else {
            return Ok(());
        };
        if self.is_by_process && self.sessions[one.session as usize] > one.place + 1 {
            return Err(format!(
                "op {} comes after a later one of its process",
                one.index
            ));
        }
        if self.is_timed && self.all > ended + 1 {
            return Err(format!(
                "op {} comes after one that began when it had ended",
                one.index
            ));
        }
        Ok(())
    }
}
