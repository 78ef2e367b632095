//! Combinators that choose among generators, follow one with another, or change what they answer.

use seatrial_history::Op;
use seatrial_machine::Rng;
use std::fmt;

use crate::generator::time_of;
use crate::schedule::Synchronize;
use crate::validate::Failure;
use crate::{Context, Generator, Next, Tree};

/// How often in a row a generator may come to nothing (a function that answers empty generators, a filter that
/// refuses) before that counts as a mistake: an endless loop must not hang the test.
const FRUITLESS_MAX: u32 = 10_000;

/// Several generators compete; the operation that is due soonest wins, ties by lot.
///
/// The competitors are asked in a random order, weighted without replacement, and the first whose operation is due now
/// ends it: nothing can be sooner, and by Luce's choice axiom the chance to win among those that tie is proportional to
/// their weight, as if all had been asked. The order is drawn from a copy of the stream, which moves on `commit` only.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    rng: Rng,
    /// Competitors not yet asked, with their weights; kept to reuse its memory.
    waiting: Vec<(usize, u64)>,
    /// Who gave the last answer.
    pub(crate) winner: usize,
}

/// What became of a contest.
pub(crate) enum Outcome {
    /// This is the answer.
    Next(Next),
    /// This competitor is exhausted: remove it and hold the contest again.
    Exhausted(usize),
}

impl Contest {
    pub(crate) fn new(rng: Rng) -> Contest {
        Contest {
            rng,
            waiting: Vec::new(),
            winner: 0,
        }
    }

    /// Names those who take part (number and weight above 0).
    pub(crate) fn enter(&mut self, competitors: impl Iterator<Item = (usize, u64)>) {
        self.waiting.clear();
        self.waiting.extend(competitors);
    }

    /// Holds the contest of those who entered; [`Next::Exhausted`] when nobody did.
    pub(crate) fn hold(
        &mut self,
        context: &Context,
        mut ask: impl FnMut(usize) -> Next,
    ) -> Outcome {
        let mut rng = self.rng.clone();
        let mut total: u64 = self.waiting.iter().map(|(_, weight)| weight).sum();
        let mut best: Option<Op> = None;
        let mut pending = false;
        while !self.waiting.is_empty() {
            let competitor = draw(&mut rng, &mut self.waiting, &mut total);
            match ask(competitor) {
                Next::Op(op) => {
                    if best.as_ref().is_none_or(|best| op.time < best.time) {
                        self.winner = competitor;
                        let due = time_of(&op) <= context.time();
                        best = Some(op);
                        if due {
                            break;
                        }
                    }
                }
                Next::Pending => pending = true,
                Next::Exhausted => return Outcome::Exhausted(competitor),
                failed @ Next::Failed(_) => return Outcome::Next(failed),
            }
        }
        Outcome::Next(match best {
            Some(op) => Next::Op(op),
            None if pending => Next::Pending,
            None => Next::Exhausted,
        })
    }

    /// The answer was taken: the next contest has a lot of its own.
    pub(crate) fn commit(&mut self) {
        self.rng.word();
    }
}

/// Takes one of `waiting` out, each with a chance proportional to its weight.
fn draw(rng: &mut Rng, waiting: &mut Vec<(usize, u64)>, total: &mut u64) -> usize {
    let mut rank = if waiting.len() == 1 {
        0
    } else {
        rng.below(*total)
    };
    let chosen = waiting.iter().position(|&(_, weight)| {
        let found = rank < weight;
        rank = rank.saturating_sub(weight);
        found
    });
    let (competitor, weight) = waiting.swap_remove(chosen.unwrap_or(0));
    *total -= weight;
    competitor
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
    let generators = generators.into_iter().map(Some).collect();
    Any {
        generators,
        contest: Contest::new(rng),
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
            }
        }
        loop {
            let alive = self.generators.iter().enumerate();
            let alive = alive.filter(|(_, generator)| generator.is_some());
            self.contest.enter(alive.map(|(index, _)| (index, 1)));
            let generators = &mut self.generators;
            match self
                .contest
                .hold(context, |index| generators[index].next(context))
            {
                Outcome::Next(next) => return next,
                Outcome::Exhausted(index) => self.generators[index] = None,
            }
        }
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
    rng: Rng,
    generators: Vec<G>,
    /// The weight of each generator; empty when all weigh the same.
    weights: Vec<u64>,
    /// Whose turn it is.
    turn: usize,
    /// Who gave the last answer: as a rule the one whose turn it is.
    winner: usize,
}

/// A random mixture: each operation comes from one of these generators, chosen uniformly among those that are not
/// exhausted. A generator that has nothing for now gives its turn to the next that has. Events are not passed on.
pub fn mix<G: Generator>(rng: Rng, generators: impl IntoIterator<Item = G>) -> Mix<G> {
    let mut mix = Mix {
        rng,
        generators: generators.into_iter().collect(),
        weights: Vec::new(),
        turn: 0,
        winner: 0,
    };
    mix.redraw();
    mix
}

/// Like [`mix`], but a generator is chosen as often as its weight says: one of weight 2 twice as often as one of weight 1,
/// one of weight 0 only when no other has anything to do. When all weigh the same, this is [`mix`], draw for draw.
///
/// Panics when the weights together are more than 2^64 − 1.
pub fn weighted_mix<G: Generator>(
    rng: Rng,
    generators: impl IntoIterator<Item = (u64, G)>,
) -> Mix<G> {
    let (weights, generators): (Vec<u64>, Vec<G>) = generators.into_iter().unzip();
    let total = weights
        .iter()
        .try_fold(0_u64, |sum, weight| sum.checked_add(*weight));
    assert!(total.is_some(), "the weights of a mix are too great");
    let same = weights.windows(2).all(|pair| pair[0] == pair[1]);
    let mut mix = Mix {
        rng,
        generators,
        weights: if same { Vec::new() } else { weights },
        turn: 0,
        winner: 0,
    };
    mix.redraw();
    mix
}

impl<G> Mix<G> {
    fn redraw(&mut self) {
        if self.weights.is_empty() {
            self.turn = self.rng.below(self.generators.len() as u64) as usize;
            return;
        }
        let mut point = self.rng.below(self.weights.iter().sum());
        let chosen = self.weights.iter().position(|&weight| {
            let found = point < weight;
            point = point.saturating_sub(weight);
            found
        });
        self.turn = chosen.unwrap_or(0);
    }

    /// Takes out an exhausted generator; the turn stays with whom it was, if they are still there.
    fn remove(&mut self, index: usize) {
        self.generators.remove(index);
        if !self.weights.is_empty() {
            self.weights.remove(index);
        }
        if index < self.turn {
            self.turn -= 1;
        } else if index == self.turn {
            self.redraw();
        }
    }
}

impl<G: Generator> Generator for Mix<G> {
    fn next(&mut self, context: &Context) -> Next {
        'again: loop {
            let count = self.generators.len();
            for offset in 0..count {
                let index = (self.turn + offset) % count;
                match self.generators[index].next(context) {
                    Next::Pending => {}
                    Next::Exhausted => {
                        self.remove(index);
                        continue 'again;
                    }
                    answer => {
                        self.winner = index;
                        return answer;
                    }
                }
            }
            return if count == 0 {
                Next::Exhausted
            } else {
                Next::Pending
            };
        }
    }

    fn commit(&mut self) {
        self.generators[self.winner].commit();
        self.redraw();
    }

    fn update(&mut self, _context: &Context, _event: &Op) {}

    fn tree(&self) -> Tree {
        Tree::over("mix", &self.generators)
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
