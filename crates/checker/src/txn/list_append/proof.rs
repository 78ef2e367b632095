//! What proves a verdict: an order for a valid history, the findings for an invalid one.

use super::lists::Lists;
use super::record::Record;
use super::{Dependencies, Orders};
use crate::txn::graph::{Edges, RW, Sink, WR, WW};
use crate::txn::kept::Only;
use crate::txn::level::Level;
use crate::txn::rows::{Linked, Rows};
use crate::{Certificate, Evidence, Proof, Validity, Verdict};

/// What must come before what for snapshots: a transaction t takes its snapshot at node t, and commits at node t + count.
/// What is read or overwritten was committed before the snapshot; what a read lacks is committed after it. There is an
/// order of these just when no cycle is without adjacent anti-dependencies.
struct Events<'a>(Dependencies<'a>);

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

/// Is this level proven by an order of transactions, or of their snapshots and commits?
pub(super) fn is_proven_by_order(level: Level) -> bool {
    is_serial(level) || events(level) == 2 || commits(level).is_some()
}

/// Is it proven by an order in which no edge of the whole graph leads back?
pub(super) fn is_serial(level: Level) -> bool {
    use Level as L;
    matches!(
        level,
        L::Serializable | L::StrongSessionSerializable | L::StrictSerializable
    )
}

/// How often each transaction stands in the order.
pub(super) fn events(level: Level) -> u32 {
    use Level as L;
    match level {
        L::SnapshotIsolation | L::StrongSessionSnapshotIsolation | L::StrongSnapshotIsolation => 2,
        _ => 1,
    }
}

/// The kinds of edges that do not count for an order of commits, if one proves this level.
fn commits(level: Level) -> Option<u8> {
    use Level as L;
    match level {
        L::ReadUncommitted => Some(RW | WR),
        L::ReadCommitted | L::StrongSessionReadCommitted | L::StrongReadCommitted => Some(RW),
        _ => None,
    }
}

/// An order that proves a level that is not serial: nodes from the number of transactions on are second events of
/// transactions, or helpers from twice that on. `None` when an edge leads back.
pub(super) fn order(level: Level, lists: &Lists) -> Option<Vec<u32>> {
    let process = level.implies(Level::StrongSessionReadUncommitted);
    let realtime = level.implies(Level::StrongReadUncommitted);
    let orders = Orders { process, realtime };
    let dependencies = Dependencies { lists, orders };
    let count = lists.table.len();
    let rows = if events(level) == 2 {
        Rows::new(2 * count, &Events(dependencies))
    } else {
        let without = commits(level)?;
        let only = Only {
            dependencies,
            transactions: count,
            without,
        };
        Rows::new(count, &only)
    };
    let rows = rows.ok()?;
    let peeled = rows.peel();
    peeled.is_all(&rows).then_some(peeled.order)
}

/// What proves a level for lists whose dependency graph has cycles, if an order of another kind than the serial one does.
pub(super) fn of_cyclic(level: Level, lists: &Lists) -> Option<&'static str> {
    if is_serial(level) {
        return None;
    }
    let kind = if events(level) == 2 {
        Verdict::SNAPSHOT_ORDER
    } else {
        Verdict::COMMIT_ORDER
    };
    order(level, lists).map(|_| kind)
}

/// The certificate of this verdict; `None` for an unknown verdict, and for a valid one of a level that no simple order
/// proves.
pub(super) fn certificate(level: Level, record: Record, verdict: &Verdict) -> Option<Certificate> {
    let proof = match verdict.valid {
        Validity::Unknown(_) => return None,
        Validity::Invalid => Proof::Findings(verdict.findings.iter().map(Evidence::from).collect()),
        Validity::Valid => {
            let places = record.order?.into_iter().map(u64::from).collect();
            if is_serial(level) {
                Proof::Serial(places)
            } else if events(level) == 2 {
                Proof::Snapshots(places)
            } else {
                Proof::Commits(places)
            }
        }
    };
    Some(Certificate::new(level.name(), proof))
}
