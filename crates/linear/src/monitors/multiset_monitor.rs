//! The monitor of multisets: unordered queues.

use super::coverage::{cover_of_empty, covered_empty};
use super::removal_deadlines::KnownDeadlines;
use super::sub_history::Conflict;
use super::unknown_removals::{Monitor, decide};
use super::value_table::{CollectionKind, ValueTable};
use super::{CollectionOperation, NEVER, Rejection};

/// Is this history of a multiset (a bag, an unordered queue: a removal takes any value), empty at first, linearizable? Exact
/// if each value is added at most once; for pending removals see [`super::Rejection`]. O(n).
///
/// Values constrain each other only by observations of an empty multiset. Add each value at its first return and remove it at
/// its last call, or both at one instant between these if they are in the other order: then a value is present only inside
/// its critical interval, and at each uncovered instant the multiset is empty before or after the operations of that instant.
pub fn multiset(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    let monitor = Monitor {
        kind: CollectionKind::Multiset,
        check: &|table, _| check(table),
        // Only observations of an empty multiset require values to be gone.
        deadlines: &|table, _| KnownDeadlines::Exact(vec![NEVER; table.spans.len()]),
    };
    decide(operations, &monitor)
}

fn check(table: &ValueTable) -> Result<(), Conflict> {
    match covered_empty(table) {
        None => Ok(()),
        Some(empty) => Err(Conflict {
            values: cover_of_empty(table, &empty),
            operations: vec![empty.operation],
        }),
    }
}
