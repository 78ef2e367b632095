use super::*;
use crate::{
    Aims, Checker, Log, Set, SetFull, Stats, TotalQueue, UniqueIds, Visibility, check_source,
};
use seatrial_history::{History, Op, OpType, Process, Value};
use serde_json::json;
use std::sync::Arc;

/// The robustness of a checker of transactions at isolation levels.
const BY_LEVEL: Robustness = Robustness {
    is_broken_by_level: true,
    ..Robustness::OF_TRANSACTIONS
};

/// A verdict with these anomalies, after 7 operations were found to be missing.
fn limited(
    extent: MissingExtent,
    robustness: Robustness,
    model: &str,
    anomalies: &[Anomaly],
) -> Verdict {
    let missing = MissingPart {
        extent,
        description: "7 operations".to_owned(),
    };
    let mut verdict = Verdict::valid("any");
    verdict.robustness = robustness;
    verdict.model = Some(model.to_owned());
    verdict.anomalies = anomalies.iter().map(|&name| (name, 1)).collect();
    if !anomalies.is_empty() {
        verdict.valid = Validity::Invalid;
        verdict.not = vec!["read-uncommitted"];
    }
    let mut verdicts = [verdict];
    let together = missing.apply(&mut verdicts);
    let [verdict] = verdicts;
    assert_eq!(together, verdict.valid);
    verdict
}

fn is_unknown(verdict: &Verdict) -> bool {
    match &verdict.valid {
        Validity::Unknown(reason) => reason.contains("7 operations"),
        _ => false,
    }
}

#[test]
fn with_gaps_valid_becomes_unknown_and_certain_anomalies_stay() {
    let limited = |robustness, model, anomalies| {
        limited(MissingExtent::Anywhere, robustness, model, anomalies)
    };
    assert!(is_unknown(&limited(BY_LEVEL, "serializable", &[])));
    assert!(is_unknown(&limited(Stats.robustness(), "", &["no-ok"])));
    let register = limited(Robustness::OF_PREFIX, "linearizable", &["nonlinearizable"]);
    assert!(is_unknown(&register));
    let garbage = limited(BY_LEVEL, "serializable", &["garbage-read"]);
    assert!(is_unknown(&garbage) && garbage.not.is_empty());
    // What the model permits does not make a history invalid.
    let permitted = ["garbage-read", "G-single"];
    let weak = limited(BY_LEVEL, "read-committed", &permitted);
    assert!(is_unknown(&weak));
    let both = limited(BY_LEVEL, "serializable", &permitted);
    assert_eq!(both.valid, Validity::Invalid);
    assert_eq!(both.anomalies.len(), 1);
    assert!(both.not.is_empty());
    let plain = limited(BY_LEVEL, "read-committed", &["G1a"]);
    assert_eq!((plain.valid, plain.not.len()), (Validity::Invalid, 1));
    let ids = limited(UniqueIds.robustness(), "", &["duplicated"]);
    assert_eq!(ids.valid, Validity::Invalid);
}

#[test]
fn without_the_end_only_losses_are_taken_back() {
    let visible = limited(
        MissingExtent::End,
        SetFull::new(Visibility::Linearizable).robustness(),
        "linearizable",
        &["lost"],
    );
    assert_eq!(visible.valid, Validity::Invalid);
    let limited = |robustness, anomalies| limited(MissingExtent::End, robustness, "", anomalies);
    let eventual = SetFull::new(Visibility::Eventual);
    let checkers: [&dyn Checker; 3] = [&TotalQueue, &Set, &eventual];
    for checker in checkers {
        let name = checker.name();
        let robustness = checker.robustness();
        assert!(is_unknown(&limited(robustness, &["lost"])), "{name}");
        let both = limited(robustness, &["lost", "unexpected"]);
        assert_eq!(both.valid, Validity::Invalid, "{name}");
        assert_eq!(both.anomalies.len(), 1, "{name}");
    }
    assert!(is_unknown(&limited(
        Log.robustness(),
        &["lost-write", "unseen"]
    )));
    assert!(is_unknown(&limited(TotalQueue.robustness(), &[])));
    assert_eq!(limited(Robustness::OF_PREFIX, &[]).valid, Validity::Valid);
    let register = limited(Robustness::OF_PREFIX, &["nonlinearizable"]);
    assert_eq!((register.valid, register.not.len()), (Validity::Invalid, 1));
}

