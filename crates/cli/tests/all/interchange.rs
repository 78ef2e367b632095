//! `import` and `export`.

use super::{Scratch, command, run, stderr, stdout};
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

/// A history in which nothing gets lost in JSON.
const LINES: &str = r#"{"index":0,"time":5,"type":"invoke","process":0,"f":"txn","value":[["append",1,2],["r",3,null]]}
{"index":1,"time":6,"type":"info","process":"nemesis","f":"kill","value":"n1"}
{"index":3,"time":9,"type":"ok","process":0,"f":"txn","value":[["append",1,2],["r",3,[]]],"node":"n1"}
"#;

#[test]
fn a_history_goes_through_every_text_and_comes_back() {
    let scratch = Scratch::new("interchange");
    let lines = scratch.path("a.jsonl");
    fs::write(&lines, LINES).unwrap();
    let sea = scratch.path("a.sea");
    let output = run(0, &["import", &lines, "-o", &sea]);
    assert!(stdout(&output).contains("3 operations"), "{output:?}");
    let exported = |file: &str, to: &str| stdout(&run(0, &["export", file, "--to", to]));
    assert_eq!(exported(&sea, "jsonl"), LINES);
    let edn = stdout(&run(0, &["export", &sea]));
    let second = "{:index 1, :time 6, :type :info, :process :nemesis, :f :kill, :value \"n1\"}";
    assert_eq!(edn.lines().nth(1), Some(second));
    for (name, from) in [("b.edn", &sea), ("c.json", &sea), ("d.sea", &lines)] {
        let path = scratch.path(name);
        run(0, &["export", from, "-o", &path]);
        assert_eq!(exported(&path, "jsonl"), LINES, "{name}");
        run(0, &["check", &path, "-q"]);
        assert_eq!(stdout(&run(0, &["show", &path, "--edn"])), edn, "{name}");
    }
    let mut child = command(&["export", "-", "--to", "edn"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(LINES.as_bytes())
        .unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), edn);
}

#[test]
fn results_and_attributes_come_along_to_another_test_file() {
    let scratch = Scratch::new("interchange-results");
    let (first, second) = (scratch.path("run"), scratch.path("b.sea"));
    run(1, &["sim", "kv", "--bug", "stale-read", "--out", &first]);
    let file = format!("{first}/history.sea");
    run(0, &["export", &file, "-o", &second]);
    for what in ["--attributes", "--results"] {
        let shown = |file: &str| stdout(&run(0, &["show", file, what]));
        assert_eq!(shown(&second), shown(&file));
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_half_is_left() {
    let scratch = Scratch::new("interchange-force");
    let (lines, sea) = (scratch.path("a.jsonl"), scratch.path("a.sea"));
    fs::write(&lines, LINES).unwrap();
    fs::write(&sea, "mine").unwrap();
    let output = run(254, &["import", &lines, "-o", &sea]);
    assert!(stderr(&output).contains("--force"), "{output:?}");
    assert_eq!(fs::read(&sea).unwrap(), b"mine");
    run(254, &["export", &lines, "-o", &sea]);
    run(0, &["import", &lines, "-o", &sea, "--force", "-q"]);
    assert_eq!(stdout(&run(0, &["export", &sea, "--to", "jsonl"])), LINES);
    let broken = scratch.path("broken.jsonl");
    fs::write(
        &broken,
        format!("{LINES}{{\"index\":7,\"type\":\"yes\"}}\n"),
    )
    .unwrap();
    let out = scratch.path("new.sea");
    let output = run(254, &["import", &broken, "-o", &out]);
    assert!(
        stderr(&output).contains("broken.jsonl:4:19: :type is none of"),
        "{output:?}"
    );
    let names = fs::read_dir(&scratch.0).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.jsonl", "a.sea", "broken.jsonl"]);
}

#[test]
fn wrong_words_are_told() {
    let scratch = Scratch::new("interchange-words");
    let lines = scratch.path("a.jsonl");
    fs::write(&lines, LINES).unwrap();
    let text = scratch.path("a.txt");
    fs::write(&text, "hello").unwrap();
    let said = |words: &[&str]| stderr(&run(254, words));
    let out = scratch.path("a.sea");
    assert!(said(&["import", &text, "-o", &out]).contains("a.txt:1:1: not a history"));
    assert!(said(&["import", &lines, "-o", &out, "--format", "csv"]).contains("no format \"csv\""));
    assert!(said(&["export", &lines, "--to", "csv"]).contains("no target \"csv\""));
    assert!(said(&["export", &lines, "--to", "sea"]).contains("-o FILE"));
    assert!(said(&["export", &lines, "-o", &text, "--force"]).contains("--to takes"));
    assert!(said(&["import", &scratch.path("none"), "-o", &out]).contains("none"));
}

/// Written with the reference encoder of Fressian.
const JEPSEN: &[u8] = include_bytes!("../../../history/tests/data/jepsen/version-1.jepsen");

#[test]
fn a_binary_file_of_jepsen_becomes_a_test_file() {
    let scratch = Scratch::new("interchange-jepsen");
    let (jepsen, sea) = (scratch.path("test.jepsen"), scratch.path("a.sea"));
    fs::write(&jepsen, JEPSEN).unwrap();
    run(0, &["import", &jepsen, "-o", &sea]);
    let edn = stdout(&run(0, &["export", &sea]));
    assert_eq!(edn.lines().count(), 8, "{edn}");
    assert_eq!(stdout(&run(0, &["show", &jepsen, "--edn"])), edn);
    assert_eq!(
        stdout(&run(0, &["export", &jepsen, "--format", "jepsen"])),
        edn
    );
    let results = stdout(&run(0, &["show", &sea, "--results"]));
    assert!(results.contains("\"valid\": false"), "{results}");
    let attributes = stdout(&run(0, &["show", &sea, "--attributes"]));
    assert!(attributes.contains("\"name\": \"demo\""), "{attributes}");
    let mut damaged = JEPSEN.to_vec();
    let place = damaged
        .windows(8)
        .rposition(|bytes| bytes == b"append\x03\x01");
    let place = place.unwrap();
    damaged[place] ^= 1;
    fs::write(&jepsen, damaged).unwrap();
    let output = run(254, &["export", &jepsen]);
    assert!(stderr(&output).contains("checksum"), "{output:?}");
    let output = run(0, &["export", &jepsen, "--salvage"]);
    assert!(stderr(&output).contains("left out: "), "{output:?}");
    let left = stdout(&output).lines().count();
    assert!((1..8).contains(&left), "{left}");
}

#[test]
fn tables_are_written_by_a_build_that_has_them() {
    let scratch = Scratch::new("interchange-table");
    let (lines, out) = (scratch.path("a.jsonl"), scratch.path("a.parquet"));
    fs::write(&lines, LINES).unwrap();
    if cfg!(feature = "parquet") {
        run(0, &["export", &lines, "-o", &out]);
        assert!(fs::read(&out).unwrap().starts_with(b"PAR1"));
        let arrow = scratch.path("a.arrow");
        run(0, &["export", &lines, "-o", &arrow]);
        assert!(fs::read(&arrow).unwrap().starts_with(b"ARROW1"));
    } else {
        let output = run(254, &["export", &lines, "-o", &out]);
        assert!(stderr(&output).contains("--features parquet"), "{output:?}");
        assert!(!fs::exists(&out).unwrap());
    }
}
