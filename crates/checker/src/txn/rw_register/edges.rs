//! The dependencies between transactions that registers tell.

use super::orders::Orders;
use super::touches::Touches;
use super::zones::Barrier;
use crate::txn::graph::{Edges, RW, Sink, WR, WW};
use crate::txn::registers::NONE;
use crate::txn::rows::Linked;
use std::ops::RangeInclusive;

/// Barriers that a transaction is led along one by one, at most; past that it is linked as all others are.
const EXPANDED_MAX: usize = 64;

/// Everything the graph is made of.
pub(super) struct Dependencies<'a> {
    pub(super) orders: &'a Orders<'a>,
    /// Transactions that ended for certain, by when they did: (position, transaction).
    pub(super) ended: &'a [(u32, u32)],
    pub(super) process: bool,
    pub(super) realtime: bool,
}

impl Linked for Dependencies<'_> {
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        let touches = self.orders.touches;
        let columns = touches.columns;
        let mut buffers = Buffers::default();
        for key in 0..columns.key_count() as u32 {
            link_reads(touches, key, edges);
            link_initial(touches, key, edges, &mut buffers);
        }
        // They hand on the order of those before them to those behind them.
        let strangers = self.orders.strangers.iter().map(|_| Helpers::new(edges));
        let strangers: Vec<_> = strangers.collect();
        for version in columns.key_count() as u32..columns.version_count() as u32 {
            let next = self.orders.next(version);
            if !next.is_empty() {
                buffers.take(self.orders, &strangers, &[version], next);
                buffers.link(edges);
            }
        }
        self.link_barriers(edges, &mut buffers, &strangers);
        let nodes = || (0..columns.len() as u32).filter(|&number| touches.happened(number));
        if self.process {
            let session = |number: u32| columns.sessions()[number as usize];
            let all = nodes().map(|number| (session(number), number, touches.is_ok(number)));
            edges.link_processes(all);
        }
        if self.realtime {
            let begun = nodes().map(|number| (columns.begun(number), number));
            let begun = begun.filter(|&(position, _)| position != NONE);
            edges.link_realtime(begun, self.ended.iter().copied());
        }
    }
}

/// Each read comes after the write that it saw.
fn link_reads<S: Sink>(touches: &Touches<'_>, key: u32, edges: &mut Edges<S>) {
    for touch in touches.of_key(key) {
        if touch.read == NONE {
            continue;
        }
        let writer = touches.columns.writer(touch.read);
        if writer != NONE && touches.happened(writer) {
            edges.link(writer, touch.transaction, WR);
        }
    }
}

/// Each read of a key's initial state comes before all that write the key.
fn link_initial<S: Sink>(
    touches: &Touches<'_>,
    key: u32,
    edges: &mut Edges<S>,
    buffers: &mut Buffers,
) {
    // The initial state has the number of its key.
    let readers = touches.readers(key);
    if readers.is_empty() {
        return;
    }
    let written = touches.of_key(key).iter();
    let written = written.filter(|touch| touch.write != NONE);
    buffers.targets.clear();
    buffers
        .targets
        .extend(written.map(|touch| touch.transaction));
    buffers.targets.dedup();
    edges.link_all(readers, &buffers.targets, RW);
}

/// The two nodes that stand for many edges: one for those of kind `ww`, one for those of kind `rw`.
#[derive(Clone, Copy)]
struct Helpers {
    write: u32,
    read: u32,
}

impl Helpers {
    fn new<S: Sink>(edges: &mut Edges<S>) -> Helpers {
        Helpers {
            write: edges.helper(),
            read: edges.helper(),
        }
    }
}

/// Sets of nodes, used again and again.
#[derive(Default)]
struct Buffers {
    /// Who read and who wrote versions; helpers for those that nobody installed.
    readers: Vec<u32>,
    writers: Vec<u32>,
    /// Who wrote later ones.
    targets: Vec<u32>,
    /// Helpers for those later ones that nobody installed.
    strangers: Vec<Helpers>,
}

fn sort(numbers: &mut Vec<u32>) {
    numbers.sort_unstable();
    numbers.dedup();
}

