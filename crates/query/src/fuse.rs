//! Fuses several questions into one pass.

use super::pipeline::Stage;
use super::{Items, Part, Pipeline, Query, Question, Through, Whole, narrower};
use seatrial_history::Order;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Fuses a tuple of two to eight questions into one pass; the answer is the tuple of answers. Each question ends when it has
/// its answer, and the pass ends with the last of them.
pub fn fuse<I: Items, T: Fused<I>>(questions: T) -> Question<I, T::Query> {
    Question::new(questions.into_query())
}

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// Asks a tuple of two to eight questions about the items.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let both = query::each::<i64>()
    ///     .filter(|number| *number > 0)
    ///     .fuse(|numbers| (numbers.count(), numbers.map(|number| number * number).sum()));
    /// assert_eq!(both.of([1, -2, 3]), (2, 10));
    /// ```
    pub fn fuse<T: Fused<S::Out>>(
        self,
        inner: impl FnOnce(Pipeline<S::Out, Whole>) -> T,
    ) -> Question<I, Through<S, T::Query>> {
        self.ask(inner(Pipeline::whole()).into_query())
    }

    /// Asks several named questions of one type about the items; the answers by name.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let above = query::each::<u64>().facet(|numbers| {
    ///     [10, 100].map(|limit| (limit, numbers.filter(move |number| *number > limit).count()))
    /// });
    /// assert_eq!(above.of([7, 70, 700]), [(10, 2), (100, 1)].into());
    /// ```
    pub fn facet<K, Q, L>(
        self,
        inner: impl FnOnce(Pipeline<S::Out, Whole>) -> L,
    ) -> Question<I, Through<S, Facet<K, Q>>>
    where
        L: IntoIterator<Item = (K, Question<S::Out, Q>)>,
        K: Ord + Clone + Send + Sync,
        Q: Query<S::Out>,
        for<'a> <S::Out as Items>::Item<'a>: Clone,
    {
        let named = inner(Pipeline::whole()).into_iter();
        let queries = named.map(|(name, question)| (name, question.query));
        self.ask(Facet {
            queries: queries.collect(),
        })
    }
}

/// See [`Pipeline::facet`].
#[derive(Clone, Debug)]
pub struct Facet<K, Q> {
    queries: BTreeMap<K, Q>,
}

impl<I: Items, K: Ord + Clone + Send + Sync, Q: Query<I>> Query<I> for Facet<K, Q>
where
    for<'a> I::Item<'a>: Clone,
{
    /// In the order of the names.
    type Accumulator = Vec<Part<Q::Accumulator>>;
    type Output = BTreeMap<K, Q::Output>;

    fn order(&self) -> Order {
        let orders = self.queries.values().map(Query::order);
        orders.fold(Order::Associative, narrower)
    }

    fn start(&self) -> Self::Accumulator {
        self.queries.values().map(Part::start).collect()
    }

    fn step(&self, parts: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()> {
        let mut flow = ControlFlow::Break(());
        for (part, query) in parts.iter_mut().zip(self.queries.values()) {
            if !part.has_ended() && part.step::<I, Q>(query, item.clone()).is_continue() {
                flow = ControlFlow::Continue(());
            }
        }
        flow
    }

    fn combine(&self, parts: &mut Self::Accumulator, later: Self::Accumulator) -> ControlFlow<()> {
        let mut flow = ControlFlow::Break(());
        for ((part, later), query) in parts.iter_mut().zip(later).zip(self.queries.values()) {
            if part.combine::<I, Q>(query, later).is_continue() {
                flow = ControlFlow::Continue(());
            }
        }
        flow
    }

    fn finish(&self, parts: Self::Accumulator) -> Self::Output {
        let named = self.queries.iter().zip(parts);
        let answers = named.map(|((name, query), part)| (name.clone(), part.finish::<I, Q>(query)));
        answers.collect()
    }
}

/// A tuple of questions about the same items.
pub trait Fused<I: Items> {
    /// The fused query.
    type Query: Query<I>;

    /// Fuses them.
    fn into_query(self) -> Self::Query;
}

/// See [`fuse`]: a tuple of queries.
#[derive(Clone, Copy, Debug)]
pub struct Fuse<T>(T);

/// Implements [`Fused`] and [`Query`] for a tuple of this size.
macro_rules! fuse_tuple {
    ($($query:ident $number:tt),+) => {
        impl<I: Items, $($query: Query<I>),+> Fused<I> for ($(Question<I, $query>,)+)
        where
            for<'a> I::Item<'a>: Clone,
        {
            type Query = Fuse<($($query,)+)>;

            fn into_query(self) -> Self::Query {
                Fuse(($(self.$number.query,)+))
            }
        }

        impl<I: Items, $($query: Query<I>),+> Query<I> for Fuse<($($query,)+)>
        where
            for<'a> I::Item<'a>: Clone,
        {
            type Accumulator = ($(Part<$query::Accumulator>,)+);
            type Output = ($($query::Output,)+);

            fn order(&self) -> Order {
                let mut order = Order::Associative;
                $(order = narrower(order, self.0.$number.order());)+
                order
            }

            fn start(&self) -> Self::Accumulator {
                ($(Part::start(&self.0.$number),)+)
            }

            fn step(&self, parts: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()> {
                let mut flow = ControlFlow::Break(());
                $(
                    let part = &mut parts.$number;
                    if !part.has_ended() {
                        let _ = part.step::<I, $query>(&self.0.$number, item.clone());
                        if !part.has_ended() {
                            flow = ControlFlow::Continue(());
                        }
                    }
                )+
                flow
            }

            fn combine(
                &self,
                parts: &mut Self::Accumulator,
                later: Self::Accumulator,
            ) -> ControlFlow<()> {
                let mut flow = ControlFlow::Break(());
                $(
                    let part = &mut parts.$number;
                    if part.combine::<I, $query>(&self.0.$number, later.$number).is_continue() {
                        flow = ControlFlow::Continue(());
                    }
                )+
                flow
            }

            fn finish(&self, parts: Self::Accumulator) -> Self::Output {
                ($(parts.$number.finish::<I, $query>(&self.0.$number),)+)
            }
        }
    };
}

fuse_tuple!(A 0, B 1);
fuse_tuple!(A 0, B 1, C 2);
fuse_tuple!(A 0, B 1, C 2, D 3);
fuse_tuple!(A 0, B 1, C 2, D 3, E 4);
fuse_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
fuse_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
fuse_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
