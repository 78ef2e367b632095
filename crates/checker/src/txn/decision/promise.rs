//! What is promised, as axioms.

/// How transactions see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::txn) enum Axiom {
    /// One after the other.
    Serializable,
    /// Each reads from a snapshot, and of two that overlap only one may write a key.
    Snapshot,
    /// Each reads from a snapshot.
    Prefix,
    /// Each sees all that those saw which it sees, and of two writers of a key the later one sees the other.
    Parallel,
}

impl Axiom {
    /// Events of a transaction: one, or snapshot and commit.
    pub(super) fn events(self) -> u32 {
        match self {
            Axiom::Serializable | Axiom::Parallel => 1,
            Axiom::Snapshot | Axiom::Prefix => 2,
        }
    }

    /// Does a transaction overwrite only what it has seen?
    pub(super) fn is_chained(self) -> bool {
        self != Axiom::Prefix
    }
}

/// What order must agree with, beyond what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::txn) enum Follows {
    /// Nothing.
    Nothing,
    /// The order of each session.
    Sessions,
    /// That, and real time: what had completed before another was invoked.
    Time,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::txn) struct Promise {
    pub(in crate::txn) axiom: Axiom,
    pub(in crate::txn) follows: Follows,
}
