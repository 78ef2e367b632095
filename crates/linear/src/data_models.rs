//! Data types that histories are checked against by a [`ModelChecker`](crate::ModelChecker).

mod set_elements;
mod set_model;
mod set_reads;

pub use set_model::{SetAction, SetModel, SetOperation};

#[cfg(test)]
mod tests;
