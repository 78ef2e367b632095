//! A transaction against itself.

use super::scan::Columns;
use seatrial_history::Chunk;
use seatrial_history::chunk::mop_tag;

/// What one transaction has done to one key so far.
#[derive(Clone, Copy, Default)]
struct Key<'a> {
    /// Which transaction; anything else here is of an earlier one unless this is the current.
    transaction: u32,
    /// What it read last, if it has read.
    known: Option<&'a [i64]>,
    /// Appends, all of them and those after the last read.
    appends: u32,
    since: u32,
}

/// What was found in one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::txn) struct Contradictions {
    /// A read contradicts what the transaction read or appended before.
    pub(in crate::txn) internal: bool,
    /// A read observes what the transaction appends only later.
    pub(in crate::txn) future: bool,
}

/// What a successful transaction read.
#[derive(Clone, Copy, Debug)]
pub(in crate::txn) struct Read<'a> {
    pub(in crate::txn) key: u32,
    pub(in crate::txn) elements: &'a [i64],
    /// Are they a prefix of the key's longest list?
    pub(in crate::txn) is_prefix: bool,
    /// The last of them, unless the transaction itself had appended it before.
    pub(in crate::txn) last: Option<i64>,
}

/// What a successful transaction did.
#[derive(Clone, Copy, Debug)]
pub(in crate::txn) enum Done<'a> {
    /// It appended to the list of this key id.
    Append(u32, i64),
    /// It read.
    Read(Read<'a>),
}

/// Checks successful transactions of one chunk by themselves (Cerone's axiom INT, for lists), with the memory of
/// all keys used again from one to the next.
///
/// Reads that are prefixes of one list are compared by their lengths. Whether a list contains an element is asked
/// of a table of positions that is made once for each list when it is first asked.
pub(in crate::txn) struct Own<'a> {
    chunk: &'a Chunk,
    mops: Columns<'a>,
    /// By key id: its longest list.
    lists: Vec<&'a [i64]>,
    keys: Vec<Key<'a>>,
    positions: Positions,
    /// Appends of the current transaction, all keys.
    appended: Vec<(u32, i64)>,
    /// Reads of the current transaction that a later one of the same key contradicts: only such a read can hold an element
    /// that the key's last read does not.
    contradicted: Vec<(u32, &'a [i64])>,
}

impl<'a> Own<'a> {
    pub(in crate::txn) fn new(chunk: &'a Chunk) -> Own<'a> {
        Own {
            chunk,
            mops: Columns::of(chunk),
            lists: (0..chunk.key_count() as u32)
                .map(|key| chunk.list(key))
                .collect(),
            keys: vec![Key::default(); chunk.key_count()],
            positions: Positions::new(chunk.key_count()),
            appended: Vec::new(),
            contradicted: Vec::new(),
        }
    }

    /// Checks the micro-operations from `start` to `end`, those of the transaction that is the `number`th of its chunk
    /// from 1. `tell` hears what it did.
    pub(in crate::txn) fn check(
        &mut self,
        number: u32,
        (start, end): (usize, usize),
        mut tell: impl FnMut(Done<'a>),
    ) -> Contradictions {
        self.appended.clear();
        self.contradicted.clear();
        let mut found = Contradictions::default();
        for (tag, key, argument) in self.mops.range(start, end) {
            let own = &mut self.keys[key as usize];
            if own.transaction != number {
                *own = Key {
                    transaction: number,
                    ..Key::default()
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
                    tell(Done::Append(key, argument));
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
            tell(Done::Read(Read {
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
fn contradicts(own: &Key<'_>, elements: &[i64], appended: &[(u32, i64)], key: u32) -> bool {
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
        let same_list = known.as_ptr() == before.as_ptr() && known.len() == before.len();
        !same_list && known != before
    })
}

/// Where the elements of each key's list stand: a table by element for lists whose elements lie close together.
struct Positions {
    /// By key: lowest element, where its table begins, how long that is. Not made yet: [`UNMADE`]; none: length 0.
    spans: Vec<(i64, u32, u32)>,
    /// Position and 1; 0 where there is none.
    tables: Vec<u32>,
}

/// Marks the span of a key whose table was not asked for yet.
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
        if width >= 4 * list.len() as u64 + 64 {
            self.spans[key as usize] = (lowest, first, 0);
            return;
        }
        self.tables
            .resize(self.tables.len() + width as usize + 1, 0);
        let table = &mut self.tables[first as usize..];
        for (position, element) in list.iter().enumerate() {
            let place = &mut table[(element - lowest) as usize];
            if *place == 0 {
                *place = position as u32 + 1;
            }
        }
        self.spans[key as usize] = (lowest, first, width as u32 + 1);
    }
}
