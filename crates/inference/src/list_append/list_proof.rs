//! Certificates of verdicts on lists: an order for a valid history, findings or a core for an invalid one.

use super::lists::OrderedLists;
use super::window_record::WindowRecord;
use super::{ListDependencies, OrderKinds};
use seatrial_checker::{Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_cycles::anomaly::NO_ORDER;
use seatrial_cycles::edge_filter::EdgeFilter;
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink, RW, WR, WW};
use seatrial_cycles::shape::{EdgeSource, ShapeGraph};
use seatrial_verify::{Certificate, Evidence, Proof};

/// Snapshots and commits as nodes: transaction t takes its snapshot at node t, and commits at node t + count. A version that is
/// read or overwritten was committed before the snapshot; an append that a read misses is committed after it. There is an order
/// of these events if and only if each cycle has adjacent anti-dependencies.
pub(super) struct SnapshotEvents<'a>(pub(super) ListDependencies<'a>);

/// Turns dependencies into edges between snapshots and commits.
struct EventEdgeSink<'a, S> {
    outer: &'a mut EdgeBuilder<S>,
    transactions: u32,
}

impl<S: EdgeSink> EdgeSink for EventEdgeSink<'_, S> {
    fn add_node(&mut self) {
        self.outer.add_helper();
    }

    fn add_edge(&mut self, from: u32, to: u32, kind: u8) {
        let commit = self.transactions;
        let is_anti = kind == RW;
        // Helper nodes are numbered after the commits.
        let from_commit = from >= self.transactions || !is_anti;
        let to_commit = to >= self.transactions || is_anti;
        let from = from + if from_commit { commit } else { 0 };
        let to = to + if to_commit { commit } else { 0 };
        debug_assert!(from != to, "no event comes before itself");
        self.outer.link(from, to, kind);
    }
}

impl EdgeSource for SnapshotEvents<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        let transactions = self.0.lists.table.len() as u32;
        for number in 0..transactions {
            edges.link(number, number + transactions, WW);
        }
        let outer = edges;
        let between = EventEdgeSink {
            outer,
            transactions,
        };
        let mut all = EdgeBuilder::with_sink(transactions as usize, between);
        self.0.emit_edges(&mut all);
    }
}

/// The kind of order that a certificate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderProofKind {
    /// A serial order of transactions.
    Serial,
    /// Snapshots and commits.
    Snapshots,
    /// An order of commits, which may contradict edges of these kinds.
    Commits(u8),
}

/// The weakest kind of order that proves this level.
pub(super) fn kind(level: Level) -> OrderProofKind {
    use Level as L;
    match level {
        L::ReadUncommitted | L::StrongSessionReadUncommitted | L::StrongReadUncommitted => {
            OrderProofKind::Commits(RW | WR)
        }
        L::ReadCommitted | L::StrongSessionReadCommitted | L::StrongReadCommitted => {
            OrderProofKind::Commits(RW)
        }
        // Without predicates, repeatable read is serializability.
        L::RepeatableRead
        | L::UpdateSerializable
        | L::Serializable
        | L::StrongSessionSerializable
        | L::StrictSerializable => OrderProofKind::Serial,
        _ => OrderProofKind::Snapshots,
    }
}

/// Is this level, for transactions without internal contradictions, equivalent to the absence of its forbidden cycles?
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
    matches!(kind(level), OrderProofKind::Commits(_))
}

/// An order of commits, if one proves this level; nodes from the number of transactions on are helpers. `None` if the edges have
/// a cycle.
pub(super) fn commits(level: Level, lists: &OrderedLists) -> Option<Vec<u32>> {
    let OrderProofKind::Commits(without) = kind(level) else {
        return None;
    };
    let process = level.implies(Level::StrongSessionReadUncommitted);
    let realtime = level.implies(Level::StrongReadUncommitted);
    let orders = OrderKinds { process, realtime };
    let dependencies = ListDependencies { lists, orders };
    let count = lists.table.len();
    let only = EdgeFilter {
        source: dependencies,
        transactions: count,
        excluded: without,
    };
    let rows = ShapeGraph::new(count, &only).ok()?;
    let peeled = rows.peel();
    peeled.is_all(&rows).then_some(peeled.order)
}

/// The certificate of this verdict; `None` for an unknown verdict, and for one that no order and no finding proves: then the
/// reason is in its details.
pub(super) fn certificate(
    level: Level,
    record: WindowRecord,
    verdict: &mut Verdict,
) -> Option<Certificate> {
    let proof = match verdict.valid {
        Validity::Unknown(_) => return None,
        Validity::Invalid => of_invalid(record.core, verdict)?,
        Validity::Valid => {
            // A transaction with an internal contradiction, which the level allows, cannot be replayed.
            let is_replayed =
                matches!(kind(level), OrderProofKind::Commits(_)) || has_nothing_tolerated(verdict);
            let places = record.order.filter(|_| is_replayed)?;
            let places = places
                .into_iter()
                .map(|place| u64::from(place.get()))
                .collect();
            match kind(level) {
                OrderProofKind::Serial => Proof::Serial(places),
                OrderProofKind::Snapshots => Proof::Snapshots(places),
                OrderProofKind::Commits(_) => Proof::Commits(places),
            }
        }
    };
    Some(Certificate::new(level.name(), proof))
}

/// Was no anomaly found that the level allows?
fn has_nothing_tolerated(verdict: &Verdict) -> bool {
    let figures = verdict.details.dependencies();
    figures.is_some_and(|figures| figures.tolerated.is_empty())
}

/// The findings; if there are none, the transactions without an order.
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
    verdict.details.unproven = Some(unproven);
    None
}
