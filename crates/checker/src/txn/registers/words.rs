//! Transactions and what is wrong with them, in words.

use super::columns::{Columns, Event, NONE};
use super::faults::{Fault, Faulty};
use crate::Finding;
use seatrial_history::OpType;
use std::fmt::Write as _;

/// Events of a transaction that are shown.
const EVENTS_MAX: usize = 24;

impl Columns {
    /// A transaction's name: `op 12`, or `transaction 3 of session 7` when the file knows no operations.
    pub fn name(&self, transaction: u32) -> String {
        if self.has_times() {
            return format!("op {}", self.index(transaction));
        }
        let session = self.sessions[transaction as usize];
        let earlier = self.sessions[..transaction as usize].iter();
        let earlier = earlier.filter(|&&other| other == session).count();
        format!(
            "transaction {} of session {}",
            earlier + 1,
            self.client(session)
        )
    }

    /// A value as it is shown.
    pub fn shown_value(&self, version: u32) -> String {
        self.value(version)
            .map_or("nil".into(), |value| value.to_string())
    }

    /// A read or write as it is shown: `[:r 1 nil]`.
    pub fn shown_event(&self, event: Event) -> String {
        format!(
            "[:{} {} {}]",
            if event.is_write() { "w" } else { "r" },
            self.key(event.key()),
            self.shown_value(event.version())
        )
    }

    /// A transaction on one line: `op 4 (ok, process 1): [[:w 1 2] [:r 1 2]]`.
    pub fn shown(&self, transaction: u32) -> String {
        let number = transaction as usize;
        let completed = self.positions.get(number).is_none_or(|it| it.1 != NONE);
        let outcome = match self.outcomes[number] {
            OpType::Info if !completed => "never completed",
            outcome => outcome.name(),
        };
        let mut text = self.name(transaction);
        if self.has_times() {
            let client = self.client(self.sessions[number]);
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

    /// What is wrong with a read, in words.
    pub fn finding(&self, faulty: Faulty) -> Finding {
        let Faulty {
            transaction,
            event,
            fault,
        } = faulty;
        let read = self.events(transaction)[event as usize];
        let (key, value) = (self.key(read.key()), self.shown_value(read.version()));
        let reader = self.shown(transaction);
        let writer = self.writer(read.version());
        let summary = match fault {
            Fault::Garbage => {
                format!("{reader}\nread {value} from key {key}, a value that nobody ever wrote.")
            }
            Fault::Internal => format!(
                "{reader}\nIts {} contradicts what it wrote before: {} was to be expected.",
                self.shown_event(read),
                self.shown_value(self.own(transaction, event as usize))
            ),
            Fault::Future => format!(
                "{reader}\nread its own write of {value} to key {key}, which it performs only later."
            ),
            Fault::Aborted => format!(
                "{reader}\nread value {value} of key {key}, whose write was aborted:\n{}",
                self.shown(writer)
            ),
            Fault::Intermediate => format!(
                "{reader}\nread key {key} as it was in the middle of another transaction, which wrote it again after \
                 {value}:\n{}",
                self.shown(writer)
            ),
        };
        let mut operations = vec![self.index(transaction)];
        if matches!(fault, Fault::Aborted | Fault::Intermediate) {
            operations.push(self.index(writer));
        }
        Finding {
            anomaly: fault.name(),
            summary,
            operations,
            steps: Vec::new(),
        }
    }
}
