//! Strict order: an order of transactions that respects all dependencies of lists and real time.

use super::list_table::ListId;
use super::lists::OrderedLists;
use seatrial_cycles::{Position, Txn, dense_id};

dense_id! {
    /// A write: the place before it, or, for an unread one, a number after all places.
    WriteId
}
dense_id! {
    /// A read, by its place in the table's column of reads.
    ReadId
}
dense_id! {
    /// The rank of a transaction among those that ended.
    EndRank
}
dense_id! {
    /// A list with versions that had no effect: its row in `kept`.
    KeptRow
}

/// A strict order of a window.
pub(super) struct StrictOrder {
    /// The transactions that took effect, in an order without back edges in which a transaction that ended comes before every
    /// one that began later; empty if it is not wanted.
    pub(super) order: Vec<Txn>,
    /// By transaction: does it come before all unsettled ones? One without effect does unless it is unsettled itself.
    pub(super) gone: Vec<bool>,
    /// Dependencies that lead to these.
    pub(super) edges: usize,
}

/// Not visited.
const NEW: u8 = 0;
/// Waits for predecessors.
const OPEN: u8 = 1;
/// In the order, after an unsettled transaction or unsettled itself.
const KEPT: u8 = 2;
/// In the order, before all unsettled transactions.
const GONE: u8 = 3;

/// Sorts transactions in the order of their completions, each right after its predecessors, without making an edge.
///
/// A write comes after the previous version and after the reads that end there, a read after the version that it ends with: so
/// the predecessors of a transaction follow from its reads and writes. A transaction is placed at the latest when it has ended,
/// its unplaced predecessors before it, depth first. If one of these waits for it in turn, or begins only after its end, there is
/// a cycle, and the graph must be made. Else there is no cycle, at any level. Memory accesses are as local as the transactions
/// were in time, so nearly all are cache hits. Time is linear in reads and writes.
///
/// Its downside: it finds only strict orders; a weaker level may have no cycle although this fails. It also fails if reads of a
/// list do not agree.
struct StrictOrderBuilder<'a> {
    lists: &'a OrderedLists,
    /// By list.
    spans: Vec<ListSpan>,
    /// For each list with versions that had no effect, by length of a read: the number of its versions that took effect.
    kept: Vec<Vec<u32>>,
    /// By place: the writer of the last version of a read that ends there; `None` for a freed writer, and without versions.
    writers: Vec<Option<Txn>>,
    /// By place: the first of the reads that end there, in `chain`.
    readers: Vec<Option<ReadId>>,
    /// By read: the reader, and the next read that ends at the same place; without a reader, it is in no chain.
    chain: Vec<(Option<Txn>, Option<ReadId>)>,
    /// By transaction: the first of its writes.
    first_write: Vec<Option<WriteId>>,
    /// By write: the next one of the same transaction.
    next_write: Vec<Option<WriteId>>,
    /// For unread writes, which are numbered after all places: the place before.
    tails: Vec<u32>,
    /// By transaction: its rank among those that ended, if it did.
    ended: Vec<Option<EndRank>>,
    states: Vec<u8>,
    waiting: Vec<WaitingTransaction>,
    /// By transaction; empty when all are settled.
    unsettled: &'a [bool],
    /// The state of the next transaction that is placed: [`KEPT`] once an unsettled one was placed.
    placed: u8,
    /// The order, if it is wanted.
    order: Option<Vec<Txn>>,
    /// Dependencies that were followed, up to the first unsettled transaction.
    edges: usize,
}

/// The places of a list: one before all versions, then one after each.
#[derive(Clone, Copy)]
struct ListSpan {
    first: u32,
    /// Its row in `kept`; `None` if all its versions took effect.
    kept: Option<KeptRow>,
}

/// A transaction that is to be placed after its predecessors.
struct WaitingTransaction {
    number: Txn,
    /// Its writes and reads that were not visited: the next write, and a range of reads.
    write: Option<WriteId>,
    read: u32,
    reads_end: u32,
}

/// The strict order of all transactions, if there is one. `unsettled` is by transaction, or empty if all are settled.
pub(super) fn strict_order(
    lists: &OrderedLists,
    unsettled: &[bool],
    is_order_wanted: bool,
) -> Option<StrictOrder> {
    let mut strict_order = StrictOrderBuilder::new(lists, unsettled)?;
    strict_order.order = is_order_wanted.then(|| Vec::with_capacity(lists.table.len()));
    strict_order.run()?;
    let states = strict_order.states.iter().zip(Txn::all(lists.table.len()));
    let gone = states.map(|(&state, number)| {
        let is_free = || unsettled.get(number.index()) != Some(&true);
        state == GONE || state == NEW && !lists.happened(number) && is_free()
    });
    Some(StrictOrder {
        gone: gone.collect(),
        order: strict_order.order.unwrap_or_default(),
        edges: strict_order.edges,
    })
}

