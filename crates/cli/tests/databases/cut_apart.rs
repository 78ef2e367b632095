//! Every suite on the network that `auto` takes: partitions drop traffic between its nodes, and after them it serves again.

use crate::{folder, is_missing, machine, operations, printed, run, skip};
use serde_json::Value as Json;

/// A single member has no state to compare with another's, and that leaves no doubt.
#[test]
fn one_member_of_etcd_is_valid() {
    let _one = machine();
    let folder = folder("etcd-alone");
    let words = "test etcd --nodes 1 --workload register --faults none --time 3 --out run";
    let words: Vec<&str> = words.split(' ').collect();
    let output = run(&folder, &words);
    let text = printed(&output);
    if !is_missing(&text) {
        assert_eq!(output.status.code(), Some(0), "{text}");
    }
}

/// Seconds of load. Faults end with three quarters of it at the latest; the quarter that is left is longer than most systems take
/// to elect a leader, so that operations after the last heal can be counted and all nodes catch up.
const LOAD: &str = "16";

/// [`is_cut_and_serves`], and the states that the nodes report at the end are equal.
fn is_cut_and_heals(suite: &str, load: &str, words: &[&str], states: usize, statuses: &[i32]) {
    let results = is_cut_and_serves(suite, load, words, states, statuses);
    if let Some(results) = results.filter(|_| states > 0) {
        let divergence = &results["checkers"]["divergence"];
        assert_eq!(divergence["valid"], true, "{divergence:#}");
    }
}

