//! What to do next: pure generators, contexts, the pure interpreter.
//!
//! A [`Generator`] says which operation comes next; combinators build large ones from small ones. The [`Interpreter`]
//! is a machine that owns a generator and the truth about the threads, hands out operations to workers and takes
//! their completions. Nothing here has a clock, a thread or a file: the same interpreter drives a real test
//! (`seatrial-runner`) and a simulated one (`seatrial-sim`).
//!
//! ```
//! use seatrial_generator::{any, function, operation, Generator, Simulation};
//! use seatrial_history::Value;
//! use seatrial_machine::Rng;
//! use std::time::Duration;
//!
//! let rng = Rng::from_seed(7);
//! let writes = function({
//!     let mut rng = rng.fork("writes");
//!     move || Some(operation("write", Value::Int(rng.below(5) as i64)))
//! });
//! let clients = writes.stagger(rng.fork("stagger"), Duration::from_millis(10)).limit(20).clients();
//! let kill = operation("kill", Value::Nil).delay(Duration::from_millis(50)).nemesis();
//! let generator = any(rng.fork("any"), [clients.boxed(), kill.boxed()]);
//!
//! let history = Simulation::perfect(generator, 2).run().unwrap();
//! assert_eq!(history.len(), 42);
//! ```

mod combine;
mod context;
mod course;
mod distribution;
mod each;
mod faults;
mod generator;
mod interpreter;
mod lots;
mod partition;
mod react;
mod rhythm;
mod schedule;
mod simulation;
mod validate;
pub mod workload;

pub use combine::{
    Any, Filter, FlipFlop, Function, Map, Mix, Phases, Sequence, Then, any, cycle, flip_flop,
    function, function_of, mix, phases, sequence, shortest_any, weighted_mix,
};
pub use context::{Context, THREADS_MAX, Thread, ThreadFilter, ThreadSet, Threads};
pub use course::{Course, CourseOptions, course};
pub use distribution::{Distribution, Places, Skew};
pub use each::{EachProcess, SequentialKeys, each_process, sequential_keys};
pub use faults::{
    FaultError, FaultOptions, FaultOrder, FaultPackage, FaultSchedule, Healing, NotAFault, Target,
    View, fault_of, fault_operation, fault_package, fault_value, parse_fault, view_of, view_value,
};
pub use generator::{
    Generator, LOG, Next, SLEEP, Template, Tree, is_special, log, not_before, operation, sleep,
};
pub use interpreter::{Event, Interpreter, InterpreterOptions, Step};
pub use partition::{
    ConcurrentKeys, EachThread, OnThreads, ProcessLimit, Reserve, concurrent_keys, each_thread,
    reserve,
};
pub use react::{FriendlyExceptions, OnUpdate, Promise, Promised, Trace, Traced, promise, renamed};
pub use rhythm::{Cache, ConcurrencyLimit, CycleTimes, DelayTil, cycle_times};
pub use schedule::{Delay, Limit, Repeat, Stagger, Synchronize, TimeLimit, UntilOk};
pub use simulation::{Answer, Simulation};
pub use validate::{Failure, Validate};
