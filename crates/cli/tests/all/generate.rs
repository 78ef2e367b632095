//! Generated histories against the checkers: what the generator says about them is what the checkers find.

use seatrial_checker::linear::{Linearizable, Model};
use seatrial_checker::txn::{Level, ListAppend, RwRegister};
use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_generator::database::{Anomaly, Database, Isolation, Options, Workload};
use seatrial_history::{History, Op, OpType, Process, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Seeds for each level and workload.
const SEEDS: u64 = 24;

fn options(workload: Workload, isolation: Isolation, seed: u64) -> Options {
    Options {
        isolation: Some(isolation),
        seed,
        concurrency: 10 + 5 * (seed % 5) as u32,
        keys: 2 + (seed % 7) as u32,
        fail: [0.0, 0.015, 0.1][seed as usize % 3],
        info: [0.005, 0.0, 0.05][seed as usize / 3 % 3],
        ..Options::new(workload, 1_200)
    }
}

fn verdict(workload: Workload, level: Level, history: &History) -> Verdict {
    match workload {
        Workload::RwRegister => RwRegister::new(level).check(history),
        _ => ListAppend::new(level).check(history),
    }
}

fn level(isolation: Isolation) -> Level {
    Level::by_name(isolation.name()).unwrap()
}

/// Levels that are stronger than this one, as little as may be, and that anomalies can tell from it.
fn stronger(isolation: Isolation) -> &'static [Level] {
    match isolation {
        Isolation::ReadUncommitted => &[Level::ReadCommitted],
        Isolation::ReadCommitted => &[Level::ReadAtomic, Level::CursorStability],
        Isolation::ReadAtomic => &[Level::UpdateAtomic, Level::ConsistentView],
        Isolation::Prefix => &[Level::SnapshotIsolation],
        Isolation::SnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSessionSnapshotIsolation]
        }
        Isolation::StrongSessionSnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSnapshotIsolation]
        }
        Isolation::StrongSnapshotIsolation => &[Level::RepeatableRead],
        Isolation::Serializable => &[Level::StrongSessionSerializable],
        Isolation::StrongSessionSerializable => &[Level::StrictSerializable],
        _ => &[],
    }
}

#[test]
fn a_level_holds_and_the_next_does_not() {
    for workload in [Workload::ListAppend, Workload::RwRegister] {
        for isolation in Isolation::TRANSACTIONS {
            let mut broken: BTreeSet<Level> = BTreeSet::new();
            for seed in 0..SEEDS {
                let options = options(workload, isolation, seed);
                let history = History::strict(Database::new(&options).unwrap().collect()).unwrap();
                let kept = verdict(workload, level(isolation), &history);
                assert_eq!(
                    kept.valid,
                    Validity::Valid,
                    "{workload:?} {isolation:?} seed {seed}: {:?}",
                    kept.findings
                );
                for &level in stronger(isolation) {
                    if verdict(workload, level, &history).valid == Validity::Invalid {
                        broken.insert(level);
                    }
                }
            }
            let expected: BTreeSet<Level> = stronger(isolation).iter().copied().collect();
            assert_eq!(broken, expected, "{workload:?} {isolation:?}");
        }
    }
}

/// What the checkers of transactions call an anomaly.
fn found_as(anomaly: Anomaly) -> &'static str {
    match anomaly {
        Anomaly::StaleRead | Anomaly::LostWrite => "G-single-realtime",
        other => other.name(),
    }
}

#[test]
fn an_anomaly_is_found_and_named() {
    for workload in [Workload::ListAppend, Workload::RwRegister] {
        for anomaly in Anomaly::all().filter(|one| one.is_seen_in(workload)) {
            for seed in 0..6 {
                let options = Options {
                    isolation: None,
                    anomalies: vec![anomaly],
                    anomaly_rate: 0.01,
                    ..options(workload, Isolation::StrictSerializable, seed)
                };
                let mut database = Database::new(&options).unwrap();
                let history = History::strict(database.by_ref().collect()).unwrap();
                let count = database.anomalies()[0].1;
                assert!(count > 0, "{workload:?} {anomaly:?} seed {seed}");
                let strict = verdict(workload, Level::StrictSerializable, &history);
                assert_eq!(strict.valid, Validity::Invalid);
                assert_eq!(
                    strict.anomalies.get(found_as(anomaly)),
                    Some(&count),
                    "{workload:?} {anomaly:?} seed {seed}: {:?}",
                    strict.anomalies
                );
            }
        }
    }
}

/// A level that admits an anomaly is kept although the anomaly is there.
#[test]
fn an_anomaly_that_a_level_admits_leaves_it_whole() {
    for workload in [Workload::ListAppend, Workload::RwRegister] {
        for isolation in Isolation::TRANSACTIONS {
            let forbidden = level(isolation).forbidden();
            let fits = |one: &Anomaly| one.is_seen_in(workload) && one.is_admitted_by(isolation);
            let anomalies: Vec<_> = Anomaly::all().filter(fits).collect();
            assert!(
                anomalies
                    .iter()
                    .all(|one| !forbidden.contains(found_as(*one))),
                "{isolation:?} admits {anomalies:?}, and forbids {forbidden:?}"
            );
            for seed in 0..6 {
                let options = Options {
                    anomalies: anomalies.clone(),
                    anomaly_rate: 0.05,
                    ..options(workload, isolation, seed)
                };
                assert!(options.is_valid());
                let history = Database::new(&options).unwrap().collect();
                let kept = verdict(
                    workload,
                    level(isolation),
                    &History::strict(history).unwrap(),
                );
                assert_eq!(
                    kept.valid,
                    Validity::Valid,
                    "{workload:?} {isolation:?} seed {seed}: {:?}",
                    kept.findings
                );
            }
        }
    }
}

