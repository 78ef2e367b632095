//! Ends that rank and sample: greatest keys, random picks.

use super::pipeline::Stage;
use super::{Each, Items, Pipeline, Query, Question};
use std::ops::ControlFlow;

impl<I: Items, T: Send, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// The `count` greatest, the greatest first; of equal items, the first ones in their order.
    ///
    /// ```
    /// use seatrial_query as query;
    /// assert_eq!(query::each().top(2).of([3, 1, 4, 1, 5]), [5, 4]);
    /// ```
    pub fn top(self, count: usize) -> Question<I, impl Query<I, Output = Vec<T>>>
    where
        T: Ord + Clone,
    {
        self.top_by_key(count, T::clone)
    }

    /// The `count` with the greatest keys, the greatest first; of those with equal keys, the first ones in their order.
    pub fn top_by_key<K, F>(
        self,
        count: usize,
        key: F,
    ) -> Question<I, impl Query<I, Output = Vec<T>>>
    where
        K: Ord + Send,
        F: Fn(&T) -> K + Send + Sync,
    {
        self.ask(Top { count, key })
    }

    /// A uniform sample of `count` items, or all if there are fewer, in unspecified order. The sample depends only on `seed` and
    /// on the distinct numbers of the items (the indices of operations, say), not on how the items are split.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let ten = query::each::<u64>().sample(10, 7, |number| *number);
    /// assert_eq!(ten.of(0..1_000), ten.of((0..1_000).rev()));
    /// ```
    pub fn sample<F>(
        self,
        count: usize,
        seed: u64,
        number: F,
    ) -> Question<I, impl Query<I, Output = Vec<T>>>
    where
        F: Fn(&T) -> u64 + Send + Sync,
    {
        self.top_by_key(count, move |item| mix(number(item) ^ mix(seed)))
    }
}

/// A bijective scrambling of numbers (the finalizer of splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// See [`Pipeline::top_by_key`].
#[derive(Clone, Copy, Debug)]
struct Top<F> {
    count: usize,
    key: F,
}

impl<F> Top<F> {
    /// Sorts, and drops what is not among the best.
    fn settle<T, K: Ord>(&self, best: &mut TopItems<T, K>) {
        best.items.sort_by(|(one, _), (other, _)| other.cmp(one));
        best.items.truncate(self.count);
        best.settled = best.items.len();
    }

    fn put<T, K: Ord>(&self, best: &mut TopItems<T, K>, key: K, item: T) {
        let is_full = best.settled == self.count;
        let floor = best.settled.checked_sub(1).map(|last| &best.items[last].0);
        if is_full && floor.is_none_or(|floor| key <= *floor) {
            return;
        }
        best.items.push((key, item));
        if best.items.len() >= self.count.max(8).saturating_mul(2) {
            self.settle(best);
        }
    }
}

/// The best items so far, sorted, then candidates since the last sort. Sorted again when it holds twice as many, at least 16.
#[derive(Clone, Debug)]
struct TopItems<T, K> {
    items: Vec<(K, T)>,
    /// Number of sorted items: the best of all before the candidates.
    settled: usize,
}

impl<T: Send, K: Ord + Send, F: Fn(&T) -> K + Send + Sync> Query<Each<T>> for Top<F> {
    type Accumulator = TopItems<T, K>;
    type Output = Vec<T>;

    fn start(&self) -> TopItems<T, K> {
        TopItems {
            items: Vec::new(),
            settled: 0,
        }
    }

    fn step(&self, best: &mut TopItems<T, K>, item: T) -> ControlFlow<()> {
        self.put(best, (self.key)(&item), item);
        ControlFlow::Continue(())
    }

    fn combine(&self, best: &mut TopItems<T, K>, mut later: TopItems<T, K>) -> ControlFlow<()> {
        self.settle(&mut later);
        for (key, item) in later.items {
            self.put(best, key, item);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, mut best: TopItems<T, K>) -> Vec<T> {
        self.settle(&mut best);
        best.items.into_iter().map(|(_, item)| item).collect()
    }
}
