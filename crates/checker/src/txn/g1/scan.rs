//! The one pass over a history.

use super::marks::{FAILED, INTERMEDIATE, Keys, LAST, Marks, REPEATED, SEEN, WRITTEN};
use super::own::{Contradictions, Done, Own};
use crate::txn::findings::FINDINGS_MAX;
use seatrial_history::chunk::{ValueView, mop_tag};
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::ops::ControlFlow;

/// Collects, for every key, which elements were written, by a failed transaction, in the middle of one, seen, and seen
/// last; and the transactions that contradict themselves.
///
/// An aborted read exists if an element is both failed and seen; an intermediate read, if one is both intermediate and
/// last. Both halves are facts of single operations: an intermediate write shows in its own invocation, a failed one in
/// its own completion. So no map of failed and intermediate writes is carried along, chunks are taken in any order, and
/// the state is some bits per element. In a chunk, what a key's prefix reads saw is one number, the longest.
pub(super) struct Scan;

/// What is known of some chunks.
#[derive(Default)]
pub(super) struct Part {
    pub(super) keys: Keys,
    pub(super) tally: Tally,
    /// Indices of the first transactions that contradict themselves.
    pub(super) internal: Vec<u64>,
    pub(super) future: Vec<u64>,
    /// Positions of invocations of failed transactions whose completions do not repeat what they wrote.
    pub(super) unresolved: Vec<u64>,
    /// The first operation that is no transaction of appends and reads of lists.
    pub(super) refused: Option<(u64, &'static str)>,
    /// Does more than one operation append some element?
    pub(super) has_repeated: bool,
}

/// Counts of transactions by outcome, and of anomalies within one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) transactions: u64,
    pub(super) ok: u64,
    pub(super) fail: u64,
    pub(super) info: u64,
    pub(super) internal: u64,
    pub(super) future: u64,
}

impl Fold for Scan {
    type Accumulator = Part;
    type Output = Part;

    fn name(&self) -> String {
        "g1".into()
    }

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> Part {
        Part::default()
    }

    fn reduce(&self, part: &mut Part, chunk: &Chunk) -> ControlFlow<()> {
        let mut pass = Pass::new(chunk, std::mem::take(part));
        pass.run();
        *part = pass.finish();
        ControlFlow::Continue(())
    }

    fn combine(&self, part: &mut Part, later: Part) -> ControlFlow<()> {
        part.join(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, part: Part) -> Part {
        part
    }
}

impl Part {
    pub(super) fn join(&mut self, later: Part) {
        for (key, marks) in later.keys {
            self.join_key(key, marks);
        }
        self.tally.join(later.tally);
        for (mine, more) in [
            (&mut self.internal, later.internal),
            (&mut self.future, later.future),
        ] {
            mine.extend(more);
            mine.truncate(FINDINGS_MAX);
        }
        self.unresolved.extend(later.unresolved);
        self.refused = self.refused.or(later.refused);
        self.has_repeated |= later.has_repeated;
    }

    fn join_key(&mut self, key: Key, marks: Marks) {
        use std::collections::btree_map::Entry;
        match self.keys.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(marks);
            }
            Entry::Occupied(mut entry) => {
                self.has_repeated |= entry.get_mut().join(marks);
            }
        }
    }
}

impl Tally {
    fn join(&mut self, more: Tally) {
        self.transactions += more.transactions;
        self.ok += more.ok;
        self.fail += more.fail;
        self.info += more.info;
        self.internal += more.internal;
        self.future += more.future;
    }
}

/// The micro-operations of a chunk.
#[derive(Clone, Copy)]
pub(in crate::txn) struct Columns<'a> {
    tags: &'a [u8],
    keys: &'a [u32],
    arguments: &'a [i64],
}

