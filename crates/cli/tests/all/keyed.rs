//! Histories of independent keys, written by other tools: checked key by key.

use super::{Scratch, json, run, stderr, stdout};
use serde_json::Value as Json;
use std::fs;

/// Three keys, the second broken: `(checker, invocation and completion of key 1, of key 2 and of key 3)`.
struct KeyedCase {
    checker: &'static str,
    /// Operations of each key: f, value of the invocation, value of the success.
    sound: &'static [(&'static str, &'static str, &'static str)],
    broken: &'static [(&'static str, &'static str, &'static str)],
    anomaly: &'static str,
}

const CASES: [KeyedCase; 7] = [
    KeyedCase {
        checker: "set",
        sound: &[
            ("add", "1", "1"),
            ("add", "2", "2"),
            ("read", "nil", "[1 2]"),
        ],
        broken: &[("add", "1", "1"), ("add", "2", "2"), ("read", "nil", "[1]")],
        anomaly: "lost",
    },
    KeyedCase {
        checker: "set-full",
        sound: &[("add", "1", "1"), ("read", "nil", "[1]")],
        broken: &[("add", "1", "1"), ("read", "nil", "[]")],
        anomaly: "lost",
    },
    KeyedCase {
        checker: "counter",
        sound: &[("add", "2", "2"), ("add", "3", "3"), ("read", "nil", "5")],
        broken: &[("add", "2", "2"), ("read", "nil", "3")],
        anomaly: "above-bounds",
    },
    KeyedCase {
        checker: "queue",
        sound: &[("enqueue", "7", "7"), ("dequeue", "nil", "7")],
        broken: &[
            ("enqueue", "7", "7"),
            ("dequeue", "nil", "7"),
            ("dequeue", "nil", "7"),
        ],
        anomaly: "duplicated",
    },
    KeyedCase {
        checker: "total-queue",
        sound: &[("enqueue", "7", "7"), ("drain", "nil", "[7]")],
        broken: &[("enqueue", "7", "7"), ("drain", "nil", "[]")],
        anomaly: "lost",
    },
    KeyedCase {
        checker: "unique-ids",
        sound: &[("generate", "nil", "1"), ("generate", "nil", "2")],
        broken: &[("generate", "nil", "1"), ("generate", "nil", "1")],
        anomaly: "duplicated",
    },
    KeyedCase {
        checker: "cas-register",
        sound: &[
            ("write", "1", "1"),
            ("cas", "[1 2]", "[1 2]"),
            ("read", "nil", "2"),
        ],
        broken: &[
            ("write", "1", "1"),
            ("cas", "[1 2]", "[1 2]"),
            ("read", "nil", "1"),
        ],
        anomaly: "nonlinearizable",
    },
];

impl KeyedCase {
    /// The history in EDN, with key 2 broken or not.
    fn edn(&self, is_broken: bool) -> String {
        let mut text = String::new();
        for key in 1..=3 {
            let ops = if key == 2 && is_broken {
                self.broken
            } else {
                self.sound
            };
            for (f, asked, answered) in ops {
                for (kind, value) in [("invoke", asked), ("ok", answered)] {
                    let op = format!(
                        "{{:process {key} :type :{kind} :f :{f} :value [{key} {value}]}}\n"
                    );
                    text.push_str(&op);
                }
            }
        }
        text
    }

    /// The same as lines of JSON.
    fn jsonl(&self, is_broken: bool) -> String {
        let edn = self.edn(is_broken);
        let lines = edn.lines().map(|line| {
            let (head, value) = line.trim_end_matches('}').split_once(":value ").unwrap();
            let words: Vec<&str> = head.trim_start_matches('{').split_whitespace().collect();
            let (process, kind, f) = (words[1], &words[3][1..], &words[5][1..]);
            let value = value.replace("nil", "null").replace(' ', ", ");
            format!(r#"{{"process": {process}, "type": "{kind}", "f": "{f}", "value": {value}}}"#)
                + "\n"
        });
        lines.collect()
    }
}

fn check(status: i32, words: &[&str]) -> Json {
    json(&run(status, &[&["check", "--json"], words].concat()))
}

/// The details of a checker in a document.
fn details<'a>(document: &'a Json, checker: &str) -> &'a Json {
    let one = &document["checkers"][checker];
    if one["details"].is_null() {
        one
    } else {
        &one["details"]
    }
}

#[test]
fn each_key_is_checked_alone() {
    let scratch = Scratch::new("keyed");
    for case in &CASES {
        let checker = case.checker;
        for (ending, sound, broken) in [
            ("edn", case.edn(false), case.edn(true)),
            ("jsonl", case.jsonl(false), case.jsonl(true)),
        ] {
            let path = scratch.path(&format!("{checker}-sound.{ending}"));
            fs::write(&path, sound).unwrap();
            let document = check(0, &["--checker", checker, &path]);
            let found = details(&document, checker);
            assert_eq!(found["keys"], 3, "{checker} {ending}: {document:#}");
            assert_eq!(found["keys_invalid"], 0, "{checker}");
            let path = scratch.path(&format!("{checker}-broken.{ending}"));
            fs::write(&path, broken).unwrap();
            let document = check(1, &["--checker", checker, &path]);
            assert_eq!(document["anomalies"][case.anomaly], 1, "{document:#}");
            let found = details(&document, checker);
            assert_eq!(found["keys"], 3, "{checker}");
            assert_eq!(found["keys_invalid"], 1, "{checker}");
            assert_eq!(found["results"]["2"]["valid"], false, "{checker}");
            assert_eq!(found["results"]["2"]["anomalies"][0], case.anomaly);
            assert!(found["results"]["1"].is_null(), "{checker}");
        }
    }
}

