//! How fast generators answer: operations per second of one core.
//!
//! `cargo bench -p seatrial-runner --bench generators [-- NAME]` prints one line per case: the best and the median of
//! five runs. The driver is the one of Jepsen's measurements: half of the threads are kept in flight, completions come
//! in the order of the invocations, there is no history. The rows that begin with `interpreter` run the whole interpreter
//! in virtual time against a client that answers at once.

use seatrial_generator::workload::{
    RegisterOptions, TransactionOptions, cas_registers, list_append as transactions,
};
use seatrial_generator::{
    Context, Generator, Interpreter, InterpreterOptions, Next, SimulatedReply, Simulation, Thread,
    Threads, any, concurrent_keys, mix, operation, reserve,
};
use seatrial_history::{Key, Op, OpType, Value};
use seatrial_machine::{Rng, Time};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Operations of one run.
const COUNT: u64 = 1_000_000;

fn rng() -> Rng {
    Rng::from_seed(45_100)
}

fn reads() -> Box<dyn Generator> {
    operation("read", Value::Nil).repeat().boxed()
}

fn list_append() -> Box<dyn Generator> {
    transactions(rng(), TransactionOptions::default())
        .clients()
        .boxed()
}

fn mix_of_three() -> Box<dyn Generator> {
    mix(rng(), [reads(), reads(), reads()]).clients().boxed()
}

/// A quarter of the threads, half of them and the rest, and a nemesis that mixes two faults.
fn reserve_and_nemesis(threads: u32) -> Box<dyn Generator> {
    let ranges = [(threads / 4, reads()), (threads / 2, reads())];
    let clients = reserve(rng().fork("reserve"), ranges, reads()).clients();
    let faults = [
        operation("kill", Value::Nil),
        operation("restart", Value::Nil),
    ];
    let faults = mix(rng(), faults.map(Generator::repeat)).nemesis();
    any(rng().fork("any"), [clients.boxed(), faults.boxed()]).boxed()
}

fn stagger_mix_limit_any() -> Box<dyn Generator> {
    let part = |name: &str| {
        let inner = mix(rng().fork(name), [reads(), reads()]).limit(u64::MAX);
        inner.stagger(rng().fork(name), Duration::from_nanos(1))
    };
    any(rng(), [part("a"), part("b")]).clients().boxed()
}

/// `reserve`, `mix` and `any` nested five deep over list-append.
fn five_deep(threads: u32) -> Box<dyn Generator> {
    let leaf = || transactions(rng(), TransactionOptions::default()).boxed();
    let pair = |name: &str, make: &dyn Fn() -> Box<dyn Generator>| {
        any(rng().fork(name), [make(), make()]).boxed()
    };
    let mixed = || mix(rng().fork("mix"), [leaf(), leaf(), leaf()]).boxed();
    let third = || pair("third", &mixed);
    let second = || mix(rng().fork("second"), [third(), third()]).boxed();
    let ranges = [(threads / 4, second()), (threads / 2, second())];
    let clients = reserve(rng().fork("reserve"), ranges, second())
        .clients()
        .boxed();
    let faults = operation("kill", Value::Nil).repeat().nemesis().boxed();
    any(rng().fork("first"), [clients, faults]).boxed()
}

fn keys_of_reads() -> Box<dyn Generator> {
    let keys = (0..).map(Key::Int);
    concurrent_keys(4, keys, |_| operation("read", Value::Nil).repeat_times(100)).boxed()
}

