//! What is wrong before any isolation level.

use super::builder::EVENTS_FEW;
use super::columns::{Columns, NONE};
use crate::Anomaly;
use crate::txn::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL};
use crate::txn::dense::Map;
use seatrial_history::OpType;

/// What is wrong with a read, whatever the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It saw a value that nobody ever wrote (a thin-air read).
    Garbage,
    /// It came after a write of the same key by its own transaction, and did not see it.
    Internal,
    /// It saw what its own transaction writes only later.
    Future,
    /// It saw what a failed transaction wrote.
    Aborted,
    /// It saw a value that its writer itself had overwritten.
    Intermediate,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] = [
        Fault::Garbage,
        Fault::Internal,
        Fault::Future,
        Fault::Aborted,
        Fault::Intermediate,
    ];

    /// The anomaly's name: `garbage-read`, `internal`, `future-read`, `G1a`, `G1b`.
    pub fn name(self) -> Anomaly {
        match self {
            Fault::Garbage => GARBAGE_READ,
            Fault::Internal => INTERNAL,
            Fault::Future => FUTURE_READ,
            Fault::Aborted => G1A,
            Fault::Intermediate => G1B,
        }
    }
}

/// A read with something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulty {
    /// Who read.
    pub transaction: u32,
    /// Which of its events the read is.
    pub event: u32,
    /// What is wrong.
    pub fault: Fault,
}

impl Columns {
    /// What is wrong with an external read of this version.
    fn fault(&self, reader: u32, version: u32) -> Option<Fault> {
        if self.is_initial(version) {
            return None;
        }
        let writer = self.writer(version);
        if writer == NONE {
            Some(Fault::Garbage)
        } else if writer == reader {
            Some(Fault::Future)
        } else if self.outcomes()[writer as usize] == OpType::Fail {
            Some(Fault::Aborted)
        } else if self.is_overwritten(version) {
            Some(Fault::Intermediate)
        } else {
            None
        }
    }

    /// Tells what is wrong with reads of successful transactions before any level, at most one thing of each read, in
    /// order. A read that contradicts the own writes before it is internal, wherever its value comes from.
    pub fn faults(&self, mut tell: impl FnMut(Faulty)) {
        // What the transaction wrote last, by key; only when it is long.
        let mut written: Map<u32, u32> = Map::default();
        for transaction in 0..self.len() as u32 {
            if self.outcomes()[transaction as usize] != OpType::Ok {
                continue;
            }
            let events = self.events(transaction);
            let is_long = events.len() > EVENTS_FEW;
            written.clear();
            for (at, event) in events.iter().enumerate() {
                let fault = if event.is_external_read() {
                    self.fault(transaction, event.version())
                } else if event.is_write() {
                    if is_long {
                        written.insert(event.key(), event.version());
                    }
                    None
                } else {
                    let own = if is_long {
                        written.get(&event.key()).copied().unwrap_or(NONE)
                    } else {
                        self.own(transaction, at)
                    };
                    (own != event.version()).then_some(Fault::Internal)
                };
                if let Some(fault) = fault {
                    tell(Faulty {
                        transaction,
                        event: at as u32,
                        fault,
                    });
                }
            }
        }
    }

    /// The version that the transaction itself wrote last before this event of the same key.
    pub fn own(&self, transaction: u32, event: usize) -> u32 {
        let events = self.events(transaction);
        let key = events[event].key();
        let mut before = events[..event].iter().rev();
        let write = before.find(|other| other.is_write() && other.key() == key);
        write.map_or(NONE, |write| write.version())
    }
}
