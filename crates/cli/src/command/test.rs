//! `seatrial test`: a real system, real faults, a verdict.

use crate::args::{Rate, TestArguments};
use crate::checked_run::{color, save_proofs, write, write_findings, write_picture};
use crate::node_logs::{self, compiled};
use crate::opened::of_source;
use crate::plan_file::PlanFile;
use crate::suites::{Suites, failure, fault_options, node_count};
use crate::test_screen::Screen;
use crate::verdict_exit::verdict_exit;
use anyhow::{Context as _, Result, ensure};
use seatrial_check::{MinimumLoad, by_name};
use seatrial_checker::Checker;
use seatrial_generator::{
    FaultOptions, FaultPackage, Generator, TestPhasesOptions, fault_package, test_phases,
};
use seatrial_machine::{FaultKind, NodeId, Rng};
use seatrial_plan::{PlanEnvironment, PlanLimits, PlanOptions};
use seatrial_report::{
    Causes, Drawing, Failovers, OP_COLOR_FILE, Report, html, junit_xml, results_json, text,
};
use seatrial_runner::{
    self as runner, Ended, FolderCheck, Leaders, LiveChecks, Observer, Phase, RunFolder, Stop,
    Test, TestEvidence, TestNetwork, TestOutcome, TestProgress, Urgency,
};
use seatrial_suite::{
    OptionValues, PlantedBug, Setup, Suite, known_bug, known_workload, planned_workloads,
    vocabulary,
};
use seatrial_system::{DataSuite, SystemFile};
use seatrial_terminal::{Exit, Signals, complain, complaint, say, signal_runtime};
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Seconds of load, unless asked otherwise.
const TIME: Duration = Duration::from_secs(20);
/// Mean time between two faults, unless asked otherwise.
const INTERVAL: Duration = Duration::from_secs(1);
/// When clients give up, unless asked otherwise.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long the last operations may take: drains, and reads of all there is.
const LAST_LIMIT: Duration = Duration::from_secs(30);

/// Carries the verb out.
pub(crate) fn run(arguments: &TestArguments, suites: &Suites) -> Result<Exit> {
    let name = &arguments.run.suite;
    let described = suites.described(name)?;
    let suite: &'static dyn Suite = match described {
        Some(suite) => suite,
        None => suites.named(name)?,
    };
    let file = match described {
        Some(suite) if has_own_plan(arguments, suite.file()) => Some(described_plan(suite)?),
        _ => plan_file(arguments, suite)?,
    };
    let planned = match (&file, described) {
        (Some(file), _) => file.plan.options().clone(),
        (None, Some(suite)) => suite.file().options().clone(),
        (None, None) => PlanOptions::default(),
    };
    let own = suites.options_of(suite)?;
    let mut plan = PlannedTest::new(arguments, suite, own, file, planned)?;
    plan.network = arguments
        .network
        .enter(suite, plan.breaks_network(), arguments.capture)
        .map_err(failure)?;
    plan.faults.has_packets = plan.network.kind.has_whole_addresses();
    let test = plan.test()?;
    let stop = test.stop.clone();
    let quiet = arguments.run.output.quiet || arguments.run.output.json;
    let observer: Arc<dyn Observer> = if quiet {
        Arc::new(|_: &TestProgress| {})
    } else {
        Arc::new(Screen::new(plan.length))
    };
    let history = test.folder.history();
    let checking = Arc::new(AtomicBool::new(false));
    listen_for_interrupts(stop, Arc::clone(&checking), history)?;
    let outcome = runner::run(test, Arc::new(Listening { observer, checking }))?;
    plan.conclude(&outcome)
}

/// One test as it was asked for.
struct PlannedTest {
    suite: &'static dyn Suite,
    /// The suite's own options.
    options: OptionValues,
    arguments: TestArguments,
    seed: u64,
    faults: FaultOptions,
    bug: Option<&'static PlantedBug>,
    /// `None`: until the plan ends.
    length: Option<Duration>,
    interval: Option<Duration>,
    timeout: Duration,
    nodes: u32,
    network: TestNetwork,
    concurrency: u32,
    /// What the clients do, unless a plan says so.
    workload: Option<&'static str>,
    /// The model that the suite expects of it.
    expected_model: Option<&'static str>,
    /// The plan.
    file: Option<PlanFile>,
    /// Options of the plan, or of the file that describes the system.
    planned: PlanOptions,
    /// The causes of the findings, once the results were made from them.
    causes: Arc<FoundCauses>,
}