/// Runs a suite for `load` seconds under partitions and checks that they took effect, that operations succeed after the last one,
/// and that this number of nodes have reported states at the end. `statuses` are the exit statuses that the suite may have:
/// replication that loses acknowledged writes makes it invalid. Returns the results; `None` if it was skipped.
fn is_cut_and_serves(
    suite: &str,
    load: &str,
    words: &[&str],
    states: usize,
    statuses: &[i32],
) -> Option<Json> {
    let _one = machine();
    let folder = folder(suite);
    let common = [
        "test",
        suite,
        "--interval",
        "1",
        "--time",
        load,
        "--rate",
        "100",
        "--out",
        "run",
        "--json",
    ];
    let output = run(&folder, &[&common[..], words].concat());
    let text = printed(&output);
    if is_missing(&text) {
        return None;
    }
    let status = output.status.code().unwrap();
    assert!(statuses.contains(&status), "{text}");
    let attributes = run(&folder, &["show", "--attributes", "run"]);
    let attributes: Json = serde_json::from_slice(&attributes.stdout).unwrap();
    if attributes["network"] == "local" {
        skip("namespaces are forbidden here");
        return None;
    }
    let links = links_cut(&operations(
        &folder,
        &["--process", "nemesis", "--f", "cut"],
    ));
    assert!(!links.is_empty(), "no partition: {text}");
    let has_peers = links.iter().any(|link| !link.contains('c'));
    assert_eq!(has_peers, attributes["nodes"][1] != Json::Null);
    let heals = operations(&folder, &["--process", "nemesis", "--f", "heal"]);
    let dropped = heals
        .iter()
        .filter(|op| op["value"].to_string().contains("dropped"));
    assert!(dropped.count() > 0, "no cut met traffic: {heals:#?}");
    let healed = heals.last().unwrap()["time"].as_f64().unwrap() / 1e9;
    let after = format!("{healed}..");
    let served = operations(&folder, &["--type", "ok", "--time", &after]);
    assert!(served.len() > 20, "{} after {healed} s", served.len());
    let reported = operations(&folder, &["--process", "observer"]);
    assert_eq!(reported.len(), states, "{reported:#?}");
    let capture = folder.folder().join("run/network.pcap");
    assert!(capture.metadata().unwrap().len() > 10_000);
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The links that cuts name, as text such as `n1 n2`.
fn links_cut(cuts: &[Json]) -> Vec<String> {
    let values = cuts.iter().filter_map(|op| op["value"].as_array());
    let pair = |link: &Json| {
        let [from, to] = [&link[0], &link[1]].map(|end| end.as_str().unwrap_or_default());
        format!("{from} {to}")
    };
    values.flatten().map(pair).collect()
}

/// Members wait up to 2 s before they stand for election, and again after a lost vote.
#[test]
fn etcd() {
    is_cut_and_heals(
        "etcd",
        "24",
        &["--faults", "partition:one", "--workload", "register"],
        3,
        &[0],
    );
}

#[test]
fn kafka() {
    is_cut_and_heals("kafka", LOAD, &["--faults", "partition:one"], 3, &[0]);
}

/// Servers wait up to 9 s before they stand for election. A deposed leader may keep messages that it alone has stored
/// (`docs/findings/nats-deposed-leader.md`): the states are equal or differ, and nothing else is found.
#[test]
fn nats() {
    let words = ["--faults", "partition:one"];
    let Some(results) = is_cut_and_serves("nats", "40", &words, 3, &[0, 1]) else {
        return;
    };
    let anomalies: Vec<&String> = results["anomalies"].as_object().unwrap().keys().collect();
    let are_equal = &results["checkers"]["divergence"]["valid"];
    assert_eq!(are_equal, anomalies.is_empty(), "{results:#}");
    assert!(anomalies.is_empty() || anomalies == ["divergence"]);
}

#[test]
fn rabbitmq() {
    is_cut_and_heals("rabbitmq", LOAD, &["--faults", "partition:one"], 0, &[0]);
}

#[test]
fn zookeeper() {
    is_cut_and_heals(
        "zookeeper",
        LOAD,
        &["--faults", "partition:one", "--workload", "register"],
        3,
        &[0],
    );
}

#[test]
fn redis() {
    is_cut_and_heals("redis", LOAD, &["--faults", "partition"], 0, &[0]);
}

#[test]
fn redis_sentinel() {
    is_cut_and_heals(
        "redis-sentinel",
        LOAD,
        &["--faults", "partition:one", "--down-after", "500"],
        3,
        &[0, 1, 2],
    );
}

#[test]
fn redis_cluster() {
    is_cut_and_heals(
        "redis-cluster",
        LOAD,
        &["--faults", "partition:one", "--down-after", "500"],
        6,
        &[0, 1, 2],
    );
}

#[test]
fn postgres() {
    is_cut_and_heals("postgres", LOAD, &["--faults", "partition"], 0, &[0]);
}

#[test]
fn mariadb() {
    is_cut_and_heals("mariadb", LOAD, &["--faults", "partition"], 0, &[0]);
}

#[test]
fn postgres_standby() {
    let reads = ["--faults", "partition:one", "--reads", "primary"];
    is_cut_and_heals("postgres-standby", LOAD, &reads, 2, &[0]);
}

/// PostgreSQL's processes leave their group, and run as another user than root: a pause and a kill reach them all.
#[test]
fn all_processes_of_a_server_are_paused_and_killed() {
    let _one = machine();
    let values = |fault: &str, time: &str| {
        let folder = folder("postgres-stopped");
        let kinds = format!("{fault},partition:clients");
        let words = [
            "test",
            "postgres",
            "--faults",
            &kinds,
            "--fault-schedule",
            "one-at-a-time",
            "--interval",
            "0.5",
            "--time",
            time,
            // Which faults come, and when, is the seed's: with this one some are pauses, or kills.
            "--seed",
            "1",
            "--out",
            "run",
        ];
        let output = run(&folder, &words);
        let text = printed(&output);
        if is_missing(&text) {
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{text}");
        let found = operations(&folder, &["--process", "nemesis", "--f", fault]);
        let values = found.iter().map(|op| op["value"].to_string());
        Some(values.collect::<Vec<String>>())
    };
    let Some(pauses) = values("pause", "6") else {
        return;
    };
    let paused = |value: &String| {
        let count = value.split_whitespace().nth(1).unwrap_or_default();
        count.parse::<u32>().is_ok_and(|count| count > 5)
    };
    assert!(pauses.iter().any(paused), "{pauses:#?}");
    // After a kill PostgreSQL syncs all of its files, which takes seconds on some disks.
    let kills = values("kill", "9").unwrap_or_default();
    let killed = |value: &String| value.contains("with SIGKILL");
    assert!(kills.iter().any(killed), "{kills:#?}");
}
