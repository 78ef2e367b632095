//! Hashes that are the same in every run, and hash maps with them.

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// A hash map without a random key: the same operations give the same iteration order in every run. Only for keys that an
/// attacker cannot choose.
pub type FixedMap<K, V> = HashMap<K, V, FixedState>;

/// A hash set without a random key, as a [`FixedMap`].
pub type FixedSet<K> = HashSet<K, FixedState>;

/// The hash of a value, that of a [`FixedMap`]: for tables that keep their entries elsewhere. Not to be stored: another version
/// of the program may have another hash.
#[inline]
pub fn fixed_hash(value: impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

#[cfg(test)]
mod tests;
