//! One test from beginning to end.

use crate::driver::{Desk, Drive, Driver};
use crate::nemesis::{Aftermath, Nemesis};
use crate::progress::{Board, Phase, Ticker};
use crate::recorder::{Recorder, in_words};
use crate::stop::Urgency;
use crate::test::{Crash, Evidence, Outcome, RunError, Test};
use crate::timer::Timer;
use crate::watch::{Sighting, Watcher};
use crate::worker::Worker;
use crate::{Effect, Ended, Mesh, NodeError, Nodes, Observer, Seat, Stop, time_name};
use rustix::process::{Resource, getrlimit, setrlimit};
use seatrial_check::{Answer, Ground, Options, SharedSource, Unwatched, prove, proves};
use seatrial_checker::{Aims, Checker, Overview, Verdict};
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

/// How long the workers may take to say good-bye, and the nemesis to finish what it is doing.
const END_LIMIT: Duration = Duration::from_secs(3);
/// How long a task may take to end once it was told to; one that awaits anything ends at once.
const ABORT_LIMIT: Duration = Duration::from_secs(1);
/// Most threads on which clients run.
const CLIENT_THREADS_MAX: usize = 16;
/// How often a stop request is looked for while nodes start.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a test: starts the nodes and waits until they have found together, drives clients and nemesis, heals, ends
/// the nodes, seals the history, and has it judged. Returns when no process of the test is left.
pub fn run(test: Test, observer: Arc<dyn Observer>) -> Result<Outcome, RunError> {
    if test.concurrency == 0 || test.concurrency > THREADS_MAX {
        let count = test.concurrency;
        let text = format!("a test has 1 to {THREADS_MAX} workers, not {count}");
        return Err(RunError::Test(text));
    }
    if test.timeout.is_zero() {
        return Err(RunError::Test(
            "a time-out of nothing leaves no time to answer".into(),
        ));
    }
    raise_file_limit();
    check_threads(client_threads(&test))?;
    let threads = TestThreads::start(client_threads(&test))?;
    let nodes = Arc::clone(&test.nodes);
    let board = Arc::new(Board::default());
    let ticker = Ticker::start(Arc::clone(&board), observer);
    let result = Run::new(test, &threads, board).run();
    threads.world.block_on(async {
        let _ = end_nodes(&nodes).await; // whatever happened: nothing is left behind
    });
    drop(ticker);
    threads.end();
    result
}

/// Runs a test that is never judged.
pub(crate) fn record(test: Test) -> Result<Outcome, RunError> {
    let threads = TestThreads::start(client_threads(&test))?;
    let outcome = Run::new(test, &threads, Arc::default()).record();
    threads.end();
    outcome
}

/// Where the tasks of a test run.
struct TestThreads {
    /// Proxies, probes and the nemesis: one thread for each processor.
    world: Runtime,
    /// The driver, and clients that never block: the calling thread, while it waits for anything here.
    driver: Runtime,
    /// Clients that may block their threads. So that this stops neither proxies nor, as long as few do, other clients, there
    /// are more threads than processors, and they are apart.
    clients: Option<Runtime>,
}

impl TestThreads {
    /// Starts them, with this many threads for clients that may block.
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

    /// Where clients run.
    fn clients(&self) -> &Handle {
        self.clients.as_ref().unwrap_or(&self.driver).handle()
    }

    fn end(self) {
        // A client that blocks its thread keeps it; that is not waited for.
        self.clients
            .into_iter()
            .for_each(Runtime::shutdown_background);
        self.driver.shutdown_background();
        self.world.shutdown_timeout(END_LIMIT);
    }
}

/// Threads for clients: none when all run on the driver's.
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

/// Every connection costs four descriptors: asks for as many as the system lets this user have.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit); // then the usual number has to do
}

/// Threads beside those of proxies and clients: the driver's, the history's, progress, nodes, checkers.
const OTHER_THREADS: usize = 8;

/// Makes sure that this process may have all threads of a test, before anything depends on one: a runtime that lacks its
/// threads waits for ever for work that none of them does.
fn check_threads(clients: usize) -> Result<(), RunError> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let count = workers + clients + OTHER_THREADS;
    let mut threads = Vec::with_capacity(count);
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let mut made = Ok(());
    for number in 0..count {
        let gate = Arc::clone(&gate);
        // All of them wait until the last one is there or refused.
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
        let _ = thread.join(); // it does nothing that could panic
    }
    made
}

