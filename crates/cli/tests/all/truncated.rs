//! Valid histories truncated after every operation: no checker reports an anomaly that the missing end may explain.

use super::{Scratch, run};
use seatrial_check::for_workload;
use seatrial_checker::{MissingPart, Validity, Verdict};
use seatrial_history::{History, Op, TestFile};
use std::path::Path;

/// The workloads of `generate`; other data types are truncated in the tests of their checkers.
const WORKLOADS: [&str; 5] = ["list-append", "rw-register", "register", "set", "queue"];
/// Approximate number of operations of each history.
const OPERATIONS: &str = "160";

#[test]
fn a_valid_history_has_no_invalid_beginning() {
    let scratch = Scratch::new("truncated");
    for workload in WORKLOADS {
        for seed in ["1", "2", "3"] {
            let path = scratch.path(&format!("{workload}-{seed}.sea"));
            let words = [
                "generate",
                workload,
                "--ops",
                OPERATIONS,
                "--concurrency",
                "5",
            ];
            run(0, &[&words[..], &["--seed", seed, "-o", &path]].concat());
            let file = TestFile::open(Path::new(&path)).unwrap();
            let history = file.history().unwrap();
            let checkers = for_workload(workload, None).unwrap();
            let check = |ops: Vec<Op>| -> Vec<Verdict> {
                let history = History::from_ops(ops);
                checkers.iter().map(|one| one.check(&history)).collect()
            };
            let whole = Validity::of(&check(history.ops().to_vec()));
            assert_ne!(whole, Validity::Invalid, "{workload} {seed}");
            for end in 0..history.len() {
                let mut verdicts = check(history.ops()[..end].to_vec());
                let valid = MissingPart::end("cut").apply(&mut verdicts);
                let findings = || verdicts.iter().flat_map(|verdict| &verdict.findings);
                assert_ne!(
                    valid,
                    Validity::Invalid,
                    "{workload}, seed {seed}, the first {end} operations: {:?}",
                    findings().collect::<Vec<_>>()
                );
            }
        }
    }
}
