//! Combinators that watch or replace a generator: reactions to events, traces, mistakes with words, promises.

use seatrial_history::{Op, Symbol};
use seatrial_machine::panic_text;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::validate::Failure;
use crate::{Context, Generator, Next, Tree};

/// See [`Generator::on_update`].
pub struct OnUpdate<G, F> {
    generator: G,
    react: F,
    /// An end is for ever: what comes after it is told of no more events.
    ended: bool,
}

impl<G: Generator, F: FnMut(&mut G, &Context, &Op) + Send> OnUpdate<G, F> {
    pub(crate) fn new(generator: G, react: F) -> OnUpdate<G, F> {
        OnUpdate {
            generator,
            react,
            ended: false,
        }
    }
}

impl<G: Generator, F: FnMut(&mut G, &Context, &Op) + Send> Generator for OnUpdate<G, F> {
    fn next(&mut self, context: &Context) -> Next {
        if self.ended {
            return Next::Exhausted;
        }
        let next = self.generator.next(context);
        self.ended = matches!(next, Next::Exhausted);
        next
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if !self.ended {
            (self.react)(&mut self.generator, context, event);
        }
    }

    fn tree(&self) -> Tree {
        Tree::around("on-update", &self.generator)
    }
}

impl<G: fmt::Debug, F> fmt::Debug for OnUpdate<G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnUpdate")
            .field("generator", &self.generator)
            .finish_non_exhaustive()
    }
}

/// What passes a [`Trace`].
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// The generator was asked and answered this.
    Answered(&'a Next),
    /// It received this event.
    Told(&'a Op),
}

impl fmt::Display for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Traced::Answered(Next::Op(op)) => write!(f, "answered {op}"),
            Traced::Answered(Next::Pending) => f.write_str("answered that it is pending"),
            Traced::Answered(Next::Exhausted) => f.write_str("answered that it is exhausted"),
            Traced::Answered(Next::Failed(failure)) => write!(f, "failed: {}", failure.problem),
            Traced::Told(op) => write!(f, "received {op}"),
        }
    }
}

/// See [`Generator::trace`].
pub struct Trace<G, F> {
    generator: G,
    show: F,
}

impl<G: Generator, F: FnMut(&Context, Traced<'_>) + Send> Trace<G, F> {
    pub(crate) fn new(generator: G, show: F) -> Trace<G, F> {
        Trace { generator, show }
    }
}

impl<G: Generator, F: FnMut(&Context, Traced<'_>) + Send> Generator for Trace<G, F> {
    fn next(&mut self, context: &Context) -> Next {
        let next = self.generator.next(context);
        (self.show)(context, Traced::Answered(&next));
        next
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        (self.show)(context, Traced::Told(event));
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around("trace", &self.generator)
    }
}

impl<G: fmt::Debug, F> fmt::Debug for Trace<G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("generator", &self.generator)
            .finish_non_exhaustive()
    }
}

/// See [`Generator::friendly_exceptions`].
#[derive(Debug)]
pub struct FriendlyExceptions<G> {
    generator: G,
    /// A panic outside of `next`, to be told with the next answer.
    failed: Option<Box<Failure>>,
}

impl<G: Generator> FriendlyExceptions<G> {
    pub(crate) fn new(generator: G) -> FriendlyExceptions<G> {
        FriendlyExceptions {
            generator,
            failed: None,
        }
    }

    /// Runs `action`; its panic becomes a failure that shows the generator.
    fn guard<T>(&mut self, doing: &str, action: impl FnOnce(&mut G) -> T) -> Option<T> {
        // After a panic the generator is asked for nothing but its tree.
        match catch_unwind(AssertUnwindSafe(|| action(&mut self.generator))) {
            Ok(done) => Some(done),
            Err(panic) => {
                let problem = format!("a panic while it {doing}: {}", panic_text(&*panic));
                self.failed = Some(Box::new(Failure::new(problem, self.generator.tree())));
                None
            }
        }
    }
}

impl<G: Generator> Generator for FriendlyExceptions<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.failed.is_none()
            && let Some(next) = self.guard("was asked", |generator| generator.next(context))
        {
            return next;
        }
        match &self.failed {
            Some(failure) => {
                let mut failure = failure.clone();
                let (free, all) = (context.free_count(), context.thread_count());
                let time = context.time().nanoseconds();
                let told = &failure.problem;
                failure.problem = format!("{told} (at {time} ns, {free} of {all} threads free)");
                Next::Failed(failure)
            }
            None => Next::Exhausted,
        }
    }

    fn commit(&mut self) {
        self.guard("was taken", Generator::commit);
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if self.failed.is_none() {
            self.guard("received an event", |generator| {
                generator.update(context, event);
            });
        }
    }

    fn tree(&self) -> Tree {
        Tree::around("friendly-exceptions", &self.generator)
    }
}

/// Gives a [`Promised`] generator what it waits for. Cheap to clone.
#[derive(Debug)]
pub struct Promise<G> {
    place: Arc<Mutex<Option<G>>>,
}

impl<G> Clone for Promise<G> {
    fn clone(&self) -> Promise<G> {
        Promise {
            place: Arc::clone(&self.place),
        }
    }
}

/// A generator that is not known yet. See [`promise`].
#[derive(Debug)]
pub struct Promised<G> {
    place: Arc<Mutex<Option<G>>>,
    /// Once it was taken over.
    generator: Option<G>,
}

/// A generator that is pending until somebody, from any thread, [delivers](Promise::deliver) one: for operations that depend on
/// what a test finds out while it runs. When every promise was dropped undelivered, it is exhausted.
pub fn promise<G: Generator>() -> (Promise<G>, Promised<G>) {
    let place = Arc::new(Mutex::new(None));
    let promised = Promised {
        place: Arc::clone(&place),
        generator: None,
    };
    (Promise { place }, promised)
}

impl<G> Promise<G> {
    /// Keeps the promise. Only the first delivery counts once the generator was asked; one before replaces the other.
    pub fn deliver(&self, generator: G) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(generator);
    }
}

impl<G: Generator> Generator for Promised<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.generator.is_none() {
            // Counted before looking: whoever delivers and drops the promise is not overlooked.
            let kept = Arc::strong_count(&self.place) > 1;
            let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
            self.generator = place.take();
            if self.generator.is_none() {
                return if kept { Next::Pending } else { Next::Exhausted };
            }
        }
        self.generator.next(context)
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::over("promise", &self.generator)
    }
}

/// The new name of an operation's function by this list; names that are not in it stay.
pub fn renamed(mut op: Op, names: &[(Symbol, Symbol)]) -> Op {
    if let Some((_, new)) = names.iter().find(|(old, _)| *old == op.f) {
        op.f = *new;
    }
    op
}
