//! Internal reads: each transaction checked by itself.

use super::scan::MicroOperations;
use seatrial_history::Chunk;
use seatrial_history::chunk::mop_tag;

/// The reads and appends of one transaction on one key so far.
#[derive(Clone, Copy, Default)]
struct KeyProgress<'a> {
    /// The transaction; the other fields are stale unless it is the current one.
    transaction: u32,
    /// Its last read, if there is one.
    known: Option<&'a [i64]>,
    /// Number of its appends, all and after the last read.
    appends: u32,
    since: u32,
}

/// The contradictions of one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contradictions {
    /// A read contradicts an earlier read or append of the transaction.
    pub(crate) internal: bool,
    /// A read has an element that the transaction appends later.
    pub(crate) future: bool,
}

/// A read of a successful transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionRead<'a> {
    pub(crate) key: u32,
    pub(crate) elements: &'a [i64],
    /// Are they a prefix of the key's longest list?
    pub(crate) is_prefix: bool,
    /// The last of them, unless the transaction itself had appended it before.
    pub(crate) last: Option<i64>,
}

/// A micro-operation of a successful transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MicroOperation<'a> {
    /// An append: key id and element.
    Append(u32, i64),
    /// A read.
    Read(TransactionRead<'a>),
}

/// Checks each successful transaction of a chunk by itself (Cerone's axiom INT, for lists). The state of all keys is
/// allocated once and reused from one transaction to the next.
///
/// Reads that are prefixes of one list are compared by their lengths. Whether a list contains an element is looked up in a table
/// of positions, which is made for a list at its first lookup.
pub(crate) struct InternalReadChecker<'a> {
    chunk: &'a Chunk,
    mops: MicroOperations<'a>,
    /// By key id: its longest list.
    lists: Vec<&'a [i64]>,
    keys: Vec<KeyProgress<'a>>,
    positions: Positions,
    /// Appends of the current transaction, all keys.
    appended: Vec<(u32, i64)>,
    /// Reads of the current transaction that a later read of the same key contradicts: only such a read can have an element that
    /// the key's last read does not have.
    contradicted: Vec<(u32, &'a [i64])>,
}

