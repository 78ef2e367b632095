//! Whole tests against real processes.

use crate::roles::nodes;
use seatrial_checker::{Aims, Checker, OnlineChecker, Validity, Verdict, WholeHistory};
use seatrial_generator::{
    Generator, SingleOp, any, fault_operation, function, mix, operation, sequence, sleep,
};
use seatrial_history::{History, Op, OpType, Process, TestFile, Value};
use seatrial_machine::{Fault, Link, NodeId, Rng};
use seatrial_runner::{
    BoxFuture, Client, ClientError, ClientSlot, Clients, Ended, FolderError, InjectionResult,
    LiveChecks, NoNodes, NodeError, NodeLimits, Phase, RunError, RunFolder, Stop, Test,
    TestNetwork, TestOutcome, TestProgress, plain_results, run,
};
use serde_json::Map;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);

/// Speaks to the register; `stop` gets no answer ever, `die` ends the node.
struct Lines;

struct Line(BufReader<TcpStream>);

impl Line {
    async fn say(&mut self, text: &str) -> Result<String, ClientError> {
        let line = format!("{text}\n");
        self.0.get_mut().write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        match self.0.read_line(&mut answer).await? {
            0 => Err("the connection ended".into()),
            _ => Ok(answer.trim().into()),
        }
    }
}

impl Clients for Lines {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async {
            let stream = TcpStream::connect(slot.address).await?;
            stream.set_nodelay(true)?;
            let mut line = Line(BufReader::new(stream));
            line.say("r").await?; // so that a dead node is a certain failure
            Ok(Box::new(line) as Box<dyn Client>)
        })
    }
}

impl Client for Line {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            match op.f.as_str() {
                "read" => {
                    let value = self.say("r").await?.parse()?;
                    Ok(op.complete(OpType::Ok, Value::Int(value)))
                }
                "write" => {
                    self.say(&format!("w {}", op.value)).await?;
                    Ok(op.complete(OpType::Ok, op.value.clone()))
                }
                "hang" => std::future::pending().await,
                _ => Err(self.say("die").await.unwrap_err()),
            }
        })
    }
}

/// Answers at once; `hang` gets no answer ever, `block` keeps its thread as well.
struct Echoes;

impl Clients for Echoes {
    fn open<'a>(
        &'a self,
        _: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        Box::pin(async { Ok(Box::new(Echoes) as Box<dyn Client>) })
    }
}

impl Client for Echoes {
    fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
        Box::pin(async move {
            if op.f == "hang" {
                std::future::pending::<()>().await;
            }
            if op.f == "block" {
                loop {
                    thread::park();
                }
            }
            Ok(op.complete(OpType::Ok, op.value.clone()))
        })
    }
}

/// The same clients as tasks of the thread that drives the test.
struct OnDriver<C>(C);

impl<C: Clients> Clients for OnDriver<C> {
    fn open<'a>(
        &'a self,
        slot: &'a ClientSlot,
    ) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
        self.0.open(slot)
    }

    fn never_block(&self) -> bool {
        true
    }
}

/// Finds every history valid, and says how long it was.
struct Length;

impl Checker for Length {
    fn name(&self) -> &'static str {
        "length"
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::valid("length");
        verdict.details = serde_json::Value::from(history.len()).into();
        verdict
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(Length))
    }
}

pub(crate) fn reads_and_writes() -> Box<dyn Generator> {
    let rng = Rng::from_seed(3);
    let mut values = rng.fork("values");
    let write = function(move || {
        let value = values.below(100) as i64;
        Some(operation("write", Value::Int(value)))
    });
    let read = operation("read", Value::Nil).repeat();
    mix(rng.fork("mix"), [read.boxed(), write.boxed()])
        .stagger(rng.fork("stagger"), Duration::from_millis(2))
        .boxed()
}

