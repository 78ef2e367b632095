//! An accumulator that knows whether it has its answer.

use super::{Items, Query};
use std::ops::ControlFlow;

/// An accumulator that knows whether it has its answer: what a query keeps that asks others of some of its items. One
/// that has its answer is shown nothing more while its neighbours go on.
#[derive(Clone, Debug)]
pub struct Part<A> {
    accumulator: A,
    has_ended: bool,
}

impl<A> Part<A> {
    /// Nothing is known.
    pub fn start<I: Items, Q: Query<I, Accumulator = A>>(query: &Q) -> Part<A> {
        Part {
            accumulator: query.start(),
            has_ended: false,
        }
    }

    /// Is the answer known whatever follows?
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes the next item into account, unless it has ended. Breaks if it has, or now does.
    pub fn step<I: Items, Q: Query<I, Accumulator = A>>(
        &mut self,
        query: &Q,
        item: I::Item<'_>,
    ) -> ControlFlow<()> {
        if self.has_ended || query.step(&mut self.accumulator, item).is_break() {
            self.has_ended = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Takes the part right behind into account, unless this one has ended. Breaks if either has, or now does.
    pub fn combine<I: Items, Q: Query<I, Accumulator = A>>(
        &mut self,
        query: &Q,
        later: Part<A>,
    ) -> ControlFlow<()> {
        if !self.has_ended {
            let flow = query.combine(&mut self.accumulator, later.accumulator);
            self.has_ended = flow.is_break() || later.has_ended;
        }
        if self.has_ended {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// The answer.
    pub fn finish<I: Items, Q: Query<I, Accumulator = A>>(self, query: &Q) -> Q::Output {
        query.finish(self.accumulator)
    }
}
