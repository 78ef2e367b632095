//! `seatrial check` chunk by chunk.

use crate::{Scratch, run, stderr, stdout};
use std::fs;

#[test]
fn direct_anomalies_are_found_without_the_whole_history() {
    let scratch = Scratch::new("stream");
    let (text, sea) = (scratch.path("dirty.edn"), scratch.path("dirty.sea"));
    let history = "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}
         {:process 0 :type :fail :f :txn :value [[:append :x 1]]}
         {:process 1 :type :invoke :f :txn :value [[:r :x nil]]}
         {:process 1 :type :ok :f :txn :value [[:r :x [1]]]}\n";
    fs::write(&text, history).unwrap();
    run(0, &["import", &text, "-o", &sea]);
    // As a whole and chunk by chunk: the same verdict.
    for file in [&text, &sea] {
        let answer = stdout(&run(1, &["check", "--checker", "g1", file]));
        assert!(answer.contains("✗ not valid: 1 G1a"), "{answer}");
        assert!(answer.contains("whose append was aborted"), "{answer}");
    }
    let both = run(1, &["check", "--checker", "stats,g1", "--json", &sea]);
    let document: serde_json::Value = serde_json::from_str(&stdout(&both)).unwrap();
    assert_eq!(document["anomalies"]["G1a"], 1);
    assert_eq!(document["counts"]["fail"], 1);
    assert_eq!(document["checkers"]["stats"]["details"]["ok"], 1);
    let output = stderr(&run(1, &["check", "--checker", "g1", "-v", "-q", &sea]));
    assert!(output.contains("s of processor time"), "{output}");
}

#[test]
fn registers_are_checked_with_assumptions_about_their_keys() {
    let scratch = Scratch::new("stream-registers");
    let (text, sea) = (scratch.path("blind.edn"), scratch.path("blind.sea"));
    // A later read shows which of two blind writes came last; x and y disagree.
    let op = |process, kind, mops| {
        format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n")
    };
    let writes = [(0, "[[:w :x 1] [:w :y 2]]"), (1, "[[:w :x 2] [:w :y 1]]")];
    let mut history = String::new();
    for kind in ["invoke", "ok"] {
        history.extend(writes.map(|(process, mops)| op(process, kind, mops)));
    }
    history +=
        &(op(2, "invoke", "[[:r :x nil] [:r :y nil]]") + &op(2, "ok", "[[:r :x 2] [:r :y 2]]"));
    fs::write(&text, history).unwrap();
    run(0, &["import", &text, "-o", &sea]);
    let infer = ["check", "--checker", "rw-register", "--infer"];
    for file in [&text, &sea] {
        // No order is inferred from blind writes, but no order of them explains the reads.
        let decided = stdout(&run(1, &["check", "--checker", "rw-register", file]));
        assert!(decided.contains("1 G-single"), "{decided}");
        let answer = stdout(&run(
            1,
            &[&infer[..], &["linearizable-keys", file]].concat(),
        ));
        assert!(
            answer.contains("1 G0") && answer.contains("began"),
            "{answer}"
        );
        let committed = ["--model", "read-committed", file];
        let words = [&infer[..], &["sequential-keys,wfr-keys"], &committed].concat();
        assert!(stdout(&run(0, &words)).contains("✓ read-committed (commit order)"));
        let output = stderr(&run(254, &[&infer[..], &["keys", file]].concat()));
        assert!(
            output.contains("unknown assumption for --infer `keys`"),
            "{output}"
        );
        let words = ["check", "--checker", "g1", "--infer", "wfr-keys", file];
        let output = stderr(&run(254, &words));
        assert!(
            output.contains("--infer has no effect on g1: it is for rw-register"),
            "{output}"
        );
    }
    // In the log the second came first; by the reads it wrote x last.
    let order = scratch.path("order.json");
    fs::write(&order, r#"{"3": 0, "2": 1, "5": 2}"#).unwrap();
    let words = ["check", "--transaction-order", &order, "--json", &sea];
    let document: serde_json::Value = serde_json::from_str(&stdout(&run(1, &words))).unwrap();
    assert_eq!(document["anomalies"]["cyclic-versions-order"], 1);
    fs::write(&order, "[1, 2]").unwrap();
    let output = stderr(&run(254, &words));
    assert!(output.contains("no object of numbers"), "{output}");
}

#[test]
fn a_damaged_chunk_is_named() {
    let scratch = Scratch::new("stream-damaged");
    let sea = scratch.path("a.sea");
    run(
        0,
        &["generate", "list-append", "--ops", "40000", "-o", &sea],
    );
    let mut bytes = fs::read(&sea).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&sea, bytes).unwrap();
    let output = stderr(&run(254, &["check", "--checker", "stats,g1", &sea]));
    assert!(
        output.contains(&sea) && output.contains("chunk 1"),
        "{output}"
    );
    let output = stderr(&run(254, &["check", "--checker", "stats,nonsense", &sea]));
    assert!(
        output.contains("chunk 1") || output.contains("unknown checker"),
        "{output}"
    );
}

