//! Tests that are checked while they run.

use crate::run::{reads_and_writes, test};
use seatrial_check::by_name;
use seatrial_checker::Validity;
use seatrial_generator::{Generator as _, operation};
use seatrial_history::{TestFile, Value};
use seatrial_runner::{Ended, LiveChecks, TestOutcome, TestProgress, run};
use std::path::Path;
use std::sync::Arc;

/// Runs a test whose registers forget: reads see nothing, whatever was written.
fn forgetful(folder: &Path, is_endless: bool, stops: bool) -> TestOutcome {
    let generator = if is_endless {
        reads_and_writes().clients().boxed()
    } else {
        let read = operation("read", Value::Nil).repeat();
        read.limit(400).clients().boxed()
    };
    let mut test = test(folder, generator);
    test.checkers = vec![by_name("cas-register", None).unwrap()];
    let checkers = vec![by_name("cas-register", None).unwrap()];
    test.watch = LiveChecks { checkers, stops };
    run(test, Arc::new(|_: &TestProgress| {})).unwrap()
}

#[test]
fn the_first_violation_ends_a_test() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    // Without the checker it would never end.
    let outcome = forgetful(folder, true, true);
    assert_eq!(outcome.ended, Ended::Stopped);
    assert_eq!(outcome.validity(), Validity::Invalid);
    let sighting = outcome.sighting.as_ref().unwrap();
    assert!(sighting.stopped);
    assert_eq!(sighting.checker, "cas-register");
    assert_eq!(sighting.finding.anomaly, "nonlinearizable");
    let sentence = "cas-register found nonlinearizable";
    let is_reported =
        |text: &String| text.starts_with(sentence) && text.contains("stopped the test early");
    assert!(
        outcome.warnings.iter().any(is_reported),
        "{:?}",
        outcome.warnings
    );
    let early = &outcome.results["seen_early"];
    assert_eq!(early["stopped"], true);
    assert_eq!(early["operations"][0], sighting.finding.operations[0]);
    // The checker that ran during the test searches the whole history once more, within a small bound, to explain it.
    let details = outcome.verdicts[0].details.to_json();
    assert_eq!(details["configurations_max"], 400_000);
    let file = TestFile::open(&outcome.history_path).unwrap();
    assert!(file.is_complete());
    assert_eq!(file.validity().unwrap(), Some(false.into()));
}

#[test]
fn nothing_to_see_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let outcome = forgetful(folder, false, true);
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!(outcome.validity(), Validity::Valid);
    assert!(outcome.sighting.is_none());
    let details = outcome.verdicts[0].details.to_json();
    assert_eq!(details["operations"], 400);
    assert_eq!(details["configurations_max"], 8_192);
    assert!(outcome.results["seen_early"].is_null());
}
