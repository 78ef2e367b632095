//! Systems of several nodes: their own network, who leads, what they hold at the end, their logs; and NATS and Kafka, which
//! form and are cut apart.

use crate::scratch::Scratch;
use crate::{beginning, checker, expect, has, json};
use serde_json::Value as Json;
use std::fs;
use std::process::Command;

/// Two nodes with a port for each other. The first one serves all clients and leads; each reports the same state.
fn pair(more: &[(&str, &str)]) -> Scratch {
    let mut changes = vec![
        ("nodes = 1 ", "nodes = 2 "),
        (
            "\"{ip}\", \"{port}\"]",
            "\"{ip}\", \"{port}\", \"{peers '{address:peer}'}\"]",
        ),
        ("# ports = [\"peer\"]", "ports = [\"peer\"]"),
        (
            "Server((sys.argv[1]",
            "print('ready to serve', flush=True)\nServer((sys.argv[1]",
        ),
        (
            "files = [{ path = \"{data}/server.py\"",
            "leader = { command = [\"test\", \"{name}\", \"=\", \"n1\"] }\n\
             state = { command = [\"cat\", \"{data}/state\"] }\n\
             files = [{ path = \"{data}/state\", text = '{{\"revision\": 1, \"hash\": \"HASH\"}}' }, \
             { path = \"{data}/server.py\"",
        ),
        (
            "host, port = address.rsplit",
            "host, port = addresses[\"n1\"].rsplit",
        ),
    ];
    changes.extend(more);
    beginning("blank", &changes)
}

const TEST: [&str; 9] = [
    "test",
    "my-system.toml",
    "--time",
    "4",
    "--rate",
    "100",
    "--out",
    "run",
    "--json",
];

fn attributes(folder: &Scratch) -> Json {
    let text = expect(0, folder, &["show", "--attributes", "run"]);
    serde_json::from_str(&text).unwrap()
}

/// The results of a calm test, which has this exit status.
fn calm_results(status: i32, folder: &Scratch) -> Json {
    json(status, folder, &[&TEST[..], &["--faults", "none"]].concat())
}

#[test]
fn states_of_nodes_are_compared() {
    if !has(&["python3"]) {
        return;
    }
    let folder = pair(&[]);
    let results = calm_results(0, &folder);
    let found = checker(&results, "divergence");
    assert_eq!(found["valid"], true, "{found:#}");
    assert_eq!(
        found["details"]["states"]["n2"]["revision"], "1",
        "{found:#}"
    );
}

#[test]
fn states_that_differ_are_found() {
    if !has(&["python3"]) {
        return;
    }
    let folder = pair(&[("HASH", "of {name}")]);
    let results = calm_results(1, &folder);
    let found = checker(&results, "divergence");
    assert_eq!(found["valid"], false, "{found:#}");
    assert_eq!(found["anomalies"]["divergence"], 1, "{found:#}");
    let again = json(1, &folder, &["check", "run", "--json"]);
    assert_eq!(checker(&again, "divergence")["valid"], false);
}

/// The verdict is unknown, and says why.
#[test]
fn an_answer_that_is_no_state_is_reported() {
    if !has(&["python3"]) {
        return;
    }
    let folder = pair(&[("{{\"revision\": 1, \"hash\": \"HASH\"}}", "none")]);
    let results = calm_results(2, &folder);
    let found = checker(&results, "divergence").to_string();
    assert!(
        found.contains("no line of the answer is a JSON object"),
        "{found}"
    );
}

#[test]
fn a_pattern_finds_failures_in_logs_of_nodes() {
    if !has(&["python3"]) {
        return;
    }
    let folder = pair(&[]);
    let calm = ["--faults", "none", "--log-pattern"];
    let words = [&TEST[..], &calm, &["ready to (serve|wait)"]].concat();
    let results = json(1, &folder, &words);
    let found = checker(&results, "log-file-pattern");
    assert_eq!(found["valid"], false, "{found:#}");
    assert_eq!(found["details"]["count"], 2, "once in each log: {found:#}");
    let finding = results["findings"].to_string();
    assert!(finding.contains("ready to serve"), "{finding}");
    // The file of the test remembers the pattern.
    let again = json(1, &folder, &["check", "run", "--json"]);
    assert_eq!(checker(&again, "log-file-pattern")["details"]["count"], 2);
    let folder = pair(&[]);
    let words = [&TEST[..], &calm, &["ready to wait"]].concat();
    let results = json(0, &folder, &words);
    assert_eq!(checker(&results, "log-file-pattern")["valid"], true);
}

