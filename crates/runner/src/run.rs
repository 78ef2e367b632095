//! One test from its first node to its verdict: threads, tasks, phases.

use crate::driver::{DriveResult, Driver, WorkerChannel};
use crate::history_recorder::{HistoryRecorder, error_chain};
use crate::leaders::LeaderWatch;
use crate::load_limit::{LoadLimit, processor_time};
use crate::nemesis::{Nemesis, NemesisReport};
use crate::progress::{Phase, ProgressState, Ticker};
use crate::states;
use crate::stop::Urgency;
use crate::test_definition::{Crash, RunError, Test, TestEvidence, TestOutcome};
use crate::timer::Timer;
use crate::watch::{LiveCheckThread, Sighting};
use crate::worker::Worker;
use crate::{
    ClientSlot, Death, Ended, InjectionResult, Leaders, Mesh, NodeError, NodeNetwork,
    NodeNetworkOptions, Nodes, Observer, Stop, time_name,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use seatrial_check::{
    CheckAnswer, CheckOptions, Ground, NODE_STATES, SharedSource, Unwatched, prove, proves,
};
use seatrial_checker::{Aims, Checker, Divergence, Overview, Validity, Verdict};
use seatrial_generator::{
    Generator, Interpreter, InterpreterOptions, THREADS_MAX, Thread, sequence,
};
use seatrial_history::{HistoryWriter, Op, Process, SourceError, TestFile};
use seatrial_host::write_whole;
use seatrial_machine::{NodeId, Rng, Time};
use seatrial_verify::Certificate;
use serde_json::{Value as Json, json};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Limit for workers to close their clients, and for the nemesis to finish the fault under way.
const END_LIMIT: Duration = Duration::from_secs(3);
/// Limit for an aborted task to end. A task that awaits anything ends at once; one that blocks its thread does not.
const ABORT_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of threads on which blocking clients run.
const CLIENT_THREADS_MAX: usize = 16;
/// Interval at which stop requests are polled while nodes start.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a test: starts the nodes and waits until they form a system, drives clients and nemesis, heals all faults, stops the
/// nodes, seals the history, and checks it. Returns when no process of the test is left, whatever the result.
pub fn run(test: Test, observer: Arc<dyn Observer>) -> Result<TestOutcome, RunError> {
    if test.concurrency == 0 || test.concurrency > THREADS_MAX {
        let count = test.concurrency;
        let text = format!("invalid concurrency {count} (expected 1 to {THREADS_MAX} workers)");
        return Err(RunError::Test(text));
    }
    if test.timeout.is_zero() {
        return Err(RunError::Test(
            "the operation time-out is zero; every operation would time out".into(),
        ));
    }
    raise_file_limit();
    check_threads(client_threads(&test))?;
    let threads = TestThreads::start(client_threads(&test))?;
    let nodes = Arc::clone(&test.nodes);
    let progress = Arc::new(ProgressState::default());
    let ticker = Ticker::start(Arc::clone(&progress), observer);
    let result = Run::new(test, &threads, progress).and_then(Run::run);
    threads.world.block_on(async {
        // Also after an error: no process outlives the test.
        for error in end_nodes(&nodes).await {
            tracing::warn!("a node could not be stopped: {error}");
        }
    });
    drop(ticker);
    threads.end();
    result
}

/// Runs a test without checking its history.
pub(crate) fn record(test: Test) -> Result<TestOutcome, RunError> {
    let threads = TestThreads::start(client_threads(&test))?;
    let outcome = Run::new(test, &threads, Arc::default()).and_then(|mut run| run.record());
    threads.end();
    outcome
}

/// The runtimes of a test. Three, so that neither a blocking client nor a busy proxy delays the driver.
struct TestThreads {
    /// Proxies, readiness probes and the nemesis: one thread per processor.
    world: Runtime,
    /// The driver, and clients that never block. It has no thread of its own: it runs on the caller's while that blocks on it.
    driver: Runtime,
    /// Clients that may block their threads; `None` if no client does. They have threads of their own, more than processors, so
    /// that a blocked one stops no proxy and few other clients.
    clients: Option<Runtime>,
}

impl TestThreads {
    /// Starts the runtimes, with `client_threads` threads for clients that may block.
    fn start(client_threads: usize) -> Result<TestThreads, RunError> {
        let clients = || {
            let mut builder = Builder::new_multi_thread();
            started(builder.worker_threads(client_threads).thread_name("client"))
        };
        Ok(TestThreads {
            world: started(&mut Builder::new_multi_thread())?,
            driver: started(&mut Builder::new_current_thread())?,
            clients: (client_threads > 0).then(clients).transpose()?,
        })
    }

    /// The runtime of the clients.
    fn clients(&self) -> &Handle {
        self.clients.as_ref().unwrap_or(&self.driver).handle()
    }

    fn end(self) {
        // A blocked client keeps its thread: waiting for it could take for ever.
        self.clients
            .into_iter()
            .for_each(Runtime::shutdown_background);
        self.driver.shutdown_background();
        self.world.shutdown_timeout(END_LIMIT);
    }
}

/// Number of processors that this process may use; 1 if that is unknown.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Number of threads for clients: 0 if they all run on the driver's.
fn client_threads(test: &Test) -> usize {
    if test.clients.never_block() {
        return 0;
    }
    (test.concurrency as usize).clamp(1, CLIENT_THREADS_MAX)
}

fn started(builder: &mut Builder) -> Result<Runtime, RunError> {
    let built = builder.enable_all().build();
    built.map_err(|error| RunError::Bench {
        what: "threads",
        error,
    })
}

/// Raises the soft limit of open files to the hard limit: a connection through a proxy takes four descriptors.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // on an error the present limit stays
}

