//! A user's model against all orders.

use crate::{
    Bound, Linearizability, NoLinearization, ObservedCall, SequentialModel, assert_linearizable,
    check_history,
};
use seatrial_farm::histories;
use seatrial_machine::Rng;
use std::collections::BTreeSet;

/// Two queues, as a user would write them.
struct Queues;

#[allow(
    clippy::option_option,
    reason = "unknown, nothing, and an element are three cases"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Enqueue(u64, u8),
    /// What it returned; the outer `None` if that is not known.
    Dequeue(u64, Option<Option<u8>>),
}

impl SequentialModel for Queues {
    type State = Vec<u8>;
    type Operation = Call;

    fn initial(&self) -> Vec<u8> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u8>, operation: &Call) -> Option<Vec<u8>> {
        let mut after = state.clone();
        match *operation {
            Call::Enqueue(_, value) => after.push(value),
            Call::Dequeue(_, result) => {
                let first = (!after.is_empty()).then(|| after.remove(0));
                if result.is_some_and(|result| result != first) {
                    return None;
                }
            }
        }
        Some(after)
    }

    fn partition(&self, operation: &Call) -> u64 {
        match *operation {
            Call::Enqueue(queue, _) | Call::Dequeue(queue, _) => queue,
        }
    }
}

/// Is there an order of all operations, both queues at once?
fn has_order(history: &[ObservedCall<Call>]) -> bool {
    let mut seen = BTreeSet::new();
    let mut left = vec![(0u32, [Vec::new(), Vec::new()])];
    while let Some((done, state)) = left.pop() {
        let is_done = |number: usize| done >> number & 1 == 1;
        let mut is_complete = true;
        for (number, one) in history.iter().enumerate() {
            if is_done(number) {
                continue;
            }
            is_complete &= one.completed.is_none();
            let mut others = history.iter().enumerate();
            if others.any(|(other, before)| {
                !is_done(other) && before.completed.is_some_and(|end| end < one.invoked)
            }) {
                continue;
            }
            let queue = Queues.partition(&one.operation) as usize;
            if let Some(after) = Queues.step(&state[queue], &one.operation) {
                let mut next = state.clone();
                next[queue] = after;
                if seen.insert((done | 1 << number, next.clone())) {
                    left.push((done | 1 << number, next));
                }
            }
        }
        if is_complete {
            return true;
        }
    }
    false
}

fn random_history(rng: &mut Rng) -> Vec<ObservedCall<Call>> {
    let spoil = *rng.pick(&[0.0, 0.3]);
    let length = 1 + rng.below(8) as usize;
    let mut queues = [Vec::new(), Vec::new()];
    let mut history: Vec<ObservedCall<Call>> = Vec::new();
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut time = 0;
    while history.len() < length || !open.is_empty() {
        // Some events have the same time: those operations are concurrent.
        time += u64::from(rng.chance(0.8));
        if history.len() < length && open.len() < 4 && rng.chance(0.5) {
            let queue = rng.below(2);
            let call = match rng.below(2) {
                0 => Call::Enqueue(queue, rng.below(3) as u8),
                _ => Call::Dequeue(queue, None),
            };
            open.push((history.len(), false));
            let process = history.len() as u64;
            history.push(ObservedCall::pending(process, call, time));
        } else if !open.is_empty() {
            let at = rng.index(open.len());
            let (number, took_effect) = open[at];
            let one = &mut history[number];
            if !took_effect {
                let queue = &mut queues[Queues.partition(&one.operation) as usize];
                match &mut one.operation {
                    Call::Enqueue(_, value) => queue.push(*value),
                    Call::Dequeue(_, result) => {
                        let first = (!queue.is_empty()).then(|| queue.remove(0));
                        let wrong = rng.chance(spoil).then(|| Some(rng.below(3) as u8));
                        *result = Some(wrong.unwrap_or(first));
                    }
                }
                open[at].1 = true;
                continue;
            }
            open.swap_remove(at);
            if rng.chance(0.85) {
                one.completed = Some(time);
            } else if let Call::Dequeue(_, result) = &mut one.operation {
                *result = None;
            }
        }
    }
    history
}

