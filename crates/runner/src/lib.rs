//! Runs tests in the real world: starts nodes, drives clients and faults, records the history, checks it.
//!
//! # What a test is
//!
//! A [`Test`] is data, and [`run`] executes it. Its parts:
//!
//! - **Nodes** ([`Nodes`]): the system under test as processes that can be started, stopped and made to fail; [`ProcessNodes`]
//!   for local processes, [`NoNodes`] if the system is inside the clients.
//! - **Clients** ([`Clients`], [`Client`]): send one operation at a time to the system and return its completion.
//! - **Generator** ([`Generator`](seatrial_generator::Generator)): chooses the operations, their times and the faults; it sees
//!   every completion.
//! - **Nemesis**: executes the operations of the thread `nemesis`: injects faults into nodes and links, and verifies their
//!   effect.
//! - **History** ([`RunFolder`]): the test file with every invocation and completion, in the order in which they happened.
//! - **Checkers** ([`Checker`](seatrial_checker::Checker), [`LiveChecks`]): decide after the test, or during it, whether the
//!   history satisfies the consistency models.
//!
//! # The life of a run
//!
//! ```text
//!  phase      what happens                                                                            ends when
//!  Starting   nodes start and form a system; each worker opens its first client                      all are ready
//!  Running    the generator's operations and faults are executed and recorded                        the generator is exhausted
//!  Draining   after a stop request: no new operation, those under way complete                       none is under way
//!  Ending     workers close their clients, faults are healed, nodes stop, the history is sealed      no process is left
//!  Checking   the checkers read the sealed test file, chunk by chunk; results are written            all have a verdict
//! ```
//!
//! One task owns the interpreter, and everything else talks to it over bounded channels:
//!
//! ```text
//!  thread of the caller                                  threads "client" (≤ 16), or the caller's if clients never block
//!  ┌────────────────────────────────┐   Op, room for 1    ┌───────────────────────────────────────┐
//!  │ Driver                         │ ──────────────────► │ Worker 0: its client, its timer       │ ── proxy ──► node 1
//!  │  owns Interpreter (generator)  │ ──────────────────► │ Worker 1                              │ ── proxy ──► node 2
//!  │       HistoryRecorder, Timer   │ ◄────────────────── │ …                                     │
//!  │  loop: wait, feed completions, │  (Thread, Op)       └───────────────────────────────────────┘
//!  │        wake, carry out steps   │                     ┌── runtime "world": one thread per processor ──┐
//!  │                                │ ──────────────────► │ Nemesis: fault records, warnings              │
//!  └───────────┬────────────────────┘ ◄────────────────── │ Mesh: proxies of all links                    │
//!              │ batches of 1,024                         │ ProcessNodes: readiness, ends of processes    │
//!              ▼                                          └───────────────────────────────────────────────┘
//!  thread "history": HistoryWriter ─► test file ─► thread "live-check": follows the file, may stop the test
//!  thread "progress": reads counters, calls the Observer every 200 ms
//!  thread "fork": starts all child processes; one thread per child waits for its end
//! ```
//!
//! The driver owns the order of the history: an operation is recorded when the interpreter invokes it and when the interpreter
//! receives its completion, never by the worker itself. So each invocation in the file precedes its completion, and the times of
//! a thread never decrease.
//!
//! # Indeterminate operations, and why a process id changes
//!
//! A completion has one of three types. `ok`: the operation took place. `fail`: it did not and never will. `info`: the outcome is
//! unknown, because the operation timed out, or the connection was lost after the request had been sent. Such an *indeterminate*
//! operation may take effect at any later time, even after the end of the test: a packet may still be in a buffer. For the
//! checker it stays concurrent with everything after its invocation.
//!
//! A process is logically single-threaded: it invokes its next operation only after the completion of the last one. A process
//! whose operation is indeterminate is therefore never used again. Its *thread* (the worker) continues as a new process, whose id
//! is the old one plus the number of threads: thread 3 of 10 is process 3, then 13, then 23. The worker closes the client and
//! opens a new one for the new process, because the old connection may still deliver the reply of the old operation.
//!
//! An operation whose client cannot be opened is a `fail`: it was certainly never sent. Report `fail` only then, or when the
//! system says so. A `fail` for an operation that took place makes a checker report violations that do not exist; an `info` for
//! one that failed only makes it weaker and slower.
//!
//! # Time-outs and rates
//!
//! [`Test::timeout`] bounds each operation. The worker enforces it: it drops the future of the client, and the completion is
//! `info` with the error `timeout`. A client that blocks its thread cannot be interrupted that way; the interpreter abandons its
//! operation after twice the time-out plus 3 s. At the end of the test such a client is abandoned with a warning.
//!
//! The rate is the generator's: `stagger(rng, mean)` draws intervals between invocations, uniform from zero to twice the mean.
//! The load is partly open: an operation that is due waits for a free worker, so a slow system gets fewer operations. State the
//! requested rate in [`Test::rate`], and a run that made less than 98 % of it gets a warning. Choose the concurrency as rate ×
//! latency, and some more. A worker whose operations fail in a row pauses for 10 ms to 160 ms, so that a dead node does not flood
//! the history.
//!
//! # Writing a client
//!
//! This system is a register in memory, which loses the connection after each fifth write. A client maps an operation to a
//! request, and the reply to a completion:
//!
//! ```
//! use seatrial_check::MinimumLoad;
//! use seatrial_checker::Validity;
//! use seatrial_linear::{Linearizable, Model};
//! use seatrial_generator::{Generator, function, mix, operation};
//! use seatrial_history::{Op, OpType, Process, TestFile, Value};
//! use seatrial_machine::Rng;
//! use seatrial_runner::{
//!     BoxFuture, Client, ClientError, ClientSlot, Clients, LiveChecks, NoNodes, RunFolder, Stop, Test, TestNetwork,
//!     TestProgress, plain_results, run,
//! };
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! /// The system: a register, and the number of writes so far.
//! #[derive(Clone, Default)]
//! struct Register(Arc<Mutex<(Option<i64>, u64)>>);
//!
//! impl Clients for Register {
//!     fn open<'a>(&'a self, _slot: &'a ClientSlot) -> BoxFuture<'a, Result<Box<dyn Client>, ClientError>> {
//!         // A client of a server connects to `slot.address` here.
//!         Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Client>) })
//!     }
//!
//!     fn never_block(&self) -> bool {
//!         true
//!     }
//! }
//!
//! impl Client for Register {
//!     fn invoke<'a>(&'a mut self, op: &'a Op) -> BoxFuture<'a, Result<Op, ClientError>> {
//!         Box::pin(async move {
//!             let mut register = self.0.lock().unwrap();
//!             if op.f == "read" {
//!                 let value = register.0.map_or(Value::Nil, Value::Int);
//!                 return Ok(op.complete(OpType::Ok, value));
//!             }
//!             register.0 = op.value.as_int();
//!             register.1 += 1;
//!             if register.1 % 5 == 0 {
//!                 return Err("connection lost".into()); // recorded as info: the write may have taken place
//!             }
//!             Ok(op.complete(OpType::Ok, op.value.clone()))
//!         })
//!     }
//! }
//!
//! let path = std::env::temp_dir().join(format!("seatrial-doc-{}", std::process::id()));
//! let rng = Rng::from_seed(7);
//! let mut next = 0;
//! let writes = function(move || {
//!     next += 1;
//!     Some(operation("write", Value::Int(next)))
//! });
//! let reads = operation("read", Value::Nil).repeat();
//! let load = mix(rng.fork("mix"), [writes.boxed(), reads.boxed()]);
//! let load = load.stagger(rng.fork("stagger"), Duration::from_millis(1)); // 1,000 operations per second
//!
//! let outcome = run(
//!     Test {
//!         attributes: serde_json::Map::new(),
//!         folder: RunFolder::open(&path)?,
//!         nodes: Arc::new(NoNodes),
//!         clients: Arc::new(Register::default()),
//!         concurrency: 3,
//!         timeout: Duration::from_secs(1),
//!         generator: load.limit(200).clients().boxed(),
//!         breaks_network: false,
//!         network: TestNetwork::default(),
//!         rate: None,
//!         limiting_rate: None,
//!         checkers: vec![Box::new(Linearizable::new(Model::Register))],
//!         watch: LiveChecks::default(),
//!         accept_undecided: false,
//!         minimum: MinimumLoad::default(),
//!         folder_checks: Vec::new(),
//!         certify: false,
//!         seed: 7,
//!         stop: Stop::new(),
//!         results: Box::new(plain_results),
//!     },
//!     Arc::new(|_: &TestProgress| {}),
//! )?;
//!
//! assert_eq!(outcome.validity(), Validity::Valid);
//! assert_eq!(outcome.counts.completed(), 200);
//! assert!(outcome.counts.info > 0);
//! // After each indeterminate write its thread continued as another process.
//! let history = TestFile::open(&outcome.history_path)?.history()?;
//! assert!(history.ops().iter().any(|op| op.process == Process::Client(4)));
//! # std::fs::remove_dir_all(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A client of a real server differs in two points: it connects to [`ClientSlot::address`], which is a proxy of the [`Mesh`], and
//! it maps each error of its protocol to `fail` or `info`. Suites for other systems begin at the crate `suite`.
//!
//! # Reading order
//!
//! 1. `test_definition.rs`, `client.rs`, `test_nodes.rs`: the definition of a test.
//! 2. `run.rs`: the phases, threads and tasks.
//! 3. `driver.rs` and `worker.rs`: one operation from the interpreter to the client and back.
//! 4. `history_recorder.rs`: from the driver to the file.
//! 5. `nemesis.rs`, `process.rs` with `child.rs`, `mesh.rs` with `mesh/pump.rs`: faults of processes and links.
//! 6. `watch.rs`, `progress.rs`, `stop.rs`, `timer.rs`, `run_folder.rs`: as needed. `plan_source.rs` reads tests from TOML.
//!
//! # What is absent
//!
//! - No state of the generator or of threads: the interpreter (crate `generator`) has it, and a simulated test uses the same one.
//! - No queue without a bound: a worker has room for one operation, the driver for two completions per worker, the history for 64
//!   batches, the observer for 1,000 messages.
//! - No worker writes to the history, and the driver writes to no file.
//! - No checker shares memory with the test: it reads the test file.
//! - No child process outlives the runner, in whatever way that ends: the kernel kills it. A process that a child forked does,
//!   on loopback, if the runner is killed; in namespaces none does.
//! - No signal reaches a pid that may belong to another process.
//! - No knowledge of a system under test: suites implement [`System`] and [`Clients`].
//! - No fault without a record: a fault without effect is recorded with the reason, and a kind that never had one is a warning.