#[test]
fn with_a_damaged_end_no_verdict_is_valid() {
    let limited =
        |robustness, anomalies| limited(MissingExtent::DamagedEnd, robustness, "", anomalies);
    assert!(is_unknown(&limited(Robustness::OF_PREFIX, &[])));
    assert!(is_unknown(&limited(Set.robustness(), &["lost"])));
    let register = limited(Robustness::OF_PREFIX, &["nonlinearizable"]);
    assert_eq!((register.valid, register.not.len()), (Validity::Invalid, 1));
}

#[test]
fn without_attributes_no_guessed_model_passes() {
    let mut broken = Verdict::valid("one");
    broken.valid = Validity::Invalid;
    let mut verdicts = [Verdict::valid("other"), broken];
    assert_eq!(without_attributes(&mut verdicts), Validity::Invalid);
    assert!(matches!(verdicts[0].valid, Validity::Unknown(_)));
}

#[test]
fn nothing_is_known_of_a_history_in_which_nothing_took_place() {
    let mut verdicts = [Verdict::valid("one"), Verdict::valid("other")];
    assert!(matches!(without_ok(&mut verdicts), Validity::Unknown(_)));
    for verdict in verdicts {
        let reason = verdict.reason.unwrap();
        assert_eq!(
            reason,
            "no operation completed ok: there is nothing to check"
        );
    }
}

/// A set of two elements: both are added, only the first is read.
fn set_with_a_loss() -> History {
    let mut ops = Vec::new();
    let read: Arc<[Value]> = Arc::new([Value::Int(1)]);
    for (f, value, result) in [
        ("add", Value::Int(1), Value::Int(1)),
        ("add", Value::Int(2), Value::Int(2)),
        ("read", Value::Nil, Value::List(read)),
    ] {
        let invocation = Op::invoke(Process::Client(0), f, value);
        ops.push(invocation.clone());
        ops.push(invocation.complete(OpType::Ok, result));
    }
    History::from_unindexed(ops)
}

/// A verdict through the library, without the crate `check`.
fn check(checker: &dyn Checker, attributes: &serde_json::Value) -> Verdict {
    let aims = Aims {
        provenance: Provenance::of_attributes(attributes),
        ..Aims::default()
    };
    let checked = check_source(checker, &set_with_a_loss(), &aims).unwrap();
    assert!(checked.certificate.is_none());
    checked.verdict
}

#[test]
fn a_data_type_obeys_the_provenance_of_its_history_without_the_crate_check() {
    let complete = check(&Set, &json!({}));
    assert_eq!(complete.valid, Validity::Invalid);
    assert_eq!(complete.anomalies["lost"], 1);
    // A read in the missing part may contain the element.
    for attributes in [
        json!({"end": "missing"}),
        json!({"salvaged": {"missing": [{"from": 3}]}}),
        json!({"end": "missing", "repaired": [{"bytes": 7, "offset": 90, "reason": "torn"}]}),
    ] {
        let verdict = check(&Set, &attributes);
        let Validity::Unknown(reason) = verdict.valid else {
            panic!("{attributes}: {verdict:?}");
        };
        assert!(
            reason.ends_with("; they may explain what was found"),
            "{reason}"
        );
    }
    // A linearizable set shows an element at once.
    let visible = check(
        &SetFull::new(Visibility::Linearizable),
        &json!({"end": "missing"}),
    );
    assert_eq!(visible.valid, Validity::Invalid);
    let counted = check(&Stats, &json!({"end": "missing"}));
    assert!(matches!(counted.valid, Validity::Unknown(_)));
}

#[test]
fn provenance_says_which_part_is_missing() {
    let of = |attributes| MissingPart::of_provenance(&Provenance::of_attributes(&attributes));
    assert_eq!(of(json!({})), None);
    assert_eq!(of(json!({"salvaged": {"missing": []}})), None);
    let gap = of(json!({"salvaged": {"missing": [1]}, "end": "missing"})).unwrap();
    assert_eq!(gap.extent, MissingExtent::Anywhere);
    assert!(gap.warning().contains("missing: 1 gap, see"), "{gap:?}");
    let unsealed = of(json!({"end": "missing"})).unwrap();
    assert_eq!(unsealed.extent, MissingExtent::DamagedEnd);
    assert!(unsealed.description().contains("never sealed"));
    let cut = json!({"end": "missing", "repaired": [{"bytes": 7, "offset": 90}]});
    let cut = of(cut).unwrap();
    assert_eq!(
        cut.description(),
        "a repair cut 7 bytes off at 90: not known"
    );
}
