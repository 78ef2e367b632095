//! Kafka: workloads, killed leaders, what is missing.

use crate::{folder, is_missing, machine, operations, printed, run, valid};
use serde_json::Value as Json;

#[test]
fn every_workload_runs_on_kafka() {
    let _one = machine();
    for words in [
        "--workload log",
        "--workload log --acks 0",
        "--workload set",
        "--workload unique-ids",
    ] {
        let folder = folder("kafka-workloads");
        let all = format!("kafka {words} --nodes 1 --faults none --time 3");
        let Some(results) = valid(&folder, &all) else {
            return;
        };
        let counts = &results["counts"];
        assert!(counts["ok"].as_u64() > Some(100), "{words}: {counts:#}");
    }
}

/// The leader of the only partition is killed: a replica that is in sync takes over, and nothing that was acknowledged is lost.
#[test]
fn a_killed_leader_of_kafka_loses_nothing() {
    let _one = machine();
    let folder = folder("kafka-kills");
    let words =
        "kafka --partitions 1 --faults kill:primaries --session-timeout 2 --interval 3 --time 14";
    let Some(results) = valid(&folder, words) else {
        return;
    };
    let kills = operations(&folder, &["--process", "nemesis", "--f", "kill"]);
    let killed = |op: &&Json| op["value"].to_string().contains("with SIGKILL");
    let first = kills.iter().find(killed).expect("a kill");
    let after = format!("{}..", first["time"].as_f64().unwrap() / 1e9);
    let served = operations(&folder, &["--type", "ok", "--time", &after]);
    assert!(served.len() > 20, "{} after the first kill", served.len());
    assert!(results["counts"]["ok"].as_u64() > Some(300), "{results:#}");
    let log = std::fs::read_to_string(folder.folder().join("run/n1.log")).unwrap();
    assert!(log.contains("kafka.server"), "{log}");
}

#[test]
fn what_is_missing_for_kafka_is_named_with_its_remedy() {
    let folder = folder("kafka-missing");
    let output = run(&folder, &["test", "kafka", "--jars", ".", "--out", "run"]);
    let text = printed(&output);
    if text.contains("java is not installed") {
        is_missing(&text);
        return;
    }
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(
        text.contains("there is no kafka_SCALA-VERSION.jar in it"),
        "{text}"
    );
    assert!(
        text.contains("mvn -B dependency:copy-dependencies"),
        "{text}"
    );
}

#[test]
fn ids_without_acknowledgements_are_an_error() {
    let folder = folder("kafka-ids");
    let words = "test kafka --workload unique-ids --acks 0 --out run";
    let words: Vec<&str> = words.split(' ').collect();
    let output = run(&folder, &words);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(text.contains("--acks 0: a broker does not say"), "{text}");
}
