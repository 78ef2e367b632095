//! What a history of lists comes to: transactions in columns, lists as they grew, reads as lengths.

use crate::closed::Closed;
use crate::txn::dense::Map;
use seatrial_history::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Nobody; nothing.
pub(super) const NONE: u32 = u32::MAX;
/// Transactions that are judged at most: two bits of a number are marks, and graphs have helpers.
pub(super) const TRANSACTIONS_MAX: usize = 1 << 29;

/// Numbers of transactions that were let go. (The one above, with both marks, is nobody.)
const GONE_NUMBER: u32 = (1 << 30) - 2;
const VOID_NUMBER: u32 = (1 << 30) - 3;

/// The last list that a read may be behind: a read whose length has this bit saw a branch, the other bits are its number.
pub(super) const BRANCH: u32 = 1 << 31;

/// How a transaction ended.
pub(super) mod outcome {
    /// Nobody knows.
    pub(in crate::txn) const INFO: u8 = 0;
    /// It took place.
    pub(in crate::txn) const OK: u8 = 1;
    /// It did not take place.
    pub(in crate::txn) const FAIL: u8 = 2;
}

/// Who appended an element: the number of a transaction and two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer(u32);

impl Writer {
    /// Nobody, or somebody whose element stands elsewhere already.
    pub(super) const NOBODY: Writer = Writer(NONE);
    /// Somebody who has been judged and let go.
    pub(super) const GONE: Writer = Writer(GONE_NUMBER);
    /// The same, of whom it is known that it did not take place.
    pub(super) const VOID: Writer = Writer(VOID_NUMBER);
    const IS_INTERMEDIATE: u32 = 1 << 31;
    const IS_SEEN: u32 = 1 << 30;

    /// The transaction of this number.
    pub(super) fn new(number: u32) -> Writer {
        Writer(number)
    }

    /// The transaction; `None` for nobody, and for one that was let go.
    pub(super) fn number(self) -> Option<u32> {
        let number = self.0 & !(Writer::IS_INTERMEDIATE | Writer::IS_SEEN);
        (number < VOID_NUMBER).then_some(number)
    }

    /// Was it let go, and had it taken place?
    pub(super) fn is_gone(self) -> bool {
        self.0 & !Writer::IS_SEEN == GONE_NUMBER
    }

    /// Did the same transaction append more to the same list later?
    pub(super) fn is_intermediate(self) -> bool {
        self != Writer::NOBODY && self.0 & Writer::IS_INTERMEDIATE != 0
    }

    /// Did a successful transaction read it?
    pub(super) fn is_seen(self) -> bool {
        self.0 & Writer::IS_SEEN != 0
    }
}

/// One key and its list.
///
/// Who appended an element is found in a table by element where elements lie close together, as counters do, and in a
/// map elsewhere.
pub(super) struct List {
    pub(super) key: Key,
    lowest: i64,
    near: Vec<Writer>,
    far: Option<Box<Map<i64, Writer>>>,
    /// The first read, as far as later ones extended it.
    pub(super) elements: Vec<i64>,
    /// Who read it.
    pub(super) reader: u32,
    /// All reads agree on so many first elements (once all are known, never more than there are).
    pub(super) agreed: u32,
    /// Two reads that do not agree.
    pub(super) conflict: Option<(u32, u32)>,
    /// Its reads that are no prefixes of `elements`: numbers of [`Table::branches`].
    pub(super) branches: Vec<u32>,
    /// The last append: transaction and element.
    last: (u32, i64),
    /// The last successful transaction that did something here, and how long the list was that it read first; [`NONE`]
    /// when it appended first, or has been told as an update.
    touched: (u32, u32),
    /// Where its versions begin in [`super::lists::Lists::versions`].
    pub(super) first: usize,
    /// The last chunk, counted from 0, that names its key.
    pub(super) named: u32,
    /// Is it taken for certain that nobody names its key any more? Then it has been told about.
    pub(super) is_closed: bool,
    /// Did a transaction append an element and then a lower one?
    pub(super) is_descending: bool,
    /// Is it closed, and are its elements what reads that come late must show? See [`super::late::LateKeys`].
    pub(super) is_final: bool,
    /// Was it opened again after it was closed?
    pub(super) again: Option<Again>,
}

/// A list that was opened again after it was closed.
#[derive(Clone, Copy)]
pub(super) struct Again {
    /// How many elements it had; every read must begin with these, and all must agree.
    pub(super) base: u32,
    /// Was it freed, and counted, before?
    pub(super) is_counted: bool,
}

