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
pub use long_fork::{LongForks, long_forks};
pub use monotonic::monotonics;
pub use options::{WorkloadError, WorkloadOptions};
pub use queue::{drain, queues};
pub use registers::{RegisterOptions, Registers, cas_registers, registers};
pub use set::sets;
pub use transactions::{TransactionOptions, Transactions, list_append, rw_register};
pub use unique_ids::unique_ids;

use crate::Generator;
use seatrial_machine::Rng;

/// One thing that clients can do to a system.
pub struct Workload {
    /// The name that `--workload` takes and that a history carries.
    pub name: &'static str,
    /// The clients' operations: without end, without pauses, and without a thought for the nemesis.
    pub generator: Box<dyn Generator>,
    /// What clients do at the very end, when all faults are healed and nothing is under way.
    pub last: Option<Box<dyn Generator>>,
}

/// The names of all workloads.
pub const NAMES: [&str; 12] = [
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
            _ => queues(rng).boxed(),
        };
        let is_queue = matches!(name, "queue" | "total-queue");
        Ok(Workload {
            name,
            generator,
            last: is_queue.then(|| drain().boxed()),
        })
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Workload");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}
