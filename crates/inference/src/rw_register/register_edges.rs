//! Dependency edges between transactions, from the version orders of registers.

use super::key_accesses::KeyAccesses;
use super::version_orders::VersionOrders;
use super::zones::Barrier;
use seatrial_cycles::graph::{EdgeBuilder, EdgeSink, RW, WR, WW};
use seatrial_cycles::shape::EdgeSource;
use seatrial_cycles::{Txn, Version};
use std::ops::RangeInclusive;

/// Barriers along which a transaction is linked one by one, at most; past that it is linked as all others.
const EXPANDED_MAX: usize = 64;

/// The source of the graph's edges.
pub(super) struct RegisterDependencies<'a> {
    pub(super) orders: &'a VersionOrders<'a>,
    /// Transactions with a known end, sorted: (position, transaction).
    pub(super) ended: &'a [(u32, u32)],
    pub(super) process: bool,
    pub(super) realtime: bool,
}

impl EdgeSource for RegisterDependencies<'_> {
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        let accesses = self.orders.accesses;
        let columns = accesses.columns;
        let mut buffers = Buffers::default();
        for key in 0..columns.key_count() as u32 {
            link_reads(accesses, key, edges);
            link_initial(accesses, key, edges, &mut buffers);
        }
        // Versions without an installer have helper nodes, which pass the order on.
        let uninstalled = self.orders.uninstalled.iter().map(|_| Helpers::new(edges));
        let uninstalled: Vec<_> = uninstalled.collect();
        let versions = Version::all(columns.version_count());
        for version in versions.skip(columns.key_count()) {
            let next = self.orders.next(version);
            if !next.is_empty() {
                buffers.fill(self.orders, &uninstalled, &[version], next);
                buffers.link(edges);
            }
        }
        self.link_barriers(edges, &mut buffers, &uninstalled);
        let nodes = || Txn::all(columns.len()).filter(|&number| accesses.happened(number));
        if self.process {
            let session = |number: Txn| columns.sessions()[number.index()].get();
            let all = nodes().map(|number| (session(number), number.get(), accesses.is_ok(number)));
            edges.link_processes(all);
        }
        if self.realtime {
            let begun = nodes().filter_map(|number| {
                let position = columns.begun(number.get())?;
                Some((position.get(), number.get()))
            });
            edges.link_realtime(begun, self.ended.iter().copied());
        }
    }
}

/// *wr*: each read comes after the write whose version it returned.
fn link_reads<S: EdgeSink>(accesses: &KeyAccesses<'_>, key: u32, edges: &mut EdgeBuilder<S>) {
    for access in accesses.of_key(key) {
        let writer = access.read.and_then(|read| accesses.columns.writer(read));
        if let Some(writer) = writer
            && accesses.happened(writer)
        {
            edges.link_txns(writer, access.transaction, WR);
        }
    }
}

/// *rw*: each read of a key's initial state comes before all writers of the key.
fn link_initial<S: EdgeSink>(
    accesses: &KeyAccesses<'_>,
    key: u32,
    edges: &mut EdgeBuilder<S>,
    buffers: &mut Buffers,
) {
    // The initial state has the number of its key.
    let readers = accesses.readers(Version::new(key));
    if readers.is_empty() {
        return;
    }
    let written = accesses.of_key(key).iter();
    let written = written.filter(|access| access.write.is_some());
    buffers.targets.clear();
    buffers
        .targets
        .extend(written.map(|access| access.transaction.get()));
    buffers.targets.dedup();
    edges.link_all(readers, &buffers.targets, RW);
}

/// Two nodes that replace many edges: one for kind `ww`, one for kind `rw`.
#[derive(Clone, Copy)]
struct Helpers {
    write: u32,
    read: u32,
}

impl Helpers {
    fn new<S: EdgeSink>(edges: &mut EdgeBuilder<S>) -> Helpers {
        Helpers {
            write: edges.add_helper(),
            read: edges.add_helper(),
        }
    }
}

/// Sets of nodes, reused from one version to the next.
#[derive(Default)]
struct Buffers {
    /// Readers and writers of versions; helper nodes for versions without an installer.
    readers: Vec<u32>,
    writers: Vec<u32>,
    /// Writers of later versions.
    targets: Vec<u32>,
    /// Helper nodes for later versions without an installer.
    uninstalled: Vec<Helpers>,
}

fn sort(numbers: &mut Vec<u32>) {
    numbers.sort_unstable();
    numbers.dedup();
}