/// Elements this far above a table's end still make it grow.
const GAP_MAX: usize = 256;
/// Tables begin at a multiple of this.
const ALIGNMENT: i64 = 64;

impl List {
    fn new(key: Key) -> List {
        List {
            key,
            lowest: 0,
            near: Vec::new(),
            far: None,
            elements: Vec::new(),
            reader: NONE,
            agreed: NONE,
            conflict: None,
            branches: Vec::new(),
            last: (NONE, 0),
            touched: (NONE, NONE),
            first: 0,
            named: 0,
            is_closed: false,
            is_descending: false,
            is_final: false,
            again: None,
        }
    }

    fn place(&self, element: i64) -> Option<usize> {
        usize::try_from(element.checked_sub(self.lowest)?).ok()
    }

    /// Who appended `element`.
    pub(super) fn writer(&self, element: i64) -> Option<Writer> {
        let near = self.place(element).and_then(|place| self.near.get(place));
        match near {
            Some(&writer) if writer != Writer::NOBODY => Some(writer),
            _ => self.far.as_ref()?.get(&element).copied(),
        }
    }

    fn writer_mut(&mut self, element: i64) -> Option<&mut Writer> {
        let place = self.place(element);
        match place.and_then(|place| self.near.get_mut(place)) {
            Some(writer) if *writer != Writer::NOBODY => Some(writer),
            _ => self.far.as_mut()?.get_mut(&element),
        }
    }

    /// Notes who appended `element`. An earlier append of it stays, and is returned.
    #[inline]
    fn insert(&mut self, element: i64, number: u32) -> Option<Writer> {
        // As a rule elements come one after another, nearly.
        if self.far.is_none()
            && let Some(place) = self.place(element)
        {
            if place > 0 && place == self.near.len() {
                self.near.push(Writer::new(number));
                return None;
            }
            if let Some(writer) = self.near.get_mut(place)
                && *writer == Writer::NOBODY
            {
                *writer = Writer::new(number);
                return None;
            }
        }
        self.insert_anywhere(element, number)
    }

    fn insert_anywhere(&mut self, element: i64, number: u32) -> Option<Writer> {
        if let Some(before) = self.writer(element) {
            return Some(before);
        }
        self.set(element, Writer::new(number));
        None
    }

    /// Notes the writer of an element that has none.
    fn set(&mut self, element: i64, writer: Writer) {
        if self.near.is_empty() {
            // The lowest integer is such a multiple itself.
            self.lowest = element - element.rem_euclid(ALIGNMENT);
        }
        let limit = 2 * self.near.len() + GAP_MAX;
        if let Some(place) = self.place(element).filter(|&place| place < limit) {
            if place >= self.near.len() {
                self.near.resize(place + 1, Writer::NOBODY);
            }
            self.near[place] = writer;
        } else {
            let far = self.far.get_or_insert_default();
            far.insert(element, writer);
        }
    }

    /// Marks an append as seen; its writer, if it has one and was not marked before.
    pub(super) fn see(&mut self, element: i64) -> Option<Writer> {
        let writer = self.writer_mut(element)?;
        if writer.is_seen() {
            return None;
        }
        writer.0 |= Writer::IS_SEEN;
        Some(*writer)
    }

    /// Every writer becomes what `rename` makes of it, unseen; the others who are named get the number that it has for them.
    pub(super) fn rename(&mut self, rename: impl Fn(u32) -> Writer) {
        let far = self.far.iter_mut().flat_map(|far| far.values_mut());
        for writer in self.near.iter_mut().chain(far) {
            if *writer == Writer::NOBODY {
                continue;
            }
            let intermediate = writer.0 & Writer::IS_INTERMEDIATE;
            *writer = match writer.number() {
                Some(number) => match rename(number) {
                    renamed if renamed.number().is_some() => Writer(renamed.0 | intermediate),
                    gone => gone,
                },
                None => Writer(writer.0 & !Writer::IS_SEEN),
            };
        }
        self.last.0 = NONE;
        self.touched = (NONE, NONE);
        let number = |number| rename(number).number().unwrap_or(NONE);
        self.reader = number(self.reader);
        if let Some((one, other)) = &mut self.conflict {
            *one = number(*one);
            *other = number(*other);
        } else {
            self.agreed = NONE;
        }
    }

