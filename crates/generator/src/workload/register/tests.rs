use super::*;
use crate::{Interpreter, InterpreterOptions, SimulatedReply, Simulation};
use seatrial_history::{History, OpType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A client whose registers are perfect; one operation in `crash_every` crashes without a trace.
fn run(options: RegisterOptions, threads: u32, count: u64, crash_every: u64) -> History {
    let generator = cas_registers(Rng::from_seed(3), options).limit(count);
    let options = InterpreterOptions::new(threads, Rng::from_seed(3));
    let mut registers: BTreeMap<Key, i64> = BTreeMap::new();
    let mut rng = Rng::from_seed(8);
    let client = move |op: &Op| {
        let Value::Keyed(key, value) = &op.value else {
            panic!("{op}")
        };
        let now = registers.entry(key.clone()).or_default();
        let keyed = |value| Value::Keyed(key.clone(), Arc::new(value));
        let latency = rng.duration_below(Duration::from_millis(10));
        if rng.below(crash_every) == 0 {
            return SimulatedReply::After(latency, OpType::Info, op.value.clone());
        }
        let (kind, value) = match **value {
            Value::Nil if *now == 0 => (OpType::Ok, Value::Nil),
            Value::Nil => (OpType::Ok, Value::Int(*now)),
            Value::Cas(old, _) if *now != old => (OpType::Fail, (**value).clone()),
            Value::Int(new) | Value::Cas(_, new) => {
                *now = new;
                (OpType::Ok, (**value).clone())
            }
            ref other => panic!("{other}"),
        };
        SimulatedReply::After(latency, kind, keyed(value))
    };
    Simulation::new(Interpreter::new(generator, &options), client)
        .run()
        .unwrap()
}

fn key(op: &Op) -> i64 {
    match &op.value {
        Value::Keyed(Key::Int(key), _) => *key,
        other => panic!("{other}"),
    }
}

#[test]
fn few_threads_share_a_key_and_leave_it_in_time() {
    let history = run(RegisterOptions::default(), 10, 20_000, u64::MAX);
    let mut keys: BTreeMap<i64, (u64, u64, BTreeSet<_>)> = BTreeMap::new();
    for op in history.iter().filter(|op| op.is_invoke()) {
        let entry = keys.entry(key(op)).or_default();
        entry.0 += 1;
        entry.1 += u64::from(op.f != "read");
        entry.2.insert(op.process);
    }
    assert!(keys.len() > 130, "{} keys", keys.len());
    for (operations, writes, threads) in keys.values() {
        assert!(*writes <= 90 && *operations < 250 && threads.len() <= 3);
    }
    let done = keys.values().filter(|(_, writes, _)| *writes == 90).count();
    assert!(done >= keys.len() - 4, "only the last keys are unfinished");
}

#[test]
fn a_group_of_threads_spreads_over_its_keys_as_the_distribution_says() {
    let options = RegisterOptions {
        keys: KeyOptions {
            count: 3,
            distribution: KeyDistribution::ALL[1],
            writes_per_key: u32::MAX,
        },
        ..RegisterOptions::default()
    };
    let history = run(options, 6, 22_000, u64::MAX);
    let mut counts = [0_i32; 6];
    for op in history.iter().filter(|op| op.is_invoke()) {
        counts[key(op) as usize] += 1;
    }
    // Zipf of three: 6, 3 and 2 of eleven, in each of two groups, whose keys alternate.
    let wanted = [6_000, 6_000, 3_000, 3_000, 2_000, 2_000];
    for (count, wanted) in counts.into_iter().zip(wanted) {
        assert!((count - wanted).abs() < 300, "{counts:?}");
    }
}

#[test]
fn written_values_are_new_and_many_swaps_succeed() {
    let history = run(RegisterOptions::default(), 6, 6_000, u64::MAX);
    let mut written = BTreeSet::new();
    let (mut swaps, mut swapped) = (0, 0);
    for op in &history {
        let Value::Keyed(_, value) = &op.value else {
            panic!()
        };
        let new = match **value {
            Value::Int(new) if op.f == "write" => new,
            Value::Cas(_, new) => new,
            _ => continue,
        };
        if op.is_invoke() {
            assert!(written.insert((key(op), new)), "{op}");
        }
        swaps += u32::from(op.f == "cas" && op.is_invoke());
        swapped += u32::from(op.f == "cas" && op.is_ok());
    }
    assert!(
        swaps > 1_000 && swapped * 10 > swaps * 3,
        "{swapped} of {swaps}"
    );
}

#[test]
fn crashes_end_a_key_early() {
    let history = run(RegisterOptions::default(), 6, 3_000, 10);
    let mut crashes: BTreeMap<i64, u64> = BTreeMap::new();
    for op in history.iter().filter(|op| op.is_info()) {
        *crashes.entry(key(op)).or_default() += 1;
    }
    // The last crash of a key may be followed by those of operations that were already open.
    assert!(crashes.values().all(|&count| count <= 6 + 3), "{crashes:?}");
    assert!(crashes.len() > 30);
}

#[test]
fn plain_registers_never_compare() {
    let generator = registers(Rng::from_seed(3), RegisterOptions::default()).limit(2_000);
    let history = Simulation::perfect(generator, 5).run().unwrap();
    let reads = history.iter().filter(|op| op.is_invoke() && op.f == "read");
    assert!((700..900).contains(&reads.count()));
    assert!(history.iter().all(|op| op.f == "read" || op.f == "write"));
}

#[test]
fn what_a_group_does_depends_on_no_other() {
    let sequences = |latencies: u64| {
        let mut rng = Rng::from_seed(latencies);
        let client = move |op: &Op| {
            let latency = rng.duration_below(Duration::from_millis(1 + op.index % 20));
            SimulatedReply::After(latency, OpType::Ok, op.value.clone())
        };
        let generator = registers(Rng::from_seed(5), RegisterOptions::default()).limit(5_000);
        let options = InterpreterOptions::new(10, Rng::from_seed(latencies));
        let history = Simulation::new(Interpreter::new(generator, &options), client).run();
        let mut groups: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for op in history.unwrap().iter().filter(|op| op.is_invoke()) {
            let group = groups.entry(key(op) % 4).or_default();
            group.push(format!("{} {}", op.f, op.value));
        }
        groups
    };
    let (slow, fast) = (sequences(1), sequences(2));
    for (group, fast) in &fast {
        let both = fast.len().min(slow[group].len());
        assert!(both > 300, "{both} operations of group {group}");
        assert_eq!(fast[..both], slow[group][..both], "group {group}");
    }
    assert_ne!(slow, fast);
}
