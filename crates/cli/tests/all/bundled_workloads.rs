//! Every workload, in the simulator and with real processes: correct runs are valid, planted bugs are found, and final
//! operations read everything.

use super::{Scratch, error, json, run, stdout};
use std::fs;
use std::path::Path;

/// Each with bugs that its operations can show.
const WORKLOADS: [(&str, &[&str]); 15] = [
    ("register", &["stale-read"]),
    ("cas-register", &["stale-read", "ack-before-append"]),
    ("list-append", &["stale-read", "lost-append", "dirty-abort"]),
    ("rw-register", &["stale-read", "dirty-abort"]),
    ("set", &["stale-read", "lost-append"]),
    ("queue", &["ack-before-append"]),
    ("total-queue", &["ack-before-append"]),
    ("counter", &["stale-read", "lost-append"]),
    ("bank", &["dirty-abort"]),
    ("unique-ids", &["ack-before-append"]),
    ("long-fork", &["ack-before-append"]),
    ("monotonic", &["ack-before-append", "stale-read"]),
    ("mutex", &["ack-before-append"]),
    ("lock", &["ack-before-append"]),
    ("log", &["ack-before-append", "lost-append"]),
];

/// Seeds that every planted bug must be found within, whatever the workload: a fork takes some 250 of them on average, the
/// others less than 50.
const SEEDS_MAX: &str = "2000";

#[test]
fn the_simulator_serves_every_workload() {
    let scratch = Scratch::new("workloads");
    for (workload, bugs) in WORKLOADS {
        let words = ["sim", "kv", "--workload", workload, "--json", "--out"];
        let out = scratch.path(workload);
        let results = json(&run(0, &[&words[..], &[&out, "--seeds", "40"]].concat()));
        let unknown = results["seeds_unknown"].as_u64().unwrap();
        assert!(unknown < 8, "{workload}: {results:#}");
        for bug in bugs {
            let out = scratch.path(&format!("{workload}-{bug}"));
            let found = [&words[..], &[&out, "--bug", bug, "--seeds", SEEDS_MAX]].concat();
            let found = json(&run(1, &found));
            assert_eq!(found["valid"], false, "{workload} {bug}");
        }
    }
}

/// The operations of the history in a run folder, as text, without the nodes' states at its end, and the place of the nemesis'
/// last.
fn operations(folder: &str) -> (Vec<String>, Option<usize>) {
    let history = Path::new(folder).join("history.sea").display().to_string();
    let text = stdout(&run(0, &["show", "--edn", &history]));
    let lines = text.lines().filter(|line| !line.contains(":f :node-state"));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    let last = lines
        .iter()
        .rposition(|line| line.contains(":process :nemesis"));
    (lines, last)
}

#[test]
fn real_tests_serve_every_workload_and_look_at_all_there_is_in_the_end() {
    let scratch = Scratch::new("real-workloads");
    serve(
        &scratch,
        &[
            ("set", ":f :read"),
            ("queue", ":f :drain"),
            ("total-queue", ":f :drain"),
            ("counter", ":f :read"),
            ("bank", ":f :read"),
            ("unique-ids", ""),
        ],
    );
}

#[test]
fn real_tests_serve_locks_logs_and_tables() {
    let scratch = Scratch::new("real-locks");
    serve(
        &scratch,
        &[("monotonic", ":f :read"), ("lock", ""), ("log", ":f :poll")],
    );
}

/// Runs these workloads with real processes, three at a time (they mostly wait); the output of each ends with the given text.
///
/// Each fault is mended before the next begins: mixed faults can keep three nodes without a leader for the whole load, which
/// is no matter of the workload (a leader that was paused, cut off and killed in turn served 43 operations in 3 s). The load
/// outlasts a failover, which takes up to 2 s and longer beside compilers (36 operations in 3 s).
fn serve(scratch: &Scratch, workloads: &[(&str, &str)]) {
    for some in workloads.chunks(3) {
        std::thread::scope(|scope| {
            for (workload, f) in some {
                scope.spawn(|| serve_one(scratch, workload, f));
            }
        });
    }
}