/// Threads besides those of proxies and clients: the driver's, the history's, progress, nodes, checkers.
const OTHER_THREADS: usize = 8;

/// Fails unless this process can start all threads of a test. A runtime that lacks threads would wait for ever for a task that
/// no thread runs, so they are all started, and ended, before anything depends on one.
fn check_threads(clients: usize) -> Result<(), RunError> {
    let workers = processors();
    let count = workers + clients + OTHER_THREADS;
    let mut threads = Vec::with_capacity(count);
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let mut made = Ok(());
    for number in 0..count {
        let gate = Arc::clone(&gate);
        // All block until the last one has started or failed: they must exist at the same time.
        let wait = move || drop(gate.lock().map(|gate| gate.recv()));
        match std::thread::Builder::new().spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let what = "too few threads";
                let text = format!("{number} of {count}: {error}; see `ulimit -u`");
                let error = std::io::Error::new(error.kind(), text);
                made = Err(RunError::Bench { what, error });
                break;
            }
        }
    }
    drop(release);
    for thread in threads {
        let _ = thread.join(); // its body cannot panic
    }
    made
}

/// Opens the network of a test whose nodes are in namespaces.
fn open_network(test: &Test) -> std::io::Result<NodeNetwork> {
    let folder = test.folder.path();
    let limit = test.network.capture_bytes;
    let options = NodeNetworkOptions {
        seed: test.seed,
        capture: (limit > 0).then(|| (folder.join("network.pcap"), limit)),
        hosts: Some(folder.join("hosts")),
    };
    NodeNetwork::open(test.network.kind, options)
}

/// A test while it runs: its definition, its threads, and the state that all phases share.
struct Run<'a> {
    test: Test,
    threads: &'a TestThreads,
    progress: Arc<ProgressState>,
    mesh: Mesh,
}

/// The tasks of a test, and the channels by which the driver reaches them.
struct Tasks {
    channels: Vec<WorkerChannel>,
    nemesis: Arc<Mutex<Nemesis>>,
    completions: mpsc::Receiver<(Thread, Op)>,
    handles: TaskHandles,
}

