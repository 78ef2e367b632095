//! The check of a database against its own timestamps.

mod gather_timestamps;
#[cfg(test)]
mod tests;
mod timestamp_replay;

pub use gather_timestamps::Timestamped;

use gather_timestamps::{GatherStamps, StampedOperation};
use seatrial_checker::{
    Aims, Anomaly, Checker, Details, FINDINGS_MAX, Figures, Finding, Findings, FoldChecker,
    OnlineChecker, ReplayFigures, Validity, Verdict,
};
use seatrial_history::{ChunkSource, History};
use seatrial_machine::counted;
use std::collections::BTreeMap;
use timestamp_replay::{TimestampReplay, TimestampViolation};

/// A read of another version than the one committed when its transaction took its snapshot (Chronos: EXT).
const SNAPSHOT: Anomaly = "timestamp-read";
/// Two transactions that wrote the same key and overlapped in time (Chronos: NOCONFLICT).
const CONFLICT: Anomaly = "timestamp-conflict";
/// A transaction that took its snapshot before an earlier one of its session was committed (Chronos: SESSION).
const SESSION: Anomaly = "timestamp-session";
/// A read that contradicts an earlier read or write of its own transaction (Chronos: INT).
const INTERNAL: Anomaly = seatrial_cycles::anomaly::INTERNAL;

/// An isolation level to which the order of timestamps is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampLevel {
    /// Reads see the snapshot at the start; of two overlapping transactions that write the same key one must abort.
    SnapshotIsolation,
    /// The same, and a snapshot contains all that its session did before.
    #[default]
    StrongSessionSnapshotIsolation,
    /// One after another, in the order of their commits.
    Serializable,
    /// The same, and the commits of a session are in its order.
    StrongSessionSerializable,
}

impl TimestampLevel {
    /// All levels.
    pub const ALL: [TimestampLevel; 4] = [
        TimestampLevel::SnapshotIsolation,
        TimestampLevel::StrongSessionSnapshotIsolation,
        TimestampLevel::Serializable,
        TimestampLevel::StrongSessionSerializable,
    ];

    /// The model's name.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampLevel::SnapshotIsolation => "snapshot-isolation",
            TimestampLevel::StrongSessionSnapshotIsolation => "strong-session-snapshot-isolation",
            TimestampLevel::Serializable => "serializable",
            TimestampLevel::StrongSessionSerializable => "strong-session-serializable",
        }
    }

    fn has_snapshots(self) -> bool {
        matches!(
            self,
            TimestampLevel::SnapshotIsolation | TimestampLevel::StrongSessionSnapshotIsolation
        )
    }

    fn has_sessions(self) -> bool {
        matches!(
            self,
            TimestampLevel::StrongSessionSnapshotIsolation
                | TimestampLevel::StrongSessionSerializable
        )
    }
}

/// Replays transactions in the order of the timestamps that the database gave them: O(n log n) for n transactions, one
/// step for each operation. The rules are Chronos' (ICDE 2025).
///
/// The timestamps are not trusted: if each read saw the state that their order implies, that order is a witness, and the
/// history has the level whatever the clocks were. If one did not, the database violates the level *at its own timestamps*;
/// another order may still explain the history, which a checker without timestamps can decide. Values need not be unique.
/// Aborted transactions are left out, so no read may see their writes. A read of what a transaction of unknown outcome wrote is
/// undecided, since nothing says when that was committed: then the verdict is unknown, unless another read is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timestamps {
    level: TimestampLevel,
}

impl Timestamps {
    /// A checker of this level.
    pub fn new(level: TimestampLevel) -> Timestamps {
        Timestamps { level }
    }

    /// Checks gathered transactions.
    pub fn check_transactions(&self, transactions: &Timestamped) -> Verdict {
        let mut verdict = Verdict::valid("timestamps");
        verdict.model = Some(self.level.name().to_owned());
        if let Some(reason) = transactions.refused() {
            return verdict.unknown(reason);
        }
        let mut replay = TimestampReplay::new(transactions, self.level);
        let mut counts = BTreeMap::new();
        let mut kept = Vec::new();
        replay.run(|fault| {
            let count: &mut u64 = counts.entry(anomaly(&fault)).or_default();
            *count += 1;
            if *count <= FINDINGS_MAX as u64 {
                kept.push(fault);
            }
        });
        verdict.details = Details::of(Figures::Replay(ReplayFigures {
            transactions: transactions.len(),
            operations: transactions.operation_count(),
            order: "timestamps",
        }));
        if counts.is_empty() && replay.undecided() > 0 {
            let reads = counted(replay.undecided(), "read");
            return verdict.no_anomaly_found(vec![format!(
                "{reads} of writes whose transaction's outcome is unknown, which has no place in the order"
            )]);
        }
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
        self.check_transactions(&Timestamped::of(history))
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        let checker = *self;
        let end = move |stamped: Timestamped, _: &dyn ChunkSource| {
            Ok(checker.check_transactions(&stamped).into())
        };
        Box::new(FoldChecker::with_end("timestamps", GatherStamps, end).with_sink(|it| it))
    }
}

fn anomaly(fault: &TimestampViolation) -> Anomaly {
    match fault {
        TimestampViolation::Internal { .. } => INTERNAL,
        TimestampViolation::Read { .. } => SNAPSHOT,
        TimestampViolation::Conflict { .. } => CONFLICT,
        TimestampViolation::Session { .. } => SESSION,
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

/// The finding of a violation.
fn tell(fault: &TimestampViolation, transactions: &Timestamped) -> Finding {
    let when = |transaction: u32| when(transaction, transactions);
    let (summary, taking_part) = match fault {
        TimestampViolation::Internal {
            transaction,
            event,
            expected,
        } => {
            let seen = transactions.operation(*event);
            let (who, value, key) = (when(*transaction), seen.value(), seen.key);
            let text = format!("{who} read {value} of key {key}, where it had {expected} itself");
            (text, vec![*transaction])
        }
        TimestampViolation::Read {
            transaction,
            event,
            expected,
            writer,
        } => tell_read(*transaction, *event, expected, *writer, transactions),
        TimestampViolation::Conflict { first, second, key } => {
            let (one, other) = (when(*first), when(*second));
            let text = format!("{one} and {other} both wrote key {key} and overlapped in time");
            (text, vec![*first, *second])
        }
        TimestampViolation::Session { first, second } => {
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
        linearization: None,
    }
}

/// A read of another version than that of its snapshot: the text, and the transactions in it.
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
        None => text += ", which was not written yet",
    }
    if let Some(writer) = whose(&seen, transactions) {
        text += "; what it read was written by ";
        text += &when(writer);
        taking_part.push(writer);
    }
    (text, taking_part)
}

/// The transaction that wrote the value, or appended the last element, that a read saw.
fn whose(seen: &StampedOperation<'_>, transactions: &Timestamped) -> Option<u32> {
    let value = seen.last()?;
    (0..transactions.len() as u32).find(|&transaction| {
        let mut events = transactions.events(transaction);
        events.any(|event| {
            let operation = transactions.operation(event);
            operation.is_write() && operation.key == seen.key && operation.last() == Some(value)
        })
    })
}
