//! Data types that one pass over a history can check: sets, queues, counters, bank accounts, identifiers, groups of
//! registers, timestamps, locks, logs.
//!
//! Each checker is a fold over the operations in order. Its state is a few words per element, never the history, so it checks
//! a history of any size chunk by chunk ([`crate::OnlineChecker`]) with the same verdict as on a history in memory. Values of
//! independent keys (Jepsen's tuples `[key value]`) are checked key by key, and each finding names its key. Semantics:
//! `jepsen.checker` and `jepsen.tests`.
//!
//! Reading order: `data_type` (the trait and its fold), `verdict_builder` (what a checker reports to), `element`, then one file
//! for each data type.

mod bank;
mod counter;
mod data_type;
mod dense_table;
mod disk_cache;
mod element;
mod element_map;
mod lock;
mod log;
mod long_fork;
mod monotonic;
mod queue;
mod set;
mod set_full;
mod total_queue;
mod unique_ids;
mod verdict_builder;

pub use bank::Bank;
pub use counter::Counter;
pub use disk_cache::DiskCache;
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
