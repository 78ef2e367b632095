//! One run: cases by number on all threads, then the tables.

use crate::case::Kind;
use crate::compare::{compare, judges};
use crate::forge::Forger;
use crate::generate;
use crate::tally::Tally;
use anyhow::{Result, bail};
use seatrial_machine::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What to run.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "cargo xtask truth",
    about = "Compare every verdict and certificate with brute force on small histories"
)]
pub struct Options {
    /// Number of histories of each topic.
    #[arg(long, default_value_t = 20_000)]
    pub histories: u64,
    /// Number of the first history.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Seed of all histories.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Topics: lists, registers, forged-lists, forged-registers (default: all)
    #[arg(long, value_delimiter = ',')]
    pub topic: Vec<String>,
    /// Number of threads (default: one for each core).
    #[arg(long)]
    pub threads: Option<usize>,
}

/// Histories that a thread takes at a time.
const BATCH: u64 = 256;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    /// Verdicts and certificates.
    Verdicts(Kind),
    /// Forged certificates.
    Forged(Kind),
}

const TOPICS: [(&str, Topic); 4] = [
    ("lists", Topic::Verdicts(Kind::Lists)),
    ("registers", Topic::Verdicts(Kind::Registers)),
    ("forged-lists", Topic::Forged(Kind::Lists)),
    ("forged-registers", Topic::Forged(Kind::Registers)),
];

/// Runs the topics and prints their tables. Is there no disagreement?
pub fn run(options: &Options) -> Result<bool> {
    let known: Vec<&str> = TOPICS.iter().map(|topic| topic.0).collect();
    let unknown = options
        .topic
        .iter()
        .find(|name| !known.contains(&name.as_str()));
    if let Some(name) = unknown {
        bail!("unknown topic `{name}` (available: {})", known.join(", "));
    }
    let is_wanted = |name| options.topic.is_empty() || options.topic.iter().any(|it| it == name);
    let mut is_clean = true;
    for (name, topic) in TOPICS.into_iter().filter(|topic| is_wanted(topic.0)) {
        let began = Instant::now();
        let tally = all_cases(topic, options);
        let seconds = began.elapsed().as_secs_f64();
        let (cases, seed) = (tally.cases, options.seed);
        println!("# {name}\n\n{cases} histories, seed {seed}, {seconds:.1} s\n");
        println!("{}", tally.table());
        if !tally.reasons.is_empty() {
            println!("Unknown verdicts:\n\n{}", tally.reasons());
        }
        println!("{}", tally.disagreements());
        is_clean &= tally.classes.is_empty();
    }
    Ok(is_clean)
}

/// All histories of one topic, on all threads.
fn all_cases(topic: Topic, options: &Options) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
    let threads = options.threads.unwrap_or(cores).max(1);
    let next = AtomicU64::new(options.first);
    let end = options.first + options.histories;
    let (Topic::Verdicts(kind) | Topic::Forged(kind)) = topic;
    let work = || {
        let judges = judges(kind);
        let mut forger = Forger::new(kind);
        let mut tally = Tally::default();
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= end {
                return tally;
            }
            for number in first..end.min(first + BATCH) {
                let case = generate::case(kind, options.seed, number);
                if let Topic::Verdicts(_) = topic {
                    compare(&judges, &case, number, &mut tally);
                } else {
                    let mut rng = Rng::from_seed(options.seed ^ number).fork("forged");
                    forger.forge(&judges, &case, number, &mut rng, &mut tally);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Tally::default();
        for worker in workers {
            match worker.join() {
                Ok(tally) => all.add(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
