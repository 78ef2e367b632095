//! The machine that runs a test: it asks the generator, hands operations to workers and records what happens.

use seatrial_history::{Extra, Op, OpType, Symbol, Value};
use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::context::Threads;
use crate::generator::{LOG, SLEEP, is_special, time_of};
use crate::partition::patience;
use crate::validate::{Failure, check, failure};
use crate::{Generator, Next, Thread};

/// Operations begun in one turn; more wait for the next, so that completions get in between.
const BATCH_MAX: u32 = 1_024;

/// What the interpreter is told.
#[derive(Debug)]
pub enum Event {
    /// The worker of this thread is done: an `ok`, `fail` or `info` of the process that was invoked. One that nobody
    /// waits for any more is ignored.
    Completed(Thread, Op),
    /// Begin nothing more, wait for what is open, then end. Told again: wait no longer.
    Stop,
}

/// What the interpreter wants done, in this order; the ticket is the thread's number.
#[derive(Debug)]
pub enum Step {
    /// Append this to the history. An invocation is recorded before it is sent.
    Record(Op),
    /// Hand this to the worker of the thread. A new process means that the one before it crashed: the worker gives up
    /// whatever it still does for it and opens a new client.
    Invoke(Thread, Op),
    /// Show this to the person at the test.
    Log(Value),
    /// The generator made a mistake. The test goes on as if it had been stopped.
    Failed(Box<Failure>),
    /// Nothing is open and nothing will begin: the history is complete. Said once.
    Done,
}

/// What an interpreter is made of, besides its generator.
#[derive(Clone, Debug)]
pub struct InterpreterOptions {
    /// Client threads, at most [`THREADS_MAX`](crate::THREADS_MAX).
    pub concurrency: u32,
    /// Decides which of several free threads works next.
    pub rng: Rng,
    /// A client operation that is open for so long completes as `info`, its process crashes, and its thread goes on
    /// with a new one. `None`: it may take for ever, and the worker sees to its own time-outs.
    pub operation_timeout: Option<Duration>,
    /// How long to wait for open operations when nothing more will begin; after that they complete as `info`.
    pub drain_timeout: Duration,
}

impl InterpreterOptions {
    /// So many client threads, no time-out of operations, and 30 seconds to drain.
    pub fn new(concurrency: u32, rng: Rng) -> InterpreterOptions {
        InterpreterOptions {
            concurrency,
            rng,
            operation_timeout: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Where a test stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The generator is asked for more.
    Running,
    /// Nothing more begins; what is open may end until this time.
    Draining(Time),
    /// [`Step::Done`] was said.
    Done,
}

/// Owns the generator and the truth about the threads. Its loop: completions come as requests and are recorded at once;
/// when the driver has no more of them it wakes the interpreter, which asks the generator until nothing is due. So
/// completions always go before new invocations, which keeps false concurrency out of the history. Its memory does not
/// grow with the test, unless the generator's does.
///
/// Its downside: one interpreter runs on one core, and all operations of a test pass through it.
#[derive(Debug)]
pub struct Interpreter<G = Box<dyn Generator>> {
    generator: G,
    threads: Threads,
    phase: Phase,
    /// The latest time that was told; time never goes back.
    now: Time,
    /// When to ask the generator next.
    ask_at: Time,
    /// The index of the next recorded operation.
    index: u64,
    /// The invocation that is open on each thread: clients by number, then the nemesis.
    open: Box<[Option<Op>]>,
    open_count: usize,
    /// Clients with an open operation, the longest open first.
    line: Line,
    /// Threads that sleep, by the time at which they go on; each at most once.
    sleepers: BTreeSet<(Time, Thread)>,
    /// Draws which free thread is offered. Only clients' operations move it on: a nemesis changes nothing for them.
    rng: Rng,
    operation_timeout: Option<Duration>,
    drain_timeout: Duration,
    /// Completions that came after nobody waited for them any more.
    late: u64,
}

impl<G: Generator> Interpreter<G> {
    /// An interpreter that will begin with its first turn.
    pub fn new(generator: G, options: &InterpreterOptions) -> Interpreter<G> {
        let slots = options.concurrency as usize + 1;
        let mut rng = options.rng.fork("threads");
        let mut threads = Threads::new(options.concurrency);
        threads.draw(rng.word());
        Interpreter {
            generator,
            threads,
            phase: Phase::Running,
            now: Time::ZERO,
            ask_at: Time::ZERO,
            index: 0,
            open: vec![None; slots].into(),
            open_count: 0,
            line: Line::new(slots),
            sleepers: BTreeSet::new(),
            rng,
            operation_timeout: options.operation_timeout,
            drain_timeout: options.drain_timeout,
            late: 0,
        }
    }

    /// Operations that began and did not end yet.
    pub const fn open_count(&self) -> usize {
        self.open_count
    }

    /// Operations recorded so far (an invocation and its completion are two).
    pub const fn recorded(&self) -> u64 {
        self.index
    }

    /// Completions that came too late and were ignored.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Was [`Step::Done`] said?
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Has the generator ended, or was the test stopped?
    pub const fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining(_))
    }

