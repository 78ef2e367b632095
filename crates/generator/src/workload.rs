//! What clients do: endless operations, drawn from one random stream, each workload with the checker that judges what came
//! out (`seatrial_checker::for_workload` of the same name).
//!
//! ```
//! use seatrial_generator::workload::{Workload, WorkloadOptions};
//! use seatrial_generator::{Generator, Simulation};
//! use seatrial_machine::Rng;
//!
//! let options = WorkloadOptions {
//!     key_count: Some(3),
//!     ..WorkloadOptions::default()
//! };
//! let Workload { generator, .. } = Workload::new("list-append", &Rng::from_seed(1), &options)?;
//! let history = Simulation::perfect(generator.limit(10).clients(), 2).run().unwrap();
//! assert_eq!(history.len(), 20);
//! # Ok::<(), seatrial_generator::workload::WorkloadError>(())
//! ```

mod bank;
mod counter;
mod keys;
mod last;
mod locks;
mod logs;
mod long_fork;
mod monotonic;
mod options;
mod queue;
mod registers;
mod set;
mod transactions;
mod unique_ids;

pub use bank::{BankOptions, banks};
pub use counter::counters;
pub use keys::{KeyOptions, RotatingKeys};
pub use last::{drain, final_read, final_reads};
pub use locks::{Locks, REFUSALS_MAX, locks};
pub use logs::{LastPolls, LogOptions, Logs, POLLS_MAX, logs};
pub use long_fork::{LongForks, long_forks};
pub use monotonic::monotonics;
pub use options::{WorkloadError, WorkloadOptions};
pub use queue::queues;
pub use registers::{RegisterOptions, Registers, cas_registers, registers};
pub use set::sets;
pub use transactions::{TransactionOptions, Transactions, list_append, rw_register};
pub use unique_ids::unique_ids;

use crate::Generator;
use seatrial_machine::Rng;

/// One thing that clients can do to a system.
#[derive(Debug)]
pub struct Workload {
    /// The name that `--workload` takes and that a history carries.
    pub name: &'static str,
    /// The clients' operations: without end, without pauses, and without a thought for the nemesis.
    pub generator: Box<dyn Generator>,
    /// What clients do at the very end, when all faults are healed and nothing is under way. It is to be shown the events
    /// of the whole test ([`crate::Course::and_last`] does that).
    pub last: Option<Box<dyn Generator>>,
}

/// The names of all workloads.
pub const NAMES: [&str; 15] = [
    "register",
    "cas-register",
    "list-append",
    "rw-register",
    "set",
    "queue",
    "total-queue",
    "counter",
    "bank",
    "unique-ids",
    "long-fork",
    "monotonic",
    "mutex",
    "lock",
    "log",
];

impl Workload {
    /// The workload called `name`, its random choices drawn from a fork of `rng`.
    pub fn new(
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, WorkloadError> {
        let known = NAMES.into_iter().find(|known| *known == name);
        let name = known.ok_or_else(|| WorkloadError::Unknown { name: name.into() })?;
        options.check(name)?;
        let rng = rng.fork(name);
        let mut last_polls = None;
        let generator = match name {
            "register" => registers(rng, options.register()).boxed(),
            "cas-register" => cas_registers(rng, options.register()).boxed(),
            "list-append" => list_append(rng, options.transaction()).boxed(),
            "rw-register" => rw_register(rng, options.transaction()).boxed(),
            "set" => sets(rng, options.keys(KeyOptions::default())).boxed(),
            "counter" => counters(rng, options.keys(KeyOptions::default())).boxed(),
            "bank" => banks(rng, BankOptions::default()).boxed(),
            "unique-ids" => unique_ids().boxed(),
            "long-fork" => long_forks(rng, 2).boxed(),
            "monotonic" => monotonics(rng, options.keys(KeyOptions::default())).boxed(),
            "mutex" | "lock" => locks(rng, options.keys(KeyOptions::default()), 1).boxed(),
            "log" => {
                let usual = LogOptions::default();
                let keys = options.keys(usual.keys);
                let (logs, polls) = logs(rng, LogOptions { keys, ..usual });
                last_polls = Some(polls.clients().synchronize().boxed());
                logs.boxed()
            }
            _ => queues(rng).boxed(),
        };
        let last = match name {
            "set" | "counter" | "monotonic" => Some(final_reads().boxed()),
            "bank" => Some(final_read().boxed()),
            "queue" | "total-queue" => Some(drain().boxed()),
            _ => last_polls,
        };
        Ok(Workload {
            name,
            generator,
            last,
        })
    }
}
