//! Damaged and growing test files, and repeated checks, at the command line.

use super::{Scratch, error, json, run, stderr, stdout};
use seatrial_history::{HistoryWriter, Mop, Observed, Op, OpType, Process, TestFile, Value};
use seatrial_history::{Key, WriterOptions};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Transactions that append to one list and read it, one after another; `fails` is the one whose append is aborted,
/// although it is observed.
pub(super) fn ops(count: u64, fails: Option<u64>) -> Vec<Op> {
    let mut ops = Vec::new();
    for number in 0..count {
        let key = Key::Int(0);
        let txn = |observed| {
            let element = number as i64;
            let append = Mop::Append {
                key: key.clone(),
                element,
            };
            let read = Mop::Read {
                key: key.clone(),
                observed,
            };
            Value::Txn([append, read].into())
        };
        let process = Process::Client(number % 3);
        let invocation = Op {
            index: 2 * number,
            time: number as i64 * 1_000,
            ..Op::invoke(process, "txn", txn(Observed::Nil))
        };
        let seen = Observed::List((0..=number as i64).collect());
        let kind = if fails == Some(number) {
            OpType::Fail
        } else {
            OpType::Ok
        };
        let completion = invocation.complete(kind, txn(seen));
        ops.push(invocation);
        ops.push(Op {
            index: 2 * number + 1,
            time: number as i64 * 1_000 + 500,
            ..completion
        });
    }
    ops
}

pub(super) fn write(path: &str, ops: &[Op]) -> HistoryWriter {
    let options = WriterOptions {
        chunk_length: 10,
        ..WriterOptions::default()
    };
    let attributes = json!({"name": "list-append", "workload": "list-append"});
    let mut writer = HistoryWriter::create_with(Path::new(path), &attributes, options).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    writer
}

/// Makes the chunk with this number unreadable.
fn damage(path: &str, chunk: u64) {
    let mut bytes = fs::read(path).unwrap();
    let mut walker = seatrial_blocks::Walker::new(&bytes, 4_096);
    let mut left = chunk;
    let offset = loop {
        let (offset, header) = walker.next_header().unwrap().unwrap();
        if header.kind.0 == 17 {
            if left == 0 {
                break offset;
            }
            left -= 1;
        }
    };
    bytes[offset as usize + 60] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_file_is_refused_and_its_salvaged_rest_checked_with_limits() {
    let scratch = Scratch::new("salvage");
    let file = scratch.path("hurt.sea");
    write(&file, &ops(50, None)).seal().unwrap();
    TestFile::append_results(Path::new(&file), &json!({"valid": true})).unwrap();
    run(0, &["check", &file]);
    damage(&file, 3);
    let said = [&file[..], "chunk 3", "operations 30 to 39", "--salvage"];
    error(&["check", &file], &said);
    error(&["check", "--checker", "stats,g1", &file], &said);
    error(&["show", &file], &said);
    // The intact part is valid, but the missing part is unknown.
    let output = run(2, &["check", "--salvage", "--json", &file]);
    let results = json(&output);
    assert_eq!(results["valid"], "unknown", "{results:#}");
    assert!(
        results["missing"]
            .as_str()
            .unwrap()
            .contains("10 operations, indices 30 to 39")
    );
    let text = stdout(&run(2, &["check", "--salvage", &file]));
    assert!(
        text.contains("missing") && text.contains("chunk 3"),
        "{text}"
    );
    let shown = run(0, &["show", "--salvage", "--edn", &file]);
    assert_eq!(stdout(&shown).lines().count(), 90);
    assert!(
        stderr(&shown).contains("indices 30 to 39"),
        "{}",
        stderr(&shown)
    );
    let attributes = run(0, &["show", "--salvage", "--attributes", &file]);
    assert_eq!(json(&attributes)["workload"], "list-append");
    let results = run(0, &["show", "--salvage", "--results", &file]);
    assert_eq!(json(&results)["valid"], true);
    error(
        &["check", "--salvage", "--format", "edn", &file],
        &["not UTF-8 text"],
    );
}

#[test]
fn an_anomaly_among_salvaged_operations_is_certain() {
    let scratch = Scratch::new("salvage-certain");
    let file = scratch.path("hurt.sea");
    write(&file, &ops(50, Some(2))).seal().unwrap();
    damage(&file, 3);
    let results = json(&run(1, &["check", "--salvage", "--json", &file]));
    assert!(
        results["anomalies"]["G1a"].as_u64().unwrap() > 0,
        "{results:#}"
    );
    // Elements whose appends are missing are no garbage.
    assert_eq!(
        results["anomalies"]["garbage-read"],
        serde_json::Value::Null
    );
    // The aborted append itself is missing: the verdict is unknown.
    let file = scratch.path("lost.sea");
    write(&file, &ops(50, Some(16))).seal().unwrap();
    damage(&file, 3);
    run(2, &["check", "--salvage", &file]);
    // A copy records its gaps, and has the same verdict.
    let copy = scratch.path("copy.sea");
    seatrial_history::salvage_to(Path::new(&file), Path::new(&copy)).unwrap();
    let text = stdout(&run(2, &["check", &copy]));
    assert!(text.contains("missing"), "{text}");
    run(2, &["check", "--checker", "stats,g1", &copy]);
}

#[test]
fn a_live_run_is_checked_as_far_as_it_is_written() {
    let scratch = Scratch::new("live");
    let file = scratch.path("live.sea");
    let ops = ops(40, None);
    let mut writer = write(&file, &ops[..61]);
    writer.flush().unwrap();
    for words in [&["check"][..], &["check", "--checker", "stats,g1"]] {
        let text = stdout(&run(2, &[words, &[&file]].concat()));
        assert!(text.contains("never sealed"), "{text}");
        assert!(text.contains("still running"), "{text}");
        assert!(text.contains("last written"), "{text}");
        assert!(
            text.contains("30 operations") || text.contains("31"),
            "{text}"
        );
    }
    for op in &ops[61..] {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    let text = stdout(&run(0, &["check", &file]));
    assert!(!text.contains("still running"), "{text}");
}

#[test]
fn a_verdict_can_be_appended_to_the_file() {
    let scratch = Scratch::new("record");
    let file = scratch.path("again.sea");
    write(&file, &ops(10, None)).seal().unwrap();
    error(&["show", "--results", &file], &["no results"]);
    for count in 1..=2 {
        run(0, &["check", "--record", &file]);
        let analyses = TestFile::open(Path::new(&file)).unwrap().analyses();
        assert_eq!(analyses, count);
    }
    assert_eq!(json(&run(0, &["show", "--results", &file]))["valid"], true);
    let text = scratch.path("history.edn");
    fs::write(&text, run(0, &["show", "--edn", &file]).stdout).unwrap();
    error(&["check", "--record", &text], &["--record"]);
}
