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
use super::edges::OrderKinds;
use super::lists::OrderedLists;
use super::proof::SnapshotEvents;
use super::reads::Suspect;
use super::table::{BRANCH, NONE, outcome};
use seatrial_cycles::Level;
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink, WW};
use seatrial_cycles::shape::{EdgeSource, ShapeGraph};
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
    pub(super) lists: BTreeSet<u32>,
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
        let mut component = vec![NONE; self.table.len()];
        for (members, number) in components.iter().zip(0..) {
            // Helper nodes come after all transactions.
            for &one in members
                .iter()
                .take_while(|&&one| (one as usize) < self.table.len())
            {
                component[one as usize] = number;
            }
        }
        for group in self.unseen.chunk_by(|a, b| a.0 == b.0) {
            let members = group.iter().map(|&(_, writer)| component[writer as usize]);
            let mut members: Vec<u32> = members.filter(|&number| number != NONE).collect();
            members.sort_unstable();
            for same in members
                .chunk_by(|a, b| a == b)
                .filter(|same| same.len() > 1)
            {
                undecided.components.insert(same[0] as usize);
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
        let place = |number: u32| members.binary_search(&number).ok().map(|at| at as u32);
        let mut given: Vec<GivenTransaction> = Vec::with_capacity(members.len());
        for &number in members {
            let at = number as usize;
            let is_ok = table.outcomes[at] == outcome::OK;
            let ended = if is_ok { table.completions[at] } else { NONE };
            given.push(GivenTransaction {
                session: table.processes[at],
                time: (table.invocations[at], ended),
                is_completed: is_ok,
                writes: Vec::new(),
                reads: Vec::new(),
            });
        }
        let mut keys: FixedMap<u32, u32> = FixedMap::default();
        for at in 0..table.lists.len() as u32 {
            let mut last = NONE;
            for number in self.committed_versions(at) {
                let (before, now) = (last, place(number).unwrap_or(NONE));
                last = now;
                if now == NONE || before == now {
                    continue;
                }
                let next = keys.len() as u32;
                let key = *keys.entry(at).or_insert(next);
                let one = &mut given[now as usize];
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
                let one = &mut given[now as usize];
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
            if before == reader {
                continue;
            }
            let next = keys.len() as u32;
            let key = *keys.entry(at).or_insert(next);
            let seen = (key, place_or_none(before, &place));
            let reads = &mut given[now as usize].reads;
            if !reads.contains(&seen) {
                reads.push(seen);
            }
        }
        (given, keys.len() as u32)
    }

    /// The suspect of transactions that no order of unread appends explains.
    pub(super) fn without_order(&self, transactions: Vec<u32>) -> Suspect {
        let mut writers: BTreeMap<u32, u32> = BTreeMap::new();
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
        ranks: impl Fn(u32) -> Option<(u32, u32)>,
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

fn place_or_none(number: u32, place: &impl Fn(u32) -> Option<u32>) -> u32 {
    match number {
        NONE => NONE,
        number => place(number).unwrap_or(NONE),
    }
}

/// Events, and pairs of transactions of which the first commits before the second takes its snapshot.
struct Chained<'a> {
    events: SnapshotEvents<'a>,
    chains: Vec<(u32, u32)>,
}

impl EdgeSource for Chained<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        self.events.emit_edges(edges);
        let transactions = self.events.0.lists.table.len() as u32;
        for &(one, next) in &self.chains {
            edges.link(one + transactions, next, WW);
        }
    }
}
