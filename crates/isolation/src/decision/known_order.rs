//! The known order of events, before any guess.

use super::constraints::Constraints;
use super::order_model::{Axiom, OrderModel, RespectedOrder};
use super::relation::Relation;
use super::version_blocks::VersionBlocks;
use seatrial_cycles::graph::GraphNode;
use seatrial_cycles::{Csr, NONE, Txn, Version};

/// The events of transactions and the edges between them that are known: session order, real time, reads after the writes
/// that they saw, and overwrites after reads where the next version is known.
///
/// Under serializability a transaction is one event; otherwise two, its snapshot (an even number) and its commit (odd).
/// Further nodes stand for many edges: one for the readers of a version that has several, and barriers of real time. So the
/// size is linear in transactions and reads.
pub(super) struct KnownOrder<'a> {
    pub(super) constraints: &'a Constraints,
    pub(super) blocks: &'a VersionBlocks,
    pub(super) model: OrderModel,
    /// By last version of a block: the node that comes after all its readers, which is the snapshot of a single reader;
    /// `None` without readers. Empty if the axiom does not constrain when they read.
    exits: Vec<Option<GraphNode>>,
    /// Transactions with a completion, sorted by it.
    ended: Vec<u32>,
    /// The first barrier node.
    barriers: u32,
    nodes: u32,
}

impl<'a> KnownOrder<'a> {
    pub(super) fn new(
        constraints: &'a Constraints,
        blocks: &'a VersionBlocks,
        model: OrderModel,
    ) -> KnownOrder<'a> {
        let stride = model.axiom.events();
        let mut nodes = constraints.len() * stride;
        let mut exits = Vec::new();
        if model.axiom != Axiom::Parallel {
            exits = vec![None; constraints.versions()];
            for (version, exit) in exits.iter_mut().enumerate() {
                if blocks.next[version].is_some() {
                    continue;
                }
                match blocks.readers.row(version as u32) {
                    [] => {}
                    &[reader] => *exit = Some(GraphNode::new(reader * stride)),
                    _ => {
                        *exit = Some(GraphNode::new(nodes));
                        nodes += 1;
                    }
                }
            }
        }
        let mut known = KnownOrder {
            constraints,
            blocks,
            model,
            exits,
            ended: Vec::new(),
            barriers: nodes,
            nodes,
        };
        if model.follows == RespectedOrder::Time {
            let ended = (0..constraints.len())
                .filter(|&number| constraints.times[number as usize].1 != NONE);
            known.ended = ended.collect();
            known
                .ended
                .sort_unstable_by_key(|&number| constraints.times[number as usize].1);
            let mut last = nodes;
            known.emit_time(&mut |_, to| last = last.max(to + 1));
            known.nodes = last;
            assert!(
                known.nodes >= known.barriers,
                "barriers come after all other nodes"
            );
        }
        assert!(known.events() <= known.barriers);
        known
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Number of events; nodes below it are events.
    pub(super) fn events(&self) -> u32 {
        self.constraints.len() * self.model.axiom.events()
    }

    /// The transaction of an event; `None` for other nodes.
    pub(super) fn transaction(&self, node: u32) -> Option<u32> {
        (node < self.events()).then(|| node / self.model.axiom.events())
    }

    /// The event in which a transaction reads.
    #[inline]
    pub(super) fn snapshot(&self, number: u32) -> u32 {
        number * self.model.axiom.events()
    }

    /// The event in which it writes.
    #[inline]
    pub(super) fn commit(&self, number: u32) -> u32 {
        (number + 1) * self.model.axiom.events() - 1
    }

    /// The event in which a version is written.
    #[inline]
    pub(super) fn written(&self, version: u32) -> u32 {
        self.commit(self.constraints.writer_of_written(version).get())
    }

    /// The node after all readers of the last version of a block; `None` if that does not matter.
    #[inline]
    fn exit(&self, version: u32) -> Option<u32> {
        let exit = self.exits.get(version as usize).copied().flatten();
        exit.map(GraphNode::get)
    }

    /// The same if that node is not an event.
    #[inline]
    fn gate(&self, version: u32) -> Option<u32> {
        self.exit(version).filter(|&exit| exit >= self.events())
    }

    /// The edges which mean that the block that ends with `tail` comes before the one that begins with `head`.
    pub(super) fn before(&self, tail: u32, head: u32) -> [Option<(u32, u32)>; 2] {
        let read = self.exit(tail).map(|exit| (exit, self.written(head)));
        [self.overwrites(tail, head), read]
    }

    /// The edge between their writers, unless edges over readers imply it.
    #[inline]
    fn overwrites(&self, tail: u32, head: u32) -> Option<(u32, u32)> {
        if self.constraints.is_initial(tail) {
            return None;
        }
        let next = self.constraints.writer_of_written(head).get();
        match self.model.axiom {
            Axiom::Snapshot => Some((self.written(tail), self.snapshot(next))),
            // Each reader of a version comes after its writer.
            _ => self
                .exit(tail)
                .is_none()
                .then(|| (self.written(tail), self.commit(next))),
        }
    }

