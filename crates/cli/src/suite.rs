//! The bundled systems as things to test.

pub(crate) mod kv;

/// The names of the suites.
pub(crate) const SUITES: [&str; 1] = ["kv"];
