//! Long forks and timestamps against their twins.

use super::tests::{Counts, compare, counts, history, ints};
use crate::{Agreement, Checker, Monotonic, Validity};
use seatrial_history::{History, Key, Mop, Observed, Op, OpType, Process, Value};
use seatrial_machine::Rng;
use std::collections::{BTreeMap, BTreeSet};

fn write(key: i64) -> Value {
    let key = Key::Int(key);
    Value::Txn([Mop::Write { key, value: 1 }].into())
}

fn read(seen: &[(i64, bool)]) -> Value {
    let reads = seen.iter().map(|&(key, is_seen)| Mop::Read {
        key: Key::Int(key),
        observed: if is_seen {
            Observed::Register(1)
        } else {
            Observed::Nil
        },
    });
    Value::Txn(reads.collect())
}

/// Groups of three keys, of which reads see what was tried, in part.
fn groups(rng: &mut Rng) -> History {
    let sloppiness = *rng.pick(&[0.0, 0.2, 0.5, 0.5]);
    let rewrites = rng.chance(0.1);
    let next = std::cell::Cell::new(0);
    history(
        rng,
        |rng| {
            if rng.below(3) > 0 {
                let first = rng.below(2) as i64 * 3;
                let mut keys = [first, first + 1, first + 2];
                rng.shuffle(&mut keys);
                return ("read", read(&keys.map(|key| (key, false))));
            }
            if next.get() == 6 && !rewrites {
                return ("txn", Value::Txn([].into()));
            }
            next.set((next.get() + 1).min(6));
            ("write", write(next.get() - 1))
        },
        |rng, op| {
            let mops = op.value.as_txn().unwrap();
            if op.f != "read" {
                return op.value.clone();
            }
            let seen = mops.iter().map(|mop| {
                let Key::Int(key) = *mop.key() else { panic!() };
                (key, key < next.get() && !rng.chance(sloppiness))
            });
            read(&seen.collect::<Vec<_>>())
        },
    )
}

/// The keys that a read asked for and those that it saw.
type Sight = (BTreeSet<Key>, BTreeSet<Key>);

#[test]
fn forks_are_pairs_of_reads_that_contradict_each_other() {
    let make = |rng: &mut Rng| {
        // An empty transaction is a read of no keys, which no group is.
        let ops = groups(rng);
        ops.filter(|op| op.f != "txn")
    };
    compare("long-fork", make, |history| {
        let mut written = BTreeSet::new();
        let mut sights: Vec<Sight> = Vec::new();
        let mut is_known = true;
        for op in history {
            let mops = op.value.as_txn();
            match (op.kind, op.f.as_str()) {
                (OpType::Invoke, "write") => {
                    is_known &= written.insert(mops.unwrap()[0].key().clone());
                }
                (OpType::Ok, "read") => {
                    let mops = mops.unwrap();
                    let is_nil = |observed: &Observed| *observed == Observed::Nil;
                    let saw =
                        |mop: &&Mop| !matches!(mop, Mop::Read { observed, .. } if is_nil(observed));
                    let keys = |mop: &Mop| mop.key().clone();
                    let seen = mops.iter().filter(saw).map(keys);
                    sights.push((mops.iter().map(keys).collect(), seen.collect()));
                }
                _ => {}
            }
        }
        let is_fork = |one: &Sight, other: &Sight| {
            one.0 == other.0 && !one.1.is_subset(&other.1) && !other.1.is_subset(&one.1)
        };
        let mut forks = 0;
        for (place, one) in sights.iter().enumerate() {
            let others = sights[place + 1..].iter();
            forks += others.filter(|other| is_fork(one, other)).count();
        }
        let forks = if is_known { forks } else { 0 };
        (
            counts(&[("long-fork", forks)]),
            is_known && !sights.is_empty(),
        )
    });
}