impl<'a> Columns<'a> {
    pub(in crate::txn) fn of(chunk: &'a Chunk) -> Columns<'a> {
        Columns {
            tags: chunk.mop_tags(),
            keys: chunk.mop_keys(),
            arguments: chunk.mop_arguments(),
        }
    }

    /// Tag, key id and argument of those from `start` to `end`.
    pub(in crate::txn) fn range(
        self,
        start: usize,
        end: usize,
    ) -> impl DoubleEndedIterator<Item = (u8, u32, i64)> + use<'a> {
        let keys = self.tags[start..end].iter().zip(&self.keys[start..end]);
        keys.zip(&self.arguments[start..end])
            .map(|((&tag, &key), &argument)| (tag, key, argument))
    }
}

/// So many micro-operations are looked through for appends at a time.
const APPENDS_AT_ONCE: usize = 16;

/// One chunk being reduced.
struct Pass<'a> {
    chunk: &'a Chunk,
    /// Its micro-operations.
    mops: Columns<'a>,
    /// Where those of each operation start.
    mop_starts: &'a [u32],
    part: Part,
    own: Own<'a>,
    /// By key id.
    marks: Vec<Marks>,
    /// By key id: how long the longest prefix is that was read.
    longest: Vec<u32>,
    /// By key id: where its list begins among all lists, the place behind the last list too.
    starts: Vec<usize>,
    /// By element of these lists: did a read end there that saw another transaction's append last?
    is_last: Vec<bool>,
    /// By key id: which transaction appended last, and what.
    appended: Vec<(u32, i64)>,
    /// Transactions so far.
    number: u32,
}

impl<'a> Pass<'a> {
    fn new(chunk: &'a Chunk, part: Part) -> Pass<'a> {
        let keys = chunk.key_count();
        let mut starts = vec![0];
        for key in 0..keys as u32 {
            starts.push(starts[key as usize] + chunk.list(key).len());
        }
        Pass {
            is_last: vec![false; starts[keys]],
            starts,
            chunk,
            mops: Columns::of(chunk),
            mop_starts: chunk.mop_starts(),
            part,
            own: Own::new(chunk),
            marks: vec![Marks::default(); keys],
            longest: vec![0; keys],
            appended: vec![(0, 0); keys],
            number: 0,
        }
    }

    fn run(&mut self) {
        let chunk = self.chunk;
        let is_client: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        let kinds = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, ((&kind, &process), &pair)) in kinds.zip(chunk.pairs()).enumerate() {
            if !is_client[process as usize] {
                continue;
            }
            self.number += 1;
            match kind {
                OpType::Invoke => {
                    self.part.tally.transactions += 1;
                    self.writes(place);
                }
                OpType::Ok => {
                    self.part.tally.ok += 1;
                    if pair == 0 {
                        self.part.tally.transactions += 1;
                        self.writes(place);
                    }
                    self.reads(place);
                }
                OpType::Fail => {
                    self.part.tally.fail += 1;
                    self.failed(place);
                }
                OpType::Info => self.part.tally.info += 1,
            }
        }
    }

    /// Where the micro-operations of the operation at `place` are; `None`, and said, when it is no transaction.
    fn mops(&mut self, place: usize) -> Option<(usize, usize)> {
        if let Some(&[start, end, ..]) = self.mop_starts.get(place..)
            && end > start
        {
            return Some((start as usize, end as usize));
        }
        let mops = mops(self.chunk, place);
        if mops.is_none() {
            self.refuse(place, "its value is not a transaction");
        }
        mops
    }

    fn refuse(&mut self, place: usize, reason: &'static str) {
        let index = self.chunk.index(place);
        self.part.refused.get_or_insert((index, reason));
    }

