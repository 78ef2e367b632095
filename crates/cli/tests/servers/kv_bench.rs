//! `seatrial bench kv` on nodes as processes.

use super::process::{Server, run};
use super::scratch::Scratch;

/// Runs the benchmark with few keys; its exit status, and what it said on standard error.
fn bench(words: &[&str]) -> (Option<i32>, String) {
    let few = ["bench", "kv", "--keys", "100", "--warm-up", "0"];
    let output = run(&[&few, words].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), said)
}

/// The values of a column of a CSV file.
fn column(path: &str, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let index = names.iter().position(|it| *it == name).unwrap();
    let value = |line: &str| line.split(',').nth(index).unwrap().to_owned();
    lines.map(value).collect()
}

#[test]
fn an_experiment_writes_a_row_for_each_run_and_each_second() {
    let scratch = Scratch::new("kv-bench");
    let (out, data) = (scratch.path("out"), scratch.path("stores"));
    let (status, said) = bench(&[
        "--experiment",
        "e3",
        "--time",
        "2",
        "--out",
        &out,
        "--data",
        &data,
    ]);
    assert_eq!(status, Some(0), "{said}");
    let file = |end: &str| format!("{out}/e3{end}");
    assert_eq!(
        column(&file(".csv"), "run"),
        [
            "log none checkpoints none",
            "log none checkpoints concurrent",
            "log synced checkpoints none",
            "log synced checkpoints concurrent",
        ]
    );
    for operations in column(&file(".csv"), "operations") {
        assert!(operations.parse::<u64>().unwrap() > 0);
    }
    assert_eq!(column(&file(".csv"), "errors"), ["0"; 4]);
    let checkpoints = column(&file(".csv"), "checkpoints");
    assert_eq!([&*checkpoints[0], &*checkpoints[2]], ["0", "0"]);
    assert_eq!(
        column(&file("-windows.csv"), "second"),
        ["0", "1", "0", "1", "0", "1", "0", "1"]
    );
    assert!(
        std::fs::read_to_string(file(".svg"))
            .unwrap()
            .contains("log synced checkpoints none")
    );
    assert!(
        !std::path::Path::new(&data).exists(),
        "the stores' data is removed"
    );
}

#[test]
fn maps_are_compared_without_a_store() {
    let scratch = Scratch::new("kv-bench-maps");
    let out = scratch.path("out");
    let (status, said) = bench(&["--experiment", "e7", "--out", &out]);
    assert_eq!(status, Some(0), "{said}");
    let file = format!("{out}/e7.csv");
    assert_eq!(
        column(&file, "map"),
        ["imbl OrdMap", "std HashMap", "std BTreeMap"]
    );
    assert_eq!(column(&file, "keys"), ["100", "100", "100"]);
}

#[test]
fn running_nodes_are_measured_and_bad_input_is_refused() {
    let scratch = Scratch::new("kv-bench-server");
    let (out, data) = (scratch.path("out"), scratch.path("data"));
    let server = Server::start(&["node", "kv", "--listen", "127.0.0.1:0", "--data", &data]);
    let address = server.address.to_string();
    let words = [
        "--server", &address, "--time", "1", "--reads", "50", "--out", &out,
    ];
    let (status, said) = bench(&[&words[..], &["--clients", "8", "--connections", "2"]].concat());
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(column(&format!("{out}/run.csv"), "errors"), ["0"]);
    drop(server);
    for (words, reason) in [
        (["--server", &address], "the store cannot be filled"),
        (["--experiment", "e99"], "is not one of e1, e2, e3"),
        (["--distribution", "zipf:x"], "takes uniform, zipf:SKEW"),
        (
            ["--reads", "101"],
            "--reads takes a whole number from 0 to 100",
        ),
        (["--binary", "/nowhere"], "/nowhere cannot be started"),
        (["--node-options", "--bug none"], "ended (exit status: 254)"),
    ] {
        let stores = scratch.path("stores");
        let (status, said) = bench(
            &[
                &words[..],
                &["--time", "1", "--out", &out, "--data", &stores],
            ]
            .concat(),
        );
        assert!(!std::path::Path::new(&stores).exists(), "{words:?}");
        assert_eq!(status, Some(254), "{words:?}: {said}");
        assert!(said.contains(reason), "{words:?}: {said}");
    }
}
