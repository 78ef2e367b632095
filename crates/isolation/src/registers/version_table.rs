//! Numbers for pairs of key and value.

use super::NONE;
use super::value_runs::ValueRuns;

/// A version under construction.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenVersion {
    pub(super) value: i64,
    pub(super) key: u32,
    /// The transaction that wrote it; [`NONE`](super::NONE) until one is known.
    pub(super) writer: u32,
}

/// Numbers in a page; few, since a page may hold a single one.
const PAGE_LENGTH: usize = 32;
/// Number of pages that are allowed in any case.
const PAGES_FEW: usize = 1 << 18;

/// Maps integers, most of which lie close to others, to numbers: a table of pages. Integers that lie too far out have no
/// page.
#[derive(Default)]
pub(super) struct NumberPages {
    /// By page: its index in `numbers` plus one; 0 if it has none.
    places: Vec<u32>,
    numbers: Vec<[u32; PAGE_LENGTH]>,
}

impl NumberPages {
    /// The page of an integer, plus one; 0 if it has none.
    fn page(&self, integer: i64) -> u32 {
        let page = integer.cast_unsigned() / PAGE_LENGTH as u64;
        let place = usize::try_from(page)
            .ok()
            .and_then(|page| self.places.get(page));
        place.copied().unwrap_or(0)
    }

    /// The number of an integer in this page; [`NONE`](super::NONE) if it has none.
    fn number(&self, page: u32, integer: i64) -> u32 {
        let page = self.numbers.get((page as usize).wrapping_sub(1));
        page.map_or(NONE, |page| page[integer as usize % PAGE_LENGTH])
    }

    /// The place of this integer's number, [`NONE`](super::NONE) until it has one. The number of pages is bounded by
    /// `count`, the number of integers so far.
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

/// An empty slot; no version has this number.
const EMPTY: u32 = u32::MAX;
/// Number of slots at first.
const SLOTS_MIN: usize = 1 << 10;

/// Maps (key, value) to the number of a version.
///
/// Values that count up over all keys are in pages by value, those that count up for each key in runs by key, all others in
/// a hash table with open addressing. Its slots are eight bytes, half of them hash, so that as a rule one slot and one
/// version are looked at; consecutive values of a key are next to one another. It is not made for hostile values: they
/// could slow it down, as could any large history.
pub(super) struct VersionTable {
    /// The first version of each value.
    pages: NumberPages,
    /// Other versions of small values.
    runs: ValueRuns,
    /// Half of the hash and the number of each other version.
    slots: Vec<(u32, u32)>,
    /// Number of slots in use.
    taken: usize,
    pub(super) versions: Vec<WrittenVersion>,
}

impl Default for VersionTable {
    fn default() -> VersionTable {
        VersionTable {
            pages: NumberPages::default(),
            runs: ValueRuns::default(),
            slots: vec![(0, EMPTY); SLOTS_MIN],
            taken: 0,
            versions: Vec::new(),
        }
    }
}

/// The hash of a version: those of eight consecutive values differ in the lowest three bits.
fn hash(key: u32, value: i64) -> u64 {
    let value = value.cast_unsigned();
    let mixed = (value >> 3) ^ u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product = u128::from(mixed ^ 0x243f_6a88_85a3_08d3) * 0xa076_1d64_78bd_642f;
    let folded = (product >> 64) as u64 ^ product as u64;
    folded << 3 | value & 7
}

/// The half of a hash that a slot keeps.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl VersionTable {
    /// Prefetches what [`VersionTable::number`] will need for these pairs of key and value, in steps that do not depend on
    /// one another, since most of it is not in the cache.
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
            // The first version of a value is the right one for most; only the others are looked up further.
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

    /// The number of this version, a new one if necessary.
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
        self.versions.push(WrittenVersion { value, key, writer });
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

    /// Adds a version and puts its number into this empty slot.
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

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn pairs_have_the_numbers_of_a_map() {
        let mut late = 0;
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let keys = 1 + rng.below(40);
            let mut table = VersionTable::default();
            let mut known: BTreeMap<(u32, i64), u32> = BTreeMap::new();
            let mut last = vec![0_i64; keys as usize];
            let mut pending = Vec::new();
            for _ in 0..rng.below(1_500) {
                let key = rng.below(keys) as u32;
                let value = match rng.below(20) {
                    0 => rng.below(2_000).cast_signed(),
                    1 => -rng.below(9).cast_signed(),
                    2 => i64::MAX - rng.below(9).cast_signed(),
                    3..9 => {
                        1 + rng
                            .below(last[key as usize].cast_unsigned() + 2)
                            .cast_signed()
                    }
                    _ => {
                        last[key as usize] += 1;
                        last[key as usize]
                    }
                };
                pending.push((key, value));
                if rng.chance(0.9) {
                    continue;
                }
                table.glance(pending.iter().copied(), &mut Vec::new());
                for (key, value) in pending.drain(..) {
                    let next = known.len() as u32;
                    let expected = *known.entry((key, value)).or_insert(next);
                    assert_eq!(table.number(key, value), expected, "seed {seed}");
                }
            }
            assert_eq!(table.versions.len(), known.len());
            for (&(key, value), &number) in &known {
                let version = table.versions[number as usize];
                assert_eq!((version.key, version.value), (key, value));
                let place = table.runs.place(key, value, known.len());
                late += u32::from(place.is_some_and(|it| *table.runs.number(it) != number));
            }
        }
        assert!(late > 100, "{late} pairs got a place too late");
    }
}
