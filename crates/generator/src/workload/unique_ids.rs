//! Identifiers.

use crate::{Generator, operation};
use seatrial_history::Value;

/// Endless requests for an identifier: `generate`.
pub fn unique_ids() -> impl Generator {
    operation("generate", Value::Nil).repeat()
}