fn serve_one(scratch: &Scratch, workload: &str, f: &str) {
    let out = scratch.path(workload);
    let words = [
        "test",
        "kv",
        "--time",
        "5",
        "--interval",
        "0.6",
        "--fault-schedule",
        "one-at-a-time",
        "--workload",
        workload,
    ];
    let words = [&words[..], &["--rate", "500", "--out", &out, "--json"]].concat();
    let results = json(&run(0, &words));
    assert_eq!(results["valid"], true, "{workload}: {results:#}");
    // A lock that is held is refused to most who ask for it.
    let count = |kind: &str| results["counts"][kind].as_u64().unwrap();
    let served = match workload {
        "lock" => count("ok") + count("fail"),
        _ => count("ok"),
    };
    assert!(served > 50 && count("ok") > 5, "{workload}: {results:#}");
    let (lines, mended) = operations(&out);
    let begin = mended.expect("there were faults") + 1;
    if f.is_empty() {
        return;
    }
    if f == ":f :drain" {
        let drain = lines.iter().position(|line| line.contains(f)).unwrap();
        assert!(drain >= begin, "{workload}: all is mended");
        let before = lines[..drain].iter();
        let clients = before.filter(|line| !line.contains(":process :nemesis"));
        let (begun, ended): (Vec<_>, Vec<_>) =
            clients.partition(|line| line.contains(":type :invoke"));
        assert_eq!(begun.len(), ended.len(), "{workload}: nothing is under way");
    }
    let tail = &lines[begin..];
    let ended = tail
        .iter()
        .rposition(|line| !line.contains(f))
        .map_or(0, |at| at + 1);
    let (_, looks) = tail.split_at(ended);
    assert!(looks.len() >= 2, "{workload}: {looks:?}");
    assert!(
        looks.iter().any(|line| line.contains(":type :ok")),
        "{workload}"
    );
}

#[test]
fn options_of_workloads_are_obeyed_or_refused() {
    let scratch = Scratch::new("workload-options");
    let out = scratch.path("run");
    let words = [
        "sim",
        "kv",
        "--workload",
        "rw-register",
        "--bug",
        "dirty-abort",
        "--keys",
        "2",
        "--distribution",
        "zipf:1.20",
        "--writes-per-key",
        "20",
        "--txn-length",
        "2..3",
        "--seeds",
        "200",
        "--out",
        &out,
        "--json",
    ];
    let found = json(&run(1, &words));
    let command = found["command"].as_str().unwrap();
    let wanted = "--keys 2 --distribution zipf:1.20 --writes-per-key 20 --txn-length 2..3";
    assert!(command.contains(wanted), "{command}");
    let again: Vec<&str> = command.split(' ').skip(1).collect();
    let second = scratch.path("again");
    let again = json(&run(
        1,
        &[&again[..], &["--out", &second, "--json"]].concat(),
    ));
    assert_eq!(again["anomalies"], found["anomalies"]);
    error(
        &["sim", "kv", "--workload", "bank", "--keys", "2"],
        &["bank has no keys"],
    );
    error(
        &["sim", "kv", "--workload", "set", "--txn-length", "2"],
        &["set has no transactions"],
    );
    error(
        &["sim", "kv", "--keys", "0", "--workload", "set"],
        &["must be from 1 to"],
    );
    error(
        &["sim", "kv", "--distribution", "zipf:11"],
        &["zipf:11", "zipf:SKEW"],
    );
}

#[test]
fn the_commands_of_the_guide_work() {
    let scratch = Scratch::new("guide-workloads");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/workloads.md");
    let text = fs::read_to_string(guide).unwrap();
    let mut count = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // A simulated test has a bug to find.
        let status = match words[..] {
            ["seatrial", "sim", ..] => 1,
            ["seatrial", "test", ..] => 0,
            _ => continue,
        };
        let out = scratch.path(&count.to_string());
        run(status, &[&words[1..], &["--out", &out]].concat());
        count += 1;
    }
    assert_eq!(count, 5);
}

/// A kill ends the operations in flight of all clients of a connection, and each continues as a new process.
#[test]
fn clients_that_share_connections_are_killed_paused_and_served() {
    let scratch = Scratch::new("shared");
    for share in ["1", "4", "16"] {
        let out = scratch.path(share);
        let words = [
            "test",
            "kv",
            "--faults",
            "kill,pause",
            "--interval",
            "0.3",
            "--time",
            "4",
            // Draws a kill first, then pauses: the draws of most other seeds do too, but not of all.
            "--seed",
            "7",
        ];
        let shared = [
            "--timeout",
            "0.3",
            "--clients-per-connection",
            share,
            "--out",
            &out,
        ];
        let results = json(&run(0, &[&words[..], &shared, &["--json"]].concat()));
        assert_eq!(results["valid"], true, "{share}: {results:#}");
        let (lines, _) = operations(&out);
        let count = |kind: &str| lines.iter().filter(|line| line.contains(kind)).count();
        assert!(count(":type :ok") > 200, "{share}: {}", count(":type :ok"));
        assert!(count(":f :kill") > 0, "{share}: {lines:#?}");
        let unknown = lines
            .iter()
            .filter(|line| !line.contains(":process :nemesis"));
        let unknown = unknown.filter(|line| line.contains(":type :info")).count();
        assert!(
            unknown > 0,
            "{share}: no operation was under way at any kill"
        );
    }
    error(
        &[
            "test",
            "kv",
            "--faults",
            "partition",
            "--clients-per-connection",
            "2",
        ],
        &["--clients-per-connection 2", "connection for each client"],
    );
}
