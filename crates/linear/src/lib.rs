//! Linearizability: does one order of the operations, in which each takes place between its invocation and its
//! completion, explain every result?
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_linear::{Linearizable, Model};
//! use seatrial_interchange::import::{self, Format, Options};
//!
//! let text = b"{:process 0, :type :invoke, :f :write, :value 1}
//!              {:process 0, :type :ok, :f :write, :value 1}
//!              {:process 1, :type :invoke, :f :read, :value nil}
//!              {:process 1, :type :ok, :f :read, :value nil}";
//! let history = import::read("run.edn", text, Format::Edn, Options::default())?;
//! let verdict = Linearizable::new(Model::Register).check(&history);
//! assert_eq!(verdict.valid, Validity::Invalid); // the read is stale
//! # Ok::<(), import::ImportError>(())
//! ```

mod collection_monitor;
mod collections;
mod configurations;
mod counterexample;
mod explanation;
mod gathering;
mod linearizable;
mod model;
pub mod monitors;
mod object;
mod online;
mod register_zones;
mod search;
mod sequential;
mod text_reads;
mod values;

pub use linearizable::Linearizable;
pub use model::Model;
pub use search::Bound;
pub use sequential::{
    Linearizability, NoLinearization, ObservedCall, SequentialModel, assert_linearizable,
    check_history,
};

#[cfg(test)]
mod tests;
