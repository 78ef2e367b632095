//! Combinators that divide the threads among generators.

use seatrial_history::{Key, Op, Process, Value};
use seatrial_machine::{Rng, Time};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::combine::{Contest, ask};
use crate::context::ThreadSet;
use crate::generator::time_of;
use crate::lots::lot_of;
use crate::validate::Failure;
use crate::{Context, Generator, Next, Thread, ThreadFilter, Tree};

/// How long after a pending answer a generator is asked again, if nothing happens before.
const PENDING_INTERVAL: Duration = Duration::from_millis(1);

/// The same while every thread is busy: nothing can begin, but the generator may find that its time is up.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// When a generator that is pending now is asked again, if nothing happens before.
pub(crate) fn patience(context: &Context) -> Time {
    let interval = if context.any_free() {
        PENDING_INTERVAL
    } else {
        BUSY_INTERVAL
    };
    context.time() + interval
}

/// See [`Generator::on_threads`], [`Generator::clients`], [`Generator::nemesis`].
///
/// All clients, and the nemesis, are asked as if they were alone in the test: when something happened to them, when the
/// operation is due that they answered, and a while after they had nothing. In between the last answer holds. So what the
/// others do, and when, changes nothing for them, even where a generator answers differently when it is asked more often.
#[derive(Debug)]
pub struct OnThreads<G> {
    name: &'static str,
    filter: ThreadFilter,
    /// All clients, or the nemesis (true)?
    side: Option<bool>,
    held: Option<Held>,
    generator: G,
}

/// An answer that holds for some time.
#[derive(Debug)]
struct Held {
    /// Pending, or an operation that is not due.
    answer: Next,
    /// From and until when it holds, unless something happens.
    since: Time,
    until: Time,
    /// [`Context::changes`] when it was given.
    changes: u64,
}

impl<G: Generator> OnThreads<G> {
    pub(crate) fn new(
        name: &'static str,
        rule: impl Fn(Thread) -> bool + Send + 'static,
        generator: G,
    ) -> OnThreads<G> {
        OnThreads {
            name,
            filter: ThreadFilter::new(rule),
            side: None,
            held: None,
            generator,
        }
    }

    /// All clients.
    pub(crate) fn clients(generator: G) -> OnThreads<G> {
        OnThreads {
            side: Some(false),
            ..OnThreads::new("clients", Thread::is_client, generator)
        }
    }

    /// The nemesis.
    pub(crate) fn nemesis(generator: G) -> OnThreads<G> {
        OnThreads {
            side: Some(true),
            ..OnThreads::new("nemesis", |thread| !thread.is_client(), generator)
        }
    }

    /// The answer that still holds.
    fn held(&self, context: &Context, changes: u64) -> Option<Next> {
        let held = self.held.as_ref()?;
        let holds =
            held.changes == changes && held.since <= context.time() && context.time() < held.until;
        holds.then(|| {
            context.wake(held.until);
            held.answer.clone()
        })
    }
}

impl<G: Generator> Generator for OnThreads<G> {
    fn next(&mut self, context: &Context) -> Next {
        let Some(side) = self.side else {
            return self.generator.next(&self.filter.apply(context));
        };
        let changes = context.changes(side);
        if let Some(answer) = self.held(context, changes) {
            return answer;
        }
        let narrow = self.filter.apply(context);
        let answer = self.generator.next(&narrow);
        let until = match &answer {
            Next::Op(op) if time_of(op) > context.time() => time_of(op),
            Next::Pending => patience(&narrow),
            _ => {
                self.held = None;
                return answer;
            }
        };
        context.wake(until);
        self.held = Some(Held {
            answer: answer.clone(),
            since: context.time(),
            until,
            changes,
        });
        answer
    }

    fn commit(&mut self) {
        self.held = None;
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        let thread = context.thread_of(event.process);
        if thread.is_some_and(|thread| self.filter.passes(thread)) {
            self.generator.update(&self.filter.apply(context), event);
        }
    }

