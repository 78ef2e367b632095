//! The two-phase protocol of all generators.

use seatrial_history::{Extra, Op, OpType, Process, Symbol, Value};
use seatrial_machine::{Rng, Time};
use std::fmt;
use std::time::Duration;

use crate::combine::{Filter, Map, Then};
use crate::partition::{OnThreads, ProcessLimit};
use crate::react::{FriendlyExceptions, OnUpdate, Trace, Traced, renamed};
use crate::rhythm::{Cache, ConcurrencyLimit, DelayTil};
use crate::schedule::{Delay, Limit, Repeat, Stagger, Synchronize, TimeLimit, UntilOk};
use crate::validate::{Failure, Validate};
use crate::{Context, Thread};

/// Says what a test does next, without doing it. Pure: it depends on its random stream, the contexts and the events
/// that it is shown, and on nothing else.
///
/// The protocol has two phases. [`next`](Generator::next) answers what *would* come next; whoever asked takes it with
/// [`commit`](Generator::commit), or asks again later. This is what lets several generators compete for a thread and
/// lose nothing:
///
/// - `next` is idempotent: asked again with the same context it gives the same answer. Random choices are made once
///   and kept until `commit`. With another context the answer may differ (another process, another time).
/// - `commit` may only follow a `next` that answered an operation, and takes exactly that one.
/// - `Exhausted` is final.
/// - `update` tells of every invocation (after its commit) and every completion of the threads that this generator
///   may use. Whether an event began or ended an operation says
///   [`Context::is_free`]: its thread is busy or free.
///
/// The operation that `next` answers names a process that is free in the context and a time that is not before the
/// context's; an operation in the future is asked for again when its time has come. It is an
/// [`Invoke`](seatrial_history::OpType::Invoke) for clients and an [`Info`](seatrial_history::OpType::Info) for the
/// nemesis, or one of the special operations [`SLEEP`] and [`LOG`].
pub trait Generator: Send {
    /// What would come next.
    fn next(&mut self, context: &Context) -> Next;

    /// Takes the operation that the last [`next`](Generator::next) answered.
    fn commit(&mut self);

    /// Tells of an event: an operation began or ended.
    fn update(&mut self, context: &Context, event: &Op);

    /// Itself and the generators in it, for messages to people.
    fn tree(&self) -> Tree {
        Tree::leaf(std::any::type_name::<Self>())
    }

    /// The same behind a pointer, so that different generators fit into one list.
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

    /// The first operation again and again: the state never advances. A random choice is part of the state, so the
    /// value stays the same too; for fresh values see [`function`](crate::function).
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

    /// Operations at random intervals, uniform in `0..2 × mean`, over all threads together. What is up to a second late is made
    /// up for.
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

    /// Begins when all threads are free.
    fn synchronize(self) -> Synchronize<Self>
    where
        Self: Sized,
    {
        Synchronize::new(self)
    }

    /// When this has ended and all threads are free, goes on with `after`.
    fn then<G: Generator>(self, after: G) -> Then<Self, G>
    where
        Self: Sized,
    {
        Then::new(self, after)
    }

    /// Ends when one of its operations completed with `ok`.
    fn until_ok(self) -> UntilOk<Self>
    where
        Self: Sized,
    {
        UntilOk::new(self)
    }

    /// Every operation changed by `change`, which must answer the same when asked again.
    fn map<F: FnMut(Op) -> Op + Send>(self, change: F) -> Map<Self, F>
    where
        Self: Sized,
    {
        Map::new(self, change)
    }

    /// Only the operations that `keep` likes.
    fn filter<F: FnMut(&Op) -> bool + Send>(self, keep: F) -> Filter<Self, F>
    where
        Self: Sized,
    {
        Filter::new(self, keep)
    }

    /// On the threads that satisfy `rule` only; it sees no others, and no events of others.
    fn on_threads(self, rule: impl Fn(Thread) -> bool + Send + 'static) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::new("on-threads", rule, self)
    }

