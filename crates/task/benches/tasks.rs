//! Rates of the task executor: `cargo bench -p seatrial-task --bench tasks`. Without the argument `--bench` (under
//! `cargo test --benches`) everything runs once with few tasks. Prints a table of comma-separated values: tasks per second
//! of the clock and of processor time of all threads together, the best and the median of several rounds, each with an
//! executor that is warm. Linux only: both clocks are the kernel's, in hundredths of a second.

use seatrial_task::{Executor, Promise, Task};
use std::collections::VecDeque;

/// Seconds since the machine was started.
fn clock_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
    let seconds = text.split(' ').next().and_then(|text| text.parse().ok());
    seconds.expect("a number of seconds")
}

/// CPU seconds of all threads of this process, ended ones included.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    (fields[11] + fields[12]) / 100.0
}

/// How long to measure.
#[derive(Clone, Copy)]
struct Rounds {
    count: usize,
    seconds_min: f64,
    /// Tasks that are pending at once.
    tasks: usize,
}

/// Tasks that do nothing, each in a transaction of its own; all are joined.
fn independent(executor: &Executor, tasks: usize) {
    let all: Vec<Task<()>> = (0..tasks)
        .map(|_| executor.submit("independent", (), |()| ()))
        .collect();
    for task in all {
        task.join().expect("a value");
    }
}

/// As `independent`, 64 in a transaction.
fn batched(executor: &Executor, tasks: usize) {
    let mut all: Vec<Task<()>> = Vec::with_capacity(tasks);
    while all.len() < tasks {
        executor.transact(|transaction| {
            for _ in 0..64 {
                all.push(transaction.submit("batched", (), |()| ()));
            }
        });
    }
    for task in all {
        task.join().expect("a value");
    }
}

/// Each adds one to the value of the one before, submitted one by one while the first ones run already.
fn chain(executor: &Executor, tasks: usize) {
    let mut last = executor.submit("chain", (), |()| 1_usize);
    for _ in 1..tasks {
        last = executor.submit("chain", &last, |value| *value + 1);
    }
    assert_eq!(*last.join().expect("a value"), tasks);
}

/// The same chain, submitted in a transaction of 64 each.
fn chain_batched(executor: &Executor, tasks: usize) {
    let (promise, mut last) = executor.promise("begin");
    for _ in 0..tasks / 64 {
        executor.transact(|transaction| {
            for _ in 0..64 {
                last = transaction.submit("chain", &last, |value| *value + 1);
            }
        });
    }
    promise.keep(0);
    assert_eq!(*last.join().expect("a value"), tasks / 64 * 64);
}

/// One, a hundred that depend on it, and one that depends on all of these; again and again, one layer on the other.
fn fan(executor: &Executor, tasks: usize) {
    let mut last = executor.submit("begin", (), |()| 1_usize);
    for _ in 0..tasks.div_ceil(101) {
        last = executor.transact(|transaction| {
            let out: Vec<Task<usize>> = (0..100)
                .map(|_| transaction.submit("out", &last, |value| *value))
                .collect();
            transaction.submit("in", out, |all| {
                all.iter().map(|each| **each).sum::<usize>() / 100
            })
        });
    }
    assert_eq!(*last.join().expect("a value"), 1);
}

/// Each body submits the next task.
fn nested(executor: &Executor, tasks: usize) {
    fn next(executor: &Executor, left: usize, promise: Promise<()>) {
        if left == 0 {
            promise.keep(());
            return;
        }
        let inner = executor.clone();
        executor.submit("nested", (), move |()| next(&inner, left - 1, promise));
    }
    let (promise, end) = executor.promise("end");
    next(executor, tasks, promise);
    end.join().expect("a value");
}

/// Transactions in which nothing happens.
fn empty(executor: &Executor, transactions: usize) {
    for _ in 0..transactions {
        executor.transact(|_| ());
    }
}

/// 64 tasks in a transaction that is taken back.
fn rolled_back(executor: &Executor, tasks: usize) {
    for _ in 0..tasks.div_ceil(64) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            executor.transact(|transaction| {
                for _ in 0..64 {
                    transaction.submit("taken back", (), |()| ());
                }
                // As a panic, but nothing is printed.
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(result.is_err());
    }
}

/// The most memory that this process has had, in KiB.
fn memory_kib_max() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of KiB")
}

/// A long chain of tasks, few pending at a time: memory must not grow with the finished ones.
fn memory(tasks: usize) {
    let executor = Executor::new(2);
    let mut window = VecDeque::from([executor.submit("first", (), |()| 0_usize)]);
    let mut before = 0;
    for number in 1..tasks {
        let last = window.back().expect("never empty");
        window.push_back(executor.submit("next", last, |value| *value + 1));
        if window.len() > 10_000 {
            let oldest = window.pop_front().expect("never empty");
            oldest.join().expect("a value");
        }
        if number == tasks / 10 {
            before = memory_kib_max();
        }
    }
    let last = window.back().expect("never empty").join();
    assert_eq!(*last.expect("a value"), tasks - 1);
    eprintln!(
        "most memory after {} tasks {before} KiB, after {tasks} tasks {} KiB",
        tasks / 10,
        memory_kib_max()
    );
}

fn measure(name: &str, threads: usize, rounds: Rounds, work: fn(&Executor, usize)) {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if wanted.is_some_and(|wanted| name != wanted) {
        return;
    }
    let executor = Executor::new(threads);
    work(&executor, rounds.tasks);
    let mut by_clock = Vec::new();
    let mut by_processor = Vec::new();
    for _ in 0..rounds.count {
        let (clock, processor) = (clock_seconds(), processor_seconds());
        let mut tasks = 0;
        while tasks == 0 || clock_seconds() - clock < rounds.seconds_min {
            work(&executor, rounds.tasks);
            tasks += rounds.tasks;
        }
        by_clock.push(tasks as f64 / (clock_seconds() - clock));
        by_processor.push(tasks as f64 / (processor_seconds() - processor));
    }
    by_clock.sort_by(f64::total_cmp);
    by_processor.sort_by(f64::total_cmp);
    let last = rounds.count - 1;
    println!(
        "{name},{threads},{},{:.0},{:.0},{:.0},{:.0}",
        rounds.tasks,
        by_clock[last],
        by_clock[last / 2],
        by_processor[last],
        by_processor[last / 2]
    );
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let rounds = |tasks| Rounds {
        count: if is_bench { 5 } else { 1 },
        seconds_min: if is_bench { 1.0 } else { 0.0 },
        tasks: if is_bench { tasks } else { 640 },
    };
    memory(if is_bench { 10_000_000 } else { 1_000 });
    println!(
        "case,threads,tasks_at_once,per_second_best,per_second_median,\
         per_processor_second_best,per_processor_second_median"
    );
    for threads in [1, 2] {
        for tasks in [20_000, 1_000_000] {
            measure("independent", threads, rounds(tasks), independent);
        }
        measure("batched", threads, rounds(20_000), batched);
        measure("chain", threads, rounds(20_000), chain);
        measure("chain_batched", threads, rounds(20_000), chain_batched);
        measure("fan", threads, rounds(20_000), fan);
        measure("nested", threads, rounds(20_000), nested);
        measure("empty", threads, rounds(20_000), empty);
        measure("rolled_back", threads, rounds(20_000), rolled_back);
    }
}
