//! Which isolation level does a history keep? Decided from axioms, exactly: there is an order of commits and versions that
//! explains all reads, or there are transactions that have none.
//!
//! # Tutorial
//!
//! Take two transactions that both withdraw from an account, each after a look at both accounts:
//!
//! ```text
//!   T0  write x = 1, write y = 1
//!   T1  read x = 1, read y = 1, write x = 2          x ──rw── T2 read it before T1 wrote it
//!   T2  read x = 1, read y = 1, write y = 2          y ──rw── T1 read it before T2 wrote it
//! ```
//!
//! Transactions go into [`registers::Columns`], here by hand; [`Isolation`] checks them against an [`AxiomaticModel`]. The two
//! read the same snapshot and write different keys, which snapshot isolation allows:
//!
//! ```
//! use seatrial_checker::Validity;
//! use seatrial_history::OpType;
//! use seatrial_isolation::registers::{Columns, ColumnsBuilder};
//! use seatrial_isolation::{AxiomaticModel, Isolation};
//!
//! fn write_skew() -> Columns {
//!     let (x, y) = (0, 1);
//!     let mut builder = ColumnsBuilder::default();
//!     builder.begin(0);
//!     builder.write(x, 1);
//!     builder.write(y, 1);
//!     builder.end(OpType::Ok);
//!     for (session, key) in [(1, x), (2, y)] {
//!         builder.begin(session);
//!         builder.read(x, Some(1));
//!         builder.read(y, Some(1));
//!         builder.write(key, 2);
//!         builder.end(OpType::Ok);
//!     }
//!     builder.finish().unwrap()
//! }
//!
//! let verdict = Isolation::new(AxiomaticModel::SnapshotIsolation).check_columns(&write_skew());
//! assert_eq!(verdict.valid, Validity::Valid);
//! assert_eq!(verdict.proof, Some("snapshot order"));
//!
//! // One after the other they cannot have run: the second would have seen the first one's write.
//! let verdict = Isolation::new(AxiomaticModel::Serializable).check_columns(&write_skew());
//! assert_eq!(verdict.valid, Validity::Invalid);
//! let finding = &verdict.findings[0];
//! assert_eq!(finding.anomaly, "G2-item");
//! assert!(finding.summary.contains("none can be left out"));
//! ```
//!
//! The verdict does not rest on anomalies that happen to show. A valid one comes with an order, an invalid one with
//! transactions that have none, and both are written into a certificate that a verifier can replay without this crate:
//!
//! ```
//! use seatrial_history::OpType;
//! use seatrial_isolation::registers::ColumnsBuilder;
//! use seatrial_isolation::{AxiomaticModel, Isolation};
//! use seatrial_verify::Proof;
//!
//! let mut builder = ColumnsBuilder::default();
//! builder.begin(0);
//! builder.write(7, 1);
//! builder.end(OpType::Ok);
//! builder.begin(1);
//! builder.read(7, None);
//! builder.end(OpType::Ok);
//! let columns = builder.finish().unwrap();
//! let (_, certificate) = Isolation::new(AxiomaticModel::Serializable).certify_columns(&columns);
//! // The reader of the initial state comes first.
//! assert_eq!(certificate.unwrap().proof, Proof::Serial(vec![1, 0]));
//! ```
//!
//! How a weak level differs from its neighbour is a question of what a reader has *seen* ([`AxiomaticModel`] defines it).
//! From prefix consistency up the version order matters as well, and is searched for where reads leave it open: see
//! [`decision`]. A database that reports timestamps can be checked against its own order with [`Timestamps`].
//!
//! # What this crate does not do
//!
//! - It reads no file and has no thread, clock or socket; bounds count steps, so the same history gives the same verdict.
//! - It does not know which database was tested, nor which generator or workload made the history.
//! - It takes no order of versions from anything but reads; an exported order is a guess that must be verified.
//! - It does not check its certificates: it uses the verifier's types, not its code.
//!
//! # Files in reading order
//!
//! - `recorded_transactions.rs`, `recorded_transactions/transaction_columns.rs`, `completion_rows.rs`,
//!   `chunk_transactions.rs`: the pass that records transactions in columns, for checkers of lists and of registers
//! - `registers.rs`, `registers/columns.rs`: the table of register transactions; `columns_builder.rs`,
//!   `gather_registers.rs` fill it, `version_table.rs` and `value_runs.rs` number its versions
//! - `registers/read_faults.rs`, `register_text.rs`: reads that are wrong at any level, and text
//! - `axiomatic.rs`, `axiomatic/axiomatic_model.rs`: the checker, and its models
//! - `axiomatic/session_program.rs`, `commit_order.rs`, `commit_cycle.rs`, `axiom_explanation.rs`: sessions and reads, an
//!   order of commits or a cycle, its explanation
//! - `axiomatic/direct_axioms.rs`, `own_writes.rs`, `observed_writers.rs`, `visibility_clocks.rs`: what each weak level forces
//! - `axiomatic/searched_models.rs`, `exported_order.rs`: models with a search, and a first guess for it
//! - `decision.rs`, `decision/constraints.rs`, `order_model.rs`, `relation.rs`: what the search is about
//! - `decision/version_blocks.rs`, `known_order.rs`: what is known without it
//! - `decision/guess_and_search.rs`, `version_zones.rs`, `replay_guess.rs`: guesses
//! - `decision/guess_repair.rs`, `region_search.rs`, `transitive_closure.rs`: the repair of a guess
//! - `decision/clause_search.rs`, `clause_database.rs`, `incremental_order.rs`, `parallel_snapshot.rs`: the search
//! - `decision/unsat_core.rs`, `core_anomaly.rs`, `core_explanation.rs`: what is reported if there is no order
//! - `decision/given_transactions.rs`: the search for checkers of lists
//! - `timestamps.rs`, `timestamps/gather_timestamps.rs`, `timestamp_replay.rs`: the check against timestamps
//! - `without_times.rs`: levels with real time on histories without times
//! - `explain.rs`: findings about cycles, for all checkers of transactions

pub mod axiomatic;
pub mod decision;
pub mod explain;
pub mod recorded_transactions;
pub mod registers;

mod timestamps;
mod without_times;

pub use axiomatic::{AxiomaticModel, Isolation};
pub use timestamps::{TimestampLevel, Timestamped, Timestamps};
pub use without_times::WithoutTimes;