    /// Emits all edges that do not depend on the order of blocks.
    pub(super) fn emit_data(&self, take: &mut impl FnMut(u32, u32)) {
        let constraints = self.constraints;
        let is_double = self.model.axiom.events() == 2;
        // By session: its last transaction that completed.
        let mut last: Vec<Option<Txn>> = vec![None; constraints.session_count()];
        for number in 0..constraints.len() {
            if self.model.follows != RespectedOrder::Nothing {
                let last = &mut last[constraints.sessions[number as usize] as usize];
                if let Some(last) = *last {
                    take(self.commit(last.get()), self.snapshot(number));
                }
                if constraints.completed[number as usize] {
                    *last = Some(Txn::new(number));
                }
            }
            if is_double {
                take(self.snapshot(number), self.commit(number));
            }
            for &version in constraints.reads.row(number) {
                if !constraints.is_initial(version) {
                    take(self.written(version), self.snapshot(number));
                }
                self.emit_overwritten(number, version, take);
            }
        }
    }

    /// Emits the edge from a reader of a version to the writer of the next one, if that is known, otherwise to the node that
    /// stands for all readers.
    #[inline]
    fn emit_overwritten(&self, reader: u32, version: u32, take: &mut impl FnMut(u32, u32)) {
        if self.model.axiom == Axiom::Parallel {
            return;
        }
        if let Some(next) = self.blocks.next[version as usize] {
            let writer = self.constraints.writer_of_written(next.get()).get();
            if writer != reader {
                take(self.snapshot(reader), self.commit(writer));
            }
        } else if let Some(gate) = self.gate(version) {
            take(self.snapshot(reader), gate);
        }
    }

    /// Emits the edges of initial states, which come before all other versions.
    fn emit_first(&self, take: &mut impl FnMut(u32, u32)) {
        for key in 0..self.constraints.keys {
            for &head in self.blocks.heads.row(key) {
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

    /// Emits real time: a completion comes before the next barrier, a barrier before the next one and the invocations up to
    /// there.
    pub(super) fn emit_time(&self, take: &mut impl FnMut(u32, u32)) {
        let times = &self.constraints.times;
        let mut ended = self.ended.iter().copied().peekable();
        let (mut barrier, mut nodes) = (None, self.barriers);
        for number in 0..self.constraints.len() {
            let (begun, _) = times[number as usize];
            if begun == NONE || self.ended.is_empty() {
                continue;
            }
            let before = |&other: &u32| times[other as usize].1 < begun;
            if ended.peek().is_some_and(before) {
                if let Some(barrier) = barrier {
                    take(barrier, nodes);
                }
                while let Some(other) = ended.next_if(before) {
                    take(self.commit(other), nodes);
                }
                barrier = Some(nodes);
                nodes += 1;
            }
            if let Some(barrier) = barrier {
                take(barrier, self.snapshot(number));
            }
        }
    }
}

impl Relation for KnownOrder<'_> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        self.emit_data(take);
        self.emit_first(take);
        self.emit_time(take);
    }
}

/// The known edges, with an order of the blocks of each key.
pub(super) struct GuessedOrder<'a> {
    known: &'a KnownOrder<'a>,
    /// By last version of a block: the head of the next block.
    next: Vec<Option<Version>>,
}

impl<'a> GuessedOrder<'a> {
    /// `heads` has for each key the heads of its blocks in order, without that of the initial state.
    pub(super) fn new(known: &'a KnownOrder<'a>, heads: &Csr<u32>) -> GuessedOrder<'a> {
        let mut next = vec![None; known.constraints.versions()];
        for key in 0..known.constraints.keys {
            let mut tail = known.blocks.tail(key);
            for &head in heads.row(key) {
                assert!(tail != head, "a block comes after itself");
                next[tail as usize] = Some(Version::new(head));
                tail = known.blocks.tail(head);
            }
        }
        GuessedOrder { known, next }
    }

    /// The head of the block after the one that ends with this version.
    #[inline]
    fn next(&self, tail: u32) -> Option<u32> {
        self.next[tail as usize].map(Version::get)
    }
}

impl Relation for GuessedOrder<'_> {
    /// Transaction by transaction, so that most edges of a node are emitted together, which spares cache misses.
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        let (known, constraints) = (self.known, self.known.constraints);
        known.emit_data(take);
        known.emit_time(take);
        for number in 0..constraints.len() {
            for &version in constraints.writes.row(number) {
                let edge = self.next(version);
                let edge = edge.and_then(|head| known.overwrites(version, head));
                if let Some((from, to)) = edge {
                    take(from, to);
                }
            }
            for &version in constraints.reads.row(number) {
                if known.exit(version) == Some(known.snapshot(number))
                    && let Some(head) = self.next(version)
                {
                    take(known.snapshot(number), known.written(head));
                }
            }
        }
        for version in 0..constraints.versions() as u32 {
            if let Some((gate, head)) = known.gate(version).zip(self.next(version)) {
                take(gate, known.written(head));
            }
        }
    }
}
