//! `import` and `export`.

use super::{Scratch, command, run, stderr, stdout};
use seatrial_history::{History, HistoryWriter, Op, OpType, Process, Value};
use std::fs;
use std::io::Write as _;
use std::path::Path;
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
    assert!(stdout(&output).contains("3 events"), "{output:?}");
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
    let names = fs::read_dir(scratch.folder()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.jsonl", "a.sea", "broken.jsonl"]);
}

#[test]
fn unknown_formats_are_refused_with_the_available_ones() {
    let scratch = Scratch::new("interchange-words");
    let lines = scratch.path("a.jsonl");
    fs::write(&lines, LINES).unwrap();
    let text = scratch.path("a.txt");
    fs::write(&text, "hello").unwrap();
    let said = |words: &[&str]| stderr(&run(254, words));
    let out = scratch.path("a.sea");
    assert!(said(&["import", &text, "-o", &out]).contains("a.txt:1:1: not a history"));
    assert!(
        said(&["import", &lines, "-o", &out, "--format", "xml"]).contains("unknown format `xml`")
    );
    assert!(said(&["export", &lines, "--to", "csv"]).contains("unknown format `csv`"));
    assert!(said(&["export", &lines, "--to", "sea"]).contains("-o FILE"));
    assert!(said(&["export", &lines, "-o", &text, "--force"]).contains("--to takes"));
    assert!(said(&["import", &scratch.path("none"), "-o", &out]).contains("none"));
}

/// Written with the reference encoder of Fressian.
const JEPSEN: &[u8] = include_bytes!("../../../interchange/tests/data/jepsen/version-1.jepsen");

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

/// Two sessions; the second read is older than what its session saw before, so no order of the sessions explains it.
const STALE: &str = "w(1,5,0,0)\nw(1,6,0,1)\nr(1,6,1,2)\nr(1,5,1,3)\n";

#[test]
fn a_history_without_times_is_not_held_to_real_time() {
    let scratch = Scratch::new("interchange-timeless");
    let good = scratch.path("good.txt");
    // In another order of real time it would be stale: session 1 ran before session 0 wrote.
    fs::write(&good, "w(1,5,0,0)\nr(1,0,1,1)\nr(1,5,1,2)\nw(1,6,1,-1)\n").unwrap();
    let document = |status, words: &[&str]| -> serde_json::Value {
        let words = [&["check", "--json", "--checker", "rw-register"], words].concat();
        serde_json::from_slice(&run(status, &words).stdout).unwrap()
    };
    let usual = document(0, &[&good]);
    assert_eq!(usual["model"], "strong-session-serializable", "{usual}");
    // What a test file was made of is not forgotten.
    let sea = scratch.path("good.sea");
    run(0, &["import", &good, "-o", &sea]);
    for file in [&good, &sea] {
        let strict = document(2, &[file, "--model", "strict-serializable"]);
        assert_eq!(strict["valid"], "unknown", "{strict}");
        let warnings = strict["warnings"].to_string();
        assert!(
            warnings.contains("checked against strong-session-serializable"),
            "{strict}"
        );
        assert_eq!(document(0, &[file])["valid"], true);
        assert_eq!(
            document(0, &[file, "--model", "serializable"])["valid"],
            true
        );
    }
}

/// The verdict of `check --json`: valid or not, by which model, and what is missing.
fn verdict(file: &str, words: &[&str]) -> serde_json::Value {
    let words = [&["check", "--json"], words, &[file]].concat();
    let output = command(&words).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = document.pointer(&format!("/checkers/{}/model", words[3]));
    assert!(document["valid"] != serde_json::Value::Null, "{document}");
    serde_json::json!([document["valid"], model, document["missing"].is_null()])
}

