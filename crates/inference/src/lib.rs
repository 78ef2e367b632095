//! Anomalies of transactions on lists and registers: dependencies between transactions are inferred from their reads (Adya 1999;
//! Elle: Kingsbury and Alvaro 2020), and their graph is searched for cycles.
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_cycles::Level;
//! use seatrial_inference::ListAppend;
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//!
//! // Both transactions read the empty list and append to it: one update is lost.
//! let text = b"{:process 0 :type :invoke :f :txn :value [[:r 1 nil] [:append 1 1]]}
//!              {:process 1 :type :invoke :f :txn :value [[:r 1 nil] [:append 1 2]]}
//!              {:process 0 :type :ok :f :txn :value [[:r 1 []] [:append 1 1]]}
//!              {:process 1 :type :ok :f :txn :value [[:r 1 []] [:append 1 2]]}";
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! let verdict = ListAppend::new(Level::SnapshotIsolation).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! assert_eq!(verdict.anomalies["lost-update"], 1);
//! let verdict = ListAppend::new(Level::ReadCommitted).check(&history);
//! assert_eq!(verdict.valid, Validity::Valid);
//! # Ok::<(), import::ImportError>(())
//! ```
//!
//! [`G1`] and [`ListAppend`] take the order of versions from reads of lists. [`RwRegister`] infers what it can; where that
//! decides nothing, it asks [`Isolation`](seatrial_isolation::Isolation), which searches for an order exactly.
//!
//! ```text
//!               version orders           dependency edges         cycles            verdict
//! list-append   longest reads      ──►  ww, wr, rw, process, ──► crate `cycles` ──► graph_verdict
//! rw-register   assumptions, chains     real time                    │ none
//!               (Inference)                                          └──► an order that proves the level, or open questions
//! ```
//!
//! # Files, in reading order
//!
//! - `graph_verdict`: the verdict that a dependency graph makes
//! - `g1`: aborted, intermediate, garbage and internal reads of lists, in a few bits per element
//! - `list_append`: lists, window by window; its own page has the order of its files
//! - `rw_register`: registers: the orders of versions, their edges, the reasons of each step, and what proves a verdict
//!
//! # What is absent
//!
//! - No file, thread, clock or socket, and no randomness.
//! - No search for cycles: the crate `cycles` finds and classifies them. No exact search for an order: that is `isolation`.
//! - No assumption about the database that was tested, except those that a caller passes as [`Inference`]; a finding that rests
//!   on one says so.
//! - No verifier: of `verify` only the types of certificates are used. `check` verifies each certificate before it is kept.

mod g1;
mod graph_verdict;
mod list_append;
mod rw_register;

pub use g1::G1;
pub use list_append::{ListAppend, Windows};
pub use rw_register::{Inference, RwRegister, UnknownInference};
