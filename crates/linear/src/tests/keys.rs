//! Histories of independent keys: all searched, or up to the first that is broken.

use super::{brute_force, random_history};
use crate::linearizable::CONFIGURATIONS_FIRST;
use crate::{Linearizable, Model};
use seatrial_checker::{Aims, Checker as _, Validity, Verdict, check_source};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::sync::Arc;

/// The same operations on one key of many.
fn keyed(history: &History, key: i64) -> Vec<Op> {
    let ops = history.iter().map(|op| Op {
        value: Value::Keyed(Key::Int(key), Arc::new(op.value.clone())),
        // Histories of other keys have up to 16 processes of their own.
        process: match op.process {
            Process::Client(client) => Process::Client(client + 16 * key.cast_unsigned()),
            named @ Process::Named(_) => named,
        },
        ..op.clone()
    });
    ops.collect()
}

/// Histories side by side, their operations in any order that keeps that of each.
fn shuffled(mut parts: Vec<Vec<Op>>, rng: &mut Rng) -> History {
    for part in &mut parts {
        part.reverse();
    }
    let mut ops = Vec::new();
    while parts.iter().any(|part| !part.is_empty()) {
        let part = rng.index(parts.len());
        ops.extend(parts[part].pop());
    }
    History::from_unindexed(ops)
}

/// Searched up to the first broken key.
fn first(checker: Linearizable, history: &History) -> Verdict {
    let mut checker = checker;
    checker.stop_at_first();
    checker.check(history)
}

#[test]
fn stopping_at_the_first_broken_key_changes_no_verdict() {
    let (mut broken, mut stopped) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let model = Model::ALL[seed as usize % 4];
        let parts = (0..5).map(|_| random_history(model, 4, 3, &mut rng));
        let parts: Vec<History> = parts.collect();
        let expected: Vec<i64> = (0..5)
            .filter(|&key| !brute_force(model, &parts[key as usize]))
            .collect();
        let parts = parts.iter().zip(0..).map(|(part, key)| keyed(part, key));
        let history = shuffled(parts.collect(), &mut rng);
        let checker = Linearizable::new(model);
        let all = checker.check(&history);
        let keys = all.details.to_json()["keys"].as_u64().unwrap();
        assert_eq!(all.details.to_json()["keys_checked"], keys, "seed {seed}");
        assert_eq!(
            all.details.to_json()["keys_invalid"],
            expected.len(),
            "seed {seed}"
        );
        assert_eq!(all.reason, None, "seed {seed}");
        let one = first(checker, &history);
        assert_eq!(one.valid, all.valid, "seed {seed}");
        assert_eq!(one.valid == Validity::Invalid, !expected.is_empty());
        let Some(culprit) = expected.first() else {
            assert_eq!(one.details, all.details, "seed {seed}");
            continue;
        };
        broken += 1;
        // The first in the order of keys; keys that only failed operations name are none.
        assert_eq!(one.findings[..], all.findings[..1], "seed {seed}");
        assert_eq!(one.details.to_json()["keys_invalid"], 1);
        assert_eq!(
            one.details.to_json()["results"][culprit.to_string()]["valid"],
            false
        );
        let checked = one.details.to_json()["keys_checked"].as_u64().unwrap();
        assert!(checked <= culprit.cast_unsigned() + 1, "seed {seed}");
        let reason = (checked < keys).then(|| {
            stopped += 1;
            format!(
                "checking stopped at the first key that is not linearizable: {checked} of {keys} keys checked; \
                 --all-keys checks all"
            )
        });
        assert_eq!(one.reason, reason, "seed {seed}");
    }
    assert!(broken > 500 && stopped > 300, "{broken} {stopped}");
}

/// Additions of even numbers, of unknown outcome, and a read of an odd sum: all subsets are tried.
fn contended(key: i64) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut push = |process, f: &'static str, kind, value| {
        let mut op = Op::invoke(Process::Client(process), f, value);
        op.kind = kind;
        ops.push(op);
    };
    for process in 0..19 {
        push(process, "add", OpType::Invoke, Value::Int(2 << process));
    }
    push(19, "read", OpType::Invoke, Value::Nil);
    push(19, "read", OpType::Ok, Value::Int(1));
    keyed(&History::from_unindexed(ops), key)
}

