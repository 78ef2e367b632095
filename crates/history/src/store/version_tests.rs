//! Files that were written by version 1 of the format, and stay readable whatever is written later. They are never
//! written anew: a change of the format gets files of its own.

use super::{FileTail, TestFile};
use crate::{Key, Mop, Observed, Op, OpType, Process, Value};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Sealed, LZ4, two analyses.
const SEALED: &[u8] = include_bytes!("../../tests/data/version-1-sealed.sea");
/// Its writer was killed: chunks and journal blocks without codec.
const OPEN: &[u8] = include_bytes!("../../tests/data/version-1-open.sea");
/// Made into a compact copy, zstd.
const PACKED: &[u8] = include_bytes!("../../tests/data/version-1-packed.sea");
/// The operations of all three, as they are printed.
const EXPECTED: &str = include_str!("../../tests/data/version-1.edn");

/// Values of every shape that version 1 has.
fn values() -> Vec<Value> {
    let ints = |range: std::ops::Range<i64>| range.map(Value::Int).collect::<Vec<_>>();
    let text = |text: &str| Value::Text(text.into());
    let word = |word: &'static str| Value::Word(word.into());
    let (one, two) = (Key::Int(1), Key::Word("two".into()));
    let read = |key: &Key, observed| Mop::Read {
        key: key.clone(),
        observed,
    };
    let mops = vec![
        Mop::Append {
            key: one.clone(),
            element: 9,
        },
        read(&one, Observed::Nil),
        read(&one, Observed::List((1..=9).collect())),
        read(&one, Observed::List((1..=4).collect())),
        read(&one, Observed::List([1, 2, 7].into())),
        Mop::Write {
            key: two.clone(),
            value: -5,
        },
        read(&two, Observed::Register(i64::MIN)),
        read(&Key::Text("three".into()), Observed::List([].into())),
    ];
    let map = vec![
        (word("a"), Value::Float(-0.5)),
        (
            text("b"),
            Value::List([Value::Nil, Value::Bool(false)].into()),
        ),
        (Value::Int(3), Value::Map([].into())),
        (
            Value::Cas(1, 2),
            Value::Set([text("x"), Value::Int(1)].into()),
        ),
    ];
    vec![
        Value::Nil,
        Value::Bool(true),
        Value::Bool(false),
        Value::Int(i64::MAX),
        Value::Float(1e300),
        Value::Cas(-1, 4),
        text("a \"text\" of ünïcode"),
        word("word"),
        Value::List([].into()),
        Value::List(ints(0..5).into()),
        Value::List(ints(0..40).into()),
        Value::List(ints(0..20).into()),
        Value::List(ints(5..30).into()),
        Value::Set(ints(0..12).into()),
        Value::Set(ints(3..6).into()),
        Value::Map(map.into()),
        Value::Txn(mops.into()),
        Value::Txn([].into()),
        Value::Keyed(one, Arc::new(Value::Int(7))),
        Value::Keyed(two, Arc::new(Value::List(ints(0..9).into()))),
        Value::Keyed(Key::Text("t".into()), Arc::new(Value::Nil)),
    ]
}

/// An invocation and a completion with each value, nemesis operations, extra fields, gaps in the indices.
fn operations() -> Vec<Op> {
    let mut ops = Vec::new();
    let kinds = [OpType::Ok, OpType::Fail, OpType::Info];
    for (number, value) in values().into_iter().enumerate() {
        let process = Process::Client([0, 3, u64::from(u32::MAX) + 1][number % 3]);
        let f = ["read", "write", "txn"][number % 3];
        let invocation = Op::invoke(process, f, value.clone());
        let completion = invocation.complete(kinds[number % 3], value.clone());
        let completion = match number % 4 {
            0 => completion,
            1 => completion.with("node", Value::Text("n1".into())),
            2 => completion.with(
                "error",
                Value::List([Value::Word("timeout".into()), value].into()),
            ),
            _ => completion
                .with("node", Value::Text("n2".into()))
                .with("debug", value),
        };
        ops.extend([invocation, completion]);
        if number % 5 == 0 {
            let fault = Op::invoke(Process::NEMESIS, "kill", Value::Text("n3".into()));
            ops.push(Op {
                kind: OpType::Info,
                ..fault
            });
        }
    }
    for (place, op) in ops.iter_mut().enumerate() {
        op.index = place as u64 + if place > 10 { 1 << 33 } else { 0 };
        op.time = place as i64 * 1_000_000_007 - 1;
    }
    ops
}

fn open(bytes: &'static [u8]) -> TestFile {
    TestFile::on(Box::new(bytes), Path::new("version-1.sea")).unwrap()
}

#[test]
fn files_of_version_1_are_read() {
    let ops = operations();
    for (bytes, analyses, complete) in [(SEALED, 2, true), (OPEN, 0, false), (PACKED, 2, true)] {
        let file = open(bytes);
        let history = file.history().unwrap();
        let mut printed = String::new();
        for op in &history {
            writeln!(printed, "{op}").unwrap();
        }
        assert_eq!(printed, EXPECTED);
        assert_eq!(history.ops(), ops);
        assert_eq!((file.analyses(), file.is_complete()), (analyses, complete));
        let attributes = file.attributes().unwrap();
        assert_eq!(
            attributes,
            json!({"name": "version 1", "options": {"nodes": 3}})
        );
        let salvaged = super::Salvaged::on(Box::new(bytes), Path::new("version-1.sea")).unwrap();
        assert_eq!(salvaged.history().unwrap().ops(), ops);
    }
    assert_eq!(open(OPEN).tail(), Some(FileTail::Open));
    for bytes in [SEALED, PACKED] {
        let results = open(bytes).results_of(1).unwrap().unwrap();
        assert_eq!(results, json!({"valid": true}));
        assert_eq!(open(bytes).validity().unwrap(), Some(json!("unknown")));
    }
}

#[test]
fn files_of_this_version_read_the_same() {
    let scratch = super::tests::scratch();
    let mut writer = super::HistoryWriter::create(&scratch, &json!({})).unwrap();
    for op in operations() {
        writer.push(&op).unwrap();
    }
    writer.seal().unwrap();
    let file = TestFile::open(&scratch).unwrap();
    assert_eq!(file.history().unwrap().ops(), operations());
}
