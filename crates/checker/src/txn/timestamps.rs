//! Transactions at the points of time that the database claims for them.

mod gather;
mod replay;
#[cfg(test)]
mod tests;

pub use gather::Timestamped;

use super::findings::{FINDINGS_MAX, Findings};
use crate::{Anomaly, Checker, Finding, Validity, Verdict};
use gather::Operation;
use replay::{Fault, Replay};
use seatrial_history::History;
use serde_json::json;
use std::collections::BTreeMap;

/// A read that is not what was committed when its transaction took its snapshot (Chronos: EXT).
const SNAPSHOT: Anomaly = "timestamp-read";
/// Two transactions that wrote the same key and overlapped in time (Chronos: NOCONFLICT).
const CONFLICT: Anomaly = "timestamp-conflict";
/// A transaction that took its snapshot before an earlier one of its session was committed (Chronos: SESSION).
const SESSION: Anomaly = "timestamp-session";
/// A read that contradicts what its own transaction read or wrote before (Chronos: INT).
const INTERNAL: Anomaly = super::anomaly::INTERNAL;

/// What the order of timestamps is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// Reads are of the snapshot at the start, of two overlapping transactions that write the same key one aborts.
    SnapshotIsolation,
    /// The same, and a snapshot has all that its session did before.
    #[default]
    StrongSessionSnapshotIsolation,
    /// One after another, in the order of their commits.
    Serializable,
    /// The same, and the commits of a session are in its order.
    StrongSessionSerializable,
}

impl Promise {
    /// All of them.
    pub const ALL: [Promise; 4] = [
        Promise::SnapshotIsolation,
        Promise::StrongSessionSnapshotIsolation,
        Promise::Serializable,
        Promise::StrongSessionSerializable,
    ];

    /// The model's name.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::SnapshotIsolation => "snapshot-isolation",
            Promise::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            Promise::Serializable => "serializable",
            Promise::StrongSessionSerializable => "strong-session-serializable",
        }
    }

    fn has_snapshots(self) -> bool {
        matches!(
            self,
            Promise::SnapshotIsolation | Promise::StrongSessionSnapshotIsolation
        )
    }

    fn has_sessions(self) -> bool {
        matches!(
            self,
            Promise::StrongSessionSnapshotIsolation | Promise::StrongSessionSerializable
        )
    }
}

/// Replays transactions in the order of the timestamps that the database gave them: O(n log n) for n transactions, one
/// step for each operation. The rules are Chronos' (ICDE 2025).
///
/// The timestamps are claims, but nothing is taken on trust: when each read saw what the order says, that order is a
/// witness, and the history has the isolation, whatever the clocks were. When one did not, the database broke its promise
/// *at its own timestamps*; another order may still explain the history, which is for a checker without timestamps to
/// say. Values need not be unique. Aborted and unknown transactions are left out, so what they wrote may be read by
/// nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timestamps {
    promise: Promise,
}

impl Timestamps {
    /// A checker of this promise.
    pub fn new(promise: Promise) -> Timestamps {
        Timestamps { promise }
    }

    /// Judges what was gathered.
    pub fn judge(&self, transactions: &Timestamped) -> Verdict {
        let mut verdict = Verdict::valid("timestamps");
        verdict.model = Some(self.promise.name().to_owned());
        if let Some(reason) = transactions.refused() {
            return verdict.unknown(reason);
        }
        let mut replay = Replay::new(transactions, self.promise);
        let mut counts = BTreeMap::new();
        let mut kept = Vec::new();
        replay.run(|fault| {
            let count: &mut u64 = counts.entry(anomaly(&fault)).or_default();
            *count += 1;
            if *count <= FINDINGS_MAX as u64 {
                kept.push(fault);
            }
        });
        verdict.details = json!({
            "transactions": transactions.len(),
            "operations": transactions.operation_count(),
            "order": "timestamps",
        });
        if counts.is_empty() {
            verdict.proof = Some(Verdict::TIMESTAMP_REPLAY);
            return verdict;
        }
        verdict.valid = Validity::Invalid;
        let mut findings = Findings::default();
        for fault in &kept {
            findings.add(anomaly(fault), || tell(fault, transactions));
        }
        (_, verdict.findings) = findings.into_parts();
        verdict.anomalies = counts;
        verdict
    }
}

