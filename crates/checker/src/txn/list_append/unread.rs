//! Appends that nobody read: where they stand, and whether a place can be found for them.
//!
//! An append that nobody read comes after all that was read of its list, so only the order of several such is open. It needs a
//! search only where two transactions of one strongly connected component made them: elsewhere the order of components settles
//! it, for every model whose definition is the absence of cycles. Proof: put the components in topological order, and unread
//! appends of each list in that order. Each edge that this adds leads from a component to a later one, so it is on no cycle;
//! what cycles there are were there before.
//!
//! Within a component, snapshot isolation asks that of two transactions that append to one list one commits before the other
//! takes its snapshot. Whether an order of snapshots and commits does that is decided exactly, by the search that decides
//! registers: the known order of a list's versions is a chain of updates, each seeing the one before, and unread appends are
//! blind writes after it.

use super::Dependencies;
use super::edges::Orders;
use super::lists::Lists;
use super::proof::Events;
use super::reads::Suspect;
use super::table::{BRANCH, NONE, outcome};
use crate::txn::decision::{Axiom, Decided, Follows, Given, Promise, Witness, decide_given};
use crate::txn::dense::Map;
use crate::txn::graph::{Edges, Sink, WW};
use crate::txn::level::Level;
use crate::txn::rows::{Linked, Rows};
use std::collections::{BTreeMap, BTreeSet};

/// Lists with unread appends by several transactions of one component.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// Numbers of the components.
    pub(super) components: BTreeSet<usize>,
    pub(super) lists: BTreeSet<u32>,
    /// Such appends, one for each list and transaction.
    pub(super) appends: usize,
}

impl Lists {
    /// What the order of components leaves open.
    pub(super) fn doubts(&self, components: &[Vec<u32>]) -> Doubts {
        let mut doubts = Doubts::default();
        if components.is_empty() || self.unseen.is_empty() {
            return doubts;
        }
        let mut component = vec![NONE; self.table.len()];
        for (members, number) in components.iter().zip(0..) {
            // Helpers come after all transactions.
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
                doubts.components.insert(same[0] as usize);
                doubts.lists.insert(group[0].0);
                doubts.appends += same.len();
            }
        }
        doubts
    }

    /// Decides whether the transactions of a component keep this level, if it is snapshot isolation or parallel snapshot
    /// isolation; else whether they keep the former.
    pub(super) fn decide(&self, members: &[u32], level: Level, steps_max: u64) -> Decided {
        let count = self.table.len();
        let own = members.partition_point(|&member| (member as usize) < count);
        let members = &members[..own];
        let (given, keys) = self.given(members);
        let follows = if level.implies(Level::StrongReadUncommitted) {
            Follows::Time
        } else if level.implies(Level::StrongSessionReadUncommitted) {
            Follows::Sessions
        } else {
            Follows::Nothing
        };
        let axiom = match level {
            Level::ParallelSnapshotIsolation => Axiom::Parallel,
            _ => Axiom::Snapshot,
        };
        let name = |number: &mut u32| *number = members[*number as usize];
        let promise = Promise { axiom, follows };
        match decide_given(&given, keys, promise, steps_max) {
            Decided::Holds(mut witness) => {
                let (Witness::Serial(order) | Witness::Snapshots(order) | Witness::Visible(order)) =
                    &mut witness;
                order.iter_mut().for_each(name);
                Decided::Holds(witness)
            }
            Decided::Fails(mut core) => {
                core.iter_mut().for_each(name);
                Decided::Fails(core)
            }
            Decided::Open => Decided::Open,
        }
    }

    /// These transactions as they see each other, and the number of keys.
    ///
    /// Versions of a list that are those of members stand side by side: whatever is between two transactions of a component
    /// belongs to it. What was there before them is their initial state.
    fn given(&self, members: &[u32]) -> (Vec<Given>, u32) {
        let table = &self.table;
        let place = |number: u32| members.binary_search(&number).ok().map(|at| at as u32);
        let mut given: Vec<Given> = Vec::with_capacity(members.len());
        for &number in members {
            let at = number as usize;
            let is_ok = table.outcomes[at] == outcome::OK;
            let ended = if is_ok { table.completions[at] } else { NONE };
            given.push(Given {
                session: table.processes[at],
                time: (table.invocations[at], ended),
                is_completed: is_ok,
                writes: Vec::new(),
                reads: Vec::new(),
            });
        }
        let mut keys: Map<u32, u32> = Map::default();
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
                    "it would be on a forbidden cycle"
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

    /// Transactions that no order of unread appends explains.
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

    /// An order of snapshots and commits (transactions t and t + count; helpers above) in which unread appends of a list stand in
    /// the order of `ranks` of their transactions; `None` when an edge leads back.
    pub(super) fn snapshots(
        &self,
        level: Level,
        ranks: impl Fn(u32) -> Option<(u32, u32)>,
    ) -> Option<Vec<u32>> {
        let orders = Orders {
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
            events: Events(Dependencies { lists, orders }),
            chains,
        };
        let rows = Rows::new(2 * self.table.len(), &chained).ok()?;
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

/// Events, and transactions of which the first commits before the second takes its snapshot.
struct Chained<'a> {
    events: Events<'a>,
    chains: Vec<(u32, u32)>,
}

impl Linked for Chained<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        self.events.link(edges);
        let transactions = self.events.0.lists.table.len() as u32;
        for &(one, next) in &self.chains {
            edges.link(one + transactions, next, WW);
        }
    }
}
