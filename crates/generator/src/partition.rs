//! Combinators that divide the threads among generators: by role, by range, by thread, by key.

use seatrial_history::{Key, Op, Process, Value};
use seatrial_machine::{Rng, Time};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::combine::{EarliestChoice, ask};
use crate::context::ThreadSet;
use crate::generator::time_of;
use crate::validate_operations::GeneratorFailure;
use crate::weighted_order::sort_key;
use crate::{Context, Generator, Next, Thread, ThreadFilter, Tree};

/// Interval after which a pending generator is asked again when no event comes before.
const PENDING_INTERVAL: Duration = Duration::from_millis(1);

/// The same interval while every thread is busy: nothing can begin, but a time limit of the generator may expire.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// The time at which a generator that is pending now is asked again when no event comes before.
pub(crate) fn retry_time(context: &Context) -> Time {
    let interval = if context.any_free() {
        PENDING_INTERVAL
    } else {
        BUSY_INTERVAL
    };
    context.time() + interval
}

/// See [`Generator::on_threads`], [`Generator::clients`], [`Generator::nemesis`].
///
/// `clients` and `nemesis` isolate their generator from the other side of the test. It is asked only when a thread of its
/// own side has changed state, when the operation that it returned is due, and at the retry time (`retry_time`) after a
/// pending answer. In between, its last answer is cached. So the operations of the nemesis, and their times, change nothing
/// for the clients, even for a generator whose answers depend on how often it is asked.
#[derive(Debug)]
pub struct OnThreads<G> {
    name: &'static str,
    filter: ThreadFilter,
    /// `Some(false)`: all clients; `Some(true)`: the nemesis; `None`: any other rule, without a cache.
    is_nemesis: Option<bool>,
    cached: Option<CachedAnswer>,
    generator: G,
}

/// An answer that is valid for an interval of time.
#[derive(Debug)]
struct CachedAnswer {
    /// Pending, or an operation that is not due yet.
    answer: Next,
    /// The interval, from `since` until before `until`, unless a thread changes state.
    since: Time,
    until: Time,
    /// [`Context::changes`] when the answer was given.
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
            is_nemesis: None,
            cached: None,
            generator,
        }
    }

    /// All client threads.
    pub(crate) fn clients(generator: G) -> OnThreads<G> {
        OnThreads {
            is_nemesis: Some(false),
            ..OnThreads::new("clients", Thread::is_client, generator)
        }
    }

    /// The nemesis thread.
    pub(crate) fn nemesis(generator: G) -> OnThreads<G> {
        OnThreads {
            is_nemesis: Some(true),
            ..OnThreads::new("nemesis", |thread| !thread.is_client(), generator)
        }
    }

    /// The cached answer, if it is still valid.
    fn cached(&self, context: &Context, changes: u64) -> Option<Next> {
        let cached = self.cached.as_ref()?;
        let is_valid = cached.changes == changes
            && cached.since <= context.time()
            && context.time() < cached.until;
        is_valid.then(|| {
            // The outer generator may be pending without a time of its own.
            context.wake(cached.until);
            cached.answer.clone()
        })
    }
}

impl<G: Generator> Generator for OnThreads<G> {
    fn next(&mut self, context: &Context) -> Next {
        let Some(is_nemesis) = self.is_nemesis else {
            return self.generator.next(&self.filter.apply(context));
        };
        let changes = context.changes(is_nemesis);
        if let Some(answer) = self.cached(context, changes) {
            return answer;
        }
        let narrow = self.filter.apply(context);
        let answer = self.generator.next(&narrow);
        let until = match &answer {
            Next::Op(op) if time_of(op) > context.time() => time_of(op),
            Next::Pending => retry_time(&narrow),
            _ => {
                self.cached = None;
                return answer;
            }
        };
        context.wake(until);
        self.cached = Some(CachedAnswer {
            answer: answer.clone(),
            since: context.time(),
            until,
            changes,
        });
        answer
    }

    fn commit(&mut self) {
        self.cached = None;
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
    /// The fingerprint of the context, and its first `limit` threads: more could not run a process each.
    threads: Option<(u64, ThreadSet)>,
    /// By thread slot: the process counted last for it.
    counted_processes: Vec<Option<Process>>,
    /// Number of different processes counted so far.
    count: u64,
    /// The state that `counted_processes` describes: the context's fingerprint and number of replaced processes.
    counted: Option<(u64, u64)>,
    /// Slots and processes that a commit of the operation returned last would count.
    fresh: Vec<(usize, Process)>,
    /// The value of `counted` after that commit.
    candidate: (u64, u64),
    over: bool,
}

impl<G: Generator> ProcessLimit<G> {
    pub(crate) fn new(limit: u64, generator: G) -> ProcessLimit<G> {
        ProcessLimit {
            limit,
            generator,
            threads: None,
            counted_processes: Vec::new(),
            count: 0,
            counted: None,
            fresh: Vec::new(),
            candidate: (0, 0),
            over: limit == 0,
        }
    }

