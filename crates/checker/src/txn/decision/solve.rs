//! The search for an order where the guess failed.

use super::clauses::{Clauses, Learned, negated};
use super::known::Known;
use super::lists::Lists;
use super::promise::Axiom;
use super::topology::{Path, Topology};
use crate::txn::dense::Map;
use crate::txn::transactions::NONE;
use std::collections::{BTreeSet, VecDeque};

/// What a search found.
pub(super) enum Answer {
    /// Events in an order that explains all reads.
    Order(Vec<u32>),
    /// These transactions are why there is none.
    Core(BTreeSet<u32>),
    /// It was stopped.
    Stopped,
}

/// Blocks that moved are looked at together if no more places are between them.
const NEARBY: usize = 8;

/// Looks for an order of events that agrees with what is known and explains all reads.
///
/// It always has an order of all events that agrees with what is known and what was decided, and looks for two blocks of
/// versions of a key that stand in it so that a read or an overwrite between them is wrong. Only such pairs are decided: the
/// variable of a pair is made when the order is first wrong about it. What a decision excludes (a way that would be
/// a cycle) is found in the order, which moves only where it must; conflicts are learned from. So what the guess had
/// right costs nothing, and a history that cannot be explained is refuted by the few pairs that matter.
///
/// Its downside: a wrong order is repaired pair by pair, so a bad guess of many hot keys is slow.
pub(super) struct Search<'a> {
    pub(super) known: &'a Known<'a>,
    pub(super) topology: Topology,
    pub(super) clauses: Clauses,
    /// By variable: the heads of its two blocks; true when the first comes first.
    pairs: Vec<(u32, u32)>,
    numbers: Map<(u32, u32), u32>,
    /// By literal of the trail whose edges are there: how many edges were there before.
    edges: Vec<u32>,
    /// By key: its heads, in the order in which they were last seen.
    pub(super) heads: Lists,
    /// By version: the first version of its block; by that: its place among the heads of its key.
    blocks: Vec<u32>,
    places: Vec<u32>,
    /// Heads of blocks of which something has moved.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Pairs that the order may be wrong about.
    pending: VecDeque<(u32, u32)>,
    pub(super) steps: u64,
}

/// What the search does next.
enum Next {
    /// It goes on.
    On,
    /// Nothing is wrong with the order.
    Done,
}

