//! A table of values by key, in order of first appearance.

use seatrial_history::FixedMap;
use std::collections::BTreeMap;
use std::hash::Hash;

/// Up to this many keys are compared one by one, which is faster than hashing.
const COMPARED_MAX: usize = 8;

/// Values by key, in the order of first appearance. Optimized for recurring keys: the key found last costs one comparison,
/// one of a few keys some comparisons, one of many a hash. With many keys each is stored twice.
#[derive(Clone, Debug)]
pub struct KeyTable<K, V> {
    entries: Vec<(K, V)>,
    /// Places in `entries`; empty while keys are compared.
    places: FixedMap<K, usize>,
    /// The place found last.
    last: usize,
}

impl<K: Eq + Hash + Clone, V> KeyTable<K, V> {
    pub(super) fn new() -> KeyTable<K, V> {
        KeyTable {
            entries: Vec::new(),
            places: FixedMap::default(),
            last: 0,
        }
    }

    fn find(&self, key: &K) -> Option<usize> {
        if self
            .entries
            .get(self.last)
            .is_some_and(|(last, _)| last == key)
        {
            return Some(self.last);
        }
        if self.entries.len() <= COMPARED_MAX {
            return self.entries.iter().position(|(known, _)| known == key);
        }
        self.places.get(key).copied()
    }

    /// The value of `key`, made by `make` if there is none yet.
    pub(super) fn get(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.find(&key) {
            Some(place) => place,
            None => self.add(key, make()),
        };
        self.last = place;
        &mut self.entries[place].1
    }

    fn add(&mut self, key: K, value: V) -> usize {
        let place = self.entries.len();
        self.entries.push((key, value));
        if self.entries.len() > COMPARED_MAX {
            for (place, (key, _)) in self.entries.iter().enumerate().skip(self.places.len()) {
                self.places.insert(key.clone(), place);
            }
        }
        place
    }

    /// Adds another table: new keys are moved, values of known keys combined by `combine`.
    pub(super) fn merge(&mut self, later: KeyTable<K, V>, mut combine: impl FnMut(&mut V, V)) {
        for (key, value) in later.entries {
            match self.find(&key) {
                Some(place) => combine(&mut self.entries[place].1, value),
                None => {
                    self.add(key, value);
                }
            }
        }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All values by key.
    pub(super) fn into_map<U>(self, mut change: impl FnMut(V) -> U) -> BTreeMap<K, U>
    where
        K: Ord,
    {
        let entries = self.entries.into_iter();
        entries.map(|(key, value)| (key, change(value))).collect()
    }
}
