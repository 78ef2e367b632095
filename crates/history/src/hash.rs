//! Hash maps whose order is the same in every run.

use foldhash::fast::FixedState;
use std::collections::HashMap;

/// A hash map without a random key: the same operations give the same iteration order in every run. Only for keys that an
/// attacker cannot choose.
pub type FixedMap<K, V> = HashMap<K, V, FixedState>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_maps_with_the_same_keys_have_the_same_order() {
        let keys = || (0..1_000_u64).map(|key| (key.wrapping_mul(key), key));
        let (first, second): (FixedMap<_, _>, FixedMap<_, _>) =
            (keys().collect(), keys().collect());
        assert!(first.iter().eq(&second), "the hash has a random key");
        assert!(!first.iter().is_sorted(), "an order of hashes");
    }
}
