//! Unread appends: whether there is an order of them that the level allows.
//!
//! An unread append comes after all versions of its list that were read, so only the order among several of them is open. It
//! needs a search only if two transactions of one strongly connected component made them: elsewhere the order of components
//! decides, for every model that is defined by the absence of cycles. Proof: sort the components topologically, and the unread
//! appends of each list in that order. Each edge that this adds leads from a component to a later one, so it is on no cycle; all
//! cycles existed before.
//!
//! Within a component, snapshot isolation requires of two transactions that append to one list that one commits before the
//! other takes its snapshot. Whether an order of snapshots and commits does so is decided exactly, by the search that decides
//! registers: the known order of a list's versions is a chain of updates, each reading the previous one, and unread appends are
//! blind writes after it.

use super::ListDependencies;
use super::list_edges::OrderKinds;
use super::list_proof::SnapshotEvents;
use super::list_table::{BRANCH, ListId};
use super::lists::OrderedLists;
use super::read_anomalies::Suspect;
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink, WW};
use seatrial_cycles::shape::{EdgeSource, ShapeGraph};
use seatrial_cycles::{Level, Txn};
use seatrial_history::FixedMap;
use seatrial_isolation::decision::{
    Axiom, GivenDecision, GivenTransaction, OrderModel, OrderWitness, RespectedOrder, decide_given,
};
use std::collections::{BTreeMap, BTreeSet};

/// Lists with unread appends by several transactions of one component.
#[derive(Clone, Debug, Default)]
pub(super) struct UndecidedAppends {
    /// Numbers of the components.
    pub(super) components: BTreeSet<usize>,
    pub(super) lists: BTreeSet<ListId>,
    /// Such appends, one for each list and transaction.
    pub(super) appends: usize,
}

impl OrderedLists {
    /// The unread appends that the order of components does not order.
    pub(super) fn undecided_appends(&self, components: &[Vec<u32>]) -> UndecidedAppends {
        let mut undecided = UndecidedAppends::default();
        if components.is_empty() || self.unseen.is_empty() {
            return undecided;
        }
        // By transaction: the number of its component, if it is in one.
        let mut component: Vec<Option<usize>> = vec![None; self.table.len()];
        for (number, members) in components.iter().enumerate() {
            // Helper nodes come after all transactions.
            for &one in members
                .iter()
                .take_while(|&&one| (one as usize) < self.table.len())
            {
                component[one as usize] = Some(number);
            }
        }
        // Sorted by list, so the appends of one list are adjacent.
        for group in self.unseen.chunk_by(|a, b| a.0 == b.0) {
            let members = group
                .iter()
                .filter_map(|&(_, writer)| component[writer.index()]);
            let mut members: Vec<usize> = members.collect();
            members.sort_unstable();
            for same in members
                .chunk_by(|a, b| a == b)
                .filter(|same| same.len() > 1)
            {
                undecided.components.insert(same[0]);
                undecided.lists.insert(group[0].0);
                undecided.appends += same.len();
            }
        }
        undecided
    }

    /// Decides whether the transactions of a component satisfy this level, if it is snapshot isolation or parallel snapshot
    /// isolation; else whether they satisfy the former.
    pub(super) fn decide(&self, members: &[u32], level: Level, steps_max: u64) -> GivenDecision {
        let count = self.table.len();
        let own = members.partition_point(|&member| (member as usize) < count);
        let members = &members[..own];
        let (given, keys) = self.given(members);
        let follows = if level.implies(Level::StrongReadUncommitted) {
            RespectedOrder::Time
        } else if level.implies(Level::StrongSessionReadUncommitted) {
            RespectedOrder::Sessions
        } else {
            RespectedOrder::Nothing
        };
        let axiom = match level {
            Level::ParallelSnapshotIsolation => Axiom::Parallel,
            _ => Axiom::Snapshot,
        };
        let rename = |number: &mut u32| *number = members[*number as usize];
        let model = OrderModel { axiom, follows };
        match decide_given(&given, keys, model, steps_max) {
            GivenDecision::Holds(mut witness) => {
                let (OrderWitness::Serial(order)
                | OrderWitness::Snapshots(order)
                | OrderWitness::Visible(order)) = &mut witness;
                order.iter_mut().for_each(rename);
                GivenDecision::Holds(witness)
            }
            GivenDecision::Fails(mut core) => {
                core.iter_mut().for_each(rename);
                GivenDecision::Fails(core)
            }
            GivenDecision::Open => GivenDecision::Open,
        }
    }

