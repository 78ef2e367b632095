//! Generated histories against the checkers: what the generator says about them is what the checkers find.

use crate::{Scratch, error, json, run, stderr, stdout};
use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_database::{Anomaly, Database, DatabaseOptions, DatabaseWorkload, StoreLevel};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_inference::{Inference, ListAppend, RwRegister};
use seatrial_isolation::{AxiomaticModel as Axioms, Isolation as Isolated};
use seatrial_isolation::{TimestampLevel, Timestamps};
use seatrial_linear::{Linearizable, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Seeds for each level and workload.
const SEEDS: u64 = 24;

fn options(workload: DatabaseWorkload, isolation: StoreLevel, seed: u64) -> DatabaseOptions {
    DatabaseOptions {
        isolation: Some(isolation),
        seed,
        concurrency: 10 + 5 * (seed % 5) as u32,
        keys: 2 + (seed % 7) as u32,
        fail: [0.0, 0.015, 0.1][seed as usize % 3],
        info: [0.005, 0.0, 0.05][seed as usize / 3 % 3],
        ..DatabaseOptions::new(workload, 1_200)
    }
}

fn verdict(workload: DatabaseWorkload, level: Level, history: &History) -> Verdict {
    match workload {
        DatabaseWorkload::RwRegister => RwRegister::new(level).check(history),
        _ => ListAppend::new(level).check(history),
    }
}

fn level(isolation: StoreLevel) -> Level {
    Level::by_name(isolation.name()).unwrap()
}

/// The weakest levels that are stronger than this one and differ from it in anomalies.
fn stronger(isolation: StoreLevel) -> &'static [Level] {
    match isolation {
        StoreLevel::ReadUncommitted => &[Level::ReadCommitted],
        StoreLevel::ReadCommitted => &[Level::ReadAtomic, Level::CursorStability],
        StoreLevel::ReadAtomic => &[Level::UpdateAtomic, Level::ConsistentView],
        StoreLevel::Prefix => &[Level::SnapshotIsolation],
        StoreLevel::SnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSessionSnapshotIsolation]
        }
        StoreLevel::StrongSessionSnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSnapshotIsolation]
        }
        StoreLevel::StrongSnapshotIsolation => &[Level::RepeatableRead],
        StoreLevel::Serializable => &[Level::StrongSessionSerializable],
        StoreLevel::StrongSessionSerializable => &[Level::StrictSerializable],
        _ => &[],
    }
}

/// Levels of lists between two that are decided, for which no complete method is known.
const OPEN: [(DatabaseWorkload, Level); 2] = [
    (DatabaseWorkload::ListAppend, Level::ReadAtomic),
    (DatabaseWorkload::ListAppend, Level::Prefix),
];

/// The same of histories with anomalies that the level admits: reads that contradict each other leave the order of appends
/// open, and without the order of sessions read atomic is not decided.
const OPEN_BESIDE_ANOMALIES: [(DatabaseWorkload, Level); 2] = [
    (DatabaseWorkload::ListAppend, Level::ReadUncommitted),
    (DatabaseWorkload::RwRegister, Level::ReadAtomic),
];

/// The verdict, in which an open question is accepted of these levels.
fn settled(
    workload: DatabaseWorkload,
    level: Level,
    history: &History,
    open: &[(DatabaseWorkload, Level)],
) -> Verdict {
    let mut verdict = verdict(workload, level, history);
    if open.contains(&(workload, level)) {
        verdict.accept_undecided();
    }
    verdict
}

#[test]
fn open_levels_are_the_undecided_ones() {
    for workload in [DatabaseWorkload::ListAppend, DatabaseWorkload::RwRegister] {
        for isolation in StoreLevel::TRANSACTIONS {
            let level = level(isolation);
            let is_unknown = |seed| {
                let options = options(workload, isolation, seed);
                let history = History::strict(Database::new(&options).unwrap().collect()).unwrap();
                matches!(
                    verdict(workload, level, &history).valid,
                    Validity::Unknown(_)
                )
            };
            let is_open = (0..SEEDS).any(is_unknown);
            assert_eq!(
                is_open,
                OPEN.contains(&(workload, level)),
                "{workload:?} {level:?}"
            );
        }
    }
}

