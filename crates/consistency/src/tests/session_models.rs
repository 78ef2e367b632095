//! Models of sessions against their definitions.

use super::small_histories::{
    SmallAccess, SmallOperation, SmallShape, effective, history, random, some_choice,
};
use crate::{Consistency, ConsistencyModel};
use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_farm::histories;
use seatrial_machine::Rng;

/// A relation on operations.
type Before = Vec<Vec<bool>>;

/// Is there an order of these operations (by number) that follows `before` and for which `accepts` holds step by step?
fn has_order<S: Clone>(
    members: &[usize],
    before: &Before,
    state: &S,
    step: &mut impl FnMut(&S, usize) -> Option<S>,
) -> bool {
    if members.is_empty() {
        return true;
    }
    members.iter().any(|&next| {
        if members.iter().any(|&other| before[other][next]) {
            return false;
        }
        let Some(after) = step(state, next) else {
            return false;
        };
        let rest: Vec<usize> = members.iter().copied().filter(|&it| it != next).collect();
        has_order(&rest, before, &after, step)
    })
}

fn session_order(all: &[SmallOperation]) -> Before {
    let follows = |one: &SmallOperation, other: &SmallOperation| {
        one.process == other.process && one.call < other.call
    };
    all.iter()
        .map(|one| all.iter().map(|other| follows(one, other)).collect())
        .collect()
}

/// The closure of sessions and reads; `None` if it is cyclic, or a read has no source.
fn causality(all: &[SmallOperation]) -> Option<Before> {
    let mut before = session_order(all);
    for (number, operation) in all.iter().enumerate() {
        let Some(value) = operation.read().filter(|&value| value != 0) else {
            continue;
        };
        let writer = all
            .iter()
            .position(|other| other.written() == Some(value) && other.key == operation.key)?;
        before[writer][number] = true;
    }
    for via in 0..all.len() {
        for from in 0..all.len() {
            for to in 0..all.len() {
                before[from][to] |= before[from][via] && before[via][to];
            }
        }
    }
    (0..all.len()).all(|it| !before[it][it]).then_some(before)
}

/// One step of a memory: the values by key after the operation, if it returns what it must.
fn memory(all: &[SmallOperation], state: &[i64], next: usize) -> Option<Vec<i64>> {
    let operation = all[next];
    let key = operation.key as usize;
    if operation.read().is_some_and(|value| value != state[key]) {
        return None;
    }
    let mut state = state.to_vec();
    if let Some(value) = operation.written() {
        state[key] = value;
    }
    Some(state)
}

const KEYS: usize = 3;

fn sequential(all: &[SmallOperation]) -> bool {
    let members: Vec<usize> = (0..all.len()).collect();
    let before = session_order(all);
    has_order(&members, &before, &vec![0; KEYS], &mut |state, next| {
        memory(all, state, next)
    })
}

