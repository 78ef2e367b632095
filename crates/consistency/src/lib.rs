//! Models that are weaker than linearizability, for histories of reads and writes of registers: sequential and causal
//! consistency, PRAM, session guarantees, regular and safe registers, bounded staleness.
//!
//! ```
//! use seatrial_checker::{Checker, Validity};
//! use seatrial_consistency::{Consistency, ConsistencyModel};
//! use seatrial_interchange::import::{self, Format, ImportOptions};
//!
//! let text = b"{:process 0, :type :invoke, :f :write, :value 1}
//!              {:process 0, :type :ok, :f :write, :value 1}
//!              {:process 1, :type :invoke, :f :read, :value nil}
//!              {:process 1, :type :ok, :f :read, :value nil}";
//! let history = import::read("run.edn", text, Format::Edn, ImportOptions::default())?;
//! // The read is stale, which sequential consistency allows to another process.
//! let verdict = Consistency::new(ConsistencyModel::Sequential).check(&history);
//! assert_eq!(verdict.valid, Validity::Valid);
//! # Ok::<(), import::ImportError>(())
//! ```
//!
//! # How a history is decided
//!
//! ```text
//!  chunks ─► GatherRegisterHistory ─► RegisterHistory ─┬─ sequential, causal-convergence: crate isolation, transactions of one
//!            40 bytes an operation    versions by      │  operation; values written twice: SequentialSearch, bounded
//!                                     number           ├─ causal, causal-memory, pram: SessionOrder ─► topological order ─►
//!                                                      │  CausalClocks, SessionViews
//!                                                      ├─ read-your-writes, monotonic-reads: one pass over each session
//!                                                      ├─ regular, safe: binary searches by real time
//!                                                      └─ K-atomic, within-TIME: WriteCluster ─► VersionOrder, TimeStaleness
//! ```
//!
//! 1. *Values are unique* where they are read, so each read shows its write. Reads of values that nothing wrote come first.
//! 2. *The order of versions is not known*: a model holds if there is one. Which orders it speaks of differs: one for all
//!    processes (sequential, causal convergence), one for each process (PRAM, causal memory, session guarantees), one for each
//!    read (causal).
//! 3. *Models of real time* are local, and are decided key by key; models of processes are not, except for session guarantees.
//! 4. *Operations of unknown outcome* whose value was read took effect, at any time after those that their process ran before;
//!    others are left out.
//!
//! # What implies what
//!
//! ```text
//!  linearizable ─► sequential ─┬─► causal-memory ──────┬─► pram ──┬─► monotonic-reads
//!                              │                       │          ├─► read-your-writes, monotonic-writes
//!                              │                       └─► causal ─┴─► writes-follow-reads
//!                              └─► causal-convergence ──► causal, monotonic-reads
//!  linearizable ─► 2-atomic ─► 3-atomic ─► …    linearizable ─► within-1ms ─► within-1s    linearizable ─► regular ─► safe
//! ```
//!
//! A read of one key shows one write, so a history of single reads cannot contradict monotonic writes alone, and writes follow
//! reads only by a cycle: without evidence the verdict is valid if a model that implies it holds, and unknown otherwise.
//!
//! # Files, in reading order
//!
//! - `consistency_model`, `consistency`: the models and their checker
//! - `register_history`, `register_gathering`: operations and versions as numbers
//! - `by_isolation`: models that the crate `isolation` decides
//! - `sequential_search`: sequential consistency of values that were written more than once
//! - `happens_before`: sessions and reads, their topological order, clocks
//! - `causal_reads`, `session_views`, `session_guarantees`: the models of causality and of sessions
//! - `real_time_reads`: regular and safe registers
//! - `value_clusters`, `version_staleness`, `time_staleness`, `staleness_check`: how stale each key is
//! - `consistency_explanation`: violations in words
//! - `workload_check`, `causal_register`, `insert_order`, `sequential_keys`, `adya_g2`: the checkers of Jepsen's workloads
//!
//! # What is absent
//!
//! - No file, thread, clock or randomness; the only input is a [`ChunkSource`](seatrial_history::ChunkSource).
//! - No linearizability: this is the crate `linear`. No transactions: these are the crates `isolation` and `inference`.
//! - No certificate, and no verdict before the end of the history.

mod adya_g2;
mod by_isolation;
mod causal_reads;
mod causal_register;
mod consistency;
mod consistency_explanation;
mod consistency_model;
mod happens_before;
mod insert_order;
mod real_time_reads;
mod register_gathering;
mod register_history;
mod sequential_keys;
mod sequential_search;
mod session_guarantees;
mod session_views;
mod staleness_check;
mod time_staleness;
mod value_clusters;
mod version_staleness;
mod workload_check;

pub use adya_g2::AdyaG2;
pub use causal_register::CausalRegister;
pub use consistency::Consistency;
pub use consistency_model::ConsistencyModel;
pub use insert_order::{CausalReverse, Comments};
pub use sequential_keys::SequentialInserts;

#[cfg(test)]
mod tests;