/// A test under way.
struct Run<'a> {
    test: Test,
    threads: &'a TestThreads,
    board: Arc<Board>,
    mesh: Mesh,
}

/// The tasks of a test, and how the driver reaches them.
struct Crew {
    desks: Vec<Desk>,
    nemesis: Arc<Mutex<Nemesis>>,
    completions: mpsc::Receiver<(Thread, Op)>,
    tasks: Tasks,
}

/// What carries out operations and faults.
struct Tasks {
    clients: JoinSet<()>,
    nemesis: JoinSet<()>,
}

impl<'a> Run<'a> {
    fn new(test: Test, threads: &'a TestThreads, board: Arc<Board>) -> Run<'a> {
        let world = threads.world.handle().clone();
        let mesh = if test.breaks_network {
            Mesh::new(world)
        } else {
            Mesh::without_proxies(world)
        };
        Run {
            test,
            threads,
            board,
            mesh,
        }
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        self.start_nodes()?;
        let mut outcome = self.record()?;
        if outcome.ended != Ended::Aborted {
            self.check(&mut outcome)?;
        }
        Ok(outcome)
    }

    /// Everything between the start of the nodes and the judgement.
    fn record(&mut self) -> Result<Outcome, RunError> {
        let attributes = self.attributes();
        let path = self.test.folder.history();
        let write_error = |reason: String| RunError::Write {
            path: path.clone(),
            reason,
        };
        let writer = HistoryWriter::create(&path, &attributes);
        let writer = writer.map_err(|error| write_error(in_words(&error)))?;
        let recorder = Recorder::start(Box::new(writer)).map_err(|error| RunError::Bench {
            what: "a thread for the history",
            error,
        })?;
        let workers = self.open_clients()?;
        let began = Instant::now();
        let watcher = self.watch(&path, began)?;
        let crew = self.crew(workers, began);
        self.board.begin(began);
        self.board.set_phase(Phase::Running);
        let (drive, nemesis, tasks) = self.drive(crew, recorder, began)?;
        let load = began.elapsed();
        self.board.set_phase(Phase::Ending);
        let (aftermath, deaths) = self.end(nemesis, tasks, drive.ended, drive.deaths);
        drive.recorder.finish().map_err(write_error)?;
        let watched = watcher.filter(|_| drive.ended != Ended::Aborted);
        let watched = watched.map(Watcher::finish).unwrap_or_default();
        if let Some(failure) = drive.failure {
            return Err(RunError::Generator(failure));
        }
        let crashes = deaths.into_iter().map(|death| Crash {
            node: death.node,
            at: Time::ZERO + death.at.saturating_duration_since(began),
            status: death.status,
            log_tail: death.log_tail,
        });
        let mut outcome = Outcome {
            ended: drive.ended,
            folder: self.test.folder.path().to_owned(),
            history_path: self.test.folder.history(),
            attributes,
            verdicts: watched.verdicts,
            proofs: Vec::new(),
            overview: Overview::default(),
            results: Json::Null,
            counts: self.board.counts(),
            load,
            checked_in: Duration::ZERO,
            faults: aftermath.records,
            crashes: crashes.collect(),
            sighting: watched.sighting,
            warnings: aftermath.warnings,
        };
        outcome.warnings.extend(cut_short(&outcome));
        outcome
            .warnings
            .extend(rate_missed(self.test.rate, &outcome));
        let sighting = outcome.sighting.iter().map(Sighting::sentence);
        outcome.warnings.extend(sighting);
        if let Some(error) = watched.error {
            let text = format!("no checker ran during the test: {error}");
            outcome.warnings.push(text);
        }
        outcome.warnings.extend(outcome.crashes.iter().map(warning));
        Ok(outcome)
    }

    /// Those who judge while the test runs, if there are any.
    fn watch(&mut self, path: &Path, began: Instant) -> Result<Option<Watcher>, RunError> {
        let watch = std::mem::take(&mut self.test.watch);
        if watch.checkers.is_empty() {
            return Ok(None);
        }
        let watcher = Watcher::start(path.to_owned(), watch, self.test.stop.clone(), began);
        watcher.map(Some).map_err(|error| RunError::Bench {
            what: "a thread for a checker",
            error,
        })
    }

    /// Starts all nodes at once; gives up when told to stop.
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

    fn attributes(&self) -> Json {
        let mut attributes = self.test.attributes.clone();
        let mut put = |name: &str, value: Json| {
            attributes.entry(name).or_insert(value);
        };
        put("started", json!(time_name(SystemTime::now())));
        let ids = self.test.nodes.ids().iter();
        put(
            "nodes",
            json!(ids.map(NodeId::to_string).collect::<Vec<_>>()),
        );
        put("concurrency", json!(self.test.concurrency));
        put("timeout_ms", json!(self.test.timeout.as_millis() as u64));
        put("seed", json!(self.test.seed));
        put("version", json!(env!("CARGO_PKG_VERSION")));
        Json::Object(attributes)
    }

    /// The workers, their first clients opened as far as that succeeded.
    fn open_clients(&self) -> Result<Vec<Worker>, RunError> {
        let mut opening = JoinSet::new();
        for number in 0..self.test.concurrency {
            let seat = self.seat(number)?;
            let clients = Arc::clone(&self.test.clients);
            let mut worker = Worker::new(seat, clients, self.test.timeout);
            let open = async move {
                worker.open_early(Process::Client(number.into())).await;
                (number, worker)
            };
            opening.spawn_on(open, self.threads.clients());
        }
        // Each worker keeps to the time-out, unless its client blocks the thread.
        let limit = self.test.timeout * 2 + END_LIMIT;
        let opening = async { timeout(limit, opening.join_all()).await };
        let opened = self
            .threads
            .driver
            .block_on(unless_stopped(&self.test.stop, opening));
        let opened = opened.ok_or(RunError::Stopped)?;
        let mut workers = opened.map_err(|_| {
            let text = "a client blocks its thread and is not opened in time";
            RunError::Test(text.into())
        })?;
        workers.sort_by_key(|(number, _)| *number);
        Ok(workers.into_iter().map(|(_, worker)| worker).collect())
    }

    fn seat(&self, number: u32) -> Result<Seat, RunError> {
        let ids = self.test.nodes.ids();
        let endpoint = NodeId::client(number);
        let mut seat = Seat {
            endpoint,
            node: Seat::NOWHERE,
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            mesh: self.mesh.clone(),
        };
        if !ids.is_empty() {
            seat.node = ids[number as usize % ids.len()];
            let route = self.mesh.route(endpoint, seat.node);
            seat.address = route.map_err(|error| RunError::Bench {
                what: "a port for a client's connections",
                error,
            })?;
        }
        Ok(seat)
    }

    /// Starts a task for each worker and one for the nemesis.
    fn crew(&self, workers: Vec<Worker>, began: Instant) -> Crew {
        // A worker that was given up may answer twice before the driver looks.
        let (answers, completions) = mpsc::channel(2 * (workers.len() + 1));
        let mut clients = JoinSet::new();
        let mut desks = Vec::new();
        for (number, worker) in workers.into_iter().enumerate() {
            let (inbox, orders) = mpsc::channel(1);
            let node = Some(worker.node()).filter(|node| *node != Seat::NOWHERE);
            desks.push(Desk::new(inbox, node.map(|node| node.to_string())));
            let task = work(worker, Thread(number as u32), orders, answers.clone());
            clients.spawn_on(task, self.threads.clients());
        }
        let nemesis = Nemesis::new(
            Arc::clone(&self.test.nodes),
            self.mesh.clone(),
            Rng::from_seed(self.test.seed).fork("nemesis"),
            Arc::clone(&self.board),
            began,
        );
        let nemesis = Arc::new(Mutex::new(nemesis));
        let (inbox, orders) = mpsc::channel(1);
        let torment = torment(Arc::clone(&nemesis), orders, answers);
        let mut tasks = Tasks {
            clients,
            nemesis: JoinSet::new(),
        };
        tasks.nemesis.spawn_on(torment, self.threads.world.handle());
        desks.push(Desk::new(inbox, None));
        Crew {
            desks,
            nemesis,
            completions,
            tasks,
        }
    }

    fn drive(
        &mut self,
        crew: Crew,
        recorder: Recorder,
        began: Instant,
    ) -> Result<(Drive, Arc<Mutex<Nemesis>>, Tasks), RunError> {
        let generator = std::mem::replace(&mut self.test.generator, nothing());
        let rng = Rng::from_seed(self.test.seed).fork("interpreter");
        let options = InterpreterOptions {
            // The worker keeps to the time-out; this is for one that does not answer at all.
            operation_timeout: Some(self.test.timeout * 2 + END_LIMIT),
            drain_timeout: self.test.timeout * 2 + END_LIMIT,
            ..InterpreterOptions::new(self.test.concurrency, rng)
        };
        let _inside = self.threads.driver.enter();
        let driver = Driver {
            interpreter: Interpreter::new(generator, &options),
            began,
            desks: crew.desks,
            completions: crew.completions,
            recorder,
            timer: Timer::new().map_err(|error| RunError::Bench {
                what: "a timer",
                error,
            })?,
            nodes: Arc::clone(&self.test.nodes),
            board: Arc::clone(&self.board),
            stop: self.test.stop.clone(),
        };
        let drive = self.threads.driver.block_on(driver.drive());
        Ok((drive, crew.nemesis, crew.tasks))
    }

    /// Ends the tasks, heals, ends the nodes. Returns what the nemesis saw, and all deaths.
    fn end(
        &self,
        nemesis: Arc<Mutex<Nemesis>>,
        mut tasks: Tasks,
        ended: Ended,
        mut deaths: Vec<crate::Death>,
    ) -> (Aftermath, Vec<crate::Death>) {
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
            deaths.extend(self.test.nodes.take_deaths());
            let failures = end_nodes(&self.test.nodes).await;
            let mut aftermath = match Arc::into_inner(nemesis) {
                Some(nemesis) => nemesis.into_inner().finish(),
                None => Aftermath::default(),
            };
            let failures = failures.into_iter().map(|error| error.to_string());
            aftermath.warnings.extend(failures);
            if left > 0 {
                let text = format!(
                    "clients that blocked their threads to the end and were left behind: {left}"
                );
                aftermath.warnings.push(text);
            }
            (aftermath, deaths)
        })
    }

    /// Has the history judged and keeps the results.
    fn check(&self, outcome: &mut Outcome) -> Result<(), RunError> {
        self.board.set_phase(Phase::Checking);
        let path = &outcome.history_path;
        let read_error = |reason: String| RunError::Read {
            path: path.clone(),
            reason,
        };
        let source = outcome.source();
        let source = source.map_err(|error| read_error(in_words(&error)))?;
        let began = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let known = std::mem::take(&mut outcome.verdicts);
        let answer = self.answer(&source, threads, known);
        let (answer, proofs) = answer.map_err(|error| read_error(in_words(&*error)))?;
        outcome.proofs = proofs;
        outcome.verdicts = answer.verdicts;
        outcome.overview = answer.overview;
        outcome.checked_in = began.elapsed();
        outcome.results = (self.test.results)(&Evidence {
            attributes: &outcome.attributes,
            overview: &outcome.overview,
            verdicts: &outcome.verdicts,
            warnings: &outcome.warnings,
            checked_in: outcome.checked_in,
            sighting: outcome.sighting.as_ref(),
        });
        self.keep(&outcome.results)
    }

    /// Checks the history chunk by chunk. A checker that ran beside the test, whose verdict is known, does not run again, unless
    /// it is to prove it.
    fn answer(
        &self,
        source: &SharedSource,
        threads: usize,
        mut known: Vec<Verdict>,
    ) -> Result<(Answer, Vec<(String, Certificate)>), SourceError> {
        let certify = self.test.certify;
        known.retain(|verdict| !(certify && proves(verdict.checker)));
        let is_known =
            |checker: &dyn Checker| known.iter().any(|one| one.checker == checker.name());
        let checkers = self.test.checkers.iter().map(AsRef::as_ref);
        let left: Vec<&dyn Checker> = checkers.filter(|one| !is_known(*one)).collect();
        let options = Options {
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
        let mut found = answer.verdicts.into_iter().chain(known);
        let mut found: Vec<Verdict> = found.by_ref().collect();
        let place = |verdict: &Verdict| {
            let mut names = self.test.checkers.iter().map(|one| one.name());
            names.position(|name| name == verdict.checker)
        };
        found.sort_by_key(place);
        answer.verdicts = found;
        let ground = Ground {
            accept_undecided: self.test.accept_undecided,
            ..Ground::default()
        };
        ground.settle(&mut answer.verdicts, &answer.overview);
        Ok((answer, proofs))
    }

    /// Writes the results beside the history and into it.
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
        kept.map_err(|error| results_error(&path, in_words(&error)))
    }
}