impl Buffers {
    /// Takes the transactions of versions and of those that come next.
    fn take(&mut self, orders: &Orders<'_>, helpers: &[Helpers], versions: &[u32], next: &[u32]) {
        let touches = orders.touches;
        let stranger = |version: &u32| {
            let place = orders.strangers.binary_search(version).ok()?;
            Some(helpers[place])
        };
        self.readers.clear();
        self.writers.clear();
        for version in versions {
            self.readers.extend(touches.readers(*version));
            match touches.installer(*version) {
                NONE => {
                    if let Some(helpers) = stranger(version) {
                        self.readers.push(helpers.read);
                        self.writers.push(helpers.write);
                    }
                }
                writer => self.writers.push(writer),
            }
        }
        if versions.len() > 1 {
            sort(&mut self.readers);
            sort(&mut self.writers);
        }
        self.targets.clear();
        self.strangers.clear();
        for version in next {
            match touches.installer(*version) {
                NONE => self.strangers.extend(stranger(version)),
                writer => self.targets.push(writer),
            }
        }
        sort(&mut self.targets);
    }

    /// Who read and who wrote come before who wrote later.
    fn link<S: Sink>(&self, edges: &mut Edges<S>) {
        edges.link_all(&self.writers, &self.targets, WW);
        edges.link_all(&self.readers, &self.targets, RW);
        for stranger in &self.strangers {
            for &writer in &self.writers {
                edges.link(writer, stranger.write, WW);
            }
            for &reader in &self.readers {
                edges.link(reader, stranger.read, RW);
            }
        }
    }
}

impl Dependencies<'_> {
    fn link_barriers<S: Sink>(
        &self,
        edges: &mut Edges<S>,
        buffers: &mut Buffers,
        strangers: &[Helpers],
    ) {
        let barriers = &self.orders.barriers;
        let helpers: Vec<_> = barriers.iter().map(|_| Helpers::new(edges)).collect();
        for (at, barrier) in barriers.iter().enumerate() {
            buffers.take(self.orders, strangers, &barrier.outs, &barrier.ins);
            let Helpers { write, read } = helpers[at];
            for &writer in &buffers.writers {
                edges.link(writer, write, WW);
            }
            for &target in &buffers.targets {
                edges.link(write, target, WW);
                edges.link(read, target, RW);
            }
            for stranger in &buffers.strangers {
                edges.link(write, stranger.write, WW);
                edges.link(read, stranger.read, RW);
            }
            if barrier.chained {
                edges.link(write, helpers[at + 1].write, WW);
                edges.link(read, helpers[at + 1].read, RW);
            }
            let readers = std::mem::take(&mut buffers.readers);
            for &reader in &readers {
                match self.own_end(at, barrier, reader) {
                    None => edges.link(reader, read, RW),
                    Some(end) => self.lead(reader, at..=end, (&helpers, strangers), edges),
                }
            }
            buffers.readers = readers;
        }
    }

    /// The barrier from which on a reader of one of `outs` meets its own later version, if it does.
    fn own_end(&self, at: usize, barrier: &Barrier, reader: u32) -> Option<usize> {
        let touches = self.orders.touches;
        if reader as usize >= touches.columns.len() {
            return None;
        }
        let key = touches.columns.key_of(barrier.outs[0]);
        let events = touches.columns.events(reader).iter();
        let mut own = events.filter(|event| event.is_final_write() && event.key() == key);
        let end = self.orders.entered(own.next()?.version()) as usize;
        let barriers = &self.orders.barriers;
        let is_reached = end < barriers.len()
            && end >= at
            && end - at < EXPANDED_MAX
            && barriers[at..end].iter().all(|barrier| barrier.chained);
        is_reached.then_some(end)
    }

    /// Links a reader to what comes next without leading it to itself, which would be a cycle where there is none: one
    /// by one along these barriers, of which the last leads to its own version, after that as all others. `helpers`
    /// are those of barriers and of strangers.
    fn lead<S: Sink>(
        &self,
        reader: u32,
        along: RangeInclusive<usize>,
        helpers: (&[Helpers], &[Helpers]),
        edges: &mut Edges<S>,
    ) {
        let touches = self.orders.touches;
        let end = *along.end();
        for next in self.orders.barriers[along].iter().flat_map(|it| &it.ins) {
            let writer = touches.installer(*next);
            if writer != NONE {
                edges.link(reader, writer, RW);
            } else if let Ok(place) = self.orders.strangers.binary_search(next) {
                edges.link(reader, helpers.1[place].read, RW);
            }
        }
        if self.orders.barriers[end].chained {
            edges.link(reader, helpers.0[end + 1].read, RW);
        }
    }
}
