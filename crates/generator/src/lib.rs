//! Generators: the operations of a test as pure values, and the interpreter that runs them.
//!
//! A test is a long sequence of operations: clients read and write, a nemesis injects faults. A [`Generator`] is a value
//! that describes this sequence. It performs nothing: it is asked for the next operation in a [`Context`], and updated
//! with each event. So generators are composed like iterators, their schedules can be printed before anything runs, and the
//! same value drives a simulated test and a real one.
//!
//! This page is a tutorial. It grows one operation into a whole test; every example runs, and its output is asserted.
//!
//! # One operation
//!
//! [`operation`] is the smallest generator: one operation, once. [`Simulation::perfect`] runs a generator in virtual time,
//! here with two client threads; every operation succeeds after 10 ns.
//!
//! ```
//! use seatrial_generator::{operation, Generator, Simulation};
//! use seatrial_history::{History, Value};
//!
//! /// Time, process, type, operation and value of each element of a history.
//! fn schedule(history: &History) -> Vec<String> {
//!     let line = |op: &seatrial_history::Op| {
//!         format!("{} {} {} {} {}", op.time, op.process, op.kind.name(), op.f, op.value)
//!     };
//!     history.iter().map(line).collect()
//! }
//!
//! let write = operation("write", Value::Int(1)).clients();
//! let history = Simulation::perfect(write, 2).run()?;
//! assert_eq!(schedule(&history), ["0 1 invoke write 1", "10 1 ok write 1"]);
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! The free thread is drawn at random: here thread 1 with its process 1. `clients` restricts a generator to client threads;
//! without it the operation could also go to the nemesis.
//!
//! # Many operations
//!
//! [`Generator::repeat`] repeats one operation, [`sequence`] runs one generator after another, and [`function`] calls a
//! function for each new operation. All of them are endless or as long as their input; [`Generator::limit`] ends them.
//! Random values come from a stream that the function owns, so the same seed gives the same operations.
//!
//! ```
//! # use seatrial_generator::{function, operation, Generator, Simulation};
//! # use seatrial_history::Value;
//! use seatrial_machine::Rng;
//!
//! let mut rng = Rng::from_seed(1).fork("writes");
//! let writes = function(move || Some(operation("write", Value::Int(rng.below(5) as i64))));
//! let history = Simulation::perfect(writes.limit(4).clients(), 2).run()?;
//! let lines: Vec<String> = history
//!     .iter()
//!     .map(|op| format!("{} {} {}", op.time, op.process, op.kind.name()))
//!     .collect();
//! // Two threads: two operations begin at once, and the next two when those have ended.
//! assert_eq!(lines[..4], ["0 1 invoke", "0 0 invoke", "10 1 ok", "10 0 ok"]);
//! assert_eq!(history.len(), 8);
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! # Time
//!
//! An operation has a time. A generator without a schedule proposes operations for the current time, as fast as threads
//! become free. [`Generator::delay`] and [`Generator::stagger`] propose operations in the future; the interpreter waits.
//!
//! ```text
//!   limit(6)                      ││ ││ ││                    two threads, each busy for 10 ns
//!   .delay(20 ns)                 │    │    │    │    │       exact intervals
//!   .stagger(rng, 20 ns)          │  │       │ │     │        intervals uniform in 0..40 ns
//!   .delay_til(40 ns)             ││        ││        ││      multiples of 40 ns: many threads at the same instant
//! ```
//!
//! ```
//! # use seatrial_generator::{operation, Generator, Simulation};
//! # use seatrial_history::Value;
//! use std::time::Duration;
//!
//! let reads = operation("read", Value::Nil).repeat().delay(Duration::from_nanos(20));
//! let history = Simulation::perfect(reads.limit(4).clients(), 2).run()?;
//! let begins = history.iter().filter(|op| op.is_invoke()).map(|op| op.time);
//! assert_eq!(begins.collect::<Vec<_>>(), [0, 20, 40, 60]);
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! # Contexts, threads and processes
//!
//! A generator sees the test through a [`Context`]: the current time, the [`Thread`]s that it may use, which of them are
//! free, and the process that each runs. A thread is a worker and lives as long as the test. A process is what a history
//! knows: it has at most one open operation. When the outcome of an operation is unknown (`info`), its process has crashed,
//! and the thread continues with a new process, whose number is larger by the number of client threads:
//!
//! ```text
//!   thread 0   ├─ process 0 ──────── info ┤├─ process 2 ──── info ┤├─ process 4 …
//!   thread 1   ├─ process 1 ────────────────────────────────────────────────────
//!   nemesis    ├─ process :nemesis ─────────────────────────────────────────────
//! ```
//!
//! The combinators that restrict threads ([`Generator::on_threads`], [`reserve`], [`each_thread`], [`concurrent_keys`]) pass
//! a context with fewer threads to the generator inside, which cannot see the others.
//!
//! # A nemesis beside the clients
//!
//! [`any`] asks several generators and takes the operation that is due first. With `clients` and `nemesis` this runs two
//! schedules side by side:
//!
//! ```
//! # use seatrial_generator::{any, operation, Generator, Simulation};
//! # use seatrial_history::Value;
//! # use seatrial_machine::Rng;
//! # use std::time::Duration;
//! let rng = Rng::from_seed(7);
//! let ms = Duration::from_millis;
//! let clients = operation("read", Value::Nil).repeat().delay(ms(10)).limit(8).clients();
//! let nemesis = operation("kill", Value::text("n1")).repeat().delay(ms(30)).limit(2).nemesis();
//! let test = any(rng.fork("any"), [clients.boxed(), nemesis.boxed()]);
//!
//! let history = Simulation::perfect(test, 2).run()?;
//! let kills = history.iter().filter(|op| op.f == "kill").step_by(2);
//! assert_eq!(kills.map(|op| op.time / 1_000_000).collect::<Vec<_>>(), [0, 30]);
//! assert_eq!(history.clients().len(), 16);
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! ```text
//!   clients   │    │    │    │    │    │    │    │          every 10 ms
//!   nemesis   kill           kill                           every 30 ms; the clients' schedule is the same without it
//! ```
//!
//! # Phases
//!
//! [`phases`] runs generators one after another, with a barrier between them: the next one begins when all threads are
//! free. This is how a test writes first, then breaks the system, then reads what is left.
//!
//! ```
//! # use seatrial_generator::{operation, phases, sequence, sleep, Generator, Simulation};
//! # use seatrial_history::Value;
//! # use std::time::Duration;
//! let add = |number| operation("add", Value::Int(number));
//! let test = phases([
//!     sequence((1..=3).map(add)).clients().boxed(),
//!     sequence([
//!         operation("kill", Value::text("n1")).boxed(),
//!         sleep(Duration::from_nanos(100)).boxed(),
//!         operation("restart", Value::text("n1")).boxed(),
//!     ])
//!     .nemesis()
//!     .boxed(),
//!     operation("read", Value::Nil).clients().boxed(),
//! ]);
//! let history = Simulation::perfect(test, 2).run()?;
//! let mut begun = history.iter().map(|op| (op.time, op.f.as_str())).collect::<Vec<_>>();
//! begun.dedup();
//! assert_eq!(
//!     begun,
//!     [
//!         (0, "add"), (10, "add"), (20, "add"),        // three additions by two threads
//!         (20, "kill"), (30, "kill"),                  // when all additions have completed
//!         (130, "restart"), (140, "restart"),          // the nemesis has slept for 100 ns
//!         (140, "read"), (150, "read"),
//!     ]
//! );
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! # A whole test
//!
//! [`workload::Workload`] has the operations of common tests, [`fault_package`] the faults with their healing, and
//! [`test_phases`] the order in which a real test runs them:
//!
//! ```text
//!            ├────────── duration ──────────┼──── recovery ────┤
//!   clients  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
//!   nemesis  ··kill·····cut····heal···kill···restart n1 n2 n3, heal
//!   final                                                       │ read everything once more
//! ```
//!
//! ```
//! use seatrial_generator::workload::{Workload, WorkloadOptions};
//! use seatrial_generator::{
//!     fault_package, test_phases, FaultOptions, Generator, Simulation, TestPhasesOptions,
//! };
//! use seatrial_machine::{FaultKind, NodeId, Rng};
//! use std::time::Duration;
//!
//! let rng = Rng::from_seed(3);
//! let workload = Workload::new("set", &rng, &WorkloadOptions::default())?;
//! let clients = workload.generator.stagger(rng.fork("rate"), Duration::from_millis(5));
//!
//! let kinds = [FaultKind::Kill, FaultKind::Partition];
//! let nodes = [1, 2, 3].map(NodeId::server);
//! let faults = FaultOptions::new(kinds, nodes, [], Duration::from_millis(200));
//! let faults = fault_package(faults, rng.fork("faults"));
//!
//! let options = TestPhasesOptions {
//!     duration: Duration::from_secs(2),
//!     recovery: Duration::from_secs(1),
//! };
//! let test = test_phases(clients, Some(faults), options);
//! let test = test.with_final(workload.last, Duration::from_secs(1));
//!
//! let history = Simulation::perfect(test, 5).run().expect("a valid generator");
//! let (faults, healing): (Vec<_>, Vec<_>) = history
//!     .iter()
//!     .filter(|op| !op.process.is_client())
//!     .step_by(2) // each is recorded twice: when it begins and when it ends
//!     .partition(|op| op.time < 2_000_000_000);
//! assert!(faults.len() > 5);
//! let healing: Vec<String> = healing.iter().map(|op| format!("{} {}", op.f, op.value)).collect();
//! assert_eq!(healing, ["heal nil", "restart \"n1\"", "restart \"n2\"", "restart \"n3\""]);
//! assert_eq!(history.ops().last().map(|op| op.f.as_str()), Some("read"));
//! # Ok::<(), seatrial_generator::workload::WorkloadError>(())
//! ```
//!
//! A kind of fault has a *package*, which knows how to inject and to heal it, and the nodes or links to choose from
//! ([`FaultTarget`]). A *schedule* ([`FaultSchedule`]) gives the packages their turns, in one of three [`FaultOrder`]s. A
//! fault is an operation with plain data as its value; [`fault_of`] decodes it, in `runner` as in `sim`, so one schedule is
//! simulated, run for real, recorded and replayed.
//!
//! # Combinators by purpose
//!
//! | purpose | combinators |
//! | --- | --- |
//! | one operation | [`operation`], [`sleep`], [`log`] |
//! | more of them | [`repeat`], [`function`], [`cycle`] |
//! | one after another | [`sequence`], [`phases`], [`then`], [`synchronize`] |
//! | several at once | [`any`], [`shortest_any`], [`mix`], [`weighted_mix`], [`flip_flop`], [`cycle_times`] |
//! | an end | [`limit`], [`once`], [`time_limit`], [`until_ok`], [`process_limit`] |
//! | a rate | [`stagger`], [`delay`], [`delay_til`], [`concurrency_limit`] |
//! | some threads | [`clients`], [`nemesis`], [`on_threads`], [`reserve`] |
//! | a copy for each | [`each_thread`], [`each_process`], [`concurrent_keys`], [`sequential_keys`] |
//! | a change | [`map`], [`filter`], [`f_map`] |
//! | a reaction | [`on_update`], [`promise`] |
//! | debugging | [`trace`], [`validate`], [`friendly_exceptions`] |
//! | a whole test | [`workload`], [`fault_package`], [`test_phases`] |
//!
//! [`clients`]: Generator::clients
//! [`concurrency_limit`]: Generator::concurrency_limit
//! [`delay`]: Generator::delay
//! [`delay_til`]: Generator::delay_til
//! [`f_map`]: Generator::f_map
//! [`filter`]: Generator::filter
//! [`friendly_exceptions`]: Generator::friendly_exceptions
//! [`limit`]: Generator::limit
//! [`map`]: Generator::map
//! [`nemesis`]: Generator::nemesis
//! [`on_threads`]: Generator::on_threads
//! [`on_update`]: Generator::on_update
//! [`once`]: Generator::once
//! [`process_limit`]: Generator::process_limit
//! [`repeat`]: Generator::repeat
//! [`stagger`]: Generator::stagger
//! [`synchronize`]: Generator::synchronize
//! [`then`]: Generator::then
//! [`time_limit`]: Generator::time_limit
//! [`trace`]: Generator::trace
//! [`until_ok`]: Generator::until_ok
//! [`validate`]: Generator::validate
//!
//! # A generator of your own
//!
//! A combinator implements four methods. `next` proposes, `commit` takes what was proposed, `update` receives every event,
//! `tree` names it in messages. The rules are those of [`Generator`]: above all, `next` is idempotent.
//!
//! ```
//! use seatrial_generator::{operation, Context, Generator, Next, Simulation, Tree};
//! use seatrial_history::{Op, Symbol, Value};
//!
//! /// Reads until a read returns a value.
//! struct ReadUntilFound {
//!     is_found: bool,
//! }
//!
//! impl Generator for ReadUntilFound {
//!     fn next(&mut self, context: &Context) -> Next {
//!         if self.is_found {
//!             return Next::Exhausted;
//!         }
//!         context.operation(Symbol::new("read"), Value::Nil) // pending while no thread is free
//!     }
//!
//!     fn commit(&mut self) {}
//!
//!     fn update(&mut self, _context: &Context, event: &Op) {
//!         self.is_found |= event.is_ok() && event.value != Value::Nil;
//!     }
//!
//!     fn tree(&self) -> Tree {
//!         Tree::leaf("read until found")
//!     }
//! }
//!
//! let mut reads = 0;
//! let interpreter = seatrial_generator::Interpreter::new(
//!     ReadUntilFound { is_found: false }.clients(),
//!     &seatrial_generator::InterpreterOptions::new(1, seatrial_machine::Rng::from_seed(0)),
//! );
//! let history = Simulation::new(interpreter, move |op: &Op| {
//!     reads += 1;
//!     let value = if reads == 3 { Value::Int(7) } else { Value::Nil };
//!     let latency = std::time::Duration::from_nanos(10);
//!     seatrial_generator::SimulatedReply::After(latency, seatrial_history::OpType::Ok, value)
//! })
//! .run()?;
//! assert_eq!(history.len(), 6); // three reads
//! # Ok::<(), Box<seatrial_generator::GeneratorFailure>>(())
//! ```
//!
//! # The interpreter
//!
//! [`Interpreter`] is the machine that runs a generator: it owns the state of all [`Threads`], hands operations to workers,
//! records invocations and completions, and ends operations that time out. A driver passes it completions and the time,
//! and carries out its replies: [`Simulation`] in virtual time, `seatrial-runner` with real clients.
//!
//! ```text
//!   seed ─► Generator ──op──► Interpreter ──Invoke──► worker ─► client ─► system under test
//!               ▲                │    ▲                                        │
//!               └──── update ────┘    └──────────── Completed ─────────────────┘
//!                                │
//!                                └─ Record ─► history
//! ```
//!
//! # Reading order of the files
//!
//! 1. `generator.rs`: the trait, its protocol, single operations.
//! 2. `context.rs`: threads, processes, contexts; thread sets as bitmaps.
//! 3. `combine.rs`, with `weighted_order.rs` (random choice), then `schedule.rs`, `timing.rs`, `hooks.rs`.
//! 4. `partition.rs` and `per_process.rs`: combinators that divide threads, processes and keys.
//! 5. `validate_operations.rs`, `interpreter.rs`, `generator_simulation.rs`: how a generator is run.
//! 6. `faults.rs` and its folder; `workload.rs` and its folder, with `key_distribution.rs`; `test_phases.rs` joins both.
//!
//! `docs/guide/generators.md` lists the golden schedule of each combinator and the differences from Jepsen.
//!
//! # What is absent
//!
//! - This crate never reads a clock, never sleeps, starts no thread and opens no file or socket. Time is an input.
//! - It never reads randomness of the operating system: all choices come from forked streams of one seed.
//! - The operations of clients never depend on the generators beside them, only on the events of clients.
//! - A generator never sees an operation of a thread outside its context, and never changes the state of a thread.
//! - The interpreter records no operation that was not committed, and commits none that it does not record (except
//!   [`sleep`] and [`log`]). It writes no history: the driver does.
//! - No input to the interpreter makes it fail or panic: an invalid generator ends the test with a message.