/// The causes of a test's findings, or why they are not known: searched once, for results, page and last screen.
type FoundCauses = OnceLock<Result<Causes, String>>;

impl PlannedTest {
    fn new(
        arguments: &TestArguments,
        suite: &'static dyn Suite,
        own: OptionValues,
        file: Option<PlanFile>,
        planned: PlanOptions,
    ) -> Result<PlannedTest> {
        let run = &arguments.run;
        let options = &planned;
        let stated = options.nodes.as_ref().filter(|_| file.is_none());
        let asked = arguments.nodes.or(stated.map(|nodes| nodes.value));
        let nodes = node_count(suite, asked, file.as_ref())?;
        let concurrency = run
            .concurrency
            .or(options.concurrency)
            .unwrap_or(suite.load().concurrency);
        ensure!(
            (1..=10_000).contains(&concurrency),
            "--concurrency goes from 1 to 10000"
        );
        let interval = seconds("interval", arguments.interval)?;
        let usual = match &file {
            Some(file) => file.kinds(None),
            None => suite.faults().to_vec(),
        };
        let mut faults = fault_options(run, usual, nodes, concurrency)?;
        faults.interval = interval.unwrap_or(INTERVAL);
        faults.omitted.extend(suite.omitted_faults_with(&own));
        let bug = run.bug.as_deref().map(|name| known_bug(suite, name));
        let workload = run.workload.as_deref();
        let workload = workload.unwrap_or_else(|| suite.default_workload());
        let workload = match &file {
            Some(_) => None,
            None => Some(known_workload(suite, workload).map_err(failure)?),
        };
        let expected_model = match workload {
            Some(workload) => suite.expected_model(workload, &own).map_err(failure)?,
            None => None,
        };
        Ok(PlannedTest {
            seed: arguments.seed.or(options.seed).unwrap_or_else(draw_seed),
            faults,
            bug: bug.transpose().map_err(failure)?,
            length: match seconds("time", arguments.time)?.or(options.time) {
                None if file.is_none() => Some(TIME),
                length => length,
            },
            interval,
            timeout: seconds("timeout", arguments.timeout)?
                .or(options.timeout)
                .unwrap_or(TIMEOUT),
            nodes,
            network: TestNetwork::default(),
            concurrency,
            workload,
            expected_model,
            arguments: arguments.clone(),
            file,
            suite,
            options: own,
            planned,
            causes: Arc::default(),
        })
    }

    /// What people call what is done.
    fn label(&self) -> &str {
        let planned = self.file.as_ref().map(PlanFile::label);
        self.workload.or(planned).unwrap_or_default()
    }

    /// Operations per second; `None`: as fast as the plan says, or as possible.
    fn rate(&self) -> Option<f64> {
        if let Some(asked) = self.arguments.run.rate {
            return asked.per_second();
        }
        let usual = self.file.is_none().then_some(self.suite.load().rate);
        self.planned.rate.or(usual)
    }

    fn ops(&self) -> Option<u64> {
        self.arguments.ops.or(self.planned.ops)
    }

    /// The recovery at the end, part of the whole time: clients go on after everything was mended.
    fn recovery(length: Duration) -> Duration {
        (length / 4).min(Duration::from_secs(5))
    }

    /// What the plan in the file says.
    fn planned(&self, file: &PlanFile, rng: &Rng) -> Box<dyn Generator> {
        file.plan.generator(PlanEnvironment {
            rng: rng.clone(),
            servers: (1..=self.nodes).map(NodeId::server).collect(),
            clients: (0..self.concurrency).map(NodeId::client).collect(),
            workloads: planned_workloads(self.suite),
            kinds: self
                .arguments
                .run
                .faults
                .is_some()
                .then(|| self.faults.kinds.clone()),
            interval: self.interval,
            order: self
                .arguments
                .run
                .fault_schedule
                .is_some()
                .then_some(self.faults.order),
            limits: PlanLimits {
                time: self.length,
                ops: self.ops(),
                interval: self.rate().map(|rate| Duration::from_secs_f64(1.0 / rate)),
            },
        })
    }

