//! Proofs of verdicts about transactions.

use super::{Scratch, json, run, stderr, stdout};
use serde_json::Value as Json;
use std::path::Path;

/// Two writes of one key, and a reader that observed them in the reverse of real time.
const STALE: &str = r"{:process 0 :type :invoke :f :txn :value [[:w x 1]]}
{:process 0 :type :ok :f :txn :value [[:w x 1]]}
{:process 0 :type :invoke :f :txn :value [[:w x 2]]}
{:process 0 :type :ok :f :txn :value [[:w x 2]]}
{:process 1 :type :invoke :f :txn :value [[:r x nil]]}
{:process 1 :type :ok :f :txn :value [[:r x 1]]}
{:process 0 :type :invoke :f :txn :value [[:w x 3]]}
{:process 0 :type :ok :f :txn :value [[:w x 3]]}
";

#[test]
fn findings_of_registers_say_why_versions_are_in_order() {
    let scratch = Scratch::new("proofs-registers");
    let (edn, proof) = (scratch.path("stale.edn"), scratch.path("proof.json"));
    std::fs::write(&edn, STALE).unwrap();
    let words = [
        "check",
        "--checker",
        "rw-register",
        "--infer",
        "sequential-keys",
    ];
    let model = [
        "--model",
        "strict-serializable",
        "--certificate",
        &proof,
        &edn,
    ];
    run(1, &[&words[..], &model].concat());
    let shown = stdout(&run(0, &["check", "--verify", &proof, &edn]));
    assert!(shown.contains("holds: not strict-serializable"), "{shown}");
    let text = std::fs::read_to_string(&proof).unwrap();
    let mut document: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        document["assumptions"][0], "sequential-keys",
        "{document:#}"
    );
    document["assumptions"] = Json::Array(Vec::new());
    std::fs::write(&proof, document.to_string()).unwrap();
    let shown = stdout(&run(1, &["check", "--verify", &proof, &edn]));
    assert!(
        shown.contains("takes sequential-keys for granted"),
        "{shown}"
    );
    // Without the assumption, only an exported order decides the version order.
    let words = [
        "check",
        "--checker",
        "rw-register",
        "--model",
        "serializable",
    ];
    run(0, &[&words[..], &["--certificate", &proof, &edn]].concat());
    let shown = stdout(&run(0, &["check", "--verify", &proof, &edn]));
    assert!(shown.contains("4 transactions in order"), "{shown}");
    // Nothing is inferred, but no order respects real time.
    let words = [
        "check",
        "--checker",
        "rw-register",
        "--certificate",
        &proof,
        &edn,
    ];
    let shown = stdout(&run(1, &words));
    assert!(
        shown.contains("These transactions, of which none"),
        "{shown}"
    );
    let shown = stdout(&run(0, &["check", "--verify", &proof, &edn]));
    assert!(shown.contains("3 transactions without an order"), "{shown}");
    let words = ["check", "--checker", "rw-register", "--model", "PL-2.99"];
    run(0, &[&words[..], &["--certificate", &proof, &edn]].concat());
    let shown = stdout(&run(0, &["check", "--verify", &proof, &edn]));
    assert!(shown.contains("holds: repeatable-read"), "{shown}");
}

