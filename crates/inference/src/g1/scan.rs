//! The pass over a history that sets element bits and checks each transaction by itself.

use super::element_bits::{
    ElementBits, FAILED, INTERMEDIATE, KeyBits, LAST, REPEATED, SEEN, WRITTEN,
};
use super::internal_reads::{Contradictions, InternalReadChecker, MicroOperation};
use seatrial_checker::{FINDINGS_MAX, TransactionCounts};
use seatrial_history::chunk::mop_tag;
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::ops::ControlFlow;

/// Collects the bits of all elements, and the transactions with internal contradictions.
///
/// There is an aborted read if an element is both failed and seen; an intermediate read, if one is both intermediate and last.
/// Each bit is a fact of a single operation: an intermediate write is known from its invocation, a failed one from its
/// completion. So no map of failed and intermediate writes is needed, chunks are read in any order, and the state is a few bits
/// per element. Within a chunk, the prefix reads of a key need one number, the longest length.
pub(super) struct ElementScan;

/// The accumulator of the pass.
#[derive(Default)]
pub(super) struct ScanState {
    pub(super) keys: KeyBits,
    pub(super) tally: ScanTally,
    /// Indices of the first transactions with each kind of contradiction.
    pub(super) internal: Vec<u64>,
    pub(super) future: Vec<u64>,
    /// Positions of invocations of failed transactions whose completions do not repeat their writes.
    pub(super) unresolved: Vec<u64>,
    /// The first operation that is not a transaction on lists.
    pub(super) refused: Option<(u64, &'static str)>,
    /// Do several operations append one element?
    pub(super) has_repeated: bool,
}

/// Transactions by outcome, and internal contradictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanTally {
    pub(super) transactions: u64,
    pub(super) ok: u64,
    pub(super) fail: u64,
    pub(super) info: u64,
    pub(super) internal: u64,
    pub(super) future: u64,
}

impl ScanTally {
    /// Transactions by outcome. A completion without its invocation may make more outcomes than there are transactions.
    pub(super) fn counts(&self) -> TransactionCounts {
        let unknown = self.transactions.saturating_sub(self.ok);
        TransactionCounts {
            transactions: self.transactions as usize,
            ok: self.ok as usize,
            fail: self.fail as usize,
            info: unknown.saturating_sub(self.fail) as usize,
        }
    }
}

impl Fold for ElementScan {
    type Accumulator = ScanState;
    type Output = ScanState;

    fn name(&self) -> String {
        "g1".into()
    }

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> ScanState {
        ScanState::default()
    }

    fn reduce(&self, part: &mut ScanState, chunk: &Chunk) -> ControlFlow<()> {
        let mut pass = ScanPass::new(chunk, std::mem::take(part));
        pass.run();
        *part = pass.finish();
        ControlFlow::Continue(())
    }