    fn generator(&self, rng: &Rng) -> Result<Box<dyn Generator>> {
        if let Some(file) = &self.file {
            return Ok(self.planned(file, rng));
        }
        let options = self.arguments.run.workload_options.options();
        let name = self.workload.unwrap_or_default();
        let workload = self.suite.workload(name, &rng.fork("workload"), &options);
        let workload = workload.map_err(failure)?;
        let interval = self.rate().map(|rate| Duration::from_secs_f64(1.0 / rate));
        let length = self.length.unwrap_or(TIME);
        let recovery = PlannedTest::recovery(length);
        let staggered = match interval {
            Some(mean) => workload
                .generator
                .stagger(rng.fork("stagger"), mean)
                .boxed(),
            None => workload.generator,
        };
        let clients = staggered.limit(self.ops().unwrap_or(u64::MAX));
        let phase_options = TestPhasesOptions {
            duration: length.saturating_sub(recovery),
            recovery,
        };
        let phases = test_phases(clients, self.faults(rng), phase_options);
        Ok(phases.with_final(workload.last, LAST_LIMIT).boxed())
    }

    fn faults(&self, rng: &Rng) -> Option<FaultPackage> {
        let options = self.faults.clone();
        (!options.kinds.is_empty()).then(|| fault_package(options, rng.fork("faults")))
    }

    fn test(&self) -> Result<Test> {
        let rng = Rng::from_seed(self.seed);
        let generator = self.generator(&rng)?;
        let mut checkers = self.checkers()?;
        let watch = self.watch()?;
        let deployment = self.suite.deploy(&Setup {
            workload: self.workload,
            nodes: self.nodes,
            concurrency: self.concurrency,
            timeout: self.timeout,
            bug: self.bug,
            port: self.arguments.port,
            breaks_network: self.breaks_network(),
            network: self.network.kind,
            options: &self.options,
            seed: self.seed,
            rng: rng.fork("deployment").fork(&clock_word()),
            report: complaint,
        });
        let deployment = deployment.map_err(failure)?;
        checkers.extend(self.suite.evidence_checkers());
        let minimum = self.minimum()?;
        let folder_checks = self.folder_checks()?;
        // Last, so that a refused command leaves no folder.
        let folder = match &self.arguments.run.out {
            Some(path) => RunFolder::open(path)?,
            None => RunFolder::fresh(Path::new("runs"), self.suite.name(), self.seed)?,
        };
        Ok(Test {
            attributes: self.attributes(),
            folder,
            nodes: deployment.nodes,
            clients: deployment.clients,
            concurrency: self.concurrency,
            // An operation may ask for something for so long, and then wait as long for the answer.
            timeout: self.timeout * 3,
            generator,
            breaks_network: self.breaks_network(),
            network: self.network.clone(),
            rate: self.arguments.run.rate.and_then(Rate::per_second),
            limiting_rate: self.rate(),
            checkers,
            watch,
            accept_undecided: self.accepts_undecided(),
            minimum,
            folder_checks,
            certify: true,
            seed: self.seed,
            stop: Stop::new(),
            results: {
                let causes = Arc::clone(&self.causes);
                Box::new(move |evidence| test_results(evidence, &causes))
            },
        })
    }

    /// Can faults of the network happen?
    fn breaks_network(&self) -> bool {
        let is_of_network =
            |kind: &FaultKind| matches!(kind, FaultKind::Partition | FaultKind::Packet);
        let planned = self.file.as_ref().map(|file| file.kinds(None));
        let mut kinds = self.faults.kinds.iter().chain(planned.iter().flatten());
        kinds.any(is_of_network)
    }

    /// The consistency model of the command line, or that of the plan.
    fn model(&self) -> Option<&str> {
        let planned = self.planned.model.as_ref();
        let asked = self.arguments.run.model.as_deref();
        let asked = asked.or(planned.map(|model| model.value.as_str()));
        match &self.file {
            Some(_) => asked,
            None => asked.or(self.expected_model),
        }
    }

