//! `seatrial sim`: seeds in order until one fails, or one seed again.

use crate::args::{RunArguments, SimArguments};
use crate::checked_run::{CheckedRun, RunFolderPlan, check_run};
use crate::plan_file::PlanFile;
use crate::suites::{Suites, failure, fault_options, node_count};
use crate::verdict_exit::verdict_exit;
use anyhow::{Context as _, Result};
use seatrial_check::NODE_STATES;
use seatrial_checker::{Checker, Divergence, Finding, Validity, Verdict};
use seatrial_generator::FaultOptions;
use seatrial_machine::{FaultKind, counted};
use seatrial_sim::explore;
use seatrial_suite::{
    OptionValues, PlantedBug, SimulatedRun as Run, SimulatedTest, Simulator, Suite, Work,
    known_bug, known_workload, vocabulary,
};
use seatrial_terminal::{Exit, complain, say};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Seeds without a planted bug, unless asked otherwise.
const SEEDS: u64 = 200;
/// Seeds of a plan, unless asked otherwise: it takes its time.
const PLANNED_SEEDS: u64 = 20;
/// A simulated plan ends at this time, if not before.
const PLANNED_TIME: Duration = Duration::from_hours(1);
/// Client threads, unless asked otherwise.
const CONCURRENCY: u32 = 6;

/// Carries the verb out.
pub(crate) fn run(arguments: &SimArguments, suites: &Suites) -> Result<Exit> {
    let suite = suites.named(&arguments.run.suite)?;
    let plan = SimulationPlan::new(arguments, suite, suites.options_of(suite)?)?;
    let began = Instant::now();
    let mut tally = SeedTally::default();
    let found = explore(plan.seeds.clone(), |seed| {
        let run = plan
            .simulator
            .run(&plan.simulation(seed))
            .map_err(|error| Box::new(Err(failure(error))))?;
        tally.turns += run.turns;
        let checked = plan
            .check(seed, &run)
            .map_err(|error| Box::new(Err(error)))?;
        if plan.arguments.output.verbose {
            let (count, world) = (run.history.len(), &run.world);
            complain!(
                " seed {seed:x}: {}, {}: {:?}; {world}",
                plan.work(seed).label(),
                counted(count as u64, "operation"),
                checked.validity()
            );
        }
        match &checked.validity() {
            Validity::Valid => Ok(()),
            // Too many faults leave nothing to check; a single seed is shown as it is.
            Validity::Unknown(_) if !plan.replay && !checked.is_refuted() => {
                tally.unknown += 1;
                Ok(())
            }
            _ => Err(Box::new(Ok((run, checked)))),
        }
    });
    tally.tried = found.tried;
    tally.elapsed = began.elapsed();
    match found.failure {
        Some((seed, failure)) => {
            let (run, checked) = (*failure)?;
            plan.report_failure(seed, &run, &checked, &tally)
        }
        None => Ok(plan.report_success(&tally)),
    }
}

/// A workload and its checkers.
type Assignment = (Work, Vec<Box<dyn Checker>>);

/// What is run for every seed.
struct SimulationPlan {
    suite: &'static dyn Suite,
    simulator: &'static dyn Simulator,
    /// The suite's own options.
    options: OptionValues,
    arguments: RunArguments,
    /// The plan that is carried out, if the user names one.
    file: Option<PlanFile>,
    nodes: u32,
    /// The number of nodes that was asked for.
    other_nodes: Option<u32>,
    operations: u64,
    /// Did the user say how many?
    other_operations: bool,
    seeds: std::ops::Range<u64>,
    /// Is this one seed, named by the user?
    replay: bool,
    faults: FaultOptions,
    bug: Option<&'static PlantedBug>,
    concurrency: u32,
    /// Workloads and their checkers, which alternate from seed to seed.
    works: Vec<Assignment>,
    /// Is a verdict without anomalies valid although questions stayed open, as in Jepsen?
    accepts_undecided: bool,
}

/// How much was done.
#[derive(Default)]
struct SeedTally {
    tried: u64,
    /// Seeds whose history says too little.
    unknown: u64,
    turns: u64,
    elapsed: Duration,
}

