//! What proves a verdict: an order for a valid history, the findings for an invalid one.

use super::lists::Lists;
use super::record::Record;
use super::{Dependencies, Orders};
use crate::txn::anomaly::NO_ORDER;
use crate::txn::graph::{Edges, RW, Sink, WR, WW};
use crate::txn::kept::Only;
use crate::txn::level::Level;
use crate::txn::rows::{Linked, Rows};
use crate::{Certificate, Evidence, Proof, Validity, Verdict};

/// What must come before what for snapshots: a transaction t takes its snapshot at node t, and commits at node t + count.
/// What is read or overwritten was committed before the snapshot; what a read lacks is committed after it. There is an
/// order of these just when no cycle is without adjacent anti-dependencies.
pub(super) struct Events<'a>(pub(super) Dependencies<'a>);

/// Hands on dependencies as edges between events.
struct Between<'a, S> {
    outer: &'a mut Edges<S>,
    transactions: u32,
}

impl<S: Sink> Sink for Between<'_, S> {
    fn node(&mut self) {
        self.outer.helper();
    }

    fn take(&mut self, from: u32, to: u32, kind: u8) {
        let commit = self.transactions;
        let is_anti = kind == RW;
        // Helpers come after the commits.
        let from_commit = from >= self.transactions || !is_anti;
        let to_commit = to >= self.transactions || is_anti;
        let from = from + if from_commit { commit } else { 0 };
        let to = to + if to_commit { commit } else { 0 };
        self.outer.link(from, to, kind);
    }
}

impl Linked for Events<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        let transactions = self.0.lists.table.len() as u32;
        for number in 0..transactions {
            edges.link(number, number + transactions, WW);
        }
        let outer = edges;
        let between = Between {
            outer,
            transactions,
        };
        let mut all = Edges::into(transactions as usize, between);
        self.0.link(&mut all);
    }
}

/// The kind of order that a certificate of this level has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Transactions one after another.
    Serial,
    /// Snapshots and commits.
    Snapshots,
    /// Commits; edges of these kinds do not count.
    Commits(u8),
}

/// The weakest kind of order that proves this level.
pub(super) fn kind(level: Level) -> Kind {
    use Level as L;
    match level {
        L::ReadUncommitted | L::StrongSessionReadUncommitted | L::StrongReadUncommitted => {
            Kind::Commits(RW | WR)
        }
        L::ReadCommitted | L::StrongSessionReadCommitted | L::StrongReadCommitted => {
            Kind::Commits(RW)
        }
        // Without predicates, repeatable read is serializability.
        L::RepeatableRead
        | L::UpdateSerializable
        | L::Serializable
        | L::StrongSessionSerializable
        | L::StrictSerializable => Kind::Serial,
        _ => Kind::Snapshots,
    }
}

/// Is this level, when a transaction does not contradict itself, the absence of the cycles that it forbids?
pub(super) fn is_absence_of_cycles(level: Level) -> bool {
    use Level as L;
    matches!(
        level,
        L::ConsistentView
            | L::RepeatableRead
            | L::ParallelSnapshotIsolation
            | L::SnapshotIsolation
            | L::StrongSessionSnapshotIsolation
            | L::StrongSnapshotIsolation
    )
}

/// Is this level proven by an order of commits?
pub(super) fn is_of_commits(level: Level) -> bool {
    matches!(kind(level), Kind::Commits(_))
}

/// An order of commits, if this level is proven by one; nodes from the number of transactions on are helpers. `None` when an edge
/// leads back.
pub(super) fn commits(level: Level, lists: &Lists) -> Option<Vec<u32>> {
    let Kind::Commits(without) = kind(level) else {
        return None;
    };
    let process = level.implies(Level::StrongSessionReadUncommitted);
    let realtime = level.implies(Level::StrongReadUncommitted);
    let orders = Orders { process, realtime };
    let dependencies = Dependencies { lists, orders };
    let count = lists.table.len();
    let only = Only {
        dependencies,
        transactions: count,
        without,
    };
    let rows = Rows::new(count, &only).ok()?;
    let peeled = rows.peel();
    peeled.is_all(&rows).then_some(peeled.order)
}

/// The certificate of this verdict; `None` for an unknown verdict, and for one that no order and no finding proves: with the
/// reason in its details.
pub(super) fn certificate(
    level: Level,
    record: Record,
    verdict: &mut Verdict,
) -> Option<Certificate> {
    let proof = match verdict.valid {
        Validity::Unknown(_) => return None,
        Validity::Invalid => of_invalid(record.core, verdict)?,
        Validity::Valid => {
            // Whoever contradicts himself, as the level allows, cannot be replayed.
            let is_replayed = matches!(kind(level), Kind::Commits(_))
                || verdict.details["tolerated"] == serde_json::json!({});
            let places = record.order.filter(|_| is_replayed)?;
            let places = places.into_iter().map(u64::from).collect();
            match kind(level) {
                Kind::Serial => Proof::Serial(places),
                Kind::Snapshots => Proof::Snapshots(places),
                Kind::Commits(_) => Proof::Commits(places),
            }
        }
    };
    Some(Certificate::new(level.name(), proof))
}

/// The findings; transactions without an order when there is nothing else.
fn of_invalid(core: Option<Vec<u64>>, verdict: &mut Verdict) -> Option<Proof> {
    let findings = verdict.findings.iter();
    let findings = findings.filter(|finding| finding.anomaly != NO_ORDER);
    let findings: Vec<Evidence> = findings.map(Evidence::from).collect();
    if !findings.is_empty() {
        return Some(Proof::Findings(findings));
    }
    let core = core?;
    let unproven = if core.len() > Certificate::CORE_MAX {
        let (count, most) = (core.len(), Certificate::CORE_MAX);
        format!("{count} transactions have no order, and no more than {most} are replayed")
    } else if verdict.model.as_deref() == Some(Level::ParallelSnapshotIsolation.name()) {
        "transactions on lists that have no order under parallel snapshot isolation are not replayed".to_owned()
    } else {
        return Some(Proof::Core(core));
    };
    verdict.details["unproven"] = unproven.into();
    None
}
