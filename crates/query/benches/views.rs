//! Rates of looking at a history through views: `cargo bench -p seatrial-query --bench views`. Without the argument
//! `--bench` (under `cargo test --benches`) everything runs once with tiny input. Rates are per second of processor time
//! of the whole process, the best of several rounds; wall time where it says so. Linux only.

#![expect(clippy::disallowed_types, reason = "a bench asks the clock")]

#[expect(dead_code, reason = "shared with other benches")]
#[path = "../../history/benches/workload/mod.rs"]
mod workload;

use seatrial_history::{History, HistoryWriter, Op, TestFile, Value};
use seatrial_machine::Rng;
use seatrial_query::{self as query, ChunkCache, View};
use serde_json::json;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use workload::{list_append, register};

/// How long to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    seconds_min: f64,
    /// Random accesses at a time.
    accesses: u64,
}

/// Seconds that all threads of this process have run for, those included that have ended; in hundredths.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum();
    ticks as f64 / 100.0
}

/// Runs `work`, which does this many things, and prints the rate per second.
fn rate(effort: Effort, name: &str, things: u64, mut work: impl FnMut()) {
    let (mut best, mut best_wall) = (0.0_f64, 0.0_f64);
    for _ in 0..effort.rounds {
        let (start, clock) = (processor_seconds(), Instant::now());
        let mut done = 0;
        loop {
            work();
            done += things;
            let seconds = processor_seconds() - start;
            if seconds >= effort.seconds_min {
                best = best.max(done as f64 / seconds.max(0.01));
                best_wall = best_wall.max(done as f64 / clock.elapsed().as_secs_f64());
                break;
            }
        }
    }
    println!(
        "{name:<44} {:>10.3} M/s   (wall {:>10.3} M/s)",
        best / 1e6,
        best_wall / 1e6
    );
}

fn write(path: &Path, ops: &[Op]) {
    let _ = std::fs::remove_file(path);
    let mut writer = HistoryWriter::create(path, &json!({"name": "bench"})).expect("a new file");
    for op in ops {
        writer.push(op).expect("space for it");
    }
    writer.seal().expect("space for it");
}

/// Random positions of a view.
fn at_random(view: &View, effort: Effort, rng: &mut Rng, mut look: impl FnMut(u64)) {
    let length = view.len().expect("sound");
    for _ in 0..effort.accesses {
        look(rng.below(length));
    }
}

/// Access operation by operation.
fn accesses(name: &str, view: &View, effort: Effort) {
    let mut rng = Rng::from_seed(7);
    let count = effort.accesses;
    let nothing = |op: Op| Op {
        value: Value::Nil,
        ..op
    };
    let rows = [
        ("nth", view.clone()),
        ("nth, mapped", view.map(nothing)),
        ("nth, oks", view.oks()),
        ("nth, oks by a closure", view.filter(|op| op.is_ok())),
        (
            "nth, mapped, filtered",
            view.map(nothing).filter(|op| op.is_ok()),
        ),
    ];
    for (what, view) in &rows {
        rate(effort, &format!("{name}: {what}"), count, || {
            at_random(view, effort, &mut rng, |position| {
                let op = view.nth(position).expect("sound").expect("there");
                black_box(op.index());
            });
        });
    }
    rate(
        effort,
        &format!("{name}: nth, whole operation"),
        count,
        || {
            at_random(view, effort, &mut rng, |position| {
                let op = view.nth(position).expect("sound").expect("there");
                black_box(op.into_op());
            });
        },
    );
    rate(effort, &format!("{name}: get by index"), count, || {
        at_random(view, effort, &mut rng, |index| {
            black_box(view.get(index).expect("sound").expect("there").time());
        });
    });
    for (what, half) in [("invocation", view.oks()), ("completion", view.invokes())] {
        let indices: Vec<u64> = (0..count)
            .map(|_| half.nth(rng.below(half.len().expect("sound"))))
            .map(|op| op.expect("sound").expect("there").index())
            .collect();
        rate(
            effort,
            &format!("{name}: {what} of an index"),
            count,
            || {
                for &index in &indices {
                    let found = match what {
                        "invocation" => view.invocation(index),
                        _ => view.completion(index),
                    };
                    black_box(found.expect("sound").map(|op| op.index()));
                }
            },
        );
    }
}