impl<'a> InternalReadChecker<'a> {
    pub(crate) fn new(chunk: &'a Chunk) -> InternalReadChecker<'a> {
        InternalReadChecker {
            chunk,
            mops: MicroOperations::of(chunk),
            lists: (0..chunk.key_count() as u32)
                .map(|key| chunk.list(key))
                .collect(),
            keys: vec![KeyProgress::default(); chunk.key_count()],
            positions: Positions::new(chunk.key_count()),
            appended: Vec::new(),
            contradicted: Vec::new(),
        }
    }

    /// Checks the micro-operations from `start` to `end`, those of transaction `number` of the chunk, counted from 1. Calls
    /// `take` for each.
    pub(crate) fn check(
        &mut self,
        number: u32,
        (start, end): (usize, usize),
        mut take: impl FnMut(MicroOperation<'a>),
    ) -> Contradictions {
        self.appended.clear();
        self.contradicted.clear();
        let mut found = Contradictions::default();
        for (tag, key, argument) in self.mops.range(start, end) {
            let own = &mut self.keys[key as usize];
            // Entries of earlier transactions are not cleared: they have other numbers.
            if own.transaction != number {
                *own = KeyProgress {
                    transaction: number,
                    ..KeyProgress::default()
                };
            }
            let (elements, is_prefix) = match tag {
                mop_tag::APPEND => {
                    own.appends += 1;
                    own.since += 1;
                    found.future |= own.known.is_some_and(|known| {
                        let list = self.lists[key as usize];
                        self.positions.contains(key, list, known, argument)
                    });
                    let mut earlier = self.contradicted.iter();
                    found.future |=
                        earlier.any(|(at, seen)| *at == key && seen.contains(&argument));
                    self.appended.push((key, argument));
                    take(MicroOperation::Append(key, argument));
                    continue;
                }
                mop_tag::READ_PREFIX => (&self.lists[key as usize][..argument as usize], true),
                mop_tag::READ_BRANCH => (self.chunk.reference(argument), false),
                _ => (&[][..], true),
            };
            if contradicts(own, elements, &self.appended, key) {
                found.internal = true;
                self.contradicted
                    .extend(own.known.map(|known| (key, known)));
            }
            own.known = Some(elements);
            own.since = 0;
            let is_own = |last| own.appends > 0 && self.appended.contains(&(key, last));
            let last = elements.last().copied().filter(|last| !is_own(*last));
            take(MicroOperation::Read(TransactionRead {
                key,
                elements,
                is_prefix,
                last,
            }));
        }
        found
    }
}

/// Is this read not what was read before, and then what was appended?
fn contradicts(own: &KeyProgress<'_>, elements: &[i64], appended: &[(u32, i64)], key: u32) -> bool {
    let since = own.since as usize;
    let Some(before) = elements.len().checked_sub(since) else {
        return true;
    };
    let (before, end) = elements.split_at(before);
    if since > 0 {
        let recent = appended.iter().rev().filter(|append| append.0 == key);
        let mut recent = recent.map(|append| &append.1);
        if !end
            .iter()
            .rev()
            .all(|element| recent.next() == Some(element))
        {
            return true;
        }
    }
    own.known.is_some_and(|known| {
        // Most reads are prefixes of one list in the chunk: equal addresses and lengths save the comparison of elements.
        let same_list = known.as_ptr() == before.as_ptr() && known.len() == before.len();
        !same_list && known != before
    })
}

/// The positions of elements in each key's list: an array by element, for lists whose elements are close together.
struct Positions {
    /// By key: lowest element, start of its array in `tables`, length. Start [`UNMADE`]: not made yet; length 0: none is made.
    spans: Vec<(i64, u32, u32)>,
    /// Position plus one; 0 for no position.
    tables: Vec<u32>,
}

/// The start of a key without a lookup so far.
const UNMADE: u32 = u32::MAX;

impl Positions {
    fn new(keys: usize) -> Positions {
        Positions {
            spans: vec![(0, UNMADE, 0); keys],
            tables: Vec::new(),
        }
    }

    /// Does `known`, a read of `key`, whose longest list is `list`, contain `element`?
    fn contains(&mut self, key: u32, list: &[i64], known: &[i64], element: i64) -> bool {
        if known.as_ptr() != list.as_ptr() || known.len() < 8 {
            return known.contains(&element);
        }
        if self.spans[key as usize].1 == UNMADE {
            self.make(key, list);
        }
        let (lowest, first, length) = self.spans[key as usize];
        if length == 0 {
            return known.contains(&element);
        }
        // The difference of two integers of 64 bits fits 64 bits without a sign; a lower element wraps to a high place.
        let place = element.wrapping_sub(lowest).cast_unsigned();
        if place >= u64::from(length) {
            return false;
        }
        let position = self.tables[first as usize + place as usize];
        position > 0 && position as usize <= known.len()
    }

    fn make(&mut self, key: u32, list: &[i64]) {
        let lowest = list.iter().copied().min().unwrap_or(0);
        let highest = list.iter().copied().max().unwrap_or(0);
        let width = highest.wrapping_sub(lowest).cast_unsigned();
        let first = self.tables.len() as u32;
        // Elements far apart: the array would be larger than the list, and more to fill than a search has to compare.
        if width >= 4 * list.len() as u64 + 64 {
            self.spans[key as usize] = (lowest, first, 0);
            return;
        }
        self.tables
            .resize(self.tables.len() + width as usize + 1, 0);
        let table = &mut self.tables[first as usize..];
        for (position, element) in list.iter().enumerate() {
            let place = &mut table[(element - lowest) as usize];
            // The first occurrence counts: a prefix has an element if it has that one.
            if *place == 0 {
                *place = position as u32 + 1;
            }
        }
        debug_assert!(
            table.iter().all(|&place| place as usize <= list.len()),
            "a position is one of the list"
        );
        self.spans[key as usize] = (lowest, first, width as u32 + 1);
    }
}
