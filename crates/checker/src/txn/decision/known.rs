//! What is known of the order before anything is guessed.

use super::blocks::Blocks;
use super::facts::Facts;
use super::lists::Relation;
use super::promise::{Axiom, Follows, Promise};
use crate::txn::transactions::NONE;

/// The events of transactions and which must come before which: session order, real time, reads after what they saw, and
/// overwrites after reads where the next version is known.
///
/// For serializability a transaction is one event; else two, its snapshot (an even number) and its commit (odd). Further
/// nodes stand for many edges: one for the readers of a version that has several, and barriers of real time, so that
/// all stays linear in transactions and reads.
pub(super) struct Known<'a> {
    pub(super) facts: &'a Facts,
    pub(super) blocks: &'a Blocks,
    pub(super) promise: Promise,
    /// By version: the node that comes after all its readers; [`NONE`] when there is none.
    exits: Vec<u32>,
    /// Transactions in the order of their completions, those that have one.
    ended: Vec<u32>,
    /// Where barriers begin.
    barriers: u32,
    nodes: u32,
}

impl<'a> Known<'a> {
    pub(super) fn new(facts: &'a Facts, blocks: &'a Blocks, promise: Promise) -> Known<'a> {
        let stride = promise.axiom.events();
        let mut nodes = facts.len() * stride;
        let mut exits = Vec::new();
        if promise.axiom != Axiom::Parallel {
            exits = vec![NONE; facts.versions()];
            for (version, exit) in exits.iter_mut().enumerate() {
                let is_tail = blocks.next[version] == NONE;
                if is_tail && blocks.readers.of(version as u32).len() > 1 {
                    *exit = nodes;
                    nodes += 1;
                }
            }
        }
        let mut known = Known {
            facts,
            blocks,
            promise,
            exits,
            ended: Vec::new(),
            barriers: nodes,
            nodes,
        };
        if promise.follows == Follows::Time {
            let ended = (0..facts.len()).filter(|&number| facts.times[number as usize].1 != NONE);
            known.ended = ended.collect();
            known
                .ended
                .sort_unstable_by_key(|&number| facts.times[number as usize].1);
            let mut last = nodes;
            known.tell_time(&mut |_, to| last = last.max(to + 1));
            known.nodes = last;
        }
        known
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Nodes below this are events.
    pub(super) fn events(&self) -> u32 {
        self.facts.len() * self.promise.axiom.events()
    }

    /// The transaction of an event; `None` of other nodes.
    pub(super) fn transaction(&self, node: u32) -> Option<u32> {
        (node < self.events()).then(|| node / self.promise.axiom.events())
    }

    /// The event in which a transaction reads.
    pub(super) fn snapshot(&self, number: u32) -> u32 {
        number * self.promise.axiom.events()
    }

    /// The event in which it writes.
    pub(super) fn commit(&self, number: u32) -> u32 {
        (number + 1) * self.promise.axiom.events() - 1
    }

    /// The event in which a version is written.
    pub(super) fn written(&self, version: u32) -> u32 {
        self.commit(self.facts.writers[version as usize])
    }

    /// The node after which nobody reads the version any more, which is the last of its block.
    fn exit(&self, version: u32) -> Option<u32> {
        match self.blocks.readers.of(version) {
            [] => None,
            &[reader] => Some(self.snapshot(reader)),
            _ => Some(self.exits[version as usize]),
        }
    }

    /// The edges that say that the block which ends with `tail` comes before the one that begins with `head`.
    pub(super) fn before(&self, tail: u32, head: u32) -> [Option<(u32, u32)>; 2] {
        let written = (!self.facts.is_initial(tail)).then(|| self.written(tail));
        let exit = match self.promise.axiom {
            Axiom::Parallel => None,
            _ => self.exit(tail),
        };
        let next = self.facts.writers[head as usize];
        let commit = self.commit(next);
        match self.promise.axiom {
            Axiom::Snapshot => [
                written.map(|from| (from, self.snapshot(next))),
                exit.map(|from| (from, commit)),
            ],
            // Whoever reads a version comes after it.
            _ => [exit.or(written).map(|from| (from, commit)), None],
        }
    }

