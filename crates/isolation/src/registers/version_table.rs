//! Numbers for pairs of key and value.

use super::value_runs::ValueRuns;
use seatrial_cycles::{KeyId, Txn, dense_id};
use seatrial_history::fixed_hash;

dense_id! {
    /// A version of a [`VersionTable`], numbered in order of appearance. Columns number the initial versions before these.
    pub(super) WrittenId
}
dense_id! {
    /// A page of [`NumberPages`], numbered in order of first use.
    PageId
}

/// A version under construction: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenVersion {
    pub(super) value: i64,
    pub(super) key: KeyId,
    /// The transaction that wrote it; `None` until one is known.
    pub(super) writer: Option<Txn>,
}

const _: () = assert!(size_of::<WrittenVersion>() == 16);

/// Numbers in a page; few, since a page may hold a single one.
const PAGE_LENGTH: usize = 32;
/// Number of pages that are allowed in any case.
const PAGES_FEW: usize = 1 << 18;

/// Maps integers, most of which lie close to others, to ids of four bytes: a table of pages. Integers that lie too far out
/// have no page.
pub(super) struct NumberPages<Id> {
    /// By quotient of an integer and the length of a page: its page, `None` before its first use.
    places: Vec<Option<PageId>>,
    pages: Vec<[Option<Id>; PAGE_LENGTH]>,
}

impl<Id> Default for NumberPages<Id> {
    fn default() -> NumberPages<Id> {
        NumberPages {
            places: Vec::new(),
            pages: Vec::new(),
        }
    }
}

impl<Id: Copy> NumberPages<Id> {
    /// The page of an integer, if it has one.
    fn page(&self, integer: i64) -> Option<PageId> {
        let page = integer.cast_unsigned() / PAGE_LENGTH as u64;
        let place = usize::try_from(page)
            .ok()
            .and_then(|page| self.places.get(page));
        place.copied().flatten()
    }

    /// The id of an integer in this page, if it has one.
    fn id(&self, page: PageId, integer: i64) -> Option<Id> {
        self.pages[page.index()][integer as usize % PAGE_LENGTH]
    }

    /// The place of this integer's id, `None` in it until it has one. The number of pages is bounded by `count`, the
    /// number of integers so far.
    pub(super) fn slot(&mut self, integer: i64, count: usize) -> Option<&mut Option<Id>> {
        let integer = usize::try_from(integer).ok()?;
        let page = integer / PAGE_LENGTH;
        if page >= self.places.len() {
            if page >= PAGES_FEW + 2 * count {
                return None;
            }
            self.places.resize(page + 1, None);
        }
        let page = *self.places[page].get_or_insert_with(|| {
            // Pages are fewer than `PAGES_FEW` and twice the versions, so they can be numbered.
            let next = PageId::new(self.pages.len() as u32);
            self.pages.push([None; PAGE_LENGTH]);
            next
        });
        Some(&mut self.pages[page.index()][integer % PAGE_LENGTH])
    }
}

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
    pages: NumberPages<WrittenId>,
    /// Other versions of small values.
    runs: ValueRuns,
    /// Half of the hash and the id of each other version; `None` in an empty slot.
    slots: Vec<(u32, Option<WrittenId>)>,
    /// Number of slots in use.
    taken: usize,
    pub(super) versions: Vec<WrittenVersion>,
}

impl Default for VersionTable {
    fn default() -> VersionTable {
        VersionTable {
            pages: NumberPages::default(),
            runs: ValueRuns::default(),
            slots: vec![(0, None); SLOTS_MIN],
            taken: 0,
            versions: Vec::new(),
        }
    }
}

/// The hash of a version: those of eight consecutive values differ in the lowest three bits.
fn hash(key: KeyId, value: i64) -> u64 {
    let value = value.cast_unsigned();
    fixed_hash((key, value >> 3)) << 3 | value & 7
}

/// The half of a hash that a slot keeps.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Buffers of [`VersionTable::glance`], kept between calls.
#[derive(Default)]
pub(super) struct GlanceBuffers {
    /// By pair: the page of its value.
    pages: Vec<Option<PageId>>,
    /// By pair: the version that its page or slot has.
    versions: Vec<Option<WrittenId>>,
}

