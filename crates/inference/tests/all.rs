//! Tests of list-append and rw-register through their public face.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

#[path = "all/elle.rs"]
mod elle;
#[path = "all/lists.rs"]
mod lists;
#[path = "all/models.rs"]
mod models;
#[path = "all/permutations.rs"]
mod permutations;
#[path = "all/proofs.rs"]
mod proofs;
#[path = "all/registers.rs"]
mod registers;
#[path = "all/stores.rs"]
mod stores;
#[path = "all/stretches.rs"]
mod stretches;
#[path = "all/times.rs"]
mod times;
#[path = "all/transactions.rs"]
mod transactions;
#[path = "all/windows.rs"]
mod windows;