    /// Tells all edges that need no order of blocks.
    pub(super) fn tell_data(&self, take: &mut impl FnMut(u32, u32)) {
        let (facts, blocks) = (self.facts, self.blocks);
        let is_double = self.promise.axiom.events() == 2;
        let mut last = vec![NONE; facts.session_count()];
        for number in 0..facts.len() {
            if self.promise.follows != Follows::Nothing {
                let last = &mut last[facts.sessions[number as usize] as usize];
                if *last != NONE {
                    take(self.commit(*last), self.snapshot(number));
                }
                if facts.completed[number as usize] {
                    *last = number;
                }
            }
            if is_double {
                take(self.snapshot(number), self.commit(number));
            }
            for &version in facts.reads.of(number) {
                if facts.writers[version as usize] != NONE {
                    take(self.written(version), self.snapshot(number));
                }
            }
        }
        if self.promise.axiom == Axiom::Parallel {
            return;
        }
        for version in 0..facts.versions() as u32 {
            let next = blocks.next[version as usize];
            if next != NONE {
                let writer = facts.writers[next as usize];
                let others = blocks.readers.of(version).iter();
                for &reader in others.filter(|&&reader| reader != writer) {
                    take(self.snapshot(reader), self.commit(writer));
                }
            } else if self.exits[version as usize] != NONE {
                for &reader in blocks.readers.of(version) {
                    take(self.snapshot(reader), self.exits[version as usize]);
                }
            }
        }
    }

    /// Tells that initial states come first.
    fn tell_first(&self, take: &mut impl FnMut(u32, u32)) {
        for key in 0..self.facts.keys {
            for &head in self.blocks.heads.of(key) {
                for (from, to) in self
                    .before(self.blocks.tail(key), head)
                    .into_iter()
                    .flatten()
                {
                    take(from, to);
                }
            }
        }
    }

    /// Tells real time: a completion comes before the next barrier, a barrier before the next one and the invocations
    /// until then.
    pub(super) fn tell_time(&self, take: &mut impl FnMut(u32, u32)) {
        let times = &self.facts.times;
        let mut ended = self.ended.iter().copied().peekable();
        let (mut barrier, mut nodes) = (NONE, self.barriers);
        for number in 0..self.facts.len() {
            let (begun, _) = times[number as usize];
            if begun == NONE || self.ended.is_empty() {
                continue;
            }
            let before = |&other: &u32| times[other as usize].1 < begun;
            if ended.peek().is_some_and(before) {
                if barrier != NONE {
                    take(barrier, nodes);
                }
                while let Some(other) = ended.next_if(before) {
                    take(self.commit(other), nodes);
                }
                barrier = nodes;
                nodes += 1;
            }
            if barrier != NONE {
                take(barrier, self.snapshot(number));
            }
        }
    }
}

impl Relation for Known<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        self.tell_data(take);
        self.tell_first(take);
        self.tell_time(take);
    }
}

/// What is known together with an order of the blocks of each key.
pub(super) struct Guessed<'a> {
    pub(super) known: &'a Known<'a>,
    /// By key: the first versions of its blocks in order, without the one of the initial state.
    pub(super) heads: &'a super::lists::Lists,
}

impl Relation for Guessed<'_> {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        let known = self.known;
        known.tell_data(take);
        known.tell_time(take);
        for key in 0..known.facts.keys {
            let mut before = key;
            for &head in self.heads.of(key) {
                let edges = known.before(known.blocks.tail(before), head);
                for (from, to) in edges.into_iter().flatten() {
                    take(from, to);
                }
                before = head;
            }
        }
    }
}
