//! Workloads: the operations that clients perform, each with a name that also selects its checker.
//!
//! A workload is an endless generator drawn from one random stream, and a final generator, which reads what is left when
//! all faults are healed. `seatrial_check::for_workload` has the checker of the same name.
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
mod final_operations;
mod locks;
mod logs;
mod long_fork;
mod monotonic;
mod queue;
mod register;
mod rotating_keys;
mod set;
mod transactions;
mod unique_ids;
mod workload_options;

pub use bank::{BankOptions, banks};
pub use counter::counters;
pub use final_operations::{drain, final_read, final_reads};
pub use locks::{LockWorkload, REFUSALS_MAX, locks};
pub use logs::{FinalPolls, LogOptions, LogWorkload, POLLS_MAX, logs};
pub use long_fork::{LongForks, long_forks};
pub use monotonic::monotonics;
pub use queue::queues;
pub use register::{RegisterOptions, Registers, cas_registers, registers};
pub use rotating_keys::{KeyOptions, RotatingKeys};
pub use set::sets;
pub use transactions::{TransactionOptions, TxnWorkload, list_append, rw_register};
pub use unique_ids::unique_ids;
pub use workload_options::{WorkloadError, WorkloadOptions};

use crate::Generator;
use Changeable::{Keys, Nothing, Transactions as Txns};
use seatrial_machine::Rng;

/// A workload: its name and its generators.
#[derive(Debug)]
pub struct Workload {
    /// The name, as in `--workload` and in the attributes of a history.
    pub name: &'static str,
    /// The clients' operations: endless, without pauses, and not restricted to client threads.
    pub generator: Box<dyn Generator>,
    /// The final operations, for the time when all faults are healed and no operation is open. This generator must
    /// receive the events of the whole test ([`crate::TestPhases::with_final`] does that).
    pub last: Option<Box<dyn Generator>>,
}

/// One row of the [table](TABLE) of workloads.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadRow {
    /// The name that `--workload` and plans take.
    pub name: &'static str,
    /// Its operations, in one line, for help texts.
    pub about: &'static str,
    /// The options that it accepts.
    pub options: Changeable,
    make: fn(Rng, &WorkloadOptions) -> Made,
}

/// The options that a workload accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changeable {
    /// None.
    Nothing,
    /// The options of keys.
    Keys,
    /// The options of keys, and the length of transactions.
    Transactions,
}

/// The generator of a workload, and its final generator.
type Made = (Box<dyn Generator>, Option<Box<dyn Generator>>);

const fn row(
    name: &'static str,
    about: &'static str,
    options: Changeable,
    make: fn(Rng, &WorkloadOptions) -> Made,
) -> WorkloadRow {
    WorkloadRow {
        name,
        about,
        options,
        make,
    }
}

/// The keys of a workload that has no defaults of its own.
fn plain_keys(options: &WorkloadOptions) -> KeyOptions {
    options.keys(KeyOptions::default())
}

/// All workloads. Names, help texts, accepted options and constructors are read from this table; the checkers are in
/// `seatrial_check::for_workload`.
#[rustfmt::skip]
pub const TABLE: [WorkloadRow; 15] = [
    row("register", "reads and writes of registers under keys", Keys,
        |rng, options| (registers(rng, options.register()).boxed(), None)),
    row("cas-register", "the same with compare-and-set", Keys,
        |rng, options| (cas_registers(rng, options.register()).boxed(), None)),
    row("list-append", "transactions of reads and appends (Elle)", Txns,
        |rng, options| (list_append(rng, options.transaction()).boxed(), None)),
    row("rw-register", "transactions of reads and writes (Elle)", Txns,
        |rng, options| (rw_register(rng, options.transaction()).boxed(), None)),
    row("set", "additions to sets, and reads of whole sets", Keys,
        |rng, options| (sets(rng, plain_keys(options)).boxed(), Some(final_reads().boxed()))),
    row("queue", "enqueue and dequeue; elements come out at most once", Nothing,
        |rng, _| (queues(rng).boxed(), Some(drain().boxed()))),
    row("total-queue", "enqueue and dequeue; every element comes out once in the end", Nothing,
        |rng, _| (queues(rng).boxed(), Some(drain().boxed()))),
    row("counter", "additions to counters, and reads", Keys,
        |rng, options| (counters(rng, plain_keys(options)).boxed(), Some(final_reads().boxed()))),
    row("bank", "transfers between accounts, and reads of all balances", Nothing,
        |rng, _| (banks(rng, BankOptions::default()).boxed(), Some(final_read().boxed()))),
    row("unique-ids", "identifiers, each to be given out once", Nothing,
        |_, _| (unique_ids().boxed(), None)),
    row("long-fork", "writes of single registers, and reads of groups", Nothing,
        |rng, _| (long_forks(rng, 2).boxed(), None)),
    row("monotonic", "rows with rising numbers and the system's timestamps", Keys,
        |rng, options| (monotonics(rng, plain_keys(options)).boxed(), Some(final_reads().boxed()))),
    row("mutex", "acquire and release by the same client", Keys,
        |rng, options| (locks(rng, plain_keys(options), 1).boxed(), None)),
    row("lock", "the same; a success may return a fence", Keys,
        |rng, options| (locks(rng, plain_keys(options), 1).boxed(), None)),
    row("log", "sends to logs and polls of them, in transactions", Keys,
        |rng, options| {
            let defaults = LogOptions::default();
            let keys = options.keys(defaults.keys);
            let (logs, polls) = logs(rng, LogOptions { keys, ..defaults });
            (logs.boxed(), Some(polls.clients().synchronize().boxed()))
        }),
];

/// The names of all workloads.
pub const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TABLE[at].name;
        at += 1;
    }
    names
};

impl Workload {
    /// The workload called `name`, its random choices drawn from a fork of `rng`.
    pub fn new(
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, WorkloadError> {
        let known = TABLE.iter().find(|known| known.name == name);
        let row = known.ok_or_else(|| WorkloadError::Unknown { name: name.into() })?;
        options.check(row.name)?;
        let (generator, last) = (row.make)(rng.fork(row.name), options);
        Ok(Workload {
            name: row.name,
            generator,
            last,
        })
    }
}
