//! Linearizations of histories that a monitor accepts.

use super::coverage::UncoveredInstants;
use super::unknown_removals::{Monitor, accept};
use super::value_table::ValueTable;
use super::{CollectionAction, CollectionOperation, Rejection};

/// An operation of a linearization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearizedOperation {
    /// Its number in the history.
    pub operation: u32,
    /// Of a removal of unknown result: the value that it takes.
    pub taken: Option<u32>,
}

/// No operation.
pub(super) const NONE: u32 = u32::MAX;

/// The operations of each value that take effect once; [`NONE`] where there is none.
pub(super) struct OperationsByValue {
    pub(super) additions: Vec<u32>,
    /// Known removals, and the pending ones that take a value.
    pub(super) removals: Vec<u32>,
}

/// The order of operations at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlacementClass {
    /// Its value is gone after the instant. Of a queue: additions.
    First,
    Middle,
    /// Its value was not there before the instant.
    Last,
}

/// An operation with its place in the linearization: the order of the fields is that of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Placement {
    /// Of a queue: the number of instants before it at which it was empty.
    pub(super) segment: u32,
    /// Its instant.
    pub(super) time: u32,
    pub(super) class: PlacementClass,
    pub(super) rank: u32,
    /// 0 an addition, 1 a peek, 2 a removal.
    pub(super) step: u8,
    pub(super) operation: u32,
}

/// Constructs the linearization of a history that this monitor accepts; `place_all` gets the table with assumed removals of
/// the values that pending removals take. O(n log n); 24 bytes for each operation.
pub(super) fn linearize(
    operations: &[CollectionOperation],
    monitor: &Monitor<'_>,
    place_all: &dyn Fn(&ValueTable, &OperationsByValue) -> Vec<Placement>,
) -> Result<Vec<LinearizedOperation>, Rejection> {
    let (table, values) = accept(operations, monitor)?.matched();
    if (monitor.check)(&table, None).is_err() {
        let reason = "the values that pending removals took were not found";
        return Err(Rejection::NotApplicable(reason));
    }
    let mut by_value = OperationsByValue {
        additions: vec![NONE; table.spans.len()],
        removals: vec![NONE; table.spans.len()],
    };
    let mut unknown: Vec<(u32, u32)> = Vec::new();
    for (number, operation) in (0..).zip(operations) {
        match operation.action {
            CollectionAction::Add => by_value.additions[operation.value as usize] = number,
            CollectionAction::Remove => by_value.removals[operation.value as usize] = number,
            CollectionAction::RemoveUnknown => unknown.push((operation.call, number)),
            _ => {}
        }
    }
    unknown.sort_unstable();
    // The pending removals that take a value, by their numbers.
    let mut taken: Vec<(u32, u32)> = Vec::new();
    for (&value, &(_, number)) in values.iter().zip(&unknown) {
        by_value.removals[value as usize] = number;
        taken.push((number, value));
    }
    taken.sort_unstable();
    let mut placements = place_all(&table, &by_value);
    placements.sort_unstable();
    debug_assert!(
        placements.iter().all(|one| one.operation != NONE),
        "only operations are placed"
    );
    let order = placements.into_iter().map(|Placement { operation, .. }| {
        let place = taken.binary_search_by_key(&operation, |&(number, _)| number);
        LinearizedOperation {
            operation,
            taken: place.ok().map(|place| taken[place].1),
        }
    });
    Ok(order.collect())
}

/// For each observation of an empty collection the first instant that no value covers.
pub(super) fn empty_instants(table: &ValueTable) -> Vec<u32> {
    if table.empties.is_empty() {
        return Vec::new();
    }
    let mut uncovered = UncoveredInstants::outside(&table.spans, table.positions);
    let empties = table.empties.iter();
    let instants = empties.map(|empty| uncovered.first_from(empty.call));
    instants.collect()
}