#[test]
fn a_part_of_a_large_file_is_shown() {
    let scratch = Scratch::new("stream-show");
    let sea = scratch.path("a.sea");
    run(
        0,
        &["generate", "register", "--ops", "40000", "-q", "-o", &sea],
    );
    let all = stdout(&run(0, &["show", "--edn", &sea]));
    assert_eq!(all.lines().count(), 40_000);
    // Across the border of two chunks, from the end, and past it.
    for (from, count) in [(16_383, 3), (39_999, 3), (40_000, 3), (5, 0)] {
        let (from_text, count_text) = (from.to_string(), count.to_string());
        let words = [
            "show",
            "--edn",
            "--from",
            &from_text,
            "--count",
            &count_text,
            &sea,
        ];
        let shown = stdout(&run(0, &words));
        let expected: Vec<_> = all.lines().skip(from).take(count).collect();
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "from {from}");
    }
}

#[test]
fn a_proof_of_a_verdict_is_replayed() {
    let scratch = Scratch::new("stream-proof");
    let (sea, skewed) = (scratch.path("a.sea"), scratch.path("skewed.sea"));
    let generate = ["generate", "list-append", "--ops", "4000", "-q", "-o"];
    run(0, &[&generate[..], &[&sea]].concat());
    let isolation = ["--isolation", "snapshot-isolation"];
    run(0, &[&generate[..], &[&skewed], &isolation].concat());
    for (file, model, status, expected) in [
        (&sea, "strict-serializable", 0, "transactions in order"),
        (
            &skewed,
            "snapshot-isolation",
            0,
            "snapshots and commits in order",
        ),
        (&skewed, "read-committed", 0, "commits in order"),
        (&skewed, "serializable", 1, "not serializable: 8 findings"),
    ] {
        let proof = scratch.path(&format!("{model}.json"));
        let words = ["check", "--model", model, "--certificate", &proof, file];
        run(status, &words);
        let answer = stdout(&run(0, &["check", "--verify", &proof, file]));
        assert!(
            answer.contains("holds: ") && answer.contains(expected),
            "{answer}"
        );
        // It is about this history only.
        let other = if file == &sea { &skewed } else { &sea };
        let answer = stdout(&run(1, &["check", "--verify", &proof, other]));
        assert!(answer.contains("does not hold: "), "{answer}");
    }
    let output = stderr(&run(254, &["check", "--verify", &sea, &sea]));
    assert!(output.contains(&sea), "{output}");
}

#[test]
fn a_large_history_of_lists_is_checked_chunk_by_chunk() {
    let scratch = Scratch::new("stream-large");
    let sea = scratch.path("a.sea");
    let words = [
        "generate",
        "list-append",
        "--ops",
        "264000",
        "-q",
        "-o",
        &sea,
    ];
    run(0, &words);
    let answer = stdout(&run(0, &["check", "--json", &sea]));
    let document: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(document["model"], "strict-serializable");
    let transactions = &document["checkers"]["list-append"]["details"]["transactions"];
    assert_eq!(transactions, 132_000);
    assert_eq!(document["operations"], 132_000);
}