/// The handles of the tasks that execute operations and faults.
struct TaskHandles {
    clients: JoinSet<()>,
    nemesis: JoinSet<()>,
}

impl<'a> Run<'a> {
    fn new(
        test: Test,
        threads: &'a TestThreads,
        progress: Arc<ProgressState>,
    ) -> Result<Run<'a>, RunError> {
        let world = threads.world.handle().clone();
        let mesh = if test.network.kind.has_whole_addresses() {
            let network = open_network(&test).map_err(|error| RunError::Bench {
                what: "a network of namespaces",
                error,
            })?;
            Mesh::switched(world, network)
        } else if test.breaks_network {
            Mesh::new(world)
        } else {
            Mesh::without_proxies(world)
        };
        Ok(Run {
            test,
            threads,
            progress,
            mesh,
        })
    }

    fn run(mut self) -> Result<TestOutcome, RunError> {
        self.start_nodes()?;
        let mut outcome = self.record()?;
        if outcome.ended != Ended::Aborted {
            self.check(&mut outcome)?;
        }
        Ok(outcome)
    }

    /// Runs all phases between the start of the nodes and the check of the history.
    fn record(&mut self) -> Result<TestOutcome, RunError> {
        let workers = self.open_clients()?;
        let (began, started) = (Instant::now(), SystemTime::now());
        let attributes = self.attributes(started);
        let path = self.test.folder.history();
        let recorder = start_recorder(&path, &attributes)?;
        let live_check = self.watch(&path, began)?;
        let tasks = self.spawn_tasks(workers, began);
        let leaders = Arc::new(LeaderWatch::default());
        let watching = Arc::clone(&leaders).watch(Arc::clone(&self.test.nodes), began);
        let watching = self.threads.world.spawn(watching);
        self.progress.begin(began);
        self.progress.set_phase(Phase::Running);
        let used_before = processor_time();
        let driven = self.drive(tasks, recorder, began);
        watching.abort();
        let (mut drive, nemesis, tasks) = driven?;
        let load = began.elapsed();
        let used = processor_time().saturating_sub(used_before);
        self.progress.set_phase(Phase::Ending);
        let (report, deaths, states) = self.end(
            nemesis,
            tasks,
            drive.ended,
            std::mem::take(&mut drive.deaths),
        );
        drive.record_states(states, began);
        let written = drive.recorder.finish();
        written.map_err(|reason| RunError::Write { path, reason })?;
        let watched = live_check.filter(|_| drive.ended != Ended::Aborted);
        let watched = watched.map(LiveCheckThread::finish).unwrap_or_default();
        if let Some(failure) = drive.failure {
            return Err(RunError::Generator(failure));
        }
        let crashes = deaths.into_iter().map(|death| Crash::of(death, began));
        let mut outcome = TestOutcome {
            ended: drive.ended,
            folder: self.test.folder.path().to_owned(),
            history_path: self.test.folder.history(),
            attributes,
            verdicts: watched.verdicts,
            proofs: Vec::new(),
            overview: Overview::default(),
            results: Json::Null,
            counts: self.progress.counts(),
            load,
            limit: LoadLimit::of(
                self.test.limiting_rate,
                self.progress.counts().invoked,
                load,
                used,
                self.test.concurrency,
            ),
            checked_in: Duration::ZERO,
            crashes: crashes.collect(),
            sighting: watched.sighting,
            leaders: leaders.finish(&report.records),
            faults: report.records,
            warnings: report.warnings,
        };
        outcome
            .warnings
            .extend(self.test.network.limits.iter().cloned());
        add_warnings(&mut outcome, self.test.rate, watched.error);
        Ok(outcome)
    }

    /// Starts the checkers that run during the test; `None` if there are none.
    fn watch(&mut self, path: &Path, began: Instant) -> Result<Option<LiveCheckThread>, RunError> {
        let watch = std::mem::take(&mut self.test.watch);
        if watch.checkers.is_empty() {
            return Ok(None);
        }
        let live_check =
            LiveCheckThread::start(path.to_owned(), watch, self.test.stop.clone(), began);
        live_check.map(Some).map_err(|error| RunError::Bench {
            what: "a thread for a checker",
            error,
        })
    }

    /// Starts all nodes concurrently; fails with [`RunError::Stopped`] at a stop request.
    fn start_nodes(&self) -> Result<(), RunError> {
        let folder = self.test.folder.path();
        let start = start_nodes(&self.test.nodes, folder, &self.mesh);
        let started = self
            .threads
            .world
            .block_on(unless_stopped(&self.test.stop, start));
        started.ok_or(RunError::Stopped)??;
        Ok(())
    }

    /// The attributes of a test whose clock is zero at `started`.
    fn attributes(&self, started: SystemTime) -> Json {
        let mut attributes = self.test.attributes.clone();
        let mut put = |name: &str, value: Json| {
            attributes.entry(name).or_insert(value);
        };
        put("started", json!(time_name(started)));
        let since = started.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or(Duration::ZERO).as_nanos();
        put(
            "started_ns",
            json!(i64::try_from(since).unwrap_or(i64::MAX)),
        );
        let ids = self.test.nodes.ids().iter();
        put(
            "nodes",
            json!(ids.map(NodeId::to_string).collect::<Vec<_>>()),
        );
        put("concurrency", json!(self.test.concurrency));
        put("network", json!(self.test.network.kind.name()));
        if !self.test.network.limits.is_empty() {
            put("network_limits", json!(self.test.network.limits));
        }
        put("timeout_ms", json!(self.test.timeout.as_millis() as u64));
        put("seed", json!(self.test.seed));
        put("version", json!(env!("CARGO_PKG_VERSION")));
        if self.test.nodes.reports_states() {
            put(NODE_STATES, json!(true));
        }
        Json::Object(attributes)
    }

    /// Creates the workers and opens their first clients. A client that cannot be opened is opened again by its first operation.
    fn open_clients(&self) -> Result<Vec<Worker>, RunError> {
        let mut opening = JoinSet::new();
        for number in 0..self.test.concurrency {
            let slot = self.slot(number)?;
            let clients = Arc::clone(&self.test.clients);
            let mut worker = Worker::new(slot, clients, self.test.timeout);
            let open = async move {
                worker.open_early(Process::Client(number.into())).await;
                (number, worker)
            };
            opening.spawn_on(open, self.threads.clients());
        }
        // Each worker enforces the time-out by itself, unless its client blocks the thread.
        let limit = self.test.timeout * 2 + END_LIMIT;
        let opening = async { timeout(limit, opening.join_all()).await };
        let opened = self
            .threads
            .driver
            .block_on(unless_stopped(&self.test.stop, opening));
        let opened = opened.ok_or(RunError::Stopped)?;
        let mut workers = opened.map_err(|_| {
            let text = "opening the clients timed out: a client blocks its thread";
            RunError::Test(text.into())
        })?;
        workers.sort_by_key(|(number, _)| *number);
        Ok(workers.into_iter().map(|(_, worker)| worker).collect())
    }

    fn slot(&self, number: u32) -> Result<ClientSlot, RunError> {
        let ids = self.test.nodes.ids();
        let endpoint = NodeId::client(number);
        let mut slot = ClientSlot {
            endpoint,
            node: ClientSlot::NOWHERE,
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            mesh: self.mesh.clone(),
        };
        if !ids.is_empty() {
            slot.node = ids[number as usize % ids.len()];
            let route = self.mesh.route(endpoint, slot.node);
            slot.address = route.map_err(|error| RunError::Bench {
                what: "a port for a client's connections",
                error,
            })?;
        }
        Ok(slot)
    }

    /// Starts a task for each worker and one for the nemesis.
    fn spawn_tasks(&self, workers: Vec<Worker>, began: Instant) -> Tasks {
        // Two per worker: a worker whose operation was abandoned may complete the next one before the driver polls.
        let (completed, completions) = mpsc::channel(2 * (workers.len() + 1));
        let mut clients = JoinSet::new();
        let mut channels = Vec::new();
        for (number, worker) in workers.into_iter().enumerate() {
            let (inbox, operations) = mpsc::channel(1);
            let node = Some(worker.node()).filter(|node| *node != ClientSlot::NOWHERE);
            channels.push(WorkerChannel::new(inbox, node.map(|node| node.to_string())));
            let task = work(worker, Thread(number as u32), operations, completed.clone());
            clients.spawn_on(task, self.threads.clients());
        }
        let nemesis = Nemesis::new(
            Arc::clone(&self.test.nodes),
            self.mesh.clone(),
            Rng::from_seed(self.test.seed).fork("nemesis"),
            Arc::clone(&self.progress),
            began,
        );
        let nemesis = Arc::new(Mutex::new(nemesis));
        let (inbox, operations) = mpsc::channel(1);
        let nemesis_task = run_nemesis(Arc::clone(&nemesis), operations, completed);
        let mut handles = TaskHandles {
            clients,
            nemesis: JoinSet::new(),
        };
        handles
            .nemesis
            .spawn_on(nemesis_task, self.threads.world.handle());
        channels.push(WorkerChannel::new(inbox, None)); // last: see Driver::channel_index
        debug_assert_eq!(channels.len(), self.test.concurrency as usize + 1);
        Tasks {
            channels,
            nemesis,
            completions,
            handles,
        }
    }

    fn drive(
        &mut self,
        tasks: Tasks,
        recorder: HistoryRecorder,
        began: Instant,
    ) -> Result<(DriveResult, Arc<Mutex<Nemesis>>, TaskHandles), RunError> {
        let generator = std::mem::replace(&mut self.test.generator, nothing());
        let rng = Rng::from_seed(self.test.seed).fork("interpreter");
        let options = InterpreterOptions {
            // Workers enforce the time-out; this limit catches a worker that never answers, because its thread is blocked.
            operation_timeout: Some(self.test.timeout * 2 + END_LIMIT),
            drain_timeout: self.test.timeout * 2 + END_LIMIT,
            ..InterpreterOptions::new(self.test.concurrency, rng)
        };
        let _inside = self.threads.driver.enter();
        let driver = Driver {
            interpreter: Interpreter::new(generator, &options),
            began,
            channels: tasks.channels,
            completions: tasks.completions,
            recorder,
            timer: Timer::new().map_err(|error| RunError::Bench {
                what: "a timer",
                error,
            })?,
            nodes: Arc::clone(&self.test.nodes),
            progress: Arc::clone(&self.progress),
            stop: self.test.stop.clone(),
        };
        let drive = self.threads.driver.block_on(driver.drive());
        Ok((drive, tasks.nemesis, tasks.handles))
    }

    /// Ends the tasks, heals all faults, stops the nodes. The order matters: a client that still runs must not see the nodes
    /// stop. Returns the nemesis's report, all nodes that died, and the states of the nodes as operations.
    fn end(
        &self,
        nemesis: Arc<Mutex<Nemesis>>,
        mut tasks: TaskHandles,
        ended: Ended,
        mut deaths: Vec<Death>,
    ) -> (NemesisReport, Vec<Death>, Vec<Op>) {
        self.threads.driver.block_on(async {
            if ended != Ended::Aborted {
                let _ = timeout(END_LIMIT, async {
                    while tasks.nemesis.join_next().await.is_some() {}
                    while tasks.clients.join_next().await.is_some() {}
                })
                .await;
            }
            let left = tasks.end().await;
            nemesis.lock().await.final_heal().await;
            let states = match ended {
                Ended::Aborted => Vec::new(),
                _ if !self.test.nodes.reports_states() => Vec::new(),
                _ => states::observe(&self.test.nodes).await,
            };
            deaths.extend(self.test.nodes.take_deaths());
            let failures = end_nodes(&self.test.nodes).await;
            let mut report = match Arc::into_inner(nemesis) {
                Some(nemesis) => nemesis.into_inner().finish(),
                None => NemesisReport::default(),
            };
            let failures = failures.into_iter().map(|error| error.to_string());
            report.warnings.extend(failures);
            if left > 0 {
                let text = format!(
                    "clients that still blocked their threads at the end and were abandoned: {left}"
                );
                report.warnings.push(text);
            }
            (report, deaths, states)
        })
    }

    /// Checks the sealed history and writes the results.
    fn check(&self, outcome: &mut TestOutcome) -> Result<(), RunError> {
        self.progress.set_phase(Phase::Checking);
        let path = &outcome.history_path;
        let read_error = |reason: String| RunError::Read {
            path: path.clone(),
            reason,
        };
        let source = outcome.source();
        let source = source.map_err(|error| read_error(error_chain(&error)))?;
        let began = Instant::now();
        let known = std::mem::take(&mut outcome.verdicts);
        let answer = self.answer(&source, processors(), known);
        let (answer, proofs) = answer.map_err(|error| read_error(error_chain(&*error)))?;
        outcome.proofs = proofs;
        outcome.verdicts = answer.verdicts;
        let beside = self.test.folder_checks.iter();
        let beside = beside.map(|check| check(&outcome.history_path));
        outcome.verdicts.extend(beside);
        outcome.overview = answer.overview;
        outcome.checked_in = began.elapsed();
        outcome.results = (self.test.results)(&TestEvidence {
            attributes: &outcome.attributes,
            source: &source,
            history_path: &outcome.history_path,
            overview: &outcome.overview,
            verdicts: &outcome.verdicts,
            warnings: &outcome.warnings,
            checked_in: outcome.checked_in,
            limit: outcome.limit,
            sighting: outcome.sighting.as_ref(),
            leaders: outcome.leaders.as_ref(),
        });
        self.keep(&outcome.results)
    }

    /// Checks the history chunk by chunk. A checker that ran during the test, whose verdict is known, does not run again, unless
    /// it has to prove its verdict.
    fn answer(
        &self,
        source: &SharedSource,
        threads: usize,
        mut known: Vec<Verdict>,
    ) -> Result<(CheckAnswer, Vec<(String, Certificate)>), SourceError> {
        let certify = self.test.certify;
        // What a certificate may prove is checked once more, for it.
        let (decided, other): (Vec<Verdict>, Vec<Verdict>) = known
            .into_iter()
            .partition(|verdict| certify && proves(verdict.checker));
        known = other;
        let is_known =
            |checker: &dyn Checker| known.iter().any(|one| one.checker == checker.name());
        let checkers = self.test.checkers.iter().map(AsRef::as_ref);
        let mut left: Vec<&dyn Checker> = checkers.filter(|one| !is_known(*one)).collect();
        if self.test.nodes.reports_states() {
            left.push(&Divergence);
        }
        let options = CheckOptions {
            aims: Aims {
                certify,
                ..Aims::default()
            },
            threads,
        };
        let mut answer = seatrial_check::check(&left, source, &options, &Unwatched, None)?;
        let proofs = if certify {
            prove(&mut answer, source)?
        } else {
            Vec::new()
        };
        for verdict in &mut answer.verdicts {
            let decided = decided.iter().find(|one| one.checker == verdict.checker);
            // The check during the test may decide what a search of the whole does not: then there is no certificate.
            if let Some(decided) = decided
                && matches!(verdict.valid, Validity::Unknown(_))
            {
                let certificate = verdict.details.certificate.take();
                *verdict = decided.clone();
                verdict.details.certificate = certificate;
            }
        }
        let mut found = answer.verdicts.into_iter().chain(known);
        let mut found: Vec<Verdict> = found.by_ref().collect();
        let place = |verdict: &Verdict| {
            let mut names = self.test.checkers.iter().map(|one| one.name());
            names
                .position(|name| name == verdict.checker)
                .unwrap_or(usize::MAX)
        };
        found.sort_by_key(place);
        answer.verdicts = found;
        let ground = Ground {
            accept_undecided: self.test.accept_undecided,
            minimum: self.test.minimum,
            ..Ground::default()
        };
        ground.settle(&mut answer.verdicts, &answer.overview);
        Ok((answer, proofs))
    }

    /// Writes the results to `results.json` and into the test file.
    fn keep(&self, results: &Json) -> Result<(), RunError> {
        let path = self.test.folder.results();
        let results_error = |path: &Path, reason: String| RunError::Results {
            path: path.to_owned(),
            reason,
        };
        let text = format!("{results:#}\n");
        let written = write_whole(&path, |out| out.write_all(text.as_bytes()));
        written.map_err(|error| results_error(&path, error.to_string()))?;
        let path = self.test.folder.history();
        let kept = TestFile::append_results(&path, results);
        kept.map_err(|error| results_error(&path, error_chain(&error)))
    }
}

