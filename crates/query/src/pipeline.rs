//! Pipelines: stages that filter, map or multiply items.

use super::{Each, Items, Ops, Query, Question};
use seatrial_history::chunk::MopView;
use seatrial_history::{Chunk, Op, OpType, OpView, Order};
use std::marker::PhantomData;
use std::ops::ControlFlow;

/// A stage of a pipeline: passes each item on, changed or unchanged, once, several times or not at all.
pub trait Stage<I: Items>: Send + Sync {
    /// Kind of the items that it passes on.
    type Out: Items;
    /// State from one item to the next; `()` unless it is linear.
    type State: Send;

    /// Does its output depend on earlier items? Then the question is linear.
    const IS_LINEAR: bool = false;

    /// Do all items pass unchanged?
    const IS_WHOLE: bool = false;

    /// The state before the first item.
    fn start(&self) -> Self::State;

    /// Calls `next` with the results for this item; returns a break of `next`.
    fn pass(
        &self,
        state: &mut Self::State,
        item: I::Item<'_>,
        next: impl FnMut(<Self::Out as Items>::Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()>;
}

/// The items that a stage passes on.
type Passed<'a, I, S> = <<S as Stage<I>>::Out as Items>::Item<'a>;

/// The stages of a question about items of kind `I`. An end (`count`, `group_by`, `quantiles`, …) turns it into a
/// [`Question`].
///
/// Ends with inner questions (`group_by`, `fuse`) take a closure that continues the pipeline: `|ops| ops.map(|op|
/// op.time()).max()`.
#[derive(Debug)]
pub struct Pipeline<I, S> {
    stage: S,
    items: PhantomData<fn(I)>,
}

impl<I, S: Clone> Clone for Pipeline<I, S> {
    fn clone(&self) -> Self {
        Pipeline::of_stage(self.stage.clone())
    }
}

impl<I, S: Copy> Copy for Pipeline<I, S> {}

impl<I, S> Pipeline<I, S> {
    fn of_stage(stage: S) -> Pipeline<I, S> {
        Pipeline {
            stage,
            items: PhantomData,
        }
    }
}

impl<I> Pipeline<I, Whole> {
    /// The empty pipeline: all items pass unchanged.
    pub(super) fn whole() -> Self {
        Pipeline::of_stage(Whole)
    }
}

impl<I: Items, S: Stage<I>> Pipeline<I, S> {
    /// Ends the pipeline with a query about its items.
    pub fn ask<Q: Query<S::Out>>(self, query: Q) -> Question<I, Through<S, Q>> {
        Question::new(Through {
            stage: self.stage,
            query,
        })
    }

    /// Replaces each item by `change` of it, which cannot borrow from the item.
    pub fn map<U, F>(self, change: F) -> Pipeline<I, MapStage<S, F>>
    where
        F: for<'a> Fn(Passed<'a, I, S>) -> U + Send + Sync,
    {
        Pipeline::of_stage(MapStage {
            before: self.stage,
            change,
        })
    }

    /// Keeps the items that satisfy `keep`.
    pub fn filter<F>(self, keep: F) -> Pipeline<I, FilterStage<S, F>>
    where
        F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
    {
        Pipeline::of_stage(FilterStage {
            before: self.stage,
            keep,
        })
    }

    /// Drops the items that satisfy `drop`.
    pub fn remove<F>(self, drop: F) -> Pipeline<I, RemoveStage<S, F>>
    where
        F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
    {
        Pipeline::of_stage(RemoveStage {
            before: self.stage,
            drop,
        })
    }

    /// Replaces each item by `change` of it, and drops those for which it is `None`.
    pub fn filter_map<U, F>(self, change: F) -> Pipeline<I, FilterMapStage<S, F>>
    where
        F: for<'a> Fn(Passed<'a, I, S>) -> Option<U> + Send + Sync,
    {
        Pipeline::of_stage(FilterMapStage {
            before: self.stage,
            change,
        })
    }

    /// Replaces each item by all items of `change` of it, which cannot borrow from the item.
    pub fn flat_map<U, F>(self, change: F) -> Pipeline<I, FlatMapStage<S, F>>
    where
        U: IntoIterator,
        F: for<'a> Fn(Passed<'a, I, S>) -> U + Send + Sync,
    {
        Pipeline::of_stage(FlatMapStage {
            before: self.stage,
            change,
        })
    }

    /// Keeps the first `count` items and ends. Makes the question linear, in contrast to [`Pipeline::head`].
    pub fn take(self, count: u64) -> Pipeline<I, TakeStage<S>> {
        Pipeline::of_stage(TakeStage {
            before: self.stage,
            count,
        })
    }

    /// Keeps the items before the first that does not satisfy `keep`, and ends. Makes the question linear.
    pub fn take_while<F>(self, keep: F) -> Pipeline<I, TakeWhileStage<S, F>>
    where
        F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
    {
        Pipeline::of_stage(TakeWhileStage {
            before: self.stage,
            keep,
        })
    }
}