    fn combine(&self, part: &mut ScanState, later: ScanState) -> ControlFlow<()> {
        part.join(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, part: ScanState) -> ScanState {
        part
    }
}

impl ScanState {
    pub(super) fn join(&mut self, later: ScanState) {
        for (key, bits) in later.keys {
            self.join_key(key, bits);
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

    fn join_key(&mut self, key: Key, bits: ElementBits) {
        use std::collections::btree_map::Entry;
        match self.keys.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(bits);
            }
            Entry::Occupied(mut entry) => {
                self.has_repeated |= entry.get_mut().join(bits);
            }
        }
    }
}

impl ScanTally {
    fn join(&mut self, more: ScanTally) {
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
pub(crate) struct MicroOperations<'a> {
    tags: &'a [u8],
    keys: &'a [u32],
    arguments: &'a [i64],
}

impl<'a> MicroOperations<'a> {
    pub(crate) fn of(chunk: &'a Chunk) -> MicroOperations<'a> {
        MicroOperations {
            tags: chunk.mop_tags(),
            keys: chunk.mop_keys(),
            arguments: chunk.mop_arguments(),
        }
    }

    /// Tag, key id and argument of those from `start` to `end`.
    pub(crate) fn range(
        self,
        start: usize,
        end: usize,
    ) -> impl DoubleEndedIterator<Item = (u8, u32, i64)> + use<'a> {
        let keys = self.tags[start..end].iter().zip(&self.keys[start..end]);
        keys.zip(&self.arguments[start..end])
            .map(|((&tag, &key), &argument)| (tag, key, argument))
    }
}

/// Micro-operations that are searched for appends at once.
const APPENDS_AT_ONCE: usize = 16;

/// One pass over a chunk.
struct ScanPass<'a> {
    chunk: &'a Chunk,
    /// Its micro-operations.
    mops: MicroOperations<'a>,
    /// Start of each operation's micro-operations.
    mop_starts: &'a [u32],
    part: ScanState,
    own: InternalReadChecker<'a>,
    /// By key id.
    bits: Vec<ElementBits>,
    /// By key id: length of the longest prefix that was read.
    longest: Vec<u32>,
    /// By key id: start of its list in `is_last`; one more entry for the end of the last list.
    starts: Vec<usize>,
    /// By element of these lists: did a read end there whose last element another transaction had appended?
    is_last: Vec<bool>,
    /// By key id: the last append, as transaction and element.
    appended: Vec<(u32, i64)>,
    /// Operations so far, which number the transactions.
    number: u32,
}

impl<'a> ScanPass<'a> {
    fn new(chunk: &'a Chunk, part: ScanState) -> ScanPass<'a> {
        let keys = chunk.key_count();
        let mut starts = vec![0];
        for key in 0..keys as u32 {
            starts.push(starts[key as usize] + chunk.list(key).len());
        }
        assert!(
            starts.len() == keys + 1 && starts.is_sorted(),
            "each list has a range"
        );
        ScanPass {
            is_last: vec![false; starts[keys]],
            starts,
            chunk,
            mops: MicroOperations::of(chunk),
            mop_starts: chunk.mop_starts(),
            part,
            own: InternalReadChecker::new(chunk),
            bits: vec![ElementBits::default(); keys],
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
        assert!(
            self.number as usize <= chunk.len(),
            "each operation is counted once"
        );
    }

    /// The range of micro-operations of the operation at `place`; `None`, with a refusal, if it is not a transaction.
    fn mops(&mut self, place: usize) -> Option<(usize, usize)> {
        // The fast path. An empty range may also be an operation whose value is no transaction, which the chunk knows.
        if let Some(&[start, end, ..]) = self.mop_starts.get(place..)
            && end > start
        {
            return Some((start as usize, end as usize));
        }
        let mops = self.chunk.txn_range(place);
        if mops.is_none() {
            self.refuse(place, "its value is not a transaction");
        }
        mops
    }

    fn refuse(&mut self, place: usize, reason: &'static str) {
        let index = self.chunk.index(place);
        self.part.refused.get_or_insert((index, reason));
    }

    /// Applies the appends of a transaction. (Reads of an invocation have no result.)
    fn writes(&mut self, place: usize) {
        let Some((start, end)) = self.mops(place) else {
            return;
        };
        // Appends are selected without a branch, since no processor predicts which micro-operations they are.
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
        let bits = &mut self.bits[key as usize];
        if bits.set(element, WRITTEN) {
            bits.set(element, REPEATED);
            self.part.has_repeated = true;
        }
        // Entries of earlier transactions are not cleared: they have other numbers.
        let last = &mut self.appended[key as usize];
        if last.0 == self.number {
            bits.set(last.1, INTERMEDIATE);
        }
        *last = (self.number, element);
    }

    /// Applies the reads of a successful transaction.
    fn reads(&mut self, place: usize) {
        let Some(mops) = self.mops(place) else {
            return;
        };
        let ScanPass {
            bits,
            longest,
            starts,
            is_last,
            ..
        } = self;
        let found = self.own.check(self.number, mops, |done| {
            let MicroOperation::Read(read) = done else {
                return;
            };
            let key = read.key as usize;
            if read.is_prefix {
                let length = read.elements.len();
                longest[key] = longest[key].max(length as u32);
                if read.last.is_some() {
                    // It has a last element, so its length is not 0.
                    is_last[starts[key] + length - 1] = true;
                }
                return;
            }
            for &element in read.elements {
                bits[key].set(element, SEEN);
            }
            if let Some(last) = read.last {
                bits[key].set(last, LAST);
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

    /// Applies a failed transaction: the writes of its completion, or of its invocation if the completion has none.
    fn failed(&mut self, place: usize) {
        let distance = self.chunk.pairs()[place];
        let mops = self.chunk.txn_range(place).or_else(|| {
            let invocation = (place as u64).checked_sub(distance.cast_unsigned())?;
            self.chunk
                .txn_range(invocation as usize)
                .filter(|_| distance > 0)
        });
        match mops {
            Some((start, end)) => {
                for (tag, key, element) in self.mops.range(start, end) {
                    if tag == mop_tag::APPEND {
                        self.bits[key as usize].set(element, FAILED);
                    }
                }
            }
            None => self.part.unresolved.extend(self.chunk.invocation(place)),
        }
    }

    /// The accumulator with the bits of this chunk.
    fn finish(mut self) -> ScanState {
        assert!(
            self.bits.len() == self.longest.len(),
            "each key has a longest prefix"
        );
        for (id, mut bits) in self.bits.into_iter().enumerate() {
            let id = id as u32;
            let seen = &self.chunk.list(id)[..self.longest[id as usize] as usize];
            bits.set_seen(seen, &self.is_last[self.starts[id as usize]..]);
            if !bits.is_empty() {
                self.part.join_key(self.chunk.key(id).clone(), bits);
            }
        }
        self.part
    }
}
