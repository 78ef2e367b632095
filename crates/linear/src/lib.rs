//! Linearizability: does one order of the operations, in which each takes place between its invocation and its
//! completion, explain every result?
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_linear::{Linearizable, Model};
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//!
//! let text = b"{:process 0, :type :invoke, :f :write, :value 1}
//!              {:process 0, :type :ok, :f :write, :value 1}
//!              {:process 1, :type :invoke, :f :read, :value nil}
//!              {:process 1, :type :ok, :f :read, :value nil}";
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! let verdict = Linearizable::new(Model::Register).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid); // the read is stale
//! # Ok::<(), import::ImportError>(())
//! ```
//!
//! # How a history is decided
//!
//! ```text
//!  chunks ─► Gathering ─► LinearObjects ─► one object (key) after another
//!            20 bytes an                     │
//!            operation                       ├─ unique values: a monitor, O(n log n)
//!                                            │    registers: Zones     collections: monitors
//!                                            └─ all others: Search, with states numbered by ObjectStates
//! ```
//!
//! 1. *Gathering* reads each chunk once and keeps no [`Op`](seatrial_history::Op): what a finding names is read again at the end.
//! 2. *Keys* are objects of their own: linearizability is local (Herlihy and Wing 1990, theorem 1).
//! 3. *Operations of unknown outcome* may take effect at any time after their invocation, or never. Those on whose effect nothing
//!    depends are dropped first; each left makes a search dearer.
//! 4. *Monitors* decide registers and collections whose values are unique, whatever the number of clients. A monitor that refutes
//!    an object names a few operations that alone have no order.
//! 5. *The search* is that of Wing and Gong with Lowe's memory of configurations, just in time: see `linearization_search.rs`.
//!    It has a [`Bound`], and at the bound the verdict is unknown.
//!
//! The result says which way was taken (`by_monitor`, `monitor`), and why an object was searched (`search_reason`).
//!
//! # What proves a verdict
//!
//! If a certificate is wanted, a valid verdict comes with the linearization points of all objects: a search has its path,
//! zones are sorted, and the proofs of the other monitors construct an order. An invalid verdict comes with the operations of
//! one object that the verifier (crate `verify`) refutes, and not without any of them.
//!
//! # Your own data type
//!
//! [`SequentialModel`] is a data type by its sequential behaviour; [`check_history`] returns an order of the operations, or those
//! that suffice for a contradiction; [`assert_linearizable`] is for tests.
//!
//! # Files, in reading order
//!
//! - `linearizable`: the checker, its loop over objects, its verdict
//! - `model`: the data types, and what an operation does
//! - `gathering`, `values`, `object`: operations and values as numbers, by key
//! - `object_ranges`, `object_monitor`: objects shared by threads, and the monitor of each
//! - `register_zones`: registers with unique values
//! - `collection_monitor`: collections with unique values, by the crate `monitors`
//! - `search`, `configurations`, `counterexample`: the search
//! - `absorption`, `queue_search`, `bisected_counterexample`: contended registers and FIFO queues
//! - `numbered_states`, `collections`, `text_reads`: states as numbers, of collections, and of appended text
//! - `essential`: the operations that suffice for a violation
//! - `explanation`, `order_excerpt`: a violation in words, and its order as data
//! - `proof_draft`, `core_minimizer`, `model_proof`: certificates
//! - `sequential`: models of the user's own
//! - `history_model`, `model_gathering`, `model_parts`, `model_checker`: a checker of recorded histories for any model
//! - `online`: registers and locks while they are recorded
//! - `online_windows`, `object_window`: all other data types while they are recorded: `collection_window` of queues and bags by
//!   monitors, `configuration_window` and `possible_states` of any model, `plain_objects` the models without a history model
//! - `online_verdict`: the verdict of both
//!
//! # What is absent
//!
//! - No file, clock or randomness; the only input is a [`ChunkSource`](seatrial_history::ChunkSource). Threads only while
//!   `object_ranges` decides several objects at a time; the result does not depend on them.
//! - No transactions and no weaker models: these are in the crates `isolation` and `inference`.
//! - No replay of certificates: the verifier is the crate `verify`.

mod absorption;
mod bisected_counterexample;
mod collection_monitor;
mod collection_window;
mod collections;
mod configuration_window;
mod configurations;
mod core_minimizer;
mod counterexample;
mod essential;
mod explanation;
mod gathering;
mod history_model;
mod linearizable;
mod linearization_search;
mod model;
mod model_checker;
mod model_gathering;
mod model_parts;
mod model_proof;
mod numbered_states;
mod object;
mod object_monitor;
mod object_ranges;
mod object_window;
mod online;
mod online_verdict;
mod online_windows;
mod order_excerpt;
mod plain_objects;
mod possible_states;
mod proof_draft;
mod queue_search;
mod sequential;
mod text_reads;
mod values;

pub use history_model::{
    HistoryModel, ModelCall, MonitorDecision, Refutation, Unfit, ValueNumbers, list_items,
    plain_value,
};
pub use linearizable::Linearizable;
pub use linearization_search::Bound;
pub use model::Model;
pub use model_checker::ModelChecker;
pub use sequential::{
    Linearizability, NoLinearization, ObservedCall, SequentialModel, assert_linearizable,
    check_history,
};

#[cfg(test)]
mod tests;