/// An operation with the positions of its invocation and its completion.
struct Span<'a> {
    begin: usize,
    end: usize,
    kind: OpType,
    process: Process,
    f: &'a str,
    /// Of the invocation.
    input: &'a Value,
    /// Of the completion.
    output: &'a Value,
}

impl Span<'_> {
    fn is_before(&self, other: &Span<'_>) -> bool {
        self.kind == OpType::Ok && self.end < other.begin
    }
}

/// Key and value of an operation.
fn split(op: &Op) -> (String, &Value) {
    match &op.value {
        Value::Keyed(key, value) => (key.to_string(), value),
        value => ("queue".to_owned(), value),
    }
}

/// The operations of a history by key.
fn spans(history: &History) -> BTreeMap<String, Vec<Span<'_>>> {
    let mut spans: BTreeMap<String, Vec<Span<'_>>> = BTreeMap::new();
    for (begin, op) in history.iter().enumerate().filter(|(_, op)| op.is_invoke()) {
        let end = history.pair(begin).unwrap();
        let completion = &history.ops()[end];
        let (key, input) = split(op);
        spans.entry(key).or_default().push(Span {
            begin,
            end,
            kind: completion.kind,
            process: op.process,
            f: op.f.as_str(),
            input,
            output: split(completion).1,
        });
    }
    spans
}

/// Does a process go back to an older value of a register? Values are unique, so none may come back.
fn goes_back(spans: &[Span<'_>]) -> bool {
    let mut known: BTreeMap<Process, Vec<Option<i64>>> = BTreeMap::new();
    let mut ended: Vec<_> = spans
        .iter()
        .filter(|span| span.kind == OpType::Ok)
        .collect();
    ended.sort_by_key(|span| span.end);
    ended.into_iter().any(|span| {
        let value = match span.output {
            Value::Cas(_, to) => Some(*to),
            other => other.as_int(),
        };
        let known = known.entry(span.process).or_default();
        if known.last() == Some(&value) {
            return false;
        }
        let is_back = known.contains(&value);
        known.push(value);
        is_back
    })
}

#[test]
fn registers_are_as_strict_as_their_level() {
    let mut found: BTreeMap<Isolation, (bool, bool)> = BTreeMap::new();
    for isolation in Isolation::OBJECTS {
        for seed in 0..SEEDS {
            let options = options(Workload::Register, isolation, seed);
            let history: Vec<Op> = Database::new(&options).unwrap().collect();
            let history = History::strict(history).unwrap();
            let linear = Linearizable::new(Model::CasRegister).check(&history);
            let back = spans(&history).values().any(|spans| goes_back(spans));
            let found = found.entry(isolation).or_default();
            found.0 |= linear.valid == Validity::Invalid;
            found.1 |= back;
            assert!(matches!(linear.valid, Validity::Valid | Validity::Invalid));
        }
    }
    let expected = [
        (Isolation::Eventual, (true, true)),
        (Isolation::Sequential, (true, false)),
        (Isolation::Linearizable, (false, false)),
    ];
    assert_eq!(found, expected.into());
}

#[test]
fn anomalies_of_registers_are_nonlinearizable() {
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(Workload::Register)) {
        for seed in 0..6 {
            let options = Options {
                isolation: None,
                anomalies: vec![anomaly],
                anomaly_rate: 0.01,
                ..options(Workload::Register, Isolation::Linearizable, seed)
            };
            let mut database = Database::new(&options).unwrap();
            let history = History::strict(database.by_ref().collect()).unwrap();
            let verdict = Linearizable::new(Model::CasRegister).check(&history);
            let count = database.anomalies()[0].1;
            assert!(count > 0);
            assert_eq!(verdict.anomalies["nonlinearizable"], count, "{anomaly:?}");
        }
    }
}

fn elements(value: &Value) -> BTreeSet<i64> {
    match value {
        Value::Set(items) | Value::List(items) => items.iter().filter_map(Value::as_int).collect(),
        other => other.as_int().into_iter().collect(),
    }
}

