//! Ends that collect all items.

use super::key_table::KeyTable;
use super::pipeline::Stage;
use super::{Each, Items, Pipeline, Query, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::ops::ControlFlow;

impl<I: Items, T: Send, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// All items in order.
    pub fn vec(self) -> Question<I, impl Query<I, Output = Vec<T>>> {
        self.ask(Vector)
    }

    /// All distinct items.
    pub fn set(self) -> Question<I, impl Query<I, Output = BTreeSet<T>>>
    where
        T: Ord + Hash + Clone,
    {
        let keys = |counts: BTreeMap<T, u64>| counts.into_keys().collect();
        self.frequencies().post(keys)
    }

    /// Number of distinct items.
    pub fn distinct(self) -> Question<I, impl Query<I, Output = u64>>
    where
        T: Eq + Hash + Clone,
    {
        self.ask(Frequencies).post(|counts| counts.len() as u64)
    }

    /// Number of occurrences of each item.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let letters = query::each::<char>().frequencies();
    /// assert_eq!(letters.of("abba".chars()), [('a', 2), ('b', 2)].into());
    /// ```
    pub fn frequencies(self) -> Question<I, impl Query<I, Output = BTreeMap<T, u64>>>
    where
        T: Ord + Hash + Clone,
    {
        self.ask(Frequencies)
            .post(|counts| counts.into_map(|count| count))
    }
}

impl<I: Items, K: Ord + Send, V: Send, S: Stage<I, Out = Each<(K, V)>>> Pipeline<I, S> {
    /// A map from the first to the second element of each pair; the last pair of a key wins.
    pub fn into_map(self) -> Question<I, impl Query<I, Output = BTreeMap<K, V>>> {
        self.ask(MapQuery)
    }
}

/// See [`Pipeline::vec`].
#[derive(Clone, Copy, Debug)]
struct Vector;

impl<T: Send> Query<Each<T>> for Vector {
    type Accumulator = Vec<T>;
    type Output = Vec<T>;

    fn start(&self) -> Vec<T> {
        Vec::new()
    }

    fn step(&self, items: &mut Vec<T>, item: T) -> ControlFlow<()> {
        items.push(item);
        ControlFlow::Continue(())
    }

    fn combine(&self, items: &mut Vec<T>, later: Vec<T>) -> ControlFlow<()> {
        items.extend(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, items: Vec<T>) -> Vec<T> {
        items
    }
}

/// See [`Pipeline::frequencies`].
#[derive(Clone, Copy, Debug)]
struct Frequencies;

impl<T: Eq + Hash + Clone + Send> Query<Each<T>> for Frequencies {
    type Accumulator = KeyTable<T, u64>;
    type Output = KeyTable<T, u64>;

    fn start(&self) -> KeyTable<T, u64> {
        KeyTable::new()
    }

    fn step(&self, counts: &mut KeyTable<T, u64>, item: T) -> ControlFlow<()> {
        *counts.get(item, || 0) += 1;
        ControlFlow::Continue(())
    }

    fn combine(&self, counts: &mut KeyTable<T, u64>, later: KeyTable<T, u64>) -> ControlFlow<()> {
        counts.merge(later, |count, later| *count += later);
        ControlFlow::Continue(())
    }

    fn finish(&self, counts: KeyTable<T, u64>) -> KeyTable<T, u64> {
        counts
    }
}

/// See [`Pipeline::into_map`].
#[derive(Clone, Copy, Debug)]
struct MapQuery;

impl<K: Ord + Send, V: Send> Query<Each<(K, V)>> for MapQuery {
    type Accumulator = BTreeMap<K, V>;
    type Output = BTreeMap<K, V>;

    fn start(&self) -> BTreeMap<K, V> {
        BTreeMap::new()
    }

    fn step(&self, map: &mut BTreeMap<K, V>, (key, value): (K, V)) -> ControlFlow<()> {
        map.insert(key, value);
        ControlFlow::Continue(())
    }

    fn combine(&self, map: &mut BTreeMap<K, V>, later: BTreeMap<K, V>) -> ControlFlow<()> {
        map.extend(later);
        ControlFlow::Continue(())
    }

    fn finish(&self, map: BTreeMap<K, V>) -> BTreeMap<K, V> {
        map
    }
}
