//! Random trees of all combinators, six deep, compared with their naive twins: equal answers for all threads, times and orders
//! of completions; and the other laws of generators.

use crate::twin::{Gen, Link, Rule, Sight, added, refused, saw};
use seatrial_generator::{
    Context, Generator, Next, Thread, Threads, Tree, any, concurrent_keys, cycle, cycle_times,
    each_process, each_thread, flip_flop, function, mix, operation, reserve, sequence,
    sequential_keys, shortest_any,
};
use seatrial_history::{Key, Op, OpType, Process, Value};
use seatrial_machine::{Rng, Time};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

fn ns(nanoseconds: i64) -> Duration {
    Duration::from_nanos(nanoseconds as u64)
}

/// The fast generator that is equal to this twin.
pub(crate) fn build(gen_: &Gen) -> Box<dyn Generator> {
    let all = |parts: &[Option<Link>]| -> Vec<Box<dyn Generator>> {
        parts.iter().flatten().map(|part| build(part)).collect()
    };
    match gen_ {
        Gen::Nothing => None::<Box<dyn Generator>>.boxed(),
        Gen::One(f, value, by, at) => {
            let mut one = operation(*f, value.clone());
            if let Some(process) = by {
                one = one.by(*process);
            }
            one.at(Time::ZERO + ns(*at)).boxed()
        }
        Gen::Sequence(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| build(part)).collect();
            sequence(parts).boxed()
        }
        Gen::Any {
            rng,
            parts,
            shortest: false,
        } => any(rng.clone(), all(parts)).boxed(),
        Gen::Any { rng, parts, .. } => shortest_any(rng.clone(), all(parts)).boxed(),
        Gen::Mix(rng, parts) => mix(rng.clone(), all(parts)).boxed(),
        Gen::FlipFlop([a, b], _) => flip_flop(build(a), build(b)).boxed(),
        Gen::Then(first, second) => build(first).then(build(second)).boxed(),
        Gen::Reserve(rng, counts, parts) => {
            let mut parts = all(parts);
            let default = parts.pop().unwrap();
            let ranges = counts.iter().copied().zip(parts);
            reserve(rng.clone(), ranges, default).boxed()
        }
        made_anew => build_made(made_anew),
    }
}

/// The same for those that make generators.
fn build_made(gen_: &Gen) -> Box<dyn Generator> {
    match gen_ {
        Gen::EachThread(each, _) => {
            let each = Arc::clone(each);
            each_thread(move |_| build(&each)).boxed()
        }
        Gen::EachProcess(each, _) => {
            let each = Arc::clone(each);
            each_process(move |_| build(&each)).boxed()
        }
        Gen::ConcurrentKeys {
            size, keys, each, ..
        } => {
            let each = Arc::clone(each);
            let keys = (keys.0..keys.1).map(Key::Int);
            concurrent_keys(*size as u32, keys, move |_| build(&each)).boxed()
        }
        Gen::SequentialKeys { keys, each, .. } => {
            let each = Arc::clone(each);
            let keys = (keys.0..keys.1).map(Key::Int);
            sequential_keys(keys, move |_| build(&each)).boxed()
        }
        Gen::Function(_, most, each, _) => {
            let (each, most, mut called) = (Arc::clone(each), *most, 0);
            let make = move || {
                called += 1;
                let number = called * 1_000;
                (called <= most).then(|| build(&each).map(move |op| plus(op, number)))
            };
            function(make).boxed()
        }
        Gen::Cycle(times, each, _) => {
            let each = Arc::clone(each);
            cycle(*times, move || build(&each)).boxed()
        }
        Gen::CycleTimes(_, turns) => {
            let turns: Vec<_> = turns.iter().map(|(t, one)| (ns(*t), build(one))).collect();
            cycle_times(turns).boxed()
        }
        around => build_around(around),
    }
}

fn plus(op: Op, number: i64) -> Op {
    let value = added(number, &op.value);
    Op { value, ..op }
}