/// Reads of one set that no order of its additions explains, and those that only real time contradicts.
fn set_contradictions(spans: &[Span<'_>]) -> (usize, usize) {
    let adds = spans.iter().filter(|span| span.f == "add");
    let adds: BTreeMap<i64, &Span<'_>> = adds
        .map(|span| (span.input.as_int().unwrap(), span))
        .collect();
    let reads = spans
        .iter()
        .filter(|span| span.f == "read" && span.kind == OpType::Ok);
    let reads: Vec<_> = reads.map(|read| (read, elements(read.output))).collect();
    let (mut absurd, mut late) = (0, 0);
    for (number, (read, seen)) in reads.iter().enumerate() {
        let could = |element: &i64| {
            let add = adds.get(element);
            add.is_some_and(|add| add.kind != OpType::Fail && add.begin < read.end)
        };
        let is_comparable = |(_, other): &(&Span<'_>, BTreeSet<i64>)| {
            seen.is_subset(other) || other.is_subset(seen)
        };
        if !seen.iter().all(could) || !reads[..number].iter().all(is_comparable) {
            absurd += 1;
        }
        let mut before = adds.iter().filter(|(_, add)| add.is_before(read));
        let missed = before.any(|(element, _)| !seen.contains(element));
        let before = reads.iter().filter(|(other, _)| other.is_before(read));
        let shrinks = before
            .map(|(_, other)| other)
            .any(|other| !other.is_subset(seen));
        late += usize::from(missed || shrinks);
    }
    (absurd, late)
}

#[test]
fn sets_are_what_their_truth_says() {
    for isolation in Isolation::OBJECTS {
        let mut late_total = 0;
        for seed in 0..SEEDS {
            let options = options(Workload::Set, isolation, seed);
            let ops: Vec<Op> = Database::new(&options).unwrap().collect();
            let history = History::strict(ops).unwrap();
            for spans in spans(&history).values() {
                let (absurd, late) = set_contradictions(spans);
                assert_eq!(absurd, 0, "{isolation:?} seed {seed}");
                late_total += late;
            }
        }
        assert_eq!(late_total == 0, isolation == Isolation::Linearizable);
    }
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(Workload::Set)) {
        let options = Options {
            isolation: None,
            anomalies: vec![anomaly],
            anomaly_rate: 0.02,
            ..options(Workload::Set, Isolation::Linearizable, 1)
        };
        let mut database = Database::new(&options).unwrap();
        let history = History::strict(database.by_ref().collect()).unwrap();
        let spans = spans(&history);
        let broken = spans.values().map(|spans| set_contradictions(spans));
        let broken = broken.filter(|counts| *counts != (0, 0)).count();
        assert_eq!(broken as u64, database.anomalies()[0].1, "{anomaly:?}");
        assert!(broken > 0, "{anomaly:?}");
    }
}

/// Lost, doubled and invented elements of a queue, and pairs that came out in the wrong order.
fn queue_contradictions(spans: &[Span<'_>]) -> [usize; 4] {
    let mut taken: BTreeMap<i64, Vec<&Span<'_>>> = BTreeMap::new();
    for span in spans
        .iter()
        .filter(|span| span.f != "enqueue" && span.kind == OpType::Ok)
    {
        for element in elements(span.output) {
            taken.entry(element).or_default().push(span);
        }
    }
    let puts = spans.iter().filter(|span| span.f == "enqueue");
    let puts: BTreeMap<i64, &Span<'_>> = puts
        .map(|span| (span.input.as_int().unwrap(), span))
        .collect();
    let acknowledged = puts.iter().filter(|(_, put)| put.kind == OpType::Ok);
    let lost = acknowledged
        .filter(|(element, _)| !taken.contains_key(element))
        .count();
    let doubled = taken.values().map(|takes| takes.len() - 1).sum();
    let known = |element| {
        puts.get(element)
            .is_some_and(|put| put.kind != OpType::Fail)
    };
    let invented = taken.keys().filter(|element| !known(element)).count();
    let mut reversed = 0;
    for (one, first) in &puts {
        for (other, second) in &puts {
            if let (Some(late), Some(soon)) = (taken.get(one), taken.get(other)) {
                let is_first = first.is_before(second);
                reversed += usize::from(is_first && soon[0].is_before(late[0]));
            }
        }
    }
    [lost, doubled, invented, reversed]
}

#[test]
fn queues_are_what_their_truth_says() {
    for seed in 0..SEEDS {
        let options = options(Workload::Queue, Isolation::Linearizable, seed);
        let ops: Vec<Op> = Database::new(&options).unwrap().collect();
        let history = History::strict(ops).unwrap();
        assert_eq!(history.ops().last().unwrap().f, "drain");
        let found = queue_contradictions(&spans(&history)["queue"]);
        assert_eq!(found, [0; 4], "seed {seed}");
    }
    for (place, anomaly) in [
        Anomaly::LostWrite,
        Anomaly::DuplicateElements,
        Anomaly::GarbageRead,
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 0..6 {
            let options = Options {
                isolation: None,
                anomalies: vec![anomaly],
                anomaly_rate: 0.05,
                ..options(Workload::Queue, Isolation::Linearizable, seed)
            };
            let mut database = Database::new(&options).unwrap();
            let history = History::strict(database.by_ref().collect()).unwrap();
            let mut expected = [0; 4];
            expected[place] = database.anomalies()[0].1 as usize;
            assert!(expected[place] > 0, "{anomaly:?} seed {seed}");
            let found = queue_contradictions(&spans(&history)["queue"]);
            assert_eq!(found, expected, "{anomaly:?} seed {seed}");
        }
    }
}
