//! An accumulator with the flag whether its answer is final.

use super::{Items, Query};
use std::ops::ControlFlow;

/// An accumulator of an inner query, with the flag whether its answer is final. A final one gets no further items while the
/// other inner queries continue.
#[derive(Clone, Debug)]
pub struct Part<A> {
    accumulator: A,
    has_ended: bool,
}

impl<A> Part<A> {
    /// Creates the accumulator of no items.
    pub fn start<I: Items, Q: Query<I, Accumulator = A>>(query: &Q) -> Part<A> {
        Part {
            accumulator: query.start(),
            has_ended: false,
        }
    }

    /// Is the answer final?
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Adds the next item unless the answer is final. Breaks if it is final, or becomes so.
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

    /// Combines the part that follows, unless the answer is final. Breaks if it is final, or becomes so.
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
