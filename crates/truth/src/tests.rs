//! The brute force against itself, against textbook histories, and against a checker that lies.

use crate::case::{Case, CaseOutcome, Kind, Micro, Txn, list};
use crate::case_generator;
use crate::compare::{CheckerUnderTest, compare, subjects};
use crate::forge::Forger;
use crate::oracle::{Oracle, OracleAnswer};
use crate::orders::{Follows, Rule, explains, is_explained};
use crate::phenomena::permutations;
use crate::shrink::shrink;
use crate::tally::Tally;
use seatrial_checker::{Aims, Checker, OnlineChecker, Verdict, WholeHistory};
use seatrial_cycles::Level;
use seatrial_history::History;
use seatrial_isolation::AxiomaticModel;
use seatrial_machine::Rng;
use std::collections::BTreeSet;

/// Transactions of one process each, all at once: `w0=1 r1=0`; a list that was read is written in hexadecimal digits.
fn case(kind: Kind, transactions: &[&str]) -> Case {
    let micro = |text: &str| {
        let (key, value) = text[1..].split_once('=').unwrap();
        Micro {
            key: key.parse().unwrap(),
            is_write: text.starts_with('w'),
            value: u64::from_str_radix(value, 16).unwrap(),
        }
    };
    let txns = transactions.iter().enumerate().map(|(number, text)| Txn {
        process: number as u8,
        outcome: CaseOutcome::Ok,
        micros: text.split_whitespace().map(micro).collect(),
        begun: number as u16,
        ended: Some(100 + number as u16),
    });
    let txns = txns.collect();
    let mut case = Case { kind, txns };
    case.renumber();
    case
}

