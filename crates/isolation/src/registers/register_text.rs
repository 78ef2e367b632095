//! Transactions on registers and their faults as text.

use super::columns::{Columns, RegisterEvent};
use super::read_faults::{FaultyRead, ReadFault};
use seatrial_checker::Finding;
use seatrial_cycles::{Txn, Version};
use seatrial_history::OpType;
use std::fmt::Write as _;

/// Number of events of a transaction that are shown.
const EVENTS_MAX: usize = 24;

impl Columns {
    /// A transaction's name: `op 12`, or `transaction 3 of session 7` if the file has no operations.
    pub fn name(&self, transaction: u32) -> String {
        if self.has_times() {
            return format!("op {}", self.index(transaction));
        }
        let session = self.sessions()[transaction as usize];
        let earlier = self.sessions()[..transaction as usize].iter();
        let earlier = earlier.filter(|&&other| other == session).count();
        format!(
            "transaction {} of session {}",
            earlier + 1,
            self.client(session)
        )
    }

    /// A value as text.
    pub fn shown_value(&self, version: Version) -> String {
        self.value(version)
            .map_or("nil".into(), |value| value.to_string())
    }

    /// A read or write as text: `[:r 1 nil]`.
    pub fn shown_event(&self, event: RegisterEvent) -> String {
        format!(
            "[:{} {} {}]",
            if event.is_write() { "w" } else { "r" },
            self.key(event.key()),
            self.shown_value(event.version())
        )
    }

    /// A transaction on one line: `op 4 (ok, process 1): [[:w 1 2] [:r 1 2]]`.
    pub fn shown(&self, transaction: u32) -> String {
        let number = Txn::new(transaction);
        let completed = !self.has_times() || self.table.completion(number).is_some();
        let outcome = match self.table.outcome(number) {
            OpType::Info if !completed => "never completed",
            outcome => outcome.name(),
        };
        let mut text = self.name(transaction);
        if self.has_times() {
            let client = self.client(self.table.process(number));
            let _ = write!(text, " ({outcome}, process {client}): [");
        } else {
            let _ = write!(text, " ({outcome}): [");
        }
        let events = self.events(transaction);
        for (at, event) in events.iter().take(EVENTS_MAX).enumerate() {
            text.push_str(if at > 0 { " " } else { "" });
            text.push_str(&self.shown_event(*event));
        }
        if events.len() > EVENTS_MAX {
            let _ = write!(text, " … {} more", events.len() - EVENTS_MAX);
        }
        text + "]"
    }

    /// The finding of a faulty read.
    pub fn finding(&self, faulty: FaultyRead) -> Finding {
        let FaultyRead {
            transaction,
            event,
            fault,
        } = faulty;
        let read = self.events(transaction)[event as usize];
        let (key, value) = (self.key(read.key()), self.shown_value(read.version()));
        let reader = self.shown(transaction);
        let writer = self.writer(read.version()).map(Txn::get);
        let shown_writer = || writer.map_or_else(String::new, |writer| self.shown(writer));
        let summary = match fault {
            ReadFault::Garbage => {
                format!("{reader}\nread {value} from key {key}, a value that was never written.")
            }
            ReadFault::Internal => format!(
                "{reader}\nIts {} contradicts what it wrote before: {} was to be expected.",
                self.shown_event(read),
                self.own(transaction, event as usize)
                    .map_or("nil".into(), |own| self.shown_value(own))
            ),
            ReadFault::Future => format!(
                "{reader}\nread its own write of {value} to key {key}, which it performs only later."
            ),
            ReadFault::Aborted => format!(
                "{reader}\nread value {value} of key {key}, whose write was aborted:\n{}",
                shown_writer()
            ),
            ReadFault::Intermediate => format!(
                "{reader}\nread key {key} as it was in the middle of another transaction, which wrote it again after \
                 {value}:\n{}",
                shown_writer()
            ),
        };
        let mut operations = vec![self.index(transaction)];
        if matches!(fault, ReadFault::Aborted | ReadFault::Intermediate) {
            operations.extend(writer.map(|writer| self.index(writer)));
        }
        Finding {
            anomaly: fault.name(),
            summary,
            operations,
            steps: Vec::new(),
            linearization: None,
        }
    }
}
