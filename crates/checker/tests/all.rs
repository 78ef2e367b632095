//! Tests of the checkers through their public face.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

#[path = "all/cores.rs"]
mod cores;
#[path = "all/corpus.rs"]
mod corpus;
#[path = "all/decision.rs"]
mod decision;
#[path = "all/elle.rs"]
mod elle;
#[path = "all/isolation.rs"]
mod isolation;
#[path = "all/lattice.rs"]
mod lattice;
#[path = "all/lists.rs"]
mod lists;
#[path = "all/online.rs"]
mod online;
#[path = "all/permutations.rs"]
mod permutations;
#[path = "all/proofs.rs"]
mod proofs;
#[path = "all/registers.rs"]
mod registers;
#[path = "all/totality.rs"]
mod totality;
#[path = "all/transactions.rs"]
mod transactions;
#[path = "all/windows.rs"]
mod windows;
