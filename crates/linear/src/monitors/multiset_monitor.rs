//! The monitor of multisets: unordered queues.

use super::coverage::{cover_of_empty, covered_empty};
use super::sub_history::Conflict;
use super::unknown_removals::decide;
use super::value_table::{CollectionKind, ValueTable};
use super::{CollectionOperation, Rejection};

/// Is this history of a multiset (a bag, an unordered queue: a removal takes any value), empty at first, linearizable? Exact
/// if each value is added at most once; for pending removals see [`super::Rejection`]. O(n).
///
/// Values constrain each other only by observations of an empty multiset. Add each value at its first return and remove it at
/// its last call, or both at one instant between these if they are in the other order: then a value is present only inside
/// its critical interval, and at each uncovered instant the multiset is empty before or after the operations of that instant.
pub fn multiset(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    decide(operations, CollectionKind::Multiset, &|table, _| {
        check(table)
    })
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