/// The models of a case that are kept, of these.
fn kept(case: &Case, models: &[&'static str]) -> Vec<&'static str> {
    let oracle = Oracle::new(case);
    let kept = models
        .iter()
        .filter(|it| oracle.of(it) == OracleAnswer::Kept);
    kept.copied().collect()
}

const LADDER: [&str; 7] = [
    "read-uncommitted",
    "read-committed",
    "cursor-stability",
    "consistent-view",
    "parallel-snapshot-isolation",
    "snapshot-isolation",
    "serializable",
];

#[test]
fn textbook_histories_stand_where_the_textbooks_say() {
    let registers = |transactions: &[&str]| case(Kind::Registers, transactions);
    // Berenson and others 1995: write skew.
    let skew = registers(&["r0=0 r1=0 w0=1", "r0=0 r1=0 w1=1"]);
    assert_eq!(kept(&skew, &LADDER), LADDER[..6]);
    // The same: a lost update whose result is not read.
    let lost = registers(&["r0=0 w0=1", "r0=0 w0=2"]);
    assert_eq!(kept(&lost, &LADDER), LADDER[..2]);
    let lost = case(Kind::Lists, &["r0=0 w0=1", "r0=0 w0=2"]);
    assert_eq!(kept(&lost, &LADDER), LADDER[..2]);
    // Sovran and others 2011: long fork.
    let fork = registers(&["w0=1", "w1=1", "r0=1 r1=0", "r0=0 r1=1"]);
    assert_eq!(kept(&fork, &LADDER), LADDER[..5]);
    let fork = case(Kind::Lists, &["w0=1", "w1=1", "r0=1 r1=0", "r0=0 r1=1"]);
    assert_eq!(kept(&fork, &LADDER), LADDER[..5]);
    // Read skew.
    let skew = registers(&["w0=1 w1=1", "r0=1 r1=0"]);
    assert_eq!(kept(&skew, &LADDER), LADDER[..3]);
    // Adya 1999: G1c, circular information flow.
    let flow = registers(&["w0=1 r1=1", "w1=1 r0=1"]);
    assert_eq!(kept(&flow, &LADDER), LADDER[..1]);
    // G1b: a read of what its writer overwrote.
    let intermediate = registers(&["w0=1 w0=2", "r0=1"]);
    assert_eq!(kept(&intermediate, &LADDER), LADDER[..1]);
    // G0 of lists: two transactions overwrite each other.
    let dirty = case(Kind::Lists, &["w0=1 w1=1", "w0=2 w1=2", "r0=12 r1=21"]);
    assert_eq!(kept(&dirty, &LADDER), [""; 0]);
    // Elements of one transaction in another order than it appended them.
    let permuted = case(Kind::Lists, &["w0=1 w0=2 w0=3", "r0=213"]);
    assert_eq!(kept(&permuted, &LADDER), [""; 0]);
    // Blind writes that no order explains.
    let blind = registers(&["w0=1 w1=1", "w0=2 w1=2", "r0=1 r1=2"]);
    assert_eq!(kept(&blind, &LADDER), LADDER[..3]);
}

#[test]
fn sessions_and_time_count_where_they_are_asked_for() {
    let models = [
        "serializable",
        "strong-session-serializable",
        "strict-serializable",
    ];
    let mut stale = case(Kind::Registers, &["w0=1", "r0=0"]);
    assert_eq!(kept(&stale, &models), models);
    (stale.txns[1].begun, stale.txns[1].ended) = (1_000, Some(1_001));
    assert_eq!(kept(&stale, &models), models[..2]);
    stale.txns[1].process = 0;
    assert_eq!(kept(&stale, &models), models[..1]);
    let weak = [
        "axiomatic-read-committed",
        "monotonic-writes",
        "read-your-writes",
    ];
    assert_eq!(kept(&stale, &weak), weak[..2]);
    // An operation of unknown outcome may take place at any later time.
    stale.txns[0].outcome = CaseOutcome::Info;
    stale.txns[1].process = 1;
    assert_eq!(kept(&stale, &models), models);
    stale.txns[1].micros[0].value = 1;
    assert_eq!(stale.members(), 0b11);
    assert_eq!(kept(&stale, &models), models);
    stale.txns[0].outcome = CaseOutcome::Fail;
    assert_eq!(kept(&stale, &models), [""; 0]);
}

#[test]
fn a_read_is_of_either_write_of_one_value() {
    // One after another: the reader may have read the second, which nothing overwrites.
    let mut again = case(Kind::Registers, &["w0=1", "w0=1", "r0=1"]);
    for (number, txn) in again.txns.iter_mut().enumerate() {
        txn.begun = number as u16 * 2;
        txn.ended = Some(number as u16 * 2 + 1);
    }
    let oracle = Oracle::new(&again);
    assert_eq!(oracle.contradiction(), None);
    assert_eq!(oracle.of("strict-serializable"), OracleAnswer::Kept);
    assert_eq!(oracle.of("strong-snapshot-isolation"), OracleAnswer::Kept);
    assert_eq!(oracle.of("causal"), OracleAnswer::Open);
    // No version is read that a transaction writes itself only later.
    let own = case(Kind::Registers, &["r0=1 w0=1", "w0=1"]);
    assert_eq!(kept(&own, &LADDER), LADDER);
    let own = case(Kind::Registers, &["r0=1 w0=1", "w0=2"]);
    assert_eq!(kept(&own, &LADDER), LADDER[..1]);
}

fn random_cases(count: u64) -> impl Iterator<Item = Case> {
    let kinds = [Kind::Lists, Kind::Registers];
    (0..count).map(move |number| case_generator::case(kinds[number as usize % 2], 99, number))
}

#[test]
fn the_search_for_orders_finds_what_all_permutations_find() {
    let mut explained = 0;
    let mut count = 0;
    for case in random_cases(1_500).filter(|case| case.txns.len() <= 3) {
        let all: Vec<usize> = (0..case.txns.len()).collect();
        for follows in [Follows::Nothing, Follows::Sessions, Follows::Time] {
            for rule in [Rule::Serializable, Rule::Snapshot, Rule::Prefix] {
                let mut found = false;
                // All sets of transactions of unknown outcome: to leave out unseen ones never hurts.
                for set in 0_u8..1 << all.len() {
                    let mut order: Vec<usize> = all
                        .iter()
                        .copied()
                        .filter(|it| set >> it & 1 == 1)
                        .collect();
                    if rule != Rule::Serializable {
                        order.extend(order.clone());
                    }
                    permutations(&mut order, 0, &mut |order| {
                        found |= explains(&case, rule, follows, order);
                    });
                }
                let expected = is_explained(&case, rule, follows);
                assert_eq!(found, expected, "{rule:?} {follows:?}\n{}", case.edn());
                explained += u32::from(found);
                count += 1;
            }
        }
    }
    assert!(
        count > 2_000 && explained > 500 && count - explained > 300,
        "{explained} of {count}"
    );
}

#[test]
fn what_implies_a_model_is_not_kept_without_it() {
    let mut kept_count = 0;
    for case in random_cases(600) {
        let oracle = Oracle::new(&case);
        assert_eq!(oracle.contradiction(), None, "{}", case.edn());
        let levels: Vec<(Level, OracleAnswer)> =
            Level::all().map(|it| (it, oracle.of(it.name()))).collect();
        for (one, answer) in &levels {
            kept_count += u32::from(*answer == OracleAnswer::Kept);
            for (other, weaker) in &levels {
                let contradicts = *answer == OracleAnswer::Kept && *weaker == OracleAnswer::Broken;
                let implies = one.implies(*other);
                assert!(
                    !(implies && contradicts),
                    "{one:?} {other:?}\n{}",
                    case.edn()
                );
            }
        }
        if case.kind == Kind::Lists {
            continue;
        }
        let models: Vec<(AxiomaticModel, OracleAnswer)> = AxiomaticModel::all()
            .map(|it| (it, oracle.of(it.name())))
            .collect();
        for (one, answer) in &models {
            for (other, weaker) in &models {
                let contradicts = *answer == OracleAnswer::Kept && *weaker != OracleAnswer::Kept;
                let implies = one.implies(*other);
                assert!(
                    !(implies && contradicts),
                    "{one:?} {other:?}\n{}",
                    case.edn()
                );
            }
        }
    }
    assert!(kept_count > 3_000, "{kept_count}");
}

/// Does a transaction write what one that failed writes as well?
fn is_retried(case: &Case) -> bool {
    let failed = case
        .txns
        .iter()
        .filter(|txn| txn.outcome == CaseOutcome::Fail);
    failed.flat_map(Txn::writes).any(|write| {
        let mut others = case
            .txns
            .iter()
            .filter(|txn| txn.outcome != CaseOutcome::Fail);
        others.any(|txn| txn.writes().any(|other| other == write))
    })
}

#[test]
fn checkers_know_what_a_retry_wrote() {
    let mut tally = Tally::default();
    let both = [Kind::Lists, Kind::Registers].map(subjects);
    for (number, case) in random_cases(1_500)
        .enumerate()
        .filter(|it| is_retried(&it.1))
    {
        let subjects = &both[usize::from(case.kind == Kind::Registers)];
        compare(subjects, &case, number as u64, &mut tally);
    }
    assert!(tally.cases > 40, "{}", tally.cases);
    assert!(tally.classes.is_empty(), "{}", tally.disagreements());
    let reasons = tally.reasons();
    assert!(!reasons.contains("elements must be unique"), "{reasons}");
}

#[test]
fn cases_are_of_all_sorts_and_the_same_for_a_seed() {
    let cases: Vec<Case> = random_cases(2_000).collect();
    assert_eq!(cases[17], random_cases(18).last().unwrap());
    let count = |holds: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| holds(case)).count();
    let strict = count(&|case| Oracle::new(case).of("strict-serializable") == OracleAnswer::Kept);
    assert!((700..1_500).contains(&strict), "{strict}");
    let with = |outcome| move |case: &Case| case.txns.iter().any(|it| it.outcome == outcome);
    assert!(count(&with(CaseOutcome::Info)) > 300);
    assert!(count(&with(CaseOutcome::Fail)) > 200);
    assert!(count(&|case| case.txns.len() >= 5) > 200);
    assert!(count(&is_retried) > 60);
    for case in &cases {
        assert!(
            case.txns
                .iter()
                .all(|txn| txn.ended.is_none_or(|it| it > txn.begun))
        );
        let history = case.history();
        let opened = history.iter().filter(|op| op.is_invoke()).count();
        let paired = (0..history.len()).filter(|&at| history.pair(at).is_some());
        let completed = case.txns.iter().filter(|txn| txn.ended.is_some()).count();
        assert_eq!(
            (opened, paired.count()),
            (case.txns.len(), 2 * completed),
            "{}",
            case.edn()
        );
    }
    let edns: BTreeSet<String> = cases.iter().map(Case::edn).collect();
    assert!(edns.len() > 1_900, "{}", edns.len());
}

/// Says that every history is valid, or that every one is invalid.
#[derive(Clone)]
struct Liar(bool);

impl Checker for Liar {
    fn name(&self) -> &'static str {
        "liar"
    }

    fn check(&self, _: &History) -> Verdict {
        let mut verdict = Verdict::valid("liar");
        if !self.0 {
            verdict.valid = seatrial_checker::Validity::Invalid;
        }
        verdict
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(self.clone()))
    }
}