    /// The generator, to look at.
    pub const fn generator(&self) -> &G {
        &self.generator
    }

    /// Records an operation as happening now.
    fn record(&mut self, op: &mut Op, thread: Thread, out: &mut Vec<Output<Step>>) {
        op.index = self.index;
        self.index += 1;
        out.push(reply(thread, Step::Record(op.clone())));
    }

    /// Asks the generator until nothing is due.
    fn ask(&mut self, out: &mut Vec<Output<Step>>) {
        self.threads.take_wake();
        for _ in 0..BATCH_MAX {
            let context = self.threads.context(self.now);
            let op = match self.generator.next(&context) {
                Next::Op(op) => op,
                Next::Pending => {
                    self.ask_at = patience(&context).min(self.threads.take_wake());
                    return;
                }
                Next::Exhausted => return self.drain(),
                Next::Failed(failure) => return self.fail(failure, out),
            };
            match check(&op, &context) {
                Err(problem) => {
                    let failure = failure(problem, op, &context, &self.generator);
                    return self.fail(failure, out);
                }
                Ok(_) if time_of(&op) > self.now => {
                    self.ask_at = time_of(&op).min(self.threads.take_wake());
                    return;
                }
                Ok(thread) => self.begin(thread, op, out),
            }
        }
        self.ask_at = self.now;
    }

    /// Takes the operation that the generator just answered.
    fn begin(&mut self, thread: Thread, mut op: Op, out: &mut Vec<Output<Step>>) {
        self.generator.commit();
        op.time = i64::try_from(self.now.nanoseconds()).unwrap_or(i64::MAX);
        self.threads.occupy(thread);
        if thread.is_client() {
            let word = self.rng.word();
            self.threads.draw(word);
        }
        if is_special(&op) {
            return self.begin_special(thread, &op, out);
        }
        self.record(&mut op, thread, out);
        self.generator.update(&self.threads.context(self.now), &op);
        let slot = self.slot(thread);
        if thread.is_client() && self.operation_timeout.is_some() {
            self.line.push(slot, self.now);
        }
        self.open[slot] = Some(op.clone());
        self.open_count += 1;
        out.push(reply(thread, Step::Invoke(thread, op)));
    }

    fn begin_special(&mut self, thread: Thread, op: &Op, out: &mut Vec<Output<Step>>) {
        self.generator.update(&self.threads.context(self.now), op);
        if op.f == SLEEP {
            let nanoseconds = op.value.as_int().and_then(|time| u64::try_from(time).ok());
            let duration = Duration::from_nanos(nanoseconds.unwrap_or(0));
            self.sleepers.insert((self.now + duration, thread));
        } else {
            debug_assert_eq!(op.f, LOG, "a special operation of a new kind");
            out.push(reply(thread, Step::Log(op.value.clone())));
            self.end_special(thread, op.f);
        }
    }

