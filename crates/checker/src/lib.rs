//! What went wrong: statistics, data types, linearizability, transactions. Checkers read a history and answer with data; they
//! draw nothing, write nothing, and know neither the generator that ran nor the system that was tested.

mod accept;
mod certificate;
mod closed;
mod compose;
mod data;
mod incomplete;
pub mod infer;
mod leb128;
pub mod linear;
pub mod online;
mod proven;
mod registry;
mod stats;
mod stream;
pub mod txn;
mod verdict;
mod verify;

pub use accept::AcceptUndecided;
pub use certificate::{
    Certificate, CertificateError, Edge, Evidence, Fingerprint, Proof, VersionStep, Versions,
};
pub use compose::{Judgement, check_safe, compose, conclude_safe};
pub use data::{
    Agreement, Bank, Counter, Discipline, Lock, Log, LongFork, Monotonic, Queue, Set, SetFull,
    TotalQueue, UniqueIds, Visibility,
};
pub use incomplete::{Gap, Missing, without_attributes, without_ok};
pub use proven::{Proofs, Proven};
pub use registry::{NAMES, UnknownName, by_name, for_workload, rw_register};
pub use stats::{Counts, Stats, counts};
pub use stream::Streaming;
pub use verdict::{Anomaly, Checker, Component, Dependency, Finding, Step, Validity, Verdict};
pub use verify::{Unproven, Verifier, verify};
