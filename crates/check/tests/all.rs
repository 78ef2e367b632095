//! Tests of all checkers through their public face.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

#[path = "all/corpus.rs"]
mod corpus;
#[path = "all/driver.rs"]
mod driver;
#[path = "all/online.rs"]
mod online;
#[path = "all/rounds.rs"]
mod rounds;
#[path = "../../inference/tests/all/stores.rs"]
#[allow(dead_code, reason = "its other half is for the tests of inference")]
mod stores;
#[path = "all/totality.rs"]
mod totality;