#[test]
fn a_history_without_anomalies_is_valid_only_with_a_proof() {
    let scratch = Scratch::new("proofs-undecided");
    let (edn, proof) = (scratch.path("torn.edn"), scratch.path("proof.json"));
    // A transaction is observed in part: monotonic view allows that, and no method decides it.
    let op = |process, kind, mops| {
        format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n")
    };
    let text = [
        op(0, "invoke", "[[:w x 1] [:w y 1]]"),
        op(1, "invoke", "[[:r x nil] [:r y nil]]"),
        op(0, "ok", "[[:w x 1] [:w y 1]]"),
        op(1, "ok", "[[:r x nil] [:r y 1]]"),
    ];
    std::fs::write(&edn, text.concat()).unwrap();
    let check = ["check", "--model", "monotonic-view", &edn];
    let output = stdout(&run(2, &check));
    let line = "? monotonic-view: no anomaly found; not decided: ";
    assert!(output.contains(line), "{output}");
    let accepting = [&check[..], &["--accept-undecided"]].concat();
    let output = stdout(&run(0, &accepting));
    let line = "✓ no anomaly found (monotonic-view not proven; not decided: ";
    assert!(output.contains(line), "{output}");
    let document: Json =
        serde_json::from_slice(&run(2, &[&check[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!(document["proof"], Json::Null);
    assert_eq!(
        document["undecided"].as_array().map(Vec::len),
        Some(1),
        "{document:#}"
    );
    assert_eq!(document["valid"], "unknown");
    let output = stderr(&run(
        254,
        &[&check[..], &["--certificate", &proof]].concat(),
    ));
    assert!(
        output.contains("nothing is proven: no anomaly found"),
        "{output}"
    );
    // A proven verdict needs no acceptance.
    let committed = ["check", "--json", "--model", "read-committed", &edn];
    let document: Json = serde_json::from_slice(&run(0, &committed).stdout).unwrap();
    assert_eq!(document["proof"], "commit order");
    assert_eq!(document["undecided"], serde_json::json!([]));
}

#[test]
fn real_time_proves_nothing_where_there_is_none() {
    let scratch = Scratch::new("proofs-timeless");
    let (plume, proof) = (scratch.path("a.txt"), scratch.path("proof.json"));
    std::fs::write(&plume, "w(1,1,0,0)\nr(1,1,1,1)\n").unwrap();
    let words = [
        "check",
        "--format",
        "plume",
        "--certificate",
        &proof,
        &plume,
    ];
    run(0, &words);
    run(
        0,
        &["check", "--format", "plume", "--verify", &proof, &plume],
    );
    let text = std::fs::read_to_string(&proof).unwrap();
    let text = text.replace("strong-session-serializable", "strict-serializable");
    std::fs::write(&proof, text).unwrap();
    let output = stderr(&run(
        254,
        &["check", "--format", "plume", "--verify", &proof, &plume],
    ));
    assert!(
        output.contains(&proof) && output.contains("rests on real time"),
        "{output}"
    );
}

/// Lists and registers, keys as numbers and as text, values of each kind.
const HISTORIES: [&str; 2] = [
    r"{:process 0 :type :invoke :f :txn :value [[:append :x 1] [:r 7 nil]]}
{:process 1 :type :invoke :f :txn :value [[:append 7 -3]]}
{:process 0 :type :ok :f :txn :value [[:append :x 1] [:r 7 []]]}
{:process :nemesis :type :info :f :start :value nil}
{:process 1 :type :info :f :txn :value [[:append 7 -3]]}
{:process 2 :type :invoke :f :txn :value [[:r :x nil] [:r 7 nil]]}
{:process 2 :type :ok :f :txn :value [[:r :x [1]] [:r 7 [-3]]]}
",
    r"{:process 0 :type :invoke :f :txn :value [[:w :x 1] [:r 7 nil]]}
{:process 1 :type :invoke :f :txn :value [[:w 7 -3]]}
{:process 0 :type :ok :f :txn :value [[:w :x 1] [:r 7 nil]]}
{:process 1 :type :fail :f :txn :value [[:w 7 -3]]}
{:process 2 :type :invoke :f :txn :value [[:r :x nil]]}
{:process 2 :type :ok :f :txn :value [[:r :x 1]]}
",
];

#[test]
fn a_certificate_is_of_one_history_in_whatever_format() {
    let scratch = Scratch::new("proofs-fingerprint");
    let mut proofs = Vec::new();
    for (number, text) in HISTORIES.iter().enumerate() {
        let path = |name: &str| scratch.path(&format!("{number}-{name}"));
        let (edn, sea, lines) = (path("a.edn"), path("a.sea"), path("a.jsonl"));
        std::fs::write(&edn, text).unwrap();
        run(0, &["import", &edn, "-o", &sea]);
        run(0, &["export", &sea, "--to", "jsonl", "-o", &lines]);
        let files = [edn, sea, lines];
        let mut fingerprints = Vec::new();
        for file in &files {
            let proof = format!("{file}.proof");
            run(0, &["check", "--certificate", &proof, file]);
            let text = std::fs::read_to_string(&proof).unwrap();
            let document: Json = serde_json::from_str(&text).unwrap();
            fingerprints.push(document["history"].clone());
            for other in &files {
                run(0, &["check", "--verify", &proof, other]);
            }
            proofs.push((number, proof));
        }
        assert!(!fingerprints[0].is_null());
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), 1, "{fingerprints:?}");
    }
    // It proves nothing about the other history, nor about this one with another outcome.
    let changed = scratch.path("changed.edn");
    std::fs::write(
        &changed,
        HISTORIES[0].replace(":type :info :f :txn", ":type :ok :f :txn"),
    )
    .unwrap();
    for (number, proof) in &proofs {
        let other = scratch.path(&format!("{}-a.edn", 1 - number));
        for file in [&other, &changed] {
            let output = stdout(&run(1, &["check", "--verify", proof, file]));
            assert!(
                output.contains("does not hold: it is about another history ("),
                "{output}"
            );
            assert!(output.contains("; this one has "), "{output}");
        }
        let document = json(&run(1, &["check", "--json", "--verify", proof, &other]));
        assert_eq!(document["holds"], false);
    }
}

#[test]
fn accepting_open_questions_proves_nothing() {
    let scratch = Scratch::new("proofs-accept");
    let (edn, proof) = (scratch.path("a.edn"), scratch.path("proof.json"));
    std::fs::write(&edn, HISTORIES[0]).unwrap();
    for option in ["--certificate", "--verify"] {
        let output = stderr(&run(
            254,
            &["check", "--accept-undecided", option, &proof, &edn],
        ));
        assert!(output.contains("cannot be used with"), "{output}");
    }
}

#[test]
fn runs_prove_their_verdicts() {
    let scratch = Scratch::new("proofs-runs");
    let sim = ["sim", "kv", "--workload", "list-append", "--json", "--out"];
    let out = scratch.path("sim");
    let bug = ["--bug", "dirty-abort", "--seeds", "400"];
    let found = json(&run(1, &[&sim[..], &[&out], &bug].concat()));
    check_proof(&found, &out, "1");
    let out = scratch.path("test");
    let test = ["test", "kv", "--workload", "list-append", "--ops", "300"];
    let calm = ["--faults", "none", "--time", "30", "--json", "--out", &out];
    check_proof(&json(&run(0, &[&test[..], &calm].concat())), &out, "0");
    let page = std::fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(page.contains("Proven: certificate.json holds"));
}

/// The certificate beside the results holds, and the results record that.
fn check_proof(results: &Json, folder: &str, status: &str) {
    let output = &results["checkers"]["list-append"]["details"]["certificate"];
    let held = serde_json::json!({"file": "certificate.json", "holds": true});
    assert_eq!(output, &held, "{status} {results:#}");
    let file = |name: &str| Path::new(folder).join(name).display().to_string();
    let (proof, history) = (file("certificate.json"), file("history.sea"));
    run(0, &["check", "--verify", &proof, &history]);
}

#[test]
fn a_certificate_is_announced_after_the_verdict_and_once_it_is_written() {
    let scratch = Scratch::new("proofs-announced");
    let (edn, proof) = (scratch.path("stale.edn"), scratch.path("proof.json"));
    std::fs::write(&edn, STALE).unwrap();
    let check = ["check", "--checker", "rw-register", &edn];
    let output = stdout(&run(1, &[&check[..], &["--certificate", &proof]].concat()));
    let verdict = "✗ not strict-serializable: 1 G-single-realtime";
    assert!(output.contains(verdict), "{output}");
    let written = format!("{proof}: certificate written, it holds");
    assert_eq!(output.lines().last(), Some(written.as_str()));
    // If it cannot be written, the verdict is unchanged.
    let nowhere = scratch.path("no/such/folder/proof.json");
    let output = run(254, &[&check[..], &["--certificate", &nowhere]].concat());
    let screen = stdout(&output);
    assert!(
        screen.contains(verdict) && !screen.contains("written"),
        "{screen}"
    );
    let error = format!("seatrial: {nowhere} cannot be written");
    assert!(stderr(&output).starts_with(&error), "{}", stderr(&output));
    let words = ["--certificate", &nowhere, "--json"];
    let document = json(&run(254, &[&check[..], &words].concat()));
    assert_eq!(document["valid"], false, "{document:#}");
    assert!(document["certificate"].is_null() && document["error"].is_string());
}
