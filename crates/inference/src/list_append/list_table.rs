//! The table of a window: transactions in columns, lists as they grew, reads as lengths.

use seatrial_checker::ClosedKeys;
use seatrial_cycles::{Position, Txn, dense_id};
use seatrial_history::FixedMap;
use seatrial_history::Key;
use seatrial_isolation::recorded_transactions::{
    CompletionRows, ProcessNumber, RefusedOperation, TransactionColumns,
};
use std::collections::{BTreeMap, BTreeSet};

dense_id! {
    /// A list of a table, numbered in the order in which keys first occurred.
    pub(super) ListId
}
dense_id! {
    /// The length of a read of a list.
    pub(super) ReadLength
}
dense_id! {
    /// A divergent read: an entry of [`ListTable::branches`].
    pub(super) BranchId
}

/// Transactions in one window, at most: two bits of a number are marks, and graphs have helper nodes.
pub(super) const TRANSACTIONS_MAX: usize = 1 << 29;

/// Numbers that stand for freed transactions. (The next higher one, with both marks, is no writer.)
const GONE_NUMBER: u32 = (1 << 30) - 2;
const VOID_NUMBER: u32 = (1 << 30) - 3;

/// The bit of a read's length that marks a branch, a read that is no prefix of its list; the other bits are its number.
pub(super) const BRANCH: u32 = 1 << 31;

/// The writer of an element: the number of a transaction, and two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementWriter(u32);

impl ElementWriter {
    /// No writer, or one whose element occurs earlier already.
    pub(super) const UNKNOWN: ElementWriter = ElementWriter(u32::MAX);
    /// A freed transaction that took effect.
    pub(super) const GONE: ElementWriter = ElementWriter(GONE_NUMBER);
    /// A freed transaction without effect.
    pub(super) const VOID: ElementWriter = ElementWriter(VOID_NUMBER);
    const IS_INTERMEDIATE: u32 = 1 << 31;
    const IS_SEEN: u32 = 1 << 30;

    /// This transaction, without marks.
    pub(super) fn new(number: Txn) -> ElementWriter {
        debug_assert!(
            number.get() < VOID_NUMBER,
            "a transaction's number has no marks and is not that of a freed one"
        );
        ElementWriter(number.get())
    }

    /// The transaction; `None` for no writer, and for a freed one.
    pub(super) fn number(self) -> Option<Txn> {
        let number = self.0 & !(ElementWriter::IS_INTERMEDIATE | ElementWriter::IS_SEEN);
        // One comparison excludes all three: the numbers of no writer and of freed ones are the highest.
        (number < VOID_NUMBER).then(|| Txn::new(number))
    }

    /// Is it a freed transaction that took effect?
    pub(super) fn is_gone(self) -> bool {
        self.0 & !ElementWriter::IS_SEEN == GONE_NUMBER
    }

    /// Did the same transaction append more to the same list later?
    pub(super) fn is_intermediate(self) -> bool {
        self != ElementWriter::UNKNOWN && self.0 & ElementWriter::IS_INTERMEDIATE != 0
    }

    /// Did a successful transaction read it?
    pub(super) fn is_seen(self) -> bool {
        self.0 & ElementWriter::IS_SEEN != 0
    }
}

/// One key and its list.
///
/// The writer of an element is found in an array where elements are close together, as counters are, and in a map elsewhere.
pub(super) struct AppendList {
    pub(super) key: Key,
    lowest: i64,
    near: Vec<ElementWriter>,
    far: Option<Box<FixedMap<i64, ElementWriter>>>,
    /// The longest read: the first one, as later ones extended it.
    pub(super) elements: Vec<i64>,
    /// The transaction of the longest read; `None` without a read, and once it is freed.
    pub(super) reader: Option<Txn>,
    /// Number of first elements on which all reads agree ([`ALL_AGREE`] before version orders are fixed).
    pub(super) agreed: u32,
    /// The transactions of two contradictory reads; `None` in the place of one that is freed.
    pub(super) conflict: Option<[Option<Txn>; 2]>,
    /// The first of its reads that are not prefixes of `elements`.
    pub(super) branches: Vec<BranchId>,
    /// The last append: transaction and element.
    last: Option<(Txn, i64)>,
    /// The last successful transaction that accessed the list, and the length of its first read; no length if it appended
    /// first, or is among the updates already.
    touched: (Option<Txn>, Option<ReadLength>),
    /// Start of its versions in [`super::lists::OrderedLists::versions`].
    pub(super) first: usize,
    /// The last chunk, counted from 0, with an operation on its key.
    pub(super) last_chunk: u32,
    /// Is its key closed? Then its anomalies have been reported.
    pub(super) is_closed: bool,
    /// Did a transaction append an element and then a lower one?
    pub(super) is_descending: bool,
    /// Is it closed, and must late reads return exactly its elements? See [`super::late::LateKeys`].
    pub(super) is_final: bool,
    /// Was it reopened after it was closed?
    pub(super) again: Option<Reopening>,
}

