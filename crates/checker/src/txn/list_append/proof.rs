//! What proves a verdict: an order for a valid history, the findings for an invalid one.

use super::lists::Lists;
use super::table::NONE;
use super::{Dependencies, ListAppend, Orders};
use crate::txn::graph::{Edges, RW, Sink, WR, WW};
use crate::txn::level::Level;
use crate::txn::rows::{Linked, Rows};
use crate::{Certificate, Evidence, Proof, Validity, Verdict};

/// Some of the dependencies.
struct Only<'a> {
    dependencies: Dependencies<'a>,
    /// The kinds of them that do not count.
    without: u8,
}

/// Hands on what counts.
struct Kept<'a, S> {
    outer: &'a mut Edges<S>,
    without: u8,
}

impl<S: Sink> Sink for Kept<'_, S> {
    fn node(&mut self) {
        self.outer.helper();
    }

    fn take(&mut self, from: u32, to: u32, kind: u8) {
        if kind & self.without == 0 {
            self.outer.link(from, to, kind);
        }
    }
}

impl Linked for Only<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        let transactions = self.dependencies.lists.table.len();
        let without = self.without;
        let outer = edges;
        let mut kept = Edges::into(transactions, Kept { outer, without });
        self.dependencies.link(&mut kept);
    }
}

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

impl ListAppend {
    /// The certificate of this verdict about these lists; `None` for an unknown verdict, and for a valid one of a level
    /// that no simple order proves.
    pub(super) fn certificate(&self, lists: &Lists, verdict: &Verdict) -> Option<Certificate> {
        let proof = match verdict.valid {
            Validity::Unknown(_) => return None,
            Validity::Invalid => {
                Proof::Findings(verdict.findings.iter().map(Evidence::from).collect())
            }
            Validity::Valid => self.order(lists)?,
        };
        Some(Certificate {
            model: self.level.name().to_owned(),
            proof,
        })
    }

    fn order(&self, lists: &Lists) -> Option<Proof> {
        use Level as L;
        if lists.table.lists.iter().any(|list| list.conflict.is_some()) {
            // Tolerated, but nothing can be replayed.
            return None;
        }
        let process = self.level.implies(L::StrongSessionReadUncommitted);
        let realtime = self.level.implies(L::StrongReadUncommitted);
        let orders = Orders { process, realtime };
        let dependencies = Dependencies { lists, orders };
        let count = lists.table.len() as u32;
        match self.level {
            L::Serializable | L::StrongSessionSerializable | L::StrictSerializable => {
                let places = ordered(lists, count, &dependencies)?;
                Some(Proof::Serial(places))
            }
            L::SnapshotIsolation
            | L::StrongSessionSnapshotIsolation
            | L::StrongSnapshotIsolation => {
                let places = ordered(lists, 2 * count, &Events(dependencies))?;
                Some(Proof::Snapshots(places))
            }
            L::ReadUncommitted
            | L::ReadCommitted
            | L::StrongSessionReadCommitted
            | L::StrongReadCommitted => {
                let without = if self.level == L::ReadUncommitted {
                    RW | WR
                } else {
                    RW
                };
                let only = Only {
                    dependencies,
                    without,
                };
                let places = ordered(lists, count, &only)?;
                Some(Proof::Commits(places))
            }
            _ => None,
        }
    }
}

/// The places of the transactions that took place in an order in which no edge leads back. Of the `nodes`, those from the
/// number of transactions on are second events of transactions.
fn ordered(lists: &Lists, nodes: u32, linked: &impl Linked) -> Option<Vec<u64>> {
    let order = Rows::new(nodes as usize, linked).ok()?.order()?;
    let count = lists.table.len() as u32;
    let events = order.into_iter().filter(|&node| node < nodes);
    let numbers = events.map(|node| node % count);
    let happened = numbers.filter(|&number| lists.happened(number));
    let places = happened.map(|number| {
        let number = number as usize;
        let invocation = lists.table.invocations[number];
        let completion = lists.table.completions[number];
        u64::from(if invocation == NONE {
            completion
        } else {
            invocation
        })
    });
    Some(places.collect())
}