#[test]
fn a_checker_that_lies_is_found_out() {
    for is_valid in [true, false] {
        let subject = CheckerUnderTest {
            name: "liar",
            model: "serializable",
            checker: Box::new(Liar(is_valid)),
        };
        let subjects = [subject];
        let mut tally = Tally::default();
        for (number, case) in random_cases(60).enumerate() {
            compare(&subjects, &case, number as u64, &mut tally);
        }
        let row = &tally.rows[&("liar", "serializable".to_owned())];
        let (wrong, right) = (row.false_passes, row.false_alarms);
        assert!(if is_valid {
            wrong > 5 && right == 0
        } else {
            right > 5 && wrong == 0
        });
        let text = tally.disagreements();
        assert!(text.contains("liar serializable"), "{text}");
        // The shrunk case is small.
        let smallest = tally.classes.values().map(|class| class.size.0);
        assert_eq!(smallest.min(), Some(1));
    }
}

#[test]
fn a_case_is_shrunk_to_what_it_takes() {
    let big = case(
        Kind::Lists,
        &["w0=1 w1=1 r2=0", "r0=0 w0=2 r1=0", "r0=12 r1=1", "w2=5"],
    );
    let seen = |case: &Case| {
        let reads = case.txns.iter().flat_map(|txn| &txn.micros);
        reads
            .clone()
            .any(|it| !it.is_write && it.value == list([1, 2]))
    };
    let small = shrink(&big, &seen);
    assert_eq!(small.txns.len(), 1);
    assert_eq!(small.txns[0].micros, big.txns[2].micros[..1]);
}

#[test]
fn forgers_try_everything() {
    let mut tally = Tally::default();
    let mut forger = Forger::new(Kind::Registers);
    let subjects = subjects(Kind::Registers);
    for number in 0..30 {
        let case = case_generator::case(Kind::Registers, 5, number);
        forger.forge(
            &subjects,
            &case,
            number,
            &mut Rng::from_seed(number),
            &mut tally,
        );
    }
    let forged: Vec<&str> = tally
        .rows
        .iter()
        .filter(|row| row.1.forged > 0)
        .map(|row| row.0.1.as_str())
        .collect();
    for how in [
        "another history's",
        "another history's, signed",
        "another kind of proof",
        "another model",
        "commit order",
        "invented core",
        "invented cycle",
        "invented finding",
        "order shuffled",
        "serial order",
        "snapshot order",
        "visibility order",
    ] {
        assert!(forged.contains(&how), "{how}: {forged:?}");
    }
    // Orders that explain a history are accepted.
    assert!(tally.rows[&("registers", "serial order".to_owned())].accepted > 20);
}
