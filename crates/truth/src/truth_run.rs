//! One run: cases by number on all threads, then the tables.

use crate::case::Kind;
use crate::case_generator;
use crate::compare::{CheckerUnderTest, compare, subjects};
use crate::cuts::{self, CutOptions};
use crate::data;
use crate::forge::Forger;
use crate::fuzz::{self, FuzzOptions};
use crate::limited_program::Program;
use crate::routes::Routes;
use crate::samples;
use crate::tally::Tally;
use anyhow::{Result, bail};
use seatrial_machine::Rng;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Options of a run.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "cargo xtask truth",
    about = "Compare every verdict and certificate with brute force on small histories"
)]
pub struct TruthOptions {
    /// Number of histories of lists, of registers and of data types; other topics take a share of them.
    #[arg(long, default_value_t = 20_000)]
    pub histories: u64,
    /// Number of the first history.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Seed of all histories.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Topics: lists, registers, forged-lists, forged-registers, routes-lists, routes-registers, data, samples
    /// (default: all of these), fuzz (damaged inputs of every reader), cuts (losses of power on loop devices)
    #[arg(long, value_delimiter = ',')]
    pub topic: Vec<String>,
    /// Checkers and models for each history, drawn at random (default: all).
    #[arg(long)]
    pub models: Option<usize>,
    /// Number of threads (default: one for each core).
    #[arg(long)]
    pub threads: Option<usize>,
    /// Number of damaged inputs of the topic fuzz.
    #[arg(long, default_value_t = 100_000)]
    pub inputs: u64,
    /// Number of losses of power of the topic cuts.
    #[arg(long, default_value_t = 500)]
    pub cuts: u64,
    /// The program `seatrial` of the topics fuzz and cuts (default: the one beside this program).
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Keep inputs that failed here.
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/tmp/seatrial-truth-failures"
    )]
    pub keep: PathBuf,
}

impl TruthOptions {
    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |it| it.get());
        self.threads.unwrap_or(cores).max(1)
    }
}

/// Histories that a thread takes at a time.
const BATCH: u64 = 256;

/// A topic of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    /// Verdicts and certificates.
    Verdicts(Kind),
    /// Forged certificates.
    Forged(Kind),
    /// The same history by several routes.
    Routes(Kind),
    /// Data types.
    Data,
}

/// Names; of how many histories one is taken.
const TOPICS: [(&str, Topic, u64); 7] = [
    ("lists", Topic::Verdicts(Kind::Lists), 1),
    ("registers", Topic::Verdicts(Kind::Registers), 1),
    ("forged-lists", Topic::Forged(Kind::Lists), 10),
    ("forged-registers", Topic::Forged(Kind::Registers), 10),
    ("routes-lists", Topic::Routes(Kind::Lists), 20),
    ("routes-registers", Topic::Routes(Kind::Registers), 20),
    ("data", Topic::Data, 1),
];

/// Damaged inputs, only when asked for.
const FUZZ: &str = "fuzz";

/// Losses of power, only when asked for.
const CUTS: &str = "cuts";

/// Files of other projects, however many histories are asked for.
const SAMPLES: &str = "samples";

/// Runs the topics and prints their tables. Is there no disagreement?
pub fn run(options: &TruthOptions) -> Result<bool> {
    let names = TOPICS
        .iter()
        .map(|topic| topic.0)
        .chain([SAMPLES, FUZZ, CUTS]);
    let known: Vec<&str> = names.collect();
    let unknown = options
        .topic
        .iter()
        .find(|name| !known.contains(&name.as_str()));
    if let Some(name) = unknown {
        bail!("unknown topic `{name}` (available: {})", known.join(", "));
    }
    let is_wanted = |name| options.topic.is_empty() || options.topic.iter().any(|it| it == name);
    let mut is_clean = true;
    for (name, topic, share) in TOPICS.into_iter().filter(|topic| is_wanted(topic.0)) {
        let began = Instant::now();
        let tally = all_cases(topic, options.histories.div_ceil(share), options)?;
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
    if is_wanted(SAMPLES) {
        is_clean &= samples::run()?;
    }
    if options.topic.iter().any(|it| it == FUZZ) {
        let fuzz = FuzzOptions {
            inputs: options.inputs,
            first: options.first,
            seed: options.seed,
            threads: options.threads(),
            keep: &options.keep,
        };
        is_clean &= fuzz::run(&Program::find(options.binary.as_deref())?, fuzz)?;
    }
    if options.topic.iter().any(|it| it == CUTS) {
        let cuts = CutOptions {
            cuts: options.cuts,
            first: options.first,
            seed: options.seed,
            threads: options.threads(),
        };
        is_clean &= cuts::run(&Program::find(options.binary.as_deref())?, cuts)?;
    }
    Ok(is_clean)
}

/// Runs `histories` histories of one topic, on all threads.
fn all_cases(topic: Topic, histories: u64, options: &TruthOptions) -> Result<Tally> {
    let threads = options.threads();
    let next = AtomicU64::new(options.first);
    let end = options.first + histories;
    let work = || -> Result<Tally> {
        let mut worker = CheckWorker::new(topic, options)?;
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= end {
                return Ok(worker.tally);
            }
            for number in first..end.min(first + BATCH) {
                worker.take(number)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Tally::default();
        for worker in workers {
            match worker.join() {
                Ok(tally) => all.add(tally?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// One thread's tools, and what it found.
struct CheckWorker {
    topic: Topic,
    seed: u64,
    models: usize,
    subjects: Vec<CheckerUnderTest>,
    forger: Option<Forger>,
    routes: Option<Routes>,
    tally: Tally,
}

impl CheckWorker {
    fn new(topic: Topic, options: &TruthOptions) -> Result<CheckWorker> {
        let (subjects, forger, routes) = match topic {
            Topic::Verdicts(kind) => (subjects(kind), None, None),
            Topic::Forged(kind) => (subjects(kind), Some(Forger::new(kind)), None),
            Topic::Routes(kind) => (subjects(kind), None, Some(Routes::new()?)),
            Topic::Data => (Vec::new(), None, None),
        };
        Ok(CheckWorker {
            topic,
            seed: options.seed,
            models: options.models.unwrap_or(usize::MAX),
            subjects,
            forger,
            routes,
            tally: Tally::default(),
        })
    }

    /// The history of this number.
    fn take(&mut self, number: u64) -> Result<()> {
        let CheckWorker {
            seed,
            subjects,
            tally,
            ..
        } = self;
        let (Topic::Verdicts(kind) | Topic::Forged(kind) | Topic::Routes(kind)) = self.topic else {
            data::compare(*seed, number, tally);
            return Ok(());
        };
        let case = case_generator::case(kind, *seed, number);
        let mut rng = Rng::from_seed(*seed ^ number).fork("topic");
        if let Some(forger) = &mut self.forger {
            forger.forge(subjects, &case, number, &mut rng, tally);
        } else if let Some(routes) = &self.routes {
            routes.compare(subjects, &case, number, &mut rng, tally)?;
        } else {
            let mut drawn: Vec<&CheckerUnderTest> = subjects.iter().collect();
            if self.models < drawn.len() {
                rng.shuffle(&mut drawn);
                drawn.truncate(self.models);
            }
            compare(drawn, &case, number, tally);
        }
        Ok(())
    }
}
