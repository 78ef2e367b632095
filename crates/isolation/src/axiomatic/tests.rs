#![allow(clippy::needless_raw_string_hashes, reason = "expect-test writes them")]

use super::*;
use crate::registers::ColumnsBuilder;
use expect_test::{Expect, expect};
use seatrial_checker::Finding;
use seatrial_history::OpType;
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::fmt::Write as _;

/// Columns of transactions, one a line: `session reads and writes`, such as `1 w:x:1 r:y:-`.
fn columns(lines: &str) -> Columns {
    let mut builder = ColumnsBuilder::default();
    for line in lines.lines().map(str::trim) {
        let mut words = line.split(' ');
        builder.begin(words.next().unwrap().parse().unwrap());
        for word in words {
            let parts: Vec<_> = word.split(':').collect();
            let key = i64::from(parts[1].as_bytes()[0]);
            match (parts[0], parts[2].parse().ok()) {
                ("w", Some(value)) => builder.write(key, value),
                (_, value) => builder.read(key, value),
            }
        }
        builder.end(OpType::Ok);
    }
    builder.finish().unwrap()
}

fn verdict_of(model: AxiomaticModel, lines: &str) -> Verdict {
    Isolation::new(model).check_columns(&columns(lines))
}

/// What a person reads.
fn assert_text(model: AxiomaticModel, lines: &str, expected: &Expect) {
    let verdict = verdict_of(model, lines);
    let mut actual = format!("{:?} {:?}\n", verdict.valid, verdict.anomalies);
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

/// The models that a history breaks.
fn broken(lines: &str) -> Vec<&'static str> {
    let models = AxiomaticModel::POLYNOMIAL.into_iter();
    let broken = models.filter(|&model| verdict_of(model, lines).valid != Validity::Valid);
    broken.map(AxiomaticModel::name).collect()
}