impl<'a> StrictOrderBuilder<'a> {
    /// Indexes reads and writes by place; `None` if predecessors are not known, since reads contradict each other.
    fn new(lists: &'a OrderedLists, unsettled: &'a [bool]) -> Option<StrictOrderBuilder<'a>> {
        let count = lists.table.len();
        let has_conflict = lists.table.lists.iter().any(|list| list.conflict.is_some());
        if has_conflict || !lists.table.branches.is_empty() {
            return None;
        }
        let mut strict_order = StrictOrderBuilder {
            lists,
            spans: Vec::with_capacity(lists.table.lists.len()),
            kept: Vec::new(),
            writers: Vec::new(),
            readers: Vec::new(),
            chain: Vec::with_capacity(lists.table.reads.item_count()),
            first_write: vec![None; count],
            next_write: Vec::new(),
            tails: Vec::with_capacity(lists.unseen.len()),
            ended: vec![None; count],
            states: vec![NEW; count],
            waiting: Vec::new(),
            unsettled,
            placed: GONE,
            order: None,
            edges: 0,
        };
        strict_order.index_versions()?;
        strict_order.index_writes();
        strict_order.index_reads()?;
        assert!(
            strict_order.chain.len() == lists.table.reads.item_count(),
            "each read has a link"
        );
        assert!(
            strict_order.spans.len() == lists.table.lists.len(),
            "each list has a span"
        );
        Some(strict_order)
    }

    /// Assigns each version its place.
    fn index_versions(&mut self) -> Option<()> {
        let lists = self.lists;
        let count = lists.version_count() + lists.table.lists.len();
        if count + lists.unseen.len() >= u32::MAX as usize {
            return None;
        }
        self.writers.reserve_exact(count);
        for at in ListId::all(lists.table.lists.len()) {
            let first = self.writers.len();
            self.writers.push(None);
            let mut is_whole = true;
            for &version in lists.versions(at) {
                let number = lists.committed(version);
                if number.is_some() {
                    self.writers.push(number);
                } else if version.is_gone() {
                    // Freed versions come first in a list; anything else is left to the graph.
                    (self.writers.last() == Some(&None)).then_some(())?;
                    self.writers.push(None);
                } else {
                    is_whole = false;
                }
            }
            let span = ListSpan {
                first: first as u32,
                kept: (!is_whole).then(|| self.count_effective(at)),
            };
            self.spans.push(span);
        }
        self.readers = vec![None; self.writers.len()];
        Some(())
    }

    /// Counts the versions of a list that took effect, by length.
    fn count_effective(&mut self, at: ListId) -> KeptRow {
        let lists = self.lists;
        let mut kept = vec![0];
        let mut count = 0;
        for &version in lists.versions(at) {
            count += u32::from(version.is_gone() || lists.committed(version).is_some());
            kept.push(count);
        }
        assert!(
            kept.len() == lists.versions(at).len() + 1,
            "one count for each length of a read"
        );
        self.kept.push(kept);
        KeptRow::new(self.kept.len() as u32 - 1)
    }

    /// Links the writes of each transaction, lower versions of a list first.
    fn index_writes(&mut self) {
        let places = self.writers.len();
        self.next_write = vec![None; places + self.lists.unseen.len()];
        for &(at, number) in &self.lists.unseen {
            let end = self.end_of(at);
            let write = WriteId::new((places + self.tails.len()) as u32);
            self.tails.push(end as u32 - 1);
            let first = &mut self.first_write[number.index()];
            self.next_write[write.index()] = first.replace(write);
        }
        // From the last place on: each write goes to the front of its transaction's chain, so the lowest is visited first.
        for place in (1..places).rev() {
            if let Some(number) = self.writers[place] {
                let write = WriteId::new(place as u32 - 1);
                let first = &mut self.first_write[number.index()];
                self.next_write[write.index()] = first.replace(write);
            }
        }
        assert!(
            self.tails.len() == self.lists.unseen.len(),
            "each unread append is a write"
        );
    }

    /// Links the reads that end at each place.
    fn index_reads(&mut self) -> Option<()> {
        let table = &self.lists.table;
        for (&reader, row) in table.reads.transactions().iter().zip(0..) {
            self.ended[reader.index()] = Some(EndRank::new(row));
            for read in table.reads.range(row) {
                let (list, length) = table.reads.items()[read as usize];
                let place = self.place_of(list, length);
                let writer = self.writers[place];
                if writer == Some(reader) {
                    // It read its own append: later versions wait for that by *ww*.
                    self.chain.push((None, None));
                    continue;
                }
                if writer.is_none() && self.is_below_gone(list, place) {
                    return None;
                }
                let first = &mut self.readers[place];
                self.chain
                    .push((Some(reader), first.replace(ReadId::new(read))));
            }
        }
        Some(())
    }

    /// Does a version of a freed transaction come right after this place?
    fn is_below_gone(&self, list: ListId, place: usize) -> bool {
        place + 1 < self.end_of(list) && self.writers[place + 1].is_none()
    }

    /// The end of a list's places.
    fn end_of(&self, list: ListId) -> usize {
        let next = self.spans.get(list.index() + 1);
        next.map_or(self.writers.len(), |span| span.first as usize)
    }

    /// The place where a read of `length` elements of a list ends.
    fn place_of(&self, list: ListId, length: u32) -> usize {
        let span = self.spans[list.index()];
        let length = match span.kept {
            None => length,
            Some(row) => self.kept[row.index()][length as usize],
        };
        span.first.wrapping_add(length) as usize
    }

    /// Places all transactions.
    fn run(&mut self) -> Option<()> {
        let lists = self.lists;
        let table = &lists.table;
        for (&number, row) in table.reads.transactions().iter().zip(0..) {
            let reads = table.reads.range(row);
            let waiting = WaitingTransaction {
                number,
                write: self.first_write[number.index()],
                read: reads.start,
                reads_end: reads.end,
            };
            self.place(waiting, table.transactions.completion(number))?;
        }
        // Transactions of unknown outcome may come last.
        for number in Txn::all(table.len()).filter(|&number| lists.happened(number)) {
            let waiting = self.waiting(number);
            self.place(waiting, None)?;
        }
        assert!(
            self.waiting.is_empty(),
            "no transaction waits once all are placed"
        );
        debug_assert!(
            Txn::all(table.len())
                .all(|number| lists.happened(number) == (self.states[number.index()] >= KEPT)),
            "a transaction is placed if and only if it took effect"
        );
        Some(())
    }

    /// Places a transaction after its predecessors; `None` if one of these began after `now`, or on a cycle. Without `now`, none
    /// begins too late.
    fn place(&mut self, mut waiting: WaitingTransaction, now: Option<Position>) -> Option<()> {
        let number = waiting.number;
        if self.states[number.index()] >= KEPT {
            return Some(());
        }
        // Most transactions have no unplaced predecessor, and then need no stack.
        match self.predecessor(&mut waiting) {
            None => self.put(number),
            Some(before) => {
                self.open(waiting);
                self.place_before(before, now)?;
            }
        }
        Some(())
    }

    /// Places the transactions on the stack: `before` must come first.
    fn place_before(&mut self, before: Txn, now: Option<Position>) -> Option<()> {
        let mut next = Some(before);
        loop {
            if let Some(before) = next {
                let begun = self.lists.table.transactions.invocation(before);
                let is_later = begun.zip(now).is_some_and(|(begun, now)| begun > now);
                // An open predecessor waits for this one in turn: a cycle.
                if is_later || self.states[before.index()] == OPEN {
                    return None;
                }
                let waiting = self.waiting(before);
                self.open(waiting);
            }
            let Some(mut waiting) = self.waiting.pop() else {
                return Some(());
            };
            next = self.predecessor(&mut waiting);
            match next {
                None => self.put(waiting.number),
                Some(_) => self.waiting.push(waiting),
            }
        }
    }

    #[inline]
    fn put(&mut self, number: Txn) {
        if self.placed == GONE && self.unsettled.get(number.index()) == Some(&true) {
            self.placed = KEPT;
        }
        self.states[number.index()] = self.placed;
        if let Some(order) = &mut self.order {
            order.push(number);
        }
    }

    fn open(&mut self, waiting: WaitingTransaction) {
        self.states[waiting.number.index()] = OPEN;
        self.waiting.push(waiting);
    }

    /// A transaction with all its reads and writes.
    fn waiting(&self, number: Txn) -> WaitingTransaction {
        let row = self.ended[number.index()];
        let reads = row.map_or(0..0, |row| self.lists.table.reads.range(row.get()));
        WaitingTransaction {
            number,
            write: self.first_write[number.index()],
            read: reads.start,
            reads_end: reads.end,
        }
    }

    /// Returns an unplaced predecessor of `waiting`.
    fn predecessor(&mut self, waiting: &mut WaitingTransaction) -> Option<Txn> {
        let own = waiting.number;
        while let Some(write) = waiting.write {
            let place = match write.index().checked_sub(self.writers.len()) {
                None => write.index(),
                Some(tail) => self.tails[tail] as usize,
            };
            let below = self.writers[place];
            if self.is_unplaced(own, below) {
                return below;
            }
            if let Some(reader) = self.unplaced_reader(place, own) {
                return Some(reader);
            }
            self.follow(below);
            waiting.write = self.next_write[write.index()];
        }
        while waiting.read < waiting.reads_end {
            let (list, length) = self.lists.table.reads.items()[waiting.read as usize];
            let writer = self.writers[self.place_of(list, length)];
            if self.is_unplaced(own, writer) {
                return writer;
            }
            self.follow(writer);
            waiting.read += 1;
        }
        None
    }

    /// Counts a dependency on `before`.
    #[inline]
    fn follow(&mut self, before: Option<Txn>) {
        self.edges += usize::from(before.is_some() && self.placed == GONE);
    }

    #[inline]
    fn is_unplaced(&self, own: Txn, other: Option<Txn>) -> bool {
        other.is_some_and(|other| other != own && self.states[other.index()] < KEPT)
    }

    /// Returns an unplaced reader other than `own` whose read ends at this place.
    fn unplaced_reader(&mut self, place: usize, own: Txn) -> Option<Txn> {
        let mut link = self.readers[place];
        let mut last: Option<ReadId> = None;
        while let Some(read) = link {
            let (Some(reader), next) = self.chain[read.index()] else {
                unreachable!("a read of its own append is in no chain");
            };
            if self.states[reader.index()] >= KEPT {
                // A placed reader is unlinked, so that each link is followed once.
                match last {
                    None => self.readers[place] = next,
                    Some(last) => self.chain[last.index()].1 = next,
                }
                self.follow(Some(reader));
            } else if reader == own {
                last = link;
            } else {
                return Some(reader);
            }
            link = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::ListFold;
    use super::super::late::LateKeys;
    use super::super::list_edges::OrderKinds;
    use super::super::{Level, ListAppend, ListDependencies};
    use super::*;
    use seatrial_cycles::graph::{DependencyEdge, EdgeBuilder};
    use seatrial_cycles::shape::{EdgeSource as _, ShapeGraph};
    use seatrial_history::{ChunkSource, History, Key, Mop, Observed, Op, OpType, Process, Value};
    use seatrial_machine::Rng;
    use std::collections::BTreeMap;

    /// A store that carries transactions out at some moment between beginning and end, now and then reading what is old, or
    /// writing below what is new.
    struct Store {
        rng: Rng,
        /// How often it is wrong.
        wrong: f64,
        lists: BTreeMap<i64, Vec<i64>>,
        element: i64,
    }

    impl Store {
        fn run(&mut self, mops: &[Mop]) -> Vec<Mop> {
            let mops = mops.iter().map(|mop| match mop {
                Mop::Append { key, element } => {
                    let Key::Int(number) = *key else {
                        unreachable!("all keys are integers");
                    };
                    let list = self.lists.entry(number).or_default();
                    let misplaced = self.rng.chance(self.wrong);
                    let at = list.len() - usize::from(misplaced && !list.is_empty());
                    list.insert(at, *element);
                    mop.clone()
                }
                Mop::Read { key, .. } => {
                    let Key::Int(number) = *key else {
                        unreachable!("all keys are integers");
                    };
                    let list = self.lists.entry(number).or_default();
                    let stale = self.rng.chance(self.wrong);
                    let known = list.len() - usize::from(stale && !list.is_empty());
                    let observed = Observed::List(list[..known].into());
                    let key = key.clone();
                    Mop::Read { key, observed }
                }
                Mop::Write { .. } => mop.clone(),
            });
            mops.collect()
        }

        fn transaction(&mut self) -> Vec<Mop> {
            let mops = (0..=self.rng.below(4)).map(|_| {
                let key = Key::Int(self.rng.below(3).cast_signed());
                if self.rng.chance(0.5) {
                    let observed = Observed::Nil;
                    return Mop::Read { key, observed };
                }
                self.element += 1;
                let element = self.element;
                Mop::Append { key, element }
            });
            mops.collect()
        }

        /// A history with this many operations.
        fn history(mut self, length: usize) -> History {
            let mut ops = Vec::new();
            // Invocations and what was done already.
            let mut open: Vec<(Op, Option<Vec<Mop>>)> = Vec::new();
            let mut client = 0;
            while ops.len() < length {
                let at = self.rng.index(open.len() + 1);
                if at == open.len() && open.len() < 5 {
                    let mops = self.transaction();
                    let op = Op::invoke(Process::Client(client), "txn", Value::Txn(mops.into()));
                    client += 1;
                    ops.push(op.clone());
                    open.push((op, None));
                } else if let Some((op, done)) = open.get_mut(at) {
                    let mops: Vec<_> = op.value.as_txn().unwrap().to_vec();
                    if done.is_none() && self.rng.chance(0.9) {
                        *done = Some(self.run(&mops));
                        continue;
                    }
                    let (op, done) = open.swap_remove(at);
                    ops.push(match done {
                        Some(mops) if self.rng.chance(0.9) => {
                            op.complete(OpType::Ok, Value::Txn(mops.into()))
                        }
                        Some(_) => op.complete(OpType::Info, op.value.clone()),
                        None => op.complete(OpType::Fail, op.value.clone()),
                    });
                }
            }
            History::from_unindexed(ops)
        }
    }

    /// Is everything in the order that took place, and nothing in the wrong order?
    fn assert_order(
        lists: &OrderedLists,
        replayed: &StrictOrder,
        unsettled: &[bool],
        context: &str,
    ) {
        let count = lists.table.len();
        let StrictOrder { order, gone, .. } = replayed;
        let mut place = vec![None; count];
        for (at, &number) in order.iter().enumerate() {
            assert_eq!(place[number.index()].replace(at), None, "{context}");
        }
        for number in Txn::all(count) {
            let happened = lists.happened(number);
            let at = number.index();
            assert_eq!(place[at].is_some(), happened, "{context}");
            assert!(!(unsettled[at] && gone[at]), "{context}");
        }
        let (process, realtime) = (false, false);
        let orders = OrderKinds { process, realtime };
        let mut edges = EdgeBuilder::new(count);
        ListDependencies { lists, orders }.emit_edges(&mut edges);
        let edges: Vec<DependencyEdge> = edges.into_sink();
        for (from, to, _) in edges {
            let (from, to) = (from as usize, to as usize);
            // The others are helpers.
            if from < count && to < count {
                assert!(place[from] < place[to], "{context}: {from} {to}");
                assert!(gone[from] || !gone[to], "{context}: {from} {to}");
            }
        }
        for &before in order {
            let transactions = &lists.table.transactions;
            let end = transactions.completion(before);
            let ended = lists.table.reads.transactions().contains(&before);
            for &after in order {
                if ended && end < transactions.invocation(after) {
                    let places = [before, after].map(|number| place[number.index()]);
                    assert!(places[0] < places[1], "{context}: {before:?} {after:?}");
                }
            }
        }
    }

    #[test]
    fn there_is_an_order_when_the_graph_has_no_cycle() {
        let (mut ordered, mut cyclic, mut torn, mut cut) = (0, 0, 0, 0);
        for seed in 0..3_000 {
            let mut rng = Rng::from_seed(seed);
            let store = Store {
                wrong: *rng.pick(&[0.0, 0.02, 0.1]),
                lists: BTreeMap::new(),
                element: 0,
                rng: Rng::from_seed(seed ^ 0x5eed),
            };
            let history = store.history(4 + rng.index(40));
            let checker = ListAppend::new(Level::StrictSerializable);
            let certify = false;
            let gather = ListFold {
                checker,
                certify,
                late: LateKeys::default(),
            };
            let source: &dyn ChunkSource = &history;
            let (table, _) = source.fold(&gather).unwrap();
            let is_torn = table.lists.iter().any(|list| list.conflict.is_some());
            let lists = &OrderedLists::new(table, Level::StrictSerializable);
            let (process, realtime) = (false, true);
            let orders = OrderKinds { process, realtime };
            let count = lists.table.len();
            let rows = ShapeGraph::new(count, &ListDependencies { lists, orders }).unwrap();
            let is_acyclic = rows.peel().is_all(&rows);
            let unsettled: Vec<_> = (0..count).map(|_| rng.chance(0.1)).collect();
            let replayed = strict_order(lists, &unsettled, true);
            assert_eq!(replayed.is_some(), is_acyclic && !is_torn, "seed {seed}");
            if let Some(replayed) = replayed {
                assert_order(lists, &replayed, &unsettled, &format!("seed {seed}"));
                ordered += 1;
                cut += replayed.gone.iter().filter(|gone| **gone).count();
            } else if is_torn {
                torn += 1;
            } else {
                cyclic += 1;
            }
        }
        println!("{ordered} with an order, {cyclic} without, {torn} torn, {cut} before the cut");
        assert!(ordered > 1_000 && cyclic > 300 && torn > 100 && cut > 1_000);
    }
}
