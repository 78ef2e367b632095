//! Whole tests of node programs in Python, JavaScript and Go (`examples/maelstrom`): right ones are valid, wrong ones are found.

use crate::has;
use seatrial_check::MinimumLoad;
use seatrial_checker::Validity;
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{
    FaultOptions, FaultPackage, Generator, TestPhasesOptions, fault_package, test_phases,
};
use seatrial_machine::{FaultKind, NodeId, Rng};
use seatrial_maelstrom::SUITE;
use seatrial_runner::{
    LiveChecks, NetworkKind, RunFolder, Stop, Test, TestNetwork, TestOutcome, TestProgress,
    plain_results,
};
use seatrial_suite::{OptionValues, Setup, Suite, known_workload};
use serde_json::Map;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of nodes and of clients.
const NODES: u32 = 3;

/// One test to run.
#[derive(Clone, Default)]
struct Trial {
    workload: &'static str,
    program: PathBuf,
    argument: &'static str,
    /// Options of the suite.
    options: Vec<(&'static str, &'static str)>,
    faults: Vec<FaultKind>,
    seconds: u64,
}

/// Python's node with this behaviour; `None`, with a reason on standard error, if Python is missing. In CI that is a failure.
fn python(workload: &'static str, behaviour: &'static str) -> Option<Trial> {
    has(&["python3"]).then(|| Trial {
        workload,
        program: example("node.py"),
        argument: behaviour,
        seconds: 2,
        ..Trial::default()
    })
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/maelstrom")
        .join(name)
}

impl Trial {
    fn run(&self) -> (TestOutcome, tempfile::TempDir) {
        static TRIALS: AtomicU64 = AtomicU64::new(0);
        let trial = TRIALS.fetch_add(1, Ordering::Relaxed);
        let rng = Rng::from_seed(7);
        let workload = known_workload(&SUITE, self.workload).unwrap();
        let mut options = OptionValues::default();
        options.insert("bin", self.program.clone().into());
        options.insert("bin-args", self.argument.into());
        for (name, value) in &self.options {
            options.insert(name, value.into());
        }
        let deployment = SUITE.deploy(&Setup {
            workload: Some(workload),
            nodes: NODES,
            concurrency: NODES,
            timeout: Duration::from_secs(1),
            bug: None,
            port: None,
            breaks_network: true,
            network: NetworkKind::Local,
            options: &options,
            seed: 7,
            // The ports are drawn: trials that run side by side draw different ones.
            rng: rng.fork(&format!("deployment of trial {trial}")),
            report: |_| {},
        });
        let deployment = deployment.unwrap();
        let made = SUITE
            .workload(workload, &rng, &WorkloadOptions::default())
            .unwrap();
        let operations = made.generator;
        let clients = operations.stagger(rng.fork("stagger"), Duration::from_millis(5));
        let faults = self.faults(&rng);
        let phases = TestPhasesOptions {
            duration: Duration::from_secs(self.seconds),
            recovery: Duration::from_secs(1),
        };
        let phases = test_phases(clients, faults, phases);
        let folder = tempfile::tempdir().unwrap();
        let test = Test {
            attributes: Map::new(),
            folder: RunFolder::open(folder.path()).unwrap(),
            nodes: deployment.nodes,
            clients: deployment.clients,
            concurrency: NODES,
            timeout: Duration::from_secs(2),
            generator: phases
                .with_final(made.last, Duration::from_secs(30))
                .boxed(),
            breaks_network: true,
            network: TestNetwork::default(),
            rate: None,
            limiting_rate: None,
            checkers: SUITE.checkers(workload, None).unwrap(),
            watch: LiveChecks::default(),
            accept_undecided: true,
            minimum: MinimumLoad::default(),
            folder_checks: Vec::new(),
            certify: false,
            seed: 7,
            stop: Stop::new(),
            results: Box::new(plain_results),
        };
        let outcome = seatrial_runner::run(test, Arc::new(|_: &TestProgress| {}));
        let outcome = outcome.unwrap_or_else(|error| {
            let log = fs::read_to_string(folder.path().join("n1.log")).unwrap_or_default();
            panic!("{} {}: {error}\n{log}", self.workload, self.argument)
        });
        (outcome, folder)
    }

    fn faults(&self, rng: &Rng) -> Option<FaultPackage> {
        if self.faults.is_empty() {
            return None;
        }
        let servers: Vec<NodeId> = (1..=NODES).map(NodeId::server).collect();
        let clients: Vec<NodeId> = (0..NODES).map(NodeId::client).collect();
        let interval = Duration::from_millis(500);
        let mut options = FaultOptions::new(self.faults.clone(), servers, clients, interval);
        options.omitted.extend(SUITE.omitted_faults());
        Some(fault_package(options, rng.fork("faults")))
    }

    fn is_valid(&self) {
        let (outcome, folder) = self.run();
        let findings: Vec<_> = outcome.verdicts.iter().map(|it| &it.findings).collect();
        assert_eq!(
            outcome.validity(),
            Validity::Valid,
            "{} {}: {findings:?} {:?}",
            self.workload,
            self.argument,
            outcome.warnings
        );
        assert!(outcome.counts.ok > 2, "{:?}", outcome.counts);
        let svg = fs::read_to_string(folder.path().join("messages.svg")).unwrap();
        assert!(svg.contains("<g>"), "no message is drawn");
        let net = fs::read_to_string(folder.path().join("net.json")).unwrap();
        assert!(net.contains("\"msgs-per-op\""));
    }

