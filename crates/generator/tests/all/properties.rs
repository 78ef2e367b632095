//! What holds for every generator, tried on random ones.

use seatrial_generator::{
    Context, Generator, Interpreter, InterpreterOptions, Next, SimulatedReply, Simulation,
    THREADS_MAX, Thread, ThreadFilter, Threads, any, concurrent_keys, each_thread, flip_flop,
    function, mix, operation, phases, reserve, sequence, sleep,
};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::{Rng, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A finite leaf whose values are unique and counted in `values`.
fn leaf(rng: &mut Rng, values: &mut i64) -> Box<dyn Generator> {
    let first = *values;
    *values += rng.below(6) as i64;
    sequence((first..*values).map(|value| operation("a", Value::Int(value)))).boxed()
}

/// A random generator up to `depth` deep, all of it drawn from `rng`.
fn tree(rng: &mut Rng, depth: u32, values: &mut i64) -> Box<dyn Generator> {
    if depth == 0 || rng.chance(0.1) {
        return leaf(rng, values);
    }
    let fork = Rng::from_seed(rng.word());
    let nanoseconds = Duration::from_nanos(1 + rng.below(30));
    let count = rng.below(12);
    let children = |rng: &mut Rng, values: &mut i64| -> Vec<Box<dyn Generator>> {
        (0..=rng.below(3))
            .map(|_| tree(rng, depth - 1, values))
            .collect()
    };
    let choice = rng.below(22);
    if choice < 7 {
        let many = children(rng, values);
        return match choice {
            0 => any(fork, many).boxed(),
            1 => mix(fork, many).boxed(),
            2 => sequence(many).boxed(),
            3 => phases(many).boxed(),
            4 => {
                let default = leaf(rng, values);
                reserve(fork, many.into_iter().take(2).map(|one| (1, one)), default).boxed()
            }
            5 => flip_flop(any(fork, many), leaf(rng, values)).boxed(),
            _ => any(fork, many.into_iter().chain([sleep(nanoseconds).boxed()])).boxed(),
        };
    }
    let one = tree(rng, depth - 1, values);
    match choice {
        7 => one.limit(count).boxed(),
        8 => one.repeat_times(count).boxed(),
        9 => one.time_limit(nanoseconds * 3).boxed(),
        10 => one.stagger(fork, nanoseconds).boxed(),
        11 => one.delay(nanoseconds).boxed(),
        12 => one.synchronize().boxed(),
        13 => one.then(leaf(rng, values)).boxed(),
        14 => one.until_ok().boxed(),
        15 => one
            .filter(|op| op.value.as_int().is_none_or(|value| value % 3 != 0))
            .boxed(),
        16 => one.clients().boxed(),
        17 => one.process_limit(count).boxed(),
        18 => {
            let (mut stream, mut left) = (fork, 5);
            let more = function(move || {
                left -= 1;
                (left > 0).then(|| operation("f", Value::Int(stream.below(100) as i64)))
            });
            any(Rng::from_seed(rng.word()), [one, more.boxed()]).boxed()
        }
        19 => {
            let threads = each_thread(|thread| operation("t", Value::text(thread.to_string())));
            sequence([one, threads.boxed()]).boxed()
        }
        20 => {
            let keys = (0..3).map(Key::Int);
            let per_key = concurrent_keys(2, keys, move |_| {
                let leaf = operation("k", Value::Int(7)).repeat_times(4);
                leaf.stagger(fork.clone(), nanoseconds)
            });
            any(Rng::from_seed(rng.word()), [one, per_key.boxed()]).boxed()
        }
        _ => one.validate().boxed(),
    }
}

fn random_tree(seed: u64) -> Box<dyn Generator> {
    tree(&mut Rng::from_seed(seed), 4, &mut 0)
}

/// Answers anything after any time, or never.
fn rough_client(seed: u64) -> impl FnMut(&Op) -> SimulatedReply + Send {
    let mut rng = Rng::from_seed(seed);
    move |op| {
        let kinds = [
            OpType::Ok,
            OpType::Ok,
            OpType::Fail,
            OpType::Info,
            OpType::Invoke,
        ];
        match rng.below(20) {
            0 => SimulatedReply::Never,
            choice => {
                let latency = Duration::from_nanos(rng.below(40));
                SimulatedReply::After(latency, kinds[choice as usize % 5], op.value.clone())
            }
        }
    }
}

fn rough_run(seed: u64) -> History {
    let options = InterpreterOptions {
        operation_timeout: Some(Duration::from_nanos(100)),
        drain_timeout: Duration::from_nanos(500),
        ..InterpreterOptions::new(4, Rng::from_seed(seed))
    };
    let interpreter = Interpreter::new(random_tree(seed), &options);
    let simulation = Simulation::new(interpreter, rough_client(seed));
    let stop = Time::from_nanoseconds(Rng::from_seed(seed).below(5_000));
    simulation.stop_at(stop).run().unwrap_or_else(|failure| {
        // A random tree may leave a reserve too few threads; no other failure is allowed.
        assert!(
            failure.problem.starts_with("reserve needs"),
            "seed {seed}: {failure}"
        );
        History::default()
    })
}

#[test]
fn asking_again_changes_nothing() {
    let (mut answered, mut pending) = (0, 0);
    for seed in 0..600 {
        let mut rng = Rng::from_seed(seed).fork("contexts");
        let (mut once, mut often) = (random_tree(seed), random_tree(seed));
        let mut threads = Threads::new(4);
        let mut now = Time::ZERO;
        let mut open: Vec<(Thread, Op)> = Vec::new();
        for _ in 0..200 {
            let context = threads.context(now);
            let answer = once.next(&context);
            for _ in 0..=rng.below(3) {
                assert_eq!(
                    often.next(&context),
                    answer,
                    "seed {seed}\n{}",
                    often.tree()
                );
            }
            pending += usize::from(answer == Next::Pending);
            if let Next::Op(op) = answer
                && op.time <= now.nanoseconds() as i64
                && rng.chance(0.8)
            {
                answered += 1;
                once.commit();
                often.commit();
                let thread = context.thread_of(op.process).unwrap();
                threads.occupy(thread);
                if rng.chance(0.5) {
                    threads.draw(rng.word());
                }
                once.update(&threads.context(now), &op);
                often.update(&threads.context(now), &op);
                open.push((thread, op));
                continue;
            }
            now += Duration::from_nanos(rng.below(10));
            if !open.is_empty() && rng.chance(0.5) {
                let (thread, op) = open.swap_remove(rng.index(open.len()));
                let kind = *rng.pick(&[OpType::Ok, OpType::Fail, OpType::Info]);
                let op = Op {
                    time: now.nanoseconds() as i64,
                    kind,
                    ..op
                };
                threads.release(thread);
                once.update(&threads.context(now), &op);
                often.update(&threads.context(now), &op);
                if kind == OpType::Info {
                    threads.retire(thread);
                }
            }
        }
    }
    assert!(
        answered > 3_000 && pending > 3_000,
        "{answered} operations, {pending} pauses"
    );
}

#[test]
fn exhausted_is_for_ever() {
    for seed in 0..300 {
        let mut generator = random_tree(seed);
        let mut threads = Threads::new(4);
        let mut ended = false;
        for step in 0..400 {
            let now = Time::from_nanoseconds(step * 7);
            let context = threads.context(now);
            match generator.next(&context) {
                Next::Exhausted => ended = true,
                other => assert!(!ended, "seed {seed}: {other:?} after the end"),
            }
            if let Next::Op(op) = generator.next(&context)
                && op.time <= now.nanoseconds() as i64
            {
                let thread = context.thread_of(op.process).unwrap();
                generator.commit();
                threads.occupy(thread);
                generator.update(&threads.context(now), &op);
                threads.release(thread);
                let ok = Op {
                    kind: OpType::Ok,
                    ..op
                };
                generator.update(&threads.context(now), &ok);
            }
        }
    }
}

#[test]
fn any_and_mix_lose_no_operation() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut values = 0;
        let mut parts = Vec::new();
        for _ in 0..=rng.below(8) {
            let part = leaf(&mut rng, &mut values);
            let pause = Duration::from_nanos(rng.below(25));
            parts.push(match rng.below(3) {
                0 => part.delay(pause).boxed(),
                1 => part.stagger(Rng::from_seed(seed), pause).boxed(),
                _ => part,
            });
        }
        let fork = rng.fork("outer");
        let generator = if seed % 2 == 0 {
            any(fork, parts).boxed()
        } else {
            mix(fork, parts).boxed()
        };
        let history = Simulation::perfect(generator, 3).run().unwrap();
        let mut seen: Vec<i64> = (0..history.len())
            .filter(|&position| history.pair(position).unwrap() > position)
            .map(|position| history.ops()[position].value.as_int().unwrap())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..values).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn any_is_fair_by_weight() {
    let count = |history: &History, f: &str| {
        history
            .iter()
            .filter(|op| op.is_invoke() && op.f == f)
            .count()
    };
    let endless = |f| operation(f, Value::Nil).repeat();
    let three = [endless("a"), endless("b"), endless("c")];
    let generator = any(Rng::from_seed(1), three).limit(30_000).clients();
    let history = Simulation::perfect(generator, 1).run().unwrap();
    for f in ["a", "b", "c"] {
        let count = count(&history, f);
        assert!((9_700..10_300).contains(&count), "{f} {count}");
    }
    // Due later and at the same time: still by lot.
    let late = |f| operation(f, Value::Nil).at(Time::from_nanoseconds(50));
    let first = |seed| {
        let pair = any(Rng::from_seed(seed), [late("a"), late("b")]).clients();
        let history = Simulation::perfect(pair, 1).run().unwrap();
        u32::from(history.ops()[0].f == "a")
    };
    let first: u32 = (0..2_000).map(first).sum();
    assert!((920..1_080).contains(&first), "{first} of 2,000");
}