impl VersionTable {
    /// Prefetches what [`VersionTable::id`] will need for these pairs of key and value, in steps that do not depend on
    /// one another, since most of it is not in the cache.
    pub(super) fn glance(
        &self,
        pairs: impl Iterator<Item = (KeyId, i64)> + Clone,
        buffers: &mut GlanceBuffers,
    ) {
        let GlanceBuffers { pages, versions } = buffers;
        pages.clear();
        pages.extend(pairs.clone().map(|(_, value)| self.pages.page(value)));
        versions.clear();
        let in_pages = pages.iter().zip(pairs.clone());
        versions.extend(in_pages.map(|(&page, (_, value))| self.pages.id(page?, value)));
        let key_of = |version: WrittenId| self.versions[version.index()].key;
        let mask = self.slots.len() - 1;
        let mut sum = 0;
        for (version, (key, value)) in versions.iter_mut().zip(pairs) {
            // The first version of a value is the right one for most; only the others are looked up further.
            if version.is_some_and(|version| key_of(version) != key) {
                // A version in a run needs no comparison.
                *version = match self.runs.find(key, value) {
                    Some(place) => {
                        sum ^= self.runs.version(place).map_or(0, WrittenId::get);
                        None
                    }
                    None => self.slots[hash(key, value) as usize & mask].1,
                };
            }
        }
        let keys = versions
            .iter()
            .map(|version| version.map_or(0, |version| key_of(version).get()));
        std::hint::black_box(keys.fold(sum, |sum, key| sum ^ key));
    }

    /// The id of this version, a new one if necessary.
    #[inline]
    pub(super) fn id(&mut self, key: KeyId, value: i64) -> WrittenId {
        let count = self.versions.len();
        // The builder refuses a history before its versions are too many for 31 bits.
        let next = WrittenId::new(count as u32);
        if let Some(slot) = self.pages.slot(value, count) {
            let Some(first) = *slot else {
                *slot = Some(next);
                return self.push(key, value);
            };
            if self.versions[first.index()].key == key {
                return first;
            }
        }
        let Some(place) = self.runs.place(key, value, count) else {
            return self
                .find(key, value)
                .unwrap_or_else(|slot| self.insert(slot, key, value));
        };
        if let Some(known) = self.runs.version(place) {
            return known;
        }
        if self.runs.has_refused(key)
            && let Ok(known) = self.find(key, value)
        {
            return known;
        }
        self.runs.put(place, next);
        self.push(key, value)
    }

    fn push(&mut self, key: KeyId, value: i64) -> WrittenId {
        let id = WrittenId::new(self.versions.len() as u32);
        let writer = None;
        self.versions.push(WrittenVersion { value, key, writer });
        id
    }

    /// The id of a version that has neither page nor place, or the slot for it.
    fn find(&self, key: KeyId, value: i64) -> Result<WrittenId, usize> {
        let hash = hash(key, value);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (other, id) = self.slots[at];
            let Some(id) = id else {
                return Err(at);
            };
            if other == tag(hash) {
                let version = &self.versions[id.index()];
                if version.value == value && version.key == key {
                    return Ok(id);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a version and puts its id into this empty slot.
    fn insert(&mut self, slot: usize, key: KeyId, value: i64) -> WrittenId {
        let id = self.push(key, value);
        self.slots[slot] = (tag(hash(key, value)), Some(id));
        self.taken += 1;
        if self.taken * 10 > self.slots.len() * 7 {
            self.grow();
        }
        id
    }

    fn grow(&mut self) {
        let length = 2 * self.slots.len();
        let slots = std::mem::replace(&mut self.slots, vec![(0, None); length]);
        for id in slots.into_iter().filter_map(|(_, id)| id) {
            let version = &self.versions[id.index()];
            let hash = hash(version.key, version.value);
            let mut at = hash as usize & (length - 1);
            while self.slots[at].1.is_some() {
                at = (at + 1) & (length - 1);
            }
            self.slots[at] = (tag(hash), Some(id));
        }
        debug_assert_eq!(
            self.slots.iter().filter(|slot| slot.1.is_some()).count(),
            self.taken,
            "a version was lost as the table grew"
        );
    }
}

#[cfg(test)]
mod tests;