/// The same for those around one other.
fn build_around(gen_: &Gen) -> Box<dyn Generator> {
    match gen_ {
        Gen::Limit(count, one) => build(one).limit(*count).boxed(),
        Gen::Repeat(None, one) => build(one).repeat().boxed(),
        Gen::Repeat(Some(count), one) => build(one).repeat_times(*count).boxed(),
        Gen::TimeLimit(length, _, one) => build(one).time_limit(ns(*length)).boxed(),
        Gen::Stagger(rng, mean, _, one) => build(one).stagger(rng.clone(), *mean).boxed(),
        Gen::Delay(interval, _, one) => build(one).delay(ns(*interval)).boxed(),
        Gen::DelayTil(interval, one) => build(one).delay_til(ns(*interval)).boxed(),
        Gen::Synchronize(_, one) => build(one).synchronize().boxed(),
        Gen::UntilOk(_, one) => build(one).until_ok().boxed(),
        Gen::Add(number, one) => {
            let number = *number;
            build(one).map(move |op| plus(op, number)).boxed()
        }
        Gen::Rename(one) => build(one).f_map([("a", "renamed")]).boxed(),
        Gen::Without(divisor, one) => {
            let divisor = *divisor;
            build(one).filter(move |op| !refused(op, divisor)).boxed()
        }
        Gen::On(Rule::Clients, one, _) => build(one).clients().boxed(),
        Gen::On(Rule::Nemesis, one, _) => build(one).nemesis().boxed(),
        Gen::On(rule, one, _) => {
            let rule = *rule;
            build(one)
                .on_threads(move |thread| rule.passes(thread))
                .boxed()
        }
        Gen::ProcessLimit(count, _, one) => build(one).process_limit(*count as u64).boxed(),
        Gen::ConcurrencyLimit(count, _, one) => build(one).concurrency_limit(*count).boxed(),
        Gen::Cache(length, _, one) => build(one).cache(ns(*length)).boxed(),
        Gen::OnOk(one) => build(one)
            .on_update(|one, context, event| {
                if event.is_ok() {
                    *one = build(&saw());
                } else {
                    one.update(context, event);
                }
            })
            .boxed(),
        Gen::Validate(one) => build(one).validate().boxed(),
        Gen::Trace(one) => build(one).trace(|_, _| {}).boxed(),
        Gen::Friendly(one) => build(one).friendly_exceptions().boxed(),
        Gen::Watched(one) => Watched::new(build(one)).boxed(),
        other => unreachable!("{other:?}"),
    }
}

thread_local! {
    /// Watched generators of this thread that have ended and were not dropped yet.
    static LEFT_BEHIND: Cell<u32> = const { Cell::new(0) };
}

/// See [`LEFT_BEHIND`].
struct Watched {
    inner: Box<dyn Generator>,
    ended: bool,
}

impl Watched {
    fn new(inner: Box<dyn Generator>) -> Watched {
        Watched {
            inner,
            ended: false,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        LEFT_BEHIND.set(LEFT_BEHIND.get() - u32::from(self.ended));
    }
}

impl Generator for Watched {
    fn next(&mut self, context: &Context) -> Next {
        let next = self.inner.next(context);
        if !self.ended && next == Next::Exhausted {
            self.ended = true;
            LEFT_BEHIND.set(LEFT_BEHIND.get() + 1);
        }
        next
    }

    fn commit(&mut self) {
        self.inner.commit();
    }

    fn update(&mut self, context: &Context, event: &Op) {
        self.inner.update(context, event);
    }

    fn tree(&self) -> Tree {
        self.inner.tree()
    }
}

/// Draws trees.
pub(crate) struct RandomTrees {
    rng: Rng,
    concurrency: u32,
    /// The next value of an operation.
    value: i64,
    /// Generators that may still be drawn.
    room: u32,
    /// What was drawn.
    seen: BTreeMap<&'static str, u32>,
}

/// Deepest tree.
pub(crate) const DEPTH: u32 = 6;

impl RandomTrees {
    pub(crate) fn new(seed: u64, concurrency: u32) -> RandomTrees {
        RandomTrees {
            rng: Rng::from_seed(seed).fork("plan"),
            concurrency,
            value: 0,
            room: 60,
            seen: BTreeMap::new(),
        }
    }

