//! Tests: the monitors agree with an exhaustive search on random small histories.

mod brute_force;
mod examples;
mod metamorphic;
mod orders;
mod random_history;
mod retention;

use super::{CollectionOperation, Rejection};
use brute_force::is_linearizable;
use random_history::random_history;
use seatrial_machine::Rng;

/// A data type with a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collection {
    Set,
    Multiset,
    Queue,
    Stack,
    PriorityQueue,
}

/// Priorities of values: some are equal.
const PRIORITIES: [u32; 16] = [5, 3, 5, 1, 9, 3, 2, 7, 7, 4, 6, 0, 8, 8, 1, 2];

fn priority(value: u32) -> u32 {
    PRIORITIES[value as usize % 16]
}

fn monitor(collection: Collection, operations: &[CollectionOperation]) -> Result<(), Rejection> {
    match collection {
        Collection::Set => super::set(operations),
        Collection::Multiset => super::multiset(operations),
        Collection::Queue => super::queue(operations),
        Collection::Stack => super::stack(operations),
        Collection::PriorityQueue => {
            let priorities: Vec<u32> = (0..256).map(priority).collect();
            super::priority_queue(operations, &priorities)
        }
    }
}

/// Checks the monitor's answer, and that of a rejection's sub-history; true if it accepts.
fn assert_agrees(collection: Collection, history: &[CollectionOperation], seed: u64) -> bool {
    let expected = is_linearizable(collection, history);
    match monitor(collection, history) {
        Ok(()) => assert!(expected, "{collection:?} {seed}: accepted {history:#?}"),
        Err(Rejection::NotLinearizable(numbers)) => {
            assert!(
                !expected,
                "{collection:?} {seed}: rejected {numbers:?} of {history:#?}"
            );
            assert!(
                numbers.is_sorted_by(|one, other| one < other),
                "{numbers:?}"
            );
            let part: Vec<_> = numbers.iter().map(|&one| history[one as usize]).collect();
            assert!(
                !is_linearizable(collection, &part),
                "{collection:?} {seed}: {part:#?} is linearizable, of {history:#?}"
            );
        }
        Err(Rejection::NotApplicable(reason)) => panic!("{collection:?} {seed}: {reason}"),
    }
    expected
}

/// Histories per type.
fn histories() -> u64 {
    seatrial_farm::histories(20_000)
}

fn agrees_on_random_histories(collection: Collection) {
    let (count, mut accepted) = (histories(), 0);
    for seed in 0..count {
        let history = random_history(collection, &mut Rng::from_seed(seed));
        accepted += u64::from(assert_agrees(collection, &history, seed));
    }
    println!("{collection:?}: {accepted} of {count} random histories are linearizable");
    assert!(
        accepted > count / 10 && accepted < count / 10 * 9,
        "{accepted} of {count} random histories are linearizable: neither answer is rare"
    );
}

#[test]
fn set_agrees_on_random_histories() {
    agrees_on_random_histories(Collection::Set);
}

#[test]
fn multiset_agrees_on_random_histories() {
    agrees_on_random_histories(Collection::Multiset);
}

#[test]
fn queue_agrees_on_random_histories() {
    agrees_on_random_histories(Collection::Queue);
}

#[test]
fn stack_agrees_on_random_histories() {
    agrees_on_random_histories(Collection::Stack);
}

#[test]
fn priority_queue_agrees_on_random_histories() {
    agrees_on_random_histories(Collection::PriorityQueue);
}
