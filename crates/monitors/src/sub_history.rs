//! The operations that show why a history is not linearizable.

use super::{CollectionAction, CollectionOperation, NEVER, Rejection};
use std::collections::{BTreeMap, BTreeSet};

/// Values and operations that contradict each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Conflict {
    /// Values, of which the operations that bound their spans are part of it.
    pub(super) values: Vec<u32>,
    /// Further operations: peeks, observations of absence.
    pub(super) operations: Vec<u32>,
}

/// The operations that bound the span of one value.
#[derive(Default)]
struct BoundingOperations {
    add: Option<u32>,
    /// Its first two removals.
    removals: Vec<u32>,
    /// Number and return of the observation that returns first.
    first: Option<(u32, u32)>,
    /// Number and call of the observation that is called last.
    last: Option<(u32, u32)>,
}

impl Conflict {
    pub(super) fn of_value(value: u32) -> Conflict {
        Conflict {
            values: vec![value],
            operations: Vec::new(),
        }
    }
}

impl BoundingOperations {
    fn add_operation(&mut self, number: u32, operation: &CollectionOperation) {
        match operation.action {
            CollectionAction::Add => self.add = Some(number),
            CollectionAction::Remove | CollectionAction::RemoveUnknown => {
                if operation.action == CollectionAction::Remove && self.removals.len() < 2 {
                    self.removals.push(number);
                }
            }
            CollectionAction::Peek | CollectionAction::Contains if operation.ret == NEVER => return,
            CollectionAction::Peek | CollectionAction::Contains => {}
            CollectionAction::Absent | CollectionAction::Empty => return,
        }
        if operation.action == CollectionAction::Add {
            return;
        }
        if self.first.is_none_or(|(_, ret)| operation.ret < ret) {
            self.first = Some((number, operation.ret));
        }
        if self.last.is_none_or(|(_, call)| operation.call > call) {
            self.last = Some((number, operation.call));
        }
    }
}

/// The rejection of a history for a conflict: the bounding operations of its values, its operations, and the `unknown_removals`
/// earliest pending removals. O(n log n).
///
/// These operations alone have the same spans of the conflict's values, so the same conflict. Conversely they keep a
/// linearization of the whole: they lack other values entirely, and observations.
pub(super) fn sub_history(
    operations: &[CollectionOperation],
    conflict: &Conflict,
    unknown_removals: usize,
) -> Rejection {
    let mut values: BTreeMap<u32, BoundingOperations> = conflict
        .values
        .iter()
        .map(|&value| (value, BoundingOperations::default()))
        .collect();
    for (number, operation) in operations.iter().enumerate() {
        let has_value = !matches!(
            operation.action,
            CollectionAction::Empty | CollectionAction::RemoveUnknown
        );
        if has_value && let Some(bounding) = values.get_mut(&operation.value) {
            bounding.add_operation(number as u32, operation);
        }
    }
    let mut all: BTreeSet<u32> = conflict.operations.iter().copied().collect();
    for bounding in values.into_values() {
        if bounding.add.is_none() {
            // A value that was not added: one observation of it suffices.
            all.extend(bounding.first.map(|(number, _)| number));
            continue;
        }
        all.extend(bounding.add);
        all.extend(bounding.removals);
        all.extend(bounding.first.map(|(number, _)| number));
        all.extend(bounding.last.map(|(number, _)| number));
    }
    let mut unknown: Vec<(u32, u32)> = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.action == CollectionAction::RemoveUnknown)
        .map(|(number, operation)| (operation.call, number as u32))
        .collect();
    unknown.sort_unstable();
    all.extend(
        unknown
            .iter()
            .take(unknown_removals)
            .map(|&(_, number)| number),
    );
    Rejection::NotLinearizable(all.into_iter().collect())
}

/// These operations with their values renumbered from 0, and the values' former numbers. O(k log k) for k operations.
pub(super) fn project(
    operations: &[CollectionOperation],
    numbers: &[u32],
) -> (Vec<CollectionOperation>, Vec<u32>) {
    let chosen = || numbers.iter().map(|&number| operations[number as usize]);
    let mut values: Vec<u32> = chosen().map(|operation| operation.value).collect();
    values.sort_unstable();
    values.dedup();
    let renumbered = chosen().map(|operation| CollectionOperation {
        value: values.partition_point(|&value| value < operation.value) as u32,
        ..operation
    });
    (renumbered.collect(), values)
}
