//! Redis as a system of one's own: valid as the file describes it, invalid without its log.

use crate::{beginning, checker, expect, has, json};

#[test]
fn synced_writes_survive_kills() {
    if !has(&["python3", "redis-server", "redis-cli"]) {
        return;
    }
    let folder = beginning("redis", &[]);
    let words = [
        "test",
        "my-system.toml",
        "--faults",
        "kill",
        "--time",
        "6",
        "--rate",
        "300",
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
    assert_eq!(checker(&results, "log-file-pattern")["valid"], true);
    let attributes = expect(0, &folder, &["show", "--attributes", "run/history.sea"]);
    assert!(
        attributes.contains("Redis server v="),
        "the version is recorded: {attributes}"
    );
}

#[test]
fn without_its_log_acknowledged_writes_are_lost() {
    if !has(&["python3", "redis-server", "redis-cli"]) {
        return;
    }
    let folder = beginning(
        "redis",
        &[("\"--appendonly\", \"yes\"", "\"--appendonly\", \"no\"")],
    );
    let words = [
        "test",
        "my-system.toml",
        "--workload",
        "set",
        "--faults",
        "kill",
        "--time",
        "6",
        "--rate",
        "300",
        "--out",
        "run",
        "--json",
    ];
    let results = json(1, &folder, &words);
    assert_eq!(checker(&results, "set-full")["valid"], false, "{results:#}");
    let again = json(1, &folder, &["check", "run/history.sea", "--json"]);
    assert_eq!(checker(&again, "set-full")["valid"], false);
}