impl SimulationPlan {
    fn new(
        arguments: &SimArguments,
        suite: &'static dyn Suite,
        own: OptionValues,
    ) -> Result<SimulationPlan> {
        let run = &arguments.run;
        let simulator = suite.simulator().with_context(|| {
            let name = suite.name();
            format!("{name} has no simulated world; `seatrial test {name}` tests it for real")
        })?;
        let bug = run.bug.as_deref().map(|name| known_bug(suite, name));
        let bug = bug.transpose().map_err(failure)?;
        let file = PlanFile::of(run, &vocabulary(suite))?;
        let options = file
            .as_ref()
            .map(|file| file.plan.options().clone())
            .unwrap_or_default();
        let wide = arguments.seeds.is_some() || arguments.first_seed.is_some();
        let seed = arguments.seed.or(options.seed.filter(|_| !wide));
        let count = match seed {
            Some(_) => 1,
            None => arguments.seeds.unwrap_or_else(|| match &file {
                Some(_) => PLANNED_SEEDS,
                None => bug.map_or(SEEDS, |bug| bug.seeds_max),
            }),
        };
        let most = match &file {
            Some(_) => options.ops.unwrap_or(SimArguments::PLANNED_OPERATIONS),
            None => SimArguments::OPERATIONS,
        };
        let first = seed.or(arguments.first_seed).unwrap_or(0);
        let concurrency = run.concurrency.or(options.concurrency);
        let concurrency = concurrency.unwrap_or(CONCURRENCY);
        let usual = match &file {
            Some(file) => file.kinds(None),
            None => simulator.faults().to_vec(),
        };
        let nodes = node_count(suite, arguments.nodes, file.as_ref())?;
        let faults = fault_options(run, usual, nodes, concurrency)?;
        let planned = options.accept_undecided.as_ref();
        let accepts = run.undecided.accept_undecided || planned.is_some_and(|it| it.value);
        let mut plan = SimulationPlan {
            suite,
            simulator,
            options: own,
            arguments: run.clone(),
            file,
            nodes,
            other_nodes: arguments.nodes,
            operations: arguments.ops.unwrap_or(most),
            other_operations: arguments.ops.is_some(),
            seeds: first..first.saturating_add(count),
            replay: seed.is_some(),
            faults,
            bug,
            concurrency,
            works: Vec::new(),
            accepts_undecided: accepts,
        };
        plan.works = plan.works()?;
        Ok(plan)
    }

    fn works(&self) -> Result<Vec<Assignment>> {
        let model = self.arguments.model.as_deref();
        if let Some(file) = &self.file {
            let checkers = file.checkers(Some(self.suite), model)?;
            let time = file.plan.options().time;
            let work = Work::Planned {
                plan: Box::new(file.plan.clone()),
                label: file.label().to_owned(),
                other_kinds: self.arguments.faults.is_some(),
                time: time.unwrap_or(PLANNED_TIME).min(PLANNED_TIME),
            };
            return Ok(vec![(work, checkers)]);
        }
        let names = match &self.arguments.workload {
            None => self.simulator.workloads().to_vec(),
            Some(name) => vec![known_workload(self.suite, name).map_err(failure)?],
        };
        let options = self.arguments.workload_options.options();
        let mut works = Vec::new();
        for name in names {
            let checkers = self.suite.checkers(name, model)?;
            works.push((Work::Named(name, options.clone()), checkers));
        }
        // By name, so that a seed means the same whatever order they are listed in.
        works.sort_by(|(one, _), (two, _)| one.label().cmp(two.label()));
        Ok(works)
    }

    fn turn(&self, seed: u64) -> &Assignment {
        &self.works[(seed % self.works.len() as u64) as usize]
    }

    fn work(&self, seed: u64) -> &Work {
        &self.turn(seed).0
    }

    fn simulation(&self, seed: u64) -> SimulatedTest {
        SimulatedTest {
            seed,
            work: self.work(seed).clone(),
            faults: self.faults.clone(),
            order: self
                .arguments
                .fault_schedule
                .is_some()
                .then_some(self.faults.order),
            operations: self.operations,
            concurrency: self.concurrency,
            operation_interval: self.rate().map(|rate| Duration::from_secs_f64(1.0 / rate)),
            bug: self.bug,
            options: self.options.clone(),
        }
    }

    fn rate(&self) -> Option<f64> {
        if let Some(asked) = self.arguments.rate {
            return asked.per_second();
        }
        let planned = self.file.as_ref();
        planned.and_then(|file| file.plan.options().rate)
    }

    fn check(&self, seed: u64, run: &Run) -> Result<CheckedRun> {
        let history = Arc::clone(&run.history);
        let mut checked = check_run(&self.turn(seed).1, history, self.accepts_undecided)?;
        if run.has_states {
            checked.verdicts.push(Divergence.check(&run.history));
        }
        // Without bit rot in the plan, a store that cannot read its own log has lost data.
        if !run.boot_failures.is_empty() && !self.faults.kinds.contains(&FaultKind::Corruption) {
            let mut verdict = Verdict::valid("recovery");
            verdict.valid = Validity::Invalid;
            verdict
                .anomalies
                .insert("unrecoverable", run.boot_failures.len() as u64);
            verdict.findings = run.boot_failures.iter().map(unrecoverable).collect();
            checked.verdicts.push(verdict);
        }
        Ok(checked)
    }

