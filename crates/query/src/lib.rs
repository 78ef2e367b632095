//! Questions about a history, put together from small parts and answered in one pass.
//!
//! A question begins with what it goes through ([`ops`], [`clients`], [`owned`], [`latencies`], [`each`]), goes on
//! with steps that let pass, change or multiply items ([`Pipeline`]), and ends with what is wanted of them:
//!
//! ```
//! use seatrial_history::{History, Op, OpType, Process, Value, fold_linear};
//! use seatrial_query as query;
//!
//! let write = |index: u64, value| Op {
//!     index,
//!     time: index as i64 * 10,
//!     ..Op::invoke(Process::Client(index % 2), "write", Value::Int(value))
//! };
//! let history = History::from_ops(vec![write(0, 7), write(1, 8), write(2, 7)]);
//!
//! let per_process = query::clients()
//!     .filter(|op| op.kind() == OpType::Invoke)
//!     .group_by(|op| op.process(), |ops| ops.map(|op| op.time()).max());
//! let answer = fold_linear(&history, &per_process)?;
//! assert_eq!(answer[&Process::Client(0)], Some(20));
//! # Ok::<(), seatrial_history::HistoryError>(())
//! ```
//!
//! What comes out is a [`Question`]: a [`Fold`](seatrial_history::Fold) over a history of any size, in one thread or in many, and
//! something that can be asked of any iterator ([`Question::of`]), which is how one tests it:
//!
//! ```
//! use seatrial_query as query;
//!
//! let odd = query::each::<u64>().filter(|number| number % 2 == 1).count();
//! assert_eq!(odd.of([1, 2, 3]), 2);
//! ```
//!
//! Several questions share a pass, each ends when it has its answer, and the pass ends with the last of them:
//!
//! ```
//! use seatrial_query as query;
//!
//! let numbers = query::each::<i64>();
//! let all = query::fuse((numbers.count(), numbers.sum(), numbers.any(|number| *number < 0)));
//! assert_eq!(all.of([3, -4]), (2, -1, true));
//! ```
//!
//! A history that does not fit in memory is looked at, operation by operation, through a [`View`].
//!
//! What is absent: no file is opened (histories come as chunks, or as a test file that the caller opened), no clock is read,
//! and no verdict is reached.

mod collect;
mod distribution;
mod end;
mod fuse;
mod group;
mod items;
mod kinds;
mod latency;
mod moments;
mod number;
mod part;
mod pick;
mod pipeline;
mod plain;
mod question;
mod rank;
mod table;
pub mod view;

pub use distribution::{Bucket, Distribution};
pub use end::Post;
pub use fuse::{Facet, Fuse, Fused, fuse};
pub use group::GroupBy;
pub use items::{Each, Items, Ops};
pub use kinds::Kinds;
pub use latency::{Latencies, Latency, Pairing, latencies};
pub use moments::Moments;
pub use number::Number;
pub use part::Part;
pub use pipeline::{
    Clients, Keep, Mop, MopsOfOps, OfKind, OpTest, Pipeline, Stage, Through, Whole,
};
pub use question::Question;
pub use view::{ChunkCache, Filter, OpRef, View, ViewError, ViewOp};

use seatrial_history::{Chunk, Op, Order};
use std::ops::ControlFlow;

/// A question about a sequence of items that can be asked of its parts.
///
/// The items are split into parts that follow each other; each part gets an accumulator that sees its items in order;
/// the accumulators of neighbours are combined. However the items are split, the answer is the same, up to the
/// rounding of floating-point numbers; a question for which that cannot be says [`Order::Linear`].
///
/// A break, from `step` or `combine`, says that the answer is known whatever items follow: neither further items nor
/// later parts are then shown to the accumulator (see [`Part`]).
pub trait Query<I: Items>: Send + Sync {
    /// What is known of a part so far.
    type Accumulator: Send;
    /// The answer.
    type Output: Send;

    /// How it may be carried out.
    fn order(&self) -> Order {
        Order::Associative
    }

    /// Nothing is known.
    fn start(&self) -> Self::Accumulator;

    /// Takes the next item into account.
    fn step(&self, accumulator: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()>;

    /// Takes a whole chunk of operations into account by what stands at its front, if that says enough. Only a query about
    /// all operations is asked.
    fn step_chunk(
        &self,
        _accumulator: &mut Self::Accumulator,
        _chunk: &Chunk,
    ) -> Option<ControlFlow<()>> {
        None
    }

    /// Takes what is known of the part right behind into account. Not called when the order is linear.
    fn combine(
        &self,
        accumulator: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()>;

    /// The answer.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// All operations, borrowed where they stand.
pub fn ops() -> Pipeline<Ops, Whole> {
    Pipeline::whole()
}

/// All operations of clients, borrowed where they stand.
pub fn clients() -> Pipeline<Ops, Keep<Whole, Clients>> {
    ops().clients()
}

/// All operations, each built anew: some hundred nanoseconds each, so only where [`Op`] itself is wanted.
pub fn owned() -> Pipeline<Each<Op>, Whole> {
    Pipeline::whole()
}

/// Items of any kind, for questions that are asked of iterators.
pub fn each<T>() -> Pipeline<Each<T>, Whole> {
    Pipeline::whole()
}

/// What may be carried out together only in the narrower of these ways.
fn narrower(one: Order, other: Order) -> Order {
    match (one, other) {
        (Order::Linear, _) | (_, Order::Linear) => Order::Linear,
        (Order::Concurrent, _) | (_, Order::Concurrent) => Order::Concurrent,
        _ => Order::Associative,
    }
}

#[cfg(test)]
mod tests;
