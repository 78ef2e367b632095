//! Combinators that choose among generators, follow one with another, or change what they answer.

use seatrial_history::Op;
use seatrial_machine::Rng;
use std::fmt;

use crate::generator::time_of;
use crate::lots::Lots;
use crate::schedule::Synchronize;
use crate::validate::Failure;
use crate::{Context, Generator, Next, Tree};

/// How often in a row a generator may come to nothing (a function that answers empty generators, a filter that
/// refuses) before that counts as a mistake: an endless loop must not hang the test.
const FRUITLESS_MAX: u32 = 10_000;

/// Several generators compete; the operation that is due soonest wins, ties by lot.
///
/// The competitors are asked in the order of their lots, and the first whose operation is due now ends it: nothing can be
/// sooner, and by Luce's choice axiom the chance to win among those that tie is proportional to their weight, as if all had
/// been asked.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) lots: Lots,
    /// Who gave the last answer.
    pub(crate) winner: usize,
}

impl Contest {
    /// So many competitors of equal weight.
    pub(crate) fn new(rng: Rng, competitors: usize) -> Contest {
        Contest {
            lots: Lots::new(rng, competitors),
            winner: 0,
        }
    }

    /// Holds the contest. `ask` answers what a competitor says, `None` when it cannot take part this time; one that is
    /// exhausted is not asked again, ever. [`Next::Exhausted`] when nobody has anything to say.
    pub(crate) fn hold(
        &mut self,
        context: &Context,
        mut ask: impl FnMut(usize) -> Option<Next>,
    ) -> Next {
        let mut best: Option<Op> = None;
        let mut pending = false;
        let mut place = 0;
        while let Some(competitor) = self.lots.nth(place) {
            place += 1;
            match ask(competitor) {
                Some(Next::Op(op)) if best.as_ref().is_none_or(|best| op.time < best.time) => {
                    self.winner = competitor;
                    let due = time_of(&op) <= context.time();
                    best = Some(op);
                    if due {
                        break;
                    }
                }
                Some(Next::Pending) => pending = true,
                Some(Next::Exhausted) => {
                    place -= 1;
                    self.lots.remove(place);
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

    /// The answer was taken: the next contest has lots of its own.
    pub(crate) fn commit(&mut self) {
        self.lots.commit();
    }
}

/// Asks a generator that is dropped when it has ended.
pub(crate) fn ask<G: Generator>(generator: &mut Option<G>, context: &Context) -> Next {
    let next = generator.next(context);
    if matches!(next, Next::Exhausted) {
        *generator = None;
    }
    next
}

/// Takes the operation that is due soonest from any of its generators, ties by lot, and tells all of them of every
/// event. See [`any`].
#[derive(Debug)]
pub struct Any<G> {
    /// Exhausted ones are `None`.
    generators: Vec<Option<G>>,
    contest: Contest,
    /// Is it over as soon as one is exhausted?
    shortest: bool,
}

/// The operations of all these generators, each as soon as it is due, ties by lot. None loses an operation.
pub fn any<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Any<G> {
    let generators: Vec<Option<G>> = generators.into_iter().map(Some).collect();
    Any {
        contest: Contest::new(rng, generators.len()),
        generators,
        shortest: false,
    }
}

/// Like [`any`], but ends as soon as one of them has ended. So all are asked each time, which `any` need not do.
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
                self.contest.lots.clear();
            }
        }
        let generators = &mut self.generators;
        self.contest
            .hold(context, |index| Some(ask(&mut generators[index], context)))
    }

