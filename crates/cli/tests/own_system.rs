//! Systems of one's own, described in TOML, with clients in other languages: as a new user meets them, in an empty folder.
//!
//! Tests that need Python, Go, Node or Redis say so and pass where these are missing, except under `CI=true`.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

#[path = "support/ended.rs"]
mod ended;
#[path = "support/scratch.rs"]
mod scratch;

#[path = "own_system/bad_input.rs"]
mod bad_input;
#[path = "own_system/clusters.rs"]
mod clusters;
#[path = "own_system/helpers.rs"]
mod helpers;
#[path = "own_system/maelstrom_nodes.rs"]
mod maelstrom_nodes;
#[path = "own_system/redis.rs"]
mod redis;

use scratch::Scratch;
use serde_json::Value as Json;
use std::fs;
use std::process::{Command, Output};

/// Runs the binary in this folder.
fn run_in(folder: &Scratch, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seatrial"));
    command
        .args(words)
        .env("NO_COLOR", "1")
        .current_dir(folder.folder());
    ended::output(&mut command)
}

/// Runs the binary in this folder and expects this exit status; returns what it printed on both streams.
fn expect(status: i32, folder: &Scratch, words: &[&str]) -> String {
    let output = run_in(folder, words);
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(status), "{words:?}\n{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Runs the binary in this folder and reads its JSON.
fn json(status: i32, folder: &Scratch, words: &[&str]) -> Json {
    let output = run_in(folder, words);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{words:?}\n{text}\n{errors}"
    );
    serde_json::from_str(&text).unwrap()
}

/// Are all these programs installed? Otherwise the test says what it lacks; under `CI=true` it fails.
fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |program: &&&str| {
        !std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let missing: Vec<_> = programs.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return true;
    }
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "not installed: {missing:?}");
    eprintln!("skipped: not installed: {missing:?}");
    false
}

/// A folder with the file that `seatrial init NAME` prints, with these replacements.
fn beginning(name: &str, replaced: &[(&str, &str)]) -> Scratch {
    let folder = Scratch::new("own-system");
    let mut text = expect(0, &folder, &["init", name]);
    for (from, to) in replaced {
        assert!(text.contains(from), "{name} has no {from:?}");
        text = text.replacen(from, to, 1);
    }
    fs::write(folder.path("my-system.toml"), text).unwrap();
    folder
}

/// The verdict of one checker in results.
fn checker<'r>(results: &'r Json, name: &str) -> &'r Json {
    let found = &results["checkers"][name];
    assert!(!found.is_null(), "no {name}: {results:#}");
    found
}

#[test]
fn the_blank_file_works_and_its_history_can_be_checked_again() {
    if !has(&["python3"]) {
        return;
    }
    let folder = beginning("blank", &[]);
    let words = [
        "test",
        "my-system.toml",
        "--time",
        "3",
        "--out",
        "run",
        "--json",
    ];
    let results = json(0, &folder, &words);
    assert_eq!(results["valid"], true, "{results:#}");
    assert!(
        results["counts"]["ok"].as_u64().unwrap() > 100,
        "{results:#}"
    );
    assert_eq!(checker(&results, "client-protocol")["valid"], true);
    let again = json(0, &folder, &["check", "run/history.sea", "--json"]);
    assert_eq!(again["counts"], results["counts"]);
    assert_eq!(checker(&again, "client-protocol")["valid"], true);
    let count = |results: &Json| results["checkers"].as_object().unwrap().len();
    assert_eq!(count(&again), count(&results));
    assert_eq!(checker(&again, "log-file-pattern")["valid"], true);
}

/// The server of the blank file keeps its data in memory.
#[test]
fn a_server_that_forgets_is_found_by_kills() {
    if !has(&["python3"]) {
        return;
    }
    let folder = beginning("blank", &[]);
    // What a kill loses shows only if a read comes before the next write, which takes chance.
    for number in 1..=5 {
        let out = format!("run{number}");
        let words = [
            "test",
            "my-system.toml",
            "--time",
            "6",
            "--faults",
            "kill",
            "--interval",
            "0.5",
        ];
        let output = run_in(&folder, &[&words[..], &["--out", &out]].concat());
        if output.status.code() == Some(1) {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("linearizable"), "{text}");
            expect(1, &folder, &["check", &format!("{out}/history.sea")]);
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    panic!("a server that forgets was valid five times");
}

#[test]
fn a_plan_in_the_file_is_carried_out() {
    if !has(&["python3"]) {
        return;
    }
    let plan = "[[phases]]\nsequential_keys = { f = 'write', value = 7 }\nkeys = 20\n[[phases]]\n\
        each_thread = { sequential_keys = { f = 'read' }, keys = 20 }\n[test]\nchecker";
    let folder = beginning(
        "blank",
        &[(
            "[test]\nconcurrency = 10",
            "[test]\ncheckers = ['cas-register']\nconcurrency = 3",
        )],
    );
    let text = fs::read_to_string(folder.path("my-system.toml")).unwrap();
    let plan = plan.trim_end_matches("[test]\nchecker");
    fs::write(folder.path("my-system.toml"), format!("{text}\n{plan}")).unwrap();
    let results = json(
        0,
        &folder,
        &["test", "my-system.toml", "--out", "run", "--json"],
    );
    assert_eq!(results["counts"]["ok"], 20 + 3 * 20, "{results:#}");
    // The command line overrides it.
    let words = [
        "test",
        "my-system.toml",
        "--workload",
        "register",
        "--ops",
        "30",
        "--time",
        "2",
        "--out",
        "second",
        "--json",
    ];
    let results = json(0, &folder, &words);
    assert_eq!(results["operations"], 30, "{results:#}");
}

#[test]
fn beginnings_are_listed() {
    let folder = Scratch::new("own-system");
    let listed = expect(0, &folder, &["init", "--list"]);
    for name in [
        "redis",
        "postgres",
        "blank",
        "seatrial_client.py",
        "seatrial_client.go",
        "seatrial_client.js",
    ] {
        assert!(listed.contains(name), "{listed}");
        assert!(expect(0, &folder, &["init", name]).len() > 1_000, "{name}");
    }
    assert_eq!(
        expect(0, &folder, &["init"]),
        expect(0, &folder, &["init", "blank"])
    );
    let text = expect(254, &folder, &["sim", "my-system.toml"]);
    assert!(text.contains("it has no simulated world"), "{text}");
    let text = expect(254, &folder, &["init", "redi"]);
    assert!(text.contains("unknown file `redi`"), "{text}");
}
