//! The interpreter: the machine that asks the generator, hands operations to workers, and records the history.

use seatrial_history::{Extra, Op, OpType, Symbol, Value};
use seatrial_machine::{Input, Machine, Output, Rng, Ticket, Time};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::context::Threads;
use crate::generator::{LOG, SLEEP, is_special, time_of};
use crate::partition::retry_time;
use crate::validate_operations::{GeneratorFailure, check, failure};
use crate::{Generator, Next, Thread};

/// Operations begun in one turn; further ones wait for the next turn, so that completions are recorded in between.
const BATCH_MAX: u32 = 1_024;

/// Requests of the driver to the interpreter.
#[derive(Debug)]
pub enum InterpreterRequest {
    /// The worker of this thread has completed its operation: an `ok`, `fail` or `info` of the invoked process. A
    /// completion of an operation that is no longer open is ignored.
    Completed(Thread, Op),
    /// Begin no further operation, wait for open ones, then end. A second request ends the wait.
    Stop,
}

/// Replies of the interpreter, to be carried out in order. The ticket is the thread's number.
#[derive(Debug)]
pub enum InterpreterReply {
    /// Append this to the history. An invocation is recorded before it is sent.
    Record(Op),
    /// Hand this to the worker of the thread. A new process means that the previous one crashed: the worker abandons its
    /// open operation and opens a new client.
    Invoke(Thread, Op),
    /// Show this message to the user.
    Log(Value),
    /// The generator failed. The test ends as after [`InterpreterRequest::Stop`].
    Failed(Box<GeneratorFailure>),
    /// No operation is open and none will begin: the history is complete. Sent once, last.
    Done,
}

/// Options of an interpreter.
#[derive(Clone, Debug)]
pub struct InterpreterOptions {
    /// Number of client threads, at most [`THREADS_MAX`](crate::THREADS_MAX).
    pub concurrency: u32,
    /// Selects which of several free threads runs the next operation.
    pub rng: Rng,
    /// A client operation that is open for this long completes as `info`; its process crashes, and its thread continues
    /// with a new process. `None`: no timeout here; workers implement their own.
    pub operation_timeout: Option<Duration>,
    /// How long to wait for open operations once no further one will begin; then they complete as `info`.
    pub drain_timeout: Duration,
}

impl InterpreterOptions {
    /// `concurrency` client threads, no operation timeout, and 30 seconds to drain.
    pub fn new(concurrency: u32, rng: Rng) -> InterpreterOptions {
        InterpreterOptions {
            concurrency,
            rng,
            operation_timeout: None,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// The phases of an interpreter, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterpreterPhase {
    /// The generator is asked for operations.
    Running,
    /// No operation begins; open operations may complete until this time.
    Draining(Time),
    /// [`InterpreterReply::Done`] was sent.
    Done,
}

/// Runs a generator. Owns the generator and the state of all [`Threads`], the only place where it changes.
///
/// Its loop: completions arrive as requests and are recorded at once. When the driver has no more of them, it wakes the
/// interpreter, which asks the generator until no operation is due. So completions are always recorded before new
/// invocations, which keeps false concurrency out of the history.
///
/// ```text
///            Completed(thread, op)                    wake (at `wake_at`)
///                    │                                       │
///   record ◄─────────┤                                       ▼
///   free the thread ◄┤                       next ─► due? ─► commit ─► record ─► Invoke(thread, op)
///   update generator ┘                        ▲                                       │
///                                             └───────────────────────────────────────┘ up to BATCH_MAX times
/// ```
///
/// Cost: O(1) per operation besides the generator's. Memory: O(threads); it does not grow with the test unless the
/// generator's does. One interpreter runs on one core, and all operations of a test pass through it.
#[derive(Debug)]
pub struct Interpreter<G = Box<dyn Generator>> {
    generator: G,
    threads: Threads,
    phase: InterpreterPhase,
    /// The latest time passed to `turn`; time never goes back.
    now: Time,
    /// When to ask the generator next.
    ask_at: Time,
    /// The index of the next recorded operation.
    index: u64,
    /// The open invocation of each thread, by slot: clients by number, then the nemesis.
    open: Box<[Option<Op>]>,
    open_count: usize,
    /// Client threads with an open operation, the oldest first; empty without an operation timeout.
    timeouts: TimeoutQueue,
    /// Sleeping threads by the time at which they wake; each thread at most once.
    sleepers: BTreeSet<(Time, Thread)>,
    /// Draws the free thread to offer. Only client operations advance it, so that a nemesis changes nothing for clients.
    rng: Rng,
    operation_timeout: Option<Duration>,
    drain_timeout: Duration,
    /// Completions of operations that were no longer open.
    late: u64,
}

impl<G: Generator> Interpreter<G> {
    /// An interpreter whose test begins with its first turn.
    pub fn new(generator: G, options: &InterpreterOptions) -> Interpreter<G> {
        let slots = options.concurrency as usize + 1;
        let mut rng = options.rng.fork("threads");
        let mut threads = Threads::new(options.concurrency);
        threads.draw(rng.word());
        Interpreter {
            generator,
            threads,
            phase: InterpreterPhase::Running,
            now: Time::ZERO,
            ask_at: Time::ZERO,
            index: 0,
            open: vec![None; slots].into(),
            open_count: 0,
            timeouts: TimeoutQueue::new(slots),
            sleepers: BTreeSet::new(),
            rng,
            operation_timeout: options.operation_timeout,
            drain_timeout: options.drain_timeout,
            late: 0,
        }
    }

    /// Number of open operations.
    pub const fn open_count(&self) -> usize {
        self.open_count
    }

    /// Number of operations recorded so far (an invocation and its completion are two).
    pub const fn recorded(&self) -> u64 {
        self.index
    }

    /// Number of completions that came too late and were ignored.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Is the test over ([`InterpreterReply::Done`] was sent)?
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, InterpreterPhase::Done)
    }