fn stale(key: i64) -> Vec<Op> {
    let add = Op::invoke(Process::Client(0), "add", Value::Int(1));
    let read = Op::invoke(Process::Client(0), "read", Value::Nil);
    let ops = vec![
        add.clone(),
        add.complete(OpType::Ok, Value::Int(1)),
        read.clone(),
        read.complete(OpType::Ok, Value::Int(0)),
    ];
    keyed(&History::from_unindexed(ops), key)
}

#[test]
fn a_broken_key_is_found_before_searches_that_take_long() {
    let mut rng = Rng::from_seed(1);
    let history = shuffled(
        vec![contended(0), contended(1), stale(2), stale(3)],
        &mut rng,
    );
    let bound = crate::Bound {
        configurations_max: 60_000,
        ..crate::Bound::default()
    };
    let checker = Linearizable::new(Model::Counter).with_bound(bound);
    let all = checker.check(&history);
    assert_eq!(all.details.to_json()["keys_invalid"], 2);
    assert!(all.details.to_json()["configurations"].as_u64().unwrap() > 120_000);
    let one = first(checker, &history);
    assert_eq!(one.valid, Validity::Invalid);
    // Two keys were put off, and one not looked at.
    assert_eq!(one.details.to_json()["keys_checked"], 1);
    assert_eq!(one.details.to_json()["keys"], 4);
    let visited = one.details.to_json()["configurations"].as_u64().unwrap();
    assert!(visited < 3 * CONFIGURATIONS_FIRST, "{visited}");
    // Without a broken key those that were put off are searched to the bound.
    let history = shuffled(vec![contended(0), contended(1)], &mut rng);
    let (one, all) = (first(checker, &history), checker.check(&history));
    assert_eq!(one.valid, all.valid);
    assert!(all.reason.unwrap().starts_with("key 0: the bound on "));
    assert_eq!(one.details.to_json()["keys_checked"], 2);
    assert!(
        one.details.to_json()["configurations"].as_u64()
            > all.details.to_json()["configurations"].as_u64()
    );
}

#[test]
fn unsupported_operations_are_found_before_any_search() {
    let mut odd = keyed(&History::default(), 9);
    odd.push(Op::invoke(
        Process::Client(99),
        "cas",
        Value::Keyed(Key::Int(9), Arc::new(Value::Cas(1, 2))),
    ));
    let history = shuffled(vec![stale(2), odd], &mut Rng::from_seed(1));
    let verdict = first(Linearizable::new(Model::KeyValue), &history);
    let reason = verdict.reason.unwrap();
    assert!(reason.ends_with("a kv-map has no `cas`"), "{reason}");
}

#[test]
fn threads_change_no_verdict_and_no_certificate() {
    let (mut valid, mut stopped) = (0, 0);
    for seed in 0..600u64 {
        let mut rng = Rng::from_seed(seed);
        let model = Model::ALL[seed as usize % Model::ALL.len()];
        let count = 1 + rng.below(40).cast_signed();
        let parts = (0..count).map(|key| keyed(&random_history(model, 6, 3, &mut rng), key));
        let parts: Vec<_> = parts.collect();
        let history = shuffled(parts, &mut rng);
        let mut checker = Linearizable::new(model);
        if rng.chance(0.5) {
            checker.stop_at_first();
        }
        let check = |threads| {
            let aims = Aims {
                certify: true,
                threads,
                ..Aims::default()
            };
            check_source(&checker, &history, &aims).unwrap()
        };
        let one = check(1);
        let two = check(2 + rng.index(3));
        let text = |verdict: &Verdict| format!("{verdict:?}");
        assert_eq!(text(&two.verdict), text(&one.verdict), "seed {seed}");
        assert_eq!(two.certificate, one.certificate, "seed {seed}");
        valid += u64::from(one.verdict.valid == Validity::Valid);
        stopped += u64::from(one.verdict.reason.is_some());
    }
    assert!(valid > 20 && stopped > 100, "{valid} {stopped}");
}
