//! What clients do to data types: endless operations, drawn from one random stream, each with the checker that judges
//! what came out (`seatrial_checker::for_workload` of the same name).
//!
//! ```
//! use seatrial_generator::workload::{DataType, named};
//! use seatrial_generator::{Generator, Simulation};
//! use seatrial_machine::Rng;
//!
//! let DataType { generator, .. } = named("unique-ids", &Rng::from_seed(1)).unwrap();
//! let history = Simulation::perfect(generator.limit(10).clients(), 2).run().unwrap();
//! assert_eq!(history.len(), 20);
//! ```

mod bank;
mod counter;
mod keys;
mod queue;
mod set;
mod unique_ids;

pub use bank::{BankOptions, banks};
pub use counter::counters;
pub use keys::{KeyOptions, RotatingKeys};
pub use queue::{drain, queues};
pub use set::sets;
pub use unique_ids::unique_ids;

use crate::Generator;
use seatrial_machine::Rng;

/// A data type under test.
pub struct DataType {
    /// Its name; that of its checker, or of what [`seatrial_checker::for_workload`] knows.
    ///
    /// [`seatrial_checker::for_workload`]: https://docs.rs/seatrial-checker
    pub name: &'static str,
    /// The clients' operations: without end, without pauses, and without a thought for the nemesis.
    pub generator: Box<dyn Generator>,
    /// What clients do at the very end, when all faults are healed and nothing is under way.
    pub last: Option<Box<dyn Generator>>,
}

/// The names of all data types.
pub const NAMES: [&str; 6] = [
    "set",
    "queue",
    "total-queue",
    "counter",
    "bank",
    "unique-ids",
];

/// The data type called `name`, its random choices drawn from a fork of `rng`.
pub fn named(name: &str, rng: &Rng) -> Option<DataType> {
    let name = NAMES.into_iter().find(|known| *known == name)?;
    let (rng, keys) = (rng.fork(name), KeyOptions::default());
    let generator = match name {
        "set" => sets(rng, keys).boxed(),
        "counter" => counters(rng, keys).boxed(),
        "bank" => banks(rng, BankOptions::default()).boxed(),
        "unique-ids" => unique_ids().boxed(),
        _ => queues(rng).boxed(),
    };
    let is_queue = matches!(name, "queue" | "total-queue");
    Some(DataType {
        name,
        generator,
        last: is_queue.then(|| drain().boxed()),
    })
}

impl std::fmt::Debug for DataType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DataType");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}
