//! From anomaly to cause: what a run with a planted bug shows around its finding, and how operations are selected.

use crate::{Scratch, error, json, run, stderr, stdout};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// A test whose bug is found: its run folder, and its results.
fn found(scratch: &Scratch) -> (String, Json) {
    let out = scratch.path("run");
    let junit = scratch.path("junit.xml");
    let words = [
        "test",
        "kv",
        "--bug",
        "lost-append",
        "--stop-on-violation",
        "--time",
        "20",
        "--faults",
        "kill,pause",
        "--interval",
        "0.3",
        "--min-ok",
        "1,0.1/s",
        "--junit",
        &junit,
        "--out",
        &out,
        "--json",
    ];
    let results = json(&run(1, &words));
    let xml = fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("<testcase classname=") && xml.contains("<failure message=\"not "),
        "{xml}"
    );
    (out, results)
}

#[test]
fn a_finding_of_a_run_has_its_time_nodes_and_neighbours() {
    let scratch = Scratch::new("causes");
    let (out, results) = found(&scratch);
    let cause = &results["findings"][0]["cause"];
    let (begin, end) = (
        cause["begin"].as_f64().unwrap(),
        cause["end"].as_f64().unwrap(),
    );
    assert!(0.0 <= begin && begin <= end, "{cause:#}");
    let operations = cause["operations"].as_array().unwrap();
    assert!(!operations.is_empty(), "{cause:#}");
    for operation in operations {
        assert!(
            operation["node"].as_str().unwrap().starts_with('n'),
            "{operation:#}"
        );
    }
    for fault in cause["faults"].as_array().unwrap() {
        assert!(fault["begin"].as_f64().unwrap() <= end + 1.0, "{fault:#}");
    }
    for line in cause["log_lines"].as_array().unwrap() {
        let time = line["time"].as_f64().unwrap();
        assert!((begin - 1.0..=end + 1.0).contains(&time), "{line:#}");
    }
    let page = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(page.contains("<a href=\"#charts\" data-begin="));
    let files = fs::read_dir(Path::new(&out).join("findings")).unwrap();
    let texts = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    let texts: String = texts
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert!(texts.contains("\nAround it, from "), "{texts}");
    // The folder says the same again, also in words.
    let again = json(&run(1, &["check", &out, "--json"]));
    assert_eq!(again["findings"][0]["cause"], *cause);
    let screen = stdout(&run(1, &["check", &out]));
    assert!(screen.contains(" was acknowledged at "), "{screen}");
    selects(&out, cause);
}

/// `show` of the time and the keys of a cause has its operations, and nothing else.
fn selects(out: &str, cause: &Json) {
    let (begin, end) = (
        cause["begin"].as_f64().unwrap(),
        cause["end"].as_f64().unwrap(),
    );
    let span = format!("{begin}..{end}");
    let key = cause["keys"][0].as_str().unwrap();
    let shown = stdout(&run(
        0,
        &["show", out, "--key", key, "--time", &span, "--json"],
    ));
    let shown: Vec<Json> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!shown.is_empty());
    for op in &shown {
        let time = op["time"].as_f64().unwrap() / 1e9;
        assert!((begin - 1e-6..=end + 1e-6).contains(&time), "{op}");
        assert!(op["value"].to_string().contains(key), "{op}");
    }
    let node = cause["operations"][0]["node"].as_str().unwrap();
    let of_node = stdout(&run(
        0,
        &[
            "show", out, "--node", node, "--type", "ok", "--count", "5", "--edn",
        ],
    ));
    assert_eq!(of_node.lines().count(), 5);
    assert!(
        of_node
            .lines()
            .all(|line| line.contains(":type :ok") && line.contains(node)),
        "{of_node}"
    );
    let faults = stdout(&run(0, &["show", out, "--process", "nemesis"]));
    assert!(
        faults.lines().all(|line| line.contains(":nemesis")),
        "{faults}"
    );
    let none = run(0, &["show", out, "--f", "no-such-function"]);
    assert!(stdout(&none).is_empty() && stderr(&none).contains("no operation is selected"));
}

#[test]
fn wrong_selections_and_folders_are_clear_errors() {
    let scratch = Scratch::new("selections");
    let empty = scratch.path("empty");
    fs::create_dir(&empty).unwrap();
    for verb in ["show", "check", "export"] {
        error(&[verb, &empty], &[&empty, "history.sea"]);
    }
    let file = scratch.file(
        "a.edn",
        "{:process 0, :type :invoke, :f :read, :value nil, :index 0, :time 0}\n",
    );
    error(
        &["show", &file, "--time", "5"],
        &["--time", "FROM..TO", "`5`"],
    );
    error(
        &["show", &file, "--time", "5..1"],
        &["ends before it begins"],
    );
    error(
        &["show", &file, "--type", "okay"],
        &["unknown type `okay`", "info"],
    );
    error(
        &["check", &file, "--min-ok", "many"],
        &["--min-ok", "50/s", "`many`"],
    );
    error(
        &["test", "kv", "--log-pattern", "("],
        &["log pattern", "character"],
    );
}

#[test]
fn a_valid_verdict_on_too_little_is_unknown() {
    let scratch = Scratch::new("minimum");
    let sea = scratch.path("a.sea");
    run(
        0,
        &[
            "generate",
            "list-append",
            "--events",
            "2000",
            "-q",
            "-o",
            &sea,
        ],
    );
    run(
        0,
        &["check", &sea, "--min-ok", "100", "--min-ok-each", "100"],
    );
    let output = run(2, &["check", &sea, "--min-ok", "1000000"]);
    assert!(
        stdout(&output).contains("fewer than the minimum of 1,000,000"),
        "{}",
        stdout(&output)
    );
    let output = run(2, &["check", &sea, "--min-ok-each", "1000000", "--json"]);
    let reason = json(&output)["reason"].to_string();
    assert!(
        reason.contains("`txn` ok, fewer than the minimum"),
        "{reason}"
    );
}
