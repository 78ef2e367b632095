//! Tests of the checkers that decide isolation through their public face.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

#[path = "all/cores.rs"]
mod cores;
#[path = "all/decision.rs"]
mod decision;
#[path = "all/isolation.rs"]
mod isolation;
#[path = "../../inference/tests/all/stores.rs"]
#[allow(dead_code, reason = "its other half is for the tests of inference")]
mod stores;