impl<'a> Search<'a> {
    /// A search that begins with this order of all nodes, which agrees with what is known, and with this order of heads. Where
    /// the two do not agree, one of these transactions wrote the second of two blocks.
    pub(super) fn new(
        known: &'a Known<'a>,
        order: &[u32],
        forward: Lists,
        heads: Lists,
        doubtful: Vec<u32>,
    ) -> Search<'a> {
        let backward = forward.inverted(order.len());
        let versions = known.facts.versions();
        let mut search = Search {
            known,
            topology: Topology::new(forward, backward, order),
            clauses: Clauses::default(),
            pairs: Vec::new(),
            numbers: Map::default(),
            edges: Vec::new(),
            blocks: vec![NONE; versions],
            places: vec![0; versions],
            heads,
            dirty: Vec::new(),
            is_dirty: vec![false; versions],
            pending: VecDeque::new(),
            steps: 0,
        };
        for key in 0..known.facts.keys {
            for (place, &head) in search.heads.of(key).iter().enumerate() {
                search.places[head as usize] = place as u32;
                for version in known.blocks.members(head) {
                    search.blocks[version as usize] = head;
                }
            }
        }
        for number in doubtful {
            search.mark(known.facts.writes.of(number));
        }
        search
    }

    /// Steps taken so far: edges and literals looked at.
    pub(super) fn steps(&self) -> u64 {
        self.steps + self.topology.steps + self.clauses.steps
    }

    /// Pairs that had to be decided.
    pub(super) fn pairs(&self) -> usize {
        self.clauses.len()
    }

    /// Conflicts and what was told by ways that exist.
    pub(super) fn clauses(&self) -> usize {
        self.clauses.clause_count()
    }

    /// Searches for so many steps.
    pub(super) fn run(&mut self, steps_max: u64) -> Answer {
        loop {
            if self.steps() > steps_max {
                return Answer::Stopped;
            }
            if let Some(conflict) = self.settle() {
                match self.clauses.learn(conflict) {
                    Learned::Impossible(clause) => return Answer::Core(self.core(clause)),
                    Learned::Back(length) => self.undo(length),
                }
            } else if let Next::Done = self.decide() {
                if self.known.promise.axiom != Axiom::Parallel {
                    return Answer::Order(self.order());
                }
                match self.exclude() {
                    (false, _) => return Answer::Order(self.order()),
                    (true, None) => {}
                    (true, Some(conflict)) => match self.clauses.learn(conflict) {
                        Learned::Impossible(clause) => return Answer::Core(self.core(clause)),
                        Learned::Back(length) => self.undo(length),
                    },
                }
            }
        }
    }

    /// The events in order.
    fn order(&self) -> Vec<u32> {
        let mut events: Vec<u32> = (0..self.known.events()).collect();
        events.sort_unstable_by_key(|&event| self.topology.place(event));
        events
    }

    /// Puts in the edges of what became true and follows it through the clauses; the answer is a clause that cannot
    /// hold.
    fn settle(&mut self) -> Option<u32> {
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

    /// Takes back the edges of all but the first so many literals; pairs that are open again may be wrong.
    fn undo(&mut self, length: usize) {
        if let Some(&edges) = self.edges.get(length) {
            self.topology.truncate(edges as usize);
        }
        self.edges.truncate(length);
        self.mark_moved();
    }

    /// The two blocks of a literal, the one that comes first first.
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

    /// The clause that says that the edges of a way and those of `literal` are not all there.
    fn lemma(&mut self, path: &Path, literal: u32) -> u32 {
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

    /// Blocks of what has moved are to be looked at.
    fn mark_moved(&mut self) {
        let moved = std::mem::take(&mut self.topology.moved);
        let facts = self.known.facts;
        for number in moved
            .iter()
            .filter_map(|&node| self.known.transaction(node))
        {
            self.mark(facts.reads.of(number));
            self.mark(facts.writes.of(number));
        }
    }

    /// The blocks of these versions are to be looked at.
    fn mark(&mut self, versions: &[u32]) {
        for &version in versions {
            let head = self.blocks[version as usize];
            // Initial states come first whatever is decided.
            if head != NONE && !std::mem::replace(&mut self.is_dirty[head as usize], true) {
                self.dirty.push(head);
            }
        }
    }

    /// Decides a pair: one that took part in conflicts, else one that the order is wrong about.
    fn decide(&mut self) -> Next {
        if let Some(variable) = self.clauses.hottest() {
            self.branch(variable);
            return Next::On;
        }
        loop {
            while let Some((one, other)) = self.pending.pop_front() {
                self.steps += 1;
                if self.is_wrong(one, other) {
                    let variable = self.variable(one, other);
                    if self.clauses.is_open(variable) {
                        self.branch(variable);
                        return Next::On;
                    }
                }
            }
            if self.dirty.is_empty() {
                return Next::Done;
            }
            self.look();
        }
    }

    /// Sorts the blocks of which something has moved into those of their keys, and lists neighbours there that stand wrong.
    /// When all neighbours stand right, all pairs do. Costs what was moved and how far, not how many blocks a key has.
    fn look(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let key = |head: u32| self.known.facts.version_keys[head as usize];
        dirty.sort_unstable_by_key(|&head| (key(head), self.places[head as usize]));
        let mut dirty = dirty.into_iter().peekable();
        while let Some(head) = dirty.next() {
            let (key, mut first) = (key(head), self.places[head as usize] as usize);
            self.is_dirty[head as usize] = false;
            let mut last = first;
            // Others nearby are sorted in together with it.
            while let Some(other) = dirty.next_if(|&other| {
                key == self.known.facts.version_keys[other as usize]
                    && self.places[other as usize] as usize <= last + NEARBY
            }) {
                self.is_dirty[other as usize] = false;
                let place = self.places[other as usize] as usize;
                (first, last) = (first.min(place), last.max(place));
            }
            self.look_at(key, first, last);
        }
    }

    /// The same for the blocks between two places.
    fn look_at(&mut self, key: u32, first: usize, last: usize) {
        let place = |head: u32| self.topology.places[self.known.written(head) as usize];
        let row = self.heads.of_mut(key);
        let (mut start, mut at) = (first, first.max(1));
        // All before `at` is in order, and so is all after `last` unless something moved there.
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
        for at in start.max(1)..(at + 1).min(self.heads.of(key).len()) {
            let row = self.heads.of(key);
            let (one, other) = (row[at - 1], row[at]);
            if self.is_wrong(one, other) {
                self.pending.push_back((one, other));
            }
        }
    }

    /// Where the block begins in the order, and where the last of its readers stands.
    fn span(&self, head: u32) -> (u32, u32) {
        let place = |node| self.topology.place(node);
        let tail = self.known.blocks.tail(head);
        let readers = self.known.blocks.readers.of(tail).iter();
        let last = readers
            .map(|&reader| place(self.known.snapshot(reader)))
            .max();
        let written = place(self.known.written(tail));
        (
            place(self.known.written(head)),
            last.unwrap_or(0).max(written),
        )
    }

    /// Does the order say of these two blocks neither that the first comes first nor that it comes last?
    fn is_wrong(&self, one: u32, other: u32) -> bool {
        let place = |node| self.topology.place(node);
        let keeps = |first: u32, second: u32| {
            let edges = self.known.before(self.known.blocks.tail(first), second);
            let tail = self.known.blocks.tail(first);
            let readers = self.known.blocks.readers.of(tail);
            // The node that stands for all readers may stand later than they do.
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

    /// The variable of a pair of blocks.
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

    /// Sets an open variable: what must be, if ways exclude the opposite; else what moves less.
    fn branch(&mut self, variable: u32) {
        let (one, other) = self.pairs[variable as usize];
        let ((one_begin, one_end), (other_begin, other_end)) = (self.span(one), self.span(other));
        let is_later = if self.known.promise.axiom == Axiom::Parallel {
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
        // Should it be taken back, it is looked at again.
        self.pending.push_back((one, other));
    }

    /// A way that excludes the literal.
    fn excluded(&mut self, literal: u32) -> Option<Path> {
        let mut edges = self.edges_of(literal);
        edges.find_map(|(from, to)| self.topology.path(to, from))
    }

    /// The transactions that a clause comes from.
    fn core(&self, clause: u32) -> BTreeSet<u32> {
        let (mut transactions, variables) = self.clauses.core(clause);
        for variable in variables {
            let (one, other) = self.pairs[variable as usize];
            let blocks = &self.known.blocks;
            let versions = blocks.members(one).chain(blocks.members(other));
            let writers = versions.map(|version| self.known.facts.writers[version as usize]);
            transactions.extend(writers.filter(|&writer| writer != NONE));
        }
        transactions
    }
}