/// Says so of a run that was asked to end before its plan did: its verdict is on what was recorded until then.
fn cut_short(outcome: &Outcome) -> Option<String> {
    // A violation that ends a test has a sentence of its own.
    let is_asked = outcome.ended == Ended::Stopped && outcome.sighting.is_none();
    is_asked.then(|| {
        let seconds = outcome.load.as_secs_f64();
        format!("the run was cut short after {seconds:.1} s: the verdict is on what was recorded until then")
    })
}

/// Says so of a run with fewer operations a second than were asked for.
fn rate_missed(asked: Option<f64>, outcome: &Outcome) -> Option<String> {
    let counts = outcome.counts;
    let (made, seconds) = (counts.invoked, outcome.load.as_secs_f64());
    let (asked, expected) = (asked?, asked? * seconds);
    // Intervals are random: the number of operations of a short run is off by three deviations at most.
    let slack = 3.0 * (expected / 3.0).sqrt();
    let is_missed = (made as f64) < expected * RATE_SHARE - slack;
    is_missed.then(|| {
        let rate = made as f64 / seconds;
        format!(
            "{asked} operations a second were asked for, {rate:.0} were made: no client was free in time, or nothing was to be done"
        )
    })
}

/// What counts as the rate that was asked for.
const RATE_SHARE: f64 = 0.98;