    /// Is found by this checker, with a finding that contains `text`.
    fn is_invalid(&self, checker: &str, text: &str) {
        let (outcome, _folder) = self.run();
        let verdicts = &outcome.verdicts;
        let verdict = verdicts.iter().find(|verdict| verdict.checker == checker);
        let verdict = verdict.unwrap_or_else(|| panic!("no checker {checker}"));
        assert_eq!(
            verdict.valid,
            Validity::Invalid,
            "{} {}",
            self.workload,
            self.argument
        );
        let summaries: Vec<_> = verdict.findings.iter().map(|it| &it.summary).collect();
        assert!(
            summaries.iter().any(|summary| summary.contains(text)),
            "{summaries:?}"
        );
    }
}

/// Runs `check` of each trial, as many at a time as there are lanes: nodes and clients mostly wait for time to pass.
fn in_lanes<T: Sync>(trials: &[T], check: impl Fn(&T) + Sync) {
    const LANES: usize = 6;
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let check = &check;
            scope.spawn(move || trials.iter().skip(lane).step_by(LANES).for_each(check));
        }
    });
}

fn with(trial: Option<Trial>, options: &[(&'static str, &'static str)]) -> Option<Trial> {
    trial.map(|trial| Trial {
        options: options.to_vec(),
        ..trial
    })
}

fn under(trial: Option<Trial>, faults: &[FaultKind]) -> Option<Trial> {
    trial.map(|trial| Trial {
        faults: faults.to_vec(),
        seconds: 4,
        ..trial
    })
}

#[test]
fn right_nodes_in_python_are_valid() {
    let partition = [FaultKind::Partition];
    let trials = [
        python("echo", "echo"),
        python("unique-ids", "unique-ids"),
        under(python("broadcast", "broadcast"), &partition),
        with(
            python("broadcast", "broadcast"),
            &[("loss", "20"), ("latency", "5")],
        ),
        python("g-set", "g-set"),
        python("g-counter", "counter"),
        python("pn-counter", "counter"),
        under(
            python("lin-kv", "lin-kv"),
            &[FaultKind::Kill, FaultKind::Pause],
        ),
        python("txn-list-append", "txn"),
        python("txn-rw-register", "txn"),
        python("kafka", "kafka"),
    ];
    let trials: Vec<Trial> = trials.into_iter().flatten().collect();
    in_lanes(&trials, |trial| trial.is_valid());
}

#[test]
fn wrong_nodes_in_python_are_found() {
    let lossy: &[(&str, &str)] = &[("loss", "30")];
    let trials = [
        (python("echo", "echo-wrong"), "echo", "came back"),
        (
            python("echo", "echo-twice"),
            "protocol",
            "a second time, with echo_ok",
        ),
        (
            python("echo", "echo-garbage"),
            "protocol",
            "printed a line that is no message: expected value at line 1 column 1: debug: echo",
        ),
        (
            python("echo", "echo-type"),
            "protocol",
            "(expected type echo_ok or error)",
        ),
        (python("unique-ids", "unique-ids-wrong"), "unique-ids", ""),
        (
            with(python("broadcast", "broadcast-once"), lossy),
            "set-full",
            "",
        ),
        (
            python("pn-counter", "counter-wrong"),
            "final-counter",
            "possible",
        ),
        (python("lin-kv", "lin-kv-stale"), "cas-register", ""),
        (python("txn-list-append", "txn-dirty"), "list-append", ""),
        (python("kafka", "kafka-lossy"), "log", ""),
    ];
    let trials: Vec<_> = trials
        .into_iter()
        .filter_map(|(trial, checker, text)| Some((trial?, checker, text)))
        .collect();
    in_lanes(&trials, |(trial, checker, text)| {
        trial.is_invalid(checker, text);
    });
}

#[test]
fn nodes_in_javascript_and_go() {
    let javascript = |argument| {
        has(&["node"]).then(|| Trial {
            workload: "broadcast",
            program: example("node.js"),
            argument,
            options: vec![("loss", "30")],
            seconds: 2,
            ..Trial::default()
        })
    };
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("node");
    let go = has(&["go"]).then(|| {
        let source = example("node.go");
        let status = Command::new("go")
            .arg("build")
            .arg("-o")
            .arg(&built)
            .arg(source)
            .status();
        assert!(status.unwrap().success());
        |argument| Trial {
            workload: "lin-kv",
            program: built.clone(),
            argument,
            seconds: 2,
            ..Trial::default()
        }
    });
    // A right node, or one that this checker finds.
    let mut trials: Vec<(Trial, Option<&str>)> = Vec::new();
    if let Some((right, wrong)) = javascript("").zip(javascript("once")) {
        trials.extend([(right, None), (wrong, Some("set-full"))]);
    }
    if let Some(go) = go {
        trials.extend([(go(""), None), (go("local"), Some("cas-register"))]);
    }
    in_lanes(&trials, |(trial, checker)| match checker {
        None => trial.is_valid(),
        Some(checker) => trial.is_invalid(checker, ""),
    });
}

#[test]
fn a_program_that_does_not_answer_is_named() {
    let trial = Trial {
        workload: "echo",
        program: "/bin/cat".into(),
        ..Trial::default()
    };
    let failed = std::panic::catch_unwind(|| trial.run());
    let text = failed.map(drop).unwrap_err();
    let text = text.downcast_ref::<String>().unwrap();
    assert!(text.contains("n1"), "{text}");
}