impl Checker for Timestamps {
    fn name(&self) -> &'static str {
        "timestamps"
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(&Timestamped::of(history))
    }
}

fn anomaly(fault: &Fault) -> Anomaly {
    match fault {
        Fault::Internal { .. } => INTERNAL,
        Fault::Read { .. } => SNAPSHOT,
        Fault::Conflict { .. } => CONFLICT,
        Fault::Session { .. } => SESSION,
    }
}

/// A transaction with its timestamps.
fn when(transaction: u32, transactions: &Timestamped) -> String {
    let stamps = transactions.stamps(transaction);
    let [start, commit] = [stamps.start, stamps.commit];
    format!(
        "op {} ({}.{} to {}.{})",
        transactions.index(transaction),
        start.physical,
        start.logical,
        commit.physical,
        commit.logical
    )
}

/// A fault in words.
fn tell(fault: &Fault, transactions: &Timestamped) -> Finding {
    let when = |transaction: u32| when(transaction, transactions);
    let (summary, taking_part) = match fault {
        Fault::Internal {
            transaction,
            event,
            expected,
        } => {
            let seen = transactions.operation(*event);
            let (who, value, key) = (when(*transaction), seen.value(), seen.key);
            let text = format!("{who} read {value} of key {key}, where it had {expected} itself");
            (text, vec![*transaction])
        }
        Fault::Read {
            transaction,
            event,
            expected,
            writer,
        } => tell_read(*transaction, *event, expected, *writer, transactions),
        Fault::Conflict { first, second, key } => {
            let (one, other) = (when(*first), when(*second));
            let text = format!("{one} and {other} both wrote key {key} and overlapped in time");
            (text, vec![*first, *second])
        }
        Fault::Session { first, second } => {
            let (one, other) = (when(*first), when(*second));
            let text = format!(
                "{other} follows {one} in its session, but not in the order of the timestamps"
            );
            (text, vec![*first, *second])
        }
    };
    let mut operations = Vec::new();
    for transaction in taking_part {
        let index = transactions.index(transaction);
        if !operations.contains(&index) {
            operations.push(index);
        }
    }
    Finding {
        anomaly: anomaly(fault),
        summary,
        operations,
        steps: Vec::new(),
    }
}

/// A read that is not of its snapshot, in words; who takes part.
fn tell_read(
    transaction: u32,
    event: usize,
    expected: &str,
    writer: Option<u32>,
    transactions: &Timestamped,
) -> (String, Vec<u32>) {
    let when = |transaction: u32| when(transaction, transactions);
    let seen = transactions.operation(event);
    let (who, value, key) = (when(transaction), seen.value(), seen.key);
    let mut text = format!("{who} read {value} of key {key}; by the timestamps it is {expected}");
    let mut taking_part = vec![transaction];
    match writer {
        Some(writer) => {
            text += ", of ";
            text += &when(writer);
            taking_part.push(writer);
        }
        None => text += ", which nobody had written yet",
    }
    if let Some(writer) = whose(&seen, transactions) {
        text += "; what it read was written by ";
        text += &when(writer);
        taking_part.push(writer);
    }
    (text, taking_part)
}

/// Who wrote the value, or appended the last element, that a read saw.
fn whose(seen: &Operation<'_>, transactions: &Timestamped) -> Option<u32> {
    let value = seen.last()?;
    (0..transactions.len() as u32).find(|&transaction| {
        let mut events = transactions.events(transaction);
        events.any(|event| {
            let operation = transactions.operation(event);
            operation.is_write() && operation.key == seen.key && operation.last() == Some(value)
        })
    })
}
