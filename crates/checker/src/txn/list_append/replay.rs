//! An order of transactions that keeps everything that lists tell, and real time.

use super::lists::Lists;
use super::table::NONE;

/// What a window of a history comes to when it is replayed.
pub(super) struct Replayed {
    /// The transactions that took place, in an order in which no dependency leads back and whoever had ended comes before
    /// whoever began later; empty when nobody asked for it.
    pub(super) order: Vec<u32>,
    /// By transaction: does it come before all that are unsettled? One that took no place does unless it is unsettled itself.
    pub(super) gone: Vec<bool>,
    /// Dependencies that lead to those.
    pub(super) edges: usize,
}

/// Has not been looked at.
const NEW: u8 = 0;
/// Waits for others to come first.
const OPEN: u8 = 1;
/// Stands in the order, behind one that is unsettled or is so itself.
const KEPT: u8 = 2;
/// Stands in the order, before all that are unsettled.
const GONE: u8 = 3;

/// Transactions that are put in order when they end: each right after those that must come before it.
///
/// An edge is never made. A write comes after the one below it and after the reads that end there, a read after the write
/// that it ends with; so each transaction knows whom it waits for. It is put into the order when it has ended, at the latest,
/// and those that it waits for before it. When one of these waits for it in turn, or begins only after its end, there is a
/// cycle, and so whoever looks for cycles must look at the whole graph. Else there is none, at any level. All that is touched
/// lies as close together as it did in time, so nearly all of it is in the cache.
///
/// Its downside: the order is only found if there is a strict one; below, a graph may be without a cycle when this
/// gives up. It also does when reads of a list do not agree.
struct Replay<'a> {
    lists: &'a Lists,
    /// By list.
    spans: Vec<Span>,
    /// For each list with versions that took no place: by length of a read, how many of so many first versions did.
    kept: Vec<Vec<u32>>,
    /// By place: who wrote the version that a read sees last that ends there; [`NONE`] for one of before and for none.
    writers: Vec<u32>,
    /// By place: the first of the reads that end there, in `chain`.
    readers: Vec<u32>,
    /// By read: who reads, and the next one that ends there.
    chain: Vec<(u32, u32)>,
    /// By transaction: the first of its writes. A write is named by the place below it.
    first_write: Vec<u32>,
    /// By write: the next one of the same transaction.
    next_write: Vec<u32>,
    /// Of writes that nobody read, which come behind all places: the place below.
    tails: Vec<u32>,
    /// By transaction: where it stands among those that ended; [`NONE`] for one that did not.
    ended: Vec<u32>,
    states: Vec<u8>,
    waiting: Vec<Waiting>,
    /// By transaction; empty when all are settled.
    unsettled: &'a [bool],
    /// What those become that are put in order: as soon as one was unsettled, they stay.
    placed: u8,
    /// The order, if it is wanted.
    order: Option<Vec<u32>>,
    /// Dependencies that were followed, up to the first that is unsettled.
    edges: usize,
}

/// Where the places of a list are: one below all versions, then one above each.
#[derive(Clone, Copy)]
struct Span {
    first: u32,
    /// Which of `kept` is its; [`NONE`] when all its versions took place.
    kept: u32,
}

/// A transaction that is about to be placed.
struct Waiting {
    number: u32,
    /// What it does that has not been looked at: a write, reads.
    write: u32,
    read: u32,
    reads_end: u32,
}

/// Puts the transactions in order, if there is an order; by transaction, which are `unsettled`, if not all are settled.
pub(super) fn replay(lists: &Lists, unsettled: &[bool], is_order_wanted: bool) -> Option<Replayed> {
    let mut replay = Replay::new(lists, unsettled)?;
    replay.order = is_order_wanted.then(|| Vec::with_capacity(lists.table.len()));
    replay.run()?;
    let states = replay.states.iter().zip(0..);
    let gone = states.map(|(&state, number)| {
        let is_free = || unsettled.get(number as usize) != Some(&true);
        state == GONE || state == NEW && !lists.happened(number) && is_free()
    });
    Some(Replayed {
        gone: gone.collect(),
        order: replay.order.unwrap_or_default(),
        edges: replay.edges,
    })
}