/// The state of a list when it was reopened.
#[derive(Clone, Copy)]
pub(super) struct Reopening {
    /// Number of its elements then; every read must begin with these, and all must agree.
    pub(super) base: u32,
    /// Was it freed and counted before?
    pub(super) is_counted: bool,
}

/// More elements than a list has: no two of its reads contradict each other so far.
const ALL_AGREE: u32 = u32::MAX;
/// Elements this far past the end of the array still make it grow.
const GAP_MAX: usize = 256;
/// Arrays begin at a multiple of this.
const ALIGNMENT: i64 = 64;

impl AppendList {
    fn new(key: Key) -> AppendList {
        AppendList {
            key,
            lowest: 0,
            near: Vec::new(),
            far: None,
            elements: Vec::new(),
            reader: None,
            agreed: ALL_AGREE,
            conflict: None,
            branches: Vec::new(),
            last: None,
            touched: (None, None),
            first: 0,
            last_chunk: 0,
            is_closed: false,
            is_descending: false,
            is_final: false,
            again: None,
        }
    }

    fn place(&self, element: i64) -> Option<usize> {
        usize::try_from(element.checked_sub(self.lowest)?).ok()
    }

    /// The writer of `element`.
    pub(super) fn writer(&self, element: i64) -> Option<ElementWriter> {
        let near = self.place(element).and_then(|place| self.near.get(place));
        match near {
            Some(&writer) if writer != ElementWriter::UNKNOWN => Some(writer),
            _ => self.far.as_ref()?.get(&element).copied(),
        }
    }

    fn writer_mut(&mut self, element: i64) -> Option<&mut ElementWriter> {
        let place = self.place(element);
        match place.and_then(|place| self.near.get_mut(place)) {
            Some(writer) if *writer != ElementWriter::UNKNOWN => Some(writer),
            _ => self.far.as_mut()?.get_mut(&element),
        }
    }

    /// Sets the writer of `element`. An earlier writer stays and is returned.
    #[inline]
    fn insert(&mut self, element: i64, number: Txn) -> Option<ElementWriter> {
        // The fast path: elements mostly ascend.
        if self.far.is_none()
            && let Some(place) = self.place(element)
        {
            if place > 0 && place == self.near.len() {
                self.near.push(ElementWriter::new(number));
                return None;
            }
            if let Some(writer) = self.near.get_mut(place)
                && *writer == ElementWriter::UNKNOWN
            {
                *writer = ElementWriter::new(number);
                return None;
            }
        }
        self.insert_anywhere(element, number)
    }

    fn insert_anywhere(&mut self, element: i64, number: Txn) -> Option<ElementWriter> {
        if let Some(before) = self.writer(element) {
            return Some(before);
        }
        self.set(element, ElementWriter::new(number));
        None
    }

    /// Sets the writer of an element without one.
    fn set(&mut self, element: i64, writer: ElementWriter) {
        if self.near.is_empty() {
            // i64::MIN is a multiple itself, so this does not overflow.
            self.lowest = element - element.rem_euclid(ALIGNMENT);
        }
        let limit = 2 * self.near.len() + GAP_MAX;
        if let Some(place) = self.place(element).filter(|&place| place < limit) {
            if place >= self.near.len() {
                self.near.resize(place + 1, ElementWriter::UNKNOWN);
            }
            self.near[place] = writer;
        } else {
            let far = self.far.get_or_insert_default();
            far.insert(element, writer);
        }
    }

    /// Marks an append as read; returns its writer if it was not marked before.
    pub(super) fn see(&mut self, element: i64) -> Option<ElementWriter> {
        let writer = self.writer_mut(element)?;
        if writer.is_seen() {
            return None;
        }
        writer.0 |= ElementWriter::IS_SEEN;
        Some(*writer)
    }

