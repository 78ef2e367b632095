//! Combinators that choose among generators, run one after another, or map and filter operations.

use seatrial_history::Op;
use seatrial_machine::Rng;
use std::fmt;

use crate::generator::time_of;
use crate::schedule::Synchronize;
use crate::validate_operations::GeneratorFailure;
use crate::weighted_order::WeightedOrder;
use crate::{Context, Generator, Next, Tree};

/// Attempts in a row that may yield no operation (a function that returns empty generators, a filter that drops
/// everything) before the generator fails: an endless loop must not hang the test.
const ATTEMPTS_MAX: u32 = 10_000;

/// Chooses among several candidates the operation that is due first; ties are broken at random, by weight.
///
/// The candidates are asked in a random [order](WeightedOrder), and the first one whose operation is due now ends the
/// search: no other can be due earlier. By Luce's choice axiom the probability of winning a tie is proportional to the
/// weight, as if all had been asked.
#[derive(Clone, Debug)]
pub(crate) struct EarliestChoice {
    pub(crate) order: WeightedOrder,
    /// The candidate whose operation was returned last.
    pub(crate) chosen: usize,
}

impl EarliestChoice {
    /// A choice among `candidates` candidates of equal weight.
    pub(crate) fn new(rng: Rng, candidates: usize) -> EarliestChoice {
        EarliestChoice {
            order: WeightedOrder::new(rng, candidates),
            chosen: 0,
        }
    }

    /// Asks the candidates and returns the earliest operation. `ask` returns a candidate's answer, or `None` when it
    /// cannot take part this time; an exhausted candidate is never asked again. [`Next::Exhausted`] when no candidate has
    /// an operation and none is pending.
    pub(crate) fn choose(
        &mut self,
        context: &Context,
        mut ask: impl FnMut(usize) -> Option<Next>,
    ) -> Next {
        let mut best: Option<Op> = None;
        let mut pending = false;
        let mut place = 0;
        while let Some(candidate) = self.order.nth(place) {
            place += 1;
            match ask(candidate) {
                Some(Next::Op(op)) if best.as_ref().is_none_or(|best| op.time < best.time) => {
                    self.chosen = candidate;
                    let due = time_of(&op) <= context.time();
                    best = Some(op);
                    if due {
                        break;
                    }
                }
                Some(Next::Pending) => pending = true,
                Some(Next::Exhausted) => {
                    // The next candidate moves to the place of the removed one.
                    place -= 1;
                    self.order.remove(place);
                }
                Some(failed @ Next::Failed(_)) => return failed,
                Some(Next::Op(_)) | None => {}
            }
        }
        match best {
            Some(op) => Next::Op(op),
            None if pending => Next::Pending,
            None => Next::Exhausted,
        }
    }

    /// The returned operation was taken: the next choice draws a new order.
    pub(crate) fn commit(&mut self) {
        self.order.commit();
    }
}

/// Asks a generator and drops it when it is exhausted.
pub(crate) fn ask<G: Generator>(generator: &mut Option<G>, context: &Context) -> Next {
    let next = generator.next(context);
    if matches!(next, Next::Exhausted) {
        *generator = None;
    }
    next
}

/// Takes the operation that is due first from any of its generators, ties at random, and passes every event to all of
/// them. See [`any`].
#[derive(Debug)]
pub struct Any<G> {
    /// `None` for an exhausted generator.
    generators: Vec<Option<G>>,
    choice: EarliestChoice,
    /// Does it end as soon as one generator is exhausted?
    shortest: bool,
}

/// The operations of all these generators, each as soon as it is due, ties at random. No operation is lost.
pub fn any<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Any<G> {
    let generators: Vec<Option<G>> = generators.into_iter().map(Some).collect();
    Any {
        choice: EarliestChoice::new(rng, generators.len()),
        generators,
        shortest: false,
    }
}

/// Like [`any`], but ends as soon as one generator has ended. To notice that, every call asks all of them; `any` stops
/// at the first operation that is due.
pub fn shortest_any<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Any<G> {
    Any {
        shortest: true,
        ..any(rng, generators)
    }
}

impl<G: Generator> Generator for Any<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.shortest {
            let mut answers = self.generators.iter_mut().map(|one| one.next(context));
            if answers.any(|next| matches!(next, Next::Exhausted)) {
                self.generators.clear();
                self.choice.order.clear();
            }
        }
        let generators = &mut self.generators;
        self.choice
            .choose(context, |index| Some(ask(&mut generators[index], context)))
    }

    fn commit(&mut self) {
        self.generators[self.choice.chosen].commit();
        self.choice.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        for generator in &mut self.generators {
            generator.update(context, event);
        }
    }

    fn tree(&self) -> Tree {
        let name = if self.shortest { "shortest-any" } else { "any" };
        Tree::over(name, self.generators.iter().flatten())
    }
}

/// Takes each operation from one of its generators, chosen at random. See [`mix`] and [`weighted_mix`].
#[derive(Debug)]
pub struct Mix<G> {
    /// `None` for an exhausted generator.
    generators: Vec<Option<G>>,
    order: WeightedOrder,
    /// The generator whose operation was returned last.
    chosen: usize,
}

