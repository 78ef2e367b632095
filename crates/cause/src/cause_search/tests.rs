//! Causes of findings in small histories, and that memory has bounds.

use super::*;
use crate::fault_windows;
use seatrial_history::{Process, Value};
use serde_json::json;

/// An operation at this many milliseconds.
fn at(op: Op, milliseconds: i64) -> Op {
    Op {
        time: milliseconds * 1_000_000,
        ..op
    }
}

fn on(op: Op, node: &'static str) -> Op {
    op.with("node", Value::text(node))
}

/// A write and its acknowledgement by this node.
fn write(process: u64, value: i64, node: &'static str, (begin, end): (i64, i64)) -> [Op; 2] {
    let op = Op::invoke(Process::Client(process), "write", Value::Int(value));
    let done = on(op.complete(OpType::Ok, Value::Int(value)), node);
    [at(op, begin), at(done, end)]
}

fn fault(name: &'static str, node: &'static str, begin: i64) -> [Op; 2] {
    let op = Op {
        kind: OpType::Info,
        ..Op::invoke(Process::NEMESIS, name, Value::text(node))
    };
    [at(op.clone(), begin), at(op, begin + 1)]
}

/// n1 acknowledges a write of 39 at 1,067 ms, is killed at 1,070 ms and is back at 4,281 ms; 39 is written again at 5 s, and
/// once more, out of reach, at 60 s.
fn history() -> History {
    let all = [
        write(0, 39, "n1", (1_021, 1_067)),
        fault("kill", "n1", 1_070),
        write(1, 40, "n2", (2_000, 2_010)),
        fault("start", "n1", 4_280),
        write(1, 39, "n2", (5_000, 5_001)),
        write(2, 41, "n2", (5_200, 5_300)),
        write(1, 39, "n2", (60_000, 60_001)),
    ];
    History::from_unindexed(all.into_iter().flatten().collect())
}

fn causes(history: &History, operations: &[u64]) -> Causes {
    let faults = fault_windows(history);
    let finding = CauseSubject { operations };
    let attributes = json!({"started_ns": 0});
    let mut search = CauseSearch::begin(&[finding], &faults, &attributes, history).unwrap();
    search.begin_log("n1", "n1.log");
    search.push_log(b"1970-01-01T00:00:04.270Z WARN replayed 38 entries\n");
    search.push_log(b"1970-01-01T00:00:59Z INFO fine\n");
    search.finish()
}

#[test]
fn a_lost_write_has_its_kill_its_log_and_the_other_write() {
    let history = history();
    // The acknowledgement of 39, and the write of 41 in which the loss came to light.
    let causes = causes(&history, &[1, 10]);
    let cause = causes.of(0).unwrap();
    assert_eq!((cause.begin, cause.end), (1_021_000_000, 5_300_000_000));
    assert_eq!(cause.keys, ["39", "41"]);
    let own = &cause.operations[0];
    assert_eq!(
        (own.node.as_deref(), own.end),
        (Some("n1"), Some(1_067_000_000))
    );
    assert_eq!((own.label.as_str(), own.kind), ("write 39", OpType::Ok));
    let kill = &cause.faults[..];
    assert_eq!((kill.len(), kill[0].name), (1, "kill"));
    assert_eq!(
        (kill[0].begin, kill[0].end),
        (1_070_000_000, Some(4_281_000_000))
    );
    let others: Vec<u64> = cause.others.iter().map(|one| one.operation).collect();
    assert_eq!(
        others,
        [9],
        "the second write of 39, and not the one a minute later"
    );
    assert_eq!(cause.others[0].begin, Some(5_000_000_000));
    let lines: Vec<u64> = cause.log_lines.iter().map(|line| line.number).collect();
    assert_eq!(lines, [1]);
    let document = json!(cause);
    assert_eq!(document["faults"][0]["end"], 4.281);
    assert_eq!(document["operations"][0]["end"], 1.067);
    assert_eq!(document["log_lines"][0]["line"], 1);
}

#[test]
fn an_invocation_alone_or_an_unknown_index() {
    let history = history();
    let causes = causes(&history, &[0, 1, 99]);
    let cause = causes.of(0).unwrap();
    assert_eq!(cause.operations.len(), 1, "both halves are one operation");
    assert_eq!(cause.end, 1_067_000_000);
}

#[test]
fn without_times_or_operations_there_is_no_cause() {
    let history = history();
    assert!(causes(&history, &[]).of(0).is_none());
    assert!(causes(&history, &[]).of(1).is_none());
    let mut attributes = json!({});
    Provenance::default().timeless().add_to(&mut attributes);
    let finding = CauseSubject { operations: &[1] };
    let search = CauseSearch::begin(&[finding], &[], &attributes, &history).unwrap();
    assert!(!search.wants_logs());
    assert!(search.finish().of(0).is_none());
    let untimed = history.iter().map(|op| Op {
        time: -1,
        ..op.clone()
    });
    let untimed = History::from_ops(untimed.collect());
    assert!(causes(&untimed, &[1]).of(0).is_none());
}

#[test]
fn lists_have_bounds_in_a_long_history() {
    let mut ops: Vec<Op> = Vec::new();
    for number in 0..40_000_i64 {
        ops.extend(write(3, 39, "n1", (number, number)));
    }
    for number in 0..200 {
        let begin = 20_000 + number;
        ops.extend(fault("bit-rot", "n1", begin));
    }
    ops.sort_by_key(|op| op.time);
    let history = History::from_unindexed(ops);
    let middle = history
        .iter()
        .find(|op| op.time == 20_000_000_000 && op.kind == OpType::Ok);
    let causes = causes(&history, &[middle.unwrap().index]);
    let cause = causes.of(0).unwrap();
    assert_eq!(cause.others.len(), FindingCause::OTHERS_MAX);
    assert_eq!(
        cause.others_left_out,
        2_000 - FindingCause::OTHERS_MAX as u64
    );
    let away = cause.others.iter().filter_map(|one| one.end);
    assert!(
        away.map(|end| end.abs_diff(20_000_000_000))
            .all(|away| away <= 13_000_000)
    );
    assert_eq!(cause.faults.len(), FindingCause::FAULTS_MAX);
    assert_eq!(cause.faults_left_out, 200 - FindingCause::FAULTS_MAX as u64);
}
