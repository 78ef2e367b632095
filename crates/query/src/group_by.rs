//! Asks one question of each group.

use super::key_table::KeyTable;
use super::pipeline::Stage;
use super::{Items, Part, Pipeline, Query, Question, Through, Whole};
use seatrial_history::Order;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::ControlFlow;

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// Asks the inner question of the items of each key; the answers by key. It never ends early, as a new key may follow, but a
    /// group that has its answer gets no further items.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let lengths = query::each::<&str>().group_by(|word| word.len(), |words| words.count());
    /// assert_eq!(lengths.of(["a", "b", "cd"]), [(1, 2), (2, 1)].into());
    /// ```
    pub fn group_by<K, F, Q>(
        self,
        key: F,
        inner: impl FnOnce(Pipeline<S::Out, Whole>) -> Question<S::Out, Q>,
    ) -> Question<I, Through<S, GroupBy<F, Q>>>
    where
        K: Ord + Hash + Clone + Send,
        F: for<'a, 'b> Fn(&'b <S::Out as Items>::Item<'a>) -> K + Send + Sync,
        Q: Query<S::Out>,
    {
        let inner = inner(Pipeline::whole()).query;
        self.ask(GroupBy { key, inner })
    }
}

/// See [`Pipeline::group_by`].
#[derive(Clone, Copy, Debug)]
pub struct GroupBy<F, Q> {
    key: F,
    inner: Q,
}

impl<I: Items, K, F, Q: Query<I>> Query<I> for GroupBy<F, Q>
where
    K: Ord + Hash + Clone + Send,
    F: for<'a, 'b> Fn(&'b I::Item<'a>) -> K + Send + Sync,
{
    type Accumulator = KeyTable<K, Part<Q::Accumulator>>;
    type Output = BTreeMap<K, Q::Output>;

    fn order(&self) -> Order {
        self.inner.order()
    }

    fn start(&self) -> Self::Accumulator {
        KeyTable::new()
    }

    fn step(&self, groups: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()> {
        let group = groups.get((self.key)(&item), || Part::start(&self.inner));
        let _ = group.step::<I, Q>(&self.inner, item);
        ControlFlow::Continue(())
    }

    fn combine(&self, groups: &mut Self::Accumulator, later: Self::Accumulator) -> ControlFlow<()> {
        groups.merge(later, |group, later| {
            let _ = group.combine::<I, Q>(&self.inner, later);
        });
        ControlFlow::Continue(())
    }

    fn finish(&self, groups: Self::Accumulator) -> Self::Output {
        groups.into_map(|group| group.finish::<I, Q>(&self.inner))
    }
}
