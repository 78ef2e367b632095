//! Brute force on small histories, compared with what the checkers and the verifier say of the same histories.
//!
//! Every model is decided here by exhaustive search, straight from its definition in the literature, on a history type of
//! its own. No code is shared with the checkers, which are called by their public interface. `cargo xtask truth` runs it;
//! `docs/measures` has tables.
//!
//! What is absent: no algorithm of the checkers and no clever one (what is decided here is decided by trying all
//! possibilities), and no part of the product depends on this crate.

mod axioms;
mod case;
mod child;
mod compare;
mod cuts;
mod data;
mod forge;
mod fuzz;
mod generate;
mod graph;
mod oracle;
mod orders;
mod routes;
mod run;
mod samples;
mod shapes;
mod shrink;
mod tally;
#[cfg(test)]
mod tests;

pub use run::{Options, run};
