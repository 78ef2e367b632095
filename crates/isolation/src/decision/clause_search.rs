//! The search for an order of events where the guess failed.

use super::clause_database::{ClauseDatabase, ClauseId, ConflictResult, negated};
use super::incremental_order::{GraphPath, IncrementalOrder};
use super::known_order::KnownOrder;
use super::order_model::Axiom;
use super::relation::predecessors;
use seatrial_cycles::{Csr, Txn, Version};
use seatrial_history::FixedMap;
use std::collections::{BTreeSet, VecDeque};

/// The result of a search.
pub(super) enum SearchAnswer {
    /// Events in an order that explains all reads.
    Order(Vec<u32>),
    /// No order explains these transactions.
    Core(BTreeSet<u32>),
    /// The search reached its bound.
    Stopped,
}

/// Blocks that moved are sorted together if at most this many places are between them.
const NEARBY: usize = 8;

/// Searches for an order of events that contains all known edges and explains all reads.
///
/// It keeps an order of all events that agrees with the known edges and with all decisions, and looks for two blocks of
/// versions of a key between which the order makes a read or an overwrite wrong. Only such pairs are decided: a pair gets a
/// variable when the order is first wrong about it. The edges of a decision go into the order, which moves only the nodes
/// that it must; an edge that would close a cycle is a conflict, from which clauses are learned. So the part that the guess
/// has right costs nothing, and a history without an order is refuted by the few pairs that matter.
///
/// Its limit: a wrong order is repaired pair by pair, so a bad guess for many hot keys is slow.
pub(super) struct ClauseSearch<'a> {
    pub(super) known: &'a KnownOrder<'a>,
    pub(super) topology: IncrementalOrder,
    pub(super) clauses: ClauseDatabase,
    /// By variable: the heads of its two blocks; true if the first one comes first.
    pairs: Vec<(u32, u32)>,
    numbers: FixedMap<(u32, u32), u32>,
    /// By literal of the trail whose edges were added: the number of edges before.
    edges: Vec<u32>,
    /// By key: the heads of its blocks, as last sorted by their places in the order.
    pub(super) heads: Csr<u32>,
    /// By version: the head of its block, unless that is an initial state. By head: its index among the heads of its key.
    blocks: Vec<Option<Version>>,
    places: Vec<u32>,
    /// Heads of blocks of which an event has moved in the order.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Pairs about which the order may be wrong.
    pending: VecDeque<(u32, u32)>,
    pub(super) steps: u64,
}

/// Whether the search is at its end.
enum SearchProgress {
    /// A variable was decided.
    On,
    /// The order is right about all pairs.
    Done,
}