    /// The thread goes on; nothing is recorded.
    fn end_special(&mut self, thread: Thread, f: Symbol) {
        self.threads.release(thread);
        let context = self.threads.context(self.now);
        let process = context.process_of(thread);
        let op = Op {
            kind: OpType::Info,
            ..context.operation_by(process, f, Value::Nil)
        };
        self.generator.update(&context, &op);
        self.ask_at = self.now;
    }

    /// Records how an open operation ended and frees its thread.
    fn end(
        &mut self,
        thread: Thread,
        kind: OpType,
        value: Value,
        extra: Extra,
        out: &mut Vec<Output<Step>>,
    ) {
        let slot = self.slot(thread);
        let Some(invocation) = self.open[slot].take() else {
            return;
        };
        self.open_count -= 1;
        self.line.remove(slot);
        let time = i64::try_from(self.now.nanoseconds()).unwrap_or(i64::MAX);
        let mut op = Op {
            time,
            kind,
            value,
            extra,
            ..invocation
        };
        self.record(&mut op, thread, out);
        self.threads.release(thread);
        self.generator.update(&self.threads.context(self.now), &op);
        if kind == OpType::Info {
            self.threads.retire(thread);
        }
        self.ask_at = self.now;
    }

    /// Ends an open operation of which nobody knows how it went.
    fn give_up(&mut self, thread: Thread, reason: &str, out: &mut Vec<Output<Step>>) {
        let slot = self.slot(thread);
        let value = self.open[slot].as_ref().map(|op| op.value.clone());
        let extra = Extra::new(&[(Symbol::new("error"), Value::text(reason))]);
        self.end(thread, OpType::Info, value.unwrap_or_default(), extra, out);
    }

    fn completed(&mut self, thread: Thread, op: Op, out: &mut Vec<Output<Step>>) {
        let slot = self.threads.index_of(thread);
        let open = slot.and_then(|slot| self.open[slot].as_ref());
        if open.is_none_or(|open| open.process != op.process) {
            self.late += 1;
            return;
        }
        match op.kind {
            OpType::Ok | OpType::Fail if thread.is_client() => {
                self.end(thread, op.kind, op.value, op.extra, out);
            }
            OpType::Invoke => self.give_up(thread, "the client answered an invocation", out),
            _ => self.end(thread, OpType::Info, op.value, op.extra, out),
        }
    }

    /// Nothing more begins.
    fn drain(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Draining(self.now + self.drain_timeout);
            let sleepers = std::mem::take(&mut self.sleepers);
            for (_, thread) in sleepers {
                self.threads.release(thread);
            }
        }
    }

    fn fail(&mut self, failure: Box<Failure>, out: &mut Vec<Output<Step>>) {
        out.push(reply(Thread::NEMESIS, Step::Failed(failure)));
        self.drain();
    }

    /// Carries out everything whose time has come.
    fn wake(&mut self, out: &mut Vec<Output<Step>>) {
        while let Some(&(time, thread)) = self.sleepers.first()
            && time <= self.now
        {
            self.sleepers.pop_first();
            self.end_special(thread, SLEEP);
        }
        while let Some((slot, time)) = self.overdue()
            && time <= self.now
        {
            self.give_up(Thread(slot as u32), "timeout", out);
        }
        if self.phase == Phase::Running && self.ask_at <= self.now {
            self.ask(out);
        }
    }

    /// The client whose operation times out next, and when.
    fn overdue(&self) -> Option<(usize, Time)> {
        let (slot, since) = self.line.first()?;
        Some((slot, since + self.operation_timeout?))
    }

    /// Ends the test once nothing is open or the wait has been long enough.
    fn finish(&mut self, out: &mut Vec<Output<Step>>) {
        let Phase::Draining(end) = self.phase else {
            return;
        };
        if end <= self.now {
            for slot in 0..self.open.len() {
                let thread = self.threads.context(self.now).thread_at(slot);
                self.give_up(thread, "the test ended", out);
            }
        }
        if self.open_count == 0 {
            self.phase = Phase::Done;
            out.push(reply(Thread::NEMESIS, Step::Done));
        }
    }

    /// The slot of a thread that is known to be of this test.
    fn slot(&self, thread: Thread) -> usize {
        (thread.0 as usize).min(self.open.len() - 1)
    }
}