    /// Is a history without anomalies accepted although questions stayed open?
    fn accepts_undecided(&self) -> bool {
        let planned = self.planned.accept_undecided.as_ref();
        self.arguments.run.undecided.accept_undecided || planned.is_some_and(|it| it.value)
    }

    /// The operations that must complete `ok`: of the command line, else of the plan.
    fn minimum(&self) -> Result<MinimumLoad> {
        let planned = self.file.as_ref().map(PlanFile::minimum).transpose()?;
        let asked = self.arguments.minimum.minimum()?;
        Ok(asked.or(planned.unwrap_or_default()))
    }

    /// The patterns of log lines that are failures: of the suite, the plan and the command line.
    fn log_patterns(&self) -> Result<Vec<String>> {
        let own = self.suite.log_patterns().iter();
        let mut patterns: Vec<String> = own.map(|pattern| (*pattern).to_owned()).collect();
        let planned = self.file.as_ref().map(PlanFile::log_patterns);
        patterns.extend(planned.transpose()?.into_iter().flatten());
        patterns.extend(self.arguments.log_pattern.iter().cloned());
        compiled(&patterns)?;
        Ok(patterns)
    }

    /// The search of the nodes' logs for these patterns, if there are any.
    fn folder_checks(&self) -> Result<Vec<Box<FolderCheck>>> {
        let patterns = self.log_patterns()?;
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let nodes = (1..=self.nodes).map(|number| NodeId::server(number).to_string());
        let nodes: Vec<String> = nodes.collect();
        Ok(vec![Box::new(move |history: &Path| {
            let found = node_logs::search(history, &patterns, &nodes);
            found.unwrap_or_else(|error| node_logs::unsearched(&error))
        })])
    }

    /// The checkers of the plan or the workload.
    fn checkers(&self) -> Result<Vec<Box<dyn Checker>>> {
        let model = self.arguments.run.model.as_deref();
        if let Some(file) = &self.file {
            return file.checkers(Some(self.suite), model);
        }
        if let Some(names) = self.checker_names() {
            let stated = |name: &&str| Ok(by_name(name, self.model())?);
            let stats = std::iter::once(&"stats");
            return stats.chain(&names).map(stated).collect();
        }
        let workload = self.workload.unwrap_or_default();
        Ok(self.suite.checkers(workload, self.model())?)
    }

    /// The names of the checkers, if the plan or the file that describes the system has them.
    fn checker_names(&self) -> Option<Vec<&str>> {
        let names = self.planned.checkers.as_ref()?.iter();
        let names = names.map(|name| name.value.as_str());
        Some(names.filter(|name| *name != "stats").collect())
    }

    /// The same checkers once more, which run during the test, if a violation is to end it.
    fn watch(&self) -> Result<LiveChecks> {
        let planned = self.planned.stop_on_violation.as_ref();
        let stops = self.arguments.stop_on_violation || planned.is_some_and(|it| it.value);
        if !stops {
            return Ok(LiveChecks::default());
        }
        Ok(LiveChecks {
            checkers: self.checkers()?,
            stops,
        })
    }

    fn attributes(&self) -> Map<String, Json> {
        let arguments = &self.arguments;
        let attributes = json!({
            "name": format!("{} {}", self.suite.name(), self.label()),
            "suite": self.suite.name(),
            "workload": match &self.file {
                None => self.workload,
                Some(file) => file.workload(),
            },
            "plan": self.file.as_ref().map(PlanFile::text),
            "checkers": self.checker_names(),
            "seed": format!("{:x}", self.seed),
            "faults": self.faults.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "bug": self.bug.map(|bug| bug.name),
            "seconds": self.length.map(|length| length.as_secs_f64()),
            "command": self.command(),
            "options": {
                "interval": self.faults.interval.as_secs_f64(),
                "fault_schedule": self.faults.order.name(),
                "rate": self.rate(),
                "concurrency": self.concurrency,
                "timeout": self.timeout.as_secs_f64(),
                "ops": self.ops(),
                "model": self.model(),
                "workload": arguments.run.workload_options.json(),
            },
            "version": env!("CARGO_PKG_VERSION"),
        });
        let mut attributes = match attributes {
            Json::Object(attributes) => attributes,
            _ => Map::new(),
        };
        for (name, value) in self.suite.attributes() {
            attributes.entry(name).or_insert(value);
        }
        // Both were checked when the test was made.
        let minimum = self.minimum().unwrap_or_default();
        minimum.add_to(&mut attributes);
        let patterns = self.log_patterns().unwrap_or_default();
        if !patterns.is_empty() {
            attributes.insert("log_patterns".to_owned(), json!(patterns));
        }
        attributes
    }

