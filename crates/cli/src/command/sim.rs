//! `seatrial sim`: seeds in order until one fails, or one seed again.

use crate::args::{RunArguments, SimArguments};
use crate::exit::Exit;
use crate::judge::{Judged, Keep, judge};
use crate::output::{complain, say};
use crate::plan::PlanFile;
use crate::suite::SUITES;
use crate::suite::kv::simulated::{Run, Simulation, Work};
use crate::suite::kv::{self, checkers};
use anyhow::{Result, bail};
use seatrial_checker::{AcceptUndecided, Checker, Finding, Proofs, Proven, Validity, Verdict};
use seatrial_generator::FaultOptions;
use seatrial_kv::Bug;
use seatrial_machine::FaultKind;
use seatrial_machine::unknown_name;
use seatrial_sim::explore;
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
/// What is broken, unless asked otherwise. What was synced is left whole: one unreplicated store cannot outlive it.
const FAULTS: [FaultKind; 6] = [
    FaultKind::Kill,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Packet,
    FaultKind::Clock,
    FaultKind::Disk,
];
/// Client threads, unless asked otherwise.
const CONCURRENCY: u32 = 6;

/// Carries the verb out.
pub(crate) fn run(arguments: &SimArguments) -> Result<Exit> {
    if arguments.run.suite != "kv" {
        bail!(unknown_name("suite", &arguments.run.suite, SUITES));
    }
    let plan = Plan::new(arguments)?;
    let began = Instant::now();
    let mut tally = Tally::default();
    let found = explore(plan.seeds.clone(), |seed| {
        let run = plan
            .simulation(seed)
            .run()
            .map_err(|error| Box::new(Err(error)))?;
        tally.turns += run.turns;
        let judged = plan.judge(seed, &run);
        if plan.arguments.output.verbose {
            let (count, world) = (run.history.len(), &run.world);
            complain!(
                " seed {seed:x}: {}, {count} operations: {:?}; {world}",
                plan.work(seed).label(),
                judged.valid
            );
        }
        match &judged.valid {
            Validity::Valid => Ok(()),
            // Too rough a world leaves nothing to judge; a single seed is shown as it is.
            Validity::Unknown(_) if !plan.replay && !judged.is_refuted() => {
                tally.unknown += 1;
                Ok(())
            }
            _ => Err(Box::new(Ok((run, judged)))),
        }
    });
    tally.tried = found.tried;
    tally.elapsed = began.elapsed();
    match found.failure {
        Some((seed, failure)) => {
            let (run, judged) = (*failure)?;
            plan.report_failure(seed, &run, &judged, &tally)
        }
        None => Ok(plan.report_success(&tally)),
    }
}

/// What is done, and who judges it.
type Judging = (Work, Vec<Box<dyn Checker>>);

/// What is run for every seed.
struct Plan {
    arguments: RunArguments,
    operations: u64,
    /// Did the user say how many?
    other_operations: bool,
    seeds: std::ops::Range<u64>,
    /// Is this one seed, named by the user?
    replay: bool,
    faults: FaultOptions,
    bug: Option<Bug>,
    concurrency: u32,
    /// What is done, and who judges it; from seed to seed they take turns.
    works: Vec<Judging>,
    /// What proves the verdicts of the seed that was judged last.
    proofs: Arc<Proofs>,
}

/// How much was done.
#[derive(Default)]
struct Tally {
    tried: u64,
    /// Seeds whose history says too little.
    unknown: u64,
    turns: u64,
    elapsed: Duration,
}