pub(crate) fn test(folder: &Path, generator: Box<dyn Generator>) -> Test {
    Test {
        attributes: Map::new(),
        folder: RunFolder::open(folder).unwrap(),
        nodes: Arc::new(NoNodes),
        clients: Arc::new(Echoes),
        concurrency: 4,
        timeout: Duration::from_millis(300),
        generator,
        breaks_network: true,
        network: TestNetwork::default(),
        rate: None,
        limiting_rate: None,
        checkers: vec![Box::new(Length)],
        watch: LiveChecks::default(),
        accept_undecided: false,
        minimum: seatrial_check::MinimumLoad::default(),
        folder_checks: Vec::new(),
        certify: false,
        seed: 7,
        stop: Stop::new(),
        results: Box::new(plain_results),
    }
}

fn unseen() -> Arc<dyn seatrial_runner::Observer> {
    Arc::new(|_: &TestProgress| {})
}

fn pause(milliseconds: u64) -> SingleOp {
    sleep(Duration::from_millis(milliseconds))
}

/// Every invocation has one completion, indices are dense, time does not go back, every client operation names its
/// node and every failure its reason.
fn sound(history: &History, nodes: usize) {
    let mut time = 0;
    for (position, op) in history.iter().enumerate() {
        assert_eq!(op.index, position as u64);
        assert!(op.time >= time, "time goes back at {op}");
        time = op.time;
        assert!(history.pair(position).is_some(), "half an operation: {op}");
        if let Process::Client(process) = op.process {
            let node = (nodes > 0).then(|| format!("n{}", process as usize % 4 % nodes + 1));
            let named = op.extra.get("node").cloned();
            assert_eq!(named, node.map(Value::text), "{op}");
            let failed = matches!(op.kind, OpType::Fail | OpType::Info);
            assert_eq!(op.extra.get("error").is_some(), failed, "{op}");
        }
    }
}

/// Two registers, clients that read and write, and one fault of each kind.
fn faulty(folder: &Path) -> Test {
    let links: Vec<Link> = (0..4)
        .flat_map(|client| Link::both(NodeId::client(client), N2))
        .collect();
    let faults = [
        Fault::Kill(N1),
        Fault::Restart(N1),
        Fault::Pause(N2),
        Fault::Resume(N2),
        Fault::Cut(links.clone()),
        Fault::Heal,
        Fault::Reset(links),
    ];
    let steps = faults.iter().flat_map(|fault| {
        // Long enough for a time-out.
        [pause(450), fault_operation(fault)]
    });
    let nemesis = sequence(steps.collect::<Vec<_>>()).nemesis();
    let clients = reads_and_writes()
        .time_limit(Duration::from_millis(3600))
        .clients();
    let generator = any(Rng::from_seed(1), [clients.boxed(), nemesis.boxed()]);
    let mut test = test(folder, generator.boxed());
    test.nodes = Arc::new(nodes("register", 2));
    test.clients = Arc::new(Lines);
    test
}

#[test]
fn faults_are_seen_by_clients_and_kept_in_the_outcome() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    faults_are_seen(folder, faulty(folder));
}

#[test]
fn faults_are_seen_by_clients_on_the_drivers_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut test = faulty(folder);
    test.clients = Arc::new(OnDriver(Lines));
    faults_are_seen(folder, test);
}

fn faults_are_seen(folder: &Path, test: Test) {
    let seen = Arc::new(Mutex::new(BTreeMap::<Phase, Vec<TestProgress>>::new()));
    let sink = Arc::clone(&seen);
    let observer = move |progress: &TestProgress| {
        let mut seen = sink.lock().unwrap();
        seen.entry(progress.phase)
            .or_default()
            .push(progress.clone());
    };
    let outcome = run(test, Arc::new(observer)).unwrap();
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!(outcome.validity(), Validity::Valid);
    sound(&read(&outcome.folder), 2);
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    assert!(outcome.crashes.is_empty());
    let faults: Vec<(&str, bool, bool)> = outcome
        .faults
        .iter()
        .map(|record| {
            let bit = matches!(record.effect, InjectionResult::Done(_));
            (record.fault.name(), record.end.is_some(), bit)
        })
        .collect();
    let expected = [
        ("kill", true, true),
        ("pause", true, true),
        ("cut", true, true),
        ("reset", false, true),
    ];
    assert_eq!(faults, expected);
    errors_tell_the_faults(&read(&outcome.folder));
    let seen = seen.lock().unwrap();
    let running = &seen[&Phase::Running];
    assert!(
        running
            .iter()
            .any(|look| look.faults == ["pause n2"] && look.rate > 0.0)
    );
    assert!(
        seen.contains_key(&Phase::Checking),
        "the last look is at the last phase"
    );
    is_kept(folder, &outcome);
    drop(outcome);
    let again = RunFolder::open(folder).unwrap_err();
    assert!(matches!(again, FolderError::Used(_)), "{again}");
}