/// Adds what a reader of the verdict needs to know of the run.
fn add_warnings(outcome: &mut TestOutcome, asked: Option<f64>, unwatched: Option<String>) {
    let idle = outcome.leaders.iter().filter_map(Leaders::warning);
    let mut warnings: Vec<String> = idle.collect();
    warnings.extend(cut_short(outcome));
    warnings.extend(rate_missed(asked, outcome));
    warnings.extend(outcome.sighting.iter().map(Sighting::sentence));
    warnings.extend(unwatched.map(|error| format!("no checker ran during the test: {error}")));
    warnings.extend(outcome.crashes.iter().map(warning));
    outcome.warnings.extend(warnings);
}

/// Creates the test file, and starts the thread that writes it.
fn start_recorder(path: &Path, attributes: &Json) -> Result<HistoryRecorder, RunError> {
    let writer = HistoryWriter::create(path, attributes).map_err(|error| RunError::Write {
        path: path.to_owned(),
        reason: error_chain(&error),
    })?;
    HistoryRecorder::start(Box::new(writer)).map_err(|error| RunError::Bench {
        what: "a thread for the history",
        error,
    })
}

impl DriveResult {
    /// Records the states of the nodes after the operations of the test.
    fn record_states(&mut self, states: Vec<Op>, began: Instant) {
        for (index, state) in (self.recorded..).zip(states) {
            let time = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
            let state = Op {
                index,
                time,
                ..state
            };
            // A writer that has ended says so when it is finished.
            let _ = self.recorder.push(state, Instant::now());
        }
    }
}

