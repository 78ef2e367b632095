//! Transactions of Redis as commands between `MULTI` and `EXEC`.

use crate::{folder, is_missing, machine, printed, run};
use serde_json::Value as Json;

#[test]
fn transactions_in_multi_are_strictly_serializable() {
    let _one = machine();
    for (number, workload) in ["list-append", "rw-register"].into_iter().enumerate() {
        let folder = folder("redis-multi");
        let (out, seed) = (format!("run{number}"), format!("{number}"));
        let words = [
            "test",
            "redis",
            "--workload",
            workload,
            "--transactions",
            "multi",
            // With `everysec` Redis acknowledges writes that it has not written while a sync is under way, so a kill loses them.
            "--fsync",
            "always",
            "--faults",
            "kill",
            "--interval",
            "1.5",
            "--rate",
            "1000",
            "--time",
            "5",
            "--seed",
            &seed,
            "--out",
            &out,
            "--json",
        ];
        let output = run(&folder, &words);
        let text = printed(&output);
        if is_missing(&text) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{text}");
        let results: Json = serde_json::from_slice(&output.stdout).unwrap();
        let verdict = &results["checkers"][workload];
        assert_eq!(verdict["valid"], true, "{verdict:#}");
        assert!(results["counts"]["ok"].as_u64().unwrap() > 500, "{text}");
    }
}

#[test]
fn other_workloads_have_no_transactions_to_send() {
    let folder = folder("redis-multi");
    let words = [
        "test",
        "redis",
        "--workload",
        "bank",
        "--transactions",
        "multi",
    ];
    let output = run(&folder, &words);
    let text = printed(&output);
    if is_missing(&text) {
        return;
    }
    assert_eq!(output.status.code(), Some(254), "{text}");
    assert!(
        text.contains("--transactions multi is for workloads of transactions"),
        "{text}"
    );
}