impl<'a> Replay<'a> {
    /// Everything that is waited for; `None` when it is not plain who that is.
    fn new(lists: &'a Lists, unsettled: &'a [bool]) -> Option<Replay<'a>> {
        let count = lists.table.len();
        let has_conflict = lists.table.lists.iter().any(|list| list.conflict.is_some());
        if has_conflict || !lists.table.branches.is_empty() {
            return None;
        }
        let mut replay = Replay {
            lists,
            spans: Vec::with_capacity(lists.table.lists.len()),
            kept: Vec::new(),
            writers: Vec::new(),
            readers: Vec::new(),
            chain: Vec::with_capacity(lists.table.reads.len()),
            first_write: vec![NONE; count],
            next_write: Vec::new(),
            tails: Vec::with_capacity(lists.unseen.len()),
            ended: vec![NONE; count],
            states: vec![NEW; count],
            waiting: Vec::new(),
            unsettled,
            placed: GONE,
            order: None,
            edges: 0,
        };
        replay.take_versions()?;
        replay.take_writes();
        replay.take_reads()?;
        Some(replay)
    }

    /// Gives each version its place.
    fn take_versions(&mut self) -> Option<()> {
        let lists = self.lists;
        let count = lists.version_count() + lists.table.lists.len();
        if count + lists.unseen.len() >= NONE as usize {
            return None;
        }
        self.writers.reserve_exact(count);
        for at in 0..lists.table.lists.len() as u32 {
            let first = self.writers.len();
            self.writers.push(NONE);
            let mut is_whole = true;
            for &version in lists.versions(at) {
                let number = lists.committed(version);
                if number != NONE {
                    self.writers.push(number);
                } else if version.is_gone() {
                    // What went before comes first, else something is wrong with it.
                    (self.writers.last() == Some(&NONE)).then_some(())?;
                    self.writers.push(NONE);
                } else {
                    is_whole = false;
                }
            }
            let span = Span {
                first: first as u32,
                kept: if is_whole { NONE } else { self.keep(at) },
            };
            self.spans.push(span);
        }
        self.readers = vec![NONE; self.writers.len()];
        Some(())
    }

    /// Counts the versions of a list that took place.
    fn keep(&mut self, at: u32) -> u32 {
        let lists = self.lists;
        let mut kept = vec![0];
        let mut count = 0;
        for &version in lists.versions(at) {
            count += u32::from(version.is_gone() || lists.committed(version) != NONE);
            kept.push(count);
        }
        self.kept.push(kept);
        self.kept.len() as u32 - 1
    }

    /// Tells each transaction its writes, lower versions of a list first.
    fn take_writes(&mut self) {
        let places = self.writers.len();
        self.next_write = vec![NONE; places + self.lists.unseen.len()];
        for (at, number) in &self.lists.unseen {
            let behind = self.spans.get(*at as usize + 1);
            let behind = behind.map_or(places as u32, |span| span.first);
            let write = (places + self.tails.len()) as u32;
            self.tails.push(behind - 1);
            let first = &mut self.first_write[*number as usize];
            self.next_write[write as usize] = std::mem::replace(first, write);
        }
        for place in (1..places).rev() {
            let number = self.writers[place];
            if number != NONE {
                let write = place as u32 - 1;
                let first = &mut self.first_write[number as usize];
                self.next_write[write as usize] = std::mem::replace(first, write);
            }
        }
    }

    /// Tells each place the reads that end there.
    fn take_reads(&mut self) -> Option<()> {
        let table = &self.lists.table;
        let mut start = 0;
        for (at, &reader) in table.ended.iter().enumerate() {
            self.ended[reader as usize] = at as u32;
            let end = table.read_ends[at];
            for read in start..end {
                let (list, length) = table.reads[read as usize];
                let place = self.spot(list, length);
                let writer = self.writers[place];
                if writer == reader {
                    // It read its own append; what comes after is after that.
                    self.chain.push((NONE, NONE));
                    continue;
                }
                if writer == NONE && self.is_below_gone(list, place) {
                    return None;
                }
                let first = &mut self.readers[place];
                self.chain.push((reader, *first));
                *first = read;
            }
            start = end;
        }
        Some(())
    }

    /// Does a version of a transaction that was let go come right after this place?
    fn is_below_gone(&self, list: u32, place: usize) -> bool {
        let behind = self.spans.get(list as usize + 1);
        let behind = behind.map_or(self.writers.len(), |span| span.first as usize);
        place + 1 < behind && self.writers[place + 1] == NONE
    }

    /// The place where a read of so many elements of a list ends.
    fn spot(&self, list: u32, length: u32) -> usize {
        let span = self.spans[list as usize];
        let length = match span.kept {
            NONE => length,
            kept => self.kept[kept as usize][length as usize],
        };
        span.first.wrapping_add(length) as usize
    }

    /// Puts all in order.
    fn run(&mut self) -> Option<()> {
        let lists = self.lists;
        let table = &lists.table;
        let mut start = 0;
        for (&number, &end) in table.ended.iter().zip(&table.read_ends) {
            let waiting = Waiting {
                number,
                write: self.first_write[number as usize],
                read: start,
                reads_end: end,
            };
            self.place(waiting, table.completions[number as usize])?;
            start = end;
        }
        // Whoever did not end may come last.
        for number in (0..table.len() as u32).filter(|&number| lists.happened(number)) {
            let waiting = self.waiting(number);
            self.place(waiting, NONE)?;
        }
        Some(())
    }

    /// Puts a transaction in order, those that must come before it first, if nobody of these began after `now`.
    fn place(&mut self, mut waiting: Waiting, now: u32) -> Option<()> {
        let number = waiting.number;
        if self.states[number as usize] >= KEPT {
            return Some(());
        }
        match self.before(&mut waiting) {
            None => self.put(number),
            Some(before) => {
                self.open(waiting);
                self.place_before(before, now)?;
            }
        }
        Some(())
    }

    /// The same for those that wait: `before` must come first.
    fn place_before(&mut self, before: u32, now: u32) -> Option<()> {
        let mut next = Some(before);
        loop {
            if let Some(before) = next {
                let begun = self.lists.table.invocations[before as usize];
                let is_later = begun != NONE && begun > now;
                if is_later || self.states[before as usize] == OPEN {
                    return None;
                }
                let waiting = self.waiting(before);
                self.open(waiting);
            }
            let Some(mut waiting) = self.waiting.pop() else {
                return Some(());
            };
            next = self.before(&mut waiting);
            match next {
                None => self.put(waiting.number),
                Some(_) => self.waiting.push(waiting),
            }
        }
    }

    #[inline]
    fn put(&mut self, number: u32) {
        if self.placed == GONE && self.unsettled.get(number as usize) == Some(&true) {
            self.placed = KEPT;
        }
        self.states[number as usize] = self.placed;
        if let Some(order) = &mut self.order {
            order.push(number);
        }
    }

    fn open(&mut self, waiting: Waiting) {
        self.states[waiting.number as usize] = OPEN;
        self.waiting.push(waiting);
    }

    /// Everything that this one does.
    fn waiting(&self, number: u32) -> Waiting {
        let ends = &self.lists.table.read_ends;
        let (read, reads_end) = match self.ended[number as usize] {
            NONE => (0, 0),
            0 => (0, ends[0]),
            at => (ends[at as usize - 1], ends[at as usize]),
        };
        Waiting {
            number,
            write: self.first_write[number as usize],
            read,
            reads_end,
        }
    }

    /// Somebody who must come before this one and is not placed.
    fn before(&mut self, waiting: &mut Waiting) -> Option<u32> {
        let own = waiting.number;
        while waiting.write != NONE {
            let write = waiting.write as usize;
            let place = match write.checked_sub(self.writers.len()) {
                None => write,
                Some(tail) => self.tails[tail] as usize,
            };
            let below = self.writers[place];
            if self.waits(own, below) {
                return Some(below);
            }
            if let Some(reader) = self.reader(place, own) {
                return Some(reader);
            }
            self.follow(below);
            waiting.write = self.next_write[write];
        }
        while waiting.read < waiting.reads_end {
            let (list, length) = self.lists.table.reads[waiting.read as usize];
            let writer = self.writers[self.spot(list, length)];
            if self.waits(own, writer) {
                return Some(writer);
            }
            self.follow(writer);
            waiting.read += 1;
        }
        None
    }

    /// Counts a dependency on `before`.
    #[inline]
    fn follow(&mut self, before: u32) {
        self.edges += usize::from(before != NONE && self.placed == GONE);
    }

    #[inline]
    fn waits(&self, own: u32, other: u32) -> bool {
        other != NONE && other != own && self.states[other as usize] < KEPT
    }

    /// Somebody else whose read ends at this place and who is not placed.
    fn reader(&mut self, place: usize, own: u32) -> Option<u32> {
        let mut link = self.readers[place];
        let mut last = NONE;
        while link != NONE {
            let (reader, next) = self.chain[link as usize];
            if self.states[reader as usize] >= KEPT {
                // Nobody need look at it again.
                match last {
                    NONE => self.readers[place] = next,
                    last => self.chain[last as usize].1 = next,
                }
                self.follow(reader);
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
    use super::super::edges::Orders;
    use super::super::gather::Gather;
    use super::super::late::LateKeys;
    use super::super::{Dependencies, Level, ListAppend};
    use super::*;
    use crate::txn::graph::{Edge, Edges};
    use crate::txn::passes::{InTurn, Passes as _};
    use crate::txn::rows::{Linked as _, Rows};
    use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
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

        /// A history of so many operations.
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
    fn assert_order(lists: &Lists, replayed: &Replayed, unsettled: &[bool], context: &str) {
        let count = lists.table.len();
        let Replayed { order, gone, .. } = replayed;
        let mut place = vec![None; count];
        for (at, &number) in order.iter().enumerate() {
            assert_eq!(place[number as usize].replace(at), None, "{context}");
        }
        for number in 0..count {
            let happened = lists.happened(number as u32);
            assert_eq!(place[number].is_some(), happened, "{context}");
            assert!(!(unsettled[number] && gone[number]), "{context}");
        }
        let (process, realtime) = (false, false);
        let orders = Orders { process, realtime };
        let mut edges = Edges::new(count);
        Dependencies { lists, orders }.link(&mut edges);
        let edges: Vec<Edge> = edges.into_sink();
        for (from, to, _) in edges {
            let (from, to) = (from as usize, to as usize);
            // The others are helpers.
            if from < count && to < count {
                assert!(place[from] < place[to], "{context}: {from} {to}");
                assert!(gone[from] || !gone[to], "{context}: {from} {to}");
            }
        }
        for &before in order {
            let end = lists.table.completions[before as usize];
            let ended = lists.table.ended.contains(&before);
            for &after in order {
                if ended && end < lists.table.invocations[after as usize] {
                    let places = [before, after].map(|number| place[number as usize]);
                    assert!(places[0] < places[1], "{context}: {before} {after}");
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
            let judge = ListAppend::new(Level::StrictSerializable);
            let certify = false;
            let gather = Gather {
                judge,
                certify,
                late: LateKeys::default(),
            };
            let (table, _) = InTurn(&history).pass(gather).unwrap();
            let is_torn = table.lists.iter().any(|list| list.conflict.is_some());
            let lists = &Lists::new(table, Level::StrictSerializable);
            let (process, realtime) = (false, true);
            let orders = Orders { process, realtime };
            let count = lists.table.len();
            let rows = Rows::new(count, &Dependencies { lists, orders }).unwrap();
            let is_acyclic = rows.peel().is_all(&rows);
            let unsettled: Vec<_> = (0..count).map(|_| rng.chance(0.1)).collect();
            let replayed = replay(lists, &unsettled, true);
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
