//! Published findings, shown again.

use crate::{folder, is_missing, machine, printed, run};
use serde_json::Value as Json;
use std::process::Command;

/// A finding of each kind: isolation and stale reads.
#[test]
fn published_findings_are_seen_again() {
    let _one = machine();
    let folder = folder("proofs");
    let output = run(
        &folder,
        &[
            "prove",
            "postgres-write-skew",
            "etcd-serializable-reads",
            "nats-concurrent-updates",
            "--json",
            "--out",
            "proofs",
        ],
    );
    let text = printed(&output);
    if is_missing(&text) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    let proofs = document["proofs"].as_array().unwrap();
    assert_eq!(proofs.len(), 3);
    let anomalies = ["G2-item", "nonlinearizable", "nonlinearizable"];
    for (proof, anomaly) in proofs.iter().zip(anomalies) {
        assert_eq!(proof["as_published"], true, "{proof:#}");
        let hit = &proof["hit"]["tests"][0];
        assert!(hit["anomalies"][anomaly].as_u64() > Some(0), "{proof:#}");
        let control = &proof["control"]["tests"][0];
        assert_eq!(control["valid"], true, "{proof:#}");
        assert!(control["operations"].as_u64() > Some(100), "{proof:#}");
        let page = format!("{}/report.html", hit["folder"].as_str().unwrap());
        assert!(folder.folder().join(page).exists());
    }
    // A second series does not overwrite the first.
    let again = run(
        &folder,
        &["prove", "postgres-write-skew", "--out", "proofs"],
    );
    assert_eq!(again.status.code(), Some(254));
    assert!(printed(&again).contains("proofs already exists"));
}

/// What was acknowledged and not synced is gone when the power is. Containers may have no loop devices: that is said.
#[test]
fn losses_of_power_are_seen_again() {
    let _one = machine();
    let folder = folder("proofs-power");
    let proofs = ["redis-log-once-a-second", "sqlite-wal-normal"];
    let mut words = vec!["prove", "--json", "--out", "proofs"];
    words.extend(proofs);
    let output = run(&folder, &words);
    let text = printed(&output);
    if text.contains("loop devices cannot be used") {
        eprintln!("skipped: {text}");
        return;
    }
    if is_missing(&text) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    for proof in document["proofs"].as_array().unwrap() {
        let lost = &proof["hit"]["tests"][0]["anomalies"]["lost"];
        assert!(lost.as_u64() > Some(0), "{proof:#}");
    }
}

#[test]
fn what_is_missing_is_said_before_the_first_test() {
    let folder = folder("proofs-missing");
    let mut command = Command::new(env!("CARGO_BIN_EXE_seatrial"));
    command.args(["prove", "redis-sentinel-partition", "--out", "proofs"]);
    command.current_dir(folder.folder()).env("PATH", "/nowhere");
    let output = command.output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(254), "{text}");
    let expected = "redis-sentinel-partition: redis is not installed: apt-get install redis-server";
    assert!(text.contains(expected), "{text}");
    assert!(!folder.folder().join("proofs").exists());
}
