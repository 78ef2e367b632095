//! The workload `unique-ids`: requests for identifiers, each of which must be new.

use crate::{Generator, operation};
use seatrial_history::Value;

/// Endless requests for an identifier: `generate`.
pub fn unique_ids() -> impl Generator {
    operation("generate", Value::Nil).repeat()
}
