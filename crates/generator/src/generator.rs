//! The trait `Generator` with its two-phase protocol, single operations, and the tree that describes a generator.

use seatrial_history::{Extra, Op, OpType, Process, Symbol, Value};
use seatrial_machine::{Rng, Time};
use std::fmt;
use std::time::Duration;

use crate::combine::{Filter, Map, Then};
use crate::hooks::{FriendlyExceptions, OnUpdate, Trace, Traced, renamed};
use crate::partition::{OnThreads, ProcessLimit};
use crate::schedule::{Delay, Limit, Repeat, Stagger, Synchronize, TimeLimit, UntilOk};
use crate::timing::{Cache, ConcurrencyLimit, DelayTil};
use crate::validate_operations::{GeneratorFailure, Validate};
use crate::{Context, Thread};

/// The next operation of a test as a pure function: it depends only on the generator's random stream, the contexts and
/// the events passed to it, and performs nothing.
///
/// The protocol has two phases, so that several generators can compete for a thread and lose no operation:
/// [`next`](Generator::next) proposes an operation, and the caller either takes it with [`commit`](Generator::commit)
/// or calls `next` again later.
///
/// ```text
///            ┌──── asked again: same context, same answer ────┐
///            ▼                                                │
///   next(context) ──► Op ─────────── not taken ───────────────┤
///            │         └─► commit() ─► update(invocation) ─► … update(completion)
///            ├──────► Pending ── ask again after an event ────┘
///            ├──────► Exhausted (final)
///            └──────► Failed (the test ends)
/// ```
///
/// - `next` is idempotent: the same context yields the same answer. A random choice is drawn once and kept until
///   `commit`. Another context may yield another answer (another process, a later time).
/// - `commit` may only follow a `next` that returned an operation, and takes exactly that operation.
/// - `Exhausted` is final.
/// - `update` receives every invocation (after its commit) and every completion on the threads that this generator may
///   use. [`Context::is_free`] of the event's thread distinguishes them: busy after an invocation, free after a
///   completion. (The type does not: an operation of the nemesis begins and ends as `info`.)
///
/// An operation returned by `next` names a process that is free in the context, and a time not before the context's. An
/// operation in the future is requested again when its time has come. Its type is
/// [`Invoke`](seatrial_history::OpType::Invoke) for clients and [`Info`](seatrial_history::OpType::Info) for the
/// nemesis and for the special operations [`SLEEP`] and [`LOG`].
pub trait Generator: Send {
    /// Proposes the next operation; changes nothing that a caller can observe.
    fn next(&mut self, context: &Context) -> Next;

    /// Takes the operation that the last [`next`](Generator::next) returned.
    fn commit(&mut self);

    /// Receives an event: the invocation or the completion of an operation.
    fn update(&mut self, context: &Context, event: &Op);

    /// The names of this generator and of the generators inside it, for messages.
    fn tree(&self) -> Tree {
        Tree::leaf(std::any::type_name::<Self>())
    }

    /// This generator in a box, so that generators of different types fit into one list.
    fn boxed(self) -> Box<dyn Generator>
    where
        Self: Sized + 'static,
    {
        Box::new(self)
    }

    /// At most `count` operations.
    fn limit(self, count: u64) -> Limit<Self>
    where
        Self: Sized,
    {
        Limit::new(count, self)
    }

    /// At most one operation.
    fn once(self) -> Limit<Self>
    where
        Self: Sized,
    {
        Limit::new(1, self)
    }

    /// The first operation, repeated without end: the generator's state never advances. A random choice is part of the
    /// state, so the value stays the same too; for fresh values see [`function`](crate::function).
    fn repeat(self) -> Repeat<Self>
    where
        Self: Sized,
    {
        Repeat::new(None, self)
    }

    /// The first operation `count` times.
    fn repeat_times(self, count: u64) -> Repeat<Self>
    where
        Self: Sized,
    {
        Repeat::new(Some(count), self)
    }

    /// Ends `duration` after its first operation.
    fn time_limit(self, duration: Duration) -> TimeLimit<Self>
    where
        Self: Sized,
    {
        TimeLimit::new(duration, self)
    }

    /// Operations at random intervals, uniform in `0..2 × mean`, over all threads together. A delay of up to a second is
    /// caught up, so the rate is kept.
    fn stagger(self, rng: Rng, mean: Duration) -> Stagger<Self>
    where
        Self: Sized,
    {
        Stagger::new(rng, mean, self)
    }

    /// Operations `interval` apart, later when no thread is free in time.
    fn delay(self, interval: Duration) -> Delay<Self>
    where
        Self: Sized,
    {
        Delay::new(interval, self)
    }

    /// Waits with its first operation until all threads are free.
    fn synchronize(self) -> Synchronize<Self>
    where
        Self: Sized,
    {
        Synchronize::new(self)
    }

    /// This generator to its end, then, once all threads are free, `after`.
    fn then<G: Generator>(self, after: G) -> Then<Self, G>
    where
        Self: Sized,
    {
        Then::new(self, after)
    }

