//! What must not come before what it follows.

use super::table::{NONE, Table, Transaction};

/// Follows an order of transactions: nothing that began after the end of one may stand before it.
pub(super) struct Clock {
    is_timed: bool,
    is_by_process: bool,
    /// The last invocation of all that have begun so far, and 1; 0: none.
    all: u32,
    /// By process: the last place.
    sessions: Vec<u32>,
}

impl Clock {
    /// One that follows `process`, `realtime` (which has the order of processes with it) or neither.
    pub(super) fn new(table: &Table, time: &str) -> Clock {
        Clock {
            is_timed: time == "realtime",
            is_by_process: !time.is_empty(),
            all: 0,
            sessions: vec![0; table.session_count()],
        }
    }

    /// This one begins.
    pub(super) fn begin(&mut self, one: &Transaction) {
        self.all = self.all.max(one.begun().map_or(0, |begun| begun + 1));
        let last = &mut self.sessions[one.session as usize];
        *last = (*last).max(one.place + 1);
    }

    /// May this end now? Nothing comes after what is unknown.
    pub(super) fn end(&self, one: &Transaction) -> Result<(), String> {
        if !one.is_ok() || one.ended == NONE {
            return Ok(());
        }
        if self.is_by_process && self.sessions[one.session as usize] > one.place + 1 {
            return Err(format!(
                "op {} comes after a later one of its process",
                one.index
            ));
        }
        if self.is_timed && self.all > one.ended + 1 {
            return Err(format!(
                "op {} comes after one that began when it had ended",
                one.index
            ));
        }
        Ok(())
    }
}
