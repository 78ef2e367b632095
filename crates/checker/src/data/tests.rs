//! Each checker against a twin that is written down from its definition, on thousands of small histories.

use super::*;
use crate::{Aims, Checker, MissingPart, Validity, Verdict, check_source};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::collections::BTreeMap;

pub(super) type Counts = BTreeMap<&'static str, u64>;

const SEEDS: u64 = 3_000;

/// A history of a few clients: `invoke` draws an invocation, `complete` the value of its success.
pub(super) fn history(
    rng: &mut Rng,
    mut invoke: impl FnMut(&mut Rng) -> (&'static str, Value),
    mut complete: impl FnMut(&mut Rng, &Op) -> Value,
) -> History {
    let mut open: [Option<Op>; 4] = [const { None }; 4];
    let mut ops: Vec<Op> = Vec::new();
    let mut number = 4;
    let mut processes = [0, 1, 2, 3];
    for _ in 0..4 + rng.below(36) {
        let client = rng.index(4);
        let time = ops.len() as i64 * 1_000_000;
        let mut op = if let Some(invocation) = open[client].take() {
            let (kind, value) = match rng.below(8) {
                0 => (OpType::Fail, invocation.value.clone()),
                1 => (OpType::Info, Value::Nil),
                _ => (OpType::Ok, complete(rng, &invocation)),
            };
            if kind == OpType::Info {
                processes[client] = number;
                number += 1;
            }
            invocation.complete(kind, value)
        } else {
            let (f, value) = invoke(rng);
            let invocation = Op::invoke(Process::Client(processes[client]), f, value);
            open[client] = Some(invocation.clone());
            invocation
        };
        op.time = time;
        ops.push(op);
    }
    History::from_unindexed(ops)
}

pub(super) fn counts(all: &[(&'static str, usize)]) -> Counts {
    let found = all.iter().filter(|(_, count)| *count > 0);
    found.map(|&(name, count)| (name, count as u64)).collect()
}

/// The values of operations of this function and kind.
fn values(history: &History, kind: OpType, f: &str) -> Vec<Value> {
    let ops = history.iter().filter(|op| op.kind == kind && op.f == *f);
    ops.map(|op| op.value.clone()).collect()
}

/// The integers of operations of this function and kind.
pub(super) fn ints(history: &History, kind: OpType, f: &str) -> Vec<i64> {
    let values = values(history, kind, f);
    values.iter().filter_map(Value::as_int).collect()
}

fn distinct(mut all: Vec<i64>) -> Vec<i64> {
    all.sort_unstable();
    all.dedup();
    all
}

fn count(all: &[i64], one: i64) -> usize {
    all.iter().filter(|other| **other == one).count()
}

/// The checker of this name, as it is when nothing more is asked of it.
fn by_name(name: &str) -> Box<dyn Checker> {
    match name {
        "set" => Box::new(Set),
        "set-full" => Box::new(SetFull::default()),
        "queue" => Box::new(Queue),
        "total-queue" => Box::new(TotalQueue),
        "unique-ids" => Box::new(UniqueIds),
        "counter" => Box::new(Counter),
        "bank" => Box::new(Bank::new()),
        "long-fork" => Box::new(LongFork::new()),
        "monotonic" => Box::new(Monotonic::default()),
        other => panic!("{other}: no such checker here"),
    }
}

/// What a read has and cannot have. Checkers that look at the last read pass over it in earlier ones, but no later operation
/// takes it back.
const CERTAIN: [&str; 6] = [
    "unexpected",
    "aborted-read",
    "duplicated",
    "revived",
    "timestamp-disorder",
    "value-disorder",
];

/// Cuts a valid history after every operation: what the missing end may explain is no anomaly.
pub(super) fn no_beginning_is_invalid(checker: &dyn Checker, history: &History, seed: u64) {
    for end in 0..history.len() {
        let ops = &history.ops()[..end];
        let mut verdicts = [checker.check(&History::from_ops(ops.to_vec()))];
        let valid = MissingPart::end("cut").apply(&mut verdicts);
        let mut found = verdicts[0].anomalies.keys();
        let is_certain = found.any(|name| CERTAIN.contains(name));
        let lines: Vec<String> = ops.iter().map(Op::to_string).collect();
        assert!(
            valid != Validity::Invalid || is_certain,
            "{} seed {seed}: {:?}\n{}",
            checker.name(),
            verdicts[0].findings,
            lines.join("\n")
        );
    }
}

/// Runs a checker and its twin on many histories, whole, in chunks, and spread over keys.
pub(super) fn compare(
    name: &'static str,
    make: impl Fn(&mut Rng) -> History,
    twin: impl Fn(&History) -> (Counts, bool),
) {
    let (mut invalid, mut unknown, mut valid) = (0, 0, 0);
    for seed in 0..SEEDS {
        let history = make(&mut Rng::from_seed(seed));
        let checker = by_name(name);
        let verdict = checker.check(&history);
        let (expected, is_known) = twin(&history);
        let printed = || {
            let lines: Vec<String> = history.iter().map(Op::to_string).collect();
            lines.join("\n")
        };
        assert_eq!(
            verdict.anomalies,
            expected,
            "{name} seed {seed}\n{}",
            printed()
        );
        match (&verdict.valid, expected.is_empty()) {
            (Validity::Invalid, false) => invalid += 1,
            (Validity::Valid, true) if is_known => {
                valid += 1;
                no_beginning_is_invalid(&*checker, &history, seed);
            }
            (Validity::Unknown(_), true) if !is_known => unknown += 1,
            (answer, _) => panic!("{name} seed {seed}: {answer:?} {is_known}\n{}", printed()),
        }
        for finding in &verdict.findings {
            let known = |index: &u64| history.get(*index).is_some();
            assert!(finding.operations.iter().all(known), "{finding:?}");
        }
        if seed % 10 == 0 {
            keys_are_checked_independently(&*checker, &history, seed);
        }
    }
    assert!(
        invalid > 300 && valid > 300,
        "{name}: {invalid} {valid} {unknown}"
    );
}

/// Operations spread over two keys: the anomalies are those of both histories.
fn keys_are_checked_independently(checker: &dyn Checker, history: &History, seed: u64) {
    let key_of = |op: &Op| match op.process {
        Process::Client(number) => (number % 2) as i64,
        Process::Named(_) => 0,
    };
    let keyed = history.iter().cloned().map(|op| Op {
        value: Value::Keyed(Key::Int(key_of(&op)), op.value.clone().into()),
        ..op
    });
    let whole = checker.check(&History::from_ops(keyed.collect()));
    let mut sum = Counts::new();
    let mut failing = 0;
    for key in 0..2 {
        let part = checker.check(&history.filter(|op| key_of(op) == key));
        if whole.details.to_json()["keys"].as_u64() > Some(0) {
            let result = &whole.details.to_json()["results"][key.to_string()]["valid"];
            let is_invalid = part.valid == Validity::Invalid;
            assert_eq!(is_invalid, *result == false, "seed {seed}");
        }
        failing += u64::from(part.valid == Validity::Invalid);
        for (name, count) in part.anomalies {
            *sum.entry(name).or_default() += count;
        }
    }
    if whole.details.to_json()["keys"].as_u64() > Some(0) {
        assert_eq!(
            whole.details.to_json()["keys_invalid"],
            failing,
            "seed {seed}"
        );
    }
    assert_eq!(whole.anomalies, sum, "seed {seed}");
    let named = |finding: &crate::Finding| finding.summary.starts_with("Key ");
    assert!(whole.findings.iter().all(named), "seed {seed}");
}

/// Additions of small numbers, some twice, and reads of what `read` makes of those that were tried.
fn sets(rng: &mut Rng) -> History {
    let (mut next, mut tried) = (0, Vec::new());
    let sound = rng.chance(0.6);
    let tries = std::cell::RefCell::new(&mut tried);
    history(
        rng,
        |rng| {
            if rng.below(3) == 0 {
                return ("read", Value::Nil);
            }
            if rng.below(12) != 0 {
                next += 1;
            }
            tries.borrow_mut().push(next);
            ("add", Value::Int(next))
        },
        |rng, op| {
            if op.f == "add" {
                return op.value.clone();
            }
            let mut seen: Vec<i64> = tries.borrow().clone();
            if sound {
                seen = distinct(seen);
            } else {
                seen.retain(|_| rng.below(8) != 0);
                if rng.below(10) == 0 {
                    seen.push(77);
                }
            }
            Value::integers(&seen)
        },
    )
}

#[test]
fn a_set_is_what_its_definition_says() {
    compare("set", sets, |history| {
        let attempts = distinct(ints(history, OpType::Invoke, "add"));
        let acknowledged = distinct(ints(history, OpType::Ok, "add"));
        let Some((began, _, last)) = reads(history).pop() else {
            return (Counts::new(), false);
        };
        let read = distinct(last);
        // Only what was added before the read began must be there.
        let before: Vec<Op> = history.ops()[..began].to_vec();
        let before = ints(&History::from_ops(before), OpType::Ok, "add");
        let missing = acknowledged.iter().filter(|one| !read.contains(one));
        let (lost, later): (Vec<&i64>, Vec<&i64>) = missing.partition(|one| before.contains(*one));
        let unexpected = read.iter().filter(|one| !attempts.contains(one));
        let found = [("lost", lost.len()), ("unexpected", unexpected.count())];
        (counts(&found), later.is_empty())
    });
}

/// A read that took place: positions of its invocation and its completion, and what it saw.
fn reads(history: &History) -> Vec<(usize, usize, Vec<i64>)> {
    let ops = history.iter().enumerate();
    let reads = ops.filter(|(_, op)| op.is_ok() && op.f == "read");
    reads
        .map(|(at, op)| {
            let seen = op.value.as_integers().unwrap();
            (history.pair(at).unwrap(), at, seen)
        })
        .collect()
}

/// Stable, lost, stale, aborted?
fn fate(history: &History, element: i64) -> [bool; 4] {
    let is_add = |op: &Op| op.f == "add" && op.value == Value::Int(element);
    let all = history.ops();
    let added = all.iter().position(|op| op.is_invoke() && is_add(op));
    let added = added.unwrap();
    let acknowledged = all.iter().position(|op| op.is_ok() && is_add(op));
    let reads = reads(history);
    let reads = || reads.iter().filter(|(_, end, _)| *end > added);
    let with = || reads().filter(|(_, _, seen)| seen.contains(&element));
    let seen = with().map(|(_, end, _)| *end).min();
    let known = [acknowledged, seen].into_iter().flatten().min();
    let present = with().map(|(begin, ..)| *begin).max();
    let without = reads().filter(|(_, _, seen)| !seen.contains(&element));
    let absent = without.map(|(begin, ..)| *begin).max();
    let stable = present.is_some() && present > absent;
    let missing = known.is_some() && absent > known;
    let tries = all.iter().filter(|op| op.is_invoke() && is_add(op));
    let failures = all.iter().filter(|op| op.is_fail() && is_add(op));
    let aborted = seen.is_some() && tries.count() == failures.count();
    let lost = missing && absent > present;
    [stable, lost, stable && missing, aborted]
}

#[test]
fn every_element_of_a_set_meets_its_fate() {
    compare("set-full", sets, |history| {
        let elements = distinct(ints(history, OpType::Invoke, "add"));
        let fates: Vec<_> = elements.iter().map(|one| fate(history, *one)).collect();
        let of = |number: usize| fates.iter().filter(|fate| fate[number]).count();
        let all: Vec<i64> = reads(history).into_iter().flat_map(|read| read.2).collect();
        let all = distinct(all);
        let unexpected = all.iter().filter(|one| !elements.contains(one)).count();
        let twice = |one: &&i64| reads(history).iter().any(|read| count(&read.2, **one) > 1);
        let found = [
            ("lost", of(1)),
            ("stale", of(2)),
            ("aborted-read", of(3)),
            ("duplicated", all.iter().filter(twice).count()),
            ("unexpected", unexpected),
        ];
        (counts(&found), of(0) > 0)
    });
}

/// Enqueues of small numbers, some twice; dequeues and drains of what was tried.
fn queues(rng: &mut Rng) -> History {
    let mut next = 0;
    let tries = std::cell::RefCell::new(Vec::new());
    let sloppiness = *rng.pick(&[0.0, 0.0, 0.05, 0.2]);
    let mut made = history(
        rng,
        |rng| match rng.below(5) {
            0 if sloppiness > 0.0 => ("drain", Value::Nil),
            0..3 => ("dequeue", Value::Nil),
            _ => {
                if !rng.chance(sloppiness) {
                    next += 1;
                }
                tries.borrow_mut().push(next);
                ("enqueue", Value::Int(next))
            }
        },
        |rng, op| {
            let mut inside = tries.borrow_mut();
            let mut take = |rng: &mut Rng| match inside.is_empty() || rng.chance(sloppiness) {
                true => None,
                false if rng.chance(sloppiness) => Some(inside[0]),
                false => Some(inside.remove(0)),
            };
            match op.f.as_str() {
                "enqueue" => op.value.clone(),
                "dequeue" => Value::Int(take(rng).unwrap_or(if sloppiness > 0.0 { 99 } else { 1 })),
                _ => Value::integers(&[take(rng), take(rng)].map(|one| one.unwrap_or(1))),
            }
        },
    );
    if sloppiness == 0.0 {
        // Nothing was there: a dequeue that fails. And at the end all comes out.
        let mut taken: Vec<i64> = Vec::new();
        let mut ops: Vec<Op> = made.ops().to_vec();
        for op in &mut ops {
            if op.f == "dequeue" && op.is_ok() {
                let value = op.value.as_int().unwrap();
                if taken.contains(&value) || !made_before(&made, op.index, value) {
                    op.kind = OpType::Fail;
                }
                taken.push(value);
            }
        }
        let rest = ints(&made, OpType::Invoke, "enqueue");
        let rest: Vec<i64> = rest
            .into_iter()
            .filter(|one| !taken.contains(one))
            .collect();
        let drain = Op::invoke(Process::Client(1_000), "drain", Value::Nil);
        ops.push(drain.clone());
        ops.push(drain.complete(OpType::Ok, Value::integers(&rest)));
        made = History::from_unindexed(ops);
    }
    made
}

fn made_before(history: &History, index: u64, value: i64) -> bool {
    let mut before = history.iter().take_while(|op| op.index < index);
    before.any(|op| op.is_invoke() && op.f == "enqueue" && op.value == Value::Int(value))
}

#[test]
fn a_queue_gives_what_it_was_given() {
    compare("queue", queues, |history| {
        let mut inside = Vec::new();
        let mut ever = Vec::new();
        let (mut unexpected, mut duplicated) = (0, 0);
        for op in history {
            let taken = match (op.kind, op.f.as_str()) {
                (OpType::Invoke, "enqueue") => {
                    inside.push(op.value.as_int().unwrap());
                    ever.push(op.value.as_int().unwrap());
                    continue;
                }
                (OpType::Ok, "dequeue") => vec![op.value.as_int().unwrap()],
                (OpType::Ok, "drain") => op.value.as_integers().unwrap(),
                _ => continue,
            };
            for one in taken {
                match inside.iter().position(|other| *other == one) {
                    Some(place) => drop(inside.remove(place)),
                    None if ever.contains(&one) => duplicated += 1,
                    None => unexpected += 1,
                }
            }
        }
        let found = [("unexpected", unexpected), ("duplicated", duplicated)];
        (counts(&found), true)
    });
}

#[test]
fn what_goes_into_a_queue_comes_out() {
    compare("total-queue", queues, |history| {
        let attempts = ints(history, OpType::Invoke, "enqueue");
        let acknowledged = ints(history, OpType::Ok, "enqueue");
        let mut dequeued = ints(history, OpType::Ok, "dequeue");
        for drained in values(history, OpType::Ok, "drain") {
            dequeued.extend(drained.as_integers().unwrap());
        }
        let missing = distinct(acknowledged.clone());
        let missing = missing
            .into_iter()
            .filter(|one| count(&acknowledged, *one) > count(&dequeued, *one));
        let ops = || history.iter().enumerate();
        // Where the last look began that left nothing inside.
        let empties = |op: &Op| match op.f.as_str() {
            "drain" => op.is_ok(),
            "dequeue" => op.kind == OpType::Fail,
            _ => false,
        };
        let emptied = ops().filter(|(_, op)| empties(op));
        let emptied = emptied.filter_map(|(at, _)| history.pair(at)).max();
        let acknowledgement = |one: i64| {
            let mut added = ops().filter(|(_, op)| op.is_ok() && op.f == "enqueue");
            added
                .rfind(|(_, op)| op.value == Value::Int(one))
                .map(|(at, _)| at)
        };
        let (lost, undrained): (Vec<i64>, Vec<i64>) =
            missing.partition(|one| acknowledgement(*one) < emptied);
        let unexpected = distinct(dequeued.clone());
        let unexpected = unexpected.iter().filter(|one| !attempts.contains(one));
        let (lost, unexpected) = (lost.len(), unexpected.count());
        let mut drains = ops().filter(|(_, op)| op.f == "drain" && op.is_invoke());
        let hangs = drains.any(|(at, _)| history.completion(at).is_none_or(Op::is_info));
        let open = ops().filter(|(_, op)| op.f == "dequeue" && op.is_invoke());
        let open = open
            .filter(|(at, _)| history.completion(*at).is_none())
            .count();
        let hides = hangs || lost <= open;
        let known = if hides { 0 } else { lost };
        let found = [("lost", known), ("unexpected", unexpected)];
        let is_known = (lost == 0 || !hides) && undrained.is_empty();
        (counts(&found), is_known)
    });
}

#[test]
fn what_a_crashed_dequeue_may_have_taken_is_not_lost() {
    let client = |number, f: &'static str, value| Op::invoke(Process::Client(number), f, value);
    let verdict_of = |crashed: Vec<(&'static str, Value)>| {
        let mut ops = Vec::new();
        for element in 1..=3 {
            let enqueue = client(0, "enqueue", Value::Int(element));
            ops.extend([
                enqueue.clone(),
                enqueue.complete(OpType::Ok, Value::Int(element)),
            ]);
        }
        for (number, (f, value)) in (1..).zip(crashed) {
            let op = client(number, f, Value::Nil);
            ops.extend([op.clone(), op.complete(OpType::Info, value)]);
        }
        let drain = client(9, "drain", Value::Nil);
        ops.extend([
            drain.clone(),
            drain.complete(OpType::Ok, Value::integers(&[3])),
        ]);
        TotalQueue.check(&History::from_unindexed(ops))
    };
    let named = verdict_of(vec![
        ("dequeue", Value::Int(1)),
        ("drain", Value::integers(&[2])),
    ]);
    assert_eq!(named.valid, Validity::Valid);
    let half = verdict_of(vec![("dequeue", Value::Int(1)), ("dequeue", Value::Nil)]);
    assert_eq!(half.anomalies["lost"], 1);
    let silent = verdict_of(vec![("dequeue", Value::Int(1)), ("drain", Value::Nil)]);
    assert!(matches!(silent.valid, Validity::Unknown(_)));
}

#[test]
fn identifiers_are_unique() {
    let make = |rng: &mut Rng| {
        let range = *rng.pick(&[20, 400]);
        let id = move |rng: &mut Rng, _: &Op| match rng.below(range) {
            odd if odd % 2 == 1 => Value::text(odd.to_string()),
            even => Value::Int(even as i64),
        };
        history(rng, |_| ("generate", Value::Nil), id)
    };
    compare("unique-ids", make, |history| {
        let all = values(history, OpType::Ok, "generate");
        let times = |one: &Value| all.iter().filter(|other| *other == one).count();
        let is_first = |at: usize| all[..at].iter().all(|other| *other != all[at]);
        let twice = (0..all.len()).filter(|&at| is_first(at) && times(&all[at]) > 1);
        (counts(&[("duplicated", twice.count())]), !all.is_empty())
    });
}

#[test]
fn a_counter_stays_within_its_bounds() {
    let make = |rng: &mut Rng| {
        let sum = std::cell::Cell::new(0);
        let sloppiness = *rng.pick(&[0, 0, 2]);
        history(
            rng,
            |rng| match rng.below(2) {
                0 => ("read", Value::Nil),
                _ => ("add", Value::Int(rng.below(4) as i64)),
            },
            |rng, op| {
                if op.f == "read" {
                    return Value::Int(sum.get() + rng.below(sloppiness + 1) as i64);
                }
                sum.set(sum.get() + op.value.as_int().unwrap());
                op.value.clone()
            },
        )
    };
    compare("counter", make, |history| {
        // Jepsen's: failed operations are taken out first.
        let has_failed = |at: usize| history.completion(at).is_some_and(Op::is_fail);
        let (mut lower, mut upper) = (0, 0);
        let mut reading = BTreeMap::new();
        let (mut below, mut above, mut reads) = (0, 0, 0);
        for (at, op) in history.iter().enumerate() {
            match (op.kind, op.f.as_str()) {
                (OpType::Invoke, "add") if !has_failed(at) => upper += op.value.as_int().unwrap(),
                (OpType::Ok, "add") => lower += op.value.as_int().unwrap(),
                (OpType::Invoke, "read") => drop(reading.insert(op.process, lower)),
                (OpType::Ok, "read") => {
                    let value = op.value.as_int().unwrap();
                    reads += 1;
                    below += usize::from(value < reading[&op.process]);
                    above += usize::from(value > upper);
                }
                _ => {}
            }
        }
        let found = [("below-bounds", below), ("above-bounds", above)];
        (counts(&found), reads > 0)
    });
}

/// Reads of three accounts that have ten together, as a rule.
fn banks(rng: &mut Rng) -> History {
    let sloppiness = *rng.pick(&[0.0, 0.0, 0.1]);
    let invoke = |rng: &mut Rng| match rng.below(3) {
        0 => ("transfer", Value::transfer(0, 1, 2)),
        _ => ("read", Value::Nil),
    };
    history(rng, invoke, |rng, op| {
        if op.f == "transfer" {
            return op.value.clone();
        }
        let first = rng.below(11) as i64;
        let second = rng.below(11 - first as u64) as i64;
        let mut balances = vec![first, second, 10 - first - second].into_iter();
        let mut pairs: Vec<_> = (0..3)
            .map(|account| {
                (
                    Value::Int(account),
                    balances.next().map(Value::Int).unwrap(),
                )
            })
            .collect();
        if rng.chance(sloppiness) {
            match rng.below(4) {
                0 => pairs[0].1 = Value::Nil,
                1 => pairs[1].1 = Value::Int(17),
                2 => pairs.push((Value::Int(7), Value::Int(0))),
                _ => {
                    (pairs[0].1, pairs[1].1, pairs[2].1) =
                        (Value::Int(-1), Value::Int(11), Value::Int(0));
                }
            }
        }
        Value::Map(pairs.into())
    })
}

/// What is wrong with balances of accounts 0 to 2 that should add up to ten.
fn wrong(value: &Value) -> Option<&'static str> {
    let Value::Map(pairs) = value else { panic!() };
    let balances: Vec<_> = pairs.iter().map(|(_, balance)| balance.as_int()).collect();
    if pairs.len() > 3 {
        Some("unexpected-account")
    } else if balances.contains(&None) {
        Some("nil-balance")
    } else if balances.iter().flatten().sum::<i64>() != 10 {
        Some("wrong-total")
    } else {
        (balances.iter().flatten().any(|one| *one < 0)).then_some("negative-balance")
    }
}

#[test]
fn banks_keep_their_total() {
    let mut found = [0; 2];
    for seed in 0..SEEDS {
        let history = banks(&mut Rng::from_seed(seed));
        let reads = values(&history, OpType::Ok, "read");
        let mut expected = Counts::new();
        for anomaly in reads.iter().filter_map(wrong) {
            *expected.entry(anomaly).or_default() += 1;
        }
        let verdict = Bank::new().accounts(0..3).total(10).check(&history);
        assert_eq!(verdict.anomalies, expected, "seed {seed}");
        found[usize::from(!expected.is_empty())] += 1;
        // Most reads tell accounts and total.
        let sound = reads.iter().filter(|read| wrong(read).is_none()).count();
        if sound * 2 > reads.len() {
            let inferred = Bank::new().check(&history);
            assert_eq!(inferred.anomalies, expected, "seed {seed}");
            if expected.is_empty() {
                no_beginning_is_invalid(&Bank::new(), &history, seed);
            }
        }
        let lenient = Bank::new().accounts(0..3).total(10).negative_balances();
        expected.remove("negative-balance");
        assert_eq!(lenient.check(&history).anomalies, expected, "seed {seed}");
    }
    assert!(found.iter().all(|&count| count > 300), "{found:?}");
}

#[test]
fn chunk_by_chunk_or_whole_the_verdict_is_the_same() {
    let text = |verdict: &Verdict| serde_json::to_string(verdict).unwrap();
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let (sets, queues, banks) = (sets(&mut rng), queues(&mut rng), banks(&mut rng));
        for (name, history) in [
            ("set", &sets),
            ("set-full", &sets),
            ("queue", &queues),
            ("total-queue", &queues),
            ("bank", &banks),
        ] {
            let checker = by_name(name);
            let streamed = check_source(&*checker, history, &Aims::default()).unwrap();
            let whole = checker.check(history);
            assert_eq!(text(&streamed.verdict), text(&whole), "{name} {seed}");
        }
    }
}

#[test]
fn findings_say_it_in_words() {
    let mut ops = Vec::new();
    let mut push = |process: u64, f: &'static str, before: Value, after: Value| {
        let invocation = Op::invoke(Process::Client(process), f, before);
        ops.push(invocation.clone());
        ops.push(invocation.complete(OpType::Ok, after));
    };
    push(0, "add", Value::Int(1), Value::Nil);
    push(1, "add", Value::Int(2), Value::Nil);
    push(0, "read", Value::Nil, Value::integers(&[1]));
    push(0, "read", Value::Nil, Value::integers(&[1, 2]));
    push(0, "read", Value::Nil, Value::integers(&[2, 2]));
    let history = History::from_unindexed(ops);
    let text_of = |name| {
        let verdict = by_name(name).check(&history);
        let summaries = verdict.findings.into_iter().map(|finding| finding.summary);
        summaries.collect::<Vec<_>>()
    };
    assert_eq!(
        text_of("set"),
        ["The addition of 1 (op 0) succeeded (op 1), but the last read (op 9) does not have it."]
    );
    assert_eq!(
        text_of("set-full"),
        [
            "Op 9 read 2 2 times.",
            "1 was there as of op 1, was last seen by the read that began with op 6, and is missing from the read that \
             began with op 8.",
            "2 was there as of op 3, but a read that began later (op 4) does not have it.",
        ]
    );
    let eventual = SetFull::new(Visibility::Eventual).check(&history);
    assert!(!eventual.anomalies.contains_key("stale"));
    assert_eq!(eventual.details.to_json()["lists"]["stale"][0], "2");
}

