//! What the checkers of all workloads take: `cargo bench -p seatrial-runner --bench data_types [-- WORKLOAD]`.
//!
//! Histories of 100,000 and 1,000,000 operations (an invocation and its completion are two) of a sound system, 5 clients, 2.5 %
//! crashes and as many failures, each checked by the checkers of its workload. Rows: workload, checker, operations, processor
//! seconds of one verdict, operations per processor second, and the most memory that the verdict took besides the history.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on says where")]

#[path = "../tests/all/locks_and_logs.rs"]
mod locks_and_logs;
#[path = "../tests/all/model.rs"]
mod model;

use seatrial_check::for_workload;
use seatrial_checker::Validity;
use seatrial_generator::workload::NAMES;
use std::fs;

/// Processor time of this process, user and system, in seconds.
fn processor_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// A line of the process's status, in KiB.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let found = status
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .unwrap();
    found
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.find(|argument| !argument.starts_with('-'));
    // Short under `cargo test`.
    let counts: &[u64] = if std::env::args().any(|argument| argument == "--bench") {
        &[100_000, 1_000_000]
    } else {
        &[2_000]
    };
    println!("workload,checker,operations,seconds,operations_per_second,KiB");
    for name in NAMES {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        for &count in counts {
            let history = model::run(name, 1, u64::MAX, count / 2);
            for checker in for_workload(name, None).unwrap() {
                let runs = 5;
                // Forgets the most memory so far.
                let _ = fs::write("/proc/self/clear_refs", "5");
                let (before, began) = (memory("VmRSS:"), processor_seconds());
                for _ in 0..runs {
                    assert_eq!(checker.check(&history).valid, Validity::Valid, "{name}");
                }
                let seconds = (processor_seconds() - began) / f64::from(runs);
                let most = memory("VmHWM:").saturating_sub(before);
                println!(
                    "{name},{},{},{seconds:.3},{:.0},{most}",
                    checker.name(),
                    history.len(),
                    history.len() as f64 / seconds.max(0.002)
                );
            }
        }
    }
}