    fn commit(&mut self) {
        self.generators[self.contest.winner].commit();
        self.contest.commit();
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

/// Takes each operation from one of its generators, chosen by lot. See [`mix`] and [`weighted_mix`].
#[derive(Debug)]
pub struct Mix<G> {
    /// Exhausted ones are `None`.
    generators: Vec<Option<G>>,
    lots: Lots,
    /// Who gave the last answer.
    winner: usize,
}

/// A random mixture: each operation comes from one of these generators, chosen uniformly among those that have something
/// for now. Events are not passed on.
pub fn mix<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Mix<G> {
    let generators: Vec<Option<G>> = generators.into_iter().map(Some).collect();
    Mix {
        lots: Lots::new(rng, generators.len()),
        generators,
        winner: 0,
    }
}

/// Like [`mix`], but a generator is chosen as often as its weight says: one of weight 2 twice as often as one of weight 1,
/// one of weight 0 only when no other has anything to do. When all weigh the same, this is [`mix`], draw for draw.
pub fn weighted_mix<G: Generator>(
    rng: Rng,
    generators: impl IntoIterator<Item = (u64, G)>,
) -> Mix<G> {
    let (weights, generators): (Vec<u64>, Vec<G>) = generators.into_iter().unzip();
    let mut mix = mix(rng, generators);
    mix.lots.weigh(weights);
    mix
}

impl<G: Generator> Generator for Mix<G> {
    fn next(&mut self, context: &Context) -> Next {
        let mut place = 0;
        while let Some(index) = self.lots.nth(place) {
            match ask(&mut self.generators[index], context) {
                Next::Pending => place += 1,
                Next::Exhausted => self.lots.remove(place),
                answer => {
                    self.winner = index;
                    return answer;
                }
            }
        }
        if place == 0 {
            Next::Exhausted
        } else {
            Next::Pending
        }
    }

    fn commit(&mut self) {
        self.generators[self.winner].commit();
        self.lots.commit();
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
    /// Is it the second one's turn?
    flipped: bool,
    ended: bool,
}

/// One operation of `first`, one of `second`, and so on; ends when the one whose turn it is has ended. Events are not
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

/// One generator after the other. See [`sequence`].
#[derive(Debug)]
pub struct Sequence<I: Iterator> {
    later: I,
    /// The generator that is not exhausted yet.
    head: Option<I::Item>,
}

/// Everything of the first generator, then everything of the second, and so on. Only the one whose turn it is learns
/// of events. The iterator may be endless; it is asked for a generator when the one before is exhausted.
pub fn sequence<I>(generators: I) -> Sequence<I::IntoIter>
where
    I: IntoIterator,
    I::Item: Generator,
{
    let mut later = generators.into_iter();
    let head = later.next();
    Sequence { later, head }
}

impl<I> Generator for Sequence<I>
where
    I: Iterator + Send,
    I::Item: Generator,
{
    fn next(&mut self, context: &Context) -> Next {
        for _ in 0..FRUITLESS_MAX {
            let Some(head) = &mut self.head else {
                return Next::Exhausted;
            };
            match head.next(context) {
                Next::Exhausted => self.head = self.later.next(),
                next => return next,
            }
        }
        let problem = format!("a sequence had {FRUITLESS_MAX} empty generators in a row");
        Next::Failed(Box::new(Failure::new(problem, self.tree())))
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

/// A sequence of generators that wait for all threads. See [`phases`].
pub type Phases<I, G> = Sequence<std::iter::Map<I, fn(G) -> Synchronize<G>>>;

/// One generator after the other, each begun when all threads are free.
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

/// Asks a function for generators. See [`function`].
pub struct Function<F, G> {
    /// `None` when the function had no more.
    make: Option<F>,
    /// The generator that is being used up.
    current: Option<G>,
}

/// The function is called for a generator, which is used up before the function is called again; `None` ends it. This
/// is how operations get fresh random values: the function draws from a stream that it owns. It also restarts a
/// finite generator for ever.
pub fn function<G: Generator>(
    mut make: impl FnMut() -> Option<G> + Send,
) -> Function<impl FnMut(&Context) -> Option<G> + Send, G> {
    Function {
        make: Some(move |_: &Context| make()),
        current: None,
    }
}

/// Like [`function`], for a function that looks at the context in which the generator is first asked.
pub fn function_of<G: Generator, F: FnMut(&Context) -> Option<G> + Send>(
    make: F,
) -> Function<F, G> {
    Function {
        make: Some(make),
        current: None,
    }
}

/// A finite generator, `times` times from its beginning; each time `make` makes it anew.
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
        for _ in 0..FRUITLESS_MAX {
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
        let problem = format!("a function answered {FRUITLESS_MAX} empty generators in a row");
        Next::Failed(Box::new(Failure::new(problem, self.tree())))
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
        for _ in 0..FRUITLESS_MAX {
            match self.generator.next(context) {
                // Taken and dropped: the next one stays until it is committed, so this stays idempotent.
                Next::Op(op) if !(self.keep)(&op) => self.generator.commit(),
                next => return next,
            }
        }
        let problem = format!("a filter refused {FRUITLESS_MAX} operations in a row");
        Next::Failed(Box::new(Failure::new(problem, self.tree())))
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
