//! Linearizations that the monitors construct, executed one operation after another.

use super::brute_force::{is_linearizable, next_values};
use super::random_history::random_history;
use super::{Collection, histories, priority};
use crate::{
    self as monitors, CollectionAction, CollectionOperation, LinearizedOperation, NEVER, Rejection,
};
use seatrial_machine::Rng;

fn order(
    collection: Collection,
    operations: &[CollectionOperation],
) -> Result<Vec<LinearizedOperation>, Rejection> {
    match collection {
        Collection::Set => unreachable!("no order is constructed of sets"),
        Collection::Multiset => monitors::multiset_order(operations),
        Collection::Queue => monitors::queue_order(operations),
        Collection::Stack => monitors::stack_order(operations),
        Collection::PriorityQueue => {
            let priorities: Vec<u32> = (0..256).map(priority).collect();
            monitors::priority_queue_order(operations, &priorities)
        }
    }
}

/// Why this is no linearization, if it is none.
fn fault(
    collection: Collection,
    operations: &[CollectionOperation],
    order: &[LinearizedOperation],
) -> Option<String> {
    let mut placed = vec![false; operations.len()];
    let (mut state, mut latest_call) = (Vec::new(), 0);
    for one in order {
        let number = one.operation as usize;
        let operation = &operations[number];
        if std::mem::replace(&mut placed[number], true) {
            return Some(format!("{number} takes effect twice"));
        }
        if operation.ret < latest_call {
            return Some(format!("{number} had returned before"));
        }
        latest_call = latest_call.max(operation.call);
        let next = next_values(collection, &state);
        let value = one.taken.unwrap_or(operation.value);
        let is_possible = match operation.action {
            CollectionAction::Add => true,
            CollectionAction::Empty => state.is_empty(),
            _ => next.contains(&value),
        };
        if !is_possible {
            return Some(format!("{number} is not possible in {state:?}"));
        }
        match operation.action {
            CollectionAction::Add => state.push(value),
            CollectionAction::Remove | CollectionAction::RemoveUnknown => {
                state.retain(|&other| other != value);
            }
            _ => {}
        }
    }
    let missing = (0..placed.len()).find(|&one| !placed[one] && operations[one].ret != NEVER);
    missing.map(|number| format!("{number} is missing"))
}

fn constructs_on_random_histories(collection: Collection) {
    let (mut accepted, count) = (0, histories());
    for seed in 0..count {
        let history = random_history(collection, &mut Rng::from_seed(seed));
        match order(collection, &history) {
            Ok(order) => {
                let fault = fault(collection, &history, &order);
                assert_eq!(
                    fault, None,
                    "{collection:?} {seed}: {order:?} of {history:#?}"
                );
                accepted += 1;
            }
            Err(Rejection::NotLinearizable(_)) => assert!(
                !is_linearizable(collection, &history),
                "{collection:?} {seed}: {history:#?}"
            ),
            Err(Rejection::NotApplicable(reason)) => panic!("{collection:?} {seed}: {reason}"),
        }
    }
    println!("{collection:?}: {accepted} linearizations of {count} histories");
    assert!(accepted > count / 10, "too few histories are linearizable");
}

#[test]
fn a_multiset_has_an_order() {
    constructs_on_random_histories(Collection::Multiset);
}

#[test]
fn a_queue_has_an_order() {
    constructs_on_random_histories(Collection::Queue);
}

#[test]
fn a_stack_has_an_order() {
    constructs_on_random_histories(Collection::Stack);
}

#[test]
fn a_priority_queue_has_an_order() {
    constructs_on_random_histories(Collection::PriorityQueue);
}
