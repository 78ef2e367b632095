//! How fast simulated databases are, alone: `cargo bench -p seatrial-database`. Without `--bench` (as under
//! `cargo test --benches`) everything runs once with tiny input. Rates count invocations and completions per second of
//! processor time, the best of three rounds. Linux only.

use seatrial_database::{Database, DatabaseOptions, DatabaseWorkload};

/// Seconds that this thread has run for, as the scheduler counts.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos
        .map(|nanos: u64| nanos as f64 / 1e9)
        .expect("a number of nanoseconds")
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let operations = if is_bench { 2_000_000 } else { 2_000 };
    for workload in DatabaseWorkload::ALL {
        for &isolation in workload.levels().iter().rev() {
            let options = DatabaseOptions {
                isolation: Some(isolation),
                ..DatabaseOptions::new(workload, operations)
            };
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                let begun = processor_seconds();
                let database = Database::new(&options).expect("sound options");
                assert_eq!(database.count() as u64, operations);
                least = least.min(processor_seconds() - begun);
            }
            println!(
                "{:<12} {:<34} {:>6.2} million operations/s",
                workload.name(),
                isolation.name(),
                operations as f64 / least.max(1e-9) / 1e6
            );
        }
    }
}
