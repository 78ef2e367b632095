#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::{Expect, expect};
use seatrial_checker::{Finding, Validity};
use seatrial_interchange::import::{self, Format, ImportOptions};
use std::fmt::Write as _;

/// The verdict on transactions that all ran at once: one `outcome [mops]` per line, each its own process.
fn verdict(level: Level, lines: &str) -> Verdict {
    let (mut begins, mut ends) = (String::new(), String::new());
    for (process, line) in lines.lines().map(str::trim).enumerate() {
        let (kind, mops) = line.split_once(' ').unwrap();
        let op = |kind| format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n");
        begins += &op("invoke");
        ends += &op(kind);
    }
    let text = begins + &ends;
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    );
    RwRegister::new(level).check(&history.unwrap())
}

/// Prints everything that a person reads.
fn strict(lines: &str, expected: &Expect) {
    let verdict = verdict(Level::StrictSerializable, lines);
    let mut actual = format!(
        "{:?} {:?}\nnot {:?}\n",
        verdict.valid, verdict.anomalies, verdict.not
    );
    for finding in &verdict.findings {
        let Finding {
            anomaly,
            operations,
            summary,
            ..
        } = finding;
        writeln!(actual, "\n{anomaly} {operations:?}\n{summary}").unwrap();
    }
    expected.assert_eq(&actual);
}