impl Crash {
    /// The crash of a test that began at this time.
    fn of(death: Death, began: Instant) -> Crash {
        Crash {
            node: death.node,
            at: Time::ZERO + death.at.saturating_duration_since(began),
            status: death.status,
            log_tail: death.log_tail,
        }
    }
}

/// A warning for a run that was stopped before its generator ended: the verdict covers the operations recorded until then.
fn cut_short(outcome: &TestOutcome) -> Option<String> {
    // A violation that stops a test has a warning of its own.
    let is_asked = outcome.ended == Ended::Stopped && outcome.sighting.is_none();
    is_asked.then(|| {
        let seconds = outcome.load.as_secs_f64();
        format!("the run was cut short after {seconds:.1} s; the verdict covers the operations recorded until then")
    })
}

/// A warning for a run that made fewer operations per second than requested.
fn rate_missed(asked: Option<f64>, outcome: &TestOutcome) -> Option<String> {
    let counts = outcome.counts;
    let (made, seconds) = (counts.invoked, outcome.load.as_secs_f64());
    let (asked, expected) = (asked?, asked? * seconds);
    // Intervals are random (uniform up to twice the mean: a variance of a third per operation), so a short run may be off by
    // three standard deviations.
    let slack = 3.0 * (expected / 3.0).sqrt();
    let is_missed = (made as f64) < expected * RATE_SHARE - slack;
    is_missed.then(|| {
        let rate = made as f64 / seconds;
        format!(
            "requested {asked} operations per second, made {rate:.0}: no client was free in time, or the generator had no operation"
        )
    })
}