    /// Selects the first `limit` threads of the context.
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

    /// Collects in `fresh` the processes of this context that are not counted yet.
    fn collect_fresh(&mut self, context: &Context) {
        self.candidate = (context.fingerprint(), context.retired());
        self.fresh.clear();
        if self.counted == Some(self.candidate) {
            return;
        }
        for thread in context.threads() {
            let process = context.process_of(thread);
            if let Some(index) = context.index_of(thread)
                && self.counted_processes.get(index) != Some(&Some(process))
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
        // Taken out for the call, because the context borrows the set while `self` changes.
        let threads = self.threads.take();
        let narrow = threads
            .as_ref()
            .map_or(*context, |(_, set)| context.restricted(set));
        let mut next = self.generator.next(&narrow);
        if let Next::Op(_) = next {
            // Any process of the context could have been offered, so all count (as in Jepsen).
            self.collect_fresh(&narrow);
            if self.count + self.fresh.len() as u64 > self.limit {
                self.over = true;
                next = Next::Exhausted;
            }
        }
        self.threads = threads;
        next
    }

    fn commit(&mut self) {
        for &(index, process) in &self.fresh {
            if self.counted_processes.len() <= index {
                self.counted_processes.resize(index + 1, None);
            }
            self.counted_processes[index] = Some(process);
        }
        self.count += self.fresh.len() as u64;
        debug_assert!(self.count <= self.limit);
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
        let name = format!("process-limit {}, {} seen", self.limit, self.count);
        Tree::around(name, &self.generator)
    }
}

/// Assigns ranges of threads to generators. See [`reserve`].
#[derive(Debug)]
pub struct Reserve<G> {
    counts: Vec<u32>,
    /// One per range, then the default; `None` for an exhausted generator.
    generators: Vec<Option<G>>,
    choice: EarliestChoice,
    /// The fingerprint of the context that was divided, and the threads of each range.
    compiled: Option<(u64, Vec<ThreadSet>)>,
}

/// Reserves threads: each range `(count, generator)` takes the next `count` threads for its generator, and all remaining
/// threads, usually including the nemesis, run `default`. Each generator sees only its own threads and their events. The
/// generator fails when no thread remains for the default.
///
/// ```text
///   reserve [(2, writes), (3, scans)], default reads       threads  0 1 │ 2 3 4 │ 5 6 … nemesis
///                                                                   writes scans   reads
/// ```
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
    debug_assert_eq!(generators.len(), counts.len() + 1);
    Reserve {
        choice: EarliestChoice::new(rng, generators.len()),
        counts,
        generators,
        compiled: None,
    }
}

impl<G: Generator> Reserve<G> {
    /// Divides the context's threads into ranges; an error message when there are too few.
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
                "reserve needs {reserved} threads and one more for its default, found {count}"
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
        debug_assert_eq!(sets.iter().map(ThreadSet::len).sum::<usize>(), count);
        // Ties go to a range in proportion to its threads, so that every thread works equally often.
        let weights = sets.iter().map(|set| set.len() as u64);
        self.choice.order.set_weights(weights.collect());
        self.compiled = Some((fingerprint, sets));
        Ok(())
    }