    /// The elements that were appended to it, and by whom; in no order where they lie far apart.
    pub(super) fn appends(&self) -> impl Iterator<Item = (i64, Writer)> {
        let near = (self.lowest..).zip(self.near.iter().copied());
        let near = near.filter(|&(_, writer)| writer != Writer::NOBODY);
        let far = self.far.iter().flat_map(|far| far.iter());
        near.chain(far.map(|(&element, &writer)| (element, writer)))
    }

    /// Who appended to it, element by element; in no order where elements lie far apart.
    pub(super) fn writers(&self) -> impl Iterator<Item = Writer> {
        let near = self.near.iter().copied();
        let near = near.filter(|&writer| writer != Writer::NOBODY);
        near.chain(self.far.iter().flat_map(|far| far.values().copied()))
    }
}

/// A transaction that read a list before anything else and then appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Update {
    pub(super) list: u32,
    /// How long the list was.
    pub(super) length: u32,
    pub(super) transaction: u32,
}

/// Two appends to one list, one right after the other in their transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) list: u32,
    /// In the order of the transaction.
    pub(super) elements: [i64; 2],
}

/// What cannot be judged.
pub(super) enum Refusal {
    /// This operation, for this reason.
    Operation(u64, String),
    /// One element was appended twice: key, element, transactions.
    Twice(Key, i64, [u32; 2]),
    /// Too much.
    Size(&'static str),
    /// This key was named again after it had been taken for certain that nobody would.
    Reopened(Key),
}

/// A first look at one kind of contradiction within a transaction.
#[derive(Default)]
pub(super) struct Contradicting {
    pub(super) count: u64,
    /// The first transactions that do it.
    pub(super) first: Vec<u32>,
}

/// Everything that is known of a history after one pass. Transactions are numbered in the order of their invocations.
#[derive(Default)]
pub(super) struct Table {
    /// Per transaction the position of its invocation; [`NONE`] when it was not recorded.
    pub(super) invocations: Vec<u32>,
    /// Per transaction the position of its completion; [`NONE`] when there is none.
    pub(super) completions: Vec<u32>,
    /// Per transaction who ran it, as a number.
    pub(super) processes: Vec<u32>,
    /// Per transaction its [`outcome`].
    pub(super) outcomes: Vec<u8>,
    /// Successful transactions in the order of their completions.
    pub(super) ended: Vec<u32>,
    /// Per one of `ended`, where its reads end.
    pub(super) read_ends: Vec<u32>,
    /// Lists and lengths, in the order of completions.
    pub(super) reads: Vec<(u32, u32)>,
    pub(super) updates: Vec<Update>,
    /// Appends of one transaction to one list, each and the next one. Dropped once their list was checked.
    pub(super) pairs: Vec<Pair>,
    pub(super) lists: Vec<List>,
    pub(super) integers: Map<i64, u32>,
    pub(super) others: BTreeMap<Key, u32>,
    /// Keys whose lists were let go.
    pub(super) closed: Closed,
    /// Divergent reads: where they stand in `branch_elements`, start and length, and of which list they are.
    pub(super) branches: Vec<(usize, u32, u32)>,
    pub(super) branch_elements: Vec<i64>,
    pub(super) internal: Contradicting,
    pub(super) future: Contradicting,
    pub(super) refusal: Option<Refusal>,
}

impl Table {
    /// The list of this key, as a number; a new one if need be.
    pub(super) fn list_of(&mut self, key: &Key) -> u32 {
        if let Some(number) = self.number(key) {
            return number;
        }
        let number = self.lists.len() as u32;
        self.lists.push(List::new(key.clone()));
        match key {
            Key::Int(integer) => self.integers.insert(*integer, number),
            other => self.others.insert(other.clone(), number),
        };
        number
    }

    /// The number of this key's list.
    pub(super) fn number(&self, key: &Key) -> Option<u32> {
        match key {
            Key::Int(integer) => self.integers.get(integer).copied(),
            other => self.others.get(other).copied(),
        }
    }

    /// How many transactions there are.
    pub(super) fn len(&self) -> usize {
        self.invocations.len()
    }

    /// A transaction's place in a certificate: the position of its invocation, or of its completion when that alone is
    /// known.
    pub(super) fn place(&self, number: u32) -> u32 {
        match self.invocations[number as usize] {
            NONE => self.completions[number as usize],
            invocation => invocation,
        }
    }

