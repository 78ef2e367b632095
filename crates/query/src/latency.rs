//! Latencies from invocation to completion, also across chunks.

use super::{Items, Part, Pipeline, Query, Question, Whole, narrower};
use seatrial_history::FixedMap;
use seatrial_history::{Chunk, Fold, OpType, OpView, Order, Process, Symbol};
use std::ops::ControlFlow;

/// The latencies of all completed operations whose times are known.
///
/// ```
/// use seatrial_history::{History, Op, OpType, Process, Value, fold_linear};
/// use seatrial_query as query;
///
/// let read = Op { time: 5, ..Op::invoke(Process::Client(0), "read", Value::Nil) };
/// let done = Op { time: 12, ..read.complete(OpType::Ok, Value::Int(1)) };
/// let history = History::from_unindexed(vec![read, done]);
/// let slowest = query::latencies()
///     .filter(|latency| latency.kind() == OpType::Ok)
///     .group_by(|latency| latency.f(), |latencies| latencies.map(|latency| latency.nanos()).max());
/// assert_eq!(fold_linear(&history, &slowest)?, [("read".into(), Some(7))].into());
/// # Ok::<(), seatrial_history::HistoryError>(())
/// ```
///
/// The items are in the order of completion, except that in each chunk the operations that began in an earlier chunk come
/// first.
pub fn latencies() -> Pipeline<Latencies, Whole> {
    Pipeline::whole()
}

/// The latency of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Latency<'a> {
    invoked: i64,
    completed: i64,
    index: u64,
    completion: Completion<'a>,
}

/// The completion: in its chunk, or a copy of the fields that are needed.
#[derive(Clone, Copy, Debug)]
enum Completion<'a> {
    Here(OpView<'a>),
    Kept(&'a Early),
}

impl Latency<'_> {
    /// The latency in nanoseconds; negative if the clock was set back.
    pub fn nanos(&self) -> i64 {
        self.completed.saturating_sub(self.invoked)
    }

    /// The index of its invocation.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Time of the invocation, in nanoseconds since the test began.
    pub fn invoked(&self) -> i64 {
        self.invoked
    }

    /// Time of the completion.
    pub fn completed(&self) -> i64 {
        self.completed
    }

    /// Type of the completion.
    pub fn kind(&self) -> OpType {
        match self.completion {
            Completion::Here(op) => op.kind(),
            Completion::Kept(kept) => kept.kind,
        }
    }

    /// The function.
    pub fn f(&self) -> Symbol {
        match self.completion {
            Completion::Here(op) => op.f(),
            Completion::Kept(kept) => kept.f,
        }
    }

    /// The process.
    pub fn process(&self) -> Process {
        match self.completion {
            Completion::Here(op) => op.process(),
            Completion::Kept(kept) => kept.process,
        }
    }

    /// Position of the completion in the history.
    pub fn position(&self) -> u64 {
        match self.completion {
            Completion::Here(op) => op.position(),
            Completion::Kept(kept) => kept.position,
        }
    }
}

/// A completion whose invocation is in an earlier chunk.
#[derive(Clone, Copy, Debug)]
struct Early {
    invocation: u64,
    position: u64,
    completed: i64,
    kind: OpType,
    f: Symbol,
    process: Process,
}

impl Early {
    fn new(op: OpView<'_>, distance: u64) -> Early {
        Early {
            invocation: op.position().saturating_sub(distance),
            position: op.position(),
            completed: op.time(),
            kind: op.kind(),
            f: op.f(),
            process: op.process(),
        }
    }
}

/// Completed operations with their latencies.
#[derive(Clone, Copy, Debug)]
pub struct Latencies;

impl Items for Latencies {
    type Item<'a> = Latency<'a>;
}

/// An unknown time.
const UNKNOWN: i64 = -1;

/// The accumulator of consecutive chunks: that of the inner query, the invocations that are open at the end, and the
/// completions whose invocation is in an earlier chunk. The latter two are bounded by the number of concurrent operations.
///
/// An invocation that never completes, not even as `info`, stays open to the end of the history and costs about 30 bytes.
#[derive(Clone, Debug)]
pub struct Pairing<A> {
    inner: Part<A>,
    /// Does the history begin here?
    is_first: bool,
    /// Times and indices by position.
    open: FixedMap<u64, (i64, u64)>,
    early: Vec<Early>,
    scratch: PairingScratch,
}

/// Memory that is kept from chunk to chunk.
#[derive(Clone, Debug, Default)]
struct PairingScratch {
    /// The places of completions with an invocation.
    completions: Vec<u16>,
    /// 1 for each place of a completion with an invocation, or of an invocation whose completion is in the chunk.
    done: Vec<u8>,
}

