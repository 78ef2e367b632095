//! Numbers of transactions.

/// No such transaction; no such position.
pub(super) const NONE: u32 = u32::MAX;
