//! Questions: a pipeline with its end, which is a fold over histories.

use super::{Each, Items, Ops, Query};
use seatrial_history::{Chunk, Fold, Op, Order};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::ControlFlow;

/// A question about items of kind `I`. Over operations it is a [`Fold`] whose inner loop is compiled for this question: one
/// virtual call per chunk, none per operation.
#[derive(Clone, Debug)]
pub struct Question<I, Q> {
    pub(super) query: Q,
    pub(crate) name: Cow<'static, str>,
    pub(crate) asap: bool,
    items: PhantomData<fn(I)>,
}

impl<I: Items, Q: Query<I>> Question<I, Q> {
    /// Creates the question of a query.
    pub fn new(query: Q) -> Question<I, Q> {
        Question {
            query,
            name: Cow::Borrowed("query"),
            asap: false,
            items: PhantomData,
        }
    }

    /// Sets its name in errors and statistics; "query" by default.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Question<I, Q> {
        self.name = name.into();
        self
    }

    /// Gives it priority, see [`Fold::asap`].
    pub fn asap(mut self) -> Question<I, Q> {
        self.asap = true;
        self
    }

    /// Computes the answer for the items of an iterator.
    pub fn of<'a>(&self, items: impl IntoIterator<Item = I::Item<'a>>) -> Q::Output {
        let mut accumulator = self.query.start();
        for item in items {
            if self.query.step(&mut accumulator, item).is_break() {
                break;
            }
        }
        self.query.finish(accumulator)
    }
}

/// A question can be used wherever a query is expected.
impl<I: Items, Q: Query<I>> Query<I> for Question<I, Q> {
    type Accumulator = Q::Accumulator;
    type Output = Q::Output;

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

    fn finish(&self, accumulator: Q::Accumulator) -> Q::Output {
        self.query.finish(accumulator)
    }
}

/// Implements [`Fold`] for questions about these items, which `$items` gives for a chunk.
macro_rules! fold_over {
    ($kind:ty, $items:expr) => {
        impl<Q: Query<$kind>> Fold for Question<$kind, Q> {
            /// `None` before the first chunk.
            type Accumulator = Option<Q::Accumulator>;
            type Output = Q::Output;

            fn name(&self) -> String {
                self.name.clone().into_owned()
            }

            fn order(&self) -> Order {
                self.query.order()
            }

            fn asap(&self) -> bool {
                self.asap
            }

            fn start(&self) -> Self::Accumulator {
                None
            }

            fn reduce(
                &self,
                accumulator: &mut Self::Accumulator,
                chunk: &Chunk,
            ) -> ControlFlow<()> {
                // A local accumulator can stay in registers for the whole chunk.
                let mut own = accumulator.take().unwrap_or_else(|| self.query.start());
                let flow = match self.query.step_chunk(&mut own, chunk) {
                    Some(flow) => flow,
                    None => $items(chunk).try_for_each(|item| self.query.step(&mut own, item)),
                };
                *accumulator = Some(own);
                flow
            }

            fn combine(
                &self,
                accumulator: &mut Self::Accumulator,
                later: Self::Accumulator,
            ) -> ControlFlow<()> {
                match (accumulator, later) {
                    (Some(accumulator), Some(later)) => self.query.combine(accumulator, later),
                    (accumulator @ None, later) => {
                        *accumulator = later;
                        ControlFlow::Continue(())
                    }
                    (Some(_), None) => ControlFlow::Continue(()),
                }
            }

            fn finish(&self, accumulator: Self::Accumulator) -> Q::Output {
                self.query
                    .finish(accumulator.unwrap_or_else(|| self.query.start()))
            }
        }
    };
}

fold_over!(Ops, Chunk::views);
fold_over!(Each<Op>, Chunk::ops);