    /// Renumbers all transactions of the list by `rename`, and removes the marks of reads.
    pub(super) fn rename(&mut self, rename: impl Fn(Txn) -> ElementWriter) {
        let far = self.far.iter_mut().flat_map(|far| far.values_mut());
        for writer in self.near.iter_mut().chain(far) {
            if *writer == ElementWriter::UNKNOWN {
                continue;
            }
            let intermediate = writer.0 & ElementWriter::IS_INTERMEDIATE;
            *writer = match writer.number() {
                Some(number) => match rename(number) {
                    renamed if renamed.number().is_some() => {
                        ElementWriter(renamed.0 | intermediate)
                    }
                    gone => gone,
                },
                None => ElementWriter(writer.0 & !ElementWriter::IS_SEEN),
            };
        }
        // What a transaction did last matters only until it ends, and transactions are renamed between operations.
        self.last = None;
        self.touched = (None, None);
        let renamed = |number: Txn| rename(number).number();
        self.reader = self.reader.and_then(renamed);
        if let Some(readers) = &mut self.conflict {
            *readers = readers.map(|reader| reader.and_then(renamed));
        } else {
            self.agreed = ALL_AGREE;
        }
    }

    /// Elements and their writers; in no particular order where elements are far apart.
    pub(super) fn appends(&self) -> impl Iterator<Item = (i64, ElementWriter)> {
        let near = (self.lowest..).zip(self.near.iter().copied());
        let near = near.filter(|&(_, writer)| writer != ElementWriter::UNKNOWN);
        let far = self.far.iter().flat_map(|far| far.iter());
        near.chain(far.map(|(&element, &writer)| (element, writer)))
    }

    /// The writers of all elements; in no particular order where elements are far apart.
    pub(super) fn writers(&self) -> impl Iterator<Item = ElementWriter> {
        let near = self.near.iter().copied();
        let near = near.filter(|&writer| writer != ElementWriter::UNKNOWN);
        near.chain(self.far.iter().flat_map(|far| far.values().copied()))
    }
}

/// A transaction that read a list and then appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Update {
    pub(super) list: ListId,
    /// The length of the list that it read.
    pub(super) length: u32,
    pub(super) transaction: Txn,
}

/// Two consecutive appends of a transaction to one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AppendPair {
    pub(super) list: ListId,
    /// In the order of the transaction.
    pub(super) elements: [i64; 2],
}

/// Why the history cannot be checked.
pub(super) enum ListsError {
    /// An operation is not a transaction on lists.
    Operation(RefusedOperation),
    /// One element was appended twice: key, element, transactions.
    Twice(Key, i64, [Txn; 2]),
    /// A limit of size was exceeded.
    Size(&'static str),
    /// This key was used after it was closed.
    Reopened(Key),
}

/// Transactions with one kind of internal contradiction.
#[derive(Default)]
pub(super) struct InternalContradictions {
    pub(super) count: u64,
    /// The first of these transactions.
    pub(super) first: Vec<Txn>,
}

/// The transactions and lists of a window. Transactions are numbered in the order of their invocations. About 130 bytes per
/// transaction.
#[derive(Default)]
pub(super) struct ListTable {
    /// Process, invocation, completion and status of each.
    pub(super) transactions: TransactionColumns,
    /// By successful transaction, in the order of completions: the lists that it read and the lengths of its reads (with
    /// [`BRANCH`]: divergent reads).
    pub(super) reads: CompletionRows<(ListId, u32)>,
    pub(super) updates: Vec<Update>,
    /// Consecutive appends of a transaction to one list. Removed once their list was checked.
    pub(super) pairs: Vec<AppendPair>,
    pub(super) lists: Vec<AppendList>,
    pub(super) integers: FixedMap<i64, ListId>,
    pub(super) others: BTreeMap<Key, ListId>,
    /// Keys whose lists were freed.
    pub(super) closed: ClosedKeys,
    /// Divergent reads: start and length in `branch_elements`, and list.
    pub(super) branches: Vec<(usize, u32, ListId)>,
    pub(super) branch_elements: Vec<i64>,
    pub(super) internal: InternalContradictions,
    pub(super) future: InternalContradictions,
    pub(super) refusal: Option<ListsError>,
}

impl ListTable {
    /// This key's list, new if necessary.
    pub(super) fn list_of(&mut self, key: &Key) -> ListId {
        if let Some(number) = self.number(key) {
            return number;
        }
        let number = ListId::new(self.lists.len() as u32);
        self.lists.push(AppendList::new(key.clone()));
        match key {
            Key::Int(integer) => self.integers.insert(*integer, number),
            other => self.others.insert(other.clone(), number),
        };
        number
    }

