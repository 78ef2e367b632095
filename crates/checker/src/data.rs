//! Data types with promises that one pass over a history can judge: sets, queues, counters, bank accounts, identifiers,
//! groups of registers, timestamps, locks, logs.
//!
//! Each checker is a fold over the operations in order. Its state is some words per element, never the history, so each
//! judges a history of any size chunk by chunk ([`crate::Streaming`]) and gives the same verdict as on one in memory.
//! Values of independent keys (Jepsen's tuples `[key value]`) are judged key by key, and the findings say of which key
//! they are. Semantics: `jepsen.checker` and `jepsen.tests`.

mod bank;
mod counter;
mod element;
mod judge;
mod lock;
mod log;
mod long_fork;
mod monotonic;
mod outcome;
mod queue;
mod set;
mod set_full;
mod total_queue;
mod unique_ids;

pub use bank::Bank;
pub use counter::Counter;
pub(crate) use judge::{Folded, Judge};
pub use lock::{Discipline, Lock};
pub use log::Log;
pub use long_fork::LongFork;
pub use monotonic::{Agreement, Monotonic};
pub use queue::Queue;
pub use set::Set;
pub use set_full::{SetFull, Visibility};
pub use total_queue::TotalQueue;
pub use unique_ids::UniqueIds;

#[cfg(test)]
mod orders_tests;
#[cfg(test)]
mod tests;