#[test]
fn a_primary_without_a_successor_is_a_warning() {
    if !has(&["python3"]) {
        return;
    }
    let folder = pair(&[]);
    let faults = ["--faults", "pause:primaries", "--interval", "0.5"];
    let results = json(0, &folder, &[&TEST[..], &faults].concat());
    assert_eq!(results["failovers"]["count"], 0, "{results:#}");
    let warnings = results["warnings"].to_string();
    assert!(
        warnings.contains("affected the primary and no failover was seen"),
        "{warnings}"
    );
}

/// `auto` takes namespaces for nodes with ports for each other; where they are forbidden it falls back, and says so.
#[test]
fn forbidden_namespaces_are_a_warning() {
    if !has(&["python3", "unshare"]) {
        return;
    }
    let forbid = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";
    let inside = ["--user", "--map-root-user", "sh", "-c", forbid, "sh"];
    let forbids = Command::new("unshare").args(inside).arg("true").status();
    if !forbids.is_ok_and(|status| status.success()) {
        eprintln!("skipped: namespaces cannot be forbidden here");
        return;
    }
    let folder = pair(&[]);
    let faults = ["--faults", "partition", "--interval", "1"];
    let words = [&TEST[..], &faults].concat();
    let output = Command::new("unshare")
        .args(inside)
        .arg(env!("CARGO_BIN_EXE_seatrial"))
        .args(&words)
        .current_dir(folder.folder())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let results: Json = serde_json::from_slice(&output.stdout).expect(&errors);
    let warning = results["warnings"].to_string();
    assert!(
        warning.contains("network local: connections between the nodes of my-system cannot be cut"),
        "{results:#}"
    );
    assert!(warning.contains("netns: "), "with the reason: {warning}");
    let attributes = attributes(&folder);
    assert_eq!(attributes["network"], "local");
    assert!(
        attributes["network_limits"][0].is_string(),
        "{attributes:#}"
    );
    // A kind that is asked for is an error instead.
    let asked = ["--network", "netns", "--out", "other"];
    let output = Command::new("unshare")
        .args(inside)
        .arg(env!("CARGO_BIN_EXE_seatrial"))
        .args(["test", "my-system.toml", "--time", "1"])
        .args(asked)
        .current_dir(folder.folder())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(254));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("--network netns does not work here") && errors.contains("doctor"),
        "{errors}"
    );
}

/// Runs a file of `seatrial init` for a cluster under partitions. It must be valid, and cuts between nodes must have met traffic.
fn is_cut_and_heals(name: &str, words: &[&str]) {
    let folder = beginning(name, &[]);
    let common = [
        "test",
        "my-system.toml",
        "--faults",
        "partition:one",
        "--out",
        "run",
        "--json",
    ];
    let results = json(0, &folder, &[&common[..], words].concat());
    assert!(
        results["counts"]["ok"].as_u64().unwrap() > 100,
        "{results:#}"
    );
    if attributes(&folder)["network"] == "local" {
        eprintln!("skipped: namespaces are forbidden here");
        return;
    }
    let heals = expect(
        0,
        &folder,
        &["show", "run", "--process", "nemesis", "--f", "heal"],
    );
    assert!(heals.contains("dropped"), "no cut met traffic: {heals}");
    let cuts = fs::metadata(folder.path("run/network.pcap")).unwrap();
    assert!(cuts.len() > 10_000);
}

#[test]
fn nats_forms_and_is_cut_apart() {
    // No package of Debian has JetStream with all of its fixes; `go install` takes minutes, so CI may lack it.
    if !is_in_path("nats-server") || !has_sync_interval() || !has(&["python3"]) {
        return;
    }
    is_cut_and_heals("nats", &["--time", "15", "--interval", "2"]);
}

#[test]
fn kafka_forms_and_is_cut_apart() {
    let has_library = Command::new("python3")
        .args(["-c", "import kafka"])
        .output();
    let has_library = has_library.is_ok_and(|output| output.status.success());
    if std::env::var_os("KAFKA_LIB").is_none() || !has_library || !is_in_path("java") {
        eprintln!("skipped: Kafka is not here (KAFKA_LIB, java, kafka-python)");
        return;
    }
    is_cut_and_heals("kafka", &["--time", "40", "--interval", "6"]);
}

/// Debian's NATS, 2.9, has no `sync_interval`, which the file sets.
fn has_sync_interval() -> bool {
    let output = Command::new("nats-server")
        .arg("--version")
        .output()
        .unwrap();
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_old = version.contains(" v2.9.");
    if is_old {
        eprintln!("skipped: {} has no sync_interval", version.trim());
    }
    !is_old
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("skipped: {program} is not in PATH");
    }
    found
}
