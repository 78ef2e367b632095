//! From invocation to completion, also where these lie in different chunks.

use super::{Items, Part, Pipeline, Query, Question, Whole, narrower};
use crate::hash::FixedMap;
use crate::{Chunk, Fold, OpType, Order, Process, Symbol};
use std::ops::ControlFlow;

/// What every completed operation took, for those whose times are known.
///
/// ```
/// use seatrial_history::{History, Op, OpType, Process, Value, fold_linear, query};
///
/// let read = Op { time: 5, ..Op::invoke(Process::Client(0), "read", Value::Nil) };
/// let done = Op { time: 12, ..read.complete(OpType::Ok, Value::Int(1)) };
/// let history = History::from_unindexed(vec![read, done]);
/// let slowest = query::latencies()
///     .filter(|latency| latency.kind == OpType::Ok)
///     .group_by(|latency| latency.f, |latencies| latencies.map(|latency| latency.nanos()).max());
/// assert_eq!(fold_linear(&history, &slowest)?, [("read".into(), Some(7))].into());
/// # Ok::<(), seatrial_history::HistoryError>(())
/// ```
///
/// They come in the order of their completions, except that of each chunk those come first that began in an earlier
/// one.
pub fn latencies() -> Pipeline<Latencies, Whole> {
    Pipeline::whole()
}

/// How long one operation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// When it began, in nanoseconds since the test did.
    pub invoked: i64,
    /// When it completed.
    pub completed: i64,
    /// How it ended.
    pub kind: OpType,
    /// What it did.
    pub f: Symbol,
    /// Who did it.
    pub process: Process,
}

impl Latency {
    /// Nanoseconds that it took; below zero if the clock was set back.
    pub fn nanos(&self) -> i64 {
        self.completed.saturating_sub(self.invoked)
    }
}

/// Completed operations with what they took.
#[derive(Clone, Copy, Debug)]
pub struct Latencies;

impl Items for Latencies {
    type Item<'a> = Latency;
}

/// A time that is not known.
const UNKNOWN: i64 = -1;

/// What is known of a run of chunks: the accumulator of the inner query, the invocations that are still open at its end,
/// and the completions whose invocation is in front of it. The latter two are few: as many as there are operations at
/// once.
///
/// Its downside: an invocation that never completes, not even as `info`, stays open to the end of the history, at
/// about 20 bytes.
#[derive(Clone, Debug)]
pub struct Pairing<A> {
    inner: Part<A>,
    /// Does the history begin here?
    is_first: bool,
    /// Times by position.
    open: FixedMap<u64, i64>,
    /// With the positions of their invocations.
    early: Vec<(u64, Latency)>,
    /// Which operations of the chunk are invocations that complete in it; kept for the next chunk.
    matched: Vec<bool>,
}

impl<A> Pairing<A> {
    /// Takes into account a completion whose invocation, at `position`, is in front of its chunk.
    fn complete<Q>(&mut self, query: &Q, position: u64, latency: Latency) -> ControlFlow<()>
    where
        Q: Query<Latencies, Accumulator = A>,
    {
        let Some(invoked) = self.open.remove(&position) else {
            // Without a beginning there will never be one.
            if !self.is_first {
                self.early.push((position, latency));
            }
            return ControlFlow::Continue(());
        };
        let latency = Latency { invoked, ..latency };
        if invoked == UNKNOWN || latency.completed == UNKNOWN {
            return ControlFlow::Continue(());
        }
        self.inner.step::<Latencies, Q>(query, latency)
    }

    /// Takes into account the completions whose invocation is in the same chunk.
    fn complete_within<Q>(&mut self, query: &Q, chunk: &Chunk) -> ControlFlow<()>
    where
        Q: Query<Latencies, Accumulator = A>,
    {
        let times = chunk.times();
        self.matched.clear();
        self.matched.resize(chunk.len(), false);
        for (place, &distance) in chunk.pairs().iter().enumerate() {
            let Some(invocation) = within(place, distance) else {
                continue;
            };
            self.matched[invocation] = true;
            let (invoked, completed) = (times[invocation], times[place]);
            if invoked != UNKNOWN && completed != UNKNOWN {
                let latency = latency(chunk, place, invoked);
                self.inner.step::<Latencies, Q>(query, latency)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Remembers the invocations of the chunk that have not completed in it.
    fn leave_open(&mut self, chunk: &Chunk) {
        let kinds = chunk.kinds().iter().zip(chunk.pairs());
        for (place, (matched, (kind, &distance))) in self.matched.iter().zip(kinds).enumerate() {
            if *matched || distance > 0 || matches!(kind, OpType::Ok | OpType::Fail) {
                continue;
            }
            if *kind == OpType::Invoke || !chunk.process(place).is_client() {
                let position = chunk.first_position() + place as u64;
                self.open.insert(position, chunk.times()[place]);
            }
        }
    }
}

/// The place of the invocation so far in front, if it is in the same chunk.
fn within(place: usize, distance: i64) -> Option<usize> {
    if distance <= 0 {
        return None;
    }
    place.checked_sub(usize::try_from(distance).ok()?)
}

/// The operation completed at `place`.
fn latency(chunk: &Chunk, place: usize, invoked: i64) -> Latency {
    Latency {
        invoked,
        completed: chunk.times()[place],
        kind: chunk.kinds()[place],
        f: chunk.f(place),
        process: chunk.process(place),
    }
}

impl<Q: Query<Latencies>> Fold for Question<Latencies, Q> {
    type Accumulator = Pairing<Q::Accumulator>;
    type Output = Q::Output;

    fn name(&self) -> String {
        self.name.clone().into_owned()
    }

    /// Parts from the middle would bring what began before them too early.
    fn order(&self) -> Order {
        narrower(self.query.order(), Order::Concurrent)
    }

    fn asap(&self) -> bool {
        self.asap
    }

    fn start(&self) -> Self::Accumulator {
        Pairing {
            inner: Part::start(&self.query),
            is_first: false,
            open: FixedMap::default(),
            early: Vec::new(),
            matched: Vec::new(),
        }
    }

    fn reduce(&self, pairing: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()> {
        pairing.is_first |= chunk.first_position() == 0;
        for (place, &distance) in chunk.pairs().iter().enumerate() {
            if distance > place as i64 {
                let position = chunk.first_position() + place as u64;
                let invocation = position.saturating_sub(distance.cast_unsigned());
                let latency = latency(chunk, place, UNKNOWN);
                pairing.complete(&self.query, invocation, latency)?;
            }
        }
        pairing.complete_within(&self.query, chunk)?;
        pairing.leave_open(chunk);
        ControlFlow::Continue(())
    }

    fn combine(
        &self,
        pairing: &mut Self::Accumulator,
        later: Self::Accumulator,
    ) -> ControlFlow<()> {
        pairing.is_first |= later.is_first;
        for (position, latency) in later.early {
            pairing.complete(&self.query, position, latency)?;
        }
        pairing.open.extend(later.open);
        pairing
            .inner
            .combine::<Latencies, Q>(&self.query, later.inner)
    }

    fn finish(&self, pairing: Self::Accumulator) -> Q::Output {
        pairing.inner.finish::<Latencies, Q>(&self.query)
    }
}
