//! Finds faults of consensus libraries from the registry in simulated worlds, and shortens the schedules that show them.
//!
//! ```text
//!  seed ─► schedule ─► world of members (omnipaxos_member, raft_member) ─► checks ─► failure ─► shortest schedule ─► trace
//! ```
//!
//! Files in reading order: `scenario` (the table of runs), `command`, `schedule`, `simulation` (one run and its checks), `member`
//! with `omnipaxos_member`, `omnipaxos_store`, `omnipaxos_text` and `raft_member` (the libraries as machines), `ledger` (what
//! all members decided), `shrink`; `repro` has the faults without a simulator, as tests.

mod command;
mod ledger;
mod member;
mod omnipaxos_member;
mod omnipaxos_store;
mod omnipaxos_text;
mod raft_member;
#[cfg(test)]
mod repro;
mod scenario;
mod schedule;
mod shrink;
mod simulation;
#[cfg(test)]
mod tests;

use clap::{Parser, ValueEnum};
use ledger::{Failure, FailureKind};
use scenario::{Library, SCENARIOS, Scenario};
use schedule::Schedule;
use shrink::Shrinker;
use simulation::RunReport;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Finds faults of consensus libraries in simulated worlds.
#[derive(Debug, Parser)]
#[command(about, after_help = scenario_list())]
struct Arguments {
    /// The library to run.
    library: LibraryName,
    /// Run only this scenario.
    #[arg(long, alias = "without", value_name = "NAME")]
    scenario: Option<String>,
    /// Seeds to run: FIRST..LAST, both included.
    #[arg(long, value_parser = parse_seeds, default_value = "1..2000")]
    seeds: RangeInclusive<u64>,
    /// Run all seeds and count failures, instead of stopping at the first.
    #[arg(long)]
    all: bool,
    /// Shorten the schedules of this many failing seeds, and print the shortest; 0: none.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shrink: usize,
    /// Print the trace of the shortest schedule (with --shrink 0: of the first one that was found).
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LibraryName {
    /// omnipaxos 0.2.4
    Omnipaxos,
    /// raft 0.7.0, with a wrapper whose rules are switched off one by one
    Raft,
}

fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let numbers = text
        .split_once("..")
        .and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    numbers
        .filter(|seeds| !seeds.is_empty())
        .ok_or_else(|| format!("`{text}` is no range of seeds such as 1..2000"))
}

fn scenario_list() -> String {
    let mut text = "Scenarios:\n".to_owned();
    for scenario in &SCENARIOS {
        let library = match scenario.library {
            Library::OmniPaxos => "omnipaxos",
            Library::Raft => "raft",
        };
        text += &format!("  {library:<10} {:<24} {}\n", scenario.name, scenario.about);
    }
    text
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let library = match arguments.library {
        LibraryName::Omnipaxos => Library::OmniPaxos,
        LibraryName::Raft => Library::Raft,
    };
    quiet_panics();
    let chosen: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|scenario| scenario.library == library)
        .filter(|scenario| {
            arguments
                .scenario
                .as_ref()
                .is_none_or(|name| name == scenario.name)
        })
        .collect();
    if chosen.is_empty() {
        eprintln!("unknown scenario; see --help");
        return ExitCode::from(254);
    }
    let results: Vec<bool> = chosen
        .iter()
        .map(|scenario| explore(scenario, &arguments))
        .collect();
    if results.contains(&false) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Panics of the libraries are failures of a run, with their text: they are not printed.
fn quiet_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let file = info.location().map_or("", |location| location.file());
        if !["/raft-0", "/omnipaxos-0"]
            .iter()
            .any(|library| file.contains(library))
        {
            print(info);
        }
    }));
}

/// Runs the seeds of a scenario. True if it went as expected.
fn explore(scenario: &Scenario, arguments: &Arguments) -> bool {
    println!("\n{}: {}", scenario.name, scenario.about);
    let mut totals = Totals::default();
    let mut found: Vec<(u64, Failure)> = Vec::new();
    for seed in arguments.seeds.clone() {
        let report = simulation::run(scenario, &Schedule::draw(scenario, seed), false);
        let failure = totals.add(seed, report);
        let is_wanted = |failure: &Failure| scenario.finds.is_none_or(|it| it == failure.kind);
        if let Some(failure) = failure.filter(is_wanted) {
            found.push((seed, failure));
            if !arguments.all && found.len() >= arguments.shrink.max(1) {
                break;
            }
        }
    }
    totals.print();
    if let Some((seed, failure)) = found.first() {
        println!("  seed {seed}: {}: {}", failure.kind, failure.text);
        let schedules = found.iter().take(arguments.shrink);
        let shortest = schedules
            .map(|(seed, failure)| shorten(scenario, *seed, failure.kind))
            .min_by_key(|schedule| schedule.steps.len());
        if let Some(schedule) = &shortest {
            print_schedule(scenario, schedule);
        }
        if arguments.trace {
            let schedule = shortest.unwrap_or_else(|| Schedule::draw(scenario, *seed));
            print_trace(scenario, &schedule);
        }
    }
    let as_expected = found.is_empty() == scenario.finds.is_none();
    let kind = scenario.finds.map(|kind| kind.to_string());
    let expected = kind.unwrap_or_else(|| "no failure".to_owned());
    let answer = if as_expected { "yes" } else { "NO" };
    println!("  expected: {expected}; as expected: {answer}");
    as_expected
}

/// What the runs of a scenario did.
#[derive(Default)]
struct Totals {
    seeds: u64,
    decided: u64,
    operations: u64,
    acknowledged: u64,
    /// Number of failures of each kind, and the first seed.
    kinds: BTreeMap<FailureKind, (u64, u64)>,
}

impl Totals {
    fn add(&mut self, seed: u64, report: RunReport) -> Option<Failure> {
        self.seeds += 1;
        self.decided += report.decided;
        self.operations += report.operations.0;
        self.acknowledged += report.operations.1;
        let failure = report.failure?;
        self.kinds.entry(failure.kind).or_insert((0, seed)).0 += 1;
        Some(failure)
    }

    fn print(&self) {
        let Totals {
            seeds,
            decided,
            operations,
            acknowledged,
            kinds,
        } = self;
        println!(
            "  {seeds} seeds, {decided} positions decided, {operations} operations, {acknowledged} acknowledged"
        );
        for (kind, (count, first)) in kinds {
            println!("  {kind}: {count} of {seeds} seeds, first at seed {first}");
        }
    }
}

/// The shortest schedule found that fails like this seed.
fn shorten(scenario: &Scenario, seed: u64, kind: FailureKind) -> Schedule {
    let found = Schedule::draw(scenario, seed);
    let steps = found.steps.len();
    let mut shrinker = Shrinker::new(scenario, kind, found);
    let shortest = shrinker.shrink();
    let (left, runs) = (shortest.steps.len(), shrinker.runs);
    println!("  seed {seed}: shortened from {steps} to {left} steps in {runs} runs");
    shortest
}

fn print_schedule(scenario: &Scenario, schedule: &Schedule) {
    println!("  the shortest schedule:\n{schedule}");
    let report = simulation::run(scenario, schedule, false);
    if let Some(failure) = report.failure {
        println!("  {}: {}", failure.kind, failure.text);
    }
}

fn print_trace(scenario: &Scenario, schedule: &Schedule) {
    for line in simulation::run(scenario, schedule, true).lines {
        println!("    {line}");
    }
}