    fn one(&mut self) -> Gen {
        self.value += 1;
        let mut by = None;
        if self.rng.chance(0.1) {
            let drawn = self.rng.below(u64::from(self.concurrency) + 1);
            by = Some(match drawn {
                number if number < u64::from(self.concurrency) => Process::Client(number),
                _ => Process::NEMESIS,
            });
        }
        let at = if self.rng.chance(0.1) {
            self.rng.below(60) as i64
        } else {
            0
        };
        let f = *self.rng.pick(&["a", "b"]);
        Gen::One(f.into(), Value::Int(self.value), by, at)
    }

    /// A generator of operations, watched.
    fn leaf(&mut self) -> Gen {
        Gen::Watched(self.bare_leaf().into())
    }

    fn bare_leaf(&mut self) -> Gen {
        match self.rng.below(12) {
            0 => Gen::Nothing,
            1 => self.one(),
            2 => Gen::Repeat(None, self.one().into()),
            _ => {
                let count = self.rng.below(6);
                Gen::Sequence((0..count).map(|_| self.one().into()).collect())
            }
        }
    }

    fn inside(&mut self, depth: u32) -> Link {
        self.tree(depth - 1).into()
    }

    fn several(&mut self, depth: u32) -> Vec<Link> {
        let count = 1 + self.rng.below(3);
        (0..count).map(|_| self.inside(depth)).collect()
    }

    fn fork(&mut self) -> Rng {
        Rng::from_seed(self.rng.word())
    }

    fn time(&mut self) -> i64 {
        1 + self.rng.below(40) as i64
    }

    pub(crate) fn tree(&mut self, depth: u32) -> Gen {
        if depth == 0 || self.room == 0 || depth < DEPTH && self.rng.chance(0.08) {
            return self.leaf();
        }
        self.room -= 1;
        let choice = self.rng.below(38);
        let tree = match choice {
            0..=15 => self.tree_of_many(choice, depth),
            16..=23 => self.tree_in_time(choice, depth),
            _ => self.tree_around(choice, depth),
        };
        let name = name(&tree);
        *self.seen.entry(name).or_default() += 1;
        tree
    }

    fn tree_of_many(&mut self, choice: u64, depth: u32) -> Gen {
        match choice {
            0 | 1 => Gen::Any {
                rng: self.fork(),
                parts: self.several(depth).into_iter().map(Some).collect(),
                shortest: false,
            },
            2 => Gen::Any {
                rng: self.fork(),
                parts: self.several(depth).into_iter().map(Some).collect(),
                shortest: true,
            },
            3 | 4 => {
                let parts = self.several(depth).into_iter().map(Some);
                Gen::Mix(self.fork(), parts.collect())
            }
            5 => Gen::FlipFlop([self.inside(depth), self.inside(depth)], 0),
            6 | 7 => Gen::Sequence(self.several(depth)),
            8 => {
                let phases = self.several(depth).into_iter();
                Gen::Sequence(
                    phases
                        .map(|one| Gen::Synchronize(false, one).into())
                        .collect(),
                )
            }
            9 => Gen::Then(self.inside(depth), self.inside(depth)),
            10 => {
                let counts: Vec<u32> = (0..self.rng.below(3))
                    .map(|_| self.rng.below(3) as u32)
                    .collect();
                let parts = (0..=counts.len()).map(|_| Some(self.inside(depth)));
                let parts = parts.collect();
                Gen::Reserve(self.fork(), counts, parts)
            }
            11 => Gen::EachThread(self.inside(depth), BTreeMap::new()),
            12 => Gen::EachProcess(self.inside(depth), BTreeMap::new()),
            13 => Gen::On(
                Rule::Clients,
                Gen::ConcurrentKeys {
                    size: 1 + self.rng.index(3),
                    keys: (0, self.rng.below(6) as i64),
                    each: self.inside(depth),
                    groups: BTreeMap::new(),
                }
                .into(),
                None,
            ),
            14 => Gen::SequentialKeys {
                keys: (0, self.rng.below(4) as i64),
                each: self.inside(depth),
                current: None,
            },
            _ => {
                let (times, one) = (self.rng.below(4), self.inside(depth));
                if self.rng.chance(0.5) {
                    Gen::Cycle(times, one, None)
                } else {
                    Gen::Function(0, times as i64, one, None)
                }
            }
        }
    }

