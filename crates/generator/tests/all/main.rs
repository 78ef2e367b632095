//! Generators and the interpreter from the outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod forks;
mod golden;
mod interpreter;
mod laws;
mod members;
mod properties;
mod soundness;
mod twin;