#[test]
fn a_level_holds_and_the_next_does_not() {
    for workload in [DatabaseWorkload::ListAppend, DatabaseWorkload::RwRegister] {
        for isolation in StoreLevel::TRANSACTIONS {
            let mut broken: BTreeSet<Level> = BTreeSet::new();
            for seed in 0..SEEDS {
                let options = options(workload, isolation, seed);
                let history = History::strict(Database::new(&options).unwrap().collect()).unwrap();
                let kept = settled(workload, level(isolation), &history, &OPEN);
                assert_eq!(
                    kept.valid,
                    Validity::Valid,
                    "{workload:?} {isolation:?} seed {seed}: {:?}",
                    kept.findings
                );
                for &level in stronger(isolation) {
                    if !broken.contains(&level)
                        && verdict(workload, level, &history).valid == Validity::Invalid
                    {
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
        Anomaly::NonMonotonicRead => "G-single",
        other => other.name(),
    }
}

#[test]
fn an_anomaly_is_found_and_named() {
    for workload in [DatabaseWorkload::ListAppend, DatabaseWorkload::RwRegister] {
        // Nothing says which write of a register came first, unless something is taken for granted.
        let is_inferred = |one: &Anomaly| {
            workload == DatabaseWorkload::ListAppend || *one != Anomaly::NonMonotonicRead
        };
        let seen = Anomaly::all().filter(|one| one.is_seen_in(workload));
        for anomaly in seen.filter(is_inferred) {
            for seed in 0..6 {
                let options = DatabaseOptions {
                    isolation: None,
                    anomalies: vec![anomaly],
                    anomaly_rate: 0.01,
                    ..options(workload, StoreLevel::StrictSerializable, seed)
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
    for workload in [DatabaseWorkload::ListAppend, DatabaseWorkload::RwRegister] {
        for isolation in StoreLevel::TRANSACTIONS {
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
                let options = DatabaseOptions {
                    anomalies: anomalies.clone(),
                    anomaly_rate: 0.05,
                    ..options(workload, isolation, seed)
                };
                assert!(options.is_valid());
                let history = Database::new(&options).unwrap().collect();
                let kept = settled(
                    workload,
                    level(isolation),
                    &History::strict(history).unwrap(),
                    &[OPEN, OPEN_BESIDE_ANOMALIES].concat(),
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

/// Reported snapshots and commits of a database agree with the reads of its clients; injected anomalies do not.
#[test]
fn timestamps_are_those_of_the_store() {
    let levels = StoreLevel::TRANSACTIONS.into_iter().skip(4);
    for isolation in levels {
        let promise = match isolation {
            StoreLevel::SnapshotIsolation => TimestampLevel::SnapshotIsolation,
            StoreLevel::StrongSessionSnapshotIsolation | StoreLevel::StrongSnapshotIsolation => {
                TimestampLevel::StrongSessionSnapshotIsolation
            }
            StoreLevel::Serializable => TimestampLevel::Serializable,
            _ => TimestampLevel::StrongSessionSerializable,
        };
        for workload in [DatabaseWorkload::ListAppend, DatabaseWorkload::RwRegister] {
            for seed in 0..6 {
                let mut options = DatabaseOptions {
                    timestamps: true,
                    info: 0.0,
                    ..options(workload, isolation, seed)
                };
                let check = |options: &DatabaseOptions| {
                    let ops = Database::new(options).unwrap().collect();
                    Timestamps::new(promise).check(&History::strict(ops).unwrap())
                };
                let kept = check(&options);
                let context = format!(
                    "{workload:?} {isolation:?} seed {seed}: {:?}",
                    kept.findings
                );
                assert_eq!(kept.valid, Validity::Valid, "{context}");
                options.isolation = None;
                options.anomalies = vec![Anomaly::GSingle];
                options.anomaly_at = Some(0.5);
                assert_eq!(check(&options).valid, Validity::Invalid, "{isolation:?}");
            }
        }
    }
}

/// Axiomatic read committed differs only by the order of reads within one transaction.
#[test]
fn a_non_monotonic_read_breaks_the_weakest_axioms() {
    for seed in 0..6 {
        let mut options = options(
            DatabaseWorkload::RwRegister,
            StoreLevel::StrictSerializable,
            seed,
        );
        options.anomalies = vec![Anomaly::NonMonotonicRead];
        options.anomaly_at = Some(0.9);
        options.isolation = None;
        let history: Vec<Op> = Database::new(&options).unwrap().collect();
        let history = History::strict(history).unwrap();
        let check = |model| Isolated::new(model).check(&history);
        let verdict = check(Axioms::AxiomaticReadCommitted);
        assert_eq!(verdict.valid, Validity::Invalid, "seed {seed}");
        assert_eq!(verdict.anomalies["non-monotonic-read"], 1, "seed {seed}");
        assert_eq!(check(Axioms::Causal).valid, Validity::Invalid);
        assert_eq!(check(Axioms::MonotonicWrites).valid, Validity::Valid);
    }
}

/// What is true of each key of a store of this level.
fn assumptions(isolation: StoreLevel) -> Inference {
    let linearizable_keys = matches!(
        isolation,
        StoreLevel::StrongSnapshotIsolation | StoreLevel::StrictSerializable
    );
    let is_session = matches!(
        isolation,
        StoreLevel::StrongSessionSnapshotIsolation | StoreLevel::StrongSessionSerializable
    );
    let loses_updates = matches!(
        isolation,
        StoreLevel::ReadUncommitted
            | StoreLevel::ReadCommitted
            | StoreLevel::ReadAtomic
            | StoreLevel::Prefix
    );
    Inference {
        wfr_keys: isolation != StoreLevel::ReadUncommitted,
        rmw_keys: !loses_updates,
        sequential_keys: is_session || linearizable_keys,
        linearizable_keys,
    }
}

#[test]
fn assumptions_that_hold_raise_no_alarm() {
    for isolation in StoreLevel::TRANSACTIONS {
        let checker = RwRegister::new(level(isolation)).with_inference(assumptions(isolation));
        for seed in 0..SEEDS {
            let options = options(DatabaseWorkload::RwRegister, isolation, seed);
            let history = History::strict(Database::new(&options).unwrap().collect()).unwrap();
            let kept = checker.check(&history);
            let context = format!("{isolation:?} seed {seed}: {:?}", kept.findings);
            assert_eq!(kept.valid, Validity::Valid, "{context}");
            assert_eq!(
                kept.details.to_json()["discarded"],
                serde_json::json!({}),
                "{context}"
            );
        }
    }
}

#[test]
fn with_linearizable_keys_anomalies_have_the_same_names() {
    let inference = assumptions(StoreLevel::StrictSerializable);
    let checker = RwRegister::default().with_inference(inference);
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(DatabaseWorkload::RwRegister)) {
        for seed in 0..4 {
            let options = DatabaseOptions {
                isolation: None,
                anomalies: vec![anomaly],
                anomaly_rate: 0.01,
                ..options(
                    DatabaseWorkload::RwRegister,
                    StoreLevel::StrictSerializable,
                    seed,
                )
            };
            let mut database = Database::new(&options).unwrap();
            let history = History::strict(database.by_ref().collect()).unwrap();
            let count = database.anomalies()[0].1;
            let strict = checker.check(&history);
            let context = format!("{anomaly:?} seed {seed}: {:?}", strict.anomalies);
            assert_eq!(
                strict.anomalies.get(found_as(anomaly)),
                Some(&count),
                "{context}"
            );
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
    let mut found: BTreeMap<StoreLevel, (bool, bool)> = BTreeMap::new();
    for isolation in StoreLevel::OBJECTS {
        for seed in 0..SEEDS {
            let mut options = options(DatabaseWorkload::Register, isolation, seed);
            if isolation == StoreLevel::Sequential {
                // It admits them, and is kept all the same.
                options.anomalies = vec![Anomaly::StaleRead, Anomaly::LostWrite];
                options.anomaly_rate = 0.02;
            }
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
        (StoreLevel::Eventual, (true, true)),
        (StoreLevel::Sequential, (true, false)),
        (StoreLevel::Linearizable, (false, false)),
    ];
    assert_eq!(found, expected.into());
}

#[test]
fn anomalies_of_registers_are_nonlinearizable() {
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(DatabaseWorkload::Register)) {
        for seed in 0..6 {
            let options = DatabaseOptions {
                isolation: None,
                anomalies: vec![anomaly],
                anomaly_rate: 0.01,
                ..options(DatabaseWorkload::Register, StoreLevel::Linearizable, seed)
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

/// Counts reads of one set that no order of its additions explains, and reads that only real time contradicts.
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
    for isolation in StoreLevel::OBJECTS {
        let mut late_total = 0;
        for seed in 0..SEEDS {
            let options = options(DatabaseWorkload::Set, isolation, seed);
            let ops: Vec<Op> = Database::new(&options).unwrap().collect();
            let history = History::strict(ops).unwrap();
            for spans in spans(&history).values() {
                let (absurd, late) = set_contradictions(spans);
                assert_eq!(absurd, 0, "{isolation:?} seed {seed}");
                late_total += late;
            }
        }
        assert_eq!(late_total == 0, isolation == StoreLevel::Linearizable);
    }
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(DatabaseWorkload::Set)) {
        let options = DatabaseOptions {
            isolation: None,
            anomalies: vec![anomaly],
            anomaly_rate: 0.02,
            ..options(DatabaseWorkload::Set, StoreLevel::Linearizable, 1)
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
        let options = options(DatabaseWorkload::Queue, StoreLevel::Linearizable, seed);
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
            let options = DatabaseOptions {
                isolation: None,
                anomalies: vec![anomaly],
                anomaly_rate: 0.05,
                ..options(DatabaseWorkload::Queue, StoreLevel::Linearizable, seed)
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

#[test]
fn the_verb_writes_a_file_that_tells_its_truth() {
    let scratch = Scratch::new("generate");
    let path = scratch.path("a.sea");
    let words = |path: &str, more: &[&str]| -> Vec<String> {
        let words = ["generate", "list-append", "--ops", "30001", "-o", path];
        words
            .iter()
            .chain(more)
            .map(|&word| word.to_owned())
            .collect()
    };
    let generate = |path: &str, more: &[&str]| {
        let words = words(path, more);
        run(0, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let anomaly = [
        "--anomaly",
        "G1a,stale-read",
        "--anomaly-rate",
        "0.01",
        "--json",
    ];
    let summary = json(&generate(&path, &anomaly));
    assert_eq!(summary["events"], 30_001);
    assert_eq!(summary["truth"]["valid"], false);
    assert_eq!(
        summary["bytes"].as_u64(),
        Some(fs::metadata(&path).unwrap().len())
    );
    let attributes = json(&run(0, &["show", &path, "--attributes"]));
    assert_eq!(attributes["truth"], summary["truth"]);
    assert_eq!(attributes["truth"]["model"], "strict-serializable");
    let verdict = json(&run(1, &["check", &path, "--json"]));
    assert_eq!(verdict["valid"], false);
    assert_eq!(verdict["anomalies"]["G1a"], summary["anomalies"]["G1a"]);
    let stale = &summary["anomalies"]["stale-read"];
    assert_eq!(&verdict["anomalies"]["G-single-realtime"], stale);
    // Same options, same bytes, whatever the threads did.
    let other = scratch.path("b.sea");
    generate(&other, &anomaly);
    assert!(fs::read(&path).unwrap() == fs::read(&other).unwrap());
    let other = scratch.path("c.sea");
    let text = stdout(&generate(
        &other,
        &["--isolation", "prefix", "--seed", "2a"],
    ));
    for part in [
        "list-append · prefix · 100 clients · seed 2a",
        "30,001 events",
        "truth: prefix",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // No decision of lists settles this level.
    let accepting = ["--model", "prefix", "--accept-undecided", "-q"];
    run(0, &[&["check", &other], &accepting[..]].concat());
    run(1, &["check", &other, "-q"]);
}

#[test]
fn the_verb_writes_text_as_well() {
    let scratch = Scratch::new("generate-text");
    for workload in ["list-append", "rw-register", "register", "set", "queue"] {
        let base = [
            "generate",
            workload,
            "--ops",
            "2000",
            "--concurrency",
            "7",
            "-o",
        ];
        let to = |path: &str| run(0, &[&base[..], &[path]].concat());
        let [sea, edn, lines] =
            ["sea", "edn", "jsonl"].map(|ending| scratch.path(&format!("{workload}.{ending}")));
        for path in [&sea, &edn, &lines] {
            to(path);
        }
        let standard = to("-");
        assert!(standard.stdout == fs::read(&edn).unwrap(), "{workload}");
        assert!(stderr(&standard).contains("truth: "), "{workload}");
        let shown = run(0, &["show", &sea, "--edn"]);
        assert!(shown.stdout == standard.stdout, "{workload}");
        assert_eq!(fs::read_to_string(&lines).unwrap().lines().count(), 2_000);
    }
}

#[test]
fn the_verb_refuses_what_cannot_be() {
    let scratch = Scratch::new("generate-errors");
    let path = scratch.path("a.sea");
    let refuse = |more: &[&str], message: &[&str]| {
        let words = ["generate", "list-append", "--ops", "100", "-o", &path];
        error(&[&words[..], more].concat(), message);
        assert!(!Path::new(&path).exists(), "{more:?}");
    };
    let level = ["--isolation", "serializable"];
    refuse(
        &[&level[..], &["--anomaly", "G2-item"]].concat(),
        &[
            "serializable excludes G2-item; levels that allow it:",
            "snapshot-isolation",
        ],
    );
    refuse(
        &["--isolation", "chaos"],
        &["unknown isolation level `chaos`", "strict-serializable"],
    );
    refuse(&["--anomaly", "G9"], &["unknown anomaly `G9`", "G1a"]);
    refuse(&["--anomaly", "G1a"], &["100 events", "0.001", "no G1a"]);
    refuse(
        &["--distribution", "normal"],
        &["uniform, zipf, exponential"],
    );
    refuse(&["--codec", "gzip"], &["lz4, zstd, none"]);
    refuse(&["--txn-length", "4..2"], &["transaction length 4 to 2"]);
    refuse(
        &["--txn-length", "many"],
        &["a range is MIN..MAX or one number"],
    );
    refuse(&["--fail", "2"], &["2 fail"]);
    error(
        &["generate", "counter", "--ops", "100", "-o", &path],
        &[
            "unknown workload `counter`",
            "list-append, rw-register, register, set, queue, linearizable-set",
        ],
    );
    for ending in ["sea", "edn", "jsonl"] {
        let path = scratch.path(&format!("here.{ending}"));
        fs::write(&path, "precious").unwrap();
        let words = ["generate", "set", "--ops", "10", "-o", &path];
        error(&words, &["exists already, and is left as it is"]);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
    let words = ["generate", "set", "--ops", "10", "-o", "history.txt"];
    error(&words, &["history.txt", "--to takes sea, edn, jsonl"]);
}

/// Families of histories by which checkers of isolation are compared: the file, an option, a model that is kept, an anomaly
/// that breaks it.
const FAMILIES: [(&str, &str, &str, &str); 5] = [
    ("blind.sea", "--concurrency=20", "serializable", "G2-item"),
    (
        "updates.sea",
        "--read-before-write",
        "snapshot-isolation",
        "lost-update",
    ),
    (
        "once.dbcop",
        "--no-key-twice",
        "strong-session-serializable",
        "G2-item",
    ),
    (
        "weak.plume",
        "--concurrency=50",
        "axiomatic-read-committed",
        "non-monotonic-read",
    ),
    (
        "stamped.timekiller",
        "--isolation=strong-snapshot-isolation",
        "snapshot-isolation",
        "G-single",
    ),
];

#[test]
fn families_are_written_for_other_checkers_too() {
    let scratch = Scratch::new("generate-families");
    let store = ["--fail", "0", "--info", "0", "-q"];
    let shape = ["--txn-length", "1..15", "--even-lengths", "--keys", "1000"];
    let keys = ["--distribution", "uniform", "--writes-per-key", "1000000"];
    let generate = [
        &["generate", "rw-register", "--ops", "4000"],
        &store[..],
        &shape,
        &keys,
    ]
    .concat();
    for (name, option, model, anomaly) in FAMILIES {
        let (file, format) = (scratch.path(name), name.rsplit('.').next().unwrap());
        let generate = [&generate[..], &[option]].concat();
        run(0, &[&generate[..], &["-o", &file]].concat());
        let reading = ["--format", if format == "sea" { "auto" } else { format }];
        let check = [
            &["check", "-q", "--model", model, "--checker", "isolation"],
            &reading[..],
        ]
        .concat();
        run(0, &[&check[..], &[&file]].concat());
        let stamped = ["check", "-q", "--checker", "timestamps", "--format", format];
        let is_stamped = format == "timekiller";
        if is_stamped {
            run(0, &[&stamped[..], &[&file]].concat());
        }
        let twin = scratch.path(&format!("twin-{name}"));
        let without: Vec<&str> = generate
            .iter()
            .copied()
            .filter(|word| !word.contains("isolation"))
            .collect();
        let violated = ["--anomaly", anomaly, "--anomaly-at", "0.9", "-o", &twin];
        run(0, &[&without[..], &violated].concat());
        run(1, &[&check[..], &[&twin]].concat());
        if is_stamped {
            run(1, &[&stamped[..], &[&twin]].concat());
        }
    }
    let lists = [
        "generate",
        "list-append",
        "--ops",
        "100",
        "--to",
        "plume",
        "-o",
        "-",
    ];
    let output = stderr(&run(254, &lists));
    assert!(output.contains("no place in this format"), "{output}");
}

#[test]
fn a_history_has_its_name_only_when_it_is_whole() {
    let scratch = Scratch::new("generate-killed");
    for ending in ["sea", "edn"] {
        let path = scratch.path(&format!("long.{ending}"));
        let partial = format!("{path}.partial");
        let words = [
            "generate",
            "register",
            "--events",
            "1000000000",
            "--quiet",
            "-o",
            &path,
        ];
        let mut child = super::command(&words).spawn().unwrap();
        let began = std::time::Instant::now();
        while fs::metadata(&partial).map_or(0, |file| file.len()) < 100_000 {
            assert!(began.elapsed().as_secs() < 60, "nothing is written");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!Path::new(&path).exists());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!Path::new(&path).exists());
        // A leftover does not prevent another run.
        run(
            0,
            &[
                "generate", "register", "--events", "100", "--quiet", "-o", &path,
            ],
        );
        assert!(Path::new(&path).exists() && !Path::new(&partial).exists());
    }
}

#[test]
fn operations_are_drawn_in_the_colour_of_their_outcome() {
    let scratch = Scratch::new("op-color-plot");
    let (history, page) = (scratch.path("a.sea"), scratch.path("page.html"));
    run(0, &["generate", "set", "--events", "2000", "-o", &history]);
    let checkers = "set-full,op-color-plot";
    let words = [
        "check",
        "--checker",
        checkers,
        "--report",
        &page,
        "--json",
        &history,
    ];
    let results = json(&run(0, &words));
    let details = &results["checkers"]["op-color-plot"]["details"];
    assert_eq!(details["group"], "outcome", "{results:#}");
    let windows = details["windows"].as_array().unwrap();
    let counts = windows.iter().flat_map(|window| window.as_array().unwrap());
    let all: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(Some(all), results["operations"].as_u64());
    let picture = fs::read_to_string(scratch.path("page.op-color-plot.svg")).unwrap();
    assert_eq!(picture.matches("h0").count() as u64, all);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("<section id=\"op-color-plot\">"));
    // Without the checker there is no picture.
    let plain = scratch.path("plain.html");
    run(
        0,
        &[
            "check",
            "--checker",
            "set-full",
            "--report",
            &plain,
            &history,
        ],
    );
    assert!(!Path::new(&scratch.path("plain.op-color-plot.svg")).exists());
}