#[test]
fn reads_that_make_no_sense_are_no_forks() {
    let check = |group: Option<usize>, values: &[Value]| {
        let ops = values.iter().zip(0..).flat_map(|(value, process)| {
            let op = Op::invoke(Process::Client(process), "read", value.clone());
            [op.clone(), op.complete(OpType::Ok, value.clone())]
        });
        let history = History::from_unindexed(ops.collect());
        let checker = crate::LongFork::new();
        group
            .map_or(checker, |count| checker.group(count))
            .check(&history)
    };
    let fork = [
        read(&[(0, true), (1, false)]),
        read(&[(0, false), (1, true)]),
    ];
    let verdict = check(None, &fork);
    assert_eq!(verdict.valid, Validity::Invalid);
    assert_eq!(
        verdict.findings[0].summary,
        "Op 1 saw 0 and not 1; op 3 saw 1 and not 0."
    );
    assert_eq!(
        check(Some(3), &fork).reason.unwrap(),
        "op 1: it read 2 keys, and a group has 3"
    );
    let two = Mop::Read {
        key: Key::Int(0),
        observed: Observed::Register(2),
    };
    let one = read(&[(0, true)]);
    let reason = check(None, &[one, Value::Txn([two].into())]).reason;
    assert_eq!(reason.unwrap(), "op 3: it read 2 from 0, another read 1");
    let verdict = check(
        None,
        &[
            read(&[(0, true), (1, true)]),
            read(&[(0, false), (1, false)]),
        ],
    );
    assert_eq!(verdict.valid, Validity::Valid);
    assert_eq!(verdict.details.to_json()["early_reads"], 1);
    assert_eq!(verdict.details.to_json()["late_reads"], 1);
}

#[test]
fn a_wide_group_is_reported_by_neighbouring_pairs() {
    // 2,000 reads of 12 keys, a chain but for one.
    let mut ops = Vec::new();
    for number in 0..2_000 {
        let seen: Vec<_> = (0..12).map(|key| (key, key < number % 13)).collect();
        let op = Op::invoke(Process::Client(0), "read", Value::Txn([].into()));
        ops.push(op.clone());
        ops.push(op.complete(OpType::Ok, read(&seen)));
    }
    let chain = History::from_unindexed(ops.clone());
    let verdict = crate::LongFork::new().check(&chain);
    assert_eq!(verdict.valid, Validity::Valid);
    let odd: Vec<_> = (0..12).map(|key| (key, key == 11)).collect();
    ops.last_mut().unwrap().value = read(&odd);
    let verdict = crate::LongFork::new().check(&History::from_unindexed(ops));
    // It contradicts every read that saw something, but not all.
    let partial = (0..1_999)
        .filter(|number| !matches!(number % 13, 0 | 12))
        .count();
    assert_eq!(verdict.anomalies["long-fork"], partial as u64);
}

fn row(number: i64, stamp: i64, process: i64) -> Value {
    let names = ["val", "sts", "proc"].map(|name| Value::Word(name.into()));
    let fields = names
        .into_iter()
        .zip([number, stamp, process].map(Value::Int));
    Value::Map(fields.collect())
}

/// Rows, and reads of most of them.
fn tables(rng: &mut Rng) -> History {
    let sloppiness = *rng.pick(&[0.0, 0.0, 0.05, 0.2]);
    let rows = std::cell::RefCell::new(Vec::<(i64, i64, i64)>::new());
    history(
        rng,
        |rng| match rng.below(4) {
            0 => ("read", Value::Nil),
            _ => ("add", Value::Nil),
        },
        |rng, op| {
            let mut rows = rows.borrow_mut();
            let mut noise = |range: u64| {
                let is_noisy = rng.chance(sloppiness);
                if is_noisy { rng.below(range) as i64 } else { 0 }
            };
            if op.f == "add" {
                let next = rows.last().map_or(0, |row| row.0 + 1 - noise(2));
                let stamp = 10 * (rows.len() as i64 + 1) - noise(30);
                let Process::Client(process) = op.process else {
                    panic!()
                };
                let process = process as i64 % 2;
                rows.push((next, stamp, process));
                return row(next, stamp, process);
            }
            let mut seen = rows.clone();
            seen.retain(|_| !rng.chance(sloppiness / 4.0));
            seen.sort_by_key(|row| row.1);
            if seen.len() > 1 && rng.chance(sloppiness) {
                seen.swap(0, 1);
            }
            let seen = seen
                .into_iter()
                .map(|(number, stamp, process)| row(number, stamp, process));
            Value::List(seen.collect())
        },
    )
}

