//! Small cases with known verdicts: those of the tests of Elle's command line (elle-cli, July 2026) and of Elle's register
//! checker, rewritten here; the expected verdicts are Elle's.

use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_cycles::Level;
use seatrial_history::History;
use seatrial_inference::{Inference, ListAppend, RwRegister};
use seatrial_interchange::import::{self, Format, ImportOptions};
use std::collections::BTreeSet;

/// One case. Lines are `PROCESS ok|fail|info [mops]` for a transaction that nothing runs beside, and `PROCESS begin [mops]`
/// and `PROCESS end-ok [mops]` apart for others.
struct ElleCase {
    name: &'static str,
    model: &'static str,
    lines: &'static str,
    /// The names of the anomalies that Elle finds, and the weakest models that it says are ruled out.
    elle: (&'static [&'static str], &'static [&'static str]),
    /// What is found here, where that is something else, for a reason.
    ours: Option<(&'static [&'static str], &'static [&'static str])>,
}

const STRICT: &str = "strict-serializable";

const fn case(
    name: &'static str,
    lines: &'static str,
    elle: (&'static [&'static str], &'static [&'static str]),
) -> ElleCase {
    let model = STRICT;
    ElleCase {
        name,
        model,
        lines,
        elle,
        ours: None,
    }
}

impl ElleCase {
    /// Judged by another model.
    const fn by(self, model: &'static str) -> ElleCase {
        ElleCase { model, ..self }
    }

    /// Something else is found here.
    const fn but(self, found: &'static [&'static str], not: &'static [&'static str]) -> ElleCase {
        let ours = Some((found, not));
        ElleCase { ours, ..self }
    }
}

const VALID: (&[&str], &[&str]) = (&[], &[]);

fn history(lines: &str) -> History {
    let mut text = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (process, rest) = line.split_once(' ').unwrap();
        let (kind, mops) = rest.split_once(' ').unwrap();
        let op = |kind| format!("{{:process {process} :type :{kind} :f :txn :value {mops}}}\n");
        text += &match kind {
            "begin" => op("invoke"),
            "end-ok" => op("ok"),
            kind => op("invoke") + &op(kind),
        };
    }
    import::read(
        "a.edn",
        text.as_bytes(),
        Format::Edn,
        ImportOptions::default(),
    )
    .unwrap()
}

fn agree(case: &ElleCase, verdict: &Verdict) {
    let (found, not) = case.ours.unwrap_or(case.elle);
    let summaries: Vec<_> = verdict
        .findings
        .iter()
        .map(|one| one.summary.as_str())
        .collect();
    let context = format!("{}: {:?} {summaries:#?}", case.name, verdict.anomalies);
    let expected = if found.is_empty() {
        Validity::Valid
    } else {
        Validity::Invalid
    };
    assert_eq!(verdict.valid, expected, "{context}");
    // Elle itself never finds more than is found here.
    assert!(
        expected == Validity::Invalid || case.elle.0.is_empty(),
        "{context}"
    );
    let actual: BTreeSet<_> = verdict.anomalies.keys().copied().collect();
    assert_eq!(actual, found.iter().copied().collect(), "{context}");
    let actual: BTreeSet<_> = verdict.not.iter().copied().collect();
    assert_eq!(actual, not.iter().copied().collect(), "{context}");
}

const WRITE_SKEW: &str = "0 ok [[:r :x nil] [:w :y 1]]\n1 ok [[:r :y nil] [:w :x 1]]";

