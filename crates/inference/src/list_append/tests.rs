#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use expect_test::{Expect, expect};
use seatrial_checker::{Finding, Validity};
use seatrial_interchange::import::{self, Format, ImportOptions};
use std::fmt::Write as _;

fn verdict(level: Level, text: &str) -> Verdict {
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    );
    ListAppend::new(level).check(&history.unwrap())
}

/// A history in which all transactions ran at once: one `outcome [mops]` per line, each its own process.
fn at_once(lines: &str) -> String {
    let (mut begins, mut ends) = (String::new(), String::new());
    for (process, line) in lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .enumerate()
    {
        let (kind, mops) = line.split_once(' ').unwrap();
        let op = |kind| format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n");
        begins += &op("invoke");
        ends += &op(kind);
    }
    begins + &ends
}

/// Judges by strict serializability and prints everything that a person reads.
fn strict(text: &str, expected: &Expect) {
    let verdict = verdict(Level::StrictSerializable, text);
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
fn g0() {
    strict(
        &at_once(
            "ok [[:append 1 1] [:append 2 1]]
             ok [[:append 1 2] [:append 2 2]]
             ok [[:r 1 [1 2]]]
             ok [[:r 2 [2 1]]]",
        ),
        &expect![[r#"
            Invalid {"G0": 1}
            not ["read-uncommitted"]

            G0 [4, 5]
            Let:
              T1 = op 4 (ok, process 0): [[:append 1 1] [:append 2 1]]
              T2 = op 5 (ok, process 1): [[:append 1 2] [:append 2 2]]
            Then:
              - T1 < T2, because T2 appended 2 after T1 appended 1 to key 1.
              - However, T2 < T1, because T1 appended 1 after T2 appended 2 to key 2: a contradiction!
        "#]],
    );
}

#[test]
fn g1a_and_dirty_update() {
    strict(
        &at_once(
            "fail [[:append :x 1]]
             ok [[:append :x 2]]
             ok [[:r :x [1 2]]]",
        ),
        &expect![[r#"
            Invalid {"G1a": 1, "dirty-update": 1}
            not ["read-committed"]

            G1a [5, 3]
            op 5 (ok, process 2): [[:r :x [1 2]]]
            observed element 1 of key :x, whose append was aborted:
            op 3 (fail, process 0): [[:append :x 1]]

            dirty-update [4, 3]
            op 4 (ok, process 1): [[:append :x 2]]
            committed its append of 2 to key :x on top of 1, which was aborted:
            op 3 (fail, process 0): [[:append :x 1]]
        "#]],
    );
}

#[test]
fn g1b() {
    strict(
        &at_once(
            "ok [[:append :x 1] [:append :x 2]]
             ok [[:r :x [1]]]",
        ),
        &expect![[r#"
            Invalid {"G-single": 1, "G1b": 1}
            not ["read-committed"]

            G1b [3, 2]
            op 3 (ok, process 1): [[:r :x [1]]]
            observed key :x as it was in the middle of another transaction, which appended more after 1:
            op 2 (ok, process 0): [[:append :x 1] [:append :x 2]]

            G-single [2, 3]
            Let:
              T1 = op 2 (ok, process 0): [[:append :x 1] [:append :x 2]]
              T2 = op 3 (ok, process 1): [[:r :x [1]]]
            Then:
              - T1 < T2, because T2 observed T1's append of 1 to key :x.
              - However, T2 < T1, because T2 did not observe T1's append of 2 to key :x: a contradiction!
        "#]],
    );
}

#[test]
fn g1c() {
    strict(
        &at_once(
            "ok [[:append :x 1] [:r :y [1]]]
             ok [[:append :y 1] [:r :x [1]]]",
        ),
        &expect![[r#"
            Invalid {"G1c": 1}
            not ["read-committed"]

            G1c [2, 3]
            Let:
              T1 = op 2 (ok, process 0): [[:append :x 1] [:r :y [1]]]
              T2 = op 3 (ok, process 1): [[:append :y 1] [:r :x [1]]]
            Then:
              - T1 < T2, because T2 observed T1's append of 1 to key :x.
              - However, T2 < T1, because T1 observed T2's append of 1 to key :y: a contradiction!
        "#]],
    );
}

#[test]
fn g_single() {
    strict(
        &at_once(
            "ok [[:append :x 1] [:append :y 1]]
             ok [[:r :x []] [:r :y [1]]]
             ok [[:r :x [1]]]",
        ),
        &expect![[r#"
            Invalid {"G-single": 1}
            not ["consistent-view", "repeatable-read"]

            G-single [3, 4]
            Let:
              T1 = op 3 (ok, process 0): [[:append :x 1] [:append :y 1]]
              T2 = op 4 (ok, process 1): [[:r :x []] [:r :y [1]]]
            Then:
              - T1 < T2, because T2 observed T1's append of 1 to key :y.
              - However, T2 < T1, because T2 observed the initial (nil) state of key :x, which T1 created by appending 1: a contradiction!
        "#]],
    );
}

#[test]
fn g_nonadjacent() {
    strict(
        &at_once(
            "ok [[:append :x 1]]
             ok [[:append :y 1]]
             ok [[:r :x [1]] [:r :y []]]
             ok [[:r :x []] [:r :y [1]]]",
        ),
        &expect![[r#"
            Invalid {"G-nonadjacent": 1}
            not ["snapshot-isolation", "repeatable-read"]

            G-nonadjacent [4, 6, 5, 7]
            Let:
              T1 = op 4 (ok, process 0): [[:append :x 1]]
              T2 = op 6 (ok, process 2): [[:r :x [1]] [:r :y []]]
              T3 = op 5 (ok, process 1): [[:append :y 1]]
              T4 = op 7 (ok, process 3): [[:r :x []] [:r :y [1]]]
            Then:
              - T1 < T2, because T2 observed T1's append of 1 to key :x.
              - T2 < T3, because T2 observed the initial (nil) state of key :y, which T3 created by appending 1.
              - T3 < T4, because T4 observed T3's append of 1 to key :y.
              - However, T4 < T1, because T4 observed the initial (nil) state of key :x, which T1 created by appending 1: a contradiction!
            This is a long fork: two readers saw two writes of different keys in opposite orders.
        "#]],
    );
}

#[test]
fn g2_item() {
    strict(
        &at_once(
            "ok [[:r :x []] [:append :y 1]]
             ok [[:r :y []] [:append :x 1]]",
        ),
        &expect![[r#"
            Invalid {"G2-item": 1}
            not ["repeatable-read"]

            G2-item [2, 3]
            Let:
              T1 = op 2 (ok, process 0): [[:r :x []] [:append :y 1]]
              T2 = op 3 (ok, process 1): [[:r :y []] [:append :x 1]]
            Then:
              - T1 < T2, because T1 did not observe T2's append of 1 to key :x.
              - However, T2 < T1, because T2 did not observe T1's append of 1 to key :y: a contradiction!
            This is write skew: each transaction read a key that the other one wrote, and they wrote different keys.
        "#]],
    );
}

#[test]
fn lost_update() {
    strict(
        &at_once(
            "ok [[:r :x []] [:append :x 1]]
             ok [[:r :x []] [:append :x 2]]
             ok [[:r :x [1 2]]]",
        ),
        &expect![[r#"
            Invalid {"G-single": 1, "lost-update": 1}
            not ["cursor-stability", "update-atomic"]

            lost-update [3, 4]
            2 transactions read key :x as [] and then appended to it, among them:
              op 3 (ok, process 0): [[:r :x []] [:append :x 1]]
              op 4 (ok, process 1): [[:r :x []] [:append :x 2]]

            G-single [3, 4]
            Let:
              T1 = op 3 (ok, process 0): [[:r :x []] [:append :x 1]]
              T2 = op 4 (ok, process 1): [[:r :x []] [:append :x 2]]
            Then:
              - T1 < T2, because T2 appended 2 after T1 appended 1 to key :x.
              - However, T2 < T1, because T2 observed the initial (nil) state of key :x, which T1 created by appending 1: a contradiction!
        "#]],
    );
}

#[test]
fn internal_and_future_read() {
    strict(
        &at_once(
            "ok [[:r :x [1]] [:append :x 2] [:r :x [1]]]
             ok [[:append :x 1] [:append :y 1] [:r :y []]]
             ok [[:r :z [1]] [:append :z 1]]",
        ),
        &expect![[r#"
            Invalid {"future-read": 1, "internal": 2}
            not ["read-committed"]

            internal [3]
            op 3 (ok, process 0): [[:r :x [1]] [:append :x 2] [:r :x [1]]]
            Its [:r :x [1]] contradicts what it read or appended before: [1 2] was to be expected.

            internal [4]
            op 4 (ok, process 1): [[:append :x 1] [:append :y 1] [:r :y []]]
            Its [:r :y []] contradicts what it read or appended before: [… 1] was to be expected.

            future-read [5]
            op 5 (ok, process 2): [[:r :z [1]] [:append :z 1]]
            Its [:r :z [1]] observes its own [:append :z 1], which it performs only later.
        "#]],
    );
}

#[test]
fn garbage_duplicates_and_incompatible_orders() {
    strict(
        &at_once(
            "ok [[:append :x 1]]
             ok [[:append :x 2]]
             ok [[:r :x [1 2]]]
             ok [[:r :x [2 1]]]
             ok [[:append :y 1] [:r :y [1 1]]]
             ok [[:r :z [7]]]",
        ),
        &expect![[r#"
            Invalid {"duplicate-elements": 1, "garbage-read": 1, "incompatible-order": 1}
            not ["read-uncommitted"]

            garbage-read [11]
            op 11 (ok, process 5): [[:r :z [7]]]
            observed element 7 of key :z, which no operation appended.

            duplicate-elements [10]
            op 10 (ok, process 4): [[:append :y 1] [:r :y [1 1]]]
            It read element 1 of key :y 2 times.

            incompatible-order [8, 9]
            No order of appends to key :x explains both of these reads, which agree on the first 0 elements only:
              op 8 (ok, process 2): [[:r :x [1 2]]]
              op 9 (ok, process 3): [[:r :x [2 1]]]
        "#]],
    );
}

#[test]
fn order_of_a_process() {
    strict(
        "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}
         {:process 1 :type :invoke :f :txn :value [[:append :y 1]]}
         {:process 0 :type :ok :f :txn :value [[:append :x 1]]}
         {:process 0 :type :invoke :f :txn :value [[:r :x nil]]}
         {:process 0 :type :ok :f :txn :value [[:r :x []]]}
         {:process 1 :type :ok :f :txn :value [[:append :y 1]]}",
        &expect![[r#"
            Invalid {"G-single-process": 1}
            not ["strong-session-snapshot-isolation"]

            G-single-process [2, 4]
            Let:
              T1 = op 2 (ok, process 0): [[:append :x 1]]
              T2 = op 4 (ok, process 0): [[:r :x []]]
            Then:
              - T1 < T2, because process 0 executed T1 before T2.
              - However, T2 < T1, because T2 did not observe T1's append of 1 to key :x: a contradiction!
        "#]],
    );
}

#[test]
fn real_time() {
    strict(
        "{:process 0 :time 1000000000 :type :invoke :f :txn :value [[:append :x 1]]}
         {:process 0 :time 1500000000 :type :ok :f :txn :value [[:append :x 1]]}
         {:process 1 :time 1600000000 :type :invoke :f :txn :value [[:r :x nil]]}
         {:process 1 :time 1700000000 :type :ok :f :txn :value [[:r :x nil]]}
         {:process 2 :time 1800000000 :type :invoke :f :txn :value [[:r :x nil]]}
         {:process 2 :time 1900000000 :type :ok :f :txn :value [[:r :x [1]]]}",
        &expect![[r#"
            Invalid {"G-single-realtime": 1}
            not ["strong-snapshot-isolation"]

            G-single-realtime [1, 3]
            Let:
              T1 = op 1 (ok, process 0): [[:append :x 1]]
              T2 = op 3 (ok, process 1): [[:r :x nil]]
            Then:
              - T1 < T2, because T1 completed at op 1, 0.100 s before T2 was invoked at op 2.
              - However, T2 < T1, because T2 observed the initial (nil) state of key :x, which T1 created by appending 1: a contradiction!
        "#]],
    );
}

#[test]
fn levels_look_for_what_they_forbid() {
    let write_skew = at_once(
        "ok [[:r :x []] [:append :y 1]]
         ok [[:r :y []] [:append :x 1]]",
    );
    let holds = |level| verdict(level, &write_skew).valid == Validity::Valid;
    assert!(holds(Level::ReadCommitted));
    assert!(holds(Level::SnapshotIsolation));
    assert!(holds(Level::StrongSnapshotIsolation));
    assert!(!holds(Level::RepeatableRead));
    assert!(!holds(Level::Serializable));
    assert!(!holds(Level::StrictSerializable));
    let dirty = at_once("fail [[:append :x 1]]\n ok [[:r :x [1]]]");
    let tolerant = verdict(Level::ReadUncommitted, &dirty);
    assert_eq!(tolerant.valid, Validity::Valid);
    assert_eq!(tolerant.details.dependencies().unwrap().tolerated["G1a"], 1);
    assert_eq!(
        verdict(Level::ReadCommitted, &dirty).valid,
        Validity::Invalid
    );
}

#[test]
fn unknown_transactions_count_when_they_were_seen() {
    let valid = |text| verdict(Level::StrictSerializable, text).valid;
    // Seen long after its client gave up: it may have taken place late.
    let late = "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}
                {:process 0 :type :info :f :txn :value nil}
                {:process 1 :type :invoke :f :txn :value [[:r :x nil]]}
                {:process 1 :type :ok :f :txn :value [[:r :x []]]}
                {:process 1 :type :invoke :f :txn :value [[:r :x nil]]}
                {:process 1 :type :ok :f :txn :value [[:r :x [1]]]}";
    assert_eq!(valid(late), Validity::Valid);
    // Never seen: it may not have taken place.
    let never = "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}
                 {:process 1 :type :invoke :f :txn :value [[:r :x nil]]}
                 {:process 1 :type :ok :f :txn :value [[:r :x []]]}";
    assert_eq!(valid(never), Validity::Valid);
    // Seen in part: it took place, so all of it did.
    let torn = "{:process 0 :type :invoke :f :txn :value [[:append :x 1] [:append :y 1]]}
                {:process 1 :type :invoke :f :txn :value [[:r :x nil] [:r :y nil]]}
                {:process 1 :type :ok :f :txn :value [[:r :x [1]] [:r :y []]]}";
    let verdict = verdict(Level::ReadCommitted, torn);
    assert_eq!(verdict.valid, Validity::Valid);
    assert_eq!(valid(torn), Validity::Invalid);
}

#[test]
fn undecidable_histories_are_unknown() {
    let reason = |text: &str| verdict(Level::default(), text).reason.unwrap();
    assert_eq!(
        reason(&at_once("ok [[:append 1 1]]\n ok [[:append 1 1]]")),
        "op 3 does [:append 1 1], as op 2 did: elements must be unique for each key"
    );
    assert_eq!(
        reason(&at_once("ok [[:w 1 1]]")),
        "op 1: [:w 1 1] is neither an append to a list nor a read of one"
    );
    assert_eq!(
        reason("{:process 0 :type :invoke :f :read :value nil}"),
        "op 0: its value is not a transaction"
    );
}

#[test]
fn a_retry_owns_the_element_whose_append_failed() {
    let valid = |lines: &str| verdict(Level::StrictSerializable, &at_once(lines)).valid;
    for outcomes in [
        ["fail", "ok"],
        ["ok", "fail"],
        ["fail", "info"],
        ["info", "fail"],
    ] {
        let [one, other] = outcomes;
        let lines = format!("{one} [[:append :x 1]]\n {other} [[:append :x 1]]\n ok [[:r :x [1]]]");
        assert_eq!(valid(&lines), Validity::Valid, "{outcomes:?}");
    }
    // The order of appends is that of the attempt that took effect.
    let swapped = |seen: &str| {
        format!(
            "fail [[:append :x 1] [:append :x 2]]\n ok [[:append :x 2] [:append :x 1]]\n ok [[:r :x {seen}]]"
        )
    };
    assert_eq!(valid(&swapped("[2 1]")), Validity::Valid);
    assert_eq!(valid(&swapped("[1 2]")), Validity::Invalid);
    assert_eq!(valid(&swapped("[2]")), Validity::Invalid);
    let aborted = verdict(
        Level::StrictSerializable,
        &at_once("fail [[:append :x 1]]\n fail [[:append :x 1]]\n ok [[:r :x [1]]]"),
    );
    assert_eq!(aborted.anomalies.keys().collect::<Vec<_>>(), [&"G1a"]);
    for outcomes in ["ok info", "info info"] {
        let (one, other) = outcomes.split_once(' ').unwrap();
        let lines = format!("{one} [[:append :x 1]]\n {other} [[:append :x 1]]");
        assert!(matches!(valid(&lines), Validity::Unknown(_)), "{outcomes}");
    }
}

#[test]
fn a_bound_gives_unknown() {
    let text = at_once(
        "ok [[:append :x 1] [:append :y 1]]
         ok [[:r :x []] [:r :y [1]]]
         ok [[:r :x [1]]]",
    );
    let history =
        import::read("a", text.as_bytes(), Format::Edn, ImportOptions::default()).unwrap();
    let bound = SearchBound {
        search_steps_max: 0,
    };
    let checker = ListAppend::new(Level::ConsistentView);
    assert_eq!(checker.check(&history).valid, Validity::Invalid);
    let verdict = checker.with_bound(bound).check(&history);
    assert_eq!(
        verdict.reason.as_deref(),
        Some("the search for cycles among 2 transactions was stopped before one was found")
    );
}
