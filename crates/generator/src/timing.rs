//! Combinators on time and concurrency: rotation by the clock, aligned instants, caching, a limit of open operations.

use seatrial_history::Op;
use seatrial_machine::Time;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Thread, Tree};

/// Rotates among generators by the clock. See [`cycle_times`].
#[derive(Debug)]
pub struct CycleTimes<G> {
    /// The length of each turn, and its generator.
    turns: Vec<(Duration, G)>,
    /// The length of a round: the sum of all turns.
    period: Duration,
    /// When the first round began: at the first committed operation.
    begin: Option<Time>,
    /// For the operation returned last: the beginning that it assumed, and the index of its generator.
    candidate: (Time, usize),
    ended: bool,
}

/// Turns searched for an operation in one call of `next`; then the answer is pending.
const TURNS_MAX: u32 = 10_000;

/// Rotates among generators by the clock: the first for its duration, then the second, and so on, and again from the
/// first. Each keeps its state until its next turn; all receive all events. Ends when the generator of the current turn
/// has ended. A generator whose next operation is due after its turn cedes the rest of the turn to the next one.
///
/// ```text
///   turns    a: 2 s   b: 1 s
///   time     0    1    2    3    4    5    6
///            ├─── a ───┼─ b ┼─── a ───┼─ b ┼── …      period 3 s
/// ```
///
/// Turns of zero length are dropped.
pub fn cycle_times<G: Generator>(turns: impl IntoIterator<Item = (Duration, G)>) -> CycleTimes<G> {
    let turns: Vec<_> = turns
        .into_iter()
        .filter(|(duration, _)| !duration.is_zero())
        .collect();
    // A turn of zero length would be the current one at no time, and a period of zero a division by zero below.
    debug_assert!(turns.iter().all(|(duration, _)| !duration.is_zero()));
    CycleTimes {
        period: turns.iter().map(|(duration, _)| duration).sum(),
        ended: turns.is_empty(),
        turns,
        begin: None,
        candidate: (Time::ZERO, 0),
    }
}

impl<G> CycleTimes<G> {
    /// The index of the current turn at `now`, and when that turn began.
    fn turn_at(&self, begin: Time, now: Time) -> (usize, Time) {
        let passed = now.since(begin).as_nanos();
        let mut rest = passed % self.period.as_nanos();
        let mut start = begin + nanoseconds(passed - rest);
        for (index, (duration, _)) in self.turns.iter().enumerate() {
            match rest.checked_sub(duration.as_nanos()) {
                Some(later) => rest = later,
                None => return (index, start),
            }
            start += *duration;
        }
        (0, start)
    }
}

/// A duration of `count` nanoseconds, at most `u64::MAX` (584 years).
fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

impl<G: Generator> Generator for CycleTimes<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.ended {
            return Next::Exhausted;
        }
        let begin = self.begin.unwrap_or(context.time());
        let (mut index, mut start) = self.turn_at(begin, context.time());
        // The search continues into later rounds: there, a generator is asked with the time of its later turn.
        for _ in 0..TURNS_MAX {
            let (duration, generator) = &mut self.turns[index];
            let end = start + *duration;
            match generator.next(&context.at(context.time().max(start))) {
                Next::Op(op) if time_of(&op) >= end => {}
                Next::Op(mut op) => {
                    not_before(&mut op, start);
                    self.candidate = (begin, index);
                    return Next::Op(op);
                }
                other => {
                    self.ended = matches!(other, Next::Exhausted);
                    return other;
                }
            }
            index = (index + 1) % self.turns.len();
            start = end;
        }
        Next::Pending
    }

    fn commit(&mut self) {
        let (begin, index) = self.candidate;
        self.begin = Some(begin);
        self.turns[index].1.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        for (_, generator) in &mut self.turns {
            generator.update(context, event);
        }
    }

    fn tree(&self) -> Tree {
        let turns = self.turns.iter().map(|(_, generator)| generator);
        Tree::over(format!("cycle-times, a round is {:?}", self.period), turns)
    }
}

/// See [`Generator::delay_til`].
#[derive(Clone, Debug)]
pub struct DelayTil<G> {
    interval: Duration,
    generator: G,
}

impl<G: Generator> DelayTil<G> {
    pub(crate) fn new(interval: Duration, generator: G) -> DelayTil<G> {
        DelayTil {
            interval,
            generator,
        }
    }
}

impl<G: Generator> Generator for DelayTil<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut next = self.generator.next(context);
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        if let Next::Op(op) = &mut next
            && let Some(tick) = time_of(op).nanoseconds().checked_next_multiple_of(interval)
        {
            not_before(op, Time::from_nanoseconds(tick));
        }
        next
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(format!("delay-til {:?}", self.interval), &self.generator)
    }
}

/// See [`Generator::cache`].
#[derive(Clone, Debug)]
pub struct Cache<G> {
    duration: Duration,
    /// The operation returned last and not committed yet, and when it was first returned.
    cached: Option<(Time, Op)>,
    generator: G,
}

impl<G: Generator> Cache<G> {
    pub(crate) fn new(duration: Duration, generator: G) -> Cache<G> {
        Cache {
            duration,
            cached: None,
            generator,
        }
    }
}

impl<G: Generator> Generator for Cache<G> {
    fn next(&mut self, context: &Context) -> Next {
        if let Some((given, op)) = &self.cached {
            let thread = context.thread_of(op.process);
            let usable = thread.is_some_and(|thread| {
                context.is_free(thread) && context.process_of(thread) == op.process
            });
            if usable && context.time().since(*given) < self.duration {
                let mut op = op.clone();
                not_before(&mut op, context.time());
                return Next::Op(op);
            }
        }
        let next = self.generator.next(context);
        self.cached = match &next {
            Next::Op(op) => Some((context.time(), op.clone())),
            _ => None,
        };
        next
    }

    fn commit(&mut self) {
        self.cached = None;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(format!("cache {:?}", self.duration), &self.generator)
    }
}

/// See [`Generator::concurrency_limit`].
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit<G> {
    limit: usize,
    /// Threads with an open operation of this generator.
    open: BTreeSet<Thread>,
    /// The thread of the operation returned last.
    candidate: Option<Thread>,
    generator: G,
}

impl<G: Generator> ConcurrencyLimit<G> {
    pub(crate) fn new(limit: usize, generator: G) -> ConcurrencyLimit<G> {
        ConcurrencyLimit {
            limit,
            open: BTreeSet::new(),
            candidate: None,
            generator,
        }
    }
}

impl<G: Generator> Generator for ConcurrencyLimit<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.limit == 0 {
            return Next::Exhausted;
        }
        // A mixture passes no events to its generators, so completions are also detected by free threads.
        self.open.retain(|thread| !context.is_free(*thread));
        let next = self.generator.next(context);
        if let Next::Op(op) = &next {
            if self.open.len() >= self.limit {
                return Next::Pending;
            }
            self.candidate = context.thread_of(op.process);
        }
        next
    }

    fn commit(&mut self) {
        self.open.extend(self.candidate.take());
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if let Some(thread) = context.thread_of(event.process)
            && context.is_free(thread)
        {
            self.open.remove(&thread);
        }
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        let name = format!("concurrency-limit {}, {} open", self.limit, self.open.len());
        Tree::around(name, &self.generator)
    }
}
