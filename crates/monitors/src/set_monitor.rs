//! The monitor of sets.

use super::coverage::{cover_of_empty, covered_empty};
use super::sub_history::{Conflict, sub_history};
use super::value_table::{CollectionKind, ObservationSpan, ValueTable};
use super::{CollectionAction, CollectionOperation, Rejection};

/// Is this history of a set, empty at first, linearizable? Exact if each value is added at most once. O(n).
///
/// A set is a product of its values (linearizability is local), so each value is decided alone. Its addition takes effect by
/// the least return of the operations that find it there, `m`; its removal no earlier than their greatest call, `M`. With the
/// addition at `m` and the removal at `M` it is there for the shortest time (for an instant, if `M <= m`), so an observation
/// of its absence is possible iff it can take effect up to `m` or from `M` on. A value without addition is always absent.
/// Observations of an empty set fit the same choice: they need an instant outside of all critical intervals.
///
/// Pending removals are decided exactly: of several of one value only one can take effect.
pub fn set(operations: &[CollectionOperation]) -> Result<(), Rejection> {
    let table = ValueTable::new(operations, CollectionKind::Set)?;
    if let Some(absence) = impossible_absence(&table) {
        let mut conflict = Conflict::of_value(absence.value);
        conflict.operations = vec![absence.operation];
        add_pending_removals(operations, &mut conflict);
        return Err(sub_history(operations, &conflict, 0));
    }
    if let Some(empty) = covered_empty(&table) {
        let mut conflict = Conflict {
            values: cover_of_empty(&table, &empty),
            operations: vec![empty.operation],
        };
        add_pending_removals(operations, &mut conflict);
        return Err(sub_history(operations, &conflict, 0));
    }
    Ok(())
}

/// The first observation of absence during which its value is certainly there.
fn impossible_absence(table: &ValueTable) -> Option<ObservationSpan> {
    let mut absences = table.absences.iter();
    absences
        .find(|absence| {
            let span = table.spans.get(absence.value as usize);
            span.is_some_and(|span| {
                span.is_added() && span.first_ret < absence.call && absence.ret < span.end
            })
        })
        .copied()
}

/// Adds the earliest pending removal of each value, the one that allows the most.
fn add_pending_removals(operations: &[CollectionOperation], conflict: &mut Conflict) {
    let mut values = conflict.values.clone();
    values.sort_unstable();
    let mut earliest = vec![None; values.len()];
    for (number, operation) in operations.iter().enumerate() {
        if operation.action == CollectionAction::RemoveUnknown
            && let Ok(value) = values.binary_search(&operation.value)
        {
            let candidate = (operation.call, number as u32);
            let current = earliest[value].unwrap_or(candidate);
            earliest[value] = Some(current.min(candidate));
        }
    }
    let numbers = earliest.into_iter().flatten().map(|(_, number)| number);
    conflict.operations.extend(numbers);
}