impl Tasks {
    /// Ends all that have not ended by themselves. The number of clients that cannot be ended: they do not give back their
    /// threads.
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

/// What a reader should know of a node that ended by itself.
fn warning(crash: &Crash) -> String {
    let Crash {
        node,
        at,
        status,
        log_tail,
    } = crash;
    let log = match log_tail.as_str() {
        "" => "; it wrote nothing to its log".into(),
        tail => format!("; the last lines of its log:\n{tail}"),
    };
    format!("{node} ended by itself after {at} ({status}){log}")
}

/// What `doing` gives; `None` when a stop is asked for before.
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
        // A panic of a suite goes on here.
        let _: Effect =
            started.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    nodes.formed().await
}

/// Ends all nodes at once; what went wrong with it.
async fn end_nodes(nodes: &Arc<dyn Nodes>) -> Vec<NodeError> {
    let mut ending = JoinSet::new();
    for &node in nodes.ids() {
        let nodes = Arc::clone(nodes);
        ending.spawn(async move { nodes.stop(node).await });
    }
    let ended = ending.join_all().await;
    ended.into_iter().filter_map(Result::err).collect()
}

/// A generator that has nothing to do.
fn nothing() -> Box<dyn Generator> {
    Box::new(sequence::<[Box<dyn Generator>; 0]>([]))
}

/// Carries out what one thread is ordered to, until there are no more orders. An order that comes while another is
/// carried out means that the interpreter has given that one up.
async fn work(
    mut worker: Worker,
    thread: Thread,
    mut orders: mpsc::Receiver<Op>,
    answers: mpsc::Sender<(Thread, Op)>,
) {
    let mut next = orders.recv().await;
    while let Some(op) = next {
        let completion = tokio::select! {
            biased;
            completion = worker.carry_out(&op) => completion,
            order = orders.recv() => {
                worker.abandon();
                next = order;
                continue;
            }
        };
        next = match answers.try_send((thread, completion)) {
            Ok(()) => orders.recv().await,
            Err(_) => None, // the driver has ended
        };
    }
    worker.close().await;
}

/// Carries out faults, until there are no more orders.
async fn torment(
    nemesis: Arc<Mutex<Nemesis>>,
    mut orders: mpsc::Receiver<Op>,
    answers: mpsc::Sender<(Thread, Op)>,
) {
    while let Some(op) = orders.recv().await {
        let completion = nemesis.lock().await.answer(&op).await;
        if answers.try_send((Thread::NEMESIS, completion)).is_err() {
            break; // the driver has ended
        }
    }
}