/// Pulls `count` operations with half of `concurrency` threads in flight; operations per second.
fn pull(mut generator: Box<dyn Generator>, concurrency: u32, count: u64) -> f64 {
    let mut threads = Threads::new(concurrency);
    let mut draws = rng();
    let mut flying: VecDeque<(Thread, Op)> = VecDeque::new();
    let mut now = Time::ZERO;
    let mut pulled = 0;
    let begin = Instant::now();
    while pulled < count {
        now += Duration::from_nanos(100);
        let context: Context = threads.context(now);
        let next = generator.next(&context);
        if let Next::Op(op) = next
            && op.time <= now.nanoseconds() as i64
        {
            pulled += 1;
            generator.commit();
            let thread = context
                .thread_of(op.process)
                .expect("a thread of this test");
            threads.occupy(thread);
            threads.draw(draws.word());
            generator.update(&threads.context(now), &op);
            flying.push_back((thread, op));
        }
        if flying.len() > concurrency as usize / 2
            && let Some((thread, op)) = flying.pop_front()
        {
            threads.release(thread);
            let op = Op {
                kind: OpType::Ok,
                ..op
            };
            generator.update(&threads.context(now), &op);
        }
    }
    pulled as f64 / begin.elapsed().as_secs_f64()
}

/// Runs the whole interpreter; invocations per second.
fn interpret(generator: Box<dyn Generator>, concurrency: u32, count: u64) -> f64 {
    let options = InterpreterOptions::new(concurrency, rng());
    let interpreter = Interpreter::new(generator.limit(count), &options);
    let mut simulation = Simulation::new(interpreter, |op: &Op| {
        SimulatedReply::After(Duration::from_micros(1), OpType::Ok, op.value.clone())
    });
    let mut recorded = 0_u64;
    let begin = Instant::now();
    simulation.run_with(|_| recorded += 1);
    assert_eq!(recorded, count * 2);
    count as f64 / begin.elapsed().as_secs_f64()
}

/// Memory of this process in KiB, where the system reports it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs the interpreter for long and prints the memory from time to time: it must not grow.
fn remember(generator: Box<dyn Generator>, concurrency: u32, count: u64) {
    let options = InterpreterOptions::new(concurrency, rng());
    let interpreter = Interpreter::new(generator.limit(count), &options);
    let mut rough = rng();
    let mut simulation = Simulation::new(interpreter, move |op: &Op| {
        let kinds = [OpType::Ok, OpType::Fail, OpType::Info];
        let kind = kinds[(rough.below(100) / 96) as usize * (1 + rough.index(2))];
        SimulatedReply::After(
            rough.duration_below(Duration::from_micros(2)),
            kind,
            op.value.clone(),
        )
    });
    let (mut recorded, mut report) = (0_u64, 1_000_000);
    simulation.run_with(|_| {
        recorded += 1;
        if recorded == report {
            println!("{recorded:>13} operations  {:>8} KiB", resident());
            report *= 10;
        }
    });
    println!("{recorded:>13} operations  {:>8} KiB", resident());
}

fn measure(name: &str, mut run: impl FnMut() -> f64) {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    if filter.is_some_and(|filter| !name.contains(&filter)) {
        return;
    }
    let mut rates: Vec<f64> = (0..5).map(|_| run()).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{name:<44} best {:>12.0}/s  median {:>12.0}/s",
        rates[4], rates[2]
    );
}

fn main() {
    // `-- memory`: 10^8 operations, half a minute and more.
    if std::env::args().any(|argument| argument == "memory") {
        remember(
            cas_registers(rng(), RegisterOptions::default()).boxed(),
            100,
            50_000_000,
        );
        return remember(list_append(), 100, 50_000_000);
    }
    for threads in [100, 1_024] {
        let case = |name: &str, make: &dyn Fn() -> Box<dyn Generator>| {
            measure(&format!("{name}, {threads} threads"), || {
                pull(make(), threads, COUNT)
            });
        };
        case("constant", &|| reads().clients().boxed());
        case("list-append", &list_append);
        case("mix of 3", &mix_of_three);
        case("reserve + nemesis mix", &|| reserve_and_nemesis(threads));
        case("stagger, mix, limit, any", &stagger_mix_limit_any);
        case("five deep", &|| five_deep(threads));
        case("4 threads per key", &keys_of_reads);
        case("register workload", &|| {
            cas_registers(rng(), RegisterOptions::default()).boxed()
        });
    }
    for threads in [100, 1_024, 10_000] {
        measure(
            &format!("interpreter, list-append, {threads} threads"),
            || interpret(list_append(), threads, COUNT),
        );
    }
}