/// A random mixture: each operation comes from one of these generators, chosen uniformly among those that are not
/// pending. Events are not passed on.
pub fn mix<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Mix<G> {
    let generators: Vec<Option<G>> = generators.into_iter().map(Some).collect();
    Mix {
        order: WeightedOrder::new(rng, generators.len()),
        generators,
        chosen: 0,
    }
}

/// Like [`mix`], but a generator is chosen with a probability proportional to its weight; one of weight 0 only when no
/// other has an operation. With equal weights it makes the same choices as [`mix`].
pub fn weighted_mix<G: Generator>(
    rng: Rng,
    generators: impl IntoIterator<Item = (u64, G)>,
) -> Mix<G> {
    let (weights, generators): (Vec<u64>, Vec<G>) = generators.into_iter().unzip();
    let mut mix = mix(rng, generators);
    mix.order.set_weights(weights);
    mix
}

impl<G: Generator> Generator for Mix<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut place = 0;
        while let Some(index) = self.order.nth(place) {
            match ask(&mut self.generators[index], context) {
                Next::Pending => place += 1,
                Next::Exhausted => self.order.remove(place),
                answer => {
                    self.chosen = index;
                    return answer;
                }
            }
        }
        // Every generator that is left was pending and advanced `place`.
        if place == 0 {
            Next::Exhausted
        } else {
            Next::Pending
        }
    }

    fn commit(&mut self) {
        self.generators[self.chosen].commit();
        self.order.commit();
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        Tree::over("mix", self.generators.iter().flatten())
    }
}

/// Alternates between two generators. See [`flip_flop`].
#[derive(Debug)]
pub struct FlipFlop<A, B> {
    first: A,
    second: B,
    /// Does the next operation come from `second`?
    flipped: bool,
    ended: bool,
}

/// One operation of `first`, one of `second`, and so on; ends when the generator that is next has ended. Events are not
/// passed on.
pub fn flip_flop<A: Generator, B: Generator>(first: A, second: B) -> FlipFlop<A, B> {
    FlipFlop {
        first,
        second,
        flipped: false,
        ended: false,
    }
}

impl<A: Generator, B: Generator> Generator for FlipFlop<A, B> {
    fn next(&mut self, context: &Context) -> Next {
        if self.ended {
            return Next::Exhausted;
        }
        let next = if self.flipped {
            self.second.next(context)
        } else {
            self.first.next(context)
        };
        self.ended = matches!(next, Next::Exhausted);
        next
    }

    fn commit(&mut self) {
        if self.flipped {
            self.second.commit();
        } else {
            self.first.commit();
        }
        self.flipped = !self.flipped;
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        let children = vec![self.first.tree(), self.second.tree()];
        Tree {
            name: "flip-flop".into(),
            children,
        }
    }
}

/// Runs generators one after another. See [`sequence`].
#[derive(Debug)]
pub struct GeneratorSequence<I: Iterator> {
    later: I,
    /// The current generator; `None` after the last.
    head: Option<I::Item>,
}

/// All operations of the first generator, then all of the second, and so on. Only the current generator receives events.
/// The iterator may be endless; its next generator is made when the current one is exhausted. Threads do not wait for
/// each other between generators; see [`phases`] for that.
pub fn sequence<I>(generators: I) -> GeneratorSequence<I::IntoIter>
where
    I: IntoIterator,
    I::Item: Generator,
{
    let mut later = generators.into_iter();
    let head = later.next();
    GeneratorSequence { later, head }
}

impl<I> Generator for GeneratorSequence<I>
where
    I: Iterator + Send,
    I::Item: Generator,
{
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..ATTEMPTS_MAX {
            let Some(head) = &mut self.head else {
                return Next::Exhausted;
            };
            match head.next(context) {
                Next::Exhausted => self.head = self.later.next(),
                next => return next,
            }
        }
        let problem = format!("a sequence had {ATTEMPTS_MAX} empty generators in a row");
        Next::Failed(Box::new(GeneratorFailure::new(problem, self.tree())))
    }

    fn commit(&mut self) {
        self.head.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.head.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::over("sequence, now in", &self.head)
    }
}

/// A sequence of generators, each of which waits for all threads. See [`phases`].
pub type Phases<I, G> = GeneratorSequence<std::iter::Map<I, fn(G) -> Synchronize<G>>>;

/// One generator after another; each begins when all threads are free.
pub fn phases<I>(generators: I) -> Phases<I::IntoIter, I::Item>
where
    I: IntoIterator,
    I::Item: Generator,
{
    sequence(
        generators
            .into_iter()
            .map(Synchronize::new as fn(I::Item) -> Synchronize<I::Item>),
    )
}

/// See [`Generator::then`].
#[derive(Clone, Debug)]
pub struct Then<A, B> {
    /// `None` when exhausted.
    first: Option<A>,
    second: Synchronize<B>,
}