/// Cases of registers, nothing taken for granted.
const REGISTERS: [ElleCase; 20] = [
    // Elle accepts values that were never written.
    case(
        "rw-register",
        "0 ok [[:w :x 2]]\n0 ok [[:r :x 3]]\n0 ok [[:r :x 2]]",
        VALID,
    )
    .but(&["garbage-read"], &["read-uncommitted"]),
    case("single write and read", "0 ok [[:w :x 2]]\n1 ok [[:r :x 2]]", VALID),
    case(
        "different keys",
        "0 ok [[:w :x 1]]\n1 ok [[:w :y 1]]\n0 ok [[:r :x 1]]\n1 ok [[:r :y 1]]",
        VALID,
    ),
    case(
        "overwrite and read",
        "0 ok [[:w :x 1]]\n0 ok [[:w :x 2]]\n1 ok [[:r :x 2]]",
        VALID,
    ),
    case("read nil", "0 ok [[:r :x nil]]", VALID),
    case("write only", "0 ok [[:w :x 1]]\n1 ok [[:w :x 2]]", VALID),
    case("repeated read", "0 ok [[:w :x 1]]\n1 ok [[:r :x 1] [:r :x 1]]", VALID),
    case(
        "internal",
        "0 ok [[:w :x 2] [:r :x 3]]",
        (&["internal"], &["read-atomic"]),
    )
    .but(&["garbage-read", "internal"], &["read-uncommitted"]),
    case(
        "G1a",
        "0 fail [[:w :x 2]]\n1 ok [[:r :x 2]]",
        (&["G1a"], &["read-committed"]),
    ),
    case(
        "G1b",
        "0 ok [[:w :x 1] [:w :x 2]]\n1 ok [[:r :x 1]]",
        (&["G1b"], &["read-committed"]),
    ),
    // That writes follow reads is not taken for granted there.
    case(
        "lost update",
        "0 ok [[:w :x 0]]\n1 ok [[:r :x 0] [:w :x 1]]\n2 ok [[:r :x 0] [:w :x 2]]",
        (&["lost-update"], &["cursor-stability", "update-atomic"]),
    )
    .but(
        &["G-single-realtime", "G2-item", "lost-update"],
        &["cursor-stability", "update-atomic"],
    ),
    case(
        "G-single",
        "0 ok [[:w :x 1]]\n1 ok [[:r :x 1] [:w :y 1]]\n2 ok [[:r :y 1] [:r :x nil]]",
        (&["G-single"], &["consistent-view", "repeatable-read"]),
    ),
    // Elle says of the second that "strong-snapshot-isolation-cycle-exists", and does not show it.
    case(
        "G2-item",
        WRITE_SKEW,
        (&["G2-item"], &["repeatable-read", "strong-snapshot-isolation"]),
    )
    .but(
        &["G-single-realtime", "G2-item"],
        &["repeatable-read", "strong-snapshot-isolation"],
    ),
    case(
        "G2-item, serializable",
        WRITE_SKEW,
        (&["G2-item"], &["repeatable-read"]),
    )
    .by("serializable"),
    case("G2-item, snapshot isolation", WRITE_SKEW, VALID).by("snapshot-isolation"),
    // Only what the model forbids is looked for.
    case(
        "G2-item, strong snapshot isolation",
        WRITE_SKEW,
        (
            &["strong-snapshot-isolation-cycle-exists"],
            &["repeatable-read", "strong-snapshot-isolation"],
        ),
    )
    .by("strong-snapshot-isolation")
    .but(&["G-single-realtime"], &["strong-snapshot-isolation"]),
    case(
        "process",
        "0 ok [[:r :x 1]]\n0 ok [[:w :x 1]]",
        (&["G1c-process"], &["strong-session-read-committed"]),
    )
    .by("strong-session-serializable"),
    case(
        "circular information flow",
        "0 begin [[:w :x 1] [:r :y nil]]\n1 begin [[:w :y 1] [:r :x nil]]
         0 end-ok [[:w :x 1] [:r :y 1]]\n1 end-ok [[:w :y 1] [:r :x 1]]",
        (&["G1c"], &["read-committed"]),
    ),
    case(
        "initial state",
        "0 begin [[:r :x nil] [:r :y nil]]\n1 ok [[:w :y 1] [:w :x 2]]\n0 end-ok [[:r :x nil] [:r :y 1]]",
        (&["G-single"], &["consistent-view", "repeatable-read"]),
    )
    .by("serializable"),
    case(
        "information flow, read uncommitted",
        "0 begin [[:w :x 1] [:r :y nil]]\n1 begin [[:w :y 1] [:r :x nil]]
         0 end-ok [[:w :x 1] [:r :y 1]]\n1 end-ok [[:w :y 1] [:r :x 1]]",
        VALID,
    )
    .by("read-uncommitted"),
];

