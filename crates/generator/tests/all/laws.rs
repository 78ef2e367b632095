//! What a whole test may rely on: no operation is lost.

use crate::soundness::{DEPTH, build};
use crate::twin::{Gen, Link};
use seatrial_generator::Simulation;
use seatrial_history::Value;
use seatrial_machine::Rng;
use std::sync::Arc;
use std::time::Duration;

/// A random tree that must not lose anything, and the values of all its operations, in the simplest way.
fn lossless(rng: &mut Rng, depth: u32, values: &mut i64) -> (Gen, Vec<i64>) {
    if depth == 0 || rng.chance(0.1) {
        let first = *values;
        *values += rng.below(6) as i64;
        let one = |value| Gen::One("a".into(), Value::Int(value), None, 0).into();
        let all: Vec<i64> = (first..*values).collect();
        return (Gen::Sequence(all.iter().copied().map(one).collect()), all);
    }
    let fork = Rng::from_seed(rng.word());
    let time = 1 + rng.below(30) as i64;
    let choice = rng.below(14);
    let count = if choice < 6 { 1 + rng.below(3) } else { 1 };
    let mut all = Vec::new();
    let mut parts: Vec<Link> = Vec::new();
    for _ in 0..count {
        let (part, mut values) = lossless(rng, depth - 1, values);
        parts.push(part.into());
        all.append(&mut values);
    }
    let one = Arc::clone(&parts[0]);
    let tree = match choice {
        0..=2 => Gen::Any {
            rng: fork,
            parts: parts.into_iter().map(Some).collect(),
            shortest: false,
        },
        3 | 4 => Gen::Mix(fork, parts.into_iter().map(Some).collect()),
        5 => Gen::Sequence(parts),
        6 => Gen::Stagger(fork, Duration::from_nanos(time as u64), 0, one),
        7 => Gen::Delay(time, 0, one),
        8 => Gen::DelayTil(time, one),
        9 => Gen::Synchronize(false, one),
        10 => Gen::Limit(u64::MAX, one),
        11 => Gen::CycleTimes(None, vec![(time, one)]),
        12 => Gen::ConcurrencyLimit(time as usize, std::collections::BTreeSet::new(), one),
        _ => Gen::Validate(one),
    };
    (tree, all)
}

#[test]
fn trees_of_any_and_mix_lose_no_operation() {
    let mut operations = 0;
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let (tree, mut wanted) = lossless(&mut rng, DEPTH, &mut 0);
        let concurrency = 1 + rng.below(4) as u32;
        let history = Simulation::perfect(build(&tree), concurrency)
            .run()
            .unwrap();
        let begins = |position: &usize| history.pair(*position) > Some(*position);
        let begins = (0..history.len()).filter(begins);
        let mut found: Vec<i64> = begins
            .map(|position| history.ops()[position].value.as_int().unwrap())
            .collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "seed {seed}\n{tree:#?}");
        operations += found.len();
    }
    assert!(operations > 20_000, "{operations}");
}
