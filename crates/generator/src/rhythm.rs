//! Combinators that keep to a schedule of their own: rotation, aligned instants, few at a time.

use seatrial_history::Op;
use seatrial_machine::Time;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Thread, Tree};

/// Rotates among generators by the clock. See [`cycle_times`].
#[derive(Debug)]
pub struct CycleTimes<G> {
    /// How long each one's turn is, and it.
    turns: Vec<(Duration, G)>,
    /// The length of a round.
    period: Duration,
    /// When the first round began: when the first operation was taken.
    begin: Option<Time>,
    /// The beginning that the last answer assumed, and whose operation it was.
    candidate: (Time, usize),
    ended: bool,
}

/// Turns that are looked through for an operation; more count as nothing for now.
const TURNS_MAX: u32 = 10_000;

/// Rotates among generators by the clock: the first for its duration, then the second, and so on, and again from the
/// first. Each keeps its state until its next turn; all learn of all events. Ends when the one whose turn it is has
/// ended. A generator whose next operation is due after its turn leaves the time to the one that follows.
///
/// Turns of no length are left out.
pub fn cycle_times<G: Generator>(turns: impl IntoIterator<Item = (Duration, G)>) -> CycleTimes<G> {
    let turns: Vec<_> = turns
        .into_iter()
        .filter(|(duration, _)| !duration.is_zero())
        .collect();
    CycleTimes {
        period: turns.iter().map(|(duration, _)| duration).sum(),
        ended: turns.is_empty(),
        turns,
        begin: None,
        candidate: (Time::ZERO, 0),
    }
}

impl<G> CycleTimes<G> {
    /// Whose turn it is at `now`, and when that turn began.
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

/// So many nanoseconds, or for ever.
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
        // After one round everybody has been asked; from then on they answer for later rounds.
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
    /// The answer that was not taken, and when it was given.
    kept: Option<(Time, Op)>,
    generator: G,
}

impl<G: Generator> Cache<G> {
    pub(crate) fn new(duration: Duration, generator: G) -> Cache<G> {
        Cache {
            duration,
            kept: None,
            generator,
        }
    }
}

impl<G: Generator> Generator for Cache<G> {
    fn next(&mut self, context: &Context) -> Next {
        if let Some((given, op)) = &self.kept {
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
        self.kept = match &next {
            Next::Op(op) => Some((context.time(), op.clone())),
            _ => None,
        };
        next
    }

    fn commit(&mut self) {
        self.kept = None;
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
    /// Threads that carry out an operation of this generator.
    open: BTreeSet<Thread>,
    /// The thread of the last answer.
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
        // Inside of a mixture nobody tells that an operation has ended.
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