/// Share of the requested rate below which a warning is given.
const RATE_SHARE: f64 = 0.98;

impl TaskHandles {
    /// Aborts all tasks that still run. Returns the number of clients that cannot be aborted, because they block their threads.
    async fn end(mut self) -> usize {
        self.nemesis.shutdown().await;
        self.clients.abort_all();
        let _ = timeout(ABORT_LIMIT, async {
            while self.clients.join_next().await.is_some() {}
        })
        .await;
        let left = self.clients.len();
        self.clients.detach_all();
        left
    }
}

/// A warning for a node that exited by itself.
fn warning(crash: &Crash) -> String {
    let Crash {
        node,
        at,
        status,
        log_tail,
    } = crash;
    let log = match log_tail.as_str() {
        "" => "; its log is empty".into(),
        tail => format!("; the last lines of its log:\n{tail}"),
    };
    format!("{node} exited by itself after {at} ({status}){log}")
}

/// The result of `doing`; `None` if a stop is requested before it is done.
async fn unless_stopped<T>(stop: &Stop, doing: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        while stop.urgency() == Urgency::None {
            sleep(STOP_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        done = doing => Some(done),
        () = stopped => None,
    }
}

async fn start_nodes(nodes: &Arc<dyn Nodes>, folder: &Path, mesh: &Mesh) -> Result<(), NodeError> {
    nodes.prepare(folder, mesh).await?;
    let mut starting = JoinSet::new();
    for &node in nodes.ids() {
        let nodes = Arc::clone(nodes);
        starting.spawn(async move { nodes.start(node).await });
    }
    while let Some(started) = starting.join_next().await {
        // A panic of a suite is propagated.
        let _: InjectionResult =
            started.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    nodes.formed().await
}

/// Stops all nodes concurrently; returns the errors.
async fn end_nodes(nodes: &Arc<dyn Nodes>) -> Vec<NodeError> {
    let mut ending = JoinSet::new();
    for &node in nodes.ids() {
        let nodes = Arc::clone(nodes);
        ending.spawn(async move { nodes.stop(node).await });
    }
    let ended = ending.join_all().await;
    ended.into_iter().filter_map(Result::err).collect()
}

/// A generator without operations.
fn nothing() -> Box<dyn Generator> {
    Box::new(sequence::<[Box<dyn Generator>; 0]>([]))
}

/// The task of one worker: executes the operations of one thread until their channel closes. An operation that arrives while
/// another is under way means that the interpreter has abandoned that one, so its future is dropped.
async fn work(
    mut worker: Worker,
    thread: Thread,
    mut operations: mpsc::Receiver<Op>,
    completions: mpsc::Sender<(Thread, Op)>,
) {
    let mut next = operations.recv().await;
    while let Some(op) = next {
        let completion = tokio::select! {
            biased;
            completion = worker.execute(&op) => completion,
            following = operations.recv() => {
                worker.abandon();
                next = following;
                continue;
            }
        };
        next = match completions.try_send((thread, completion)) {
            Ok(()) => operations.recv().await,
            Err(_) => None, // the driver has ended
        };
    }
    worker.close().await;
}

/// The task of the nemesis: executes faults until their channel closes.
async fn run_nemesis(
    nemesis: Arc<Mutex<Nemesis>>,
    mut operations: mpsc::Receiver<Op>,
    completions: mpsc::Sender<(Thread, Op)>,
) {
    while let Some(op) = operations.recv().await {
        let completion = nemesis.lock().await.answer(&op).await;
        if completions.try_send((Thread::NEMESIS, completion)).is_err() {
            break; // the driver has ended
        }
    }
}
