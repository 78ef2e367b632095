//! Combinators that hook into a generator: event hooks, traces, panics as failures, generators delivered later.

use seatrial_history::{Op, Symbol};
use seatrial_machine::panic_text;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::validate_operations::GeneratorFailure;
use crate::{Context, Generator, Next, Tree};

/// See [`Generator::on_update`].
pub struct OnUpdate<G, F> {
    generator: G,
    hook: F,
    /// Has the generator ended? `Exhausted` is final, so the hook must not replace it by another generator afterwards.
    ended: bool,
}

impl<G: Generator, F: FnMut(&mut G, &Context, &Op) + Send> OnUpdate<G, F> {
    pub(crate) fn new(generator: G, hook: F) -> OnUpdate<G, F> {
        OnUpdate {
            generator,
            hook,
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
            (self.hook)(&mut self.generator, context, event);
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

/// An answer or an event of a generator, as shown by [`Generator::trace`].
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// The generator's [`next`](Generator::next) returned this.
    Answered(&'a Next),
    /// The generator's [`update`](Generator::update) received this event.
    Received(&'a Op),
}

impl fmt::Display for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Traced::Answered(Next::Op(op)) => write!(f, "answered {op}"),
            Traced::Answered(Next::Pending) => f.write_str("answered pending"),
            Traced::Answered(Next::Exhausted) => f.write_str("answered exhausted"),
            Traced::Answered(Next::Failed(failure)) => write!(f, "failed: {}", failure.problem),
            Traced::Received(op) => write!(f, "received {op}"),
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
        (self.show)(context, Traced::Received(event));
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
    /// The first panic. One outside `next` is reported by the next call of `next`.
    failed: Option<Box<GeneratorFailure>>,
}

impl<G: Generator> FriendlyExceptions<G> {
    pub(crate) fn new(generator: G) -> FriendlyExceptions<G> {
        FriendlyExceptions {
            generator,
            failed: None,
        }
    }

    /// Runs `action`; a panic becomes a failure that shows the generator.
    fn guard<T>(&mut self, method: &str, action: impl FnOnce(&mut G) -> T) -> Option<T> {
        // Unwind safety: after a panic only `tree` of the generator is called, which reads no invariants.
        match catch_unwind(AssertUnwindSafe(|| action(&mut self.generator))) {
            Ok(done) => Some(done),
            Err(panic) => {
                let problem = format!("panic in {method}: {}", panic_text(&*panic));
                let failure = GeneratorFailure::new(problem, self.generator.tree());
                self.failed = Some(Box::new(failure));
                None
            }
        }
    }
}

impl<G: Generator> Generator for FriendlyExceptions<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.failed.is_none()
            && let Some(next) = self.guard("next", |generator| generator.next(context))
        {
            return next;
        }
        match &self.failed {
            Some(failure) => {
                let mut failure = failure.clone();
                let (free, all) = (context.free_count(), context.thread_count());
                let time = context.time().nanoseconds();
                let panic = &failure.problem;
                failure.problem = format!("{panic} (at {time} ns, {free} of {all} threads free)");
                Next::Failed(failure)
            }
            None => Next::Exhausted,
        }
    }

    fn commit(&mut self) {
        self.guard("commit", Generator::commit);
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if self.failed.is_none() {
            self.guard("update", |generator| {
                generator.update(context, event);
            });
        }
    }

    fn tree(&self) -> Tree {
        Tree::around("friendly-exceptions", &self.generator)
    }
}

/// The sending half of [`promise`]: delivers the generator. Cheap to clone.
#[derive(Debug)]
pub struct GeneratorPromise<G> {
    slot: Arc<Mutex<Option<G>>>,
}

impl<G> Clone for GeneratorPromise<G> {
    fn clone(&self) -> GeneratorPromise<G> {
        GeneratorPromise {
            slot: Arc::clone(&self.slot),
        }
    }
}

/// The receiving half of [`promise`]: pending until a generator is delivered, then that generator.
#[derive(Debug)]
pub struct PromisedGenerator<G> {
    slot: Arc<Mutex<Option<G>>>,
    /// The delivered generator, once taken from the slot.
    generator: Option<G>,
}

/// A generator that is pending until one is [delivered](GeneratorPromise::deliver), from any thread: for operations that
/// depend on what a test finds out while it runs. When all senders have been dropped without a delivery, it is exhausted.
pub fn promise<G: Generator>() -> (GeneratorPromise<G>, PromisedGenerator<G>) {
    let slot = Arc::new(Mutex::new(None));
    let promised = PromisedGenerator {
        slot: Arc::clone(&slot),
        generator: None,
    };
    (GeneratorPromise { slot }, promised)
}

impl<G> GeneratorPromise<G> {
    /// Delivers the generator. A delivery replaces an earlier one that has not been taken yet; once one has been taken, a
    /// further delivery has no effect.
    pub fn deliver(&self, generator: G) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(generator);
    }
}

impl<G: Generator> Generator for PromisedGenerator<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.generator.is_none() {
            // Counted before the slot is read: a sender that delivers and is dropped in between must not look exhausted.
            let has_sender = Arc::strong_count(&self.slot) > 1;
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            self.generator = slot.take();
            if self.generator.is_none() {
                return if has_sender {
                    Next::Pending
                } else {
                    Next::Exhausted
                };
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

/// Replaces an operation's `f` by the new name in this list of old and new names, if it is listed.
pub fn renamed(mut op: Op, names: &[(Symbol, Symbol)]) -> Op {
    if let Some((_, new)) = names.iter().find(|(old, _)| *old == op.f) {
        op.f = *new;
    }
    op
}
