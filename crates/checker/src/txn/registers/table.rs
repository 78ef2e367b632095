//! Numbers for pairs of key and value.

use super::NONE;
use super::runs::Runs;

/// A version while columns are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) value: i64,
    pub(super) key: u32,
    /// Who wrote it; [`NONE`](super::NONE) as long as nobody did.
    pub(super) writer: u32,
}

/// Numbers of a page; small, as a page may hold a single one.
const PAGE_LENGTH: usize = 32;
/// Pages that may be named whatever there is.
const PAGES_FEW: usize = 1 << 18;

/// A number for each of many integers, most of which lie close to others: pages of a table, found by their place. What
/// lies too far out has none.
#[derive(Default)]
pub(super) struct Pages {
    /// By page: its place among those that are there, and 1.
    places: Vec<u32>,
    numbers: Vec<[u32; PAGE_LENGTH]>,
}

impl Pages {
    /// The page of an integer, 0 when it has none.
    fn page(&self, integer: i64) -> u32 {
        let page = integer.cast_unsigned() / PAGE_LENGTH as u64;
        let place = usize::try_from(page)
            .ok()
            .and_then(|page| self.places.get(page));
        place.copied().unwrap_or(0)
    }

    /// The number of an integer that has this page; [`NONE`](super::NONE) if it has none.
    fn number(&self, page: u32, integer: i64) -> u32 {
        let page = self.numbers.get((page as usize).wrapping_sub(1));
        page.map_or(NONE, |page| page[integer as usize % PAGE_LENGTH])
    }

    /// Where the number of this integer is kept, [`NONE`](super::NONE) as long as it has none. With `count` integers so
    /// far, there is a place for those up to a multiple of that.
    pub(super) fn slot(&mut self, integer: i64, count: usize) -> Option<&mut u32> {
        let integer = usize::try_from(integer).ok()?;
        let page = integer / PAGE_LENGTH;
        if page >= self.places.len() {
            if page >= PAGES_FEW + 2 * count {
                return None;
            }
            self.places.resize(page + 1, 0);
        }
        let place = &mut self.places[page];
        if *place == 0 {
            self.numbers.push([NONE; PAGE_LENGTH]);
            *place = self.numbers.len() as u32;
        }
        let page = &mut self.numbers[*place as usize - 1];
        Some(&mut page[integer % PAGE_LENGTH])
    }
}

/// An empty slot: no version has this number.
const EMPTY: u32 = u32::MAX;
/// Slots at first.
const SLOTS_MIN: usize = 1 << 10;

/// From (key, value) to a version's number.
///
/// Values that count up over all keys are found in pages by value, those that count up for each key in runs by key, all
/// others in a hash table with open addressing, whose slots are eight bytes, half of them hash, so that as a rule one slot
/// and one version are looked at; neighbouring values of a key stand side by side. Not for hostile values: an adversary
/// could slow it down, as he could with any large history.
pub(super) struct Table {
    /// The first version of each value.
    pages: Pages,
    /// Other versions of small values.
    runs: Runs,
    /// Half of the hash and the number of the other versions.
    slots: Vec<(u32, u32)>,
    /// Slots that are taken.
    taken: usize,
    pub(super) versions: Vec<Version>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            pages: Pages::default(),
            runs: Runs::default(),
            slots: vec![(0, EMPTY); SLOTS_MIN],
            taken: 0,
            versions: Vec::new(),
        }
    }
}

/// The hash of a version: those of eight neighbouring values differ in the lowest three bits.
fn hash(key: u32, value: i64) -> u64 {
    let value = value.cast_unsigned();
    let mixed = (value >> 3) ^ u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(mixed ^ 0x243f_6a88_85a3_08d3) * 0xa076_1d64_78bd_642f;
    let folded = (product >> 64) as u64 ^ product as u64;
    folded << 3 | value & 7
}

/// What of a hash is kept in a slot.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Table {
    /// Looks at what [`Table::number`] will need for these pairs of key and value, in steps that do not wait for one
    /// another, as most of it is far away from the processor.
    pub(super) fn glance(
        &self,
        pairs: impl Iterator<Item = (u32, i64)> + Clone,
        scratch: &mut Vec<u32>,
    ) {
        let pages = &self.pages;
        scratch.clear();
        scratch.extend(pairs.clone().map(|(_, value)| pages.page(value)));
        for (number, (_, value)) in scratch.iter_mut().zip(pairs.clone()) {
            *number = pages.number(*number, value);
        }
        let version = |number: u32| self.versions.get(number as usize);
        let mask = self.slots.len() - 1;
        let mut sum = 0;
        for (number, (key, value)) in scratch.iter_mut().zip(pairs) {
            // Looked at for most; only one that is not the first of its value is looked for on.
            let is_other = version(*number).is_some_and(|version| version.key != key);
            if is_other {
                // A number in a run needs no comparison with its version.
                *number = match self.runs.known(key, value) {
                    Some(number) => {
                        sum ^= number;
                        NONE
                    }
                    None => self.slots[hash(key, value) as usize & mask].1,
                };
            }
        }
        let keys = scratch
            .iter()
            .map(|&number| version(number).map_or(0, |it| it.key));
        std::hint::black_box(keys.fold(sum, |sum, key| sum ^ key));
    }

    /// The number of this version, a new one if need be.
    #[inline]
    pub(super) fn number(&mut self, key: u32, value: i64) -> u32 {
        let next = self.versions.len() as u32;
        if let Some(slot) = self.pages.slot(value, next as usize) {
            if *slot == NONE {
                *slot = next;
                return self.push(key, value);
            }
            if self.versions[*slot as usize].key == key {
                return *slot;
            }
        }
        let Some(place) = self.runs.place(key, value, next as usize) else {
            return self
                .find(key, value)
                .unwrap_or_else(|slot| self.insert(slot, key, value));
        };
        let number = self.runs.number(place);
        if *number == NONE {
            if place.is_shared
                && let Ok(known) = self.find(key, value)
            {
                return known;
            }
            *self.runs.number(place) = next;
            return self.push(key, value);
        }
        *number
    }

    fn push(&mut self, key: u32, value: i64) -> u32 {
        let writer = NONE;
        self.versions.push(Version { value, key, writer });
        self.versions.len() as u32 - 1
    }

    /// The number of a version that has neither page nor place, or the slot for it.
    fn find(&self, key: u32, value: i64) -> Result<u32, usize> {
        let hash = hash(key, value);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (other, number) = self.slots[at];
            if number == EMPTY {
                return Err(at);
            }
            if other == tag(hash) {
                let version = &self.versions[number as usize];
                if version.value == value && version.key == key {
                    return Ok(number);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// A number for a new version, kept in this empty slot.
    fn insert(&mut self, slot: usize, key: u32, value: i64) -> u32 {
        let number = self.push(key, value);
        self.slots[slot] = (tag(hash(key, value)), number);
        self.taken += 1;
        if self.taken * 10 > self.slots.len() * 7 {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let length = 2 * self.slots.len();
        let slots = std::mem::replace(&mut self.slots, vec![(0, EMPTY); length]);
        for (_, number) in slots.into_iter().filter(|slot| slot.1 != EMPTY) {
            let version = &self.versions[number as usize];
            let hash = hash(version.key, version.value);
            let mut at = hash as usize & (length - 1);
            while self.slots[at].1 != EMPTY {
                at = (at + 1) & (length - 1);
            }
            self.slots[at] = (tag(hash), number);
        }
    }
}
