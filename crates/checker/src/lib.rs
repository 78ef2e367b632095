//! What went wrong: statistics, linearizability, transactions. Checkers read a history and answer with data; they
//! draw nothing, write nothing, and know neither the generator that ran nor the system that was tested.

mod verdict;

pub use verdict::{Anomaly, Checker, Finding, Step, Validity, Verdict};