/// A test file whose end is missing: what was enqueued last is not lost.
fn write_unended(path: &str) {
    let mut writer = HistoryWriter::create(
        Path::new(path),
        &serde_json::json!({"workload": "queue", "name": "unended"}),
    )
    .unwrap();
    let mut ops = Vec::new();
    let calls = [
        ("enqueue", Value::Int(0), Value::Int(0)),
        ("enqueue", Value::Int(1), Value::Int(1)),
        ("enqueue", Value::Int(2), Value::Int(2)),
        ("dequeue", Value::Nil, Value::Int(0)),
        ("drain", Value::Nil, Value::List([Value::Int(1)].into())),
    ];
    for (f, asked, answer) in calls {
        let op = Op::invoke(Process::Client(1), f, asked);
        ops.extend([op.clone(), op.complete(OpType::Ok, answer)]);
    }
    for op in &History::from_unindexed(ops) {
        writer.push(op).unwrap();
    }
    writer.sync().unwrap();
}

#[test]
fn a_history_is_worth_the_same_in_every_format() {
    let scratch = Scratch::new("interchange-provenance");
    // In real time it is stale, and without it valid.
    let plume = scratch.path("timeless.txt");
    fs::write(&plume, "w(1,5,0,0)\nr(1,0,1,1)\nr(1,5,1,2)\nw(1,6,1,-1)\n").unwrap();
    let unended = scratch.path("unended.sea");
    write_unended(&unended);
    for (file, words, names) in [
        (
            &plume,
            &["--checker", "rw-register"][..],
            &["edn", "jsonl", "sea"][..],
        ),
        (
            &plume,
            &["--checker", "isolation"],
            &["edn", "jsonl", "sea"],
        ),
        (
            &unended,
            &["--checker", "total-queue"],
            &["edn", "jsonl", "sea"],
        ),
    ] {
        let expected = verdict(file, words);
        for name in names {
            let other = scratch.path(&format!("other.{name}"));
            run(0, &["export", file, "--to", name, "--force", "-o", &other]);
            assert_eq!(
                verdict(&other, words),
                expected,
                "{file} {words:?} as {name}"
            );
            let again = scratch.path("again.sea");
            run(0, &["import", &other, "--force", "-o", &again]);
            assert_eq!(
                verdict(&again, words),
                expected,
                "{file} {words:?} as {name}, imported"
            );
        }
    }
    let said = stderr(&run(
        0,
        &[
            "export",
            &plume,
            "--to",
            "json",
            "-o",
            &scratch.path("x.json"),
        ],
    ));
    assert!(said.contains("has no times"), "{said}");
    // What has nothing to say but how it was tested has a header in EDN, where that is a comment.
    let whole = scratch.path("whole.sea");
    run(
        0,
        &["generate", "register", "--events", "20", "-q", "-o", &whole],
    );
    let edn = stdout(&run(0, &["export", &whole, "--to", "edn"]));
    let header = ";; seatrial {\"workload\":\"register\"}\n{:index 0";
    assert!(edn.starts_with(header), "{edn}");
    let lines = stdout(&run(0, &["export", &whole, "--to", "jsonl"]));
    assert!(lines.starts_with("{\"index\":0"), "{lines}");
}

