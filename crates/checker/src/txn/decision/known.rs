//! What is known of the order before anything is guessed.

use super::blocks::Blocks;
use super::facts::Facts;
use super::lists::{Lists, Relation};
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
    /// By version that is the last of its block: the node that comes after all its readers, the snapshot of the only one if
    /// it is one; [`NONE`] when there is no reader, or it does not matter when they read.
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
                if blocks.next[version] != NONE {
                    continue;
                }
                match blocks.readers.of(version as u32) {
                    [] => {}
                    &[reader] => *exit = reader * stride,
                    _ => {
                        *exit = nodes;
                        nodes += 1;
                    }
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
    #[inline]
    pub(super) fn snapshot(&self, number: u32) -> u32 {
        number * self.promise.axiom.events()
    }

    /// The event in which it writes.
    #[inline]
    pub(super) fn commit(&self, number: u32) -> u32 {
        (number + 1) * self.promise.axiom.events() - 1
    }

    /// The event in which a version is written.
    #[inline]
    pub(super) fn written(&self, version: u32) -> u32 {
        self.commit(self.facts.writers[version as usize])
    }

    /// The node after which nobody reads the version any more, which is the last of its block; [`NONE`] if that does not
    /// matter.
    #[inline]
    fn exit(&self, version: u32) -> u32 {
        self.exits.get(version as usize).copied().unwrap_or(NONE)
    }

    /// The node after which nobody reads the version any more, if that is none of an event.
    #[inline]
    fn gate(&self, version: u32) -> Option<u32> {
        Some(self.exit(version)).filter(|&exit| exit != NONE && exit >= self.events())
    }

    /// The edges that say that the block which ends with `tail` comes before the one that begins with `head`.
    pub(super) fn before(&self, tail: u32, head: u32) -> [Option<(u32, u32)>; 2] {
        let exit = self.exit(tail);
        let read = (exit != NONE).then(|| (exit, self.written(head)));
        [self.overwrites(tail, head), read]
    }

    /// The edge that says so of those who wrote the two, unless readers between them do.
    #[inline]
    fn overwrites(&self, tail: u32, head: u32) -> Option<(u32, u32)> {
        if self.facts.is_initial(tail) {
            return None;
        }
        let next = self.facts.writers[head as usize];
        match self.promise.axiom {
            Axiom::Snapshot => Some((self.written(tail), self.snapshot(next))),
            // Whoever reads a version comes after it.
            _ => (self.exit(tail) == NONE).then(|| (self.written(tail), self.commit(next))),
        }
    }

    /// Tells all edges that need no order of blocks.
    pub(super) fn tell_data(&self, take: &mut impl FnMut(u32, u32)) {
        let facts = self.facts;
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
                self.tell_overwritten(number, version, take);
            }
        }
    }

    /// Tells that a transaction which read a version comes before the next one, where that is known, or before the node that
    /// stands for all of its readers.
    #[inline]
    fn tell_overwritten(&self, reader: u32, version: u32, take: &mut impl FnMut(u32, u32)) {
        if self.promise.axiom == Axiom::Parallel {
            return;
        }
        let next = self.blocks.next[version as usize];
        if next != NONE {
            let writer = self.facts.writers[next as usize];
            if writer != reader {
                take(self.snapshot(reader), self.commit(writer));
            }
        } else if let Some(gate) = self.gate(version) {
            take(self.snapshot(reader), gate);
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
    known: &'a Known<'a>,
    /// By version that is the last of its block: the first of the next block; [`NONE`] when there is none.
    next: Vec<u32>,
}

impl<'a> Guessed<'a> {
    /// `heads` are by key the first versions of its blocks in order, without the one of the initial state.
    pub(super) fn new(known: &'a Known<'a>, heads: &Lists) -> Guessed<'a> {
        let mut next = vec![NONE; known.facts.versions()];
        for key in 0..known.facts.keys {
            let mut tail = known.blocks.tail(key);
            for &head in heads.of(key) {
                next[tail as usize] = head;
                tail = known.blocks.tail(head);
            }
        }
        Guessed { known, next }
    }

    /// The head of the block that follows the one which ends with this version.
    #[inline]
    fn next(&self, tail: u32) -> Option<u32> {
        Some(self.next[tail as usize]).filter(|&head| head != NONE)
    }
}

impl Relation for Guessed<'_> {
    /// Transaction by transaction, so that most edges of a node are told one after the other.
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        let (known, facts) = (self.known, self.known.facts);
        known.tell_data(take);
        known.tell_time(take);
        for number in 0..facts.len() {
            for &version in facts.writes.of(number) {
                let edge = self.next(version);
                let edge = edge.and_then(|head| known.overwrites(version, head));
                if let Some((from, to)) = edge {
                    take(from, to);
                }
            }
            for &version in facts.reads.of(number) {
                if known.exit(version) == known.snapshot(number)
                    && let Some(head) = self.next(version)
                {
                    take(known.snapshot(number), known.written(head));
                }
            }
        }
        for version in 0..facts.versions() as u32 {
            if let Some((gate, head)) = known.gate(version).zip(self.next(version)) {
                take(gate, known.written(head));
            }
        }
    }
}
