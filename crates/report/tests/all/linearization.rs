//! The picture of the longest order that works: what is in it, its size, and that nothing in a history becomes markup.

use crate::page::{assert_needs_nothing, assert_picture, assert_well_formed, drawn, written};
use crate::synthetic;
use seatrial_checker::{
    EssentialOperations, Finding, LinearizationPoint, LinearizationWitness, Validity, Verdict,
};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_report::Report;
use serde_json::Value as Json;

/// Writes in rounds of concurrent processes, each round in the order of its processes, and a read that no order allows. The last
/// operation before it is of unknown outcome.
fn stale_read(operations: usize, processes: usize, text: &str) -> (History, LinearizationWitness) {
    let mut ops: Vec<Op> = Vec::new();
    let mut order = Vec::new();
    let value = |number: usize| Value::text(format!("{text}{number}"));
    for first in (0..operations).step_by(processes) {
        let round = first..(first + processes).min(operations);
        for number in round.clone() {
            let process = Process::Client((number - first) as u64);
            let time = 1_000_000 * ops.len() as i64;
            let op = Op::invoke(process, "write", value(number));
            ops.push(Op { time, ..op });
        }
        for number in round.clone() {
            let invocation = ops[ops.len() - round.len()].clone();
            let kind = if number + 1 == operations {
                OpType::Info
            } else {
                OpType::Ok
            };
            let time = 1_000_000 * ops.len() as i64;
            order.push(LinearizationPoint {
                operation: ops.len() as u64,
                state: value(number).to_string(),
            });
            let completion = invocation.complete(kind, value(number));
            ops.push(Op { time, ..completion });
        }
    }
    let read = Op::invoke(Process::Client(90), "read", Value::Nil);
    ops.extend([read.clone(), read.complete(OpType::Ok, value(0))]);
    let last = ops.len() as u64 - 1;
    let essential = order.iter().rev().skip(1).take(1);
    let essential = essential.map(|point| point.operation).chain([last]);
    let essential = essential.collect();
    let left_out = order.len().saturating_sub(LinearizationWitness::POINTS_MAX);
    let witness = LinearizationWitness {
        operation: last,
        order: order.split_off(left_out),
        left_out: left_out as u64,
        before: "nil".to_owned(),
        states: vec![value(operations - 1).to_string()],
        states_left_out: 0,
        concurrent: vec![last - 2],
        concurrent_left_out: 0,
        essential: Some(EssentialOperations {
            operations: essential,
            others: operations as u64 - 1,
            is_minimal: true,
        }),
    };
    (History::from_unindexed(ops), witness)
}

/// A verdict with this many such findings.
fn verdict(witness: &LinearizationWitness, findings: usize) -> Verdict {
    let mut verdict = synthetic::linearizable();
    verdict.valid = Validity::Invalid;
    verdict.anomalies = [("nonlinearizable", findings as u64)].into();
    let finding = Finding {
        anomaly: "nonlinearizable",
        summary: "A read cannot be linearized.".to_owned(),
        operations: vec![witness.operation],
        steps: Vec::new(),
        linearization: Some(Box::new(witness.clone())),
    };
    verdict.findings = vec![finding; findings];
    verdict
}

fn page(history: &History, verdict: Verdict) -> String {
    let attributes = synthetic::attributes();
    let overview = synthetic::overview(history);
    let verdicts = [verdict];
    drawn(&Report::new(&attributes, &overview, &verdicts), history)
}

/// The figures of each picture.
fn figures(page: &str) -> Vec<Json> {
    let begin = "<script type=\"application/json\">";
    let pieces = page.split(begin).skip(1);
    pieces
        .map(|piece| serde_json::from_str(piece.split("</script>").next().unwrap()).unwrap())
        .collect()
}

fn rows<'a>(figures: &'a Json, name: &str) -> &'a Vec<Json> {
    figures[name].as_array().unwrap()
}

#[test]
fn each_point_is_within_its_operation() {
    for (operations, processes) in [(1, 1), (3, 1), (3, 3), (100, 10), (1_000, 50)] {
        let (history, witness) = stale_read(operations, processes, "");
        let page = page(&history, verdict(&witness, 1));
        assert_well_formed(&page);
        assert_needs_nothing(&page);
        let figures = &figures(&page)[0];
        let (bars, points) = (rows(figures, "bars"), rows(figures, "points"));
        assert_eq!(bars.len(), operations + 1);
        assert_eq!(points.len(), operations);
        let end = figures["end"].as_i64().unwrap();
        let mut before = 0;
        for point in points {
            let bar = &bars[point[0].as_u64().unwrap() as usize];
            let x = point[1].as_i64().unwrap();
            assert!(
                before <= x && x <= end,
                "points are in order, before the end"
            );
            let (begin, end) = (bar[1].as_i64().unwrap(), bar[2].as_i64().unwrap());
            assert!(begin <= x && x <= end, "{begin} {x} {end}");
            before = x;
        }
        let marks = |mark: u64| {
            bars.iter()
                .filter(move |bar| bar[4].as_u64().unwrap() & mark > 0)
        };
        assert_eq!(marks(2).count(), 1, "one operation cannot be placed");
        assert_eq!(marks(1).count(), if operations == 1 { 1 } else { 2 });
        assert!(
            page.contains("class=\"bar ok unplaced essential\""),
            "it is drawn"
        );
        assert!(page.contains("class=\"bar info"), "and the open one");
        assert!(page.contains("class=\"break\""));
    }
}

#[test]
fn pictures_are_bounded_however_long_the_order_is() {
    let (history, witness) = stale_read(5_000, 50, &"long".repeat(500));
    let page = page(&history, verdict(&witness, 70));
    assert_well_formed(&page);
    let figures = figures(&page);
    assert_eq!(figures.len(), 60);
    assert_eq!(
        rows(&figures[0], "points").len(),
        LinearizationWitness::POINTS_MAX
    );
    assert_eq!(rows(&figures[59], "points").len(), 100);
    assert!(page.contains("Left out: 4,000 earlier operations."));
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
}

#[test]
fn a_picture_of_thousand_operations_is_light() {
    let (history, witness) = stale_read(1_000, 50, "");
    let page = |findings| page(&history, verdict(&witness, findings)).len();
    let (one, two) = (page(1), page(2));
    assert!(two - one < 200_000, "{} bytes", two - one);
}

#[test]
fn hostile_values_are_escaped() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'<!-- \u{202e}";
    let (history, mut witness) = stale_read(20, 4, hostile);
    witness.before = hostile.to_owned();
    witness.states = vec![hostile.to_owned()];
    let verdict = verdict(&witness, 1);
    let files = written(
        &synthetic::attributes(),
        &history,
        std::slice::from_ref(&verdict),
    );
    let page = page(&history, verdict);
    assert_well_formed(&page);
    assert_needs_nothing(&page);
    assert_eq!(
        page.matches("<script").count(),
        5,
        "two figures and three scripts"
    );
    assert!(!page.contains("<img") && !page.contains('\u{202e}'));
    assert!(page.contains("&lt;/script&gt;"));
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["nonlinearizable/1.svg", "nonlinearizable.txt"]);
    assert_picture(&files[0].contents);
}

#[test]
fn a_witness_of_other_operations_leaves_the_rest_of_the_page() {
    let (history, mut witness) = stale_read(10, 2, "");
    witness.operation = 1_000_000;
    let page = page(&history, verdict(&witness, 1));
    assert_well_formed(&page);
    assert!(figures(&page).is_empty());
}