/// One session reads the second write of the file before the first: only the database knew.
#[test]
fn timestamps_are_the_first_guess() {
    let text = |stamps: [u32; 4]| {
        let ops = [
            r#"{"t":"w","k":1,"v":1}"#,
            r#"{"t":"w","k":1,"v":2}"#,
            r#"{"t":"r","k":1,"v":2}"#,
            r#"{"t":"r","k":1,"v":1}"#,
        ];
        let lines = ops.iter().zip(stamps).zip([1, 2, 3, 3]);
        let lines = lines.map(|((op, at), session)| {
            let stamp = format!(r#"{{"p":{at},"l":0}}"#);
            format!(r#"{{"sid":{session},"sts":{stamp},"cts":{stamp},"ops":[{op}]}}"#)
        });
        format!("[{}]", lines.collect::<Vec<_>>().join(","))
    };
    let unsettled = |stamps| {
        let text = text(stamps);
        let mut builder = ColumnsBuilder::default();
        let options = ImportOptions::default();
        let format = Format::TimeKiller;
        let mut reader =
            import::registers::TransactionReader::open("a", text.as_bytes(), format, options);
        while reader.advance(&mut builder).unwrap() {}
        let columns = builder.finish().unwrap();
        let verdict =
            Isolation::new(AxiomaticModel::StrongSessionSerializable).check_columns(&columns);
        assert_eq!(verdict.valid, Validity::Valid);
        verdict.details.to_json()["unsettled"].clone()
    };
    assert_eq!(unsettled([3, 1, 2, 4]), 0);
    assert_ne!(unsettled([1, 2, 3, 4]), 0);
}

#[test]
fn each_model_forbids_what_it_is_for() {
    // Not monotonic within one transaction.
    assert_eq!(
        broken("1 w:x:1 w:y:1\n1 w:x:2 w:y:2\n2 r:y:2 r:x:1"),
        [
            "axiomatic-read-committed",
            "axiomatic-read-atomic",
            "causal",
            "pram"
        ]
    );
    // The other way round it is only fractured.
    assert_eq!(
        broken("1 w:x:1 w:y:1\n1 w:x:2 w:y:2\n2 r:x:1 r:y:2"),
        ["axiomatic-read-atomic", "causal", "pram"]
    );
    assert_eq!(
        broken("1 w:x:1\n1 r:x:-"),
        [
            "axiomatic-read-atomic",
            "causal",
            "read-your-writes",
            "pram"
        ]
    );
    assert_eq!(
        broken("1 w:x:1\n2 r:x:1\n2 r:x:-"),
        ["causal", "monotonic-reads", "pram"]
    );
    assert_eq!(
        broken("1 w:x:1\n1 w:y:1\n2 r:y:1 r:x:-"),
        ["causal", "monotonic-writes", "pram"]
    );
    assert_eq!(
        broken("1 w:x:1\n2 r:x:1\n2 w:y:1\n3 r:y:1 r:x:-"),
        ["causal", "writes-follow-reads"]
    );
    // Two sessions see two writes in opposite orders.
    let long_fork = "1 w:x:1\n2 w:y:1\n3 r:x:1 r:y:-\n4 r:y:1 r:x:-";
    assert_eq!(broken(long_fork), [""; 0]);
    let all: Vec<_> = AxiomaticModel::POLYNOMIAL
        .into_iter()
        .map(AxiomaticModel::name)
        .collect();
    // A session reads what it writes only later.
    assert_eq!(broken("1 r:x:1\n1 w:x:1"), all);
}

#[test]
fn findings_are_explained_in_words() {
    assert_text(
        AxiomaticModel::AxiomaticReadCommitted,
        "1 w:x:1 w:y:1\n1 w:x:2 w:y:2\n2 r:y:2 r:x:1",
        &expect![[r#"
            Invalid {"non-monotonic-read": 1}

            non-monotonic-read [1, 3, 5]
            Let:
              T1 = transaction 1 of session 1 (ok): [[:w 120 1] [:w 121 1]]
              T2 = transaction 2 of session 1 (ok): [[:w 120 2] [:w 121 2]]
              T3 = transaction 1 of session 2 (ok): [[:r 121 2] [:r 120 1]]
            Then:
              - T1 < T2, because session 1 executed T1 before T2.
              - However, T2 < T1, because T3 read T1's write of 1 to key 120, though it had seen T2, which writes 120 too (T3 read T2's write of 2 to key 121): a contradiction!
        "#]],
    );
    assert_text(
        AxiomaticModel::Causal,
        "1 w:x:1\n2 r:x:1\n2 w:y:1\n3 r:y:1\n3 r:x:-",
        &expect![[r#"
            Invalid {"causal-violation": 1}

            causal-violation [1, 9, 3, 5, 7]
            Let:
              T1 = transaction 1 of session 1 (ok): [[:w 120 1]]
              T2 = transaction 2 of session 3 (ok): [[:r 120 nil]]
              T3 = transaction 1 of session 2 (ok): [[:r 120 1]]
              T4 = transaction 2 of session 2 (ok): [[:w 121 1]]
              T5 = transaction 1 of session 3 (ok): [[:r 121 1]]
            Then:
              - T2 had seen T1, because T3 read T1's write of 1 to key 120, and session 2 executed T3 before T4, and T5 read T4's write of 1 to key 121, and session 3 executed T5 before T2.
              - However, T2 read key 120 in its initial state, before T1 wrote it: a contradiction!
        "#]],
    );
    assert_text(
        AxiomaticModel::Causal,
        "1 w:x:1\n2 w:x:2\n3 r:x:1\n3 r:x:2\n4 r:x:2\n4 r:x:1",
        &expect![[r#"
            Invalid {"causal-violation": 1}

            causal-violation [1, 3, 5, 7, 9, 11]
            Let:
              T1 = transaction 1 of session 1 (ok): [[:w 120 1]]
              T2 = transaction 1 of session 2 (ok): [[:w 120 2]]
              T3 = transaction 1 of session 3 (ok): [[:r 120 1]]
              T4 = transaction 2 of session 3 (ok): [[:r 120 2]]
              T5 = transaction 1 of session 4 (ok): [[:r 120 2]]
              T6 = transaction 2 of session 4 (ok): [[:r 120 1]]
            Then:
              - T1 < T2, because T4 read T2's write of 2 to key 120, though it had seen T1, which writes 120 too (T3 read T1's write of 1 to key 120, and session 3 executed T3 before T4).
              - However, T2 < T1, because T6 read T1's write of 1 to key 120, though it had seen T2, which writes 120 too (T5 read T2's write of 2 to key 120, and session 4 executed T5 before T6): a contradiction!
        "#]],
    );
    assert_text(
        AxiomaticModel::Pram,
        "1 r:x:1\n1 w:x:1",
        &expect![[r#"
            Invalid {"causality-cycle": 1}

            causality-cycle [1, 3]
            Let:
              T1 = transaction 1 of session 1 (ok): [[:r 120 1]]
              T2 = transaction 2 of session 1 (ok): [[:w 120 1]]
            Then:
              - T1 < T2, because session 1 executed T1 before T2.
              - However, T2 < T1, because T1 read T2's write of 1 to key 120: a contradiction!
        "#]],
    );
}

#[test]
fn clocks_in_several_rounds_tell_the_same() {
    let mut explained = 0;
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut builder = ColumnsBuilder::default();
        let mut written: Vec<(i64, i64)> = Vec::new();
        for value in 0..40 {
            builder.begin(rng.below(7));
            for _ in 0..rng.index(3).min(written.len()) {
                let (key, value) = *rng.pick(&written);
                builder.read(key, Some(value));
            }
            let key = rng.below(3).cast_signed();
            builder.write(key, value);
            written.push((key, value));
            builder.end(OpType::Ok);
        }
        let columns = builder.finish().unwrap();
        let program = SessionProgram::new(&columns);
        let order = Predecessors::new(&program, &mut [])
            .order(&program)
            .unwrap();
        for seen in [
            VisibilityRule::Everything,
            VisibilityRule::BySession,
            VisibilityRule::BeforeSources,
        ] {
            let in_rounds = |entries_max| {
                let mut all = Vec::new();
                visibility_clocks::infer_in(&program, seen, &order, entries_max, &mut |it| {
                    all.push(it);
                });
                all.sort_unstable();
                all
            };
            let whole = in_rounds(usize::MAX);
            assert_eq!(in_rounds(2 * columns.len()), whole, "seed {seed} {seen:?}");
            assert_eq!(in_rounds(0), whole, "seed {seed} {seen:?}");
            explained += whole.len();
        }
    }
    assert!(explained > 1_000, "{explained}");
}