    fn tree_in_time(&mut self, choice: u64, depth: u32) -> Gen {
        match choice {
            16 => {
                let turns = self.several(depth);
                Gen::CycleTimes(
                    None,
                    turns.into_iter().map(|one| (self.time(), one)).collect(),
                )
            }
            17 | 18 => Gen::Stagger(self.fork(), ns(self.time()), -1, self.inside(depth)),
            19 => Gen::Delay(self.time(), 0, self.inside(depth)),
            20 => Gen::DelayTil(self.time(), self.inside(depth)),
            21 => Gen::TimeLimit(3 * self.time() - 3, None, self.inside(depth)),
            22 => Gen::Cache(self.time(), None, self.leaf().into()),
            _ => {
                let pause = if self.rng.chance(0.5) {
                    Gen::One(seatrial_generator::SLEEP, Value::Int(self.time()), None, 0)
                } else {
                    Gen::One(seatrial_generator::LOG, Value::text("here"), None, 0)
                };
                Gen::Sequence(vec![pause.into(), self.inside(depth)])
            }
        }
    }

    fn tree_around(&mut self, choice: u64, depth: u32) -> Gen {
        let one = self.inside(depth);
        let count = self.rng.below(9);
        match choice {
            24 => Gen::Limit(count, one),
            25 => Gen::Repeat(Some(count), one),
            26 => Gen::Repeat(None, one),
            27 => Gen::Synchronize(false, one),
            28 | 29 => Gen::UntilOk(BTreeSet::new(), one),
            30 => Gen::Add(100_000, one),
            31 => Gen::Without(2 + count as i64, one),
            32 | 33 => {
                let rules = [Rule::Clients, Rule::Nemesis, Rule::Below(2), Rule::Odd];
                Gen::On(*self.rng.pick(&rules), one, None)
            }
            34 => Gen::ProcessLimit(count as usize, BTreeSet::new(), one),
            35 => Gen::ConcurrencyLimit(count as usize / 2, BTreeSet::new(), one),
            36 => Gen::OnOk(one),
            _ => match count % 4 {
                0 => Gen::Rename(one),
                1 => Gen::Validate(one),
                2 => Gen::Trace(one),
                _ => Gen::Friendly(one),
            },
        }
    }
}

/// The name of the outermost combinator.
fn name(gen_: &Gen) -> &'static str {
    match gen_ {
        Gen::Nothing => "nothing",
        Gen::One(..) => "one",
        Gen::Sequence(_) => "sequence",
        Gen::Any {
            shortest: false, ..
        } => "any",
        Gen::Any { .. } => "shortest-any",
        Gen::Mix(..) => "mix",
        Gen::FlipFlop(..) => "flip-flop",
        Gen::Then(..) => "then",
        Gen::Limit(..) => "limit",
        Gen::Repeat(..) => "repeat",
        Gen::TimeLimit(..) => "time-limit",
        Gen::Stagger(..) => "stagger",
        Gen::Delay(..) => "delay",
        Gen::DelayTil(..) => "delay-til",
        Gen::CycleTimes(..) => "cycle-times",
        Gen::Synchronize(..) => "synchronize",
        Gen::UntilOk(..) => "until-ok",
        Gen::Add(..) => "map",
        Gen::Rename(_) => "f-map",
        Gen::Without(..) => "filter",
        Gen::On(..) => "on-threads",
        Gen::ProcessLimit(..) => "process-limit",
        Gen::ConcurrencyLimit(..) => "concurrency-limit",
        Gen::Reserve(..) => "reserve",
        Gen::EachThread(..) => "each-thread",
        Gen::EachProcess(..) => "each-process",
        Gen::ConcurrentKeys { .. } => "concurrent-keys",
        Gen::SequentialKeys { .. } => "sequential-keys",
        Gen::Function(..) => "function",
        Gen::Cycle(..) => "cycle",
        Gen::Cache(..) => "cache",
        Gen::OnOk(_) => "on-update",
        Gen::Validate(_) => "validate",
        Gen::Trace(_) => "trace",
        Gen::Friendly(_) => "friendly-exceptions",
        Gen::Watched(_) => "watched",
    }
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    More,
    /// Exhausted.
    End,
    /// Stopped with a message.
    Mistake,
}

