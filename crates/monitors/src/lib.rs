//! Monitors: near-linear deciders of linearizability for collections and registers whose values are unique.
//!
//! A general search is exponential in the concurrency. For collections to which each value is added at most once, the results
//! say which removal took which addition, and what remains is a question about intervals: [`set`], [`multiset`] and
//! [`queue`] take O(n), [`priority_queue`] and [`stack`] O(n log n), whatever the concurrency.
//!
//! Source: Lee and Mathur, "Efficient Decrease-and-Conquer Linearizability Monitoring", OOPSLA 2025, derived anew (each file
//! has its proof); for the queue also Henzinger, Sezgin and Vafeiadis, "Aspect-Oriented Linearizability Proofs", CONCUR 2013.
//!
//! Words of the proofs. Time is the position in the history; an operation takes effect at an instant of the closed interval
//! from its call to its return, and operations at one instant in any order (`a` precedes `b`
//! only if `a.ret < b.call`). An interval without bound at its end (a pending operation) ends at [`NEVER`]. The *critical
//! interval* of a value is the open interval from the first return to the last call of its operations: in between it is
//! certainly in the collection. An instant is *covered* by a value if it lies in its critical interval.
//!
//! Operations of unknown result: pending reads are ignored; a pending addition is ignored unless its value is seen later
//! (then it certainly took effect, at any time before that); a pending removal may have taken any value, or none:
//! `unknown_removals.rs`.
//!
//! [`queue_order`], [`stack_order`], [`priority_queue_order`] and [`multiset_order`] return a linearization in O(n log n): the
//! proofs construct one.
//!
//! ```
//! use seatrial_monitors::{self as monitors, CollectionAction::{Add, Empty}, CollectionOperation, Rejection};
//!
//! let operation = |action, value, call, ret| CollectionOperation { action, value, call, ret };
//! let history = [operation(Add, 0, 1, 2), operation(Empty, 0, 3, 5)];
//! assert_eq!(monitors::queue(&history), Err(Rejection::NotLinearizable(vec![0, 1])));
//! ```
//!
//! # Files, in reading order
//!
//! - `value_table`, `sub_history`, `minimal_conflict`: operations by value, and the few that have no order
//! - `register_monitor`: registers, by zones
//! - `set_monitor`, `multiset_monitor`, `queue_monitor`, `stack_monitor`, `priority_queue_monitor`: one for each type
//! - `coverage`, `coverage_counts`, `stabbing_tree`, `peeks_by_value`: instants that values cover
//! - `unknown_removals`, `removal_deadlines`, `removal_matching`: removals of unknown outcome
//! - `linearization`, `nested_order`: orders of linearization points
//! - `retention`: the operations that a check beside a test must keep
//!
//! # What is absent
//!
//! - No history, key or value: operations have positions and numbers of values.
//! - No file, thread, clock or randomness, and no dependency.

mod coverage;
mod coverage_counts;
mod linearization;
mod minimal_conflict;
mod multiset_monitor;
mod nested_order;
mod peeks_by_value;
mod priority_queue_monitor;
mod queue_monitor;
mod register_monitor;
mod removal_deadlines;
mod removal_matching;
mod retention;
mod set_monitor;
mod stabbing_tree;
mod stack_monitor;
mod sub_history;
mod unknown_removals;
mod value_table;

pub use linearization::LinearizedOperation;
pub use minimal_conflict::minimal;
pub use multiset_monitor::{multiset, multiset_order};
pub use priority_queue_monitor::{priority_queue, priority_queue_order};
pub use queue_monitor::{queue, queue_order};
pub use register_monitor::{RegisterZones, ZoneAction, ZoneCall, ZoneVerdict};
pub use retention::{retained_in_multiset, retained_in_queue};
pub use set_monitor::set;
pub use stack_monitor::{stack, stack_order};

/// The return of a pending operation.
pub const NEVER: u32 = u32::MAX;

/// What an operation does to a collection, with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionAction {
    /// Adds the value, which was not in the collection.
    Add,
    /// Removes the value: the first of a queue, the last of a stack, the greatest of a priority queue, any of a set or
    /// multiset.
    Remove,
    /// A pending removal. Of a set: may have removed the value. Of other collections: of any value, or of none; its value is
    /// ignored.
    RemoveUnknown,
    /// Returns the value that a removal would take, and leaves it there.
    Peek,
    /// Sets: the value is in the set (also an addition that finds it there). Multisets: the same as a peek.
    Contains,
    /// Sets: the value is not in the set (also a removal that does not find it).
    Absent,
    /// The collection is empty: a removal or a peek found nothing. Its value is ignored.
    Empty,
}

/// One operation on a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionOperation {
    /// What it does.
    pub action: CollectionAction,
    /// Number of its value. Numbers are dense: tables are as long as the greatest.
    pub value: u32,
    /// Position of its invocation; less than [`NEVER`].
    pub call: u32,
    /// Position of its completion, not before `call`; [`NEVER`] if it is pending.
    pub ret: u32,
}

/// Why a monitor did not accept a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// There is no linearization. The operations with these numbers (ascending) have none on their own; with each
    /// value there are its addition and its removal, if it has one, so that dropping all others loses no constraint.
    NotLinearizable(Vec<u32>),
    /// The history is outside the monitor's domain, for this reason; search instead. Values that are added twice are; and of
    /// stacks, priority queues, and queues with peeks, pending removals that can be matched with values in too many ways.
    NotApplicable(&'static str),
}

#[cfg(test)]
mod tests;