    /// These transactions with their reads and writes of each other's versions, and the number of keys.
    ///
    /// The versions of a list that belong to members are adjacent: a transaction between two transactions of a component belongs
    /// to it. The versions before them are their initial state.
    fn given(&self, members: &[u32]) -> (Vec<GivenTransaction>, u32) {
        let table = &self.table;
        // By transaction: its place among the members, which is its number in the decision.
        let place = |number: Txn| {
            let found = members.binary_search(&number.get());
            found.ok().map(|at| Txn::new(at as u32))
        };
        let mut given = self.without_accesses(members);
        let mut keys: FixedMap<ListId, u32> = FixedMap::default();
        for at in ListId::all(table.lists.len()) {
            let mut last = None;
            for number in self.committed_versions(at) {
                let (before, now) = (last, place(number));
                last = now;
                let Some(now) = now.filter(|_| before != now) else {
                    continue;
                };
                let next = keys.len() as u32;
                let key = *keys.entry(at).or_insert(next);
                let one = &mut given[now.index()];
                assert!(
                    !one.writes.contains(&key),
                    "two writes of a key with another between them are on a forbidden cycle"
                );
                one.writes.push(key);
                one.reads.push((key, before));
            }
        }
        for &(at, writer) in &self.unseen {
            if let Some(now) = place(writer) {
                let next = keys.len() as u32;
                let key = *keys.entry(at).or_insert(next);
                let one = &mut given[now.index()];
                if !one.writes.contains(&key) {
                    one.writes.push(key);
                }
            }
        }
        for (reader, read) in table.each_read() {
            let (at, length) = read;
            let (Some(now), true) = (place(reader), length & BRANCH == 0) else {
                continue;
            };
            let (before, _) = self.neighbours(at, length);
            if before == Some(reader) {
                continue;
            }
            let next = keys.len() as u32;
            let key = *keys.entry(at).or_insert(next);
            let seen = (key, before.and_then(place));
            let reads = &mut given[now.index()].reads;
            if !reads.contains(&seen) {
                reads.push(seen);
            }
        }
        assert!(
            given.len() == members.len(),
            "each member is a transaction of the decision"
        );
        debug_assert!(
            Txn::all(given.len()).zip(&given).all(|(now, one)| {
                let mut reads = one.reads.iter();
                reads.all(|&(key, from)| from != Some(now) && (key as usize) < keys.len())
            }),
            "no member reads from itself, nor a key without a number"
        );
        (given, keys.len() as u32)
    }

    /// These transactions without their reads and writes.
    fn without_accesses(&self, members: &[u32]) -> Vec<GivenTransaction> {
        let transactions = &self.table.transactions;
        let given = members.iter().map(|&number| {
            let number = Txn::new(number);
            let is_completed = transactions.is_ok(number);
            let ended = transactions.completion(number);
            let ended = ended.filter(|_| is_completed);
            GivenTransaction {
                session: transactions.process(number).get(),
                time: (transactions.invocation(number), ended),
                is_completed,
                writes: Vec::new(),
                reads: Vec::new(),
            }
        });
        given.collect()
    }

    /// The suspect of transactions that no order of unread appends explains.
    pub(super) fn without_order(&self, transactions: Vec<Txn>) -> Suspect {
        let mut writers: BTreeMap<ListId, u32> = BTreeMap::new();
        for &(at, writer) in &self.unseen {
            if transactions.binary_search(&writer).is_ok() {
                *writers.entry(at).or_default() += 1;
            }
        }
        let several = writers.into_iter().filter(|&(_, count)| count > 1);
        Suspect::Unordered {
            lists: several.map(|(at, _)| at).collect(),
            transactions,
        }
    }

    /// An order of snapshots and commits (nodes t and t + count; helpers above) in which the unread appends of a list are in the
    /// order of the `ranks` of their transactions; `None` if the edges have a cycle.
    pub(super) fn snapshots(
        &self,
        level: Level,
        ranks: impl Fn(Txn) -> Option<(u32, u32)>,
    ) -> Option<Vec<u32>> {
        let orders = OrderKinds {
            process: level.implies(Level::StrongSessionReadUncommitted),
            realtime: level.implies(Level::StrongReadUncommitted),
        };
        let lists = self;
        let mut chains = Vec::new();
        for group in self.unseen.chunk_by(|a, b| a.0 == b.0) {
            let ranked = group
                .iter()
                .filter_map(|&(_, one)| Some((ranks(one)?, one)));
            let mut ranked: Vec<_> = ranked.collect();
            ranked.sort_unstable();
            let pairs = ranked.array_windows();
            chains.extend(pairs.map(|[(_, one), (_, next)]| (*one, *next)));
        }
        let chained = Chained {
            events: SnapshotEvents(ListDependencies { lists, orders }),
            chains,
        };
        let rows = ShapeGraph::new(2 * self.table.len(), &chained).ok()?;
        let peeled = rows.peel();
        peeled.is_all(&rows).then_some(peeled.order)
    }
}

/// Events, and pairs of transactions of which the first commits before the second takes its snapshot.
struct Chained<'a> {
    events: SnapshotEvents<'a>,
    chains: Vec<(Txn, Txn)>,
}

impl EdgeSource for Chained<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        self.events.emit_edges(edges);
        let transactions = self.events.0.lists.table.len() as u32;
        for &(one, next) in &self.chains {
            edges.link(one.get() + transactions, next.get(), WW);
        }
    }
}