impl Buffers {
    /// Sets the transactions of versions and of those that come next.
    fn fill(
        &mut self,
        orders: &VersionOrders<'_>,
        helpers: &[Helpers],
        versions: &[Version],
        next: &[Version],
    ) {
        let accesses = orders.accesses;
        let helper_of = |version: &Version| {
            let place = orders.uninstalled.binary_search(version).ok()?;
            Some(helpers[place])
        };
        self.readers.clear();
        self.writers.clear();
        for version in versions {
            self.readers.extend(accesses.readers(*version));
            match accesses.installer(*version) {
                None => {
                    if let Some(helpers) = helper_of(version) {
                        self.readers.push(helpers.read);
                        self.writers.push(helpers.write);
                    }
                }
                Some(writer) => self.writers.push(writer.get()),
            }
        }
        if versions.len() > 1 {
            sort(&mut self.readers);
            sort(&mut self.writers);
        }
        self.targets.clear();
        self.uninstalled.clear();
        for version in next {
            match accesses.installer(*version) {
                None => self.uninstalled.extend(helper_of(version)),
                Some(writer) => self.targets.push(writer.get()),
            }
        }
        sort(&mut self.targets);
        debug_assert!(
            [&self.readers, &self.writers, &self.targets]
                .iter()
                .all(|nodes| nodes.is_sorted_by(|one, next| one < next)),
            "each node is linked once"
        );
    }

    /// Links readers and writers to the writers of later versions.
    fn link<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>) {
        edges.link_all(&self.writers, &self.targets, WW);
        edges.link_all(&self.readers, &self.targets, RW);
        for unwritten in &self.uninstalled {
            for &writer in &self.writers {
                edges.link(writer, unwritten.write, WW);
            }
            for &reader in &self.readers {
                edges.link(reader, unwritten.read, RW);
            }
        }
    }
}

impl RegisterDependencies<'_> {
    fn link_barriers<S: EdgeSink>(
        &self,
        edges: &mut EdgeBuilder<S>,
        buffers: &mut Buffers,
        uninstalled: &[Helpers],
    ) {
        let barriers = &self.orders.barriers;
        let helpers: Vec<_> = barriers.iter().map(|_| Helpers::new(edges)).collect();
        for (at, barrier) in barriers.iter().enumerate() {
            buffers.fill(self.orders, uninstalled, &barrier.outs, &barrier.ins);
            let Helpers { write, read } = helpers[at];
            for &writer in &buffers.writers {
                edges.link(writer, write, WW);
            }
            for &target in &buffers.targets {
                edges.link(write, target, WW);
                edges.link(read, target, RW);
            }
            for unwritten in &buffers.uninstalled {
                edges.link(write, unwritten.write, WW);
                edges.link(read, unwritten.read, RW);
            }
            if barrier.chained {
                edges.link(write, helpers[at + 1].write, WW);
                edges.link(read, helpers[at + 1].read, RW);
            }
            let readers = std::mem::take(&mut buffers.readers);
            for &reader in &readers {
                match self.own_end(at, barrier, reader) {
                    None => edges.link(reader, read, RW),
                    // The helper would lead back to the reader itself.
                    Some(end) => {
                        self.link_past_own(reader, at..=end, (&helpers, uninstalled), edges);
                    }
                }
            }
            buffers.readers = readers;
        }
    }

    /// The barrier at which a reader of one of `outs` reaches its own later version, if it does.
    fn own_end(&self, at: usize, barrier: &Barrier, reader: u32) -> Option<usize> {
        let accesses = self.orders.accesses;
        if reader as usize >= accesses.columns.len() {
            return None;
        }
        let key = accesses.columns.key_of(barrier.outs[0]);
        let events = accesses.columns.events(reader).iter();
        let mut own = events.filter(|event| event.is_final_write() && event.key() == key);
        let end = self.orders.entered(own.next()?.version())?.index();
        let barriers = &self.orders.barriers;
        assert!(end < barriers.len(), "a version enters at a barrier");
        // Its own version may also enter at an earlier barrier, to which no path leads.
        let is_reached = end >= at
            && end - at < EXPANDED_MAX
            && barriers[at..end].iter().all(|barrier| barrier.chained);
        is_reached.then_some(end)
    }

    /// Links a reader to the following versions except its own, since an edge from a transaction to itself would be a false
    /// cycle: one by one along these barriers, of which the last leads to its own version, and then as all others. `helpers`
    /// are those of barriers and of versions without an installer.
    fn link_past_own<S: EdgeSink>(
        &self,
        reader: u32,
        along: RangeInclusive<usize>,
        helpers: (&[Helpers], &[Helpers]),
        edges: &mut EdgeBuilder<S>,
    ) {
        let accesses = self.orders.accesses;
        let end = *along.end();
        for next in self.orders.barriers[along].iter().flat_map(|it| &it.ins) {
            if let Some(writer) = accesses.installer(*next) {
                edges.link(reader, writer.get(), RW);
            } else if let Ok(place) = self.orders.uninstalled.binary_search(next) {
                edges.link(reader, helpers.1[place].read, RW);
            }
        }
        if self.orders.barriers[end].chained {
            edges.link(reader, helpers.0[end + 1].read, RW);
        }
    }
}