    /// Ends when one of its operations has completed with `ok`.
    fn until_ok(self) -> UntilOk<Self>
    where
        Self: Sized,
    {
        UntilOk::new(self)
    }

    /// Every operation mapped by `change`, which must be deterministic: it is called again when `next` is.
    fn map<F: FnMut(Op) -> Op + Send>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
    {
        Map::new(self, change)
    }

    /// Only operations for which `keep` returns true; others are dropped.
    fn filter<F: FnMut(&Op) -> bool + Send>(self, keep: F) -> Filter<Self, F>
    where
        Self: Sized,
    {
        Filter::new(self, keep)
    }

    /// Restricts this generator to the threads that satisfy `rule`: its contexts contain no other thread, and it
    /// receives no event of another thread.
    fn on_threads(self, rule: impl Fn(Thread) -> bool + Send + 'static) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::new("on-threads", rule, self)
    }

    /// Restricts this generator to client threads. It is asked only after an event of a client or when it is due, so
    /// that a nemesis beside it does not change its operations.
    fn clients(self) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::clients(self)
    }

    /// Restricts this generator to the nemesis. It is asked only after an event of the nemesis or when it is due.
    fn nemesis(self) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::nemesis(self)
    }

    /// Ends before more than `count` different processes could have run its operations.
    fn process_limit(self, count: u64) -> ProcessLimit<Self>
    where
        Self: Sized,
    {
        ProcessLimit::new(count, self)
    }

    /// At most `count` of its operations are open at a time; further ones wait.
    fn concurrency_limit(self, count: usize) -> ConcurrencyLimit<Self>
    where
        Self: Sized,
    {
        ConcurrencyLimit::new(count, self)
    }

    /// Every operation at the next multiple of `interval` since the beginning of the test, so that many threads invoke at
    /// the same instant. This provokes races.
    fn delay_til(self, interval: Duration) -> DelayTil<Self>
    where
        Self: Sized,
    {
        DelayTil::new(interval, self)
    }

    /// Returns the same operation for up to `duration`, until it is committed or its process is no longer free, instead
    /// of asking a generator whose `next` is slow.
    fn cache(self, duration: Duration) -> Cache<Self>
    where
        Self: Sized,
    {
        Cache::new(duration, self)
    }

    /// Renames operations, by pairs of old and new `f`.
    fn f_map(
        self,
        names: impl IntoIterator<Item = (impl Into<Symbol>, impl Into<Symbol>)>,
    ) -> Map<Self, impl FnMut(Op) -> Op + Send>
    where
        Self: Sized,
    {
        let names = names.into_iter();
        let names: Vec<(Symbol, Symbol)> =
            names.map(|(old, new)| (old.into(), new.into())).collect();
        self.map(move |op| renamed(op, &names))
    }

    /// Calls `hook` for every event, in place of this generator's own `update`. The hook may change or replace the
    /// generator, or pass the event to it.
    fn on_update<F>(self, hook: F) -> OnUpdate<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut Self, &Context, &Op) + Send,
    {
        OnUpdate::new(self, hook)
    }

    /// Calls `show` with every answer and every event.
    fn trace<F>(self, show: F) -> Trace<Self, F>
    where
        Self: Sized,
        F: FnMut(&Context, Traced<'_>) + Send,
    {
        Trace::new(self, show)
    }

    /// Turns a panic of this generator into a [`Next::Failed`] that shows the generator and the context. Without it the
    /// driver of the interpreter reports the panic alone.
    fn friendly_exceptions(self) -> FriendlyExceptions<Self>
    where
        Self: Sized,
    {
        FriendlyExceptions::new(self)
    }

    /// Fails with a message that shows this generator as soon as it returns an invalid operation. The interpreter
    /// validates the outermost generator anyway; around an inner generator this names the inner one.
    fn validate(self) -> Validate<Self>
    where
        Self: Sized,
    {
        Validate::new(self)
    }
}

/// The answer of [`Generator::next`].
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// This operation, at its time.
    Op(Op),
    /// No operation yet; ask again after an event, or a little later.
    Pending,
    /// No operation ever again.
    Exhausted,
    /// The generator violated the protocol or gave up; the test ends with this message.
    Failed(Box<GeneratorFailure>),
}

/// `f` of the special operation that makes its thread sleep; its value is the duration in nanoseconds. Not recorded.
pub const SLEEP: Symbol = Symbol::new("@sleep");

/// `f` of the special operation that logs its value. Not recorded.
pub const LOG: Symbol = Symbol::new("@log");

/// Is this an operation that the interpreter carries out itself and does not record?
pub fn is_special(op: &Op) -> bool {
    op.is_info() && (op.f == SLEEP || op.f == LOG)
}

/// The time of an operation; an unknown (negative) time counts as the beginning of the test.
pub(crate) fn time_of(op: &Op) -> Time {
    Time::from_nanoseconds(u64::try_from(op.time).unwrap_or(0))
}

/// Delays an operation to `time` if it is earlier.
pub fn not_before(op: &mut Op, time: Time) {
    op.time = op
        .time
        .max(i64::try_from(time.nanoseconds()).unwrap_or(i64::MAX));
}