fn processes(all: &[SmallOperation]) -> Vec<u64> {
    let mut processes: Vec<u64> = all.iter().map(|operation| operation.process).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// For each process an order of all writes and its own reads.
fn each_view(all: &[SmallOperation], before: &Before) -> bool {
    processes(all).into_iter().all(|process| {
        let members =
            (0..all.len()).filter(|&it| all[it].process == process || all[it].written().is_some());
        let members: Vec<usize> = members.collect();
        has_order(&members, before, &vec![0; KEYS], &mut |state, next| {
            memory(all, state, next)
        })
    })
}

fn causal_memory(all: &[SmallOperation]) -> bool {
    causality(all).is_some_and(|before| each_view(all, &before))
}

/// For each read, an order of its causal past in which its source is the last write of its key.
fn causal(all: &[SmallOperation]) -> bool {
    let Some(before) = causality(all) else {
        return false;
    };
    (0..all.len()).all(|read| {
        let Some(value) = all[read].read() else {
            return true;
        };
        let members = (0..all.len()).filter(|&it| it == read || before[it][read]);
        let members: Vec<usize> = members.collect();
        has_order(&members, &before, &0, &mut |last, next| {
            if next == read {
                return (*last == value).then_some(*last);
            }
            let is_of_key = all[next].key == all[read].key;
            Some(all[next].written().filter(|_| is_of_key).unwrap_or(*last))
        })
    })
}

/// One order of all operations in which the last write in each read's causal past is the one that it returned.
fn convergent(all: &[SmallOperation]) -> bool {
    let Some(before) = causality(all) else {
        return false;
    };
    let members: Vec<usize> = (0..all.len()).collect();
    has_order(
        &members,
        &before,
        &Vec::new(),
        &mut |order: &Vec<usize>, next| {
            if let Some(value) = all[next].read() {
                let mut past = order.iter().rev();
                let last = past.find(|&&it| {
                    before[it][next] && all[it].key == all[next].key && all[it].written().is_some()
                });
                if last.map_or(0, |&it| all[it].written().unwrap_or(0)) != value {
                    return None;
                }
            }
            let mut order = order.clone();
            order.push(next);
            Some(order)
        },
    )
}

/// For each process and key an order of the versions for which `holds` says that a read may return `now` after `earlier`
/// operations of its process.
fn versions_in_order(
    all: &[SmallOperation],
    must_precede: impl Fn(&SmallOperation, i64) -> Option<i64>,
) -> bool {
    processes(all).into_iter().all(|process| {
        (0..KEYS as i64).all(|key| {
            let writes =
                (0..all.len()).filter(|&it| all[it].key == key && all[it].written().is_some());
            let writes: Vec<usize> = writes.collect();
            let own = all
                .iter()
                .filter(|it| it.key == key && it.process == process);
            let own: Vec<&SmallOperation> = own.collect();
            let none = vec![vec![false; all.len()]; all.len()];
            let mut is_found = false;
            // Every order of versions, the initial one first.
            let orders = &mut |order: &Vec<i64>, next: usize| {
                let mut order = order.clone();
                order.push(all[next].written().unwrap());
                if order.len() == writes.len() + 1 {
                    is_found |= keeps(&own, &order, &must_precede);
                }
                Some(order)
            };
            if writes.is_empty() {
                return keeps(&own, &[0], &must_precede);
            }
            // The walk ends at the first order; each branch must be refused for the next one.
            let refuse = &mut |order: &Vec<i64>, next: usize| {
                let after = orders(order, next)?;
                (after.len() <= writes.len()).then_some(after)
            };
            has_order(&writes, &none, &vec![0], refuse);
            is_found
        })
    })
}

fn keeps(
    own: &[&SmallOperation],
    order: &[i64],
    must_precede: &impl Fn(&SmallOperation, i64) -> Option<i64>,
) -> bool {
    let place = |value: i64| order.iter().position(|&it| it == value);
    own.iter().enumerate().all(|(at, read)| {
        let Some(now) = read.read() else {
            return true;
        };
        let Some(now) = place(now) else {
            return false;
        };
        own[..at].iter().all(|earlier| {
            must_precede(earlier, 0).is_none_or(|value| place(value).is_some_and(|it| it <= now))
        })
    })
}

fn own_writes(all: &[SmallOperation]) -> bool {
    versions_in_order(all, |earlier, _| {
        earlier.written().filter(|_| earlier.is_certain())
    })
}

fn never_back(all: &[SmallOperation]) -> bool {
    versions_in_order(all, |earlier, _| earlier.read())
}

/// One order of all writes, each after those whose values its process had read.
fn effects_after_causes(all: &[SmallOperation]) -> bool {
    let writer = |value: i64, key: i64| {
        let mut writes = all.iter();
        writes.position(|it| it.written() == Some(value) && it.key == key)
    };
    let mut before = vec![vec![false; all.len()]; all.len()];
    for read in all {
        let Some(value) = read.read() else {
            continue;
        };
        let source = writer(value, read.key);
        if value != 0 && source.is_none() {
            return false;
        }
        for (number, write) in all.iter().enumerate() {
            if let Some(source) = source
                && write.written().is_some()
                && write.process == read.process
                && read.call < write.call
            {
                before[source][number] = true;
            }
        }
    }
    let writes = (0..all.len()).filter(|&it| all[it].written().is_some());
    let writes: Vec<usize> = writes.collect();
    // A write before itself has no order.
    if writes.iter().any(|&it| before[it][it]) {
        return false;
    }
    has_order(&writes, &before, &(), &mut |(), _| Some(()))
}

/// Is every value that was read written?
fn is_founded(all: &[SmallOperation]) -> bool {
    all.iter().all(|read| {
        let value = read.read().unwrap_or(0);
        value == 0
            || all
                .iter()
                .any(|it| it.written() == Some(value) && it.key == read.key)
    })
}

/// Does the definition hold for some choice of operations of unknown outcome?
pub(crate) fn by_definition(model: ConsistencyModel, operations: &[SmallOperation]) -> bool {
    some_choice(operations, |all| match model {
        ConsistencyModel::Sequential => sequential(all),
        ConsistencyModel::CausalMemory => causal_memory(all),
        ConsistencyModel::CausalConvergence => convergent(all),
        ConsistencyModel::Causal => causal(all),
        ConsistencyModel::Pram => each_view(all, &session_order(all)),
        ConsistencyModel::ReadYourWrites => is_founded(all) && own_writes(all),
        ConsistencyModel::MonotonicReads => is_founded(all) && never_back(all),
        ConsistencyModel::MonotonicWrites => is_founded(all),
        ConsistencyModel::WritesFollowReads => effects_after_causes(all),
        other => unreachable!("{other} is a model of real time"),
    })
}

pub(crate) fn check(model: ConsistencyModel, operations: &[SmallOperation]) -> Verdict {
    Consistency::new(model).check(&history(operations, true))
}

fn shape(rng: &mut Rng) -> SmallShape {
    SmallShape {
        operations: 2 + rng.index(6),
        processes: 1 + rng.index(3),
        keys: 1 + rng.index(KEYS),
        has_cas: false,
        has_repeats: false,
        spoil: *rng.pick(&[0.2, 0.5, 0.9]),
        info: *rng.pick(&[0.0, 0.1, 0.3]),
    }
}

/// Compares a model with its definition on random histories.
fn compare(model: ConsistencyModel, shape: impl Fn(&mut Rng) -> SmallShape, usual: u64) {
    let all = histories(usual);
    let mut counts = [0u64; 3];
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed ^ 0xc0_5157);
        let shape = shape(&mut rng);
        let operations = random(&mut rng, shape);
        let expected = by_definition(model, &operations);
        let verdict = check(model, &operations);
        let shown = effective(&operations);
        match &verdict.valid {
            Validity::Valid => assert!(expected, "{model}, seed {seed}: {shown:#?}"),
            Validity::Invalid => {
                assert!(!expected, "{model}, seed {seed}: {verdict:#?} {shown:#?}");
                assert!(!verdict.findings.is_empty(), "{model}, seed {seed}");
            }
            Validity::Unknown(reason) => {
                let is_trace = reason.contains("alone");
                assert!(is_trace && expected, "{model}, seed {seed}: {reason}");
            }
        }
        counts[match verdict.valid {
            Validity::Valid => 0,
            Validity::Invalid => 1,
            Validity::Unknown(_) => 2,
        }] += 1;
    }
    println!("{model}: {all} histories: valid, invalid, unknown: {counts:?}");
    assert!(counts[0] > all / 50, "{model}: {counts:?}");
    let is_bare = model == ConsistencyModel::MonotonicWrites;
    assert!(is_bare || counts[1] > all / 2_000, "{model}: {counts:?}");
}