/// Results and logs are in the folder.
fn is_kept(folder: &Path, outcome: &TestOutcome) {
    let results = fs::read_to_string(folder.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["valid"], true);
    assert_eq!(
        results["checkers"]["length"]["details"],
        outcome.overview.events()
    );
    assert_eq!(results, outcome.results);
    let log = fs::read_to_string(folder.join("n1.log")).unwrap();
    assert_eq!(log.matches("ready").count(), 2, "{log}");
}

/// The kill shows as resets and certain failures, pause and cut as time-outs.
fn errors_tell_the_faults(history: &History) {
    let mut errors: BTreeMap<(OpType, String), u32> = BTreeMap::new();
    let mut nemesis = Vec::new();
    for op in history {
        match op.extra.get("error") {
            Some(error) if op.process.is_client() => {
                *errors.entry((op.kind, error.to_string())).or_default() += 1;
            }
            _ if !op.process.is_client() => nemesis.push((op.f.as_str(), op.value.to_string())),
            _ => {}
        }
    }
    let count = |kind, text: &str| -> u32 {
        let matching = errors
            .iter()
            .filter(|((k, error), _)| *k == kind && error.contains(text));
        matching.map(|(_, count)| count).sum()
    };
    assert!(count(OpType::Fail, "no client: ") > 0, "{errors:?}");
    assert!(count(OpType::Info, "timeout") >= 2, "{errors:?}");
    assert!(
        count(OpType::Info, "reset") + count(OpType::Info, "ended") > 0,
        "{errors:?}"
    );
    assert_eq!(nemesis.len(), 14, "{nemesis:?}");
    assert!(nemesis[1].1.contains("with SIGKILL"), "{nemesis:?}");
}

#[test]
fn a_stop_lets_operations_complete_and_checks() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let test = test(folder, reads_and_writes().clients().boxed());
    let stop = test.stop.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        stop.request();
    });
    let outcome = run(test, unseen()).unwrap();
    stopper.join().unwrap();
    assert_eq!(outcome.ended, Ended::Stopped);
    assert_eq!(outcome.verdicts.len(), 1);
    assert!(
        outcome.overview.events() > 50,
        "{}",
        outcome.overview.events()
    );
    assert_eq!(outcome.counts.invoked, outcome.counts.completed());
    sound(&read(&outcome.folder), 0);
}

#[test]
fn a_second_stop_waits_for_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let hang = operation("hang", Value::Nil).repeat().clients();
    let mut test = test(folder, hang.boxed());
    test.timeout = Duration::from_mins(2);
    let stop = test.stop.clone();
    let stopper = thread::spawn(move || {
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(200));
            stop.request();
        }
    });
    let began = Instant::now();
    let outcome = run(test, unseen()).unwrap();
    stopper.join().unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(outcome.ended, Ended::Aborted);
    assert!(matches!(outcome.validity(), Validity::Unknown(_)));
    assert_eq!((outcome.counts.invoked, outcome.counts.info), (4, 4));
    let history = read(folder);
    assert_eq!(history.len(), 8);
    sound(&history, 0);
}