    /// A new transaction without a completion.
    pub(super) fn push(&mut self, invocation: u32, process: u32) -> u32 {
        let number = self.invocations.len() as u32;
        if self.len() >= TRANSACTIONS_MAX {
            self.refusal
                .get_or_insert(Refusal::Size("more than 2^29 transactions"));
        }
        self.invocations.push(invocation);
        self.completions.push(NONE);
        self.processes.push(process);
        self.outcomes.push(outcome::INFO);
        number
    }

    /// A transaction's append; its outcome is known.
    ///
    /// A failed append has no effect, so an element that is appended again after it failed belongs to the other
    /// transaction, whichever of both completed first. With two that did not fail nothing shows whose append was read.
    pub(super) fn append(&mut self, at: u32, element: i64, number: u32) {
        let is_failed = |number: u32| self.outcomes[number as usize] == outcome::FAIL;
        let list = &mut self.lists[at as usize];
        if let Some(before) = list.insert(element, number) {
            if is_failed(number) {
                return;
            }
            let Some(before) = before.number() else {
                // The list was opened again, and the other one is gone.
                let refusal = Refusal::Reopened(list.key.clone());
                self.refusal.get_or_insert(refusal);
                return;
            };
            if !is_failed(before) {
                let both = [before.min(number), before.max(number)];
                let key = list.key.clone();
                self.refusal
                    .get_or_insert(Refusal::Twice(key, element, both));
                return;
            }
            if let Some(writer) = list.writer_mut(element) {
                *writer = Writer::new(number);
            }
        }
        let (last, other) = std::mem::replace(&mut list.last, (number, element));
        if last == number
            && let Some(writer) = list.writer_mut(other)
        {
            writer.0 |= Writer::IS_INTERMEDIATE;
            // The order of appends that failed is nowhere to be seen.
            if !is_failed(number) {
                list.is_descending |= element < other;
                self.pairs.push(Pair {
                    list: at,
                    elements: [other, element],
                });
            }
        }
        let (before, length) = std::mem::replace(&mut list.touched, (number, NONE));
        if before == number && length != NONE {
            self.updates.push(Update {
                list: at,
                length,
                transaction: number,
            });
        }
    }

    /// Opens the list of a key again that was freed with these elements; others were appended and `unread`.
    pub(super) fn reopen(&mut self, key: &Key, elements: Vec<i64>, unread: &[i64]) {
        let at = self.list_of(key);
        let list = &mut self.lists[at as usize];
        for &element in &elements {
            list.set(element, Writer::GONE);
        }
        for &element in unread {
            list.set(element, Writer::VOID);
        }
        list.again = Some(Again {
            base: elements.len() as u32,
            is_counted: true,
        });
        list.elements = elements;
    }

    /// Notes that a read of a list that was opened again does not begin with what it had.
    #[cold]
    fn refuse_stale(&mut self, at: u32) {
        let refusal = Refusal::Reopened(self.lists[at as usize].key.clone());
        self.refusal.get_or_insert(refusal);
    }

    /// A successful transaction read the first `length` elements of a list that is known to be like `source`.
    pub(super) fn read_prefix(&mut self, at: u32, source: &[i64], length: u32, number: u32) {
        let list = &mut self.lists[at as usize];
        if list.again.is_some_and(|again| length < again.base) {
            return self.refuse_stale(at);
        }
        if length as usize > list.elements.len() {
            let more = &source[list.elements.len()..length as usize];
            list.elements.extend_from_slice(more);
            list.reader = number;
        }
        self.read(at, length, length, number);
    }

    /// A successful transaction read this of a list. Did the list grow?
    pub(super) fn read_any(&mut self, at: u32, elements: &[i64], number: u32) -> bool {
        let list = &mut self.lists[at as usize];
        let length = elements.len() as u32;
        let pairs = list.elements.iter().zip(elements);
        let agreed = pairs.take_while(|(a, b)| a == b).count();
        if agreed == elements.len().min(list.elements.len()) {
            let grows = elements.len() > agreed;
            self.read_prefix(at, elements, length, number);
            return grows;
        }
        if list.again.is_some() {
            self.refuse_stale(at);
            return false;
        }
        list.agreed = list.agreed.min(agreed as u32);
        list.conflict.get_or_insert((list.reader, number));
        let known = list.branches.iter().copied().find(|&branch| {
            let (start, length, _) = self.branches[branch as usize];
            self.branch_elements[start..start + length as usize] == *elements
        });
        let branch = known.unwrap_or_else(|| {
            let start = self.branch_elements.len();
            self.branch_elements.extend_from_slice(elements);
            self.branches.push((start, length, at));
            let branch = self.branches.len() as u32 - 1;
            if list.branches.len() < BRANCHES_COMPARED_MAX {
                list.branches.push(branch);
            }
            branch
        });
        self.read(at, BRANCH | branch, length, number);
        false
    }

