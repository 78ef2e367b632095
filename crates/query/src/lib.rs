//! Questions about a history, composed from small parts and answered in one pass.
//!
//! ```text
//!   items             stages                          end                  answer
//!   ops() ─────► .clients() ─► .filter(|op| ...) ───► .count() ─────────►  u64
//!   latencies() ────────────► .map(|l| l.nanos()) ──► .quantiles([0.5]) ►  Option<[f64; 1]>
//!                                                     .group_by(key, |ops| <a pipeline again>)
//! ```
//!
//! # Pipelines
//!
//! A question begins with its items ([`ops`], [`clients`], [`owned`], [`latencies`], [`each`]), continues with stages that
//! filter, map or multiply them ([`Pipeline`]), and ends with the answer that is wanted:
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
//! # Questions are folds
//!
//! The result is a [`Question`]: a [`Fold`](seatrial_history::Fold) over a history of any size, on one thread or many. It can
//! also be asked of any iterator ([`Question::of`]), which makes it easy to test:
//!
//! ```
//! use seatrial_query as query;
//!
//! let odd = query::each::<u64>().filter(|number| number % 2 == 1).count();
//! assert_eq!(odd.of([1, 2, 3]), 2);
//! ```
//!
//! Several questions share a pass: submitted to one [`Folder`](seatrial_history::Folder), or fused into one question. Each
//! ends when its answer is final, and the pass ends with the last of them:
//!
//! ```
//! use seatrial_query as query;
//!
//! let numbers = query::each::<i64>();
//! let all = query::fuse((numbers.count(), numbers.sum(), numbers.any(|number| *number < 0)));
//! assert_eq!(all.of([3, -4]), (2, -1, true));
//! ```
//!
//! # Views
//!
//! A [`View`] gives access to single operations of a history that does not fit in memory: by position or index, through
//! filters and maps, with its pairs. It reads chunks on demand and caches them.
//!
//! # What this crate never does
//!
//! - It opens no file: histories are chunks, or a test file that the caller opened.
//! - It reads no clock and computes no verdict.
//! - It builds no operation unless asked to: items are borrowed from the columns of a chunk.
//! - No answer depends on how the history is split into chunks, or on the number of threads; sums of floating-point numbers
//!   may differ in rounding.
//!
//! # Files in reading order
//!
//! 1. `items.rs`, `pipeline.rs`, `question.rs`: items, stages, and the fold that they become; `lib.rs`: the trait [`Query`]
//! 2. Ends: `end.rs`, `pick.rs`, `collect.rs`, `rank.rs`, `number.rs`, `moments.rs`, `distribution.rs`, `kinds.rs`, `closures.rs`
//! 3. Inner questions: `part.rs`, `group_by.rs`, `fuse.rs`, `key_table.rs`
//! 4. `latency.rs`: pairs across chunks
//! 5. `view.rs`, then `view/base.rs`, `view/cache.rs`, `view/filter.rs`, `view/layers.rs`, `view/matches.rs`,
//!    `view/view_completions.rs`, `view/view_fold.rs`

mod closures;
mod collect;
mod distribution;
mod end;
mod excerpt_fold;
mod fuse;
mod group_by;
mod items;
mod key_table;
mod kinds;
mod latency;
mod moments;
mod number;
mod part;
mod pick;
mod pipeline;
mod question;
mod rank;
mod selection;
mod subject;
pub mod view;

pub use distribution::{Bucket, Distribution};
pub use end::Post;
pub use excerpt_fold::{CopiedOps, ExcerptFold};
pub use fuse::{Facet, Fuse, Fused, fuse};
pub use group_by::GroupBy;
pub use items::{Each, Items, Ops};
pub use kinds::Kinds;
pub use latency::{Latencies, Latency, Pairing, latencies};
pub use moments::Moments;
pub use number::Number;
pub use part::Part;
pub use pipeline::{
    ClientOps, KeepStage, MopRef, MopsOfOps, OfKind, OpTest, Pipeline, Stage, Through, Whole,
};
pub use question::Question;
pub use selection::Selection;
pub use subject::{ChunkSubjects, OperationSubject, SubjectSet};
pub use view::{ChunkCache, OpRef, View, ViewError, ViewFilter, ViewOp};

use seatrial_history::{Chunk, Op, Order};
use std::ops::ControlFlow;

/// A computation over a sequence of items that may be split into parts.
///
/// Each of the consecutive parts has an accumulator, to which `step` adds the items in order; `combine` joins the
/// accumulators of adjacent parts. The answer must not depend on the split, up to the rounding of floating-point numbers; a
/// query that cannot guarantee this has [`Order::Linear`].
///
/// A break, from `step` or `combine`, declares the answer final: the accumulator gets no further items or parts (see
/// [`Part`]).
pub trait Query<I: Items>: Send + Sync {
    /// State after some consecutive items.
    type Accumulator: Send;
    /// The answer.
    type Output: Send;

    /// The execution order that it permits.
    fn order(&self) -> Order {
        Order::Associative
    }

    /// Returns the accumulator of no items.
    fn start(&self) -> Self::Accumulator;

    /// Adds the next item.
    fn step(&self, accumulator: &mut Self::Accumulator, item: I::Item<'_>) -> ControlFlow<()>;

    /// Adds a whole chunk of operations from its header, if that suffices; `None` otherwise. Called only if all operations are
    /// items of the query.
    fn step_chunk(
        &self,
        _accumulator: &mut Self::Accumulator,
        _chunk: &Chunk,
    ) -> Option<ControlFlow<()>> {
        None
    }

    /// Adds the accumulator of the part that follows. Not called if the order is linear.
    fn combine(
        &self,
        accumulator: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()>;

    /// Computes the answer.
    fn finish(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// All operations, borrowed from their chunks.
pub fn ops() -> Pipeline<Ops, Whole> {
    Pipeline::whole()
}

/// All operations of clients, borrowed from their chunks.
pub fn clients() -> Pipeline<Ops, KeepStage<Whole, ClientOps>> {
    ops().clients()
}

/// All operations as owned [`Op`]s: some hundred nanoseconds each, so only where an [`Op`] itself is needed.
pub fn owned() -> Pipeline<Each<Op>, Whole> {
    Pipeline::whole()
}

/// Items of any type, for questions about iterators.
pub fn each<T>() -> Pipeline<Each<T>, Whole> {
    Pipeline::whole()
}

/// The order that a fusion of two queries permits: the stricter one.
fn narrower(one: Order, other: Order) -> Order {
    match (one, other) {
        (Order::Linear, _) | (_, Order::Linear) => Order::Linear,
        (Order::Concurrent, _) | (_, Order::Concurrent) => Order::Concurrent,
        _ => Order::Associative,
    }
}

#[cfg(test)]
mod tests;