    /// This key's list.
    pub(super) fn number(&self, key: &Key) -> Option<ListId> {
        match key {
            Key::Int(integer) => self.integers.get(integer).copied(),
            other => self.others.get(other).copied(),
        }
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Adds a transaction without a completion; returns its number.
    pub(super) fn open(&mut self, process: ProcessNumber, invocation: Option<Position>) -> Txn {
        // The fold ends at a refusal, so the number never reaches the marks of `ElementWriter`.
        if self.len() >= TRANSACTIONS_MAX {
            self.refusal
                .get_or_insert(ListsError::Size("more than 2^29 transactions"));
        }
        self.transactions.open(process, invocation)
    }

    /// Applies an append of a transaction whose outcome is known.
    ///
    /// A failed append has no effect, so an element that is appended again after it failed belongs to the other
    /// transaction, whichever of both completed first. With two that did not fail it is unknown whose append was read.
    pub(super) fn append(&mut self, at: ListId, element: i64, number: Txn) {
        let is_failed = |number: Txn| self.transactions.is_failed(number);
        let list = &mut self.lists[at.index()];
        if let Some(before) = list.insert(element, number) {
            if is_failed(number) {
                return;
            }
            let Some(before) = before.number() else {
                // The list was reopened, and the earlier writer is freed.
                let refusal = ListsError::Reopened(list.key.clone());
                self.refusal.get_or_insert(refusal);
                return;
            };
            if !is_failed(before) {
                let both = [before.min(number), before.max(number)];
                let key = list.key.clone();
                self.refusal
                    .get_or_insert(ListsError::Twice(key, element, both));
                return;
            }
            if let Some(writer) = list.writer_mut(element) {
                *writer = ElementWriter::new(number);
            }
        }
        if let Some((last, other)) = list.last.replace((number, element))
            && last == number
            && let Some(writer) = list.writer_mut(other)
        {
            writer.0 |= ElementWriter::IS_INTERMEDIATE;
            // No read shows the order of failed appends.
            if !is_failed(number) {
                list.is_descending |= element < other;
                self.pairs.push(AppendPair {
                    list: at,
                    elements: [other, element],
                });
            }
        }
        let (before, length) = std::mem::replace(&mut list.touched, (Some(number), None));
        if before == Some(number)
            && let Some(length) = length
        {
            self.updates.push(Update {
                list: at,
                length: length.get(),
                transaction: number,
            });
        }
    }

    /// Reopens the list of a key that was freed with these elements; `unread` others had been appended.
    pub(super) fn reopen(&mut self, key: &Key, elements: Vec<i64>, unread: &[i64]) {
        let at = self.list_of(key);
        let list = &mut self.lists[at.index()];
        for &element in &elements {
            list.set(element, ElementWriter::GONE);
        }
        for &element in unread {
            list.set(element, ElementWriter::VOID);
        }
        list.again = Some(Reopening {
            base: elements.len() as u32,
            is_counted: true,
        });
        list.elements = elements;
    }

    /// Refuses a read of a reopened list that does not begin with its earlier elements.
    #[cold]
    fn refuse_stale(&mut self, at: ListId) {
        let refusal = ListsError::Reopened(self.lists[at.index()].key.clone());
        self.refusal.get_or_insert(refusal);
    }

    /// Applies a successful read of the first `length` elements of a list that `source` extends or is a prefix of.
    pub(super) fn read_prefix(&mut self, at: ListId, source: &[i64], length: u32, number: Txn) {
        let list = &mut self.lists[at.index()];
        if list.again.is_some_and(|again| length < again.base) {
            return self.refuse_stale(at);
        }
        if length as usize > list.elements.len() {
            let more = &source[list.elements.len()..length as usize];
            list.elements.extend_from_slice(more);
            list.reader = Some(number);
        }
        self.read(at, length, length, number);
    }

    /// Applies a successful read of a list; true if the list grew.
    pub(super) fn read_any(&mut self, at: ListId, elements: &[i64], number: Txn) -> bool {
        let list = &mut self.lists[at.index()];
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
        list.conflict.get_or_insert([list.reader, Some(number)]);
        let known = list.branches.iter().copied().find(|&branch| {
            let (start, length, _) = self.branches[branch.index()];
            self.branch_elements[start..start + length as usize] == *elements
        });
        let branch = known.unwrap_or_else(|| {
            let start = self.branch_elements.len();
            self.branch_elements.extend_from_slice(elements);
            let branch = BranchId::new(self.branches.len() as u32);
            self.branches.push((start, length, at));
            if list.branches.len() < BRANCHES_COMPARED_MAX {
                list.branches.push(branch);
            }
            branch
        });
        self.read(at, BRANCH | branch.get(), length, number);
        false
    }

    /// Applies a successful read of a closed list. Refused unless it returned the list as it was closed; `is_shown` says so of a
    /// freed list.
    pub(super) fn read_late(&mut self, key: &Key, elements: &[i64], is_shown: bool, number: Txn) {
        match self.number(key) {
            Some(at) => {
                let list = &self.lists[at.index()];
                if list.is_final && list.elements == elements {
                    return self.read(at, elements.len() as u32, elements.len() as u32, number);
                }
            }
            None if is_shown => return,
            None => {}
        }
        let refusal = ListsError::Reopened(key.clone());
        self.refusal.get_or_insert(refusal);
    }

    fn read(&mut self, at: ListId, place: u32, length: u32, number: Txn) {
        self.reads.push((at, place));
        let list = &mut self.lists[at.index()];
        // Only its first read shows the version that the transaction started from.
        if list.touched.0 != Some(number) {
            list.touched = (Some(number), Some(ReadLength::new(length)));
        }
    }

    /// The elements of a read.
    pub(super) fn elements(&self, (list, place): (ListId, u32)) -> &[i64] {
        if place & BRANCH == 0 {
            &self.lists[list.index()].elements[..place as usize]
        } else {
            let (start, length, _) = self.branches[(place & !BRANCH) as usize];
            &self.branch_elements[start..start + length as usize]
        }
    }

    /// The pairs of the lists in question, by list.
    pub(super) fn pairs_of(
        &self,
        is_asked: impl Fn(ListId) -> bool,
    ) -> BTreeMap<ListId, Vec<AppendPair>> {
        let mut pairs: BTreeMap<ListId, Vec<AppendPair>> = BTreeMap::new();
        for &pair in self.pairs.iter().filter(|pair| is_asked(pair.list)) {
            pairs.entry(pair.list).or_default().push(pair);
        }
        pairs
    }

    /// The lists in question with a read whose last element is an intermediate append of another transaction.
    pub(super) fn unfinished(&self, is_asked: impl Fn(ListId) -> bool) -> BTreeSet<ListId> {
        let unfinished = self.each_read().filter(|&(reader, read)| {
            let last = || self.elements(read).last().copied();
            is_asked(read.0)
                && last().is_some_and(|last| {
                    let writer = self.lists[read.0.index()].writer(last);
                    let writer = writer.filter(|writer| writer.is_intermediate());
                    writer.is_some_and(|writer| writer.number() != Some(reader))
                })
        });
        unfinished.map(|(_, (at, _))| at).collect()
    }

    /// All reads of successful transactions, with their readers, in the order of completions.
    pub(super) fn each_read(&self) -> impl Iterator<Item = (Txn, (ListId, u32))> {
        self.reads.pairs().map(|(reader, &read)| (reader, read))
    }
}

/// Divergent reads of one list that a new one is compared with, to store it once.
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
            let mut list = AppendList::new(Key::Int(1));
            let mut twin: BTreeMap<i64, u32> = BTreeMap::new();
            for number in 0..rng.below(60) as u32 {
                let element = match rng.below(8) {
                    0 if wide => *rng.pick(&extremes),
                    1 if wide => rng.word().cast_signed(),
                    2 => rng.below(3_000).cast_signed(),
                    _ => rng.below(90).cast_signed() - 30,
                };
                let before = twin.get(&element).copied();
                let found = list.insert(element, Txn::new(number));
                let found = found.and_then(ElementWriter::number).map(Txn::get);
                assert_eq!(found, before, "seed {seed} {element}");
                twin.entry(element).or_insert(number);
                for (&element, &number) in &twin {
                    let found = list.writer(element).and_then(ElementWriter::number);
                    assert_eq!(found, Some(Txn::new(number)), "seed {seed} {element}");
                }
                let absent = rng.below(200).cast_signed() - 100;
                assert_eq!(list.writer(absent).is_some(), twin.contains_key(&absent));
            }
            assert_eq!(list.writers().count(), twin.len(), "seed {seed}");
        }
    }
}