    /// A successful transaction read this of a list that is closed. Refused unless it is the list as it was closed: of one
    /// that was freed, does it show that (`is_shown`)?
    pub(super) fn read_late(&mut self, key: &Key, elements: &[i64], is_shown: bool, number: u32) {
        match self.number(key) {
            Some(at) => {
                let list = &self.lists[at as usize];
                if list.is_final && list.elements == elements {
                    return self.read(at, elements.len() as u32, elements.len() as u32, number);
                }
            }
            None if is_shown => return,
            None => {}
        }
        let refusal = Refusal::Reopened(key.clone());
        self.refusal.get_or_insert(refusal);
    }

    fn read(&mut self, at: u32, place: u32, length: u32, number: u32) {
        self.reads.push((at, place));
        let list = &mut self.lists[at as usize];
        if list.touched.0 != number {
            list.touched = (number, length);
        }
    }

    /// What a read saw.
    pub(super) fn elements(&self, (list, place): (u32, u32)) -> &[i64] {
        if place & BRANCH == 0 {
            &self.lists[list as usize].elements[..place as usize]
        } else {
            let (start, length, _) = self.branches[(place & !BRANCH) as usize];
            &self.branch_elements[start..start + length as usize]
        }
    }

    /// The pairs of the lists asked for, by list.
    pub(super) fn pairs_of(&self, is_asked: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<Pair>> {
        let mut pairs: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
        for &pair in self.pairs.iter().filter(|pair| is_asked(pair.list)) {
            pairs.entry(pair.list).or_default().push(pair);
        }
        pairs
    }

    /// Those of the lists asked for of which a transaction read last an element after which another one appended more.
    pub(super) fn unfinished(&self, is_asked: impl Fn(u32) -> bool) -> BTreeSet<u32> {
        let unfinished = self.each_read().filter(|&(reader, read)| {
            let last = || self.elements(read).last().copied();
            is_asked(read.0)
                && last().is_some_and(|last| {
                    let writer = self.lists[read.0 as usize].writer(last);
                    let writer = writer.filter(|writer| writer.is_intermediate());
                    writer.is_some_and(|writer| writer.number() != Some(reader))
                })
        });
        unfinished.map(|(_, (at, _))| at).collect()
    }

    /// All reads of successful transactions, with their readers, in the order of completions.
    pub(super) fn each_read(&self) -> impl Iterator<Item = (u32, (u32, u32))> {
        let starts = std::iter::once(&0).chain(&self.read_ends);
        let ranges = self.ended.iter().zip(starts.zip(&self.read_ends));
        ranges.flat_map(|(&reader, (&start, &end))| {
            let reads = self.reads[start as usize..end as usize].iter();
            reads.map(move |&read| (reader, read))
        })
    }
}

/// Divergent reads of one list that a new one is compared with, to keep it once.
const BRANCHES_COMPARED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn writers_are_found_wherever_elements_lie() {
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let wide = rng.chance(0.5);
            let extremes = [i64::MIN, i64::MAX, 0, -1, 7];
            let mut list = List::new(Key::Int(1));
            let mut twin: BTreeMap<i64, u32> = BTreeMap::new();
            for number in 0..rng.below(60) as u32 {
                let element = match rng.below(8) {
                    0 if wide => *rng.pick(&extremes),
                    1 if wide => rng.word().cast_signed(),
                    2 => rng.below(3_000).cast_signed(),
                    _ => rng.below(90).cast_signed() - 30,
                };
                let before = twin.get(&element).copied();
                let found = list.insert(element, number);
                let found = found.and_then(Writer::number);
                assert_eq!(found, before, "seed {seed} {element}");
                twin.entry(element).or_insert(number);
                for (&element, &number) in &twin {
                    let found = list.writer(element).and_then(Writer::number);
                    assert_eq!(found, Some(number), "seed {seed} {element}");
                }
                let absent = rng.below(200).cast_signed() - 100;
                assert_eq!(list.writer(absent).is_some(), twin.contains_key(&absent));
            }
            assert_eq!(list.writers().count(), twin.len(), "seed {seed}");
        }
    }
}