mod combine;
mod context;
mod faults;
mod generator;
mod generator_simulation;
mod hooks;
mod interpreter;
mod key_distribution;
mod partition;
mod per_process;
mod schedule;
mod test_phases;
mod timing;
mod validate_operations;
mod weighted_order;
pub mod workload;

pub use combine::{
    Any, Filter, FlipFlop, Function, GeneratorSequence, Map, Mix, Phases, Then, any, cycle,
    flip_flop, function, function_of, mix, phases, sequence, shortest_any, weighted_mix,
};
pub use context::{Context, THREADS_MAX, Thread, ThreadFilter, ThreadSet, Threads};
pub use faults::{
    FaultError, FaultOptions, FaultOrder, FaultPackage, FaultSchedule, FaultTarget, Healing,
    Membership, NotAFault, fault_of, fault_operation, fault_package, fault_value, membership_of,
    membership_value, parse_fault,
};
pub use generator::{
    Generator, LOG, Next, SLEEP, SingleOp, Tree, is_special, log, not_before, operation, sleep,
};
pub use generator_simulation::{SimulatedReply, Simulation};
pub use hooks::{
    FriendlyExceptions, GeneratorPromise, OnUpdate, PromisedGenerator, Trace, Traced, promise,
    renamed,
};
pub use interpreter::{Interpreter, InterpreterOptions, InterpreterReply, InterpreterRequest};
pub use key_distribution::{KeyDistribution, Places, Skew};
pub use partition::{
    ConcurrentKeys, EachThread, OnThreads, ProcessLimit, Reserve, concurrent_keys, each_thread,
    reserve,
};
pub use per_process::{EachProcess, SequentialKeys, each_process, sequential_keys};
pub use schedule::{Delay, Limit, Repeat, Stagger, Synchronize, TimeLimit, UntilOk};
pub use test_phases::{TestPhases, TestPhasesOptions, test_phases};
pub use timing::{Cache, ConcurrencyLimit, CycleTimes, DelayTil, cycle_times};
pub use validate_operations::{GeneratorFailure, Validate};
