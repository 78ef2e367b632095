//! Transactions on lists in constant memory: from test files and from texts.

use crate::{Scratch, json, run};
use serde_json::Value as Json;
use std::fs;

fn document(exit: i32, arguments: &[&str]) -> Json {
    let arguments = [&["check", "--json", "--checker", "list-append"], arguments].concat();
    let mut document = json(&run(exit, &arguments));
    document["file"] = Json::Null;
    document["seconds"] = Json::Null;
    document
}

#[test]
fn texts_are_judged_as_test_files_are() {
    let scratch = Scratch::new("windows");
    let sea = scratch.path("a.sea");
    let generate = "generate list-append --ops 40000 --anomaly G-single,G1a --seed 3 -q -o";
    let mut generate: Vec<_> = generate.split(' ').collect();
    generate.push(&sea);
    run(0, &generate);
    let expected = document(1, &[&sea]);
    assert!(expected["anomalies"]["G-single"].as_u64() > Some(0));
    assert!(!expected["findings"].as_array().unwrap().is_empty());
    let certificate = |file: &str| {
        let out = scratch.path("certificate.json");
        let model = ["--model", "read-committed"];
        run(
            1,
            &[&["check", "-q", file, "--certificate", &out], &model[..]].concat(),
        );
        run(0, &["check", "-q", file, "--verify", &out]);
        fs::read_to_string(out).unwrap()
    };
    for name in ["a.jsonl", "a.edn"] {
        let text = scratch.path(name);
        run(0, &["export", &sea, "-o", &text]);
        assert_eq!(document(1, &[&text]), expected, "{name}");
        assert_eq!(certificate(&text), certificate(&sea), "{name}");
    }
}