/// The name of a generator and of the generators inside it, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The combinator's name, with its parameters and state.
    pub name: String,
    /// The generators inside, at most [`Tree::CHILDREN_MAX`].
    pub children: Vec<Tree>,
}

impl Tree {
    /// Children shown; of more, only the first.
    pub const CHILDREN_MAX: usize = 8;

    /// A generator that contains no other.
    pub fn leaf(name: impl Into<String>) -> Tree {
        Tree {
            name: name.into(),
            children: Vec::new(),
        }
    }

    /// A generator around another.
    pub fn around(name: impl Into<String>, inner: &impl Generator) -> Tree {
        Tree {
            name: name.into(),
            children: vec![inner.tree()],
        }
    }

    /// A generator around several others.
    pub fn over<'g, G: Generator + 'g>(
        name: impl Into<String>,
        inner: impl IntoIterator<Item = &'g G>,
    ) -> Tree {
        let children = inner.into_iter().take(Tree::CHILDREN_MAX);
        Tree {
            name: name.into(),
            children: children.map(Generator::tree).collect(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{:indent$}{}", "", self.name, indent = depth * 2)?;
        for child in &self.children {
            f.write_str("\n")?;
            child.write(f, depth + 1)?;
        }
        Ok(())
    }
}

/// One generator per line, indented by two spaces per level.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// The tree, as its own `Debug`.
impl fmt::Debug for dyn Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tree(), f)
    }
}

impl<G: Generator + ?Sized> Generator for Box<G> {
    fn next(&mut self, context: &Context) -> Next {
        (**self).next(context)
    }

    fn commit(&mut self) {
        (**self).commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        (**self).update(context, event);
    }

    fn tree(&self) -> Tree {
        (**self).tree()
    }
}

/// `None` is exhausted. Combinators replace an inner generator by `None` to free its memory when it has ended.
impl<G: Generator> Generator for Option<G> {
    fn next(&mut self, context: &Context) -> Next {
        self.as_mut()
            .map_or(Next::Exhausted, |generator| generator.next(context))
    }

    fn commit(&mut self) {
        if let Some(generator) = self {
            generator.commit();
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if let Some(generator) = self {
            generator.update(context, event);
        }
    }

    fn tree(&self) -> Tree {
        self.as_ref()
            .map_or_else(|| Tree::leaf("nothing"), Generator::tree)
    }
}

/// A generator of one operation, which any free process may run, or only a given one. See [`operation`].
#[derive(Clone, Debug)]
pub struct SingleOp {
    f: Symbol,
    value: Value,
    extra: Extra,
    /// The process that must run it; `None`: any free one.
    process: Option<Process>,
    /// Not before this time.
    time: Time,
    is_committed: bool,
}

/// The operation `f` of `value`, once, by any free process: an `invoke` for a client, an `info` for the nemesis.
pub fn operation(f: impl Into<Symbol>, value: Value) -> SingleOp {
    SingleOp {
        f: f.into(),
        value,
        extra: Extra::NONE,
        process: None,
        time: Time::ZERO,
        is_committed: false,
    }
}

/// Makes one thread sleep for `duration`, once; repeat it to sleep repeatedly.
pub fn sleep(duration: Duration) -> SingleOp {
    let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    operation(SLEEP, Value::Int(nanoseconds))
}

/// Logs a message, once.
pub fn log(message: &str) -> SingleOp {
    operation(LOG, Value::text(message))
}

impl SingleOp {
    /// Adds a field to the operation.
    pub fn with(mut self, name: impl Into<Symbol>, value: Value) -> SingleOp {
        self.extra = self.extra.with(name.into(), value);
        self
    }

    /// Lets only this process run it, as soon as it is free.
    pub fn by(self, process: Process) -> SingleOp {
        SingleOp {
            process: Some(process),
            ..self
        }
    }

    /// Delays it to this time.
    pub fn at(self, time: Time) -> SingleOp {
        SingleOp { time, ..self }
    }
}

/// This operation by its process, once, not before its time.
impl From<Op> for SingleOp {
    fn from(op: Op) -> SingleOp {
        let time = time_of(&op);
        let template = operation(op.f, op.value).by(op.process).at(time);
        SingleOp {
            extra: op.extra,
            ..template
        }
    }
}

impl Generator for SingleOp {
    fn next(&mut self, context: &Context) -> Next {
        if self.is_committed {
            return Next::Exhausted;
        }
        let process = match self.process {
            None => context.some_free_process(),
            Some(process) => {
                let thread = context.thread_of(process);
                thread
                    .is_some_and(|thread| context.is_free(thread))
                    .then_some(process)
            }
        };
        let Some(process) = process else {
            return Next::Pending;
        };
        let mut op = context.operation_by(process, self.f, self.value.clone());
        op.extra = self.extra.clone();
        if self.f == SLEEP || self.f == LOG {
            // Special operations are `info` on client threads too; `is_special` looks for that.
            op.kind = OpType::Info;
        }
        not_before(&mut op, self.time);
        Next::Op(op)
    }

    fn commit(&mut self) {
        self.is_committed = true;
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        Tree::leaf(format!("{} {}", self.f, self.value))
    }
}
