//! All linearizations of a small history: the twin of the monitors, from the definition.

use super::{Collection, priority};
use crate::{CollectionAction, CollectionOperation, NEVER};
use std::collections::BTreeSet;

/// The linearized operations, one bit each, and the values that are there, oldest first.
type SearchNode = (u32, Vec<u32>);

/// Is there a linearization? Tries all orders; enters each pair of linearized operations and state once.
pub(super) fn is_linearizable(collection: Collection, operations: &[CollectionOperation]) -> bool {
    assert!(operations.len() <= 32, "a small history");
    let required = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.ret != NEVER)
        .fold(0u32, |all, (number, _)| all | 1 << number);
    let mut seen: BTreeSet<SearchNode> = BTreeSet::new();
    let mut stack: Vec<SearchNode> = vec![(0, Vec::new())];
    while let Some((done, state)) = stack.pop() {
        if done & required == required {
            return true;
        }
        if !seen.insert((done, state.clone())) {
            continue;
        }
        let remaining = || (0..operations.len()).filter(|number| done & (1 << number) == 0);
        let least_return = remaining().map(|number| operations[number].ret).min();
        for number in remaining() {
            // What returned before this call must be linearized.
            if least_return.is_some_and(|ret| ret < operations[number].call) {
                continue;
            }
            for next in successors(collection, &state, &operations[number]) {
                stack.push((done | 1 << number, next));
            }
        }
    }
    false
}

/// The states after an operation; none if it is impossible in this state.
fn successors(
    collection: Collection,
    state: &[u32],
    operation: &CollectionOperation,
) -> Vec<Vec<u32>> {
    let value = operation.value;
    let without = |removed: u32| -> Vec<u32> {
        let rest = state.iter().copied();
        rest.filter(|&other| other != removed).collect()
    };
    match operation.action {
        CollectionAction::Add if state.contains(&value) => Vec::new(),
        CollectionAction::Add => vec![state.iter().copied().chain([value]).collect()],
        CollectionAction::Remove if next_values(collection, state).contains(&value) => {
            vec![without(value)]
        }
        CollectionAction::RemoveUnknown if collection == Collection::Set => vec![without(value)],
        CollectionAction::RemoveUnknown => {
            let next = next_values(collection, state).into_iter();
            next.map(without).chain([state.to_vec()]).collect()
        }
        CollectionAction::Peek | CollectionAction::Contains
            if next_values(collection, state).contains(&value) =>
        {
            vec![state.to_vec()]
        }
        CollectionAction::Absent if !state.contains(&value) => vec![state.to_vec()],
        CollectionAction::Empty if state.is_empty() => vec![state.to_vec()],
        _ => Vec::new(),
    }
}

/// The values that a removal may take.
pub(super) fn next_values(collection: Collection, state: &[u32]) -> Vec<u32> {
    match collection {
        Collection::Set | Collection::Multiset => state.to_vec(),
        Collection::Queue => state.first().copied().into_iter().collect(),
        Collection::Stack => state.last().copied().into_iter().collect(),
        Collection::PriorityQueue => {
            let greatest = state.iter().map(|&value| priority(value)).max();
            let all = state.iter().copied();
            all.filter(|&value| Some(priority(value)) == greatest)
                .collect()
        }
    }
}