    /// How to run the same schedule again; what the processes make of it may differ.
    fn command(&self) -> String {
        let words = std::env::args().skip(1);
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        let command = format!("seatrial {}", words.join(" "));
        match self.arguments.seed {
            Some(_) => command,
            None => format!("{command} --seed {:x}", self.seed),
        }
    }

    /// Writes the page and shows the last screen.
    fn conclude(&self, outcome: &TestOutcome) -> Result<Exit> {
        let output = &self.arguments.run.output;
        if outcome.ended == Ended::Aborted {
            complain!(
                "seatrial: stopped at once; the history so far is {}",
                outcome.history_path.display()
            );
            return Ok(Exit::Unknown);
        }
        if output.verbose {
            for fault in &outcome.faults {
                complain!(" {} {:?}: {:?}", fault.begin, fault.fault, fault.effect);
            }
        }
        let history = outcome.source()?;
        let report = Report::new(&outcome.attributes, &outcome.overview, &outcome.verdicts);
        let report = match self.causes.get() {
            Some(Ok(causes)) => report.with_causes(causes.clone()),
            Some(Err(reason)) => report.warn(reason.clone()),
            None => report,
        };
        let drawing = Drawing::read(&report, &*history).map_err(of_source)?;
        let findings = outcome.folder.join("findings");
        let found = write_findings(&findings, &report, drawing.excerpt())?;
        let picture = write_picture(&outcome.folder.join(OP_COLOR_FILE), &report)?;
        let files = ["report.html", "history.sea", "results.json"];
        let logs = (1..=self.nodes).map(|node| format!("n{node}.log"));
        let logs = logs.chain(["client.log".to_owned()]);
        let logs: Vec<String> = logs
            .filter(|log| outcome.folder.join(log).exists())
            .collect();
        save_proofs(&outcome.proofs, &outcome.folder, &outcome.verdicts)?;
        let proofs = outcome.proofs.iter().map(|proof| proof.0.as_str());
        let capture = "network.pcap";
        let capture = outcome.folder.join(capture).exists().then_some(capture);
        let files = files.into_iter().chain(capture);
        let files = files.chain(logs.iter().map(String::as_str));
        let files = files.chain(found.then_some("findings")).chain(proofs);
        let files = files.chain(picture.then_some(OP_COLOR_FILE));
        let mut report = report
            .in_folder(outcome.folder.display().to_string(), files)
            .checked_in(outcome.checked_in)
            .limited(outcome.limit.to_string())
            .with_failovers(outcome.leaders.as_ref().map(failovers));
        for warning in &outcome.warnings {
            report = report.warn(warning.clone());
        }
        write(
            &outcome.folder.join("report.html"),
            &html(&report, &drawing),
        )?;
        if let Some(junit) = &self.arguments.junit {
            write(junit, &junit_xml(&report))?;
        }
        if output.json {
            let mut results = outcome.results.clone();
            results["folder"] = json!(outcome.folder.display().to_string());
            results["seed"] = json!(format!("{:x}", self.seed));
            say!("{results:#}");
        } else {
            say!("{}", text(&report, color()).trim_end());
        }
        Ok(verdict_exit(&outcome.validity()))
    }
}

/// Is the plan of a file that describes a system the one to carry out? A plan or workload on the command line overrides it.
fn has_own_plan(arguments: &TestArguments, file: &SystemFile) -> bool {
    file.has_plan() && arguments.run.plan.is_none() && arguments.run.workload.is_none()
}

/// The plan of a file that describes a system.
fn described_plan(suite: &'static DataSuite) -> Result<PlanFile> {
    let file = suite.file();
    PlanFile::from_text(
        file.name().to_owned(),
        file.text().to_owned(),
        &vocabulary(suite),
    )
}

