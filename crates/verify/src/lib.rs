//! Certificates of verdicts about transactions and linearizability, and the verifier that replays them: a second opinion.
//!
//! A [`Certificate`] holds what a verdict rests on: an order of transactions or operations, the edges of a cycle, or a small
//! set of transactions or operations that has no order. A [`Verifier`] reads the history once and replays the certificate
//! against it. It is simple on purpose: it searches for nothing except in a core, and never believes the certificate.
//!
//!
//! # What this crate does not do
//!
//! - It depends on no checker and shares no code with one, so that no mistake of a checker can be in it. It shares the
//!   types of histories and one encoding of integers, `seatrial_history::leb128`; its table of rows is its own.
//! - It infers nothing: the assumptions behind a version order are those that the certificate names.
//! - It reads no times, only positions in the history.
//! - It has no IO, thread or clock; a replay of a core counts its steps.
//!
//! # Files in reading order
//!
//! - `certificate.rs`: the document
//! - `verifier.rs`: which replay a proof needs
//! - `models.rs`: which model forbids which anomaly
//! - `dense_number.rs`: numbers of transactions, places and names as types
//! - `transaction_table.rs`: the history in columns
//! - `packed_records.rs`: transactions in 3 to 8 bytes a micro-operation
//! - `compact_list.rs`: lists in two bytes an element
//! - `keyed_rows.rs`: rows by key, and writers by value
//! - `order_clock.rs`: process order and real time along an order of transactions
//! - `register_proofs.rs`: proofs about registers, with `register_proofs/`: `register_orders.rs` serial and snapshot
//!   orders, `visibility_order.rs` parallel snapshots, `weak_commits.rs` and `commit_check.rs` weak levels,
//!   `committed_reads.rs` read committed, `register_core.rs` cores, `register_findings.rs` and `version_rules.rs` findings
//! - `linear_proofs.rs`: proofs about operations on data types, with `linear_proofs/`: `operation_table.rs` the operations,
//!   `linear_model.rs` sequential models, `linearization_replay.rs` orders, `core_search.rs` and `outside_writes.rs` cores
//! - `list_findings.rs`: findings about lists, with `list_findings/`: `list_orders.rs` orders, `list_core.rs` cores

mod certificate;
mod compact_list;
mod dense_number;
mod keyed_rows;
mod linear_proofs;
mod list_findings;
pub mod models;
mod order_clock;
mod packed_records;
mod register_proofs;
mod transaction_table;
mod verifier;

pub use certificate::{
    Certificate, CertificateError, CycleEdge, Evidence, Fingerprint, LinearCore, Linearization,
    Proof, VersionStep, Versions,
};
pub use linear_proofs::CoreVerifier;
pub use verifier::{Unproven, Verifier, verify};