#[test]
fn formats_of_other_checkers_are_recognized_by_their_first_bytes() {
    let scratch = Scratch::new("interchange-registers");
    let plume = scratch.path("a.txt");
    fs::write(&plume, STALE).unwrap();
    let shown = |file: &str| {
        let edn = stdout(&run(0, &["show", file, "--edn"]));
        edn.lines().filter(|line| line.contains(":ok")).count()
    };
    assert_eq!(shown(&plume), 4);
    let text = stdout(&run(1, &["check", &plume]));
    assert!(text.contains("not strong-session-serializable"), "{text}");
    run(0, &["check", &plume, "--model", "serializable", "-q"]);
    // A folder around one file is what AWDIT and PolySI take.
    let folder = scratch.path("polysi");
    fs::create_dir(&folder).unwrap();
    let bincode = format!("{folder}/history.bincode");
    run(0, &["export", &plume, "--to", "dbcop", "-o", &bincode]);
    assert_eq!((shown(&bincode), shown(&folder)), (4, 4));
    let again = stdout(&run(0, &["export", &folder, "--to", "plume"]));
    assert_eq!(again, STALE);
    let awdit = scratch.path("b.txt");
    fs::write(&awdit, "w 0 0\n-\nw 0 1\n=\nr 0 1\n").unwrap();
    assert_eq!(shown(&awdit), 3);
    let error = stderr(&run(254, &["export", &awdit, "--to", "plume"]));
    assert!(
        error.contains("b.txt:1:1") && error.contains("value 0"),
        "{error}"
    );
    let logs = scratch.path("cobra");
    fs::create_dir(&logs).unwrap();
    let error = stderr(&run(254, &["show", &logs]));
    assert!(error.contains("nor logs of Cobra"), "{error}");
    for session in [2_i64, 10] {
        let numbers = |numbers: &[i64]| numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
        let parts: [Vec<u8>; 3] = [
            numbers(&[session]),
            numbers(&[session, 7, 7]),
            numbers(&[session]),
        ];
        let tagged = parts.into_iter().zip(*b"SWC");
        let log: Vec<u8> = tagged
            .flat_map(|(part, tag)| [vec![tag], part].concat())
            .collect();
        fs::write(format!("{logs}/T{session}.log"), log).unwrap();
    }
    let edn = stdout(&run(0, &["show", &logs, "--edn"]));
    let sessions: Vec<_> = edn.lines().filter(|line| line.contains(":ok")).collect();
    assert!(
        sessions[0].contains(":process 0") && sessions[0].contains("[:w 7 2]"),
        "{edn}"
    );
    assert!(
        sessions[1].contains(":process 1") && sessions[1].contains("[:w 7 10]"),
        "{edn}"
    );
    fs::write(format!("{logs}/T11.log"), b"S").unwrap();
    let error = stderr(&run(254, &["show", &logs]));
    assert!(error.contains("T11.log: byte 0: "), "{error}");
    let named = scratch.path("c.txt");
    fs::write(&named, "r(1,-1,0,0)\n").unwrap();
    let words = ["export", &named, "--to", "edn", "--initial-value", "-1"];
    assert!(stdout(&run(0, &words)).contains("[:r 1 nil]"));
}

#[test]
fn timestamps_of_the_database_are_replayed() {
    let scratch = Scratch::new("interchange-timestamps");
    let file = |name: &str, seen: &str| {
        let path = scratch.path(name);
        let text = format!(
            r#"[{{"tid":1,"sid":1,"sts":{{"p":1,"l":0}},"cts":{{"p":2,"l":0}},"ops":[{{"t":"w","k":7,"v":3}}]}},
{{"tid":2,"sid":2,"sts":{{"p":3,"l":0}},"cts":{{"p":3,"l":0}},"ops":[{{"t":"r","k":7,"v":{seen}}}]}}]"#
        );
        fs::write(&path, text).unwrap();
        path
    };
    let (good, bad) = (file("good.json", "3"), file("bad.json", "null"));
    assert!(stdout(&run(0, &["check", &good])).contains("strong-session-snapshot-isolation"));
    run(0, &["check", &good, "--model", "serializable", "-q"]);
    let text = stdout(&run(1, &["check", &bad]));
    assert!(
        text.contains("read nothing of key 7; by the timestamps it is 3"),
        "{text}"
    );
    // What its clients saw, another order explains.
    run(0, &["check", &bad, "--checker", "rw-register", "-q"]);
    run(2, &["check", &bad, "--model", "strict-serializable", "-q"]);
    // A test file keeps the stamps, and with them the findings.
    let sea = scratch.path("bad.sea");
    run(0, &["import", &bad, "-o", &sea]);
    let document = |file: &str| -> serde_json::Value {
        serde_json::from_slice(&run(1, &["check", "--json", file]).stdout).unwrap()
    };
    let (direct, imported) = (document(&bad), document(&sea));
    assert_eq!(direct["findings"], imported["findings"]);
    assert_eq!(direct["anomalies"]["timestamp-read"], 1);
    run(
        254,
        &[
            "check",
            &bad,
            "--checker",
            "timestamps",
            "--model",
            "strict-serializable",
        ],
    );
}
