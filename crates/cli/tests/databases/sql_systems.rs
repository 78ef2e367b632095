//! MariaDB and SQLite: levels that hold, levels that do not, faults.

use crate::{folder, is_missing, machine, operations, printed, run};
use serde_json::Value as Json;

/// Runs a test; its results and its exit status, or nothing if the server is missing.
fn tested(name: &str, words: &[&str]) -> Option<(Json, i32)> {
    let folder = folder(name);
    let common = ["test", name, "--seed", "1", "--out", "run", "--json"];
    let output = run(&folder, &[&common[..], words].concat());
    let text = printed(&output);
    if is_missing(&text) {
        return None;
    }
    let status = output.status.code().unwrap();
    assert!(status < 3, "{text}");
    let results = serde_json::from_slice(&output.stdout).unwrap();
    Some((results, status))
}

#[test]
fn repeatable_read_of_mariadb_is_snapshot_isolation_only_if_asked_to() {
    let _one = machine();
    let common = "--isolation repeatable-read --model snapshot-isolation --faults none --time 5";
    for (value, expected) in [("off", 1), ("on", 0)] {
        let words = format!("{common} --innodb-snapshot-isolation {value}");
        let words: Vec<&str> = words.split(' ').collect();
        let Some((results, status)) = tested("mariadb", &words) else {
            return;
        };
        assert_eq!(status, expected, "{value}: {:#}", results["anomalies"]);
        if value == "off" {
            let found = &results["anomalies"];
            assert!(found["lost-update"].as_u64() > Some(0), "{found:#}");
        }
        assert!(results["counts"]["ok"].as_u64() > Some(200), "{value}");
    }
}

#[test]
fn every_workload_runs_on_mariadb_and_sqlite() {
    let _one = machine();
    for system in ["mariadb", "sqlite"] {
        for workload in [
            "register",
            "cas-register",
            "rw-register",
            "set",
            "counter",
            "bank",
            "total-queue",
            "unique-ids",
        ] {
            let words = [
                "--workload",
                workload,
                "--faults",
                "kill,pause",
                "--interval",
                "0.7",
                "--time",
                "3",
            ];
            let Some((results, status)) = tested(system, &words) else {
                return;
            };
            assert_eq!(status, 0, "{system} {workload}: {results:#}");
            assert!(
                results["counts"]["ok"].as_u64() > Some(20),
                "{system} {workload}"
            );
        }
    }
}

/// A process of two is killed in the middle of transactions, and the other continues.
#[test]
fn a_killed_process_of_sqlite_leaves_no_damage() {
    let _one = machine();
    for journal in ["wal", "delete"] {
        let folder = folder("sqlite-kills");
        let words = format!(
            "test sqlite --journal-mode {journal} --faults kill --interval 0.5 --time 5 --seed 3 --out run --json"
        );
        let words: Vec<&str> = words.split(' ').collect();
        let output = run(&folder, &words);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let kills = operations(&folder, &["--process", "nemesis", "--f", "kill"]);
        let killed = |op: &Json| op["value"].to_string().contains("with SIGKILL");
        assert!(kills.iter().any(killed), "{kills:#?}");
    }
}

#[test]
fn a_shared_cache_of_sqlite_shows_what_is_not_committed() {
    let _one = machine();
    let words =
        "--isolation read-uncommitted --nodes 1 --model serializable --faults none --time 5";
    let words: Vec<&str> = words.split(' ').collect();
    let Some((results, status)) = tested("sqlite", &words) else {
        return;
    };
    assert_eq!(status, 1, "{results:#}");
}