#[test]
fn registers_have_the_verdicts_of_elle() {
    for case in &REGISTERS {
        let level = Level::by_name(case.model).unwrap();
        let verdict = RwRegister::new(level).check(&history(case.lines));
        agree(case, &verdict);
    }
    let empty = RwRegister::default().check(&History::from_ops(Vec::new()));
    assert_eq!(empty.valid, Validity::Valid);
}

/// Each of three processes writes each of three keys and reads what it wrote.
const TURNS: &str = "0 ok [[:w :x 1]]\n1 ok [[:w :y 2]]\n2 ok [[:w :z 3]]
    0 ok [[:r :x 1]]\n1 ok [[:r :y 2]]\n2 ok [[:r :z 3]]
    0 ok [[:w :y 1]]\n1 ok [[:w :z 2]]\n2 ok [[:w :x 4]]
    0 ok [[:r :y 1]]\n1 ok [[:r :z 2]]\n2 ok [[:r :x 4]]
    0 ok [[:w :z 1]]\n1 ok [[:w :x 3]]\n2 ok [[:w :y 4]]
    0 ok [[:r :z 1]]\n1 ok [[:r :x 3]]\n2 ok [[:r :y 4]]
    0 ok [[:w :x 2]]\n1 ok [[:w :y 3]]\n2 ok [[:w :z 4]]
    0 ok [[:r :x 2]]\n1 ok [[:r :y 3]]\n2 ok [[:r :z 4]]";

