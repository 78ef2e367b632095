//! Tasks that depend on one another, run by a fixed number of threads; every step of the executor is a transaction.
//!
//! A task is a body and what it depends on. The body runs once, when its dependencies are done, and gets their values. An
//! error or panic is a value too: it passes from task to task up to one that catches it.
//!
//! ```
//! use seatrial_task::{Executor, TaskError};
//! use std::sync::Arc;
//!
//! let executor = Executor::new(2);
//! let six = executor.submit("six", (), |()| 6);
//! let seven = executor.attempt("seven", (), |()| "7".parse::<i32>());
//! let product = executor.submit("product", (&six, &seven), |(six, seven)| *six * *seven);
//! assert_eq!(*product.join().unwrap(), 42);
//!
//! // Both or none: no other thread sees one without the other, and a panic would undo both.
//! let (lost, sum) = executor.transact(|transaction| {
//!     let lost = transaction.attempt("lost", &six, |_| "seven".parse::<i32>());
//!     let sum = transaction.submit("sum", vec![six.clone(), lost.clone()], |all| {
//!         all.iter().map(|each| **each).sum::<i32>()
//!     });
//!     (lost, sum)
//! });
//! let error = sum.join().unwrap_err();
//! assert_eq!(error.to_string(), "invalid digit found in string");
//! let caught = executor.catch("caught", &sum, |sum| {
//!     Ok::<i32, TaskError>(sum.map_or(0, |sum| *sum))
//! });
//! assert_eq!(*caught.join().unwrap(), 0);
//! # assert!(lost.join().is_err());
//! ```
//!
//! Layers: [`Executor`] and its workers are threads around a lock; it guards a state that knows neither threads nor
//! clocks, and that tests explore step by step.
//!
//! What is absent: no file and no socket; no history (its folds are the users of this crate, in `history`); no queue without
//! a bound: at most [`TASKS_MAX`] tasks are pending, and at most [`WAITING_MAX`] bodies wait inside.

mod dependencies;
mod error;
mod executor;
mod handle;
mod job;
mod label;
mod snapshot;
mod state;
mod transaction;
mod worker;

pub use dependencies::Dependencies;
pub use error::TaskError;
pub use executor::Executor;
pub use handle::{Promise, Task};
pub use label::{Label, Name};
pub use snapshot::{Snapshot, TaskView};
pub use state::{TASKS_MAX, TaskId, TaskState};
pub use transaction::Transaction;

/// Largest number of bodies of an executor that wait for tasks at once; each of them keeps a thread.
pub const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests;
