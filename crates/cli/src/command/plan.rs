//! `seatrial plan`: plans without a system.

use crate::args::{PlanArguments, PlanCheckArguments, PlanShowArguments, PlanVerb};
use crate::plan_file::{ANYTHING, PlanFile, any_workload};
use crate::suites::{Suites, failure};
use anyhow::{Context as _, Result, bail, ensure};
use seatrial_check::by_name;
use seatrial_generator::{
    Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation, THREADS_MAX,
};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{NodeId, Rng, counted, unknown_name};
use seatrial_plan::{PlanEnvironment, PlanLimits, PlanOptions};
use seatrial_suite::{Suite, vocabulary};
use seatrial_system::DataSuite;
use seatrial_terminal::{Exit, say};
use std::fmt::Write as _;
use std::time::Duration;

/// Plans to begin with: name and text.
const EXAMPLES: [(&str, &str); 5] = [
    ("phases", include_str!("../../plans/phases.toml")),
    (
        "transactions",
        include_str!("../../plans/transactions.toml"),
    ),
    ("registers", include_str!("../../plans/registers.toml")),
    ("script", include_str!("../../plans/script.toml")),
    ("queue", include_str!("../../plans/queue.toml")),
];

/// Client threads of an imagined test.
const THREADS: u32 = 5;
/// Nodes of an imagined system.
const NODES: u32 = 3;
/// The test is imagined for so long at most: a plan may wait for ever.
const TIME_MAX: Duration = Duration::from_hours(24);

/// Carries the verb out.
pub(crate) fn run(arguments: &PlanArguments, suites: &Suites) -> Result<Exit> {
    match &arguments.verb {
        PlanVerb::Check(arguments) => check(arguments, suites),
        PlanVerb::Show(arguments) => show(arguments),
        PlanVerb::Example(arguments) => example(arguments.name.as_deref()),
    }
}

fn check(arguments: &PlanCheckArguments, suites: &Suites) -> Result<Exit> {
    let path = &arguments.file;
    let suite = arguments.suite.as_deref();
    let suite = suite.map(|name| suites.named(name)).transpose()?;
    if let Some(system) = suites.described_by(path)? {
        ensure!(
            suite.is_none(),
            "{} describes a system of its own: --suite has no place beside it",
            path.display()
        );
        return check_system(system);
    }
    let vocabulary = suite.map_or(ANYTHING, vocabulary);
    let file = PlanFile::open(path, &vocabulary)?;
    check_plan(&file, suite)?;
    Ok(Exit::Valid)
}

/// Checks a file that describes a system, and its plan if there is one.
fn check_system(system: &'static DataSuite) -> Result<Exit> {
    let file = system.file();
    let plan = file.has_plan().then(|| {
        let (name, text) = (file.name().to_owned(), file.text().to_owned());
        PlanFile::from_text(name, text, &vocabulary(system))
    });
    let plan = plan.transpose()?;
    say!(" {}: {}", system.name(), system.about());
    let nodes = counted(system.node_count(None).map_err(failure)?.into(), "node");
    say!(
        " system: {nodes}; workloads: {}",
        system.workloads().join(", ")
    );
    say!("");
    if let Some(plan) = plan {
        check_plan(&plan, Some(system))?;
        return Ok(Exit::Valid);
    }
    let options = words(file.options());
    if !options.is_empty() {
        say!(" test: {}", options.join(", "));
    }
    let model = file
        .options()
        .model
        .as_ref()
        .map(|model| model.value.as_str());
    let checkers = if let Some(names) = &file.options().checkers {
        let names = names.iter().map(|name| name.value.as_str());
        names
            .map(|name| Ok(by_name(name, model)?.name()))
            .collect::<Result<Vec<_>>>()?
    } else {
        let checkers = system.checkers(system.default_workload(), model)?;
        checkers.iter().map(|checker| checker.name()).collect()
    };
    say!(" checkers: {}", checkers.join(", "));
    Ok(Exit::Valid)
}

/// Shows what a plan does.
fn check_plan(file: &PlanFile, suite: Option<&'static dyn Suite>) -> Result<()> {
    let plan = &file.plan;
    let checkers = match (file.checker_names(), file.workload()) {
        (None, None) => "none: test.checkers is missing".to_owned(),
        (names, workload) => {
            file.checkers(suite, None)?;
            let names = names.unwrap_or_else(|| workload.into_iter().collect());
            names.join(", ")
        }
    };
    say!(" {}", file.label());
    if let Some(description) = plan.description() {
        say!(" {description}");
    }
    say!("");
    for line in plan.outline().to_string().lines() {
        say!("   {line}");
    }
    say!("");
    let options = words(plan.options());
    if !options.is_empty() {
        say!(" test: {}", options.join(", "));
    }
    say!(" checkers: {checkers}");
    for advice in file.advice() {
        say!(" note: {advice}");
    }
    Ok(())
}