/// Stages for operations.
impl<I: Items, S: Stage<I, Out = Ops>> Pipeline<I, S> {
    /// Keeps the operations of clients.
    pub fn clients(self) -> Pipeline<I, KeepStage<S, ClientOps>> {
        self.keep(ClientOps)
    }

    /// Keeps the operations of this type.
    pub fn of_kind(self, kind: OpType) -> Pipeline<I, KeepStage<S, OfKind>> {
        self.keep(OfKind(kind))
    }

    fn keep<T: OpTest>(self, test: T) -> Pipeline<I, KeepStage<S, T>> {
        Pipeline::of_stage(KeepStage {
            before: self.stage,
            test,
        })
    }

    /// Replaces each operation by its micro-operations; an operation that is no transaction has none.
    pub fn mops(self) -> Pipeline<I, EachMop<S>> {
        Pipeline::of_stage(EachMop { before: self.stage })
    }

    /// Replaces each borrowed operation by an owned one.
    pub fn owned(self) -> Pipeline<I, impl Stage<I, Out = Each<Op>>> {
        self.map(|op| op.op())
    }
}

/// A query after the stages of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Through<S, Q> {
    stage: S,
    query: Q,
}

impl<I: Items, S: Stage<I>, Q: Query<S::Out>> Query<I> for Through<S, Q> {
    type Accumulator = (S::State, Q::Accumulator);
    type Output = Q::Output;

    fn order(&self) -> Order {
        if S::IS_LINEAR {
            Order::Linear
        } else {
            self.query.order()
        }
    }

    fn start(&self) -> Self::Accumulator {
        (self.stage.start(), self.query.start())
    }

    fn step(&self, accumulator: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()> {
        let (state, accumulator) = accumulator;
        let next = |item: Passed<'_, I, S>| self.query.step(accumulator, item);
        self.stage.pass(state, item, next)
    }

    fn step_chunk(
        &self,
        (_, accumulator): &mut Self::Accumulator,
        chunk: &Chunk,
    ) -> Option<ControlFlow<()>> {
        S::IS_WHOLE.then(|| self.query.step_chunk(accumulator, chunk))?
    }

    fn combine(
        &self,
        (_, accumulator): &mut Self::Accumulator,
        (_, later): Self::Accumulator,
    ) -> ControlFlow<()> {
        assert!(!S::IS_LINEAR, "a linear question has no parts to combine");
        self.query.combine(accumulator, later)
    }

    fn finish(&self, (_, accumulator): Self::Accumulator) -> Q::Output {
        self.query.finish(accumulator)
    }
}

/// All items pass unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

impl<I: Items> Stage<I> for Whole {
    type Out = I;
    type State = ();
    const IS_WHOLE: bool = true;

    fn start(&self) {}

    fn pass(
        &self,
        (): &mut (),
        item: I::Item<'_>,
        mut next: impl FnMut(I::Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        next(item)
    }
}

/// See [`Pipeline::map`].
#[derive(Clone, Copy, Debug)]
pub struct MapStage<S, F> {
    before: S,
    change: F,
}

impl<I: Items, U, S: Stage<I>, F> Stage<I> for MapStage<S, F>
where
    F: for<'a> Fn(Passed<'a, I, S>) -> U + Send + Sync,
{
    type Out = Each<U>;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(U) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let change = |item: Passed<'_, I, S>| next((self.change)(item));
        self.before.pass(state, item, change)
    }
}

/// See [`Pipeline::filter`].
#[derive(Clone, Copy, Debug)]
pub struct FilterStage<S, F> {
    before: S,
    keep: F,
}

impl<I: Items, S: Stage<I>, F> Stage<I> for FilterStage<S, F>
where
    F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
{
    type Out = S::Out;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(Passed<'_, I, S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let keep = |item: Passed<'_, I, S>| {
            if (self.keep)(&item) {
                return next(item);
            }
            ControlFlow::Continue(())
        };
        self.before.pass(state, item, keep)
    }
}

/// See [`Pipeline::remove`].
#[derive(Clone, Copy, Debug)]
pub struct RemoveStage<S, F> {
    before: S,
    drop: F,
}

impl<I: Items, S: Stage<I>, F> Stage<I> for RemoveStage<S, F>
where
    F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
{
    type Out = S::Out;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(Passed<'_, I, S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let keep = |item: Passed<'_, I, S>| {
            if (self.drop)(&item) {
                return ControlFlow::Continue(());
            }
            next(item)
        };
        self.before.pass(state, item, keep)
    }
}