    /// On client threads only. They are asked when something happened to them or when it is time, as if they were alone.
    fn clients(self) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::clients(self)
    }

    /// On the nemesis only. It is asked when something happened to it or when it is time, as if it were alone.
    fn nemesis(self) -> OnThreads<Self>
    where
        Self: Sized,
    {
        OnThreads::nemesis(self)
    }

    /// Ends before more than `count` different processes could have taken part.
    fn process_limit(self, count: u64) -> ProcessLimit<Self>
    where
        Self: Sized,
    {
        ProcessLimit::new(count, self)
    }

    /// At most `count` of its operations are open at a time; more wait.
    fn concurrency_limit(self, count: usize) -> ConcurrencyLimit<Self>
    where
        Self: Sized,
    {
        ConcurrencyLimit::new(count, self)
    }

    /// Every operation at the next multiple of `interval` since the beginning of the test, so that many threads act at the same
    /// instant: what brings races out.
    fn delay_til(self, interval: Duration) -> DelayTil<Self>
    where
        Self: Sized,
    {
        DelayTil::new(interval, self)
    }

    /// Answers the same operation again for up to `duration` while nobody takes it and its process is free, instead of
    /// asking a generator that is slow to answer.
    fn cache(self, duration: Duration) -> Cache<Self>
    where
        Self: Sized,
    {
        Cache::new(duration, self)
    }

    /// Calls operations by other names: pairs of the old `f` and the new one.
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

    /// Calls `react` for every event, in place of this generator's own `update`; it may change or replace the generator,
    /// or pass the event on to it.
    fn on_update<F>(self, react: F) -> OnUpdate<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut Self, &Context, &Op) + Send,
    {
        OnUpdate::new(self, react)
    }

    /// Shows every answer and every event to `show`.
    fn trace<F>(self, show: F) -> Trace<Self, F>
    where
        Self: Sized,
        F: FnMut(&Context, Traced<'_>) + Send,
    {
        Trace::new(self, show)
    }

    /// A panic of this generator stops the test with a message that shows the generator and the context. The interpreter's
    /// driver would name the panic alone.
    fn friendly_exceptions(self) -> FriendlyExceptions<Self>
    where
        Self: Sized,
    {
        FriendlyExceptions::new(self)
    }

    /// Stops with a message that shows the generator as soon as it answers a wrong operation. The interpreter does so
    /// for the whole generator anyway; around a part this names the part.
    fn validate(self) -> Validate<Self>
    where
        Self: Sized,
    {
        Validate::new(self)
    }
}

/// What a generator answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// This operation, at its time.
    Op(Op),
    /// Nothing for now; ask again after an event or a little later.
    Pending,
    /// Nothing any more, for ever.
    Exhausted,
    /// The generator made a mistake; the test ends with this message.
    Failed(Box<Failure>),
}

/// `f` of the special operation that makes its thread wait; its value is the time in nanoseconds. Not recorded.
pub const SLEEP: Symbol = Symbol::new("@sleep");

/// `f` of the special operation that shows its value to the person at the test. Not recorded.
pub const LOG: Symbol = Symbol::new("@log");

/// Is this one of the operations that the interpreter carries out itself and does not record?
pub fn is_special(op: &Op) -> bool {
    op.is_info() && (op.f == SLEEP || op.f == LOG)
}

/// The time of an operation that has one; a time that is not known is the beginning.
pub(crate) fn time_of(op: &Op) -> Time {
    Time::from_nanoseconds(u64::try_from(op.time).unwrap_or(0))
}

/// Moves an operation to `time`, unless it is later.
pub fn not_before(op: &mut Op, time: Time) {
    op.time = op
        .time
        .max(i64::try_from(time.nanoseconds()).unwrap_or(i64::MAX));
}

/// A generator and those in it, by name, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The name, with its parameters.
    pub name: String,
    /// The generators inside, at most [`Tree::CHILDREN_MAX`] of them.
    pub children: Vec<Tree>,
}

impl Tree {
    /// Children that are shown; of more, the first.
    pub const CHILDREN_MAX: usize = 8;

    /// A generator without others in it.
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

/// One generator a line, those inside indented.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// Its tree.
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

/// `None` is exhausted.
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

/// One operation by whoever is free, or by a given process.
#[derive(Clone, Debug)]
pub struct Template {
    f: Symbol,
    value: Value,
    extra: Extra,
    /// Who must do it.
    process: Option<Process>,
    /// Not before this time.
    time: Time,
    taken: bool,
}

/// The operation `f` of `value`, once, by whoever is free: an `invoke` for a client, an `info` for the nemesis.
pub fn operation(f: impl Into<Symbol>, value: Value) -> Template {
    Template {
        f: f.into(),
        value,
        extra: Extra::NONE,
        process: None,
        time: Time::ZERO,
        taken: false,
    }
}

/// One thread does nothing for this time. Repeat it to sleep repeatedly.
pub fn sleep(duration: Duration) -> Template {
    let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    operation(SLEEP, Value::Int(nanoseconds))
}

/// Shows a message, once.
pub fn log(message: &str) -> Template {
    operation(LOG, Value::text(message))
}

impl Template {
    /// The same with one further field.
    pub fn with(mut self, name: impl Into<Symbol>, value: Value) -> Template {
        self.extra = self.extra.with(name.into(), value);
        self
    }

    /// The same by this process, as soon as it is free.
    pub fn by(self, process: Process) -> Template {
        Template {
            process: Some(process),
            ..self
        }
    }

    /// The same, but not before this time.
    pub fn at(self, time: Time) -> Template {
        Template { time, ..self }
    }
}

/// This operation by its process, once, not before its time.
impl From<Op> for Template {
    fn from(op: Op) -> Template {
        let time = time_of(&op);
        let template = operation(op.f, op.value).by(op.process).at(time);
        Template {
            extra: op.extra,
            ..template
        }
    }
}

impl Generator for Template {
    fn next(&mut self, context: &Context) -> Next {
        if self.taken {
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
            op.kind = OpType::Info;
        }
        not_before(&mut op, self.time);
        Next::Op(op)
    }

    fn commit(&mut self) {
        self.taken = true;
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        Tree::leaf(format!("{} {}", self.f, self.value))
    }
}