impl PairingScratch {
    /// Finds the completions without a branch, which could not be predicted.
    fn find(&mut self, pairs: &[i64]) {
        self.done.clear();
        self.done
            .extend(pairs.iter().map(|&distance| u8::from(distance > 0)));
        let mut count = 0;
        self.completions.resize(pairs.len(), 0);
        for (place, &is_completion) in self.done.iter().enumerate() {
            self.completions[count] = place as u16;
            count += usize::from(is_completion);
        }
        self.completions.truncate(count);
    }

    /// The places of invocations that do not complete in the chunk.
    fn left(&self) -> impl Iterator<Item = usize> {
        let words = self.done.chunks(8).enumerate();
        let some = words.filter(|(_, word)| **word != [1; 8]);
        some.flat_map(|(number, word)| {
            let left = word.iter().enumerate().filter(|(_, done)| **done == 0);
            left.map(move |(place, _)| number * 8 + place)
        })
    }
}

impl<A> Pairing<A> {
    /// Adds a completion whose invocation is in an earlier chunk.
    fn complete<Q>(&mut self, query: &Q, early: Early) -> ControlFlow<()>
    where
        Q: Query<Latencies, Accumulator = A>,
    {
        let Some((invoked, index)) = self.open.remove(&early.invocation) else {
            // The history begins here, so its invocation does not exist.
            if !self.is_first {
                self.early.push(early);
            }
            return ControlFlow::Continue(());
        };
        if invoked == UNKNOWN || early.completed == UNKNOWN {
            return ControlFlow::Continue(());
        }
        let latency = Latency {
            invoked,
            index,
            completed: early.completed,
            completion: Completion::Kept(&early),
        };
        self.inner.step::<Latencies, Q>(query, latency)
    }

    /// Adds the completions whose invocation is in the same chunk.
    fn complete_within<Q>(&mut self, query: &Q, chunk: &Chunk) -> ControlFlow<()>
    where
        Q: Query<Latencies, Accumulator = A>,
    {
        let (times, pairs) = (chunk.times(), chunk.pairs());
        let PairingScratch { completions, done } = &mut self.scratch;
        for &place in &*completions {
            let place = usize::from(place);
            let distance = pairs[place];
            if distance > place as i64 {
                continue;
            }
            let invocation = place - distance as usize;
            done[invocation] = 1;
            let (invoked, completed) = (times[invocation], times[place]);
            if invoked == UNKNOWN || completed == UNKNOWN {
                continue;
            }
            let latency = Latency {
                invoked,
                index: chunk.index(invocation),
                completed,
                completion: Completion::Here(chunk.view(place)),
            };
            self.inner.step::<Latencies, Q>(query, latency)?;
        }
        ControlFlow::Continue(())
    }

    /// Adds the completions whose invocation is in an earlier chunk.
    fn complete_early<Q>(&mut self, query: &Q, chunk: &Chunk) -> ControlFlow<()>
    where
        Q: Query<Latencies, Accumulator = A>,
    {
        for (place, &distance) in chunk.pairs().iter().enumerate() {
            if distance > place as i64 {
                let early = Early::new(chunk.view(place), distance.cast_unsigned());
                self.complete(query, early)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Remembers the invocations of the chunk that have not completed in it.
    fn leave_open(&mut self, chunk: &Chunk) {
        for place in self.scratch.left() {
            let op = chunk.view(place);
            let begins = match op.kind() {
                OpType::Invoke => true,
                OpType::Info => !op.process().is_client(),
                OpType::Ok | OpType::Fail => false,
            };
            if begins {
                self.open.insert(op.position(), (op.time(), op.index()));
            }
        }
    }
}

impl<Q: Query<Latencies>> Fold for Question<Latencies, Q> {
    type Accumulator = Pairing<Q::Accumulator>;
    type Output = Q::Output;

    fn name(&self) -> String {
        self.name.clone().into_owned()
    }

    /// Not associative: parts from the middle would pass operations that began before them too early.
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
            scratch: PairingScratch::default(),
        }
    }

    fn reduce(&self, pairing: &mut Self::Accumulator, chunk: &Chunk) -> ControlFlow<()> {
        pairing.is_first |= chunk.first_position() == 0;
        pairing.complete_early(&self.query, chunk)?;
        pairing.scratch.find(chunk.pairs());
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
        for early in later.early {
            pairing.complete(&self.query, early)?;
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
