//! A compact set of closed keys.

use seatrial_history::Key;
use std::collections::{BTreeMap, BTreeSet};

/// A set of keys: an interval of consecutive integers, which most workloads have, takes the memory of one entry.
#[derive(Default)]
pub struct ClosedKeys {
    /// First and last integer of each interval; intervals are disjoint and not adjacent.
    integers: BTreeMap<i64, i64>,
    others: BTreeSet<Key>,
}

impl ClosedKeys {
    /// Adds a key.
    pub fn insert(&mut self, key: Key) {
        let Key::Int(integer) = key else {
            self.others.insert(key);
            return;
        };
        let (mut first, mut last) = (integer, integer);
        if let Some((&start, &end)) = self.integers.range(..=integer).next_back() {
            if end >= integer {
                return;
            }
            // No underflow: an interval that begins at the least integer and does not end before `integer` contains it.
            if end == integer - 1 {
                first = start;
            }
        }
        if let Some(after) = integer.checked_add(1)
            && let Some(end) = self.integers.remove(&after)
        {
            last = end;
        }
        assert!(
            first <= integer && integer <= last,
            "the interval has the key"
        );
        debug_assert!(
            last == i64::MAX || !self.integers.contains_key(&(last + 1)),
            "no interval is adjacent to the next"
        );
        self.integers.insert(first, last);
    }

    /// Is the key in the set?
    pub fn contains(&self, key: &Key) -> bool {
        match key {
            Key::Int(integer) => {
                let before = self.integers.range(..=integer).next_back();
                before.is_some_and(|(_, end)| end >= integer)
            }
            other => self.others.contains(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn intervals_of_integers_are_sets() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let (mut closed, mut twin) = (ClosedKeys::default(), BTreeSet::new());
            for _ in 0..60 {
                let integer = match rng.below(20) {
                    0 => *rng.pick(&[i64::MIN, i64::MAX, i64::MIN + 1, i64::MAX - 1]),
                    _ => rng.below(40).cast_signed() - 20,
                };
                let key = if rng.chance(0.1) {
                    Key::Text("x".into())
                } else {
                    Key::Int(integer)
                };
                twin.insert(key.clone());
                closed.insert(key);
                for integer in (-22..22).chain([i64::MIN, i64::MAX]) {
                    let key = Key::Int(integer);
                    assert_eq!(closed.contains(&key), twin.contains(&key), "seed {seed}");
                }
            }
            let intervals: Vec<_> = closed.integers.iter().collect();
            let apart = |pair: &[(&i64, &i64)]| pair[0].1.checked_add(1) < Some(*pair[1].0);
            let are_apart = intervals.windows(2).all(apart);
            assert!(are_apart, "seed {seed} {intervals:?}");
        }
    }
}
