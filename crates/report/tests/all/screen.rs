//! The last screen, the results for machines, the listing.

#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use crate::synthetic::{self, SyntheticShape};
use expect_test::{Expect, expect};
use seatrial_checker::{Validity, Verdict};
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_report::{ListingColumns, Report, listing, results_json, text};
use serde_json::json;
use std::time::Duration;

const FOLDER: &str = "runs/kv/2026-11-21T09-14-03-91c4";
const FILES: [&str; 5] = [
    "report.html",
    "history.sea",
    "results.json",
    "n1.log",
    "n2.log",
];

fn run() -> History {
    let shape = SyntheticShape {
        operations: 3_000,
        processes: 10,
        seconds: 30,
        faults: 11,
    };
    synthetic::history(1, shape)
}

/// The last screen under a line of its own, because golden text loses the indentation that all its lines share.
fn screen(report: &Report<'_>) -> String {
    format!("The last screen:\n{}", text(report, false))
}

fn check(history: &History, verdicts: &[Verdict], expected: &Expect) {
    let attributes = synthetic::attributes();
    let overview = synthetic::overview(history);
    let report = Report::new(&attributes, &overview, verdicts).in_folder(FOLDER, FILES);
    expected.assert_eq(&screen(&report));
}

#[test]
fn valid() {
    let verdicts = [synthetic::stats(), synthetic::linearizable()];
    check(
        &run(),
        &verdicts,
        &expect![[r#"
            The last screen:
             kv · register · 3 nodes · kill, pause, partition · 39 s · seed 91c4
             3,000 operations   ok 94.5 %  fail 4.2 %  info 1.4 %   77/s   11 faults
             ✓ linearizable
             runs/kv/2026-11-21T09-14-03-91c4/   report.html  history.sea  results.json  n1.log  n2.log
        "#]],
    );
}

#[test]
fn invalid() {
    let history = run();
    let verdicts = [synthetic::stats(), synthetic::stale_read(&history)];
    check(
        &history,
        &verdicts,
        &expect![[r#"
            The last screen:
             kv · register · 3 nodes · kill, pause, partition · 39 s · seed 91c4
             3,000 operations   ok 94.5 %  fail 4.2 %  info 1.4 %   77/s   11 faults
             ✗ not linearizable: 2 × nonlinearizable
               key 7: op 290 read 3, but 4 had been written before it began and nothing wrote 3 since.
               The longest prefix that can be explained ends before it.
               key 7: op 292 read 3, but 4 had been written before it began and nothing wrote 3 since.
               The longest prefix that can be explained ends before it.
             runs/kv/2026-11-21T09-14-03-91c4/   report.html  history.sea  results.json  n1.log  n2.log
        "#]],
    );
}

#[test]
fn anomalies_of_transactions() {
    let (history, verdicts) = synthetic::transactions();
    check(
        &history,
        &verdicts,
        &expect![[r#"
            The last screen:
             kv · register · 3 nodes · kill, pause, partition · 3 ms · seed 91c4
             4 operations   ok 75.0 %  fail 0 %  info 25.0 %   1,333/s   0 faults
             ✗ not strict-serializable: 2 G1c-realtime, 1 G2-item, 2 lost updates   (holds: snapshot-isolation)
               T1 (op 3) and T2 (op 4) each missed what the other appended.
               T1 read key 2 = [] before T2's append of 1; T2 read key 1 = [] before T1's append of 1.
               T4 saw T3's append, and T4 ended before T2 began.
             runs/kv/2026-11-21T09-14-03-91c4/   report.html  history.sea  results.json  n1.log  n2.log
        "#]],
    );
}

#[test]
fn unknown() {
    let verdicts = [synthetic::linearizable().unknown("key 7 has more than 1,000,000 states")];
    check(
        &run(),
        &verdicts,
        &expect![[r#"
            The last screen:
             kv · register · 3 nodes · kill, pause, partition · 39 s · seed 91c4
             3,000 operations   ok 94.5 %  fail 4.2 %  info 1.4 %   77/s   11 faults
             ? unknown: key 7 has more than 1,000,000 states
             runs/kv/2026-11-21T09-14-03-91c4/   report.html  history.sea  results.json  n1.log  n2.log
        "#]],
    );
}

#[test]
fn nothing_happened() {
    check(
        &History::default(),
        &[],
        &expect![[r#"
            The last screen:
             kv · register · 3 nodes · kill, pause, partition · seed 91c4
             0 operations   0 faults
             ? unknown: no checker ran on this history
             ! no operation took place, so there is nothing to check
             runs/kv/2026-11-21T09-14-03-91c4/   report.html  history.sea  results.json  n1.log  n2.log
        "#]],
    );
}

#[test]
fn a_history_without_attributes() {
    let (history, verdicts) = synthetic::transactions();
    let overview = synthetic::overview(&history);
    let report = Report::new(&serde_json::Value::Null, &overview, &verdicts[..1]);
    let expected = expect![[r#"
        The last screen:
         3 ms
         4 operations   ok 75.0 %  fail 0 %  info 25.0 %   1,333/s
         ✓ valid
    "#]];
    expected.assert_eq(&screen(&report));
}

#[test]
fn a_verdict_says_what_proves_it_or_what_stayed_open() {
    let (history, _) = synthetic::transactions();
    let shown = |verdict: &Verdict| {
        let overview = synthetic::overview(&history);
        let report = Report::new(
            &serde_json::Value::Null,
            &overview,
            std::slice::from_ref(verdict),
        );
        let results = results_json(&report);
        let json = format!("{} {}", results["proof"], results["undecided"]);
        let shown = text(&report, false);
        let line = shown.lines().find(|line| line.contains("serializable"));
        (line.unwrap().to_owned(), json)
    };
    let mut verdict = Verdict::valid("rw-register");
    verdict.model = Some("serializable".to_owned());
    let open = verdict
        .clone()
        .no_anomaly_found(vec!["the order of 2 blind writes".into()]);
    verdict.proof = Some(Verdict::SERIAL_ORDER);
    let proven = shown(&verdict);
    assert_eq!(proven.0, " ✓ serializable (serial order)");
    assert_eq!(proven.1, "\"serial order\" []");
    let mut accepted = open.clone();
    accepted.accept_undecided();
    let open = shown(&open);
    assert_eq!(
        open.0,
        " ? serializable: no anomaly found; not decided: the order of 2 blind writes"
    );
    assert_eq!(open.1, "null [\"the order of 2 blind writes\"]");
    verdict.valid = Validity::Invalid;
    verdict.proof = None;
    verdict.reason = Some("findings may rest on sequential-keys".into());
    let overview = synthetic::overview(&history);
    let report = Report::new(
        &serde_json::Value::Null,
        &overview,
        std::slice::from_ref(&verdict),
    );
    assert!(text(&report, false).contains("\n ! findings may rest on sequential-keys\n"));
    assert_eq!(
        shown(&accepted).0,
        " ✓ no anomaly found (serializable not proven; not decided: the order of 2 blind writes)"
    );
}

#[test]
fn colours_add_nothing_but_colours() {
    let (history, verdicts) = synthetic::transactions();
    let attributes = synthetic::attributes();
    let overview = synthetic::overview(&history);
    let report = Report::new(&attributes, &overview, &verdicts).warn("n2 did not come back");
    let colored = text(&report, true);
    assert!(
        colored.contains("\u{1b}[1;31m✗ not strict-serializable"),
        "{colored}"
    );
    let mut plain = String::new();
    for part in colored.split("\u{1b}[") {
        let code = part.find('m').filter(|end| {
            part[..*end]
                .bytes()
                .all(|byte| byte == b';' || byte.is_ascii_digit())
        });
        plain.push_str(&part[code.map_or(0, |end| end + 1)..]);
    }
    assert_eq!(plain, text(&report, false));
}

#[test]
fn nothing_from_outside_reaches_the_terminal_raw() {
    let hostile = "a\u{1b}[2Jb\r\u{7}\u{9b}";
    let mut verdict = synthetic::transactions().1.remove(1);
    verdict.findings[0].summary = hostile.to_owned();
    let attributes = json!({"suite": hostile, "workload": hostile, "seed": hostile, "bug": hostile, "faults": [hostile]});
    let verdicts = [verdict];
    let history = History::default();
    let overview = synthetic::overview(&history);
    let report = Report::new(&attributes, &overview, &verdicts);
    let report = report.warn(hostile).in_folder(hostile, [hostile]);
    let shown = text(&report, false);
    let raw: Vec<char> = shown
        .chars()
        .filter(|letter| letter.is_control() && *letter != '\n')
        .collect();
    assert!(raw.is_empty(), "{raw:?} in {shown:?}");
}

#[test]
fn results_for_machines() {
    let (history, verdicts) = synthetic::transactions();
    let attributes = synthetic::attributes();
    let overview = synthetic::overview(&history);
    let report = Report::new(&attributes, &overview, &verdicts);
    let report = report
        .checked_in(Duration::from_millis(250))
        .warn("n2 did not come back");
    let expected = expect![[r#"
        {
          "schema": 1,
          "valid": false,
          "model": "strict-serializable",
          "proof": null,
          "undecided": [],
          "operations": 4,
          "events": 8,
          "counts": {
            "ok": 3,
            "fail": 0,
            "info": 1
          },
          "faults": 0,
          "anomalies": {
            "G1c-realtime": 2,
            "G2-item": 1,
            "lost-update": 2
          },
          "not": [
            "serializable"
          ],
          "also_not": [
            "strict-serializable"
          ],
          "holds": [
            "snapshot-isolation"
          ],
          "findings": [
            {
              "checker": "list-append",
              "anomaly": "G2-item",
              "summary": "T1 (op 3) and T2 (op 4) each missed what the other appended.\nT1 read key 2 = [] before T2's append of 1; T2 read key 1 = [] before T1's append of 1.",
              "operations": [
                3,
                4
              ],
              "steps": [
                {
                  "from": 3,
                  "to": 4,
                  "relation": "rw",
                  "reason": "T1 read key 2 = [], before T2 appended 1 to it"
                },
                {
                  "from": 4,
                  "to": 3,
                  "relation": "rw",
                  "reason": "T2 read key 1 = [], before T1 appended 1 to it"
                }
              ]
            },
            {
              "checker": "list-append",
              "anomaly": "G1c-realtime",
              "summary": "T4 saw T3's append, and T4 ended before T2 began.",
              "operations": [
                3,
                4,
                6,
                7
              ],
              "steps": [
                {
                  "from": 6,
                  "to": 7,
                  "relation": "wr",
                  "reason": "T4 observed T3's append of 7 to key 3"
                },
                {
                  "from": 7,
                  "to": 4,
                  "relation": "realtime",
                  "reason": "T4 ended before T2 began"
                },
                {
                  "from": 4,
                  "to": 3,
                  "relation": "ww",
                  "reason": "T1 appended 2 right after T2's 1 to key 5"
                },
                {
                  "from": 3,
                  "to": 6,
                  "relation": "process",
                  "reason": "the same process did T1 before T3"
                }
              ]
            }
          ],
          "checkers": {
            "stats": {
              "valid": true,
              "anomalies": {},
              "not": [],
              "also_not": [],
              "details": {
                "ok": 3,
                "info": 1
              }
            },
            "list-append": {
              "valid": false,
              "model": "strict-serializable",
              "anomalies": {
                "G1c-realtime": 2,
                "G2-item": 1,
                "lost-update": 2
              },
              "not": [
                "serializable"
              ],
              "also_not": [
                "strict-serializable"
              ],
              "details": {
                "transactions": 4,
                "holds": [
                  "snapshot-isolation"
                ]
              }
            }
          },
          "warnings": [
            "n2 did not come back"
          ],
          "seconds": 0.25
        }"#]];
    expected.assert_eq(&format!("{:#}", results_json(&report)));
}

#[test]
fn results_that_are_unknown() {
    let history = run();
    let verdicts = [
        synthetic::stats(),
        synthetic::linearizable().unknown("too many states"),
    ];
    let overview = synthetic::overview(&history);
    let report = Report::new(&serde_json::Value::Null, &overview, &verdicts);
    let results = results_json(&report);
    assert_eq!(results["valid"], "unknown");
    assert_eq!(results["reason"], "too many states");
    assert_eq!(results["checkers"]["stats"]["valid"], true);
    assert_eq!(results["operations"], 3_000);
    assert_eq!(results["faults"], 11);
}

#[test]
fn a_listing_is_aligned() {
    let op = |process, f: &'static str, value| Op {
        time: 1_234_567_890,
        ..Op::invoke(process, f, value)
    };
    let read = op(Process::Client(3), "read", Value::Nil);
    let kill = Op {
        kind: OpType::Info,
        ..op(Process::NEMESIS, "kill", Value::text("n1"))
    };
    let failed = read.complete(OpType::Fail, Value::Nil);
    let failed = failed
        .with("error", Value::text("no\nleader"))
        .with("node", Value::text("n1"));
    let untimed = Op {
        time: -1,
        ..op(Process::Client(12), "cas", Value::Cas(1, 2))
    };
    let history = History::from_unindexed(vec![read, kill.clone(), failed, kill, untimed]);
    let expected = expect![[r#"
        0      1.234567         3  invoke  read      nil
        1      1.234567  :nemesis  info    kill      "n1"
        2      1.234567         3  fail    read  n1  nil  :error "no\nleader"
        3      1.234567  :nemesis  info    kill      "n1"
        4             -        12  invoke  cas       [1 2]
    "#]];
    expected.assert_eq(&listing(&history));
    let lines: Vec<String> = history
        .iter()
        .map(|op| ListingColumns::of(&history).line(op))
        .collect();
    assert_eq!(lines.join("\n") + "\n", listing(&history));
}
