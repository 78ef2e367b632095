//! A table by integers that are mostly dense, such as the offsets of a log.

use std::collections::BTreeMap;

/// Slots that the array may have for each entry. Bounds what one large key can make it allocate.
const SLOTS_PER_ENTRY: usize = 8;

/// Slots that the array may have without any entry.
const SLOTS_MIN: usize = 256;

/// A value that can say that its slot is empty.
pub(crate) trait SlotValue: Copy {
    /// An empty slot.
    const EMPTY: Self;

    fn is_empty(&self) -> bool;
}

impl SlotValue for u32 {
    const EMPTY: u32 = u32::MAX;

    fn is_empty(&self) -> bool {
        *self == u32::MAX
    }
}

/// Values by integer key: an array from `base` on, and a tree for keys outside of it.
///
/// The array has at most [`SLOTS_PER_ENTRY`] slots for each entry, so that keys with large gaps cost what a tree costs. When it
/// grows, it takes over the tree's keys in its range: a key is in one of the two.
pub(crate) struct DenseTable<T> {
    /// The key of the first slot.
    base: i64,
    slots: Vec<T>,
    others: BTreeMap<i64, T>,
    length: usize,
}

impl<T> Default for DenseTable<T> {
    fn default() -> DenseTable<T> {
        DenseTable {
            base: 0,
            slots: Vec::new(),
            others: BTreeMap::new(),
            length: 0,
        }
    }
}

impl<T: SlotValue> DenseTable<T> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    fn slot(&self, key: i64) -> Option<usize> {
        usize::try_from(key.checked_sub(self.base)?).ok()
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: i64) -> Option<T> {
        match self.slot(key).and_then(|slot| self.slots.get(slot)) {
            Some(value) if value.is_empty() => None,
            Some(value) => Some(*value),
            None if self.others.is_empty() => None,
            None => self.others.get(&key).copied(),
        }
    }

    /// Adds a key that is absent.
    pub(crate) fn insert(&mut self, key: i64, value: T) {
        debug_assert!(self.get(key).is_none(), "key {key} is there already");
        debug_assert!(!value.is_empty(), "an empty value is no entry");
        if self.length == 0 {
            // Offsets begin at 0; values may be numbers from a counter of the whole test.
            let is_low = (0..SLOTS_MIN as i64).contains(&key);
            self.base = if is_low { 0 } else { key };
        }
        self.length += 1;
        let slots_max = SLOTS_MIN + SLOTS_PER_ENTRY * self.length;
        match self.slot(key).filter(|slot| *slot < slots_max) {
            Some(slot) => {
                if slot >= self.slots.len() {
                    self.grow(slot + 1);
                }
                self.slots[slot] = value;
            }
            None => _ = self.others.insert(key, value),
        }
    }

    /// Makes the array this long, and moves keys into it that were too far away before.
    fn grow(&mut self, length: usize) {
        self.slots.resize(length, T::EMPTY);
        let end = self.base.saturating_add(length as i64);
        if self.others.range(self.base..end).next().is_none() {
            return;
        }
        let mut inside = self.others.split_off(&self.base);
        let mut above = inside.split_off(&end);
        self.others.append(&mut above);
        for (key, value) in inside {
            let slot = (key - self.base) as usize;
            self.slots[slot] = value;
        }
    }

    /// All keys and values, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, T)> {
        let below = self.others.range(..self.base);
        let above = self.others.range(self.base..);
        let copied = |(key, value): (&i64, &T)| (*key, *value);
        let slots = self.slots.iter().enumerate();
        let slots = slots.filter(|(_, value)| !value.is_empty());
        below
            .map(copied)
            .chain(slots.map(|(slot, value)| (self.base + slot as i64, *value)))
            .chain(above.map(copied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn it_is_a_tree_whatever_the_gaps() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let (mut table, mut tree) = (DenseTable::default(), BTreeMap::new());
            let spread = *rng.pick(&[10, 1_000, 100_000, i64::MAX.cast_unsigned()]);
            let base = *rng.pick(&[0, 5, -7, 1_000_000, i64::MAX - 3, i64::MIN]);
            for value in 0..rng.below(200) as u32 {
                let far = rng.below(spread).cast_signed();
                let key = match rng.below(3) {
                    0 => base.saturating_add(far),
                    1 => base.saturating_sub(far),
                    _ => i64::from(value),
                };
                if let std::collections::btree_map::Entry::Vacant(entry) = tree.entry(key) {
                    entry.insert(value);
                    table.insert(key, value);
                }
                assert_eq!(table.get(key), tree.get(&key).copied(), "seed {seed}");
                assert_eq!(table.get(key ^ 1), tree.get(&(key ^ 1)).copied());
            }
            let all: Vec<(i64, u32)> = tree.into_iter().collect();
            assert_eq!(table.iter().collect::<Vec<_>>(), all, "seed {seed}");
            assert_eq!(table.len(), all.len());
            assert!(table.slots.len() <= SLOTS_MIN + SLOTS_PER_ENTRY * table.len().max(1));
        }
    }
}