/// What the plan says about the test, in words.
fn words(options: &PlanOptions) -> Vec<String> {
    let words = [
        options.seed.map(|seed| format!("seed {seed:x}")),
        options
            .concurrency
            .map(|count| counted(count.into(), "client")),
        options
            .nodes
            .as_ref()
            .map(|nodes| counted(nodes.value.into(), "node")),
        options.time.map(|time| format!("at most {time:?}")),
        options
            .ops
            .map(|ops| format!("at most {}", counted(ops, "operation"))),
        options
            .rate
            .map(|rate| format!("{rate} operations per second")),
        options
            .timeout
            .map(|timeout| format!("clients give up after {timeout:?}")),
        options.model.as_ref().map(|model| model.value.clone()),
    ];
    words.into_iter().flatten().collect()
}

fn show(arguments: &PlanShowArguments) -> Result<Exit> {
    let file = PlanFile::open(&arguments.file, &ANYTHING)?;
    let options = file.plan.options();
    let threads = arguments.threads.or(options.concurrency).unwrap_or(THREADS);
    ensure!(
        (1..=THREADS_MAX).contains(&threads),
        "--threads goes from 1 to {THREADS_MAX}"
    );
    let nodes = arguments
        .nodes
        .or_else(|| options.nodes.as_ref().map(|nodes| nodes.value));
    let nodes = nodes.unwrap_or(NODES);
    ensure!((1..=1_000).contains(&nodes), "--nodes goes from 1 to 1000");
    let latency = Duration::try_from_secs_f64(arguments.latency / 1e3)
        .ok()
        .filter(|latency| *latency < TIME_MAX)
        .with_context(|| format!("--latency takes milliseconds, not {}", arguments.latency))?;
    let rng = Rng::from_seed(arguments.seed.or(options.seed).unwrap_or(1));
    let generator = file.plan.generator(PlanEnvironment {
        rng: rng.fork("test"),
        servers: (1..=nodes).map(NodeId::server).collect(),
        clients: (0..threads).map(NodeId::client).collect(),
        workloads: any_workload(),
        kinds: None,
        interval: None,
        order: None,
        limits: PlanLimits {
            time: Some(options.time.map_or(TIME_MAX, |time| time.min(TIME_MAX))),
            ops: options.ops,
            interval: options.rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
        },
    });
    let options = InterpreterOptions::new(threads, rng.fork("interpreter"));
    let interpreter = Interpreter::new(generator.limit(arguments.ops), &options);
    let client = move |op: &Op| {
        let kind = if op.process.is_client() {
            OpType::Ok
        } else {
            OpType::Info
        };
        SimulatedReply::After(latency, kind, op.value.clone())
    };
    imagine(Simulation::new(interpreter, client), arguments.ops)
}

/// Carries a test out that has no system, and shows what begins.
fn imagine<G: Generator>(mut simulation: Simulation<G>, most: u64) -> Result<Exit> {
    let mut lines: Vec<(i64, String)> = Vec::new();
    // A fault's completion looks like its beginning: every second one of the nemesis is one.
    let mut is_broken = false;
    simulation.run_with(|op| {
        let begins = if op.process.is_client() {
            op.is_invoke()
        } else {
            is_broken = !is_broken;
            is_broken
        };
        if begins {
            lines.push((op.time, line(&op)));
        }
    });
    if let Some(failure) = simulation.failure() {
        bail!("{failure}");
    }
    let shown = lines.len() as u64;
    for (time, message) in simulation.log() {
        let text = match message {
            Value::Text(text) => format!("  log      {text}"),
            other => format!("  log      {other}"),
        };
        lines.push((time.nanoseconds().cast_signed(), text));
    }
    lines.sort_by_key(|(time, _)| *time);
    for (time, text) in lines {
        say!(" {:>12.6} s {text}", time as f64 / 1e9);
    }
    if shown >= most {
        say!(" … the first {most} operations; --ops shows more");
    } else {
        say!(" the plan ends after {}", counted(shown, "operation"));
    }
    Ok(Exit::Valid)
}

fn line(op: &Op) -> String {
    let thread = op.process.to_string();
    let thread = thread.trim_start_matches(':');
    let mut line = format!("  {thread:<8} {} {}", op.f, op.value);
    for (name, value) in op.extra.iter() {
        // Writing to a string cannot fail.
        let _ = write!(line, " {name}={value}");
    }
    line
}

fn example(name: Option<&str>) -> Result<Exit> {
    let Some(name) = name else {
        for (name, text) in EXAMPLES {
            say!(" {name:<14} {}", described(name, text)?);
        }
        return Ok(Exit::Valid);
    };
    let known = EXAMPLES.iter().find(|(known, _)| *known == name);
    let (_, text) =
        known.with_context(|| unknown_name("example", name, EXAMPLES.map(|(name, _)| name)))?;
    say!("{}", text.trim_end());
    Ok(Exit::Valid)
}

/// What an example says of itself.
fn described(name: &str, text: &str) -> Result<String> {
    let file = PlanFile::from_text(name.to_owned(), text.to_owned(), &ANYTHING)?;
    Ok(file.plan.description().unwrap_or_default().to_owned())
}