mod child;
mod client;
mod damage;
mod driver;
mod history_recorder;
mod interpreter_bench;
mod json_page;
mod leaders;
mod load_limit;
mod mesh;
mod moving_timer;
mod nemesis;
mod node_log;
mod node_ports;
mod node_power;
mod plan_source;
mod process;
mod process_tree;
mod program;
mod progress;
mod run;
mod run_folder;
mod states;
mod stop;
mod test_definition;
mod test_nodes;
mod timer;
mod watch;
mod worker;

pub use child::Child;
pub use client::{BoxFuture, Client, ClientError, ClientSlot, Clients};
pub use driver::Ended;
pub use interpreter_bench::{BenchFigures, bench_interpreter};
pub use json_page::json_page;
pub use leaders::{LeaderChange, Leaders};
pub use load_limit::LoadLimit;
pub use mesh::{LinkControl, Mesh, Meter};
pub use moving_timer::MovingTimer;
pub use nemesis::FaultRecord;
pub use node_log::tail as log_tail;
pub use plan_source::{PlanError, PlanSource};
pub use process::{NodeLimits, NodePlace, NodeStreams, ProcessNodes, System, SystemMembers};
pub use program::{OrdinaryUser, ProgramMissing, ServerProgram};
pub use progress::{Observer, OperationCounts, Phase, TestProgress};
pub use run::run;
pub use run_folder::{FolderError, RunFolder, time_name};
pub use rustix::process::Signal;
pub use seatrial_host::ClockOrder;
pub use seatrial_namespace::{NetworkKind, NodeNetwork, NodeNetworkOptions, NodeSpace};
pub use states::{StateAnswer, state_operation};
pub use stop::{Stop, Urgency};
pub use test_definition::{
    Crash, FolderCheck, MakeResults, RunError, Test, TestEvidence, TestNetwork, TestOutcome,
    plain_results,
};
pub use test_nodes::{Death, InjectionResult, NoNodes, NodeError, NodeState, Nodes};
pub use watch::{LiveChecks, Sighting};