/// The fast generator and its twin in the same world.
struct Pair {
    seed: u64,
    rng: Rng,
    shape: Gen,
    fast: Box<dyn Generator>,
    twin: Gen,
    threads: Threads,
    sight: Sight,
    open: Vec<(Thread, Op)>,
    /// Operations that were taken.
    taken: u32,
}

impl Pair {
    fn new(seed: u64, shape: Gen, concurrency: u32) -> Pair {
        let clients = (0..concurrency).map(|n| (Thread(n), Process::Client(u64::from(n))));
        let all: BTreeMap<Thread, Process> = clients
            .chain([(Thread::NEMESIS, Process::NEMESIS)])
            .collect();
        Pair {
            seed,
            rng: Rng::from_seed(seed).fork("world"),
            fast: build(&shape),
            twin: shape.clone(),
            shape,
            threads: Threads::new(concurrency),
            sight: Sight {
                time: 0,
                concurrency,
                free: all.keys().copied().collect(),
                threads: all,
                word: 0,
                changes: (0, 0),
            },
            open: Vec::new(),
            taken: 0,
        }
    }

    fn now(&self) -> Time {
        Time::from_nanoseconds(self.sight.time as u64)
    }

    fn update(&mut self, event: &Op) {
        self.fast.update(&self.threads.context(self.now()), event);
        self.twin = self.twin.update(&self.sight, event);
    }

    /// Asks both several times; mostly takes the operation if it is due.
    fn step(&mut self) -> Step {
        let context = self.threads.context(self.now());
        let next = self.fast.next(&context);
        for _ in 0..self.rng.below(3) {
            let again = self.fast.next(&context);
            assert_eq!(
                again,
                next,
                "seed {}: asked again\n{}",
                self.seed,
                self.fast.tree()
            );
        }
        let asked = self.twin.ask(&self.sight);
        // The twin does not validate: a process requested by number may have crashed.
        let wrong = match &asked.next {
            Next::Op(op) => !self.sight.threads.values().any(|one| *one == op.process),
            other => matches!(other, Next::Failed(_)),
        };
        if wrong && matches!(next, Next::Failed(_)) {
            return Step::Mistake;
        }
        assert!(
            next == asked.next,
            "seed {}: {next:?}, the twin says {:?}\n{}\nmade of {:#?}",
            self.seed,
            asked.next,
            self.fast.tree(),
            self.shape
        );
        self.twin = asked.kept;
        if next != Next::Exhausted {
            let left = LEFT_BEHIND.get();
            assert_eq!(
                left,
                0,
                "seed {}: what has ended is not dropped\n{}",
                self.seed,
                self.fast.tree()
            );
        }
        match next {
            Next::Exhausted => return Step::End,
            Next::Failed(_) => return Step::Mistake,
            Next::Op(_) if wrong => return Step::Mistake,
            Next::Op(op) => {
                self.check(&op);
                if op.time > self.sight.time && self.rng.chance(0.5) {
                    self.sight.time = op.time;
                    return Step::More;
                }
                if op.time <= self.sight.time && self.rng.chance(0.85) {
                    self.take(op, asked.taken);
                    return Step::More;
                }
            }
            Next::Pending => {}
        }
        self.sight.time += self.rng.below(12) as i64;
        if self.rng.chance(0.6) {
            self.complete();
        }
        Step::More
    }