    fn attributes(&self, seed: u64, run: &Run) -> Json {
        let work = self.work(seed);
        let file = self.file.as_ref();
        let workload = match work {
            Work::Named(name, _) => Some(*name),
            Work::Planned { .. } => file.and_then(PlanFile::workload),
        };
        let suite = self.suite.name();
        let nodes: Vec<String> = (1..=self.nodes).map(|node| format!("n{node}")).collect();
        json!({
            "name": format!("{suite} {} simulated", work.label()),
            "suite": suite,
            "simulated": true,
            "workload": workload,
            "plan": file.map(|file| file.text()),
            "checkers": file.and_then(|file| file.checker_names()),
            "seed": format!("{seed:x}"),
            "nodes": nodes,
            "faults": self.faults.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "bug": self.bug.map(|bug| bug.name),
            NODE_STATES: run.has_states,
            "world": run.world,
            "command": self.command(seed),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// How to see this seed again.
    fn command(&self, seed: u64) -> String {
        let mut command = format!("seatrial sim {} --seed {seed:x}", self.suite.name());
        let run = &self.arguments;
        // Writing to a string cannot fail.
        if let Some(bug) = &run.bug {
            let _ = write!(command, " --bug {bug}");
        }
        if let Some(workload) = &run.workload {
            let _ = write!(command, " --workload {workload}");
        }
        command.push_str(&run.workload_options.words());
        if let Some(plan) = &run.plan {
            let _ = write!(command, " --plan {}", plan.display());
        }
        if let Some(faults) = &run.faults {
            let _ = write!(command, " --faults {}", faults.join(","));
        }
        if let Some(order) = &run.fault_schedule {
            let _ = write!(command, " --fault-schedule {order}");
        }
        if let Some(nodes) = self.other_nodes {
            let _ = write!(command, " --nodes {nodes}");
        }
        if let Some(concurrency) = run.concurrency {
            let _ = write!(command, " --concurrency {concurrency}");
        }
        if let Some(rate) = run.rate {
            let _ = write!(command, " --rate {rate}");
        }
        if let Some(model) = &run.model {
            let _ = write!(command, " --model {model}");
        }
        if run.undecided.accept_undecided {
            command.push_str(" --accept-undecided");
        }
        for (name, value) in self.options.words() {
            let _ = write!(command, " --{name} {}", value.display());
        }
        if self.other_operations {
            let _ = write!(command, " --ops {}", self.operations);
        }
        command
    }

    fn report_failure(
        &self,
        seed: u64,
        run: &Run,
        checked: &CheckedRun,
        tally: &SeedTally,
    ) -> Result<Exit> {
        let exit = verdict_exit(&checked.validity());
        let attributes = self.attributes(seed, run);
        let keep = RunFolderPlan {
            suite: self.suite.name(),
            seed,
            out: self.arguments.out.as_deref(),
        };
        let kept = keep.write(&attributes, &run.history, checked)?;
        let output = &self.arguments.output;
        if output.json {
            let mut results = kept.results.clone();
            results["seed"] = json!(format!("{seed:x}"));
            results["seeds_tried"] = json!(tally.tried);
            results["command"] = json!(self.command(seed));
            results["folder"] = json!(kept.folder.display().to_string());
            say!("{results:#}");
            return Ok(exit);
        }
        say!("{}", kept.text.trim_end());
        if !output.quiet {
            say!(" world: {}", run.world);
            say!(" history fingerprint {:016x}", run.fingerprint);
        }
        if !self.replay {
            let budget = self.bug.map_or(String::new(), |bug| {
                format!(" (may take {})", bug.seeds_max)
            });
            say!(
                " found at seed {seed:x}, the {} tried{budget}",
                ordinal(tally.tried)
            );
        }
        say!(" again: {}", self.command(seed));
        Ok(exit)
    }

    fn report_success(&self, tally: &SeedTally) -> Exit {
        let rate = tally.turns as f64 / tally.elapsed.as_secs_f64();
        if self.arguments.output.json {
            let results = json!({
                "valid": true,
                "seeds_tried": tally.tried,
                "seeds_unknown": tally.unknown,
                "first_seed": format!("{:x}", self.seeds.start),
                "turns": tally.turns,
                "seconds": tally.elapsed.as_secs_f64(),
            });
            say!("{results:#}");
            return Exit::Valid;
        }
        let seeds = if tally.tried == 1 { "seed" } else { "seeds" };
        let unknown = match tally.unknown {
            0 => String::new(),
            count => format!(" ({count} too many faults to check)"),
        };
        say!(
            " ✓ {} {seeds} valid{unknown}   {} turns of machines in {:.1} s, {:.0} turns/s with checking",
            tally.tried,
            tally.turns,
            tally.elapsed.as_secs_f64(),
            rate
        );
        if let Some(bug) = self.bug {
            say!(" ! the planted bug {} was not found", bug.name);
        }
        Exit::Valid
    }
}

fn unrecoverable(failure: &String) -> Finding {
    Finding {
        anomaly: "unrecoverable",
        summary: format!("could not start again after a crash: {failure}"),
        operations: Vec::new(),
        steps: Vec::new(),
        linearization: None,
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, …
fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (1, teen) if teen != 11 => "st",
        (2, teen) if teen != 12 => "nd",
        (3, teen) if teen != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