#[test]
fn a_stop_while_nodes_start_ends_them() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut test = test(folder, reads_and_writes().clients().boxed());
    test.nodes = Arc::new(nodes("mute", 1));
    let stop = test.stop.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        stop.request();
    });
    let began = Instant::now();
    let error = run(test, unseen()).unwrap_err();
    stopper.join().unwrap();
    assert!(matches!(error, RunError::Stopped), "{error}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_client_that_never_answers_stalls_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    one_client_hangs(folder, Arc::new(Echoes));
}

#[test]
fn a_client_that_never_answers_stalls_none_on_the_drivers_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    one_client_hangs(folder, Arc::new(OnDriver(Echoes)));
}

fn one_client_hangs(folder: &Path, clients: Arc<dyn Clients>) {
    let hang = operation("hang", Value::Nil)
        .repeat()
        .on_threads(|thread| thread.0 == 0);
    let read = operation("read", Value::Nil)
        .repeat()
        .on_threads(|thread| thread.0 != 0);
    let both = any(Rng::from_seed(1), [hang.boxed(), read.boxed()]);
    let generator = both.time_limit(Duration::from_secs(1)).clients();
    let mut test = test(folder, generator.boxed());
    test.clients = clients;
    let outcome = run(test, unseen()).unwrap();
    let history = self::read(&outcome.folder);
    let hung = history.iter().filter(|op| op.f == "hang" && op.is_info());
    let texts: Vec<String> = hung
        .map(|op| op.extra.get("error").unwrap().to_string())
        .collect();
    assert!((3..=5).contains(&texts.len()), "{texts:?}");
    assert!(
        texts.iter().all(|text| text.contains("timeout")),
        "{texts:?}"
    );
    assert!(outcome.counts.ok > 1000, "{:?}", outcome.counts);
    sound(&self::read(&outcome.folder), 0);
}

#[test]
fn a_node_that_does_not_start_ends_the_test_before_it_begins() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut test = test(folder, reads_and_writes().clients().boxed());
    test.nodes = Arc::new(nodes("broken", 2));
    let error = run(test, unseen()).unwrap_err();
    assert!(
        matches!(error, RunError::Node(NodeError::Ended { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("my configuration"), "{error}");
    assert!(!folder.join("history.sea").exists());
}

#[test]
fn nodes_that_do_not_find_together_end_the_test() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut test = test(folder, reads_and_writes().clients().boxed());
    let limits = NodeLimits {
        ready: Duration::from_millis(400),
        stop: Duration::from_secs(1),
    };
    test.nodes = Arc::new(nodes("loner", 2).with_limits(limits));
    let error = run(test, unseen()).unwrap_err();
    assert!(
        matches!(error, RunError::Node(NodeError::NotFormed { .. })),
        "{error}"
    );
    assert!(error.to_string().contains("has no value yet"), "{error}");
}

#[test]
fn a_node_that_exits_on_its_own_is_reported_with_its_log() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let die = operation("die", Value::Nil).once();
    let generator = any(
        Rng::from_seed(1),
        [
            reads_and_writes()
                .time_limit(Duration::from_millis(500))
                .boxed(),
            die.delay(Duration::from_millis(200)).boxed(),
        ],
    );
    let mut test = test(folder, generator.clients().boxed());
    test.nodes = Arc::new(nodes("register", 1));
    test.clients = Arc::new(Lines);
    let outcome = run(test, unseen()).unwrap();
    let [crash] = &outcome.crashes[..] else {
        panic!("{:?}", outcome.crashes);
    };
    assert_eq!(crash.node, N1);
    let warning = outcome.warnings.join("\n");
    assert!(warning.contains("n1 exited by itself"), "{warning}");
    assert!(
        warning.contains("status: 7") && warning.contains("a bug of mine"),
        "{warning}"
    );
    sound(&read(&outcome.folder), 1);
}

#[test]
fn a_mistake_of_the_generator_ends_the_test_and_keeps_the_history() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let mut count = 0;
    let wrong = operation("read", Value::Nil).repeat().map(move |mut op| {
        count += 1;
        if count > 10 {
            op.process = Process::Client(99);
        }
        op
    });
    let test = test(folder, wrong.clients().boxed());
    let error = run(test, unseen()).unwrap_err();
    assert!(matches!(error, RunError::Generator(_)), "{error}");
    assert!(error.to_string().contains("99"), "{error}");
    assert!(!read(folder).is_empty());
}

