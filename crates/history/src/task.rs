//! Tasks that depend on one another, in threads: an executor whose every step is a transaction.
//!
//! A task is a body and what it depends on. The body runs once, when its dependencies are done, and gets their values. An
//! error or panic is a value too: it passes from task to task up to one that catches it.
//!
//! ```
//! use seatrial_history::task::{Executor, TaskError};
//! use std::sync::Arc;
//!
//! let executor = Executor::new(2);
//! let six = executor.submit("six", (), |()| 6);
//! let seven = executor.attempt("seven", (), |()| "7".parse::<i32>());
//! let product = executor.submit("product", (&six, &seven), |(six, seven)| *six * *seven);
//! assert_eq!(*product.join().unwrap(), 42);
//!
//! // Both or none: nobody sees one without the other, and a panic would take both back.
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
//! Layers: [`Executor`] and its workers are threads around a lock; in it lies a state that knows neither threads nor
//! clocks, and that tests explore step by step.

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

/// So many bodies of an executor may wait for tasks at once, each keeping a thread.
pub const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests;
