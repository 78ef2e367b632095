//! Folds in plain Rust: closures over an accumulator.

use super::pipeline::Stage;
use super::{Each, Items, Pipeline, Query, Question};
use seatrial_history::Order;
use std::ops::ControlFlow;

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// Applies `step` to the accumulator from `start`, item by item in order. Linear, since it has no way to combine parts.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let digits = query::each::<u64>().fold(|| 0, |number, digit| *number = *number * 10 + digit);
    /// assert_eq!(digits.of([4, 0, 7]), 407);
    /// ```
    pub fn fold<A: Send, F>(
        self,
        start: impl Fn() -> A + Send + Sync,
        step: F,
    ) -> Question<I, impl Query<I, Output = A>>
    where
        F: for<'a, 'b> Fn(&'b mut A, <S::Out as Items>::Item<'a>) + Send + Sync,
    {
        self.fold_while(start, move |accumulator, item| {
            step(accumulator, item);
            ControlFlow::Continue(())
        })
    }

    /// [`Pipeline::fold`] that ends when `step` breaks.
    pub fn fold_while<A: Send, F>(
        self,
        start: impl Fn() -> A + Send + Sync,
        step: F,
    ) -> Question<I, impl Query<I, Output = A>>
    where
        F: for<'a, 'b> Fn(&'b mut A, <S::Out as Items>::Item<'a>) -> ControlFlow<()> + Send + Sync,
    {
        self.ask(Linear { start, step })
    }

    /// Applies `step` to an accumulator from `start` for each part; `combine` adds the accumulator of the part that follows.
    /// Concurrent: the answer must not depend on where the items are split.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let bits = query::each::<u64>().fold_combine(
    ///     || 0,
    ///     |bits, number| *bits |= number,
    ///     |bits, later| *bits |= later,
    /// );
    /// assert_eq!(bits.of([1, 4, 5]), 5);
    /// ```
    pub fn fold_combine<A: Send, F>(
        self,
        start: impl Fn() -> A + Send + Sync,
        step: F,
        combine: impl Fn(&mut A, A) + Send + Sync,
    ) -> Question<I, impl Query<I, Output = A>>
    where
        F: for<'a, 'b> Fn(&'b mut A, <S::Out as Items>::Item<'a>) + Send + Sync,
    {
        self.ask(Concurrent {
            start,
            step,
            combine,
        })
    }
}

impl<I: Items, T: Send, S: Stage<I, Out = Each<T>>> Pipeline<I, S> {
    /// Joins all items, each with its neighbour, by an associative `join`; `None` of nothing.
    ///
    /// ```
    /// use seatrial_query as query;
    /// let longest = query::each::<&str>().reduce(|a, b| if b.len() > a.len() { b } else { a });
    /// assert_eq!(longest.of(["a", "bcd", "efg"]), Some("bcd"));
    /// ```
    pub fn reduce<F>(self, join: F) -> Question<I, impl Query<I, Output = Option<T>>>
    where
        F: Fn(T, T) -> T + Send + Sync,
    {
        self.ask(Reduce { join })
    }
}

/// See [`Pipeline::fold_while`].
#[derive(Clone, Copy, Debug)]
struct Linear<N, F> {
    start: N,
    step: F,
}

impl<I: Items, A: Send, N, F> Query<I> for Linear<N, F>
where
    N: Fn() -> A + Send + Sync,
    F: for<'a, 'b> Fn(&'b mut A, I::Item<'a>) -> ControlFlow<()> + Send + Sync,
{
    type Accumulator = A;
    type Output = A;

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> A {
        (self.start)()
    }

    fn step(&self, accumulator: &mut A, item: I::Item<'_>) -> ControlFlow<()> {
        (self.step)(accumulator, item)
    }

    fn combine(&self, _: &mut A, _: A) -> ControlFlow<()> {
        unreachable!("a linear question has no parts to combine")
    }

    fn finish(&self, accumulator: A) -> A {
        accumulator
    }
}

/// See [`Pipeline::fold_combine`].
#[derive(Clone, Copy, Debug)]
struct Concurrent<N, F, C> {
    start: N,
    step: F,
    combine: C,
}

impl<I: Items, A: Send, N, F, C> Query<I> for Concurrent<N, F, C>
where
    N: Fn() -> A + Send + Sync,
    F: for<'a, 'b> Fn(&'b mut A, I::Item<'a>) + Send + Sync,
    C: Fn(&mut A, A) + Send + Sync,
{
    type Accumulator = A;
    type Output = A;

    fn order(&self) -> Order {
        Order::Concurrent
    }

    fn start(&self) -> A {
        (self.start)()
    }

    fn step(&self, accumulator: &mut A, item: I::Item<'_>) -> ControlFlow<()> {
        (self.step)(accumulator, item);
        ControlFlow::Continue(())
    }

    fn combine(&self, accumulator: &mut A, later: A) -> ControlFlow<()> {
        (self.combine)(accumulator, later);
        ControlFlow::Continue(())
    }

    fn finish(&self, accumulator: A) -> A {
        accumulator
    }
}

/// See [`Pipeline::reduce`].
#[derive(Clone, Copy, Debug)]
struct Reduce<F> {
    join: F,
}

impl<T: Send, F: Fn(T, T) -> T + Send + Sync> Query<Each<T>> for Reduce<F> {
    type Accumulator = Option<T>;
    type Output = Option<T>;

    fn start(&self) -> Option<T> {
        None
    }

    fn step(&self, joined: &mut Option<T>, item: T) -> ControlFlow<()> {
        *joined = Some(match joined.take() {
            Some(before) => (self.join)(before, item),
            None => item,
        });
        ControlFlow::Continue(())
    }

    fn combine(&self, joined: &mut Option<T>, later: Option<T>) -> ControlFlow<()> {
        match later {
            Some(item) => self.step(joined, item),
            None => ControlFlow::Continue(()),
        }
    }

    fn finish(&self, joined: Option<T>) -> Option<T> {
        joined
    }
}
