//! Combinators on the number and the time of operations: limits, repetition, intervals, barriers.

use seatrial_history::Op;
use seatrial_machine::{Rng, Time};
use std::time::Duration;

use crate::generator::{not_before, time_of};
use crate::{Context, Generator, Next, Tree};

/// See [`Generator::limit`].
#[derive(Clone, Debug)]
pub struct Limit<G> {
    remaining: u64,
    generator: G,
}

impl<G: Generator> Limit<G> {
    pub(crate) fn new(remaining: u64, generator: G) -> Limit<G> {
        Limit {
            remaining,
            generator,
        }
    }
}

impl<G: Generator> Generator for Limit<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.remaining == 0 {
            return Next::Exhausted;
        }
        self.generator.next(context)
    }

    fn commit(&mut self) {
        self.remaining -= 1;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(format!("limit, {} more", self.remaining), &self.generator)
    }
}

/// See [`Generator::repeat`].
#[derive(Clone, Debug)]
pub struct Repeat<G> {
    /// `None`: without end.
    remaining: Option<u64>,
    generator: G,
}

impl<G: Generator> Repeat<G> {
    pub(crate) fn new(remaining: Option<u64>, generator: G) -> Repeat<G> {
        Repeat {
            remaining,
            generator,
        }
    }
}

impl<G: Generator> Generator for Repeat<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.remaining == Some(0) {
            return Next::Exhausted;
        }
        self.generator.next(context)
    }

    fn commit(&mut self) {
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
        }
        // The inner generator is not committed: it proposes the same operation again.
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        let name = match self.remaining {
            Some(remaining) => format!("repeat, {remaining} more"),
            None => "repeat".into(),
        };
        Tree::around(name, &self.generator)
    }
}

/// See [`Generator::time_limit`].
#[derive(Clone, Debug)]
pub struct TimeLimit<G> {
    duration: Duration,
    /// No operations from this time on; set when the first operation is committed.
    end: Option<Time>,
    /// The time of the operation returned last.
    candidate: Time,
    over: bool,
    generator: G,
}

impl<G: Generator> TimeLimit<G> {
    pub(crate) fn new(duration: Duration, generator: G) -> TimeLimit<G> {
        TimeLimit {
            duration,
            end: None,
            candidate: Time::ZERO,
            over: duration.is_zero(),
            generator,
        }
    }
}

impl<G: Generator> Generator for TimeLimit<G> {
    fn next(&mut self, context: &Context) -> Next {
        let end = self.end;
        let past = |time: Time| end.is_some_and(|end| time >= end);
        self.over |= past(context.time());
        if self.over {
            return Next::Exhausted;
        }
        let next = self.generator.next(context);
        if let Next::Op(op) = &next {
            self.candidate = time_of(op);
            self.over = past(self.candidate);
            if self.over {
                return Next::Exhausted;
            }
        }
        next
    }

    fn commit(&mut self) {
        self.end = self.end.or(Some(self.candidate + self.duration));
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        let name = match self.end {
            Some(end) => format!("time-limit {:?}, ends at {end}", self.duration),
            None => format!("time-limit {:?}, not begun", self.duration),
        };
        Tree::around(name, &self.generator)
    }
}

/// See [`Generator::stagger`].
///
/// Each interval begins at the time at which the last operation was *due*, not at which it was taken. So a delay (a late
/// timer, no free thread) is caught up and the rate is kept. Operations more than a second late are dropped: after a long
/// pause the system receives the backlog of one second at once, and no more.
///
/// ```text
///   due        │  │    │ │   │  │
///   free       ├────────────┤            no thread is free
///   invoked    │            │││ │  │     the backlog, then the schedule again
/// ```
///
/// (Jepsen's stagger counts from the time of the last operation and falls behind: 500 operations per second become 439.)
#[derive(Clone, Debug)]
pub struct Stagger<G> {
    rng: Rng,
    mean: Duration,
    /// No operation before this time; `None` before the first.
    due: Option<Time>,
    /// The time of the operation returned last.
    candidate: Time,
    generator: G,
}

/// The longest delay that a [`Stagger`] catches up.
const BACKLOG_MAX: Duration = Duration::from_secs(1);