impl<A: Generator, B: Generator> Then<A, B> {
    pub(crate) fn new(first: A, second: B) -> Then<A, B> {
        Then {
            first: Some(first),
            second: Synchronize::new(second),
        }
    }
}

impl<A: Generator, B: Generator> Generator for Then<A, B> {
    fn next(&mut self, context: &Context) -> Next {
        match self.first.next(context) {
            Next::Exhausted => {
                self.first = None;
                self.second.next(context)
            }
            next => next,
        }
    }

    fn commit(&mut self) {
        match &mut self.first {
            Some(first) => first.commit(),
            None => self.second.commit(),
        }
    }

    fn update(&mut self, context: &Context, event: &Op) {
        match &mut self.first {
            Some(first) => first.update(context, event),
            None => self.second.update(context, event),
        }
    }

    fn tree(&self) -> Tree {
        let children = self
            .first
            .iter()
            .map(Generator::tree)
            .chain([self.second.tree()]);
        Tree {
            name: "then".into(),
            children: children.collect(),
        }
    }
}

/// Calls a function for each generator to run. See [`function`].
pub struct Function<F, G> {
    /// `None` after the function has returned `None`.
    make: Option<F>,
    /// The generator to exhaust before the next call.
    current: Option<G>,
}

/// Runs the generator that the function returns until it is exhausted, then calls the function again; `None` ends it.
/// This gives operations fresh random values: the function draws from a stream that it owns. It also restarts a finite
/// generator without end.
pub fn function<G: Generator>(
    mut make: impl FnMut() -> Option<G> + Send,
) -> Function<impl FnMut(&Context) -> Option<G> + Send, G> {
    Function {
        make: Some(move |_: &Context| make()),
        current: None,
    }
}

/// Like [`function`], for a function of the context in which the generator is first asked.
pub fn function_of<G: Generator, F: FnMut(&Context) -> Option<G> + Send>(
    make: F,
) -> Function<F, G> {
    Function {
        make: Some(make),
        current: None,
    }
}

/// A finite generator, run `times` times; `make` makes it for each run.
pub fn cycle<G: Generator>(
    times: u64,
    mut make: impl FnMut() -> G + Send,
) -> Function<impl FnMut(&Context) -> Option<G> + Send, G> {
    let mut remaining = times;
    function(move || {
        remaining = remaining.checked_sub(1)?;
        Some(make())
    })
}

impl<G: Generator, F: FnMut(&Context) -> Option<G> + Send> Generator for Function<F, G> {
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..ATTEMPTS_MAX {
            match self.current.next(context) {
                Next::Exhausted => {}
                next => return next,
            }
            self.current = self.make.as_mut().and_then(|make| make(context));
            if self.current.is_none() {
                self.make = None;
                return Next::Exhausted;
            }
        }
        let problem = format!("a function returned {ATTEMPTS_MAX} empty generators in a row");
        Next::Failed(Box::new(GeneratorFailure::new(problem, self.tree())))
    }

    fn commit(&mut self) {
        self.current.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.current.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::over("function", &self.current)
    }
}

impl<F, G: fmt::Debug> fmt::Debug for Function<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

/// See [`Generator::map`].
#[derive(Clone)]
pub struct Map<G, F> {
    generator: G,
    change: F,
}

impl<G: Generator, F: FnMut(Op) -> Op + Send> Map<G, F> {
    pub(crate) fn new(generator: G, change: F) -> Map<G, F> {
        Map { generator, change }
    }
}

impl<G: Generator, F: FnMut(Op) -> Op + Send> Generator for Map<G, F> {
    fn next(&mut self, context: &Context) -> Next {
        match self.generator.next(context) {
            Next::Op(op) => Next::Op((self.change)(op)),
            other => other,
        }
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around("map", &self.generator)
    }
}

impl<G: fmt::Debug, F> fmt::Debug for Map<G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("generator", &self.generator)
            .finish_non_exhaustive()
    }
}

/// See [`Generator::filter`].
#[derive(Clone)]
pub struct Filter<G, F> {
    generator: G,
    keep: F,
}

impl<G: Generator, F: FnMut(&Op) -> bool + Send> Filter<G, F> {
    pub(crate) fn new(generator: G, keep: F) -> Filter<G, F> {
        Filter { generator, keep }
    }
}

impl<G: Generator, F: FnMut(&Op) -> bool + Send> Generator for Filter<G, F> {
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..ATTEMPTS_MAX {
            match self.generator.next(context) {
                // Committed and dropped. `next` stays idempotent: the operation that passes is not committed here.
                Next::Op(op) if !(self.keep)(&op) => self.generator.commit(),
                next => return next,
            }
        }
        let problem = format!("a filter dropped {ATTEMPTS_MAX} operations in a row");
        Next::Failed(Box::new(GeneratorFailure::new(problem, self.tree())))
    }

    fn commit(&mut self) {
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.generator.update(context, event);
    }

    fn tree(&self) -> Tree {
        Tree::around("filter", &self.generator)
    }
}

impl<G: fmt::Debug, F> fmt::Debug for Filter<G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("generator", &self.generator)
            .finish_non_exhaustive()
    }
}
