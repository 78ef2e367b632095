//! The monitor of multisets: unordered queues.

use super::coverage::{cover_of_empty, covered_empty};
use super::linearization::{
    LinearizedOperation, OperationsByValue, Placement, PlacementClass, empty_instants, linearize,
};
use super::peeks_by_value::PeeksByValue;
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
    decide(operations, &MONITOR)
}

const MONITOR: Monitor<'static> = Monitor {
    kind: CollectionKind::Multiset,
    check: &|table, _| check(table),
    // Only observations of an empty multiset require values to be gone.
    deadlines: &|table, _| KnownDeadlines::Exact(vec![NEVER; table.spans.len()]),
};

/// A linearization of a history that [`multiset`] accepts: the one described there. O(n log n).
pub fn multiset_order(
    operations: &[CollectionOperation],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    linearize(operations, &MONITOR, &place_all)
}

fn place_all(table: &ValueTable, by_value: &OperationsByValue) -> Vec<Placement> {
    let mut placements = Vec::new();
    let mut place = |time, class, rank, step, operation| {
        placements.push(Placement {
            segment: 0,
            time,
            class,
            rank,
            step,
            operation,
        });
    };
    let peeks = PeeksByValue::new(table);
    let spans = (0..).zip(&table.spans);
    for (value, span) in spans.filter(|(_, span)| span.is_added()) {
        let (added, removed) = (span.first_ret, span.end);
        // A value that may come and go at one instant does so, next to the observations of that instant.
        let is_instant = removed <= added;
        let class = |time: u32| match time {
            _ if is_instant => PlacementClass::Middle,
            time if time == added => PlacementClass::Last,
            time if time == removed => PlacementClass::First,
            _ => PlacementClass::Middle,
        };
        let begin = if is_instant { removed } else { added };
        place(
            begin,
            class(begin),
            value,
            0,
            by_value.additions[value as usize],
        );
        for &peek in peeks.of(value) {
            let peek = &table.peeks[peek as usize];
            let time = if is_instant {
                removed
            } else {
                peek.call.max(added)
            };
            place(time, class(time), value, 1, peek.operation);
        }
        if span.is_removed() {
            place(
                removed,
                class(removed),
                value,
                2,
                by_value.removals[value as usize],
            );
        }
    }
    for (empty, instant) in table.empties.iter().zip(empty_instants(table)) {
        place(instant, PlacementClass::Middle, NEVER, 0, empty.operation);
    }
    placements
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
