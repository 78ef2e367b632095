//! Why operations are not linearizable, as data: the longest order that works, and where it ends.

use serde::Serialize;

/// Evidence that the operations on one object are not linearizable. Operations are named as in
/// [`Finding::operations`](crate::Finding::operations).
///
/// The longest order works up to the completion of `operation`: all operations that completed before are in it. No order passes
/// it, since `operation` is possible in none of the states to which orders lead.
///
/// Bounded: at most [`POINTS_MAX`](Self::POINTS_MAX) points and essential operations, [`CONCURRENT_MAX`](Self::CONCURRENT_MAX)
/// concurrent ones and [`STATES_MAX`](Self::STATES_MAX) states, each text of at most
/// [`STATE_LENGTH_MAX`](Self::STATE_LENGTH_MAX) characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinearizationWitness {
    /// The operation that no order has before its completion.
    pub operation: u64,
    /// The last operations of a longest order that works, with the state after each.
    pub order: Vec<LinearizationPoint>,
    /// Number of operations of that order before those in `order`.
    pub left_out: u64,
    /// The state before the first operation of `order`.
    pub before: String,
    /// The possible states, over all orders, when `operation` had to take effect; none if no operation that began before leads to
    /// the state that it needs.
    pub states: Vec<String>,
    /// Number of further possible states.
    pub states_left_out: u64,
    /// Operations that were under way when `operation` completed, without itself.
    pub concurrent: Vec<u64>,
    /// Number of further operations under way.
    pub concurrent_left_out: u64,
    /// Operations that suffice for the contradiction; `None` if they were not determined.
    pub essential: Option<EssentialOperations>,
}

/// An operation of an order, and the state of the object after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinearizationPoint {
    /// The operation.
    pub operation: u64,
    /// The state after it; the end of a long text is cut off, and the middle of a long collection.
    pub state: String,
}

/// Operations of one object whose certain effect has no linearization, even if each other operation of the object may have taken
/// effect with its result at any time after its invocation, or never. With fewer certain effects there are only more orders, so
/// the whole history has none either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EssentialOperations {
    /// The operations, in the order of their invocations.
    pub operations: Vec<u64>,
    /// Number of the object's other operations, of which any may or may not have taken effect.
    pub others: u64,
    /// Is none of the operations dispensable? False if the bound on work was reached first.
    pub is_minimal: bool,
}

impl LinearizationWitness {
    /// Points of the order, and essential operations, at most.
    pub const POINTS_MAX: usize = 1_000;
    /// Concurrent operations, at most.
    pub const CONCURRENT_MAX: usize = 100;
    /// Possible states, at most.
    pub const STATES_MAX: usize = 8;
    /// Characters of the text of a state, at most.
    pub const STATE_LENGTH_MAX: usize = 100;

    /// The indices of all operations that it names; some may be named more than once.
    pub fn named(&self) -> impl Iterator<Item = u64> + '_ {
        let order = self.order.iter().map(|point| point.operation);
        let essential = self.essential.iter().flat_map(|one| &one.operations);
        std::iter::once(self.operation)
            .chain(order)
            .chain(self.concurrent.iter().copied())
            .chain(essential.copied())
    }
}
