//! `seatrial bench`: measures seatrial itself. Prints every run, so that a result can be committed raw.

mod endurance;

use crate::args::{BenchArguments, BenchLoadArguments, BenchOpenArguments, BenchTopic};
use crate::suites::{Suites, failure, fault_options_of};
use anyhow::{Context as _, Result};
use seatrial_generator::workload::WorkloadOptions;
use seatrial_history::TestFile;
use seatrial_machine::{FaultKind, Rng};
use seatrial_runner::{RunFolder, bench_interpreter};
use seatrial_suite::{OptionValues, SimulatedTest, Work};
use seatrial_terminal::{Exit, say};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

/// Carries the verb out.
pub(crate) fn run(arguments: &BenchArguments, suites: &Suites) -> Result<Exit> {
    match &arguments.topic {
        BenchTopic::Interpreter(arguments) => interpreter(arguments),
        BenchTopic::Endurance(arguments) => endurance::run(arguments),
        BenchTopic::Sim(arguments) => simulation(arguments, suites),
        BenchTopic::Open(arguments) => open(arguments),
    }
}

/// Machine turns per second of `sim` with the first suite that has a simulated world, on one core, without checking.
fn simulation(arguments: &BenchLoadArguments, suites: &Suites) -> Result<Exit> {
    let simulator = suites.iter().find_map(|suite| suite.simulator());
    let simulator = simulator.context("no suite has a simulated world")?;
    let workloads = simulator.workloads();
    let seeds = arguments.ops.unwrap_or(200);
    for (name, kinds) in [
        ("quiet", vec![]),
        (
            "faults",
            vec![
                FaultKind::Kill,
                FaultKind::Pause,
                FaultKind::Partition,
                FaultKind::Clock,
            ],
        ),
    ] {
        let mut rates = Vec::new();
        for number in 0..=arguments.runs {
            let (mut turns, mut operations) = (0, 0);
            let began = Instant::now();
            for seed in 0..seeds {
                let simulation = SimulatedTest {
                    seed,
                    work: Work::Named(
                        workloads[seed as usize % workloads.len()],
                        WorkloadOptions::default(),
                    ),
                    faults: fault_options_of(kinds.clone(), 1, 6),
                    order: None,
                    operations: 1_000,
                    concurrency: 6,
                    operation_interval: None,
                    bug: None,
                    options: OptionValues::default(),
                };
                let run = simulator.run(&simulation).map_err(failure)?;
                turns += run.turns;
                operations += run.history.len();
            }
            let rate = turns as f64 / began.elapsed().as_secs_f64();
            let warm_up = if number == 0 { "  warm-up" } else { "" };
            say!("sim {name}: {turns} turns, {operations} operations, {rate:.0} turns/s{warm_up}");
            if number > 0 {
                rates.push(rate);
            }
        }
        summarize(&format!("sim {name}"), rates, "turns/s");
    }
    Ok(Exit::Valid)
}

/// Minimum, median and maximum of the counted runs.
fn summarize(what: &str, mut rates: Vec<f64>, unit: &str) {
    rates.sort_by(f64::total_cmp);
    if let (Some(min), Some(max)) = (rates.first(), rates.last()) {
        let median = rates[rates.len() / 2];
        say!("{what}: min {min:.0}  median {median:.0}  max {max:.0} {unit}");
    }
}

/// Operations per second of the whole interpreter against a client in this process that answers at once, history on disk: how
/// much of a run the bench itself takes, not how fast a real run is.
fn interpreter(arguments: &BenchLoadArguments) -> Result<Exit> {
    let invocations = arguments.ops.unwrap_or(1_000_000) / 2;
    let (path, _temporary) = folder(arguments.out.as_deref())?;
    let mut rates = Vec::new();
    for number in 0..=arguments.runs {
        let folder = RunFolder::open(path.join(format!("run-{number}")))?;
        let figures = bench_interpreter(folder, arguments.concurrency, invocations)?;
        let rate = figures.operations_per_second();
        let warm_up = if number == 0 { "  warm-up" } else { "" };
        say!(
            "interpreter alone, {} workers: {} operations ({} events) in {:.3} s, {:.1} bytes an event, {rate:.0} operations/s{warm_up}",
            arguments.concurrency,
            figures.operations,
            figures.events,
            figures.elapsed.as_secs_f64(),
            figures.file_length as f64 / figures.events as f64,
        );
        if number > 0 {
            rates.push(rate);
        }
    }
    summarize("interpreter alone", rates, "operations/s");
    Ok(Exit::Valid)
}

/// Microseconds to open a test file and read its attributes, and to read one operation too. The program's memory
/// is cold; the page cache is warm, or with `--cold` is asked to forget the file before each run.
fn open(arguments: &BenchOpenArguments) -> Result<Exit> {
    let (out, _temporary) = folder(arguments.load.out.as_deref())?;
    let path = if let Some(file) = &arguments.file {
        file.clone()
    } else {
        let invocations = arguments.load.ops.unwrap_or(1_000_000) / 2;
        let folder = RunFolder::open(out.join("open"))?;
        let path = folder.history();
        bench_interpreter(folder, arguments.load.concurrency, invocations)?;
        path
    };
    let (mut opened, mut read) = (Vec::new(), Vec::new());
    let mut rng = Rng::from_seed(u64::from(arguments.load.runs));
    for _ in 0..arguments.load.runs.max(1) {
        if arguments.cold {
            forget(&path)?;
        }
        let began = Instant::now();
        let file = TestFile::open(&path)?;
        file.attributes()?;
        let attributes = began.elapsed().as_secs_f64() * 1e6;
        let index = rng.below(file.len().max(1));
        let op = file.operation(index)?;
        op.with_context(|| format!("operation {index} is missing"))?;
        let operation = began.elapsed().as_secs_f64() * 1e6;
        say!(
            "open: {} operations, {} bytes, attributes after {attributes:.0} µs, operation {index} after {operation:.0} µs",
            file.len(),
            file.file_length(),
        );
        opened.push(attributes);
        read.push(operation);
    }
    summarize("open and read the attributes", opened, "µs");
    summarize("open and read one operation", read, "µs");
    Ok(Exit::Valid)
}

/// Has the system forget what it keeps of a file in memory. (What was not written yet it keeps.)
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .with_context(|| path.display().to_string())
}

/// The folder for what a bench writes: `wanted`, or a temporary one, which exists as long as the second value.
fn folder(wanted: Option<&Path>) -> Result<(PathBuf, Option<TempDir>)> {
    let Some(path) = wanted else {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        return Ok((folder.path().to_owned(), Some(folder)));
    };
    std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
    Ok((path.to_owned(), None))
}
