//! Isolation levels of registers, by decision.

use super::{Scratch, run, stderr, stdout};
use serde_json::Value as Json;

/// Write skew: two transactions that each read the key that the other writes. Snapshot isolation allows it,
/// serializability does not.
const SKEW: &str = r"{:process 0 :type :invoke :f :txn :value [[:r 1 nil] [:w 2 1]]}
{:process 1 :type :invoke :f :txn :value [[:r 2 nil] [:w 1 1]]}
{:process 2 :type :invoke :f :txn :value [[:w 3 1]]}
{:process 0 :type :ok :f :txn :value [[:r 1 nil] [:w 2 1]]}
{:process 1 :type :ok :f :txn :value [[:r 2 nil] [:w 1 1]]}
{:process 2 :type :ok :f :txn :value [[:w 3 1]]}
";

#[test]
fn write_skew_is_reported_and_proven() {
    let scratch = Scratch::new("decision-skew");
    let (edn, proof) = (scratch.path("skew.edn"), scratch.path("proof.json"));
    std::fs::write(&edn, SKEW).unwrap();
    let check = ["check", "--checker", "isolation", "--model"];
    for (model, status) in [
        ("strong-snapshot-isolation", 0),
        ("strong-session-parallel-snapshot-isolation", 0),
        ("prefix", 0),
        ("serializable", 1),
        ("strict-serializable", 1),
    ] {
        run(status, &[&check[..], &[model, "-q", &edn]].concat());
        let certify = [&check[..], &[model, "--certificate", &proof, "-q", &edn]].concat();
        run(status, &certify);
        let output = stdout(&run(0, &["check", "--verify", &proof, &edn]));
        assert!(output.contains("holds: "), "{output}");
    }
    let words = [&check[..], &["serializable", "--json", &edn]].concat();
    let output: Json = serde_json::from_str(&stdout(&run(1, &words))).unwrap();
    let verdict = &output["checkers"]["isolation"];
    assert_eq!(verdict["anomalies"]["G2-item"], 1, "{verdict:#}");
    assert_eq!(verdict["details"]["core_is_least"], true);
    assert_eq!(
        output["findings"][0]["operations"],
        serde_json::json!([3, 4])
    );
    let summary = output["findings"][0]["summary"].as_str().unwrap();
    assert!(summary.contains("none can be left out"), "{summary}");
    assert!(summary.contains("not yet 1 of T2"), "{summary}");
}

#[test]
fn an_order_from_outside_is_verified_and_no_more() {
    let scratch = Scratch::new("decision-order");
    let (edn, order) = (scratch.path("skew.edn"), scratch.path("order.json"));
    std::fs::write(&edn, SKEW).unwrap();
    std::fs::write(&order, r#"{"3": 5, "4": -1, "99": 7}"#).unwrap();
    let check = ["check", "--transaction-order", &order, "-q", &edn];
    let isolation = ["--checker", "isolation", "--model"];
    for (model, status) in [("strong-snapshot-isolation", 0), ("serializable", 1)] {
        run(status, &[&check[..], &isolation, &[model]].concat());
        let proof = scratch.path("proof.json");
        let certify = ["--certificate", &proof];
        run(
            status,
            &[&check[..], &isolation, &[model], &certify].concat(),
        );
        run(0, &["check", "--verify", &proof, &edn]);
    }
    let plume = scratch.path("plume.txt");
    std::fs::write(&plume, "w(1,7,0,0)\nw(1,8,1,1)\nr(1,7,2,2)\n").unwrap();
    std::fs::write(&order, r#"{"3": 0, "1": 1}"#).unwrap();
    let words = ["check", "--checker", "isolation", "--model", "serializable"];
    let words = [&words[..], &["--transaction-order", &order, &plume]].concat();
    run(0, &words);
    let output = stderr(&run(254, &[&check[..], &["--checker", "stats"]].concat()));
    assert!(output.contains("rw-register and isolation"), "{output}");
    std::fs::write(&order, "[1]").unwrap();
    let output = stderr(&run(254, &words));
    assert!(output.contains("no object of numbers"), "{output}");
}

#[test]
fn a_generated_history_keeps_what_its_store_keeps() {
    let scratch = Scratch::new("decision-generated");
    let (sea, proof) = (scratch.path("si.sea"), scratch.path("proof.json"));
    let generate = [
        "generate",
        "rw-register",
        "--ops",
        "4000",
        "--keys",
        "20",
        "-q",
    ];
    let isolation = ["--isolation", "strong-snapshot-isolation", "-o", &sea];
    run(0, &[&generate[..], &isolation].concat());
    let check = [
        "check",
        "--checker",
        "isolation",
        "--certificate",
        &proof,
        "--model",
    ];
    for (model, status) in [
        ("strong-snapshot-isolation", 0),
        ("parallel-snapshot-isolation", 0),
        ("strict-serializable", 1),
    ] {
        run(status, &[&check[..], &[model, "-q", &sea]].concat());
        run(0, &["check", "--verify", &proof, &sea]);
    }
}
