//! A table of values by key, in order of first appearance.

use seatrial_history::FixedMap;
use std::collections::BTreeMap;
use std::hash::Hash;

/// Up to so many keys are compared one by one, which is faster than hashing.
const COMPARED_MAX: usize = 8;

/// Values by key, in the order in which the keys first came. Made for keys that come again and again: looking up the
/// one that was asked for last costs a comparison, one of a few some comparisons, one of many a hash.
///
/// Its downside: a key is kept twice once there are more than a few.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    entries: Vec<(K, V)>,
    /// Places in `entries`; empty while keys are compared.
    places: FixedMap<K, usize>,
    /// The place that was found last.
    last: usize,
}

impl<K: Eq + Hash + Clone, V> Table<K, V> {
    pub(super) fn new() -> Table<K, V> {
        Table {
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

    /// Adds what another table holds: new keys as they are, values of known ones through `combine`.
    pub(super) fn merge(&mut self, later: Table<K, V>, mut combine: impl FnMut(&mut V, V)) {
        for (key, value) in later.entries {
            match self.find(&key) {
                Some(place) => combine(&mut self.entries[place].1, value),
                None => {
                    self.add(key, value);
                }
            }
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All of it, by key.
    pub(super) fn into_map<U>(self, mut change: impl FnMut(V) -> U) -> BTreeMap<K, U>
    where
        K: Ord,
    {
        let entries = self.entries.into_iter();
        entries.map(|(key, value)| (key, change(value))).collect()
    }
}
