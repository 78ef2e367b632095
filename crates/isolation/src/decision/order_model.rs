//! The models that the search decides, as an axiom and an order to follow.

/// How transactions see one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axiom {
    /// One after the other.
    Serializable,
    /// Each reads from a snapshot, and of two that overlap only one may write a key.
    Snapshot,
    /// Each reads from a snapshot.
    Prefix,
    /// Each sees all that the transactions saw which it sees, and of two writers of a key the later one sees the other.
    Parallel,
}

impl Axiom {
    /// Number of events of a transaction: one, or a snapshot and a commit.
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

/// The order that transactions must follow, besides reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RespectedOrder {
    /// Nothing.
    Nothing,
    /// The order of each session.
    Sessions,
    /// The order of each session, and real time: one completed before the other was invoked.
    Time,
}

/// A consistency model of transactions, for the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderModel {
    /// How transactions see one another.
    pub axiom: Axiom,
    /// The order that they follow.
    pub follows: RespectedOrder,
}