impl<G: Generator> Stagger<G> {
    pub(crate) fn new(rng: Rng, mean: Duration, generator: G) -> Stagger<G> {
        Stagger {
            rng,
            mean,
            due: None,
            candidate: Time::ZERO,
            generator,
        }
    }
}

impl<G: Generator> Generator for Stagger<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut next = self.generator.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, self.due.unwrap_or(Time::ZERO));
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        let due = self.due.unwrap_or(self.candidate);
        // Skips what is more than the backlog late; zero when on time.
        let skipped = self.candidate.since(due).saturating_sub(BACKLOG_MAX);
        self.due = Some(due + skipped + self.rng.duration_below(self.mean * 2));
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(format!("stagger {:?}", self.mean), &self.generator)
    }
}

/// See [`Generator::delay`].
#[derive(Clone, Debug)]
pub struct Delay<G> {
    interval: Duration,
    /// No operation before this time; the beginning of the test before the first.
    due: Time,
    /// The time of the operation returned last.
    candidate: Time,
    generator: G,
}

impl<G: Generator> Delay<G> {
    pub(crate) fn new(interval: Duration, generator: G) -> Delay<G> {
        Delay {
            interval,
            due: Time::ZERO,
            candidate: Time::ZERO,
            generator,
        }
    }
}

impl<G: Generator> Generator for Delay<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut next = self.generator.next(context);
        if let Next::Op(op) = &mut next {
            not_before(op, self.due);
            self.candidate = time_of(op);
        }
        next
    }

    fn commit(&mut self) {
        self.due = self.candidate + self.interval;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around(format!("delay {:?}", self.interval), &self.generator)
    }
}

/// See [`Generator::synchronize`].
#[derive(Clone, Debug)]
pub struct Synchronize<G> {
    /// Is the barrier passed? Set when the first operation is committed, or when there is none.
    begun: bool,
    generator: G,
}

impl<G: Generator> Synchronize<G> {
    pub(crate) fn new(generator: G) -> Synchronize<G> {
        Synchronize {
            begun: false,
            generator,
        }
    }
}

impl<G: Generator> Generator for Synchronize<G> {
    fn next(&mut self, context: &Context) -> Next {
        if !self.begun && !context.all_free() {
            return Next::Pending;
        }
        let next = self.generator.next(context);
        self.begun |= matches!(next, Next::Exhausted);
        next
    }

    fn commit(&mut self) {
        self.begun = true;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        let name = if self.begun {
            "synchronize, begun"
        } else {
            "synchronize"
        };
        Tree::around(name, &self.generator)
    }
}

/// See [`Generator::until_ok`].
#[derive(Clone, Debug)]
pub struct UntilOk<G> {
    generator: G,
    done: bool,
    /// By thread slot: is an operation of this generator open there? Others' successes must not end it.
    open: Vec<bool>,
    /// The thread slot of the operation returned last.
    candidate: usize,
}

impl<G: Generator> UntilOk<G> {
    pub(crate) fn new(generator: G) -> UntilOk<G> {
        UntilOk {
            generator,
            done: false,
            open: Vec::new(),
            candidate: 0,
        }
    }
}

impl<G: Generator> Generator for UntilOk<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.done {
            return Next::Exhausted;
        }
        let next = self.generator.next(context);
        if let Next::Op(op) = &next {
            self.candidate = context.index_of_process(op.process).unwrap_or(0);
        }
        next
    }

    fn commit(&mut self) {
        if self.open.len() <= self.candidate {
            self.open.resize(self.candidate + 1, false);
        }
        self.open[self.candidate] = true;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
        let Some(thread) = context.thread_of(event.process) else {
            return;
        };
        let open = context
            .index_of(thread)
            .and_then(|index| self.open.get_mut(index));
        if context.is_free(thread)
            && let Some(open) = open
            && *open
        {
            *open = false;
            self.done |= event.is_ok();
        }
    }

    fn tree(&self) -> Tree {
        let name = if self.done {
            "until-ok, done"
        } else {
            "until-ok"
        };
        Tree::around(name, &self.generator)
    }
}