impl<'a> ClauseSearch<'a> {
    /// A search that begins with this order of all nodes, which agrees with the known edges, and with this order of heads.
    /// Where the two disagree about two blocks, one of the `doubtful` transactions wrote the second one.
    pub(super) fn new(
        known: &'a KnownOrder<'a>,
        order: &[u32],
        forward: Csr<u32>,
        heads: Csr<u32>,
        doubtful: Vec<u32>,
    ) -> ClauseSearch<'a> {
        let backward = predecessors(order.len(), &forward);
        let versions = known.constraints.versions();
        let mut search = ClauseSearch {
            known,
            topology: IncrementalOrder::new(forward, backward, order),
            clauses: ClauseDatabase::default(),
            pairs: Vec::new(),
            numbers: FixedMap::default(),
            edges: Vec::new(),
            blocks: vec![None; versions],
            places: vec![0; versions],
            heads,
            dirty: Vec::new(),
            is_dirty: vec![false; versions],
            pending: VecDeque::new(),
            steps: 0,
        };
        for key in 0..known.constraints.keys {
            for (place, &head) in search.heads.row(key).iter().enumerate() {
                search.places[head as usize] = place as u32;
                for version in known.blocks.members(head) {
                    search.blocks[version as usize] = Some(Version::new(head));
                }
            }
        }
        for number in doubtful {
            search.mark(known.constraints.writes.row(number));
        }
        search
    }

    /// Number of edges and literals looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps + self.topology.steps + self.clauses.steps
    }

    /// Number of pairs with a variable.
    pub(super) fn pairs(&self) -> usize {
        self.clauses.len()
    }

    /// Number of clauses: conflicts, and implications by paths.
    pub(super) fn clauses(&self) -> usize {
        self.clauses.clause_count()
    }

    /// Searches for at most this number of steps.
    pub(super) fn run(&mut self, steps_max: u64) -> SearchAnswer {
        loop {
            if self.steps() > steps_max {
                return SearchAnswer::Stopped;
            }
            if let Some(conflict) = self.settle() {
                match self.clauses.learn(conflict) {
                    ConflictResult::Unsatisfiable(clause) => {
                        return SearchAnswer::Core(self.core(clause));
                    }
                    ConflictResult::Back(length) => self.undo(length),
                }
            } else if let SearchProgress::Done = self.decide() {
                if self.known.model.axiom != Axiom::Parallel {
                    return SearchAnswer::Order(self.order());
                }
                match self.exclude() {
                    (false, _) => return SearchAnswer::Order(self.order()),
                    (true, None) => {}
                    (true, Some(conflict)) => match self.clauses.learn(conflict) {
                        ConflictResult::Unsatisfiable(clause) => {
                            return SearchAnswer::Core(self.core(clause));
                        }
                        ConflictResult::Back(length) => self.undo(length),
                    },
                }
            }
        }
    }

    /// The events in order.
    fn order(&self) -> Vec<u32> {
        assert_eq!(
            self.edges.len(),
            self.clauses.trail.len(),
            "a decided pair has no edges"
        );
        let mut events: Vec<u32> = (0..self.known.events()).collect();
        events.sort_unstable_by_key(|&event| self.topology.place(event));
        events
    }

    /// Adds the edges of new true literals and propagates them, until nothing follows. Returns a clause that is false, if
    /// there is one.
    fn settle(&mut self) -> Option<ClauseId> {
        loop {
            while let Some(&literal) = self.clauses.trail.get(self.edges.len()) {
                self.edges.push(self.topology.added() as u32);
                for (from, to) in self.edges_of(literal) {
                    if let Err(path) = self.topology.add(from, to, literal) {
                        return Some(self.lemma(&path, literal));
                    }
                }
            }
            let conflict = self.clauses.propagate();
            if conflict.is_some() {
                return conflict;
            }
            if self.edges.len() == self.clauses.trail.len() {
                self.mark_moved();
                return None;
            }
        }
    }

    /// Removes the edges of all literals but the first `length`; the order may be wrong about their pairs again.
    fn undo(&mut self, length: usize) {
        if let Some(&edges) = self.edges.get(length) {
            self.topology.truncate(edges as usize);
        }
        self.edges.truncate(length);
        self.mark_moved();
    }

    /// The heads of the two blocks of a literal, the earlier one first.
    pub(super) fn blocks_of(&self, literal: u32) -> (u32, u32) {
        let (one, other) = self.pairs[literal as usize / 2];
        if literal.is_multiple_of(2) {
            (one, other)
        } else {
            (other, one)
        }
    }

    fn edges_of(&self, literal: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (first, second) = self.blocks_of(literal);
        let edges = self.known.before(self.known.blocks.tail(first), second);
        edges.into_iter().flatten()
    }

    /// Adds the clause that the edges of a path and that of `literal` are not all there.
    fn lemma(&mut self, path: &GraphPath, literal: u32) -> ClauseId {
        let nodes = path.nodes.iter();
        let transactions = nodes.filter_map(|&node| self.known.transaction(node));
        let transactions: BTreeSet<u32> = transactions.collect();
        let mut literals: Vec<u32> = path.literals.iter().map(|&one| negated(one)).collect();
        if !literals.contains(&negated(literal)) {
            literals.push(negated(literal));
        }
        self.clauses
            .cycle(literals, transactions.into_iter().collect())
    }

    /// Marks the blocks of all events that have moved.
    fn mark_moved(&mut self) {
        let moved = std::mem::take(&mut self.topology.moved);
        let constraints = self.known.constraints;
        for number in moved
            .iter()
            .filter_map(|&node| self.known.transaction(node))
        {
            self.mark(constraints.reads.row(number));
            self.mark(constraints.writes.row(number));
        }
    }

    /// Marks the blocks of these versions to be looked at.
    fn mark(&mut self, versions: &[u32]) {
        for &version in versions {
            // Initial states come first in any case, and have no block among the heads.
            if let Some(head) = self.blocks[version as usize]
                && !std::mem::replace(&mut self.is_dirty[head.index()], true)
            {
                self.dirty.push(head.get());
            }
        }
    }

    /// Decides a pair: one that took part in conflicts, otherwise one about which the order is wrong.
    fn decide(&mut self) -> SearchProgress {
        if let Some(variable) = self.clauses.hottest() {
            self.branch(variable);
            return SearchProgress::On;
        }
        loop {
            while let Some((one, other)) = self.pending.pop_front() {
                self.steps += 1;
                if self.is_wrong(one, other) {
                    let variable = self.variable(one, other);
                    if self.clauses.is_open(variable) {
                        self.branch(variable);
                        return SearchProgress::On;
                    }
                }
            }
            if self.dirty.is_empty() {
                return SearchProgress::Done;
            }
            self.look();
        }
    }

    /// Sorts marked blocks by their places in the order, and adds consecutive blocks in the wrong order to the pending
    /// pairs. If all consecutive blocks are right, all pairs are. The cost depends on the blocks that moved and how far, not
    /// on the number of blocks of a key.
    fn look(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let key = |head: u32| self.known.constraints.version_keys[head as usize];
        dirty.sort_unstable_by_key(|&head| (key(head), self.places[head as usize]));
        let mut dirty = dirty.into_iter().peekable();
        while let Some(head) = dirty.next() {
            let (key, mut first) = (key(head), self.places[head as usize] as usize);
            self.is_dirty[head as usize] = false;
            let mut last = first;
            // Marked blocks nearby are sorted together with it.
            while let Some(other) = dirty.next_if(|&other| {
                key == self.known.constraints.version_keys[other as usize]
                    && self.places[other as usize] as usize <= last + NEARBY
            }) {
                self.is_dirty[other as usize] = false;
                let place = self.places[other as usize] as usize;
                (first, last) = (first.min(place), last.max(place));
            }
            self.look_at(key, first, last);
        }
    }

    /// The same for the blocks of a key from one index to another.
    fn look_at(&mut self, key: u32, first: usize, last: usize) {
        let place = |head: u32| self.topology.places[self.known.written(head) as usize];
        let row = self.heads.row_mut(key);
        let (mut start, mut at) = (first, first.max(1));
        // All before `at` is sorted, and so is all after `last` unless a block was moved there.
        while at < row.len() && (at <= last || place(row[at - 1]) > place(row[at])) {
            let (head, own) = (row[at], place(row[at]));
            let mut to = at;
            while to > 0 && place(row[to - 1]) > own {
                row[to] = row[to - 1];
                self.places[row[to] as usize] = to as u32;
                to -= 1;
                self.steps += 1;
            }
            row[to] = head;
            self.places[head as usize] = to as u32;
            start = start.min(to);
            at += 1;
            self.steps += 1;
        }
        for at in start.max(1)..(at + 1).min(self.heads.row(key).len()) {
            let row = self.heads.row(key);
            let (one, other) = (row[at - 1], row[at]);
            if self.is_wrong(one, other) {
                self.pending.push_back((one, other));
            }
        }
    }

    /// The place of the block's first write in the order, and of its last reader.
    fn span(&self, head: u32) -> (u32, u32) {
        let place = |node| self.topology.place(node);
        let tail = self.known.blocks.tail(head);
        let readers = self.known.blocks.readers.row(tail).iter();
        let last = readers
            .map(|&reader| place(self.known.snapshot(reader)))
            .max();
        let written = place(self.known.written(tail));
        (
            place(self.known.written(head)),
            last.unwrap_or(0).max(written),
        )
    }

    /// Does the order neither have all edges of the first block before the second, nor the other way around?
    fn is_wrong(&self, one: u32, other: u32) -> bool {
        let place = |node| self.topology.place(node);
        let keeps = |first: u32, second: u32| {
            let edges = self.known.before(self.known.blocks.tail(first), second);
            let tail = self.known.blocks.tail(first);
            let readers = self.known.blocks.readers.row(tail);
            // The node for all readers may be later than they are, so the readers themselves are compared.
            edges.into_iter().flatten().all(|(from, to)| {
                if self.known.transaction(from).is_some() {
                    place(from) < place(to)
                } else {
                    readers
                        .iter()
                        .all(|&reader| place(self.known.snapshot(reader)) < place(to))
                }
            })
        };
        !keeps(one, other) && !keeps(other, one)
    }

    /// The variable of a pair of blocks, a new one if necessary.
    pub(super) fn variable(&mut self, one: u32, other: u32) -> u32 {
        let pair = (one.min(other), one.max(other));
        if let Some(&known) = self.numbers.get(&pair) {
            return known;
        }
        let variable = self.clauses.variable();
        self.numbers.insert(pair, variable);
        self.pairs.push(pair);
        variable
    }

    /// Sets an open variable: to the implied value if paths exclude the other, otherwise to the one that moves less.
    fn branch(&mut self, variable: u32) {
        let (one, other) = self.pairs[variable as usize];
        let ((one_begin, one_end), (other_begin, other_end)) = (self.span(one), self.span(other));
        let is_later = if self.known.model.axiom == Axiom::Parallel {
            one_begin > other_begin
        } else {
            u64::from(one_begin) + u64::from(one_end)
                > u64::from(other_begin) + u64::from(other_end)
        };
        let wanted = 2 * variable + u32::from(is_later);
        if let Some(path) = self.excluded(wanted) {
            let reason = self.lemma(&path, wanted);
            self.clauses.set(negated(wanted), Some(reason));
        } else if let Some(path) = self.excluded(negated(wanted)) {
            let reason = self.lemma(&path, negated(wanted));
            self.clauses.set(wanted, Some(reason));
        } else {
            self.clauses.set(wanted, None);
        }
        // If this is undone, the pair is looked at again.
        self.pending.push_back((one, other));
    }

    /// A path that excludes this literal, if there is one.
    fn excluded(&mut self, literal: u32) -> Option<GraphPath> {
        let mut edges = self.edges_of(literal);
        edges.find_map(|(from, to)| self.topology.path(to, from))
    }

    /// The transactions from which a clause follows.
    fn core(&self, clause: ClauseId) -> BTreeSet<u32> {
        let (mut transactions, variables) = self.clauses.core(clause);
        for variable in variables {
            let (one, other) = self.pairs[variable as usize];
            let blocks = &self.known.blocks;
            let versions = blocks.members(one).chain(blocks.members(other));
            let writers = versions.filter_map(|version| self.known.constraints.writer(version));
            transactions.extend(writers.map(Txn::get));
        }
        transactions
    }
}