#[test]
fn lists_are_keys_only_if_all_are_or_on_request() {
    let scratch = Scratch::new("not-keyed");
    // Elements that are pairs, in a set without keys: its reads are invoked without a value.
    let plain = "{:process 0 :type :invoke :f :add :value [1 nil]}\n\
                 {:process 0 :type :ok :f :add :value [1 nil]}\n\
                 {:process 0 :type :invoke :f :read :value nil}\n\
                 {:process 0 :type :ok :f :read :value [[1 nil]]}\n";
    let path = scratch.path("plain.edn");
    fs::write(&path, plain).unwrap();
    let document = check(0, &["--checker", "set", &path]);
    assert_eq!(details(&document, "set")["keys"], 0, "{document:#}");
    // With --keyed the added element belongs to key 1, and elements read without a key were never added.
    let document = check(1, &["--checker", "set", "--keyed", &path]);
    assert_eq!(details(&document, "set")["keys"], 1, "{document:#}");
    // Without --checker it is inferred from the operations.
    let case = &CASES[2];
    let path = scratch.path("guessed.edn");
    fs::write(&path, case.edn(true)).unwrap();
    let document = check(1, &[&path]);
    assert_eq!(
        details(&document, "counter")["keys_invalid"],
        1,
        "{document:#}"
    );
}

/// Registers of three keys, of which these are broken.
fn registers(broken: &[u32]) -> String {
    let case = &CASES[6];
    let keys = (1..=3).map(|key| {
        let ops = if broken.contains(&key) {
            case.broken
        } else {
            case.sound
        };
        let ops = ops.iter().map(|(f, asked, answered)| {
            let line = |kind: &str, value: &str| {
                format!("{{:process {key} :type :{kind} :f :{f} :value [{key} {value}]}}\n")
            };
            line("invoke", asked) + &line("ok", answered)
        });
        ops.collect::<String>()
    });
    keys.collect()
}

#[test]
fn checking_stops_at_the_first_broken_key_when_only_the_verdict_is_asked_for() {
    let scratch = Scratch::new("first-key");
    let path = scratch.path("broken.edn");
    fs::write(&path, registers(&[2, 3])).unwrap();
    let output = stdout(&run(1, &["check", &path]));
    let stopped = "checking stopped at the first key that is not linearizable: 2 of 3 keys checked";
    assert!(output.contains(stopped), "{output}");
    let document = check(1, &[&path]);
    let found = details(&document, "cas-register");
    assert_eq!(
        (
            &found["keys"],
            &found["keys_checked"],
            &found["keys_invalid"]
        ),
        (&3.into(), &2.into(), &1.into())
    );
    // All keys are checked when more than the verdict is requested.
    let (page, folder) = (scratch.path("page.html"), scratch.path("findings"));
    for more in [
        &["--all-keys"][..],
        &["--report", &page],
        &["--findings", &folder],
    ] {
        let output = stdout(&run(1, &[&["check", &path], more].concat()));
        assert!(!output.contains("stopped"), "{more:?} {output}");
        assert!(output.contains("2 × nonlinearizable"), "{more:?} {output}");
    }
    let document = check(1, &["--all-keys", &path]);
    let found = details(&document, "cas-register");
    assert_eq!(
        (&found["keys_checked"], &found["keys_invalid"]),
        (&3.into(), &2.into())
    );
    // The last key does not exceed the limit.
    fs::write(&path, registers(&[3])).unwrap();
    let output = stdout(&run(1, &["check", &path]));
    assert!(!output.contains("stopped"), "{output}");
}

#[test]
fn the_verdict_is_shown_although_a_report_cannot_be_written() {
    let scratch = Scratch::new("unwritten");
    let (path, taken) = (scratch.path("broken.edn"), scratch.path("taken"));
    fs::write(&path, registers(&[2])).unwrap();
    fs::create_dir(&taken).unwrap();
    fs::write(scratch.path("taken/mine.txt"), "keep").unwrap();
    let page = scratch.path("no/such/folder/page.html");
    for words in [["--report", &page], ["--findings", &taken]] {
        let output = run(254, &[&["check", &path], &words[..]].concat());
        assert!(stdout(&output).contains("not linearizable"), "{words:?}");
        assert!(stderr(&output).contains(words[1]), "{words:?}");
        // A document says both.
        let document = json(&run(
            254,
            &[&["check", "--json", &path], &words[..]].concat(),
        ));
        assert_eq!(document["valid"], false, "{document:#}");
        let error = document["error"].as_str().unwrap();
        assert!(error.contains(words[1]), "{error}");
    }
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}