/// Cases of registers with an assumption.
const INFERRED: [(&str, ElleCase); 11] = [
    ("sequential-keys", case("turns", TURNS, VALID)),
    // It is one process, which Elle does not ask about at this level.
    (
        "sequential-keys",
        case(
            "read before write",
            "0 ok [[:r :x 1]]\n0 ok [[:w :x 1]]",
            (&["G1c-realtime"], &["strong-read-committed"]),
        )
        .but(&["G1c-process"], &["strong-session-read-committed"]),
    ),
    (
        "linearizable-keys",
        case("write and read", "0 ok [[:w :x 1]]\n1 ok [[:r :x 1]]", VALID),
    ),
    // Nobody wrote 2; and that a key is not linearizable is no reason to say that writes are not even ordered.
    (
        "linearizable-keys",
        case(
            "an old value comes back",
            "0 ok [[:w :x 1]]\n1 ok [[:r :x 2]]\n0 ok [[:r :x 1]]",
            (&["cyclic-versions"], &["read-uncommitted"]),
        )
        .but(
            &["cyclic-versions-realtime", "garbage-read"],
            &["read-uncommitted"],
        ),
    ),
    (
        "wfr-keys",
        case(
            "a chain of updates",
            "0 ok [[:r :x nil] [:w :x 1]]\n1 ok [[:r :x 1] [:w :x 2]]\n2 ok [[:r :x 5]]",
            VALID,
        )
        .but(&["garbage-read"], &["read-uncommitted"]),
    ),
    (
        "linearizable-keys",
        case(
            "unknown outcomes",
            "0 ok [[:w :x 1]]\n1 info [[:r :x 1]]\n2 info [[:r :x 1]]\n3 begin [[:r :x 2]]",
            VALID,
        ),
    ),
    (
        "sequential-keys",
        case(
            "G0 by later reads",
            "0 begin [[:w :x 1] [:w :y 2]]\n1 begin [[:w :x 2] [:w :y 1]]
             0 end-ok [[:w :x 1] [:w :y 2]]\n1 end-ok [[:w :x 2] [:w :y 1]]
             0 ok [[:r :x 2]]\n1 ok [[:r :y 2]]",
            (&["G0"], &["read-uncommitted"]),
        ),
    ),
    // There, values that were never written stand for an initial state.
    (
        "linearizable-keys",
        case(
            "G2-item after a read",
            "0 ok [[:w :x 1] [:w :y 1]]\n0 ok [[:r :x 1] [:r :y 1]]
             1 begin [[:r :x nil] [:w :y 2]]\n2 begin [[:r :y nil] [:w :x 2]]
             2 end-ok [[:r :y 1] [:w :x 2]]\n1 end-ok [[:r :x 1] [:w :y 2]]",
            (&["G2-item"], &["repeatable-read"]),
        ),
    ),
    (
        "linearizable-keys",
        case(
            "G2-item after a read, read committed",
            "0 ok [[:w :x 1] [:w :y 1]]\n0 ok [[:r :x 1] [:r :y 1]]
             1 begin [[:r :x nil] [:w :y 2]]\n2 begin [[:r :y nil] [:w :x 2]]
             2 end-ok [[:r :y 1] [:w :x 2]]\n1 end-ok [[:r :x 1] [:w :y 2]]",
            VALID,
        )
        .by("read-committed"),
    ),
    (
        "wfr-keys",
        case(
            "wfr",
            "9 ok [[:w :y 1]]\n0 begin [[:r :y nil] [:w :x 1] [:w :y 2]]\n1 begin [[:r :x nil] [:r :y nil]]
             0 end-ok [[:r :y 1] [:w :x 1] [:w :y 2]]\n1 end-ok [[:r :x 1] [:r :y 1]]",
            (&["G-single"], &["consistent-view", "repeatable-read"]),
        )
        .by("serializable"),
    ),
    (
        "sequential-keys",
        case(
            "cyclic versions",
            "0 ok [[:w :x 1]]\n0 ok [[:w :x 2]]\n0 ok [[:r :x 1]]",
            (&["cyclic-versions"], &["read-uncommitted"]),
        )
        .but(
            &["cyclic-versions-process"],
            &["strong-session-snapshot-isolation"],
        ),
    ),
];

#[test]
fn assumptions_are_elles() {
    for (assumption, case) in &INFERRED {
        let level = Level::by_name(case.model).unwrap();
        let inference = Inference::by_names([assumption]).unwrap();
        let checker = RwRegister::new(level).with_inference(inference);
        agree(case, &checker.check(&history(case.lines)));
    }
}

#[test]
fn a_given_order_is_used_and_not_trusted() {
    let lines = "0 ok [[:w :x 1]]\n0 ok [[:w :x 2]]\n1 ok [[:r :x 2]]";
    let honest = RwRegister::default().with_order([(1, 0), (3, 1), (5, 2)]);
    let verdict = honest.check(&history(lines));
    assert_eq!(verdict.valid, Validity::Valid);
    assert_eq!(verdict.undecided.len(), 0);
    let wrong = RwRegister::default().with_order([(1, 1), (3, 0), (5, 2)]);
    let verdict = wrong.check(&history(lines));
    assert_eq!(verdict.anomalies["cyclic-versions-order"], 1);
    assert_eq!(verdict.not, ["strong-session-serializable"]);
    assert_eq!(
        verdict.details.to_json()["discarded"]["transaction-order"],
        1
    );
}

/// The example of Elle's paper (section 7.1), as its command line is tested with it.
const PAPER: &str = "1 ok [[:append 253 1] [:append 253 3] [:append 253 4] [:append 255 2] [:append 255 3] [:append 255 4] \
                          [:append 255 5] [:append 256 1] [:append 256 2]]
    1 ok [[:append 255 8] [:r 253 [1 3 4]]]
    1 ok [[:append 256 4] [:r 255 [2 3 4 5 8]] [:r 256 [1 2 4]] [:r 253 [1 3 4]]]
    1 ok [[:append 250 10] [:r 253 [1 3 4]] [:r 255 [2 3 4 5]] [:append 256 3]]";