/// Do these operations, in this order, have their results, and respect real time? All that completed must be there.
fn replays(history: &[ObservedCall<Call>], order: &[usize]) -> bool {
    let mut is_possible = true;
    for queue in 0..2 {
        let here = |&number: &usize| Queues.partition(&history[number].operation) == queue;
        let order: Vec<usize> = order.iter().copied().filter(here).collect();
        let mut state = Vec::new();
        let mut latest = 0;
        for &number in &order {
            let one = &history[number];
            latest = latest.max(one.invoked);
            is_possible &= one.completed.is_none_or(|end| latest <= end);
            match Queues.step(&state, &one.operation) {
                Some(after) => state = after,
                None => return false,
            }
        }
        let completed = (0..history.len()).filter(here);
        let mut completed = completed.filter(|&number| history[number].completed.is_some());
        is_possible &= completed.all(|number| order.contains(&number));
    }
    is_possible
}

/// The operations on the object of a contradiction that were invoked before it, those that are not essential of unknown outcome.
fn weakened(
    history: &[ObservedCall<Call>],
    found: &NoLinearization,
    left_out: Option<usize>,
) -> Vec<ObservedCall<Call>> {
    let failed = &history[found.operation];
    let queue = Queues.partition(&failed.operation);
    let numbered = history.iter().enumerate();
    let before = numbered.filter(|(_, one)| {
        Queues.partition(&one.operation) == queue && Some(one.invoked) <= failed.completed
    });
    let weaker = before.map(|(number, one)| {
        let mut one = one.clone();
        if !found.essential.contains(&number) || left_out == Some(number) {
            one.completed = None;
        }
        one
    });
    weaker.collect()
}

#[test]
fn models_agree_with_all_orders() {
    let mut counts = [0u64; 2];
    let all = histories(20_000);
    for seed in 0..all {
        let history = random_history(&mut Rng::from_seed(seed));
        let expected = has_order(&history);
        match check_history(&Queues, &history, Bound::default()) {
            Linearizability::Linearizable(order) => {
                assert!(expected, "seed {seed}: {history:?}");
                assert!(
                    replays(&history, &order),
                    "seed {seed}: {order:?} of {history:?}"
                );
            }
            Linearizability::NotLinearizable(found) => {
                assert!(!expected, "seed {seed}: {history:?}");
                let order = &found.linearization.order;
                let numbers: Vec<usize> = order.iter().map(|one| one.operation as usize).collect();
                assert_eq!(numbers, found.prefix, "seed {seed}");
                let mut state = Queues.initial();
                for point in order {
                    let operation = &history[point.operation as usize].operation;
                    state = Queues.step(&state, operation).unwrap();
                    assert_eq!(point.state, format!("{state:?}"), "seed {seed}");
                }
                let essential = found.linearization.essential.as_ref().unwrap();
                assert!(essential.is_minimal, "seed {seed}");
                let weaker = weakened(&history, &found, None);
                assert!(!has_order(&weaker), "seed {seed}: {found} of {history:?}");
                for &number in &found.essential {
                    let without = weakened(&history, &found, Some(number));
                    assert!(has_order(&without), "seed {seed}: {number}, {found}");
                }
            }
            Linearizability::Unknown(reason) => panic!("seed {seed}: {reason}"),
        }
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|&count| count > all / 10), "{counts:?}");
}

#[test]
#[should_panic(expected = "2 operations suffice, whether or not the other one took effect")]
fn a_contradiction_is_explained() {
    let history = [
        ObservedCall::new(0, Call::Enqueue(0, 1), 1, 2),
        ObservedCall::new(1, Call::Enqueue(0, 2), 3, 4),
        ObservedCall::new(1, Call::Enqueue(1, 2), 3, 4),
        ObservedCall::new(2, Call::Dequeue(0, Some(Some(2))), 5, 6),
        ObservedCall::new(3, Call::Dequeue(0, Some(Some(1))), 7, 8),
    ];
    assert_linearizable(&Queues, &history);
}
