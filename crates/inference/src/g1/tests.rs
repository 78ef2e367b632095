#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use crate::ListAppend;
use expect_test::{Expect, expect};
use seatrial_checker::{Aims, check_source};
use seatrial_cycles::Level;
use seatrial_history::{
    HistoryWriter, Key, Mop, Observed, Op, OpType, Process, TestFile, Value, WriterOptions,
};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;

fn tells(text: &str, expected: &Expect) {
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    );
    let verdict = G1.check(&history.unwrap());
    let mut actual = format!(
        "{:?} {:?}\nnot {:?}\n",
        verdict.valid, verdict.anomalies, verdict.not
    );
    for finding in &verdict.findings {
        let (anomaly, operations) = (finding.anomaly, &finding.operations);
        writeln!(actual, "\n{anomaly} {operations:?}\n{}", finding.summary).unwrap();
    }
    expected.assert_eq(&actual);
}

#[test]
fn aborted_and_garbage_reads() {
    tells(
        "{:process 0 :type :invoke :f :txn :value [[:append :x 1]]}
         {:process 0 :type :fail :f :txn :value [[:append :x 1]]}
         {:process 1 :type :invoke :f :txn :value [[:r :x nil] [:r :y nil]]}
         {:process 1 :type :ok :f :txn :value [[:r :x [1]] [:r :y [7]]]}",
        &expect![[r#"
            Invalid {"G1a": 1, "garbage-read": 1}
            not ["read-uncommitted"]

            G1a [3, 1]
            op 3 (ok, process 1): [[:r :x [1]] [:r :y [7]]]
            observed element 1 of key :x, whose append was aborted:
            op 1 (fail, process 0): [[:append :x 1]]

            garbage-read [3]
            op 3 (ok, process 1): [[:r :x [1]] [:r :y [7]]]
            observed element 7 of key :y, which no operation appended.
        "#]],
    );
}

#[test]
fn intermediate_reads() {
    tells(
        "{:process 0 :type :invoke :f :txn :value [[:append :x 1] [:append :x 2]]}
         {:process 1 :type :invoke :f :txn :value [[:r :x nil]]}
         {:process 1 :type :ok :f :txn :value [[:r :x [1]]]}",
        &expect![[r#"
            Invalid {"G1b": 1}
            not ["read-committed"]

            G1b [2, 0]
            op 2 (ok, process 1): [[:r :x [1]]]
            observed key :x as it was in the middle of another transaction, which appended more after 1:
            op 0 (never completed, process 0): [[:append :x 1] [:append :x 2]]
        "#]],
    );
}

#[test]
fn transactions_that_contradict_themselves() {
    tells(
        "{:process 0 :type :invoke :f :txn :value [[:r :x nil] [:append :x 1] [:r :x nil]]}
         {:process 0 :type :ok :f :txn :value [[:r :x [1]] [:append :x 1] [:r :x [2 3]]]}
         {:process 0 :type :invoke :f :txn :value [[:append :x 2] [:append :x 3]]}",
        &expect![[r#"
            Invalid {"future-read": 1, "internal": 1}
            not ["read-committed"]

            internal [1]
            op 1 (ok, process 0): [[:r :x [1]] [:append :x 1] [:r :x [2 3]]]
            One of its reads contradicts what it read or appended before.

            future-read [1]
            op 1 (ok, process 0): [[:r :x [1]] [:append :x 1] [:r :x [2 3]]]
            One of its reads observes what it appends only later.
        "#]],
    );
}

#[test]
fn operations_other_than_list_append_are_refused() {
    for (text, reason) in [
        (
            "{:process 0 :type :invoke :f :read :value 3}",
            "op 0: its value is not a transaction",
        ),
        (
            "{:process 0 :type :invoke :f :txn :value [[:w :x 3]]}",
            "op 0: a micro-operation on a register, not a list",
        ),
        (
            "{:process 0 :type :invoke :f :txn :value [[:append :x 3]]}
             {:process 1 :type :invoke :f :txn :value [[:append :x 3]]}",
            "[:append :x 3] occurs twice: elements must be unique for each key, but for attempts that failed",
        ),
    ] {
        let history = import::read(
            "a.edn",
            text.as_bytes(),
            Format::Edn,
            ImportOptions::default(),
        );
        let verdict = G1.check(&history.unwrap());
        assert_eq!(verdict.reason.as_deref(), Some(reason));
    }
}

const ONE: &str = "[[:append :x 1]]";
const BOTH: &str = "[[:append :x 1] [:append :x 2]]";

/// Two transactions at once that append this and end so, and then a read of key x.
fn retried(outcomes: [&str; 2], appends: [&str; 2], seen: &str) -> Verdict {
    let op = |process, kind: &str, mops: &str| {
        format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n")
    };
    let begins = [0, 1].map(|process| op(process, "invoke", appends[process]));
    let ends = [0, 1].map(|process| op(process, outcomes[process], appends[process]));
    let read = op(2, "invoke", "[[:r :x nil]]") + &op(2, "ok", &format!("[[:r :x {seen}]]"));
    let text = begins.concat() + &ends.concat() + &read;
    let history = import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    );
    G1.check(&history.unwrap())
}

#[test]
fn a_retry_owns_the_element_whose_append_failed() {
    for outcomes in [
        ["fail", "ok"],
        ["ok", "fail"],
        ["fail", "info"],
        ["info", "fail"],
    ] {
        let verdict = retried(outcomes, [ONE, ONE], "[1]");
        assert_eq!(verdict.valid, Validity::Valid, "{outcomes:?}");
    }
    assert_eq!(
        retried(["fail", "fail"], [ONE, ONE], "[1]").anomalies[G1A],
        1
    );
    for outcomes in [["ok", "ok"], ["ok", "info"], ["info", "info"]] {
        let verdict = retried(outcomes, [ONE, ONE], "[1]");
        assert!(
            matches!(verdict.valid, Validity::Unknown(_)),
            "{outcomes:?}"
        );
    }
}

#[test]
fn what_a_retry_appends_besides_is_its_own() {
    let anomalies = |verdict: &Verdict| verdict.anomalies.keys().copied().collect::<Vec<_>>();
    // The one that failed went on to append; the other did not.
    let whole = retried(["fail", "ok"], [BOTH, ONE], "[1]");
    assert_eq!(whole.valid, Validity::Valid);
    let torn = retried(["fail", "ok"], [ONE, BOTH], "[1]");
    assert_eq!(anomalies(&torn), [G1B]);
    assert_eq!(torn.findings[0].operations, [5, 3]);
    let torn = retried(["ok", "fail"], [BOTH, ONE], "[1]");
    assert_eq!(
        torn.findings[0].operations,
        [5, 2],
        "not the one that failed"
    );
    // What the retry left out was aborted.
    let left = retried(["fail", "ok"], [BOTH, ONE], "[1 2]");
    assert_eq!(anomalies(&left), [G1A]);
    assert_eq!(left.findings[0].operations, [5, 2]);
}

/// Transactions on a store without any isolation that sometimes lies: every direct anomaly occurs.
fn careless(rng: &mut Rng) -> Vec<Op> {
    let mut lists: Vec<Vec<i64>> = vec![Vec::new(); 4];
    let mut next = [0; 4];
    let mut open: Vec<Option<Op>> = vec![None; 5];
    // Failed appends without a retry.
    let mut failed: Vec<Vec<Mop>> = Vec::new();
    let lies = rng.chance(0.8);
    let mut ops = Vec::new();
    for _ in 0..20 + rng.below(120) {
        let process = rng.index(open.len());
        let op = match open[process].take() {
            None => {
                let mops = (0..=rng.below(5)).map(|_| {
                    let key = rng.index(4);
                    if rng.chance(0.5) {
                        let observed = Observed::Nil;
                        return Mop::Read {
                            key: Key::Int(key as i64),
                            observed,
                        };
                    }
                    next[key] += 1;
                    Mop::Append {
                        key: Key::Int(key as i64),
                        element: next[key],
                    }
                });
                let mut mops: Vec<Mop> = mops.collect();
                if !failed.is_empty() && rng.chance(0.4) {
                    mops.extend(failed.swap_remove(rng.index(failed.len())));
                }
                let op = Op::invoke(
                    Process::Client(process as u64),
                    "txn",
                    Value::Txn(mops.into()),
                );
                open[process] = Some(op.clone());
                op
            }
            Some(invocation) => {
                let op = complete(&invocation, &mut lists, lies, rng);
                if op.is_fail() {
                    let mops = invocation.value.as_txn().unwrap().iter();
                    let appends = mops.filter(|mop| matches!(mop, Mop::Append { .. }));
                    failed.push(appends.cloned().collect());
                }
                op
            }
        };
        ops.push(op);
    }
    for (index, op) in ops.iter_mut().enumerate() {
        op.index = index as u64;
    }
    ops
}

fn complete(invocation: &Op, lists: &mut [Vec<i64>], lies: bool, rng: &mut Rng) -> Op {
    let kind = *rng.pick(&[
        OpType::Ok,
        OpType::Ok,
        OpType::Ok,
        OpType::Fail,
        OpType::Info,
    ]);
    let effective = kind != OpType::Fail || (lies && rng.chance(0.3));
    let mops = invocation
        .value
        .as_txn()
        .unwrap()
        .iter()
        .map(|mop| match mop {
            Mop::Append {
                key: Key::Int(key),
                element,
            } => {
                if effective {
                    lists[*key as usize].push(*element);
                }
                mop.clone()
            }
            Mop::Read { key, .. } => {
                let Key::Int(number) = key else {
                    unreachable!()
                };
                let mut seen = lists[*number as usize].clone();
                if lies && rng.chance(0.2) {
                    seen.truncate(rng.index(seen.len() + 1));
                }
                if lies && rng.chance(0.05) {
                    seen.push(*rng.pick(&[-4, 1, 2, 1_000_000, i64::MAX, i64::MIN]));
                }
                if lies && rng.chance(0.1) {
                    let own = invocation.value.as_txn().unwrap().iter();
                    seen.extend(own.filter_map(|mop| match mop {
                        Mop::Append { key: own, element } if own == key => Some(*element),
                        _ => None,
                    }));
                }
                if lies && rng.chance(0.05) && !seen.is_empty() {
                    seen.remove(rng.index(seen.len()));
                }
                Mop::Read {
                    key: key.clone(),
                    observed: Observed::List(seen.into()),
                }
            }
            other => other.clone(),
        });
    let mops: Vec<_> = mops.collect();
    // Some clients do not repeat what failed.
    let value = if kind == OpType::Fail && rng.chance(0.3) {
        Value::Nil
    } else {
        Value::Txn(mops.into())
    };
    invocation.complete(kind, value)
}

/// The same history in chunks of a few operations.
fn file(ops: &[Op]) -> Arc<TestFile> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.sea");
    let options = WriterOptions {
        chunk_length: 7,
        ..WriterOptions::default()
    };
    let mut writer = HistoryWriter::create_with(&path, &json!({}), options).unwrap();
    for op in ops {
        writer.push(op).unwrap();
    }
    writer.seal().unwrap();
    let file = TestFile::open(&path).unwrap();
    Arc::new(file)
}

#[test]
fn one_pass_finds_what_the_whole_history_tells() {
    let direct = [INTERNAL, FUTURE_READ, G1A, G1B, GARBAGE_READ];
    let mut found = [0; 5];
    let mut valid = 0;
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed);
        let ops = careless(&mut rng);
        let history = History::from_ops(ops.clone());
        let twin = ListAppend::new(Level::StrictSerializable).check(&history);
        let expected = twin
            .anomalies
            .into_iter()
            .filter(|(name, _)| direct.contains(name));
        let expected: BTreeMap<_, _> = expected.collect();
        for (count, name) in found.iter_mut().zip(direct) {
            *count += u64::from(expected.contains_key(name));
        }
        valid += u64::from(expected.is_empty());
        let whole = G1.check(&history);
        assert_eq!(whole.anomalies, expected, "seed {seed}: {whole:?}");
        if seed % 5 > 0 {
            continue;
        }
        let file = file(&ops);
        let checked = check_source(&G1, &*file, &Aims::default()).unwrap();
        let verdict = checked.verdict;
        assert_eq!(verdict.anomalies, expected, "seed {seed}");
        assert_eq!(verdict.findings, whole.findings, "seed {seed}");
        assert_eq!(verdict.details, whole.details, "seed {seed}");
        for finding in &whole.findings {
            assert!(
                finding
                    .operations
                    .iter()
                    .all(|&index| history.get(index).is_some())
            );
            assert!(!finding.summary.ends_with('\n'), "seed {seed}: {finding:?}");
        }
    }
    assert!(
        found.iter().all(|&count| count > 20) && valid > 20,
        "{found:?} {valid}"
    );
}