    /// The operation can be carried out now.
    fn check(&self, op: &Op) {
        let seed = self.seed;
        let thread = self.sight.thread_of(op.process).unwrap();
        assert!(
            self.sight.free.contains(&thread),
            "seed {seed}: {op} on a busy thread"
        );
        assert!(op.time >= self.sight.time, "seed {seed}: {op} in the past");
    }

    fn take(&mut self, op: Op, taken: Gen) {
        let thread = self.sight.thread_of(op.process).unwrap();
        self.fast.commit();
        self.twin = taken;
        self.taken += 1;
        self.threads.occupy(thread);
        self.sight.free.remove(&thread);
        self.change(thread);
        if thread.is_client() {
            self.sight.word = self.rng.word();
            self.threads.draw(self.sight.word);
        }
        self.update(&op);
        self.open.push((thread, op));
    }

    /// An event of this thread.
    fn change(&mut self, thread: Thread) {
        if thread.is_client() {
            self.sight.changes.0 += 1;
        } else {
            self.sight.changes.1 += 1;
        }
    }

    /// A random completion of a random open operation.
    fn complete(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (thread, op) = self.open.swap_remove(self.rng.index(self.open.len()));
        let kind = match self.rng.below(8) {
            _ if !thread.is_client() => OpType::Info,
            0 => OpType::Info,
            1 | 2 => OpType::Fail,
            _ => OpType::Ok,
        };
        let time = self.sight.time;
        let op = Op { time, kind, ..op };
        self.threads.release(thread);
        self.sight.free.insert(thread);
        self.change(thread);
        self.update(&op);
        if kind == OpType::Info
            && let Process::Client(number) = op.process
        {
            self.threads.retire(thread);
            let next = number + u64::from(self.sight.concurrency);
            self.sight.threads.insert(thread, Process::Client(next));
        }
    }
}

#[test]
fn random_trees_answer_as_their_twins_do() {
    let (mut taken, mut ended) = (0, 0);
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..12_000 {
        let concurrency = 1 + Rng::from_seed(seed).below(5) as u32;
        let mut plan = RandomTrees::new(seed, concurrency);
        let shape = plan.tree(DEPTH);
        for (name, count) in plan.seen {
            *seen.entry(name).or_default() += count;
        }
        let mut pair = Pair::new(seed, shape, concurrency);
        let mut over = false;
        for _ in 0..100 {
            let step = pair.step();
            assert!(
                !over || step == Step::End,
                "seed {seed}: continues after its end"
            );
            over = step == Step::End;
            match step {
                Step::More => {}
                Step::End => {
                    pair.sight.time += pair.rng.below(50) as i64;
                    pair.complete();
                }
                Step::Mistake => break,
            }
        }
        taken += pair.taken;
        ended += u32::from(over);
    }
    assert!(
        taken > 60_000 && ended > 5_000,
        "{taken} operations, {ended} ended"
    );
    assert!(
        seen.len() >= 31 && seen.values().all(|count| *count > 50),
        "{seen:?}"
    );
}

/// The table of the guide: every row has a test of that name.
#[test]
fn every_row_of_the_guide_has_a_golden_schedule() {
    let guide = include_str!("../../../../docs/guide/generators.md");
    let tests = [include_str!("golden.rs"), include_str!("golden/further.rs")].concat();
    let rows = guide
        .lines()
        .filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let mut count = 0;
    for row in rows {
        let name = row.trim_end_matches("` |").rsplit('`').next().unwrap();
        let test = format!("#[test]\nfn {name}()");
        assert!(tests.contains(&test), "{row}");
        count += 1;
    }
    assert_eq!(count, 37);
}