    /// Takes into account what a transaction appends. (What an invocation says of a read is nothing, or not to be
    /// believed.)
    fn writes(&mut self, place: usize) {
        let Some((start, end)) = self.mops(place) else {
            return;
        };
        // Appends are picked without a branch: no processor foresees which micro-operations they are.
        let mut appends = [(0, 0); APPENDS_AT_ONCE];
        let mut from = start;
        while from < end {
            let to = end.min(from + APPENDS_AT_ONCE);
            let (mut count, mut others) = (0, 0);
            for (tag, key, element) in self.mops.range(from, to) {
                appends[count] = (key, element);
                count += usize::from(tag == mop_tag::APPEND);
                others |= u8::from(tag == mop_tag::WRITE) | u8::from(tag == mop_tag::READ_REGISTER);
            }
            for &(key, element) in &appends[..count] {
                self.append(key, element);
            }
            if others > 0 {
                self.refuse(place, "a micro-operation on a register, not a list");
            }
            from = to;
        }
    }

    fn append(&mut self, key: u32, element: i64) {
        let marks = &mut self.marks[key as usize];
        if marks.mark(element, WRITTEN) {
            marks.mark(element, REPEATED);
            self.part.has_repeated = true;
        }
        let last = &mut self.appended[key as usize];
        if last.0 == self.number {
            marks.mark(last.1, INTERMEDIATE);
        }
        *last = (self.number, element);
    }

    /// Takes into account what a successful transaction read.
    fn reads(&mut self, place: usize) {
        let Some(mops) = self.mops(place) else {
            return;
        };
        let Pass {
            marks,
            longest,
            starts,
            is_last,
            ..
        } = self;
        let found = self.own.check(self.number, mops, |done| {
            let Done::Read(read) = done else {
                return;
            };
            let key = read.key as usize;
            if read.is_prefix {
                let length = read.elements.len();
                longest[key] = longest[key].max(length as u32);
                if read.last.is_some() {
                    is_last[starts[key] + length - 1] = true;
                }
                return;
            }
            for &element in read.elements {
                marks[key].mark(element, SEEN);
            }
            if let Some(last) = read.last {
                marks[key].mark(last, LAST);
            }
        });
        if found != Contradictions::default() {
            self.contradicts(self.chunk.index(place), found);
        }
    }

    #[cold]
    fn contradicts(&mut self, index: u64, found: Contradictions) {
        let part = &mut self.part;
        for (is_found, count, kept) in [
            (found.internal, &mut part.tally.internal, &mut part.internal),
            (found.future, &mut part.tally.future, &mut part.future),
        ] {
            if is_found {
                *count += 1;
                if kept.len() < FINDINGS_MAX {
                    kept.push(index);
                }
            }
        }
    }

    /// Takes into account that a transaction failed: from its completion, or from its invocation if that does not say
    /// what it wrote.
    fn failed(&mut self, place: usize) {
        let distance = self.chunk.pairs()[place];
        let mops = mops(self.chunk, place).or_else(|| {
            let invocation = (place as u64).checked_sub(distance.cast_unsigned())?;
            mops(self.chunk, invocation as usize).filter(|_| distance > 0)
        });
        match mops {
            Some((start, end)) => {
                for (tag, key, element) in self.mops.range(start, end) {
                    if tag == mop_tag::APPEND {
                        self.marks[key as usize].mark(element, FAILED);
                    }
                }
            }
            None => self.part.unresolved.extend(self.chunk.invocation(place)),
        }
    }

    /// The part with what this chunk's keys got.
    fn finish(mut self) -> Part {
        for (id, mut marks) in self.marks.into_iter().enumerate() {
            let id = id as u32;
            let seen = &self.chunk.list(id)[..self.longest[id as usize] as usize];
            marks.see(seen, &self.is_last[self.starts[id as usize]..]);
            if !marks.is_empty() {
                self.part.join_key(self.chunk.key(id).clone(), marks);
            }
        }
        self.part
    }
}

/// Where the micro-operations of the operation at `place` begin and end; `None` when it is no transaction.
pub(in crate::txn) fn mops(chunk: &Chunk, place: usize) -> Option<(usize, usize)> {
    match chunk.mop_starts().get(place..) {
        Some(&[start, end, ..]) if end > start => Some((start as usize, end as usize)),
        _ => matches!(chunk.value(place), ValueView::Txn(_)).then_some((0, 0)),
    }
}
