//! Transactions in windows or in columns: from test files and from texts.

use crate::{Scratch, json, run};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn document(exit: i32, arguments: &[&str]) -> Json {
    let mut document = json(&run(exit, &[&["check", "--json"], arguments].concat()));
    // Test files and EDN have the attributes of a seatrial test, so successes are counted; JSON lines have none.
    if let Some(checkers) = document["checkers"].as_object_mut() {
        checkers.remove("stats");
    }
    document["file"] = Json::Null;
    document["seconds"] = Json::Null;
    document
}

/// Contents of all files in a folder and its folders, by name.
fn contents(folder: &Path, under: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{under}/{}", path.file_name().unwrap().display());
        if path.is_dir() {
            contents(&path, &name, all);
        } else {
            all.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// Generates a history and checks it with `options`: as a test file, as JSON lines and as EDN.
fn texts_are_checked_as_test_files_are(workload: &str, anomalies: &str, options: &[&str]) {
    let scratch = Scratch::new(&format!("windows-{}", options[1]));
    let sea = scratch.path("a.sea");
    let generate = ["generate", workload, "--ops", "40000", "--seed", "3"];
    let generate = [&generate[..], &["--anomaly", anomalies, "-q", "-o", &sea]].concat();
    run(0, &generate);
    let check = |file: &str, found: &str| {
        let found = scratch.path(found);
        let arguments = [options, &["--findings", &found, file]].concat();
        let document = document(1, &arguments);
        let mut files = BTreeMap::new();
        contents(Path::new(&found), "", &mut files);
        (document, files)
    };
    let expected = check(&sea, "sea");
    for anomaly in anomalies.split(',') {
        assert!(
            expected.0["anomalies"][anomaly].as_u64() > Some(0),
            "{anomaly}: {:#}",
            expected.0["anomalies"]
        );
    }
    assert!(!expected.0["findings"].as_array().unwrap().is_empty());
    assert!(!expected.1.is_empty());
    let certificate = |file: &str| {
        let out = scratch.path("certificate.json");
        let model = ["--model", "read-committed"];
        let proven = ["check", "-q", file, "--certificate", &out];
        run(1, &[&proven[..], &model].concat());
        run(0, &["check", "-q", file, "--verify", &out]);
        fs::read_to_string(out).unwrap()
    };
    for name in ["a.jsonl", "a.edn"] {
        let text = scratch.path(name);
        run(0, &["export", &sea, "-o", &text]);
        let found = check(&text, name.trim_start_matches("a."));
        assert_eq!(found.0, expected.0, "{name}");
        assert!(found.1 == expected.1, "{name}: other files of findings");
        assert_eq!(certificate(&text), certificate(&sea), "{name}");
    }
}

#[test]
fn lists_in_texts_are_checked_as_in_test_files() {
    let options = ["--checker", "list-append"];
    texts_are_checked_as_test_files_are("list-append", "G-single,G1a", &options);
}

#[test]
fn registers_in_texts_are_checked_as_in_test_files() {
    let options = ["--checker", "rw-register", "--infer", "linearizable-keys"];
    texts_are_checked_as_test_files_are("rw-register", "G-single,G1a", &options);
}

#[test]
fn isolation_is_decided_of_texts_as_of_test_files() {
    let options = ["--checker", "isolation", "--model", "causal"];
    texts_are_checked_as_test_files_are("rw-register", "G1a", &options);
}