    fn tree(&self) -> Tree {
        Tree::around(self.name, &self.generator)
    }
}

/// See [`Generator::process_limit`].
#[derive(Debug)]
pub struct ProcessLimit<G> {
    limit: u64,
    generator: G,
    /// Of more threads than the limit, the first ones: the fingerprint of the context, and they.
    threads: Option<(u64, ThreadSet)>,
    /// The process that each thread was last seen with when an operation was taken.
    seen: Vec<Option<Process>>,
    /// Different processes seen so far.
    offered: u64,
    /// Which state of the processes `seen` describes: the context's fingerprint and its count of replaced processes.
    counted: Option<(u64, u64)>,
    /// What the operation that was answered last adds: threads and their processes.
    fresh: Vec<(usize, Process)>,
    /// The `counted` that it brings.
    candidate: (u64, u64),
    over: bool,
}

impl<G: Generator> ProcessLimit<G> {
    pub(crate) fn new(limit: u64, generator: G) -> ProcessLimit<G> {
        ProcessLimit {
            limit,
            generator,
            threads: None,
            seen: Vec::new(),
            offered: 0,
            counted: None,
            fresh: Vec::new(),
            candidate: (0, 0),
            over: limit == 0,
        }
    }

    /// Chooses the threads that take part.
    fn compile(&mut self, context: &Context) {
        let fingerprint = context.fingerprint();
        if self
            .threads
            .as_ref()
            .is_none_or(|(known, _)| *known != fingerprint)
        {
            let count = usize::try_from(self.limit).unwrap_or(usize::MAX);
            let first = context.threads().take(count);
            let slots = first.filter_map(|thread| context.index_of(thread));
            self.threads = Some((fingerprint, ThreadSet::from_slots(slots)));
        }
    }

    /// Notes the processes of this context that no operation was taken with yet.
    fn count(&mut self, context: &Context) {
        self.candidate = (context.fingerprint(), context.retired());
        self.fresh.clear();
        if self.counted == Some(self.candidate) {
            return;
        }
        for thread in context.threads() {
            let process = context.process_of(thread);
            if let Some(index) = context.index_of(thread)
                && self.seen.get(index) != Some(&Some(process))
            {
                self.fresh.push((index, process));
            }
        }
    }
}

impl<G: Generator> Generator for ProcessLimit<G> {
    fn next(&mut self, context: &Context) -> Next {
        if self.over {
            return Next::Exhausted;
        }
        self.compile(context);
        let threads = self.threads.take();
        let narrow = threads
            .as_ref()
            .map_or(*context, |(_, set)| context.restricted(set));
        let mut next = self.generator.next(&narrow);
        if let Next::Op(_) = next {
            self.count(&narrow);
            if self.offered + self.fresh.len() as u64 > self.limit {
                self.over = true;
                next = Next::Exhausted;
            }
        }
        self.threads = threads;
        next
    }

    fn commit(&mut self) {
        for &(index, process) in &self.fresh {
            if self.seen.len() <= index {
                self.seen.resize(index + 1, None);
            }
            self.seen[index] = Some(process);
        }
        self.offered += self.fresh.len() as u64;
        self.fresh.clear();
        self.counted = Some(self.candidate);
        self.generator.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.compile(context);
        if let Some((_, set)) = &self.threads {
            self.generator.update(&context.restricted(set), event);
        }
    }

    fn tree(&self) -> Tree {
        let name = format!("process-limit {}, {} seen", self.limit, self.offered);
        Tree::around(name, &self.generator)
    }
}

/// Gives ranges of threads their own generators. See [`reserve`].
#[derive(Debug)]
pub struct Reserve<G> {
    counts: Vec<u32>,
    /// One per range and then the default; exhausted ones are `None`.
    generators: Vec<Option<G>>,
    contest: Contest,
    /// The fingerprint of the context that was divided, and the threads of each range.
    compiled: Option<(u64, Vec<ThreadSet>)>,
}

