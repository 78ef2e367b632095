//! How fast checkers are on a test file, in one pass: `cargo bench -p seatrial-check --bench plain -- FILE CHECKER,CHECKER…`.
//! Prints a row: checkers, events, seconds, processor seconds, events per second, resident KiB at most. Without a file, as under
//! `cargo test`, it does nothing.

#![allow(clippy::unwrap_used, reason = "a bench that fails says where")]

use seatrial_check::{
    CheckOptions, ChunkReadAhead, SharedSource, Unwatched, by_name, check, references,
};
use seatrial_history::TestFile;
use std::path::Path;
use std::sync::Arc;

/// Processor time of this process, user and system, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let ticks = fields.skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let mut words = line.unwrap().split_whitespace();
    words.find_map(|word| word.parse().ok()).unwrap()
}

#[expect(clippy::disallowed_types, reason = "a bench asks the clock")]
fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|one| !one.starts_with("--"));
    let Some((path, names)) = arguments.next().zip(arguments.next()) else {
        return;
    };
    let begun = std::time::Instant::now();
    let file = Arc::new(TestFile::open(Path::new(&path)).unwrap());
    let source: SharedSource = Arc::new(ChunkReadAhead::new(file, 1));
    let checkers = names.split(',').map(|name| by_name(name, None).unwrap());
    let checkers: Vec<_> = checkers.collect();
    let options = CheckOptions {
        threads: 2,
        ..CheckOptions::default()
    };
    let answer = check(&references(&checkers), &source, &options, &Unwatched, None).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let events = answer.overview.events();
    for verdict in &answer.verdicts {
        let (name, valid) = (&verdict.checker, &verdict.valid);
        eprintln!("{name}: {valid:?} {:?}", verdict.anomalies);
    }
    println!(
        "{names},{events},{seconds:.2},{:.2},{:.0},{}",
        processor_seconds(),
        events as f64 / seconds,
        most_memory()
    );
}
