//! Data types whose recorded histories are checked for linearizability: sets, logs, semaphores, locks, tables, arrays of
//! registers.
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_data_models::SetModel;
//! use seatrial_history::{History, Op, OpType, Process, Value};
//! use seatrial_linear::ModelChecker;
//!
//! let add = Op::invoke(Process::Client(0), "add", Value::Int(5));
//! let contains = Op::invoke(Process::Client(1), "contains", Value::Int(5));
//! let history = History::from_unindexed(vec![
//!     add.clone(),
//!     add.complete(OpType::Ok, Value::Bool(true)),
//!     contains.clone(),
//!     contains.complete(OpType::Ok, Value::Bool(false)),
//! ]);
//! let verdict = ModelChecker::new(SetModel).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! ```
//!
//! # How a history is decided
//!
//! Each type is a [`HistoryModel`](seatrial_linear::HistoryModel): what its operations are in a recorded history, what they do
//! one after another, and a faster method than the search where there is one. [`ModelChecker`](seatrial_linear::ModelChecker)
//! does the rest.
//!
//! # Files, in reading order
//!
//! - `set_model`, `set_elements`, `set_reads`: sets; elements that are added once; reads of the whole set
//! - `append_log_model`, `log_offsets`: logs; those whose appends have offsets
//! - `semaphore_model`, `lock_model`: semaphores, and locks with owners and fences
//! - `register_array`: registers that operations access several at a time, block devices
//! - `table_model`: a data type that a table of states and operations states
//!
//! # What is absent
//!
//! - No replay of certificates: the verifier (crate `verify`) has models of its own.
//! - No checks before the end of a history.

mod append_log_model;
mod lock_model;
mod log_offsets;
mod register_array;
mod semaphore_model;
mod set_elements;
mod set_model;
mod set_reads;
mod table_model;

pub use append_log_model::{AppendLogModel, LogOperation};
pub use lock_model::{LockHolding, LockModel, LockOperation};
pub use register_array::{ArrayAccess, RegisterArray, RegisterOperation};
pub use semaphore_model::{SemaphoreModel, SemaphoreOperation};
pub use set_model::{SetAction, SetModel, SetOperation};
pub use table_model::{StateTableRow, TableError, TableModel, TableOperation};

#[cfg(test)]
mod tests;
