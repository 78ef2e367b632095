//! Processor time and memory of checkers of models: `cargo bench -p seatrial-data-models --bench data_models`. Without
//! `--bench` (as under `cargo test`) the histories are small.

#![allow(clippy::unwrap_used, reason = "a bench that fails says where")]

use seatrial_checker::{Aims, Checker, check_source};
use seatrial_data_models::SetModel;
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_linear::ModelChecker;
use seatrial_machine::Rng;
use std::collections::BTreeSet;
use std::fs;

/// A set whose operations take effect at their completion.
fn set_history(count: usize, clients: u64, elements: Option<u64>) -> History {
    let mut rng = Rng::from_seed(7);
    let mut ops = Vec::with_capacity(2 * count);
    let mut contents: BTreeSet<i64> = BTreeSet::new();
    let mut fresh = 0;
    let mut open: Vec<Op> = Vec::new();
    let mut idle: Vec<u64> = (0..clients).collect();
    let mut begun = 0;
    while begun < count || !open.is_empty() {
        if begun < count && !idle.is_empty() && rng.chance(0.6) {
            let process = Process::Client(idle.swap_remove(rng.index(idle.len())));
            let f = ["add", "remove", "contains"][rng.index(3)];
            let element = match elements {
                Some(elements) => rng.below(elements).cast_signed(),
                None if f == "add" => {
                    fresh += 1;
                    fresh
                }
                None => (fresh - rng.below(100).cast_signed()).max(0),
            };
            let op = Op::invoke(process, f, Value::Int(element));
            ops.push(op.clone());
            open.push(op);
            begun += 1;
        } else if !open.is_empty() {
            let op = open.swap_remove(rng.index(open.len()));
            let element = op.value.as_int().unwrap();
            let result = match op.f.as_str() {
                "add" => contents.insert(element),
                "remove" => contents.remove(&element),
                _ => contents.contains(&element),
            };
            ops.push(op.complete(OpType::Ok, Value::Bool(result)));
            if let Process::Client(process) = op.process {
                idle.push(process);
            }
        }
    }
    History::from_unindexed(ops)
}

fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks
        .map(|field| field.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// A line of the process's memory, in KiB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let mut words = line.unwrap().split_whitespace();
    words.next().unwrap().parse().unwrap()
}

/// Time and memory in addition to those of the history, which includes its conversion to chunks.
fn measure(name: &str, checker: &dyn Checker, history: &History) {
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (before, began) = (memory("VmRSS:"), processor_seconds());
    let verdict = check_source(checker, history, &Aims::default())
        .unwrap()
        .verdict;
    let seconds = processor_seconds() - began;
    let most = memory("VmHWM:").saturating_sub(before) * 1024;
    let count = history.len() / 2;
    println!("{name},{count},{:?},{seconds:.2},{most}", verdict.valid);
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let count = if is_bench { 1_000_000 } else { 3_000 };
    println!("history,operations,verdict,processor_seconds,peak_bytes");
    let set = ModelChecker::new(SetModel);
    for clients in [8, 100] {
        let history = set_history(count, clients, None);
        measure(
            &format!("set of unique elements; {clients} clients"),
            &set,
            &history,
        );
        let history = set_history(count, clients, Some(1_000));
        measure(
            &format!("set of 1,000 elements; {clients} clients"),
            &set,
            &history,
        );
    }
}