/// Passes over everything.
fn passes(name: &str, view: &View, effort: Effort) {
    let count = view.len().expect("sound");
    rate(effort, &format!("{name}: iteration"), count, || {
        let indices = view.iter().map(|op| op.expect("sound").index());
        black_box(indices.fold(0, |sum, index| sum ^ index));
    });
    rate(
        effort,
        &format!("{name}: iteration, whole operations"),
        count,
        || {
            for op in view {
                black_box(op.expect("sound").into_op());
            }
        },
    );
    rate(
        effort,
        &format!("{name}: count of oks, fresh"),
        count,
        || {
            black_box(view.oks().len().expect("sound"));
        },
    );
    rate(effort, &format!("{name}: count by f, fresh"), count, || {
        black_box(view.by_f(["read", "txn"]).clients().len().expect("sound"));
    });
    rate(
        effort,
        &format!("{name}: count by a closure, fresh"),
        count,
        || {
            black_box(view.filter(|op| op.is_ok()).len().expect("sound"));
        },
    );
    rate(
        effort,
        &format!("{name}: first nth of oks, fresh"),
        count,
        || {
            black_box(view.oks().nth(count / 4).expect("sound"));
        },
    );
    rate(effort, &format!("{name}: fold, count"), count, || {
        black_box(view.fold(query::ops().count()).expect("sound"));
    });
    rate(
        effort,
        &format!("{name}: fold, count of oks"),
        count,
        || {
            black_box(view.oks().fold(query::ops().count()).expect("sound"));
        },
    );
    rate(
        effort,
        &format!("{name}: fold, mapped, whole operations"),
        count,
        || {
            let mapped = view.map(|op| Op { time: 0, ..op });
            black_box(mapped.fold(query::owned().count()).expect("sound"));
        },
    );
}

/// Opening a file and looking at one operation.
fn open(name: &str, path: &Path, effort: Effort) {
    let mut rng = Rng::from_seed(3);
    let mut times: Vec<f64> = (0..effort.accesses.min(200))
        .map(|_| {
            let clock = Instant::now();
            let view = View::of_file(TestFile::open(path).expect("what was written"));
            let position = rng.below(view.len().expect("sound"));
            black_box(view.nth(position).expect("sound").map(|op| op.into_op()));
            clock.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name}: open and one random operation, page cache warm, wall: best {:.3} ms, median {:.3} ms",
        times[0],
        times[times.len() / 2]
    );
}

fn measure(name: &str, ops: Vec<Op>, path: &Path, effort: Effort) {
    write(path, &ops);
    open(name, path, effort);
    let cache = Arc::new(ChunkCache::default());
    let file = TestFile::open(path).expect("what was written");
    let view = View::of_source(Arc::new(file), cache.clone());
    accesses(&format!("{name}, file"), &view, effort);
    passes(&format!("{name}, file"), &view, effort);
    println!("{name}, file: {:?}", cache.figures());
    let view = View::of(History::from_ops(ops));
    accesses(&format!("{name}, memory"), &view, effort);
    passes(&format!("{name}, memory"), &view, effort);
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let count = if is_bench { 1_000_000 } else { 600 };
    let effort = Effort {
        rounds: if is_bench { 2 } else { 1 },
        seconds_min: if is_bench { 0.3 } else { 0.0 },
        accesses: if is_bench { 100_000 } else { 10 },
    };
    let mut rng = Rng::from_seed(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.sea");
    measure("register", register(count, &mut rng), &path, effort);
    let lists = list_append(count.min(196_608), &mut rng);
    measure("list-append", lists, &path, effort);
}