/// A step for this thread.
fn reply(thread: Thread, step: Step) -> Output<Step> {
    Output::Reply(Ticket(u64::from(thread.0)), step)
}

impl<G: Generator> Machine for Interpreter<G> {
    type Request = Event;
    type Reply = Step;

    fn turn(&mut self, now: Time, input: Input<Event>, out: &mut Vec<Output<Step>>) {
        self.now = self.now.max(now);
        if self.phase == Phase::Done {
            self.late += u64::from(matches!(input, Input::Request(_, Event::Completed(..))));
            return;
        }
        match input {
            Input::Wake => self.wake(out),
            Input::Request(_, Event::Completed(thread, op)) => self.completed(thread, op, out),
            Input::Request(_, Event::Stop) => match self.phase {
                Phase::Running => self.drain(),
                _ => self.phase = Phase::Draining(self.now),
            },
            // The interpreter has no peers, no log and no jobs.
            Input::Message { .. }
            | Input::Appended(_)
            | Input::FileDone(..)
            | Input::Computed(..) => {}
        }
        self.finish(out);
    }

    fn wake_at(&self) -> Option<Time> {
        let overdue = self.overdue().map(|(_, time)| time);
        match self.phase {
            Phase::Running => {
                let sleeper = self.sleepers.first().map(|&(time, _)| time);
                [sleeper, overdue]
                    .into_iter()
                    .flatten()
                    .chain([self.ask_at])
                    .min()
            }
            Phase::Draining(end) => Some(overdue.map_or(end, |time| time.min(end))),
            Phase::Done => None,
        }
    }

    fn check_invariants(&self) {
        let busy = self.threads.busy_count();
        assert_eq!(
            busy,
            self.open_count + self.sleepers.len(),
            "a busy thread does nothing"
        );
        if self.phase == Phase::Done {
            assert_eq!(busy, 0, "an operation is open after the end");
        }
    }
}

/// Slots in the order in which they joined, with the time of joining; any may leave at any time. A doubly linked list
/// in one array: nothing is allocated after the start.
#[derive(Debug)]
struct Line {
    /// For each slot its neighbours and the time; the last entry is the head: its `after` is the first in line.
    places: Box<[Place]>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    before: u32,
    after: u32,
    since: Time,
}

impl Line {
    /// An empty line; a slot out of line is its own neighbour.
    fn new(slots: usize) -> Line {
        let place = |slot: u32| Place {
            before: slot,
            after: slot,
            since: Time::ZERO,
        };
        Line {
            places: (0..=slots as u32).map(place).collect(),
        }
    }

    const fn head(&self) -> usize {
        self.places.len() - 1
    }

    fn push(&mut self, slot: usize, since: Time) {
        let head = self.head();
        let last = self.places[head].before;
        self.places[slot] = Place {
            before: last,
            after: head as u32,
            since,
        };
        self.places[last as usize].after = slot as u32;
        self.places[head].before = slot as u32;
    }

    fn remove(&mut self, slot: usize) {
        let Place {
            before,
            after,
            since,
        } = self.places[slot];
        self.places[before as usize].after = after;
        self.places[after as usize].before = before;
        self.places[slot] = Place {
            before: slot as u32,
            after: slot as u32,
            since,
        };
    }

    fn first(&self) -> Option<(usize, Time)> {
        let first = self.places[self.head()].after as usize;
        (first != self.head()).then(|| (first, self.places[first].since))
    }
}