#[test]
fn reads_that_no_order_explains() {
    strict(
        "ok [[:w :x 1] [:r :x 2]]
         fail [[:w :x 3]]
         ok [[:r :x 3]]
         ok [[:w :y 1] [:w :y 2]]
         ok [[:r :y 1]]
         ok [[:r :z 9]]
         ok [[:r :u 1] [:w :u 1]]",
        &expect![[r#"
            Invalid {"G1a": 1, "G1b": 1, "future-read": 1, "garbage-read": 2, "internal": 1}
            not ["read-uncommitted"]

            garbage-read [7]
            op 7 (ok, process 0): [[:w :x 1] [:r :x 2]]
            read 2 of key :x, which no operation wrote.

            garbage-read [12]
            op 12 (ok, process 5): [[:r :z 9]]
            read 9 of key :z, which no operation wrote.

            internal [7]
            op 7 (ok, process 0): [[:w :x 1] [:r :x 2]]
            Its [:r :x 2] contradicts what it read or wrote before: 1 was to be expected.

            future-read [13]
            op 13 (ok, process 6): [[:r :u 1] [:w :u 1]]
            read its own write of 1 to key :u, which it performs only later.

            G1a [9, 8]
            op 9 (ok, process 2): [[:r :x 3]]
            read value 3 of key :x, whose write was aborted:
            op 8 (fail, process 1): [[:w :x 3]]

            G1b [11, 10]
            op 11 (ok, process 4): [[:r :y 1]]
            read key :y as it was in the middle of another transaction, which wrote it again after 1:
            op 10 (ok, process 3): [[:w :y 1] [:w :y 2]]
        "#]],
    );
}

#[test]
fn a_read_that_contradicts_an_earlier_one_counts_as_a_read() {
    let text = "ok [[:w :x 1]]\nfail [[:w :x 2]]\nok [[:r :x 1] [:r :x 2] [:r :x 1] [:w :x 3]]";
    let committed = verdict(Level::ReadCommitted, text);
    assert_eq!(committed.anomalies.keys().collect::<Vec<_>>(), [&"G1a"]);
    assert_eq!(
        committed.details.dependencies().unwrap().tolerated["internal"],
        1
    );
    let strict = verdict(Level::StrictSerializable, text);
    assert!(!strict.anomalies.contains_key("lost-update"));
}

#[test]
fn circular_information_flow() {
    strict(
        "ok [[:w :x 1] [:r :y 1]]
         ok [[:w :y 1] [:r :x 1]]",
        &expect![[r#"
            Invalid {"G1c": 1}
            not ["read-committed"]

            G1c [2, 3]
            Let:
              T1 = op 2 (ok, process 0): [[:w :x 1] [:r :y 1]]
              T2 = op 3 (ok, process 1): [[:w :y 1] [:r :x 1]]
            Then:
              - T1 < T2, because T2 read T1's write of 1 to key :x.
              - However, T2 < T1, because T1 read T2's write of 1 to key :y: a contradiction!
        "#]],
    );
}

#[test]
fn lost_update_and_write_skew() {
    strict(
        "ok [[:r :x nil] [:w :x 1]]
         ok [[:r :x 1] [:w :x 2]]
         ok [[:r :x 1] [:w :x 3]]
         ok [[:r :y nil] [:w :z 1]]
         ok [[:r :z nil] [:w :y 1]]",
        &expect![[r#"
            Invalid {"G2-item": 2, "lost-update": 1}
            not ["cursor-stability", "update-atomic"]

            lost-update [6, 7]
            2 transactions read key :x as 1 and then overwrote it, among them:
              op 6 (ok, process 1): [[:r :x 1] [:w :x 2]]
              op 7 (ok, process 2): [[:r :x 1] [:w :x 3]]

            G2-item [6, 7]
            Let:
              T1 = op 6 (ok, process 1): [[:r :x 1] [:w :x 2]]
              T2 = op 7 (ok, process 2): [[:r :x 1] [:w :x 3]]
            Then:
              - T1 < T2, because T1 read 1 of key :x, which T2 read too and overwrote with 3.
              - However, T2 < T1, because T2 read 1 of key :x, which T1 read too and overwrote with 2: a contradiction!

            G2-item [8, 9]
            Let:
              T1 = op 8 (ok, process 3): [[:r :y nil] [:w :z 1]]
              T2 = op 9 (ok, process 4): [[:r :z nil] [:w :y 1]]
            Then:
              - T1 < T2, because T1 read the initial (nil) state of key :y, before T2 wrote 1.
              - However, T2 < T1, because T2 read the initial (nil) state of key :z, before T1 wrote 1: a contradiction!
            This is write skew: each transaction read a key that the other one wrote, and they wrote different keys.
        "#]],
    );
}

#[test]
fn read_skew() {
    strict(
        "ok [[:w :x 1] [:w :y 1]]
         ok [[:r :x nil] [:r :y 1]]",
        &expect![[r#"
            Invalid {"G-single": 1}
            not ["consistent-view", "repeatable-read"]

            G-single [2, 3]
            Let:
              T1 = op 2 (ok, process 0): [[:w :x 1] [:w :y 1]]
              T2 = op 3 (ok, process 1): [[:r :x nil] [:r :y 1]]
            Then:
              - T1 < T2, because T2 read T1's write of 1 to key :y.
              - However, T2 < T1, because T2 read the initial (nil) state of key :x, before T1 wrote 1: a contradiction!
        "#]],
    );
}

#[test]
fn blind_writes_are_decided() {
    let text = "ok [[:w :x 1]]
                ok [[:w :x 2]]
                ok [[:r :x 1]]";
    let blind = verdict(Level::StrictSerializable, text);
    assert_eq!(blind.valid, Validity::Valid);
    assert_eq!(blind.proof, Some(Verdict::SERIAL_ORDER));
    assert!(blind.undecided.is_empty());
    // No order explains this, though no version is known to come before another.
    let torn = "ok [[:w :x 1] [:w :y 1]]
                ok [[:w :x 2] [:w :y 2]]
                ok [[:r :x 1] [:r :y 2]]";
    for level in [
        Level::Serializable,
        Level::RepeatableRead,
        Level::SnapshotIsolation,
        Level::ConsistentView,
    ] {
        let torn = verdict(level, torn);
        assert_eq!(torn.valid, Validity::Invalid, "{level:?}");
        assert_eq!(torn.anomalies, [("G-single", 1)].into(), "{level:?}");
        assert_eq!(torn.not, ["consistent-view", "repeatable-read"]);
        assert_eq!(torn.details.core_is_least, Some(true));
        assert_eq!(torn.findings[0].operations, [3, 4, 5]);
    }
    let committed = verdict(Level::ReadCommitted, torn);
    assert_eq!(committed.proof, Some(Verdict::COMMIT_ORDER));
    // One after the other, the last read is of what was overwritten.
    let stale = "{:process 0 :type :invoke :f :txn :value [[:w :x 1]]}
                 {:process 0 :type :ok :f :txn :value [[:w :x 1]]}
                 {:process 1 :type :invoke :f :txn :value [[:w :x 2]]}
                 {:process 1 :type :ok :f :txn :value [[:w :x 2]]}
                 {:process 2 :type :invoke :f :txn :value [[:r :x nil]]}
                 {:process 2 :type :ok :f :txn :value [[:r :x 1]]}";
    let history = import::read(
        "a.edn",
        stale.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    )
    .unwrap();
    let strict = RwRegister::default().check(&history);
    assert_eq!(strict.valid, Validity::Invalid);
    assert_eq!(strict.anomalies, [("G-single-realtime", 1)].into());
    assert_eq!(strict.not, ["strong-snapshot-isolation"]);
    let plain = RwRegister::new(Level::Serializable).check(&history);
    assert_eq!(plain.proof, Some(Verdict::SERIAL_ORDER));
}

#[test]
fn what_no_model_settles_stays_open() {
    // T2 sees a part of T1: no snapshot. Monotonic view allows it, and has no decision of its own.
    let text = "ok [[:w :x 1] [:w :y 1]]
                ok [[:r :x nil] [:r :y 1]]";
    let open = verdict(Level::MonotonicView, text);
    let reason = "no anomaly found; not decided: whether monotonic-view holds where parallel-snapshot-isolation, which implies it, was \
                  not established";
    assert_eq!(open.valid, Validity::Unknown(reason.into()));
    assert_eq!(open.proof, None);
    let mut accepted = open;
    accepted.accept_undecided();
    assert_eq!(accepted.valid, Validity::Valid);
    let broken = verdict(Level::ConsistentView, text);
    assert_eq!(broken.valid, Validity::Invalid);
}

#[test]
fn undecidable_histories_are_unknown() {
    let reason = |lines| verdict(Level::default(), lines).reason.unwrap();
    assert_eq!(
        reason("ok [[:w 1 1]]\nok [[:w 1 1]]"),
        "op 2 and op 3 both write 1 to key 1: values must be unique for each key"
    );
    assert_eq!(
        reason("ok [[:append 1 1]]"),
        "op 1: [:append 1 1] is neither a write of a register nor a read of one"
    );
}

/// A transaction that contradicts itself meets the versions in the order of its reads and writes.
#[test]
fn reads_before_a_write_do_not_come_after_it() {
    let text = "{:process 0 :type :invoke :f :txn :value [[:w 1 4]]}
         {:process 0 :type :ok :f :txn :value [[:w 1 4]]}
         {:process 1 :type :invoke :f :txn :value [[:r 1 nil] [:r 1 nil] [:w 1 1]]}
         {:process 1 :type :ok :f :txn :value [[:r 1 4] [:r 1 nil] [:w 1 1]]}";
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    );
    let inference = Inference::by_names(["sequential-keys"]).unwrap();
    let checker = RwRegister::new(Level::StrictSerializable).with_inference(inference);
    let verdict = checker.check(&history.unwrap());
    let summaries: Vec<&str> = verdict
        .findings
        .iter()
        .filter(|finding| finding.anomaly == seatrial_cycles::anomaly::CYCLIC_VERSIONS_PROCESS)
        .map(|finding| finding.summary.as_str())
        .collect();
    expect![[r#"
        The versions of key 1 have no order by initial-state, wfr-keys, sequential-keys:
          - 4 comes before nil, because op 3 read 4 and then read nil.
          - However, nil comes before 4, because nil is the initial state: a contradiction!"#]]
    .assert_eq(&summaries.join("\n"));
}
