//! Reads that are wrong at any isolation level.

use super::columns::Columns;
use super::columns_builder::EVENTS_FEW;
use seatrial_checker::Anomaly;
use seatrial_cycles::Version;
use seatrial_cycles::anomaly::{FUTURE_READ, G1A, G1B, GARBAGE_READ, INTERNAL};
use seatrial_history::FixedMap;
use seatrial_history::OpType;

/// Why a read is wrong at any level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFault {
    /// It saw a value that was never written (a thin-air read).
    Garbage,
    /// It came after a write of the same key by its own transaction, and did not see that write.
    Internal,
    /// It saw a value that its own transaction writes only later.
    Future,
    /// It saw a value that a failed transaction wrote.
    Aborted,
    /// It saw a value that its writer overwrote itself.
    Intermediate,
}

impl ReadFault {
    /// All faults.
    pub const ALL: [ReadFault; 5] = [
        ReadFault::Garbage,
        ReadFault::Internal,
        ReadFault::Future,
        ReadFault::Aborted,
        ReadFault::Intermediate,
    ];

    /// The anomaly's name: `garbage-read`, `internal`, `future-read`, `G1a`, `G1b`.
    pub fn name(self) -> Anomaly {
        match self {
            ReadFault::Garbage => GARBAGE_READ,
            ReadFault::Internal => INTERNAL,
            ReadFault::Future => FUTURE_READ,
            ReadFault::Aborted => G1A,
            ReadFault::Intermediate => G1B,
        }
    }
}

/// A read that is wrong at any level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultyRead {
    /// The transaction that read.
    pub transaction: u32,
    /// The index of the read among its events.
    pub event: u32,
    /// Why it is wrong.
    pub fault: ReadFault,
}

impl Columns {
    /// Why an external read of this version is wrong, if it is.
    fn fault(&self, reader: u32, version: Version) -> Option<ReadFault> {
        if self.is_initial(version) {
            return None;
        }
        let Some(writer) = self.writer(version) else {
            return Some(ReadFault::Garbage);
        };
        if writer.get() == reader {
            Some(ReadFault::Future)
        } else if self.outcomes()[writer.index()] == OpType::Fail {
            Some(ReadFault::Aborted)
        } else if self.is_overwritten(version) {
            Some(ReadFault::Intermediate)
        } else {
            None
        }
    }

    /// Passes on the reads of successful transactions that are wrong at any level, in order, at most one fault for each
    /// read. A read that contradicts earlier writes of its own transaction is internal, regardless of the writer of its value.
    /// Linear in the number of events.
    pub fn faults(&self, mut tell: impl FnMut(FaultyRead)) {
        // By key: the version that the transaction wrote last; only used if it is long.
        let mut written: FixedMap<u32, Version> = FixedMap::default();
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
                        written.get(&event.key()).copied()
                    } else {
                        self.own(transaction, at)
                    };
                    (own != Some(event.version())).then_some(ReadFault::Internal)
                };
                if let Some(fault) = fault {
                    tell(FaultyRead {
                        transaction,
                        event: at as u32,
                        fault,
                    });
                }
            }
        }
    }

    /// The version that the transaction itself wrote to the key last before this event, if it wrote any.
    pub fn own(&self, transaction: u32, event: usize) -> Option<Version> {
        let events = self.events(transaction);
        let key = events[event].key();
        let mut before = events[..event].iter().rev();
        let write = before.find(|other| other.is_write() && other.key() == key);
        write.map(|write| write.version())
    }
}
