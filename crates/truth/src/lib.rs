//! Brute force on small histories, compared with the verdicts and certificates of the checkers on the same histories.
//!
//! # Method
//!
//! | topic | case | ground truth | compared with it |
//! | --- | --- | --- | --- |
//! | `lists`, `registers` | transactions of a simulated store | all version orders or commit orders | verdicts, certificates |
//! | `data` | operations on registers, sets, queues, counters | all orders that respect real time | verdicts |
//! | `forged-…` | a changed certificate | is its claim true? | the verifier accepts no false proof |
//! | `routes-…` | a case | the verdict in memory | the verdict from EDN, from a test file, by the program |
//! | `samples` | histories of other projects | their published results | the program's verdict |
//! | `fuzz` | a damaged file | no crash, 1 GiB of address space, 20 s | the program's exit status |
//! | `cuts` | a power failure under a writer | what was acknowledged | what is found afterwards |
//!
//! Each model is decided by exhaustive search, straight from its definition in the literature, on a history type of its own
//! (`case.rs`). A case is a function of the seed and its number, so each disagreement is repeated by `--first NUMBER
//! --histories 1`; it is shrunk to the smallest case that disagrees the same way, then printed. Disagreements are counted by
//! class (`tally.rs`).
//!
//! `cargo xtask truth` runs it:
//!
//! ```text
//! $ cargo xtask truth --topic lists --histories 20000 --seed 1
//! ```
//!
//! `docs/measures` has the tables of long runs.
//!
//! # What this crate does not do
//!
//! - It contains no algorithm of the checkers, and no clever one: ground truth is a loop over all possibilities, so its cost is
//!   exponential and cases are small.
//! - It shares no code with the checkers, which are called by their public interface.
//! - No part of the product depends on it.
//!
//! # Files in reading order
//!
//! - `case.rs`, `case_generator.rs`, `shapes.rs`: cases, random and by shape
//! - `oracle.rs`, then `phenomena.rs`, `orders.rs` (orders of commits), `axioms.rs` (weak models), `data.rs`
//! - `compare.rs`, `forge.rs`, `routes.rs`, `samples.rs`: comparisons; `shrink.rs`, `tally.rs`: their results
//! - `limited_program.rs`, `fuzz.rs`, `fuzz/`, `cuts.rs`, `cuts/`: the program under damaged inputs and power failures
//! - `truth_run.rs`: options, threads and tables

mod axioms;
mod case;
mod case_generator;
mod compare;
mod cuts;
mod data;
mod forge;
mod fuzz;
mod limited_program;
mod oracle;
mod orders;
mod phenomena;
mod routes;
mod samples;
mod shapes;
mod shrink;
mod tally;
#[cfg(test)]
mod tests;
mod truth_run;

pub use truth_run::{TruthOptions, run};