#[test]
fn a_queue_that_was_not_drained_lost_nothing_yet() {
    let validity_of = |last: &[(&'static str, OpType, Value, Option<&'static str>)]| {
        let enqueue = Op::invoke(Process::Client(0), "enqueue", Value::Int(1));
        let mut ops = vec![enqueue.clone(), enqueue.complete(OpType::Ok, Value::Int(1))];
        for (number, (f, kind, value, error)) in (1..).zip(last) {
            let op = Op::invoke(Process::Client(number), *f, Value::Nil);
            ops.push(op.clone());
            let done = op.complete(*kind, value.clone());
            ops.extend((*kind != OpType::Invoke).then_some(match error {
                Some(error) => done.with("error", Value::text(*error)),
                None => done,
            }));
        }
        TotalQueue.check(&History::from_unindexed(ops)).valid
    };
    let is_unknown = |valid: Validity| matches!(valid, Validity::Unknown(_));
    let drain = ("drain", OpType::Ok, Value::integers(&[]), None);
    let empty = ("dequeue", OpType::Fail, Value::Nil, Some("empty"));
    assert_eq!(validity_of(std::slice::from_ref(&drain)), Validity::Invalid);
    assert_eq!(validity_of(&[empty]), Validity::Invalid);
    assert_eq!(
        validity_of(&[("dequeue", OpType::Ok, Value::Nil, None)]),
        Validity::Invalid
    );
    assert!(is_unknown(validity_of(&[])));
    let refused = (
        "dequeue",
        OpType::Fail,
        Value::Nil,
        Some("connection refused"),
    );
    assert!(is_unknown(validity_of(&[refused])));
    // It may have it.
    let open = ("dequeue", OpType::Invoke, Value::Nil, None);
    assert!(is_unknown(validity_of(&[drain, open])));
}