/// A property of operations. A named type instead of a closure, so that the pipeline stays copyable.
pub trait OpTest: Send + Sync {
    /// Has this operation the property?
    fn is_true_of(&self, op: OpView<'_>) -> bool;
}

/// See [`Pipeline::clients`].
#[derive(Clone, Copy, Debug)]
pub struct ClientOps;

impl OpTest for ClientOps {
    fn is_true_of(&self, op: OpView<'_>) -> bool {
        op.process().is_client()
    }
}

/// See [`Pipeline::of_kind`].
#[derive(Clone, Copy, Debug)]
pub struct OfKind(OpType);

impl OpTest for OfKind {
    fn is_true_of(&self, op: OpView<'_>) -> bool {
        op.kind() == self.0
    }
}

/// Operations with a property.
#[derive(Clone, Copy, Debug)]
pub struct KeepStage<S, T> {
    before: S,
    test: T,
}

impl<I: Items, S: Stage<I, Out = Ops>, T: OpTest> Stage<I> for KeepStage<S, T> {
    type Out = Ops;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(OpView<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.before.pass(state, item, |op: OpView<'_>| {
            if self.test.is_true_of(op) {
                return next(op);
            }
            ControlFlow::Continue(())
        })
    }
}

/// See [`Pipeline::filter_map`].
#[derive(Clone, Copy, Debug)]
pub struct FilterMapStage<S, F> {
    before: S,
    change: F,
}

impl<I: Items, U, S: Stage<I>, F> Stage<I> for FilterMapStage<S, F>
where
    F: for<'a> Fn(Passed<'a, I, S>) -> Option<U> + Send + Sync,
{
    type Out = Each<U>;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(U) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let change = |item: Passed<'_, I, S>| match (self.change)(item) {
            Some(item) => next(item),
            None => ControlFlow::Continue(()),
        };
        self.before.pass(state, item, change)
    }
}

/// See [`Pipeline::flat_map`].
#[derive(Clone, Copy, Debug)]
pub struct FlatMapStage<S, F> {
    before: S,
    change: F,
}

impl<I: Items, U: IntoIterator, S: Stage<I>, F> Stage<I> for FlatMapStage<S, F>
where
    F: for<'a> Fn(Passed<'a, I, S>) -> U + Send + Sync,
{
    type Out = Each<U::Item>;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(U::Item) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let change =
            |item: Passed<'_, I, S>| (self.change)(item).into_iter().try_for_each(&mut next);
        self.before.pass(state, item, change)
    }
}

/// See [`Pipeline::take`].
#[derive(Clone, Copy, Debug)]
pub struct TakeStage<S> {
    before: S,
    count: u64,
}

impl<I: Items, S: Stage<I>> Stage<I> for TakeStage<S> {
    type Out = S::Out;
    /// The state of the stage before, and the number of items that passed.
    type State = (S::State, u64);
    const IS_LINEAR: bool = true;

    fn start(&self) -> Self::State {
        (self.before.start(), 0)
    }

    fn pass(
        &self,
        (state, passed): &mut Self::State,
        item: I::Item<'_>,
        mut next: impl FnMut(Passed<'_, I, S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if *passed == self.count {
            return ControlFlow::Break(());
        }
        let count = |item: Passed<'_, I, S>| {
            *passed += 1;
            next(item)?;
            if *passed == self.count {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        self.before.pass(state, item, count)
    }
}

/// See [`Pipeline::take_while`].
#[derive(Clone, Copy, Debug)]
pub struct TakeWhileStage<S, F> {
    before: S,
    keep: F,
}

impl<I: Items, S: Stage<I>, F> Stage<I> for TakeWhileStage<S, F>
where
    F: for<'a, 'b> Fn(&'b Passed<'a, I, S>) -> bool + Send + Sync,
{
    type Out = S::Out;
    type State = S::State;
    const IS_LINEAR: bool = true;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(Passed<'_, I, S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let keep = |item: Passed<'_, I, S>| {
            if (self.keep)(&item) {
                return next(item);
            }
            ControlFlow::Break(())
        };
        self.before.pass(state, item, keep)
    }
}

/// A micro-operation and the operation that it is part of.
#[derive(Clone, Copy, Debug)]
pub struct MopRef<'a> {
    /// The transaction.
    pub op: OpView<'a>,
    /// Its part; keys are ids of the operation's chunk.
    pub mop: MopView<'a>,
}

/// Micro-operations, borrowed from their chunk.
#[derive(Clone, Copy, Debug)]
pub struct MopsOfOps;

impl Items for MopsOfOps {
    type Item<'a> = MopRef<'a>;
}

/// See [`Pipeline::mops`].
#[derive(Clone, Copy, Debug)]
pub struct EachMop<S> {
    before: S,
}

impl<I: Items, S: Stage<I, Out = Ops>> Stage<I> for EachMop<S> {
    type Out = MopsOfOps;
    type State = S::State;
    const IS_LINEAR: bool = S::IS_LINEAR;

    fn start(&self) -> S::State {
        self.before.start()
    }

    fn pass(
        &self,
        state: &mut S::State,
        item: I::Item<'_>,
        mut next: impl FnMut(MopRef<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.before.pass(state, item, |op: OpView<'_>| {
            let mut mops = op.chunk().mops(op.place()).iter();
            mops.try_for_each(|mop| next(MopRef { op, mop }))
        })
    }
}
