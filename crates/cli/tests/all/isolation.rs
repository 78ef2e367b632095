//! Isolation of files that other tools write.

use super::{Scratch, run, stdout};
use serde_json::Value as Json;
use std::fs;

/// One session writes two keys twice; the other sees the second write of one and after it the first of the other.
const BACKWARDS: &str = "w(1,1,0,0)\nw(2,1,0,0)\nw(1,2,0,1)\nw(2,2,0,1)\nr(2,2,1,2)\nr(1,1,1,2)\n";

#[test]
fn a_file_of_transactions_is_checked_by_the_requested_checker() {
    let scratch = Scratch::new("isolation");
    let file = scratch.path("a.txt");
    fs::write(&file, BACKWARDS).unwrap();
    let check = |code: i32, model: &str| -> Json {
        let arguments = [
            "check",
            &file,
            "--checker",
            "isolation",
            "--json",
            "--model",
            model,
        ];
        serde_json::from_str(&stdout(&run(code, &arguments))).unwrap()
    };
    let invalid = check(1, "axiomatic-read-committed");
    assert_eq!(invalid["anomalies"]["non-monotonic-read"], 1);
    assert_eq!(invalid["operations"], 3);
    assert_eq!(check(0, "read-your-writes")["valid"], true);
    // The same of operations.
    let sea = scratch.path("a.sea");
    run(0, &["import", &file, "-o", &sea]);
    let arguments = [
        "check",
        &sea,
        "--checker",
        "isolation",
        "--json",
        "--model",
        "causal",
    ];
    let of_operations: Json = serde_json::from_str(&stdout(&run(1, &arguments))).unwrap();
    let of_columns = check(1, "causal");
    assert_eq!(of_operations["anomalies"], of_columns["anomalies"]);
    let operations = |document: &Json| document["findings"][0]["operations"].clone();
    assert_eq!(operations(&of_operations), operations(&of_columns));
    // Undecided questions are named.
    let strict = check(1, "strict-serializable");
    assert_eq!(strict["valid"], false);
    let arguments = ["check", &file, "--checker", "isolation", "--model", "fast"];
    run(254, &arguments);
    fs::write(&file, "w(1,1,0,0)\nw(1,1,0,1)\n").unwrap();
    assert_eq!(check(2, "causal")["valid"], "unknown");
}
