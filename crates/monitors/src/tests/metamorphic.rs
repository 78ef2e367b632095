//! Changes of a history that do not change the answer, and histories too long for all orders.

use super::random_history::{RandomHistoryShape, random_history, random_history_of};
use super::{Collection, histories, is_linearizable, monitor};
use crate::{CollectionAction, CollectionOperation, NEVER, Rejection};
use seatrial_machine::Rng;

const COLLECTIONS: [Collection; 5] = [
    Collection::Set,
    Collection::Multiset,
    Collection::Queue,
    Collection::Stack,
    Collection::PriorityQueue,
];

/// Positions moved and stretched, operations in another order, and (but where they have priorities) values renumbered.
#[test]
fn positions_order_and_names_do_not_matter() {
    for seed in 0..histories() / 10 {
        let mut rng = Rng::from_seed(seed);
        let collection = *rng.pick(&COLLECTIONS);
        let history = random_history(collection, &mut rng);
        let expected = monitor(collection, &history).is_ok();
        let (factor, shift) = (1 + rng.below(50) as u32, rng.below(1_000) as u32);
        let mut names: Vec<u32> = (0..16).collect();
        if collection != Collection::PriorityQueue {
            rng.shuffle(&mut names);
        }
        let mut changed = history.clone();
        for operation in &mut changed {
            operation.value = names[operation.value as usize];
            operation.call = operation.call * factor + shift;
            if operation.ret != NEVER {
                operation.ret = operation.ret * factor + shift;
            }
        }
        rng.shuffle(&mut changed);
        let actual = monitor(collection, &changed);
        assert_eq!(
            actual.is_ok(),
            expected,
            "{collection:?} {seed}: {history:?}"
        );
    }
}

/// A queue backwards in time is a queue whose additions are the removals, if all is removed in the end.
#[test]
fn queue_backwards_is_a_queue() {
    let mut both = [0, 0];
    for seed in 0..histories() / 4 {
        let mut rng = Rng::from_seed(seed);
        let mut history = random_history(Collection::Queue, &mut rng);
        let is_removed = |value: u32, history: &[CollectionOperation]| {
            let mut all = history.iter();
            all.any(|other| other.action == CollectionAction::Remove && other.value == value)
        };
        let all = history.clone();
        history.retain(|operation| {
            operation.ret != NEVER
                && (operation.action == CollectionAction::Empty
                    || is_removed(operation.value, &all))
                && operation.action != CollectionAction::Peek
        });
        let last = history.iter().map(|one| one.ret).max().unwrap_or(0);
        let backwards: Vec<_> = history
            .iter()
            .map(|operation| CollectionOperation {
                action: match operation.action {
                    CollectionAction::Add => CollectionAction::Remove,
                    CollectionAction::Remove => CollectionAction::Add,
                    action => action,
                },
                call: last - operation.ret,
                ret: last - operation.call,
                ..*operation
            })
            .collect();
        let (one, other) = (
            monitor(Collection::Queue, &history),
            monitor(Collection::Queue, &backwards),
        );
        if matches!(one, Err(Rejection::NotApplicable(_)))
            || matches!(other, Err(Rejection::NotApplicable(_)))
        {
            continue;
        }
        // What is removed without addition is not an addition without removal: that is allowed.
        let count = |action| history.iter().filter(|one| one.action == action).count();
        if count(CollectionAction::Add) == count(CollectionAction::Remove) {
            assert_eq!(one.is_ok(), other.is_ok(), "{seed}: {history:?}");
            both[usize::from(one.is_ok())] += 1;
        }
    }
    assert!(both[0] > 0 && both[1] > 0, "both answers occur: {both:?}");
}

/// Long histories of a correct collection are accepted; when disturbed, the sub-history of a rejection is rejected in turn,
/// and small ones by all orders.
#[test]
fn long_histories_are_accepted_and_their_violations_proven() {
    let (mut rejected, mut undecided, mut proven) = (0, 0, 0);
    let rounds = histories() / 20;
    for seed in 0..rounds {
        let mut rng = Rng::from_seed(seed);
        let collection = *rng.pick(&COLLECTIONS);
        let count = 20 + rng.below(180) as u32;
        let mut shape = RandomHistoryShape::random(&mut rng);
        (shape.count, shape.disturbances) = (count, 0);
        let mut history = random_history_of(collection, &shape, &mut rng);
        match monitor(collection, &history) {
            Ok(()) => {}
            Err(Rejection::NotApplicable(_)) => undecided += 1,
            Err(Rejection::NotLinearizable(part)) => {
                panic!("{collection:?} {seed}: {part:?} of {history:?}")
            }
        }
        shape.disturbances = 1 + rng.below(3);
        shape.disturb(collection, &mut history, &mut rng);
        if let Err(Rejection::NotLinearizable(numbers)) = monitor(collection, &history) {
            rejected += 1;
            let part: Vec<_> = numbers.iter().map(|&one| history[one as usize]).collect();
            assert!(
                matches!(
                    monitor(collection, &part),
                    Err(Rejection::NotLinearizable(_))
                ),
                "{collection:?} {seed}: {part:?}"
            );
            if part.len() <= 14 {
                proven += 1;
                assert!(
                    !is_linearizable(collection, &part),
                    "{collection:?} {seed}: {part:?}"
                );
            }
        }
    }
    println!(
        "{rejected} of {rounds} rejected, {proven} proven by all orders, {undecided} undecided"
    );
    assert!(rejected > rounds / 10, "{rejected} of {rounds} rejected");
    assert!(
        proven > rejected / 2,
        "{proven} of {rejected} sub-histories are small"
    );
    assert!(
        undecided < rounds / 100,
        "{undecided} of {rounds} undecided"
    );
}

/// One removal too few for many values: the conflict is large, the time is not.
#[test]
fn a_conflict_of_many_pending_removals_ends() {
    let count = 3_000;
    let operation = |action, value, call, ret| CollectionOperation {
        action,
        value,
        call,
        ret,
    };
    for (collection, missing) in [
        (Collection::Multiset, 1),
        (Collection::Queue, 0),
        (Collection::Queue, 1),
        (Collection::Stack, 0),
        (Collection::Stack, 1),
    ] {
        let add = |value| operation(CollectionAction::Add, value, 2 * value, 2 * value + 1);
        let remove = |number| {
            operation(
                CollectionAction::RemoveUnknown,
                0,
                2 * count + number,
                NEVER,
            )
        };
        let mut history: Vec<_> = (0..count).map(add).collect();
        history.extend((0..count - missing).map(remove));
        history.push(operation(CollectionAction::Empty, 0, 4 * count, 4 * count));
        let answer = monitor(collection, &history);
        assert_eq!(answer.is_ok(), missing == 0, "{collection:?}");
        if let Err(Rejection::NotLinearizable(part)) = answer {
            assert_eq!(
                part.len(),
                history.len(),
                "{collection:?}: all values count"
            );
        }
    }
}