impl Plan {
    fn new(arguments: &SimArguments) -> Result<Plan> {
        let run = &arguments.run;
        let bug = run.bug.as_deref().map(kv::bug).transpose()?;
        let file = PlanFile::of(run, &kv::VOCABULARY)?;
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
                None => bug.map_or(SEEDS, kv::seed_budget),
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
            None => FAULTS.to_vec(),
        };
        let faults = kv::fault_options(run, usual, concurrency)?;
        let mut plan = Plan {
            arguments: run.clone(),
            operations: arguments.ops.unwrap_or(most),
            other_operations: arguments.ops.is_some(),
            seeds: first..first.saturating_add(count),
            replay: seed.is_some(),
            faults,
            bug,
            concurrency,
            works: Vec::new(),
            proofs: Arc::default(),
        };
        let planned = file
            .as_ref()
            .and_then(|file| file.plan.options().accept_undecided.as_ref());
        let accepts = run.undecided.accept_undecided || planned.is_some_and(|it| it.value);
        let works = plan.works(file)?.into_iter();
        let proven = works.map(|(work, checkers)| {
            let checkers = Proven::all(checkers, &plan.proofs);
            let checkers = if accepts {
                AcceptUndecided::all(checkers)
            } else {
                checkers
            };
            (work, checkers)
        });
        plan.works = proven.collect();
        Ok(plan)
    }

    fn works(&self, file: Option<PlanFile>) -> Result<Vec<Judging>> {
        let model = self.arguments.model.as_deref();
        if let Some(file) = file {
            let checkers = file.checkers(model)?;
            let work = Work::Planned {
                other_kinds: self.arguments.faults.is_some(),
                time: file
                    .plan
                    .options()
                    .time
                    .unwrap_or(PLANNED_TIME)
                    .min(PLANNED_TIME),
                file: Arc::new(file),
            };
            return Ok(vec![(work, checkers)]);
        }
        let names = match &self.arguments.workload {
            None => kv::USUAL.to_vec(),
            Some(name) => vec![kv::known(name)?],
        };
        let options = self.arguments.workload_options.options();
        let mut works = Vec::new();
        for name in names {
            works.push((Work::Named(name, options.clone()), checkers(name, model)?));
        }
        // By name, so that a seed means the same whatever order they are listed in.
        works.sort_by(|(one, _), (two, _)| one.label().cmp(two.label()));
        Ok(works)
    }

    fn turn(&self, seed: u64) -> &Judging {
        &self.works[(seed % self.works.len() as u64) as usize]
    }

    fn work(&self, seed: u64) -> &Work {
        &self.turn(seed).0
    }

    fn simulation(&self, seed: u64) -> Simulation {
        Simulation {
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
            operation_interval: self
                .rate(seed)
                .map(|rate| Duration::from_secs_f64(1.0 / rate)),
            bug: self.bug,
        }
    }

    fn rate(&self, seed: u64) -> Option<f64> {
        let planned = match self.work(seed) {
            Work::Named(..) => None,
            Work::Planned { file, .. } => file.plan.options().rate,
        };
        self.arguments.rate.or(planned)
    }

    fn judge(&self, seed: u64, run: &Run) -> Judged {
        // Those of the seed before.
        self.proofs.take();
        let mut judged = judge(&self.turn(seed).1, &run.history);
        // Without rot in the plan, a store that cannot read its own log has broken its first promise.
        if !run.boot_failures.is_empty() && !self.faults.kinds.contains(&FaultKind::Corruption) {
            let mut verdict = Verdict::valid("recovery");
            verdict.valid = Validity::Invalid;
            verdict
                .anomalies
                .insert("unrecoverable", run.boot_failures.len() as u64);
            verdict.findings = run.boot_failures.iter().map(unrecoverable).collect();
            judged.add(verdict);
        }
        judged
    }

    fn attributes(&self, seed: u64, run: &Run) -> Json {
        let work = self.work(seed);
        let (workload, file) = match work {
            Work::Named(name, _) => (Some(*name), None),
            Work::Planned { file, .. } => (file.workload(), Some(file)),
        };
        json!({
            "name": format!("kv {} simulated", work.label()),
            "suite": "kv",
            "simulated": true,
            "workload": workload,
            "plan": file.map(|file| file.text()),
            "checkers": file.and_then(|file| file.checker_names()),
            "seed": format!("{seed:x}"),
            "nodes": ["n1"],
            "faults": self.faults.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "bug": self.bug.map(Bug::name),
            "world": run.world,
            "command": self.command(seed),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// How to see this seed again.
    fn command(&self, seed: u64) -> String {
        let mut command = format!("seatrial sim kv --seed {seed:x}");
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
        if self.other_operations {
            let _ = write!(command, " --ops {}", self.operations);
        }
        command
    }

    fn report_failure(&self, seed: u64, run: &Run, judged: &Judged, tally: &Tally) -> Result<Exit> {
        let exit = Exit::from(&judged.valid);
        let attributes = self.attributes(seed, run);
        let keep = Keep {
            proofs: &self.proofs.take(),
            suite: "kv",
            seed,
            out: self.arguments.out.as_deref(),
        };
        let kept = keep.write(&attributes, &run.history, judged)?;
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
                format!(" (may take {})", kv::seed_budget(bug))
            });
            say!(
                " found at seed {seed:x}, the {} tried{budget}",
                ordinal(tally.tried)
            );
        }
        say!(" again: {}", self.command(seed));
        Ok(exit)
    }

    fn report_success(&self, tally: &Tally) -> Exit {
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
            count => format!(" ({count} too rough to judge)"),
        };
        say!(
            " ✓ {} {seeds} valid{unknown}   {} turns of machines in {:.1} s, {:.0} turns/s with checking",
            tally.tried,
            tally.turns,
            tally.elapsed.as_secs_f64(),
            rate
        );
        if let Some(bug) = self.bug {
            say!(" ! the planted bug {bug} was not found");
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