    /// The answer when no range with a free thread has an operation: pending unless all generators have ended.
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
            return Next::Failed(Box::new(GeneratorFailure::new(problem, self.tree())));
        }
        let Some((_, sets)) = &self.compiled else {
            return Next::Pending;
        };
        let generators = &mut self.generators;
        let next = self.choice.choose(context, |index| {
            let context = context.restricted(&sets[index]);
            let takes_part = generators[index].is_none() || context.any_free();
            takes_part.then(|| ask(&mut generators[index], &context))
        });
        match next {
            Next::Exhausted => self.ask_busy(context),
            next => next,
        }
    }

    fn commit(&mut self) {
        self.generators[self.choice.chosen].commit();
        self.choice.commit();
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

/// Groups of `size` consecutive threads, each with a generator of its own: the machinery of [`each_thread`] (size 1) and
/// [`concurrent_keys`].
///
/// The groups of up to [`DRAWS`] randomly drawn free threads are asked first. That is fair, and usually one of them has an
/// operation that is due, so the cost per operation does not grow with the number of groups. The order in which groups are
/// asked does not depend on which other groups are known to have ended, so it does not change when the generator is asked
/// more often.
///
/// While no operation is due, every call asks every group with a free thread.
#[derive(Debug)]
struct ThreadGroups<G> {
    /// Threads per group; the last one may have fewer.
    size: usize,
    /// The fingerprint of the context that was divided.
    divided: Option<u64>,
    /// The threads of each group.
    sets: Vec<ThreadSet>,
    /// By thread slot: the group, or [`NO_GROUP`].
    group_of: Vec<usize>,
    /// By group: its generator.
    runs: Vec<GroupRun<G>>,
    /// The threads of groups that have not ended.
    alive: ThreadSet,
    /// The group whose operation was returned last.
    chosen: usize,
}

/// The generator of one group of threads.
#[derive(Debug)]
enum GroupRun<G> {
    /// Not made yet.
    Fresh,
    Running(G),
    Ended,
}

/// The group of a thread outside the context that was divided.
const NO_GROUP: usize = usize::MAX;

/// Threads drawn before all groups are asked.
const DRAWS: usize = 8;

/// The answers of the groups asked so far in one call of `next`.
struct GroupAnswers {
    /// The groups that were drawn; [`NO_GROUP`] in unused places.
    drawn: [usize; DRAWS],
    /// The operation that is due first, with the sort key of its group.
    best: Option<(u64, Op)>,
    /// Has a group ended?
    ended: bool,
}

/// Empty generators in a row that a group may be given before it fails.
const ATTEMPTS_MAX: u32 = 10_000;

impl<G: Generator> ThreadGroups<G> {
    fn new(size: usize) -> ThreadGroups<G> {
        assert!(size > 0, "a group without threads");
        ThreadGroups {
            size,
            divided: None,
            sets: Vec::new(),
            group_of: Vec::new(),
            runs: Vec::new(),
            alive: ThreadSet::from_slots([]),
            chosen: 0,
        }
    }

    /// Divides the threads of a context with other threads than the last; groups keep their generators.
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
        let members: usize = self.sets.iter().map(ThreadSet::len).sum();
        debug_assert_eq!(members, context.thread_count(), "a thread in no group");
        self.runs.resize_with(self.sets.len(), || GroupRun::Fresh);
        self.update_alive();
    }

    /// Recomputes the threads of groups that have not ended.
    fn update_alive(&mut self) {
        let groups = self.sets.iter().zip(&self.runs);
        let alive = groups.filter(|(_, run)| !matches!(run, GroupRun::Ended));
        self.alive = ThreadSet::from_slots(alive.flat_map(|(set, _)| set.slots()));
    }

    fn group(&self, context: &Context, thread: Option<Thread>) -> Option<usize> {
        let index = context.index_of(thread?)?;
        self.group_of
            .get(index)
            .copied()
            .filter(|&group| group != NO_GROUP)
    }

    /// Asks one group. `make` makes its generators, from: whether the group had one before, the group, and the slot of the
    /// group's first thread.
    fn ask(
        &mut self,
        context: &Context,
        group: usize,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Next {
        let set = &self.sets[group];
        let run = &mut self.runs[group];
        for _ in 0..ATTEMPTS_MAX {
            let next = match run {
                GroupRun::Fresh => Next::Exhausted,
                GroupRun::Running(generator) => generator.next(&context.restricted(set)),
                GroupRun::Ended => return Next::Exhausted,
            };
            if !matches!(next, Next::Exhausted) {
                return next;
            }
            let had_one = matches!(run, GroupRun::Running(_));
            let first = set.slots().next().unwrap_or(0);
            *run = make(had_one, group, first).map_or(GroupRun::Ended, GroupRun::Running);
        }
        let problem = format!("{ATTEMPTS_MAX} empty generators in a row for one group of threads");
        Next::Failed(Box::new(GeneratorFailure::new(
            problem,
            Tree::leaf("groups of threads"),
        )))
    }

    /// The earliest operation of all groups with a free thread, ties at random.
    fn next(
        &mut self,
        context: &Context,
        mut make: impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Next {
        self.divide(context);
        let mut answers = GroupAnswers {
            drawn: [NO_GROUP; DRAWS],
            best: None,
            ended: false,
        };
        let mut decided = self.ask_drawn(context, &mut answers, &mut make);
        if decided.is_none() {
            decided = self.ask_rest(context, &mut answers, &mut make);
        }
        if answers.ended {
            self.update_alive();
        }
        match (decided, answers.best) {
            (Some(answer), _) => answer,
            (None, Some((_, op))) => Next::Op(op),
            (None, None) if self.alive.is_empty() => Next::Exhausted,
            (None, None) => Next::Pending,
        }
    }

    /// Asks the groups of randomly drawn free threads. `Some` as soon as one has an operation that is due, or failed.
    fn ask_drawn(
        &mut self,
        context: &Context,
        answers: &mut GroupAnswers,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Option<Next> {
        for draw in 0..DRAWS {
            let word = match draw {
                // The first draw is the thread that `some_free_thread` returns.
                0 => context.word(),
                _ => sort_key(context.word(), draw),
            };
            let group = self.group(context, context.free_thread_drawn(word))?;
            if answers.drawn.contains(&group) || matches!(self.runs[group], GroupRun::Ended) {
                continue;
            }
            answers.drawn[draw] = group;
            match self.ask(context, group, make) {
                Next::Op(op) if time_of(&op) <= context.time() => {
                    self.chosen = group;
                    return Some(Next::Op(op));
                }
                failed @ Next::Failed(_) => return Some(failed),
                next => self.keep_earliest(answers, next, group, draw as u64),
            }
        }
        None
    }

    /// Asks all groups with a free thread that were not drawn; ties go to the smallest sort key. `Some` if one failed.
    fn ask_rest(
        &mut self,
        context: &Context,
        answers: &mut GroupAnswers,
        make: &mut impl FnMut(bool, usize, usize) -> Option<G>,
    ) -> Option<Next> {
        // Taken out, because the loop borrows the set while `self` changes.
        let alive = std::mem::replace(&mut self.alive, ThreadSet::from_slots([]));
        // Threads of a group are consecutive, so one variable suffices to ask each group once.
        let mut last = NO_GROUP;
        let mut failed = None;
        for thread in context.restricted(&alive).free_threads() {
            let Some(group) = self.group(context, Some(thread)) else {
                continue;
            };
            if group == last || answers.drawn.contains(&group) {
                continue;
            }
            last = group;
            match self.ask(context, group, make) {
                failure @ Next::Failed(_) => {
                    failed = Some(failure);
                    break;
                }
                next => {
                    // Drawn groups have the keys below `DRAWS`: they precede the others, in the order of drawing.
                    let key = sort_key(context.word(), group).max(DRAWS as u64);
                    self.keep_earliest(answers, next, group, key);
                }
            }
        }
        self.alive = alive;
        failed
    }

    /// Keeps the operation that is due first; ties go to the smaller sort key.
    fn keep_earliest(&mut self, answers: &mut GroupAnswers, next: Next, group: usize, key: u64) {
        match next {
            Next::Op(op) => {
                let better = |(best_key, best): &(u64, Op)| (op.time, key) < (best.time, *best_key);
                if answers.best.as_ref().is_none_or(better) {
                    self.chosen = group;
                    answers.best = Some((key, op));
                }
            }
            next => answers.ended |= matches!(next, Next::Exhausted),
        }
    }

    fn commit(&mut self) {
        if let GroupRun::Running(generator) = &mut self.runs[self.chosen] {
            generator.commit();
        }
    }

    fn update(&mut self, context: &Context, group: usize, event: &Op) {
        if let GroupRun::Running(generator) = &mut self.runs[group] {
            generator.update(&context.restricted(&self.sets[group]), event);
        }
    }

    fn tree(&self, name: String) -> Tree {
        let running = self.runs.iter().filter_map(|run| match run {
            GroupRun::Running(generator) => Some(generator),
            _ => None,
        });
        Tree::over(name, running)
    }
}

/// A generator for each thread. See [`each_thread`].
pub struct EachThread<F, G> {
    make: F,
    groups: ThreadGroups<G>,
}

/// Every thread of the context (the nemesis too, unless this is inside [`Generator::clients`]) runs a generator of its
/// own, made when the thread is first free or has its first event; its contexts contain no other thread. Ends when all
/// have ended.
pub fn each_thread<G: Generator, F: FnMut(Thread) -> G + Send>(make: F) -> EachThread<F, G> {
    EachThread {
        make,
        groups: ThreadGroups::new(1),
    }
}

impl<F: FnMut(Thread) -> G + Send, G: Generator> Generator for EachThread<F, G> {
    fn next(&mut self, context: &Context) -> Next {
        let make = &mut self.make;
        self.groups.next(context, |had_one, _, index| {
            (!had_one).then(|| make(context.thread_at(index)))
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
            let run = &mut self.groups.runs[group];
            if matches!(run, GroupRun::Fresh) {
                *run = GroupRun::Running((self.make)(thread));
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
    /// The keys not taken yet.
    keys: K,
    make: F,
    groups: ThreadGroups<G>,
    /// By group: the current key.
    current: Vec<Option<Key>>,
}

/// Divides the client threads into groups of `threads_per_key` (the last may be smaller). Each group works on one key with
/// the generator that `make` returns for it, and takes the next key when that is exhausted. Operation values become
/// [`Value::Keyed`]; a key's generator receives the events of its own key, with the bare value. Ends after the last key;
/// the keys may be endless.
///
/// ```text
///   threads 0 1   key 0 ────────────┤ key 2 ──────┤ key 4 …
///   threads 2 3   key 1 ───────┤ key 3 ────────────────┤ …      threads_per_key = 2
/// ```
///
/// Keys split a long history into short ones that are checked independently (Jepsen's `independent`).
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
    let groups = ThreadGroups::new(size);
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
            && let Some(Some(key)) = self.current.get(self.groups.chosen)
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
