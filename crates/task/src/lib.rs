//! Tasks that depend on one another, on a fixed number of threads; every step of the executor is a transaction.
//!
//! ```text
//!   read chunk 0 ──► count ─┐                a task runs once, when its dependencies are done, and receives their values
//!   read chunk 1 ──► count ─┴─► sum ──► join()
//! ```
//!
//! # Tasks
//!
//! A [`Task`] has a label, dependencies and a body. Dependencies are tasks, tuples and lists of them; the body receives
//! values of the same shape. No thread blocks on a dependency: a task enters the queue when its last dependency is done.
//!
//! ```
//! use seatrial_task::Executor;
//!
//! let executor = Executor::new(2);
//! let six = executor.submit("six", (), |()| 6);
//! let seven = executor.attempt("seven", (), |()| "7".parse::<i32>());
//! let product = executor.submit("product", (&six, &seven), |(six, seven)| *six * *seven);
//! assert_eq!(*product.join().unwrap(), 42);
//! ```
//!
//! # Errors are values
//!
//! The error or panic of a body becomes the outcome of its task and of all its dependants, whose bodies do not run, up to a
//! task that catches it:
//!
//! ```
//! use seatrial_task::{Executor, TaskError};
//!
//! let executor = Executor::new(1);
//! let fails = executor.attempt("fails", (), |()| "seven".parse::<i32>());
//! let skipped = executor.submit("skipped", &fails, |number| *number + 1);
//! let caught = executor.catch("caught", &skipped, |number| {
//!     Ok::<i32, TaskError>(number.map_or(0, |number| *number))
//! });
//! assert_eq!(skipped.join().unwrap_err().to_string(), "invalid digit found in string");
//! assert_eq!(*caught.join().unwrap(), 0);
//! ```
//!
//! # Transactions
//!
//! [`Executor::transact`] submits, cancels and keeps promises in one step: other threads and the workers see all of it or,
//! if the closure panics, nothing.
//!
//! ```
//! use seatrial_task::Executor;
//!
//! let executor = Executor::new(2);
//! let (promise, input) = executor.promise::<u64>("input");
//! let sum = executor.transact(|transaction| {
//!     let left = transaction.submit("left", &input, |input| *input + 1);
//!     let right = transaction.submit("right", &input, |input| *input + 2);
//!     transaction.submit("sum", (&left, &right), |(left, right)| *left + *right)
//! });
//! assert_eq!(executor.task_count(), 4); // the promise, left, right, sum
//! promise.keep(10);
//! assert_eq!(*sum.join().unwrap(), 23);
//! ```
//!
//! # Cancellation
//!
//! Cancelling a task cancels its dependants. A pending body never runs; a running one is not interrupted, but its result is
//! dropped. Both have the outcome [`TaskError::Cancelled`] at once. Dropping the last handle of an executor cancels all
//! pending tasks.
//!
//! # What this crate never does
//!
//! - It opens no file and no socket, and reads no clock except for the limit of [`Task::join_deadline`].
//! - It knows no history: folds, its users, are in the crate `history`.
//! - It runs no foreign code under its lock, except the closures of transactions.
//! - It has no unbounded queue: at most [`TASKS_MAX`] tasks are pending, and at most [`WAITING_MAX`] bodies wait for tasks.
//! - It never interrupts a body, and never runs one twice.
//!
//! # Files in reading order
//!
//! 1. `task_graph.rs`: the state machine: tasks, edges, ready queue, the open transaction; without threads
//! 2. `task_cell.rs`: the body and outcome of one task
//! 3. `executor.rs`, `worker_thread.rs`: the lock and the threads around both
//! 4. `task_transaction.rs`: steps that take effect together
//! 5. `handle.rs`, `dependencies.rs`, `label.rs`, `snapshot.rs`, `error.rs`: what callers use
//!
//! Tests explore every interleaving of small programs on the state machine (`tests/explore.rs`), compare it with a naive twin
//! at every step (`tests/twin.rs`), and must find each planted bug.

mod dependencies;
mod error;
mod executor;
mod handle;
mod label;
mod snapshot;
mod task_cell;
mod task_graph;
mod task_transaction;
mod worker_thread;

pub use dependencies::Dependencies;
pub use error::TaskError;
pub use executor::Executor;
pub use handle::{Promise, Task};
pub use label::{Label, TaskName};
pub use snapshot::{Snapshot, TaskView};
pub use task_graph::{TASKS_MAX, TaskId, TaskState};
pub use task_transaction::TaskTransaction;

/// Most bodies of an executor that may wait for tasks at a time; each occupies a thread.
pub const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests;
