//! NATS and RabbitMQ: workloads, kills, cuts, what an old version cannot do.

use crate::{folder, is_missing, machine, operations, printed, run, valid};
use serde_json::Value as Json;

#[test]
fn every_workload_runs_on_nats() {
    let _one = machine();
    for workload in ["total-queue", "queue", "set", "cas-register", "unique-ids"] {
        let folder = folder("nats-workloads");
        let words = format!("nats --workload {workload} --nodes 1 --faults none --time 3");
        let Some(results) = valid(&folder, &words) else {
            return;
        };
        let counts = &results["counts"];
        assert!(counts["ok"].as_u64() > Some(100), "{workload}: {counts:#}");
    }
}

/// The leader is killed under a queue: another one has all messages.
#[test]
fn a_killed_leader_of_nats_loses_nothing() {
    let _one = machine();
    let folder = folder("nats-kills");
    let words = "nats --workload total-queue --faults kill:primaries --interval 2 --time 9";
    let Some(results) = valid(&folder, words) else {
        return;
    };
    let kills = operations(&folder, &["--process", "nemesis", "--f", "kill"]);
    let killed = |op: &Json| op["value"].to_string().contains("with SIGKILL");
    assert!(kills.iter().any(killed), "{kills:#?}");
    assert!(results["counts"]["ok"].as_u64() > Some(300), "{results:#}");
    let log = std::fs::read_to_string(folder.folder().join("run/n1.log")).unwrap();
    assert!(log.contains("JetStream"), "{log}");
}

#[test]
fn what_an_old_version_of_nats_cannot_do_is_an_error() {
    let _one = machine();
    let folder = folder("nats-sync");
    let output = run(
        &folder,
        &["test", "nats", "--sync", "always", "--out", "run"],
    );
    let text = printed(&output);
    if is_missing(&text) || !text.contains("v2.9.") {
        return;
    }
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(text.contains("has no option sync_interval"), "{text}");
    let output = run(
        &folder,
        &[
            "test",
            "nats",
            "--nats-server",
            "no-such-nats",
            "--out",
            "run",
        ],
    );
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(
        text.contains("no-such-nats is not installed: it is not in PATH"),
        "{text}"
    );
}

/// One node of RabbitMQ is killed under a queue, and has all messages when it is back.
#[test]
fn a_killed_node_of_rabbitmq_loses_nothing() {
    let _one = machine();
    let folder = folder("rabbitmq-kills");
    let words =
        "rabbitmq --nodes 1 --faults kill --fault-schedule one-at-a-time --interval 2 --time 8";
    let Some(results) = valid(&folder, words) else {
        return;
    };
    let kills = operations(&folder, &["--process", "nemesis", "--f", "kill"]);
    let killed = |op: &Json| op["value"].to_string().contains("with SIGKILL");
    assert!(kills.iter().any(killed), "{kills:#?}");
    assert!(results["counts"]["ok"].as_u64() > Some(100), "{results:#}");
}
