//! Ends for items of any kind: count, any, every.

use super::pipeline::Stage;
use super::{Items, Pipeline, Query, Question};
use seatrial_history::{Chunk, Order};
use std::ops::ControlFlow;

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// Number of items.
    pub fn count(self) -> Question<I, impl Query<I, Output = u64>> {
        self.ask(CountQuery)
    }

    /// Does one satisfy `test`? Ends at the first that does.
    pub fn any<F>(self, test: F) -> Question<I, impl Query<I, Output = bool>>
    where
        F: for<'a, 'b> Fn(&'b <S::Out as Items>::Item<'a>) -> bool + Send + Sync,
    {
        self.ask(AnyQuery { test, answer: true })
    }

    /// Do all satisfy `test`? Ends at the first that does not.
    pub fn every<F>(self, test: F) -> Question<I, impl Query<I, Output = bool>>
    where
        F: for<'a, 'b> Fn(&'b <S::Out as Items>::Item<'a>) -> bool + Send + Sync,
    {
        self.ask(AnyQuery {
            test,
            answer: false,
        })
    }
}

/// See [`Pipeline::count`].
#[derive(Clone, Copy, Debug)]
struct CountQuery;

impl<I: Items> Query<I> for CountQuery {
    type Accumulator = u64;
    type Output = u64;

    fn start(&self) -> u64 {
        0
    }

    fn step(&self, count: &mut u64, _: I::Item<'_>) -> ControlFlow<()> {
        // A count cannot reach 2^64; without the overflow check the loop has no branch.
        *count = count.wrapping_add(1);
        ControlFlow::Continue(())
    }

    fn step_chunk(&self, count: &mut u64, chunk: &Chunk) -> Option<ControlFlow<()>> {
        *count += chunk.len() as u64;
        Some(ControlFlow::Continue(()))
    }

    fn combine(&self, count: &mut u64, later: u64) -> ControlFlow<()> {
        *count += later;
        ControlFlow::Continue(())
    }

    fn finish(&self, count: u64) -> u64 {
        count
    }
}

/// Searches an item for which `test` returns `answer`; the answer to the question is then `answer`, else its opposite. See
/// [`Pipeline::any`], [`Pipeline::every`].
#[derive(Clone, Copy, Debug)]
struct AnyQuery<F> {
    test: F,
    answer: bool,
}

impl<I: Items, F> Query<I> for AnyQuery<F>
where
    F: for<'a, 'b> Fn(&'b I::Item<'a>) -> bool + Send + Sync,
{
    /// Was such an item found?
    type Accumulator = bool;
    type Output = bool;

    fn start(&self) -> bool {
        false
    }

    fn step(&self, found: &mut bool, item: I::Item<'_>) -> ControlFlow<()> {
        if (self.test)(&item) == self.answer {
            *found = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, found: &mut bool, later: bool) -> ControlFlow<()> {
        *found |= later;
        if *found {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, found: bool) -> bool {
        found == self.answer
    }
}

impl<I: Items, Q: Query<I>> Question<I, Q> {
    /// The same question with `change` applied to its answer.
    pub fn post<U: Send, F>(self, change: F) -> Question<I, Post<Q, F>>
    where
        F: Fn(Q::Output) -> U + Send + Sync,
    {
        let Question {
            query, name, asap, ..
        } = self;
        let mut question = Question::new(Post { query, change }).named(name);
        question.asap = asap;
        question
    }
}

/// See [`Question::post`].
#[derive(Clone, Copy, Debug)]
pub struct Post<Q, F> {
    query: Q,
    change: F,
}

impl<I: Items, U: Send, Q: Query<I>, F> Query<I> for Post<Q, F>
where
    F: Fn(Q::Output) -> U + Send + Sync,
{
    type Accumulator = Q::Accumulator;
    type Output = U;

    fn order(&self) -> Order {
        self.query.order()
    }

    fn start(&self) -> Q::Accumulator {
        self.query.start()
    }

    fn step(&self, accumulator: &mut Q::Accumulator, item: I::Item<'_>) -> ControlFlow<()> {
        self.query.step(accumulator, item)
    }

    fn step_chunk(
        &self,
        accumulator: &mut Q::Accumulator,
        chunk: &Chunk,
    ) -> Option<ControlFlow<()>> {
        self.query.step_chunk(accumulator, chunk)
    }

    fn combine(&self, accumulator: &mut Q::Accumulator, later: Q::Accumulator) -> ControlFlow<()> {
        self.query.combine(accumulator, later)
    }

    fn finish(&self, accumulator: Q::Accumulator) -> U {
        (self.change)(self.query.finish(accumulator))
    }
}