/// Cases of lists.
const LISTS: [ElleCase; 29] = [
    case(
        "paper example",
        PAPER,
        (&["G-single"], &["consistent-view", "repeatable-read"]),
    ),
    case("paper example, read uncommitted", PAPER, VALID).by("read-uncommitted"),
    case("paper example, read committed", PAPER, VALID).by("read-committed"),
    case(
        "paper example, snapshot isolation",
        PAPER,
        (&["G-single"], &["consistent-view", "repeatable-read"]),
    )
    .by("snapshot-isolation"),
    case("single append and read", "0 ok [[:append 1 1]]\n1 ok [[:r 1 [1]]]", VALID),
    case(
        "several appends",
        "0 ok [[:append 1 1]]\n0 ok [[:append 1 2]]\n0 ok [[:r 1 [1 2]]]",
        VALID,
    ),
    case(
        "different keys",
        "0 ok [[:append 1 1]]\n0 ok [[:append 2 1]]\n0 ok [[:r 1 [1]]]\n0 ok [[:r 2 [1]]]",
        VALID,
    ),
    // "Unknown" there: a graph without edges.
    case("read empty", "0 ok [[:r 1 []]]", VALID),
    case("append only", "0 ok [[:append 1 1]]\n1 ok [[:append 1 2]]", VALID),
    case(
        "several processes",
        "0 ok [[:append 1 1]]\n1 ok [[:append 1 2]]\n2 ok [[:r 1 [1 2]]]",
        VALID,
    ),
    case("unknown read", "0 ok [[:append 1 1]]\n0 info [[:r 1 nil]]", VALID),
    case(
        "G0",
        "0 ok [[:append 1 1] [:append 2 1]]\n1 ok [[:append 1 2] [:append 2 2]]\n2 ok [[:r 1 [1 2]] [:r 2 [2 1]]]",
        (&["G0"], &["read-uncommitted"]),
    ),
    case(
        "a stale read (called intermediate there)",
        "0 ok [[:append 1 1]]\n1 ok [[:append 1 2]]\n2 ok [[:r 1 [1]]]",
        (&["G-single-realtime"], &["strong-snapshot-isolation"]),
    ),
    case(
        "G1c",
        "0 ok [[:append 1 1] [:r 2 [1]]]\n1 ok [[:append 1 2] [:append 2 1]]\n2 ok [[:r 1 [1 2]]]",
        (&["G1c"], &["read-committed"]),
    ),
    case(
        "G-single",
        "0 ok [[:append 1 1] [:append 2 1]]\n1 ok [[:append 1 2] [:r 2 []]]\n2 ok [[:r 1 [1 2]]]",
        (&["G-single"], &["consistent-view", "repeatable-read"]),
    ),
    case(
        "G2-item",
        "0 ok [[:append 1 1] [:r 2 []]]\n1 ok [[:append 2 1] [:r 1 []]]",
        (&["G2-item"], &["repeatable-read", "strong-snapshot-isolation"]),
    )
    .but(
        &["G-single-realtime", "G2-item"],
        &["repeatable-read", "strong-snapshot-isolation"],
    ),
    case(
        "G2-item (elle-cli 30)",
        "0 begin [[:r 2 nil] [:r 3 nil] [:append 4 0]]\n1 ok [[:append 3 1] [:append 2 4] [:r 4 []]]
         0 end-ok [[:r 2 []] [:r 3 []] [:append 4 0]]",
        (&["G2-item"], &["repeatable-read"]),
    )
    .by("serializable"),
    case(
        "incompatible order",
        "0 ok [[:append 1 1]]\n0 ok [[:append 1 3]]\n1 ok [[:r 1 [1 3]]]\n0 ok [[:append 1 2]]\n1 ok [[:r 1 [1 2 3]]]",
        (
            &["G1c-realtime", "incompatible-order"],
            &["read-committed", "strong-read-uncommitted"],
        ),
    )
    .but(&["incompatible-order"], &["read-committed"]),
    case(
        "lost update",
        "0 ok [[:append 1 0]]\n1 ok [[:r 1 [0]] [:append 1 1]]\n2 ok [[:r 1 [0]] [:append 1 2]]",
        (
            &["G2-item", "lost-update"],
            &["cursor-stability", "update-atomic"],
        ),
    )
    .but(
        &["G-single-realtime", "G2-item", "lost-update"],
        &["cursor-stability", "update-atomic"],
    ),
    case(
        "dirty update",
        "0 fail [[:append 1 1]]\n1 ok [[:append 1 2]]\n2 ok [[:r 1 [1 2]]]",
        (&["G1a", "dirty-update"], &["read-committed"]),
    ),
    case(
        "dirty updates among unknown ones",
        "0 ok [[:append 1 1]]\n0 info [[:append 1 2]]\n0 info [[:append 1 3]]\n0 ok [[:append 1 4]]
         0 fail [[:append 1 5]]\n0 info [[:append 1 6]]\n0 fail [[:append 1 7]]\n0 fail [[:append 1 8]]
         0 ok [[:append 1 9]]\n0 info [[:append 1 10]]\n0 ok [[:append 1 11]]
         1 ok [[:r 1 [1 2 3 4 5 6 7 8 9 10 11]]]",
        (&["G1a", "dirty-update"], &["read-committed"]),
    ),
    case(
        "future read",
        "0 ok [[:r 1 [1]] [:append 1 1]]",
        (&["future-read"], &["read-committed"]),
    ),
    case(
        "duplicate elements",
        "0 ok [[:append 1 1]]\n1 ok [[:r 1 [1 1]]]",
        (&["duplicate-elements"], &["read-uncommitted"]),
    ),
    case(
        "G1a",
        "0 fail [[:append 1 1]]\n1 ok [[:r 1 [1]]]",
        (&["G1a"], &["read-committed"]),
    ),
    case(
        "partial reads by two processes",
        "0 ok [[:append 1 1] [:append 1 2]]\n2 ok [[:r 1 [1]]]\n3 ok [[:r 1 [1 2]]]",
        (&["G-single", "G1b"], &["read-committed"]),
    ),
    case(
        "two partial reads by one transaction",
        "0 ok [[:append 1 1] [:append 1 2]]\n1 ok [[:r 1 [1]] [:r 1 [1 2]]]",
        (&["G-single", "G1b", "internal"], &["read-committed"]),
    ),
    case(
        "a partial read of three appends",
        "0 ok [[:append 1 1] [:append 1 2] [:append 1 3]]\n2 ok [[:r 1 [1 2]]]\n3 ok [[:r 1 [1 2 3]]]",
        (&["G-single", "G1b"], &["read-committed"]),
    ),
    case(
        "partial reads of two appends",
        "0 ok [[:append 1 1]]\n1 ok [[:append 1 2]]\n2 ok [[:r 1 [1]] [:r 1 [1 2]]]",
        (
            &["G-single", "internal"],
            &["consistent-view", "read-atomic", "repeatable-read"],
        ),
    ),
    case(
        "an own append is missing",
        "0 ok [[:append 1 1]]\n1 ok [[:append 1 2] [:r 1 [1]]]",
        (&["internal"], &["read-atomic"]),
    ),
];

#[test]
fn lists_have_the_verdicts_of_elle() {
    for case in &LISTS {
        let level = Level::by_name(case.model).unwrap();
        let verdict = ListAppend::new(level).check(&history(case.lines));
        agree(case, &verdict);
    }
}