/// The first so many threads run the first generator, the next ones the second, and so on; all others, as a rule the
/// nemesis among them, run `default`. Each sees its own threads and their events only. At least one thread must be left
/// for the default.
pub fn reserve<G: Generator>(
    rng: Rng,
    ranges: impl IntoIterator<Item = (u32, G)>,
    default: G,
) -> Reserve<G> {
    let (counts, mut generators): (Vec<u32>, Vec<Option<G>>) = ranges
        .into_iter()
        .map(|(count, generator)| (count, Some(generator)))
        .unzip();
    generators.push(Some(default));
    Reserve {
        contest: Contest::new(rng, generators.len()),
        counts,
        generators,
        compiled: None,
    }
}

impl<G: Generator> Reserve<G> {
    /// Divides the threads; the message if there are too few.
    fn divide(&mut self, context: &Context) -> Result<(), String> {
        let fingerprint = context.fingerprint();
        if self
            .compiled
            .as_ref()
            .is_some_and(|(known, _)| *known == fingerprint)
        {
            return Ok(());
        }
        let reserved: u64 = self.counts.iter().copied().map(u64::from).sum();
        let count = context.thread_count();
        if reserved >= count as u64 {
            return Err(format!(
                "reserve wants {reserved} threads and one more for its default, but has {count}"
            ));
        }
        let mut slots = context
            .threads()
            .filter_map(|thread| context.index_of(thread));
        let counts = self.counts.iter();
        let mut sets: Vec<ThreadSet> = counts
            .map(|&count| ThreadSet::from_slots(slots.by_ref().take(count as usize)))
            .collect();
        sets.push(ThreadSet::from_slots(slots));
        let weights = sets.iter().map(|set| set.len() as u64);
        self.contest.lots.weigh(weights.collect());
        self.compiled = Some((fingerprint, sets));
        Ok(())
    }

    /// The answer of those ranges whose threads are all busy: pending as long as one has not ended.
    fn ask_busy(&mut self, context: &Context) -> Next {
        let sets = self.compiled.iter().flat_map(|(_, sets)| sets);
        for (set, slot) in sets.zip(&mut self.generators) {
            if slot.is_some() {
                match ask(slot, &context.restricted(set)) {
                    Next::Exhausted => {}
                    next => return next,
                }
            }
        }
        Next::Exhausted
    }
}

impl<G: Generator> Generator for Reserve<G> {
    fn next(&mut self, context: &Context) -> Next {
        if let Err(problem) = self.divide(context) {
            return Next::Failed(Box::new(Failure::new(problem, self.tree())));
        }
        let Some((_, sets)) = &self.compiled else {
            return Next::Pending;
        };
        let generators = &mut self.generators;
        let next = self.contest.hold(context, |index| {
            let context = context.restricted(&sets[index]);
            let able = generators[index].is_none() || context.any_free();
            able.then(|| ask(&mut generators[index], &context))
        });
        match next {
            Next::Exhausted => self.ask_busy(context),
            next => next,
        }
    }

    fn commit(&mut self) {
        self.generators[self.contest.winner].commit();
        self.contest.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        if self.divide(context).is_err() {
            return;
        }
        let index = context.index_of_process(event.process);
        let sets = self.compiled.iter().flat_map(|(_, sets)| sets);
        for (set, generator) in sets.zip(&mut self.generators) {
            if index.is_some_and(|index| set.contains_slot(index)) {
                generator.update(&context.restricted(set), event);
            }
        }
    }

    fn tree(&self) -> Tree {
        Tree::over(
            format!("reserve {:?}", self.counts),
            self.generators.iter().flatten(),
        )
    }
}