#[test]
fn sequential_consistency_is_that_of_all_orders() {
    compare(ConsistencyModel::Sequential, shape, 6_000);
}

#[test]
fn sequential_consistency_of_compare_and_sets_and_repeated_values() {
    let shape = |rng: &mut Rng| SmallShape {
        has_cas: rng.chance(0.5),
        has_repeats: rng.chance(0.5),
        ..shape(rng)
    };
    compare(ConsistencyModel::Sequential, shape, 6_000);
}

#[test]
fn causal_memory_is_that_of_all_views() {
    compare(ConsistencyModel::CausalMemory, shape, 6_000);
}

#[test]
fn causal_convergence_is_that_of_all_orders() {
    compare(ConsistencyModel::CausalConvergence, shape, 6_000);
}

#[test]
fn causal_consistency_is_that_of_all_pasts() {
    compare(ConsistencyModel::Causal, shape, 6_000);
}

#[test]
fn pram_is_that_of_all_views() {
    compare(ConsistencyModel::Pram, shape, 6_000);
}

#[test]
fn session_guarantees_are_those_of_all_orders_of_versions() {
    compare(ConsistencyModel::ReadYourWrites, shape, 6_000);
    compare(ConsistencyModel::MonotonicReads, shape, 6_000);
    compare(ConsistencyModel::MonotonicWrites, shape, 6_000);
    compare(ConsistencyModel::WritesFollowReads, shape, 6_000);
}

#[test]
fn views_that_need_several_visits() {
    // Few processes with many operations each on two keys.
    let shape = |rng: &mut Rng| SmallShape {
        operations: 7 + rng.index(3),
        processes: 2 + rng.index(2),
        keys: 1 + rng.index(2),
        has_cas: false,
        has_repeats: false,
        spoil: *rng.pick(&[0.3, 0.6]),
        info: 0.0,
    };
    compare(ConsistencyModel::Pram, shape, 2_000);
    compare(ConsistencyModel::CausalMemory, shape, 2_000);
}

/// An operation of a history by hand.
pub(crate) fn operation(process: u64, key: i64, access: SmallAccess, call: u64) -> SmallOperation {
    SmallOperation {
        process,
        key,
        access,
        call,
        end: call + 1,
        outcome: seatrial_history::OpType::Ok,
    }
}