/// The primaries of a test for its report.
fn failovers(leaders: &Leaders) -> Failovers {
    let changes = leaders.changes.iter().map(|change| {
        let seconds = change.at.nanoseconds() as f64 / 1e9;
        (
            seconds,
            change.primaries.iter().map(NodeId::to_string).collect(),
        )
    });
    Failovers {
        count: leaders.failovers,
        affected: leaders.affected,
        changes: changes.collect(),
    }
}

/// A warning that the surroundings of findings are not known.
fn unread(error: &anyhow::Error) -> String {
    format!("what happened around the findings is not shown: {error:#}")
}

/// The plan that the options name, if they do.
fn plan_file(arguments: &TestArguments, suite: &dyn Suite) -> Result<Option<PlanFile>> {
    let run = &arguments.run;
    let file = PlanFile::of(run, &vocabulary(suite))?;
    if let Some((file, path)) = file.as_ref().zip(run.plan.as_ref()) {
        let path = path.display();
        ensure!(
            !file.plan.has_system(),
            "{path} describes a system of its own: run `seatrial test {path}`"
        );
    }
    if !run.output.quiet {
        for advice in file.iter().flat_map(PlanFile::advice) {
            complain!(" note: {advice}");
        }
    }
    Ok(file)
}

/// The time that an option says, if it is given.
fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let duration = Duration::try_from_secs_f64(value).ok();
    let duration = duration.filter(|duration| !duration.is_zero());
    duration
        .map(Some)
        .with_context(|| format!("--{name} takes a number of seconds above 0, not {value}"))
}

/// A short random seed.
fn draw_seed() -> u64 {
    clock_seed() & 0xffff_ffff
}

fn clock_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rng::from_seed(now.as_nanos() as u64 ^ u64::from(std::process::id())).word()
}

/// Something that no other run has: sessions of two runs must not be taken for each other.
fn clock_word() -> String {
    clock_seed().to_string()
}

/// Notes when the history is complete and is being checked.
struct Listening {
    observer: Arc<dyn Observer>,
    checking: Arc<AtomicBool>,
}

impl Observer for Listening {
    fn progress(&self, progress: &TestProgress) {
        let checking = progress.phase == Phase::Checking;
        self.checking.store(checking, Ordering::Relaxed);
        self.observer.progress(progress);
    }

    fn message(&self, text: &str) {
        self.observer.message(text);
    }
}

/// Ctrl-C, SIGTERM, SIGHUP and SIGQUIT end the test; once more ends it at once, and a third time, or while the history is
/// checked, this program: its nodes die with it, and what was recorded is in the file.
fn listen_for_interrupts(stop: Stop, checking: Arc<AtomicBool>, history: PathBuf) -> Result<()> {
    let runtime = signal_runtime()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen().context("signals cannot be listened to")?
    };
    let listen = async move {
        loop {
            signals.next().await;
            if checking.load(Ordering::Relaxed) || stop.urgency() == Urgency::Abort {
                let history = history.display();
                complain!("seatrial: not checked; the history is {history}");
                std::process::exit(2);
            }
            stop.request();
            complain!("seatrial: ending the test; once more to end it at once");
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread
        .spawn(move || runtime.block_on(listen))
        .context("no thread for signals")?;
    Ok(())
}

/// The document of results.
fn test_results(evidence: &TestEvidence<'_>, causes: &FoundCauses) -> Json {
    let TestEvidence {
        attributes,
        overview,
        verdicts,
        ..
    } = evidence;
    let report = Report::new(attributes, overview, verdicts);
    let mut report = report
        .checked_in(evidence.checked_in)
        .limited(evidence.limit.to_string())
        .with_failovers(evidence.leaders.map(failovers));
    let found = causes.get_or_init(|| {
        let path = Some(evidence.history_path);
        let found = node_logs::causes(&report, &**evidence.source, path);
        found.map_err(|error| unread(&error))
    });
    report = match found {
        Ok(causes) => report.with_causes(causes.clone()),
        Err(reason) => report.warn(reason.clone()),
    };
    for warning in evidence.warnings {
        report = report.warn(warning.clone());
    }
    let mut results = results_json(&report);
    if let Some(sighting) = evidence.sighting {
        results["seen_early"] = sighting.json();
    }
    results
}