/// Groups of threads, each with a generator of its own. The groups of some free threads, drawn among all of them, are asked
/// first, which is fair and as a rule answers at once, so that the cost does not grow with the groups. In which order groups
/// are asked does not depend on which others are known to have ended, so somebody who asks more often changes nothing.
///
/// Its downside: while nothing is due now, every group with a free thread is asked.
#[derive(Debug)]
struct Groups<G> {
    /// Threads per group; the last one may have fewer.
    size: usize,
    /// The fingerprint of the context that was divided.
    divided: Option<u64>,
    sets: Vec<ThreadSet>,
    /// The group of each thread, by its index.
    group_of: Vec<usize>,
    slots: Vec<Slot<G>>,
    /// The threads of groups that have not ended.
    alive: ThreadSet,
    /// Who gave the last answer.
    winner: usize,
}

/// What a group runs.
#[derive(Debug)]
enum Slot<G> {
    Fresh,
    Running(G),
    Ended,
}

/// Not in a group.
const NO_GROUP: usize = usize::MAX;

/// Threads that are drawn before all groups are asked.
const DRAWS: usize = 8;

/// What groups said so far, one asked after the other.
struct Round {
    /// The groups that were drawn.
    drawn: [usize; DRAWS],
    /// The operation that is due soonest, and the lot of its group.
    best: Option<(u64, Op)>,
    /// Has a group ended?
    ended: bool,
}

/// How many empty generators in a row a group may be given.
const FRUITLESS_MAX: u32 = 10_000;

impl<G: Generator> Groups<G> {
    fn new(size: usize) -> Groups<G> {
        Groups {
            size,
            divided: None,
            sets: Vec::new(),
            group_of: Vec::new(),
            slots: Vec::new(),
            alive: ThreadSet::from_slots([]),
            winner: 0,
        }
    }

    /// Divides the threads of a context that was not seen before; groups keep their generators.
    fn divide(&mut self, context: &Context) {
        if self.divided == Some(context.fingerprint()) {
            return;
        }
        self.divided = Some(context.fingerprint());
        let threads = context
            .threads()
            .filter_map(|thread| context.index_of(thread));
        let indices: Vec<usize> = threads.collect();
        self.group_of = vec![NO_GROUP; indices.last().map_or(0, |last| last + 1)];
        self.sets.clear();
        for (group, members) in indices.chunks(self.size).enumerate() {
            for &index in members {
                self.group_of[index] = group;
            }
            self.sets
                .push(ThreadSet::from_slots(members.iter().copied()));
        }
        self.slots.resize_with(self.sets.len(), || Slot::Fresh);
        self.revive();
    }

    /// Finds the threads of groups that have not ended.
    fn revive(&mut self) {
        let groups = self.sets.iter().zip(&self.slots);
        let alive = groups.filter(|(_, slot)| !matches!(slot, Slot::Ended));
        self.alive = ThreadSet::from_slots(alive.flat_map(|(set, _)| set.slots()));
    }

    fn group(&self, context: &Context, thread: Option<Thread>) -> Option<usize> {
        let index = context.index_of(thread?)?;
        self.group_of
            .get(index)
            .copied()
            .filter(|&group| group != NO_GROUP)
    }

