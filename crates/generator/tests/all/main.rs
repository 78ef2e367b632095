//! Generators and the interpreter from the outside.

mod golden;
mod interpreter;
mod properties;
