//! ZooKeeper: every workload under faults, a killed server, local reads, and what is said if it is missing.

use crate::{folder, is_missing, machine, operations, printed, run};
use serde_json::Value as Json;
use std::process::Command;

/// Runs a test in a folder of its own; its results and its exit status, or nothing if ZooKeeper is missing.
fn tested(words: &str) -> Option<(Json, i32)> {
    let folder = folder("zookeeper");
    let all = format!("test zookeeper --seed 1 --out run --json {words}");
    let words: Vec<&str> = all.split(' ').collect();
    let output = run(&folder, &words);
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
fn transactions_are_valid_without_faults_on_one_server() {
    let _one = machine();
    let Some((results, status)) = tested("--nodes 1 --faults none --time 3") else {
        return;
    };
    assert_eq!(status, 0, "{results:#}");
    assert!(results["counts"]["ok"].as_u64() > Some(200), "{results:#}");
}

#[test]
fn every_workload_runs_under_faults() {
    let _one = machine();
    for workload in [
        "cas-register",
        "rw-register",
        "set",
        "counter",
        "bank",
        "queue",
        "unique-ids",
        "lock",
    ] {
        let words = format!("--workload {workload} --faults kill,pause --interval 0.7 --time 3");
        let Some((results, status)) = tested(&words) else {
            return;
        };
        assert_eq!(status, 0, "{workload}: {results:#}");
        assert!(results["counts"]["ok"].as_u64() > Some(20), "{workload}");
    }
}

/// The leader is killed: the others choose another one, and nothing that was acknowledged is lost.
#[test]
fn a_killed_leader_is_replaced() {
    let _one = machine();
    let folder = folder("zookeeper-kills");
    let words = "test zookeeper --workload set --faults kill:primaries --interval 1.5 --time 9 --seed 3 --out run --json";
    let words: Vec<&str> = words.split(' ').collect();
    let output = run(&folder, &words);
    let text = printed(&output);
    if is_missing(&text) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let kills = operations(&folder, &["--process", "nemesis", "--f", "kill"]);
    let killed = |op: &&Json| op["value"].to_string().contains("with SIGKILL");
    let first = kills.iter().find(killed).expect("a kill");
    let after = format!("{}..", first["time"].as_f64().unwrap() / 1e9);
    let served = operations(&folder, &["--type", "ok", "--time", &after]);
    assert!(served.len() > 20, "{} after the first kill", served.len());
    let log = std::fs::read_to_string(folder.folder().join("run/n1.log")).unwrap();
    assert!(
        log.contains("LEADING") || log.contains("FOLLOWING"),
        "{log}"
    );
}

/// Local reads are stale, and yet sequentially consistent.
#[test]
fn local_reads_are_sequentially_consistent() {
    let _one = machine();
    let common = "--workload register --reads local --faults none --rate max --time 4";
    let Some((results, status)) = tested(common) else {
        return;
    };
    assert_eq!(status, 0, "{results:#}");
    assert_eq!(results["checkers"]["consistency"]["valid"], true);
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let folder = folder("zookeeper-missing");
    let mut command = Command::new(env!("CARGO_BIN_EXE_seatrial"));
    command.args(["test", "zookeeper", "--jars", ".", "--out", "run"]);
    let output = command.current_dir(folder.folder()).output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(
        text.contains("there is no zookeeper-VERSION.jar in it"),
        "{text}"
    );
}