    /// Asks one group; `make` is told whether it had a generator before, the group, and the
    /// index of its first thread.
    fn ask(
        &mut self,
        context: &Context,
        group: usize,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Next {
        let set = &self.sets[group];
        let slot = &mut self.slots[group];
        for _ in 0..FRUITLESS_MAX {
            let next = match slot {
                Slot::Fresh => Next::Exhausted,
                Slot::Running(generator) => generator.next(&context.restricted(set)),
                Slot::Ended => return Next::Exhausted,
            };
            if !matches!(next, Next::Exhausted) {
                return next;
            }
            let born = matches!(slot, Slot::Running(_));
            let first = set.slots().next().unwrap_or(0);
            *slot = make(born, group, first).map_or(Slot::Ended, Slot::Running);
        }
        let problem = format!("{FRUITLESS_MAX} empty generators in a row for one group of threads");
        Next::Failed(Box::new(Failure::new(
            problem,
            Tree::leaf("groups of threads"),
        )))
    }

    /// The soonest operation of all groups with a free thread, ties by lot.
    fn next(
        &mut self,
        context: &Context,
        mut make: impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Next {
        self.divide(context);
        let mut round = Round {
            drawn: [NO_GROUP; DRAWS],
            best: None,
            ended: false,
        };
        let mut over = self.ask_drawn(context, &mut round, &mut make);
        if over.is_none() {
            over = self.ask_rest(context, &mut round, &mut make);
        }
        if round.ended {
            self.revive();
        }
        match (over, round.best) {
            (Some(answer), _) => answer,
            (None, Some((_, op))) => Next::Op(op),
            (None, None) if self.alive.is_empty() => Next::Exhausted,
            (None, None) => Next::Pending,
        }
    }

    /// Asks the groups of free threads that are drawn, until one has an operation that is due, which is the answer.
    fn ask_drawn(
        &mut self,
        context: &Context,
        round: &mut Round,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Option<Next> {
        for draw in 0..DRAWS {
            let word = match draw {
                0 => context.word(),
                _ => lot_of(context.word(), draw),
            };
            let group = self.group(context, context.free_thread_drawn(word))?;
            if round.drawn.contains(&group) || matches!(self.slots[group], Slot::Ended) {
                continue;
            }
            round.drawn[draw] = group;
            match self.ask(context, group, make) {
                Next::Op(op) if time_of(&op) <= context.time() => {
                    self.winner = group;
                    return Some(Next::Op(op));
                }
                failed @ Next::Failed(_) => return Some(failed),
                next => self.note(round, next, group, draw as u64),
            }
        }
        None
    }

    /// Asks all groups with a free thread that were not drawn; of those that tie the smallest lot goes first. `Some` if one
    /// made a mistake.
    fn ask_rest(
        &mut self,
        context: &Context,
        round: &mut Round,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Option<Next> {
        let alive = std::mem::replace(&mut self.alive, ThreadSet::from_slots([]));
        let mut last = NO_GROUP;
        let mut failed = None;
        for thread in context.restricted(&alive).free_threads() {
            let Some(group) = self.group(context, Some(thread)) else {
                continue;
            };
            if group == last || round.drawn.contains(&group) {
                continue;
            }
            last = group;
            match self.ask(context, group, make) {
                mistake @ Next::Failed(_) => {
                    failed = Some(mistake);
                    break;
                }
                next => {
                    let lot = lot_of(context.word(), group).max(DRAWS as u64);
                    self.note(round, next, group, lot);
                }
            }
        }
        self.alive = alive;
        failed
    }

    /// Keeps the operation that is due soonest, ties by lot.
    fn note(&mut self, round: &mut Round, next: Next, group: usize, lot: u64) {
        match next {
            Next::Op(op) => {
                let better = |(best_lot, best): &(u64, Op)| (op.time, lot) < (best.time, *best_lot);
                if round.best.as_ref().is_none_or(better) {
                    self.winner = group;
                    round.best = Some((lot, op));
                }
            }
            next => round.ended |= matches!(next, Next::Exhausted),
        }
    }

    fn commit(&mut self) {
        if let Slot::Running(generator) = &mut self.slots[self.winner] {
            generator.commit();
        }
    }

    fn update(&mut self, context: &Context, group: usize, event: &Op) {
        if let Slot::Running(generator) = &mut self.slots[group] {
            generator.update(&context.restricted(&self.sets[group]), event);
        }
    }

    fn tree(&self, name: String) -> Tree {
        let running = self.slots.iter().filter_map(|slot| match slot {
            Slot::Running(generator) => Some(generator),
            _ => None,
        });
        Tree::over(name, running)
    }
}

/// A generator for each thread. See [`each_thread`].
pub struct EachThread<F, G> {
    make: F,
    groups: Groups<G>,
}

/// Every thread of the context (the nemesis too, unless this is inside [`Generator::clients`]) runs a generator of its
/// own, made for it when it is first free or first does something; it sees no other thread. Ends when all have ended.
pub fn each_thread<G: Generator, F: FnMut(Thread) -> G + Send>(make: F) -> EachThread<F, G> {
    EachThread {
        make,
        groups: Groups::new(1),
    }
}

impl<F: FnMut(Thread) -> G + Send, G: Generator> Generator for EachThread<F, G> {
    fn next(&mut self, context: &Context) -> Next {
        let make = &mut self.make;
        self.groups.next(context, |born, _, index| {
            (!born).then(|| make(context.thread_at(index)))
        })
    }

    fn commit(&mut self) {
        self.groups.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.groups.divide(context);
        let Some(thread) = context.thread_of(event.process) else {
            return;
        };
        if let Some(group) = self.groups.group(context, Some(thread)) {
            let slot = &mut self.groups.slots[group];
            if matches!(slot, Slot::Fresh) {
                *slot = Slot::Running((self.make)(thread));
            }
            self.groups.update(context, group, event);
        }
    }

    fn tree(&self) -> Tree {
        self.groups.tree("each-thread".into())
    }
}

impl<F, G: fmt::Debug> fmt::Debug for EachThread<F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachThread")
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// A generator for each key, several keys at a time. See [`concurrent_keys`].
pub struct ConcurrentKeys<K, F, G> {
    /// The keys to come.
    keys: K,
    make: F,
    groups: Groups<G>,
    /// The key of each group.
    current: Vec<Option<Key>>,
}

/// Client threads in groups of `threads_per_key`, the last perhaps smaller; each group works on one key with the
/// generator that `make` answers for it, and takes the next key when that is exhausted. The values of operations become
/// [`Value::Keyed`]; the generator of a key sees the events of its own key, without the key. Ends when the keys have
/// ended, which may be never.
///
/// The keys split a long history into short ones that can be checked one by one (Jepsen's `independent`).
pub fn concurrent_keys<K, F, G>(
    threads_per_key: u32,
    keys: impl IntoIterator<Item = Key, IntoIter = K>,
    make: F,
) -> OnThreads<ConcurrentKeys<K, F, G>>
where
    K: Iterator<Item = Key> + Send,
    F: FnMut(&Key) -> G + Send,
    G: Generator,
{
    let size = threads_per_key.max(1) as usize;
    let groups = Groups::new(size);
    ConcurrentKeys {
        keys: keys.into_iter(),
        make,
        groups,
        current: Vec::new(),
    }
    .clients()
}

impl<K, F, G> Generator for ConcurrentKeys<K, F, G>
where
    K: Iterator<Item = Key> + Send,
    F: FnMut(&Key) -> G + Send,
    G: Generator,
{
    fn next(&mut self, context: &Context) -> Next {
        let (keys, make, current) = (&mut self.keys, &mut self.make, &mut self.current);
        let mut next = self.groups.next(context, |_, group, _| {
            let key = keys.next()?;
            let generator = make(&key);
            if current.len() <= group {
                current.resize(group + 1, None);
            }
            current[group] = Some(key);
            Some(generator)
        });
        if let Next::Op(op) = &mut next
            && let Some(Some(key)) = self.current.get(self.groups.winner)
        {
            let value = std::mem::take(&mut op.value);
            op.value = Value::Keyed(key.clone(), Arc::new(value));
        }
        next
    }

    fn commit(&mut self) {
        self.groups.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.groups.divide(context);
        let thread = context.thread_of(event.process);
        if let Some(group) = self.groups.group(context, thread)
            && let Value::Keyed(key, value) = &event.value
            && self
                .current
                .get(group)
                .is_some_and(|current| current.as_ref() == Some(key))
        {
            let bare = Op {
                value: Value::clone(value),
                ..event.clone()
            };
            self.groups.update(context, group, &bare);
        }
    }

    fn tree(&self) -> Tree {
        let name = format!("concurrent-keys, {} threads each", self.groups.size);
        self.groups.tree(name)
    }
}

impl<K, F, G: fmt::Debug> fmt::Debug for ConcurrentKeys<K, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrentKeys")
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