#[test]
fn reserve_is_fair_by_thread_count() {
    let endless = |f| operation(f, Value::Nil).repeat();
    let ranges = [(1, endless("a")), (3, endless("b"))];
    let mut generator = reserve(Rng::from_seed(3), ranges, endless("c"));
    let threads = Threads::new(7);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..24_000 {
        if let Next::Op(op) = generator.next(&threads.context(Time::ZERO)) {
            *counts.entry(op.f.as_str()).or_default() += 1;
        }
        generator.commit();
    }
    for (f, wanted) in [("a", 3_000_u32), ("b", 9_000), ("c", 12_000)] {
        assert!(counts[f].abs_diff(wanted) < 300, "{counts:?}");
    }
}

#[test]
fn histories_are_well_formed_whatever_happens() {
    let mut operations = 0;
    for seed in 0..1_500 {
        let history = rough_run(seed);
        operations += history.len();
        let mut busy = BTreeSet::new();
        let mut crashed = BTreeSet::new();
        let mut time = 0;
        for (position, op) in history.iter().enumerate() {
            assert_eq!(op.index, position as u64);
            assert!(op.time >= time, "seed {seed}: {op}");
            time = op.time;
            assert!(
                !crashed.contains(&op.process),
                "seed {seed}: {op} after its crash"
            );
            let begins = history.pair(position).unwrap() > position;
            if begins {
                assert!(busy.insert(op.process), "seed {seed}: {op} is busy");
                assert_eq!(op.is_invoke(), op.process.is_client());
            } else {
                assert!(busy.remove(&op.process), "seed {seed}: {op} was not busy");
                assert!(!op.is_invoke());
                if op.is_info() && op.process.is_client() {
                    crashed.insert(op.process);
                }
            }
        }
        assert!(busy.is_empty(), "seed {seed}: {busy:?} still open");
    }
    assert!(operations > 10_000, "{operations}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let print = |history: History| -> Vec<String> { history.iter().map(Op::to_string).collect() };
    for seed in 0..100 {
        assert_eq!(
            print(rough_run(seed)),
            print(rough_run(seed)),
            "seed {seed}"
        );
    }
}

/// Threads as sets and maps.
struct Roster {
    concurrency: u32,
    busy: BTreeSet<Thread>,
    processes: BTreeMap<Thread, Process>,
    /// Processes that crashed, and who ran them.
    crashed: BTreeMap<Process, Thread>,
}

impl Roster {
    fn new(concurrency: u32) -> Roster {
        let clients = (0..concurrency).map(|n| (Thread(n), Process::Client(n.into())));
        Roster {
            concurrency,
            busy: BTreeSet::new(),
            processes: clients
                .chain([(Thread::NEMESIS, Process::NEMESIS)])
                .collect(),
            crashed: BTreeMap::new(),
        }
    }

    /// Something happens to a thread.
    fn step(&mut self, threads: &mut Threads, thread: Thread, rng: &mut Rng) {
        match rng.below(10) {
            0..=4 => {
                threads.occupy(thread);
                self.busy.insert(thread);
            }
            5..=7 => {
                threads.release(thread);
                self.busy.remove(&thread);
            }
            _ => {
                threads.release(thread);
                threads.retire(thread);
                self.busy.remove(&thread);
                let process = self.processes.get_mut(&thread).unwrap();
                if let Process::Client(number) = *process {
                    self.crashed.insert(*process, thread);
                    *process = Process::Client(number + u64::from(self.concurrency));
                }
            }
        }
    }

    fn compare(&self, context: &Context, keep: impl Fn(&Thread) -> bool) {
        let members: BTreeSet<Thread> = self.processes.keys().copied().filter(keep).collect();
        let free: BTreeSet<Thread> = members.difference(&self.busy).copied().collect();
        assert!(context.threads().eq(members.iter().copied()));
        assert!(context.free_threads().eq(free.iter().copied()));
        assert_eq!(context.thread_count(), members.len());
        assert_eq!(context.free_count(), free.len());
        assert_eq!(context.any_free(), !free.is_empty());
        assert_eq!(context.all_free(), free.len() == members.len());
        let some = context.some_free_thread();
        assert_eq!(some.is_some(), !free.is_empty());
        assert!(some.is_none_or(|thread| free.contains(&thread)));
        for (&thread, &process) in &self.processes {
            assert_eq!(context.contains(thread), members.contains(&thread));
            assert_eq!(context.is_free(thread), free.contains(&thread));
            assert_eq!(context.process_of(thread), process);
            assert_eq!(context.thread_of(process), Some(thread));
        }
        for (process, thread) in &self.crashed {
            assert_eq!(context.thread_of(*process), Some(*thread));
        }
    }
}

#[test]
fn contexts_agree_with_sets() {
    let mut crashed = 0;
    for seed in 0..330 {
        let mut rng = Rng::from_seed(seed);
        let (most, steps) = match seed {
            0..300 => (200, 300),
            300..325 => (u64::from(THREADS_MAX), 15_000),
            _ => (1, 30_000),
        };
        let drawn = rng.below(most) as u32;
        let concurrency = if seed < 325 { drawn } else { THREADS_MAX };
        let (mut threads, mut roster) = (Threads::new(concurrency), Roster::new(concurrency));
        let everyone: Vec<Thread> = roster.processes.keys().copied().collect();
        for _ in 0..rng.below(steps) {
            let thread = *rng.pick(&everyone);
            roster.step(&mut threads, thread, &mut rng);
        }
        crashed += roster.crashed.len();
        threads.occupy(Thread(concurrency + 7));
        threads.draw(rng.word());
        let most = u64::from(concurrency / 3).max(70);
        let (step, rest) = (1 + rng.below(most) as u32, rng.below(most) as u32);
        let outer = move |thread: Thread| thread.0 % step == rest % step;
        let inner = move |thread: Thread| thread.0 > rest;
        let (mut first, mut second) = (ThreadFilter::new(outer), ThreadFilter::new(inner));
        let context = threads.context(Time::ZERO);
        let once = first.apply(&context);
        let twice = second.apply(&once);
        roster.compare(&context, |_| true);
        roster.compare(&once, |thread| outer(*thread));
        roster.compare(&twice, |thread| outer(*thread) && inner(*thread));
    }
    assert!(crashed > 20_000, "{crashed}");
}

#[test]
fn every_free_thread_has_the_same_chance() {
    for concurrency in [60, 250, THREADS_MAX] {
        let mut threads = Threads::new(concurrency);
        let free: Vec<u32> = (0..concurrency)
            .filter(|n| n % (concurrency / 10) == 3)
            .collect();
        for thread in (0..concurrency).filter(|n| !free.contains(n)) {
            threads.occupy(Thread(thread));
        }
        threads.occupy(Thread::NEMESIS);
        let mut counts: BTreeMap<Thread, u32> = BTreeMap::new();
        let mut rng = Rng::from_seed(9);
        for _ in 0..10_000 {
            threads.draw(rng.word());
            let thread = threads.context(Time::ZERO).some_free_thread().unwrap();
            *counts.entry(thread).or_default() += 1;
        }
        assert_eq!(counts.len(), free.len());
        let wanted = 10_000 / free.len() as u32;
        assert!(
            counts
                .values()
                .all(|count| count.abs_diff(wanted) < wanted / 6),
            "{counts:?}"
        );
    }
}

#[test]
fn threads_stay_equal_when_most_have_ended() {
    let endless = |thread: Thread| {
        let limit = if thread.0.is_multiple_of(20) {
            u64::MAX
        } else {
            1
        };
        operation("a", Value::Nil).repeat().limit(limit)
    };
    let mut generator = each_thread(endless).clients();
    let mut threads = Threads::new(200);
    let mut rng = Rng::from_seed(5);
    let mut counts: BTreeMap<Process, f64> = BTreeMap::new();
    for step in 0..30_000 {
        threads.draw(rng.word());
        if let Next::Op(op) = generator.next(&threads.context(Time::ZERO))
            && step > 9_000
        {
            *counts.entry(op.process).or_default() += 1.0;
        }
        generator.commit();
    }
    let wanted = counts.values().sum::<f64>() / 10.0;
    let statistic: f64 = counts
        .values()
        .map(|count| (count - wanted).powi(2) / wanted)
        .sum();
    // Ten threads go on; more than 27.9 has a chance of 1 in 1,000.
    assert!(
        counts.len() == 10 && statistic < 27.9,
        "{statistic} {counts:?}"
    );
}
