//! Test files that go through text and come back.

use super::tests::in_turn;
use super::{FileOperations, Format, ImportOptions};
use crate::export::{Layout, TextWriter};
use seatrial_history::{HistoryWriter, Key, Mop, Observed, Op, OpType, Process, TestFile, Value};
use seatrial_machine::Rng;
use std::path::{Path, PathBuf};

/// What the clients of a test do.
const WORKLOADS: [&str; 9] = [
    "list-append",
    "rw-register",
    "register",
    "keyed-register",
    "set",
    "queue",
    "bank",
    "counter",
    "anything",
];

fn key(rng: &mut Rng) -> Key {
    match rng.below(3) {
        0 => Key::Int(rng.word().cast_signed() >> rng.below(64)),
        1 => Key::Word("k/x-1".into()),
        _ => Key::Text("\u{1} \"t\"\n\\ \u{e9}\u{1f600}".into()),
    }
}

fn mop(appends: bool, rng: &mut Rng) -> Mop {
    let key = key(rng);
    let element = rng.word().cast_signed() >> rng.below(64);
    let observed = match rng.below(4) {
        0 if appends => return Mop::Append { key, element },
        0 => {
            return Mop::Write {
                key,
                value: element,
            };
        }
        1 => Observed::Nil,
        _ if appends => Observed::List((0..rng.below(6) as i64).collect()),
        _ => Observed::Register(element),
    };
    Mop::Read { key, observed }
}

/// A value of any shape that is no transaction by accident.
fn anything(depth: u32, rng: &mut Rng) -> Value {
    let inner = |rng: &mut Rng| anything(depth + 1, rng);
    let several = |rng: &mut Rng| (0..rng.below(4)).map(|_| inner(rng)).collect();
    match rng.below(if depth < 3 { 9 } else { 6 }) {
        0 => Value::Nil,
        1 => Value::Bool(rng.chance(0.5)),
        2 => Value::Int(rng.word().cast_signed()),
        3 => {
            Value::Float(*rng.pick(&[0.1, -0.0, 1e300, -5e-324, f64::INFINITY, f64::NEG_INFINITY]))
        }
        4 => Value::text("\u{0}\u{7f}\t \"\\ \u{e9}\u{1f600}"),
        5 => Value::Word("some.space/word?".into()),
        6 => Value::List(several(rng)),
        7 => Value::Set(several(rng)),
        _ => Value::Map(
            (0..rng.below(4))
                .map(|_| (inner(rng), inner(rng)))
                .collect(),
        ),
    }
}

/// `f` and a value of a workload.
fn operation(workload: &str, rng: &mut Rng) -> (&'static str, Value) {
    let int = |rng: &mut Rng| Value::Int(rng.below(99) as i64 - 50);
    match workload {
        "list-append" | "rw-register" => {
            let mops = (0..rng.below(5)).map(|_| mop(workload == "list-append", rng));
            ("txn", Value::Txn(mops.collect()))
        }
        "register" => match rng.below(3) {
            0 => ("read", Value::Nil),
            1 => ("write", int(rng)),
            _ => ("cas", Value::Cas(rng.word().cast_signed(), 2)),
        },
        "keyed-register" => {
            let (f, value) = operation("register", rng);
            (f, Value::Keyed(key(rng), value.into()))
        }
        "set" => match rng.below(2) {
            0 => ("add", int(rng)),
            _ => (
                "read",
                Value::Set((0..rng.below(9)).map(|_| int(rng)).collect()),
            ),
        },
        "queue" => ("enqueue", int(rng)),
        "bank" => {
            let word = |name: &'static str| Value::Word(name.into());
            let pairs = [("from", 1), ("to", 2), ("amount", 5)];
            let pairs = pairs.map(|(name, number)| (word(name), Value::Int(number)));
            ("transfer", Value::Map(pairs.into()))
        }
        "counter" => (
            "add",
            Value::List((0..rng.below(4)).map(|_| int(rng)).collect()),
        ),
        _ => ("try", anything(0, rng)),
    }
}

/// Operations with their indices; now and then one is missing.
fn history(workload: &str, rng: &mut Rng) -> Vec<Op> {
    let mut index = 0;
    let mut ops = Vec::new();
    for _ in 0..rng.below(60) {
        let (f, value) = operation(workload, rng);
        let process = Process::Client(rng.below(5));
        let mut op = Op::invoke(process, f, value);
        if rng.chance(0.1) {
            op = Op::invoke(Process::NEMESIS, "kill", anything(0, rng));
        }
        op.kind = *rng.pick(&[OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info]);
        op.time = rng.below(1 << 50) as i64 - 1;
        if rng.chance(0.3) {
            op = op
                .with("error", anything(1, rng))
                .with("node", Value::text("n1"));
        }
        index += 1 + rng.below(2) * rng.below(3);
        ops.push(Op { index, ..op });
    }
    in_turn(ops)
}

fn written(path: &Path, ops: impl IntoIterator<Item = Op>) -> TestFile {
    let mut writer = HistoryWriter::create(path, &serde_json::json!({})).unwrap();
    for op in ops {
        writer.push(&op).unwrap();
    }
    writer.seal().unwrap();
    TestFile::open(path).unwrap()
}

/// Operations to text and back.
fn text(ops: &[Op], layout: Layout, options: ImportOptions) -> Vec<Op> {
    let mut writer = TextWriter::new(Vec::new(), layout);
    for op in ops {
        writer.push(op).unwrap();
    }
    let text = writer.finish().unwrap();
    let format = match layout {
        Layout::Edn => Format::Edn,
        Layout::JsonLines | Layout::Json => Format::Json,
    };
    let read = FileOperations::open("text", &text[..], Some(format), options).unwrap();
    read.map(Result::unwrap).collect()
}

/// Test file to EDN to test file; the operations of the second.
fn through(ops: &[Op], options: ImportOptions, paths: &[PathBuf; 2]) -> Vec<Op> {
    let first = written(&paths[0], ops.iter().cloned()).history().unwrap();
    let second = written(&paths[1], text(first.ops(), Layout::Edn, options));
    let history = second.history().unwrap();
    for path in paths {
        std::fs::remove_file(path).unwrap();
    }
    history.ops().to_vec()
}

#[test]
fn histories_of_every_workload_come_back_from_edn_unchanged_and_from_json_settled() {
    let mut rng = Rng::from_seed(2026);
    let folder = tempfile::tempdir().unwrap();
    let paths = ["first.sea", "second.sea"].map(|name| folder.path().join(name));
    for round in 0..36 {
        let workload = WORKLOADS[round % WORKLOADS.len()];
        let ops = history(workload, &mut rng);
        if ops.is_empty() {
            continue;
        }
        let options = ImportOptions {
            keyed: workload == "keyed-register",
            ..ImportOptions::default()
        };
        let edn = through(&ops, options, &paths);
        assert_eq!(edn, ops, "{workload}, round {round}");
        // JSON has fewer shapes. What it made of a history, it keeps; no file is needed to see that.
        for layout in [Layout::JsonLines, Layout::Json] {
            let once = text(&ops, layout, options);
            assert_eq!(once.len(), ops.len());
            for (json, op) in once.iter().zip(&ops) {
                let known = |op: &Op| (op.index, op.time, op.kind, op.process, op.f);
                assert_eq!(known(json), known(op), "{workload}, round {round}");
            }
            assert_eq!(
                text(&once, layout, options),
                once,
                "{workload}, round {round}"
            );
        }
    }
}