#[test]
fn a_rate_that_was_not_reached_is_warned_of() {
    for (rate, is_missed) in [(1_000_000.0, true), (100.0, false)] {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let interval = Duration::from_secs_f64(1.0 / rate);
        let reads = operation("read", Value::Nil).repeat();
        let generator = reads
            .stagger(Rng::from_seed(5), interval)
            .time_limit(Duration::from_millis(800));
        let test = Test {
            rate: Some(rate),
            ..test(folder, generator.clients().boxed())
        };
        let outcome = run(test, unseen()).unwrap();
        let warnings = outcome.warnings.join("\n");
        let found = warnings.contains("requested 1000000 operations per second");
        assert_eq!(found, is_missed, "{rate}: {warnings}");
    }
}

#[test]
fn a_fault_that_never_bites_is_warned_of() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let kill = fault_operation(&Fault::Kill(N1));
    let cut = fault_operation(&Fault::Cut(Link::both(N1, N2).to_vec()));
    let nemesis = sequence([kill, cut]).nemesis();
    let clients = reads_and_writes().limit(10).clients();
    let generator = any(Rng::from_seed(1), [clients.boxed(), nemesis.boxed()]);
    let outcome: TestOutcome = run(test(folder, generator.boxed()), unseen()).unwrap();
    let warnings = outcome.warnings.join("\n");
    assert!(
        warnings.contains("kill never took effect: unknown node n1"),
        "{warnings}"
    );
    assert!(warnings.contains("cut never took effect"), "{warnings}");
}

/// Without proxies clients talk to the node itself; a fault of links has no effect, and is warned of.
#[test]
fn links_that_cannot_be_broken_are_warned_of() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let cut = fault_operation(&Fault::Cut(Link::both(NodeId::client(0), N1).to_vec()));
    let nemesis = sequence([cut, fault_operation(&Fault::Heal)]).nemesis();
    let clients = reads_and_writes().limit(50).clients();
    let generator = any(Rng::from_seed(1), [clients.boxed(), nemesis.boxed()]);
    let mut test = test(folder, generator.boxed());
    test.nodes = Arc::new(nodes("register", 1));
    test.clients = Arc::new(OnDriver(Lines));
    test.breaks_network = false;
    let outcome = run(test, unseen()).unwrap();
    assert_eq!((outcome.counts.ok, outcome.counts.invoked), (50, 50));
    assert!(matches!(
        outcome.faults[0].effect,
        InjectionResult::Nothing(_)
    ));
    let warnings = outcome.warnings.join("\n");
    assert!(
        warnings.contains("cut never took effect: this test was set up without"),
        "{warnings}"
    );
}

/// The history in a run folder, read anew.
pub(crate) fn read(folder: &Path) -> History {
    let file = TestFile::open(&folder.join("history.sea")).unwrap();
    file.history().unwrap()
}

#[test]
fn a_client_that_blocks_its_thread_delays_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let reads = operation("read", Value::Nil).repeat().limit(300);
    let blocked = operation("block", Value::Nil).repeat_times(2);
    let generator = sequence([
        blocked.boxed(),
        reads
            .stagger(Rng::from_seed(1), Duration::from_millis(1))
            .boxed(),
    ]);
    let began = Instant::now();
    let outcome = run(test(folder, generator.clients().boxed()), unseen()).unwrap();
    assert!(began.elapsed() < Duration::from_mins(1));
    assert_eq!(outcome.ended, Ended::Completed);
    let counts = outcome.counts;
    assert_eq!((counts.ok, counts.info, counts.fail), (300, 2, 0));
    sound(&read(&outcome.folder), 0);
    let left = |warning: &String| warning.ends_with("were abandoned: 2");
    assert!(outcome.warnings.iter().any(left), "{:?}", outcome.warnings);
}