fn fields(row: &Value) -> [i64; 3] {
    let Value::Map(pairs) = row else { panic!() };
    [0, 1, 2].map(|place| pairs[place].1.as_int().unwrap())
}

/// What is wrong with the last read; `None` without one.
fn wrong(history: &History, is_sequential: bool) -> Option<Counts> {
    let ops = history.ops();
    let at = ops.iter().rposition(|op| op.is_ok() && op.f == "read")?;
    let began = history.pair(at).unwrap();
    let Value::List(rows) = &ops[at].value else {
        panic!()
    };
    let rows: Vec<_> = rows.iter().map(fields).collect();
    let numbers: BTreeSet<i64> = rows.iter().map(|row| row[0]).collect();
    let added = ops[..began].iter().filter(|op| op.is_ok() && op.f == "add");
    let added: BTreeSet<i64> = added.map(|op| fields(&op.value)[0]).collect();
    let times = |number: &&i64| rows.iter().filter(|row| row[0] == **number).count() > 1;
    let pairs = |rows: &[[i64; 3]]| -> Vec<([i64; 3], [i64; 3])> {
        rows.windows(2).map(|pair| (pair[0], pair[1])).collect()
    };
    let falls = pairs(&rows)
        .into_iter()
        .filter(|(one, next)| one[1] > next[1]);
    let mut parts = BTreeMap::<i64, Vec<_>>::new();
    for row in &rows {
        parts
            .entry(if is_sequential { row[2] } else { 0 })
            .or_default()
            .push(*row);
    }
    let stays = parts.values().flat_map(|part| pairs(part));
    let stays = stays.filter(|(one, next)| one[0] >= next[0]);
    Some(counts(&[
        ("lost", added.difference(&numbers).count()),
        ("duplicated", numbers.iter().filter(times).count()),
        ("timestamp-disorder", falls.count()),
        ("value-disorder", stays.count()),
    ]))
}

#[test]
fn numbers_rise_with_timestamps() {
    compare("monotonic", tables, |history| match wrong(history, false) {
        Some(found) => (found, true),
        None => (Counts::new(), false),
    });
    for seed in 0..1_000 {
        let history = tables(&mut Rng::from_seed(seed));
        let verdict = Monotonic::new(Agreement::Sequential).check(&history);
        let expected = wrong(&history, true).unwrap_or_default();
        assert_eq!(verdict.anomalies, expected, "seed {seed}");
    }
    assert!(ints(&tables(&mut Rng::from_seed(1)), OpType::Ok, "add").is_empty());
}

#[test]
fn timestamps_have_any_length_and_failures_may_come_back() {
    let list = |fields: &[Value]| Value::List(fields.into());
    let row = |number: i64, stamp: &str| list(&[Value::Int(number), Value::text(stamp)]);
    let rows = [
        row(1, "1483228800000000000.0000000001"),
        row(2, "1483228800000000000.0000000010"),
        row(3, "99999999999999999999999999999"),
        row(4, "0099"),
    ];
    let add = |process, kind| {
        let op = Op::invoke(Process::Client(process), "add", Value::Nil);
        [op.clone(), op.complete(kind, row(process as i64, "5"))]
    };
    let read = Op::invoke(Process::Client(9), "read", Value::Nil);
    let reads = [read.clone(), read.complete(OpType::Ok, list(&rows))];
    let ops = [add(3, OpType::Fail), add(4, OpType::Info), reads];
    let history = History::from_unindexed(ops.concat());
    let verdict = Monotonic::default().check(&history);
    let found = [("revived", 1), ("timestamp-disorder", 1)];
    assert_eq!(verdict.anomalies, Counts::from(found));
    let shown: Vec<_> = verdict
        .findings
        .iter()
        .map(|one| one.summary.as_str())
        .collect();
    assert_eq!(
        shown,
        [
            "The addition of 3 failed (op 1), but the last read (op 5) has it.",
            "Op 5 read 3 (at 99999999999999999999999999999) before 4 (at 99)."
        ]
    );
    assert_eq!(verdict.details.to_json()["lists"]["recovered"][0], "4");
}