    /// Does the test wait for its last open operations?
    pub const fn is_draining(&self) -> bool {
        matches!(self.phase, InterpreterPhase::Draining(_))
    }

    /// The generator.
    pub const fn generator(&self) -> &G {
        &self.generator
    }

    /// Records an operation with the next index.
    fn record(&mut self, op: &mut Op, thread: Thread, out: &mut Vec<Output<InterpreterReply>>) {
        op.index = self.index;
        self.index += 1;
        out.push(reply(thread, InterpreterReply::Record(op.clone())));
    }

    /// Asks the generator until no operation is due, at most [`BATCH_MAX`] times.
    fn ask(&mut self, out: &mut Vec<Output<InterpreterReply>>) {
        self.threads.take_wake();
        for _ in 0..BATCH_MAX {
            let context = self.threads.context(self.now);
            let op = match self.generator.next(&context) {
                Next::Op(op) => op,
                Next::Pending => {
                    self.ask_at = retry_time(&context).min(self.threads.take_wake());
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

    /// Commits and begins the operation that the generator has just returned.
    fn begin(&mut self, thread: Thread, mut op: Op, out: &mut Vec<Output<InterpreterReply>>) {
        self.generator.commit();
        // The time at which the operation begins, which may be later than the time at which it was due.
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
            self.timeouts.push(slot, self.now);
        }
        debug_assert!(self.open[slot].is_none(), "two open operations on {thread}");
        self.open[slot] = Some(op.clone());
        self.open_count += 1;
        out.push(reply(thread, InterpreterReply::Invoke(thread, op)));
    }

    /// Begins a sleep, or logs at once.
    fn begin_special(&mut self, thread: Thread, op: &Op, out: &mut Vec<Output<InterpreterReply>>) {
        self.generator.update(&self.threads.context(self.now), op);
        if op.f == SLEEP {
            let nanoseconds = op.value.as_int().and_then(|time| u64::try_from(time).ok());
            let duration = Duration::from_nanos(nanoseconds.unwrap_or(0));
            self.sleepers.insert((self.now + duration, thread));
        } else {
            debug_assert_eq!(op.f, LOG, "an unknown special operation");
            out.push(reply(thread, InterpreterReply::Log(op.value.clone())));
            self.end_special(thread, op.f);
        }
    }

    /// Frees the thread of a special operation; nothing is recorded.
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

    /// Records the completion of an open operation and frees its thread.
    fn end(
        &mut self,
        thread: Thread,
        kind: OpType,
        value: Value,
        extra: Extra,
        out: &mut Vec<Output<InterpreterReply>>,
    ) {
        let slot = self.slot(thread);
        let Some(invocation) = self.open[slot].take() else {
            return;
        };
        self.open_count -= 1;
        self.timeouts.remove(slot);
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
            // After the update, in which the thread still runs the process of the event.
            self.threads.retire(thread);
        }
        self.ask_at = self.now;
    }

    /// Completes an open operation whose outcome is unknown as `info`.
    fn end_unknown(
        &mut self,
        thread: Thread,
        reason: &str,
        out: &mut Vec<Output<InterpreterReply>>,
    ) {
        let slot = self.slot(thread);
        let value = self.open[slot].as_ref().map(|op| op.value.clone());
        let extra = Extra::new(&[(Symbol::new("error"), Value::text(reason))]);
        self.end(thread, OpType::Info, value.unwrap_or_default(), extra, out);
    }

    /// Handles the completion that a worker reports.
    fn on_completed(&mut self, thread: Thread, op: Op, out: &mut Vec<Output<InterpreterReply>>) {
        let slot = self.threads.index_of(thread);
        let open = slot.and_then(|slot| self.open[slot].as_ref());
        // A worker that is slower than the timeout completes an operation of a process that was replaced.
        if open.is_none_or(|open| open.process != op.process) {
            self.late += 1;
            return;
        }
        match op.kind {
            OpType::Ok | OpType::Fail if thread.is_client() => {
                self.end(thread, op.kind, op.value, op.extra, out);
            }
            OpType::Invoke => self.end_unknown(thread, "the client answered an invocation", out),
            _ => self.end(thread, OpType::Info, op.value, op.extra, out),
        }
    }

    /// Stops asking the generator and waits for open operations; sleeping threads are freed at once.
    fn drain(&mut self) {
        if self.phase == InterpreterPhase::Running {
            self.phase = InterpreterPhase::Draining(self.now + self.drain_timeout);
            let sleepers = std::mem::take(&mut self.sleepers);
            for (_, thread) in sleepers {
                self.threads.release(thread);
            }
        }
    }

    fn fail(&mut self, failure: Box<GeneratorFailure>, out: &mut Vec<Output<InterpreterReply>>) {
        out.push(reply(Thread::NEMESIS, InterpreterReply::Failed(failure)));
        self.drain();
    }

    /// Wakes sleepers, ends operations that time out, and asks the generator, as far as they are due.
    fn wake(&mut self, out: &mut Vec<Output<InterpreterReply>>) {
        while let Some(&(time, thread)) = self.sleepers.first()
            && time <= self.now
        {
            self.sleepers.pop_first();
            self.end_special(thread, SLEEP);
        }
        while let Some((slot, time)) = self.overdue()
            && time <= self.now
        {
            self.end_unknown(Thread(slot as u32), "timeout", out);
        }
        if self.phase == InterpreterPhase::Running && self.ask_at <= self.now {
            self.ask(out);
        }
    }

    /// The slot of the operation that times out next, and when.
    fn overdue(&self) -> Option<(usize, Time)> {
        let (slot, since) = self.timeouts.first()?;
        Some((slot, since + self.operation_timeout?))
    }

    /// Ends the test when no operation is open, or when the drain timeout has passed.
    fn finish(&mut self, out: &mut Vec<Output<InterpreterReply>>) {
        let InterpreterPhase::Draining(end) = self.phase else {
            return;
        };
        if end <= self.now {
            for slot in 0..self.open.len() {
                let thread = self.threads.context(self.now).thread_at(slot);
                self.end_unknown(thread, "the test ended", out);
            }
        }
        if self.open_count == 0 {
            self.phase = InterpreterPhase::Done;
            out.push(reply(Thread::NEMESIS, InterpreterReply::Done));
        }
    }

    /// The slot of a thread that is known to be of this test. The nemesis, numbered `u32::MAX`, has the last slot.
    fn slot(&self, thread: Thread) -> usize {
        (thread.0 as usize).min(self.open.len() - 1)
    }
}

/// A reply about this thread.
fn reply(thread: Thread, reply: InterpreterReply) -> Output<InterpreterReply> {
    Output::Reply(Ticket(u64::from(thread.0)), reply)
}

impl<G: Generator> Machine for Interpreter<G> {
    type Request = InterpreterRequest;
    type Reply = InterpreterReply;

    fn turn(
        &mut self,
        now: Time,
        input: Input<InterpreterRequest>,
        out: &mut Vec<Output<InterpreterReply>>,
    ) {
        self.now = self.now.max(now);
        if self.phase == InterpreterPhase::Done {
            let is_late = matches!(input, Input::Request(_, InterpreterRequest::Completed(..)));
            self.late += u64::from(is_late);
            return;
        }
        match input {
            Input::Wake => self.wake(out),
            Input::Request(_, InterpreterRequest::Completed(thread, op)) => {
                self.on_completed(thread, op, out);
            }
            Input::Request(_, InterpreterRequest::Stop) => match self.phase {
                InterpreterPhase::Running => self.drain(),
                _ => self.phase = InterpreterPhase::Draining(self.now),
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
            InterpreterPhase::Running => {
                let sleeper = self.sleepers.first().map(|&(time, _)| time);
                [sleeper, overdue]
                    .into_iter()
                    .flatten()
                    .chain([self.ask_at])
                    .min()
            }
            InterpreterPhase::Draining(end) => Some(overdue.map_or(end, |time| time.min(end))),
            InterpreterPhase::Done => None,
        }
    }

    fn check_invariants(&self) {
        let busy = self.threads.busy_count();
        assert_eq!(
            busy,
            self.open_count + self.sleepers.len(),
            "a busy thread has no operation"
        );
        if self.phase == InterpreterPhase::Done {
            assert_eq!(busy, 0, "an operation is open after the end");
        }
    }
}

/// Thread slots in the order in which they were pushed, with the time of the push; any slot can be removed at any time.
/// All operations timeout after the same duration, so this order is the order of the timeouts. A doubly linked list in one
/// array: every method is O(1), and nothing is allocated after the start.
#[derive(Debug)]
struct TimeoutQueue {
    /// By slot, its links. The last entry is the head: its `after` is the first slot, its `before` the last.
    links: Box<[QueueLink]>,
}

/// The neighbours of a slot in a [`TimeoutQueue`], and the time of its push.
#[derive(Clone, Copy, Debug)]
struct QueueLink {
    before: u32,
    after: u32,
    since: Time,
}

impl TimeoutQueue {
    /// An empty queue; a slot that is not queued is its own neighbour, so that its removal changes nothing.
    fn new(slots: usize) -> TimeoutQueue {
        let link = |slot: u32| QueueLink {
            before: slot,
            after: slot,
            since: Time::ZERO,
        };
        TimeoutQueue {
            links: (0..=slots as u32).map(link).collect(),
        }
    }

    const fn head(&self) -> usize {
        self.links.len() - 1
    }

    /// Appends a slot that is not queued.
    fn push(&mut self, slot: usize, since: Time) {
        let head = self.head();
        debug_assert!(slot < head);
        debug_assert_eq!(self.links[slot].after, slot as u32, "queued already");
        let last = self.links[head].before;
        self.links[slot] = QueueLink {
            before: last,
            after: head as u32,
            since,
        };
        self.links[last as usize].after = slot as u32;
        self.links[head].before = slot as u32;
    }

    /// Removes a slot, if it is queued.
    fn remove(&mut self, slot: usize) {
        let QueueLink {
            before,
            after,
            since,
        } = self.links[slot];
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.links[slot] = QueueLink {
            before: slot as u32,
            after: slot as u32,
            since,
        };
    }

    /// The slot pushed first, and when.
    fn first(&self) -> Option<(usize, Time)> {
        let first = self.links[self.head()].after as usize;
        (first != self.head()).then(|| (first, self.links[first].since))
    }
}
