//! What the verifier knows of the models, against what the checkers know of them.

use seatrial_cycles::Level;
use seatrial_isolation::AxiomaticModel;
use seatrial_verify::models::{commits, cores, forbids, is_known, serializability, snapshots};

#[test]
fn models_are_proven_by_models_that_imply_them() {
    for level in Level::all() {
        let name = level.name();
        let serial = Level::by_name(serializability(name).unwrap()).unwrap();
        assert!(serial.implies(level), "{level:?}");
        let proven = Level::by_name(snapshots(name)).unwrap();
        assert!(proven.implies(level), "{level:?}");
        let weak = commits(name);
        assert!(
            weak == name || AxiomaticModel::by_name(weak).is_some(),
            "{level:?}"
        );
        // Registers say nothing that these two models disagree about.
        assert_eq!(
            cores(name) != name,
            [Level::RepeatableRead, Level::ConsistentView].contains(&level)
        );
    }
}

#[test]
fn models_forbid_what_the_checkers_say() {
    let all = Level::StrictSerializable.forbidden();
    for level in Level::all() {
        let forbidden = level.forbidden();
        for anomaly in &all {
            let expected = forbidden.contains(anomaly);
            assert_eq!(
                forbids(level.name(), anomaly),
                expected,
                "{level:?} {anomaly}"
            );
        }
    }
    for model in AxiomaticModel::all() {
        for anomaly in ["garbage-read", "G1a", "G1b", "future-read", "internal"] {
            assert!(forbids(model.name(), anomaly), "{model:?} {anomaly}");
        }
    }
    assert!(serializability("no-such-model").is_none() && serializability("causal").is_none());
    assert!(!forbids("no-such-model", "G0"));
    assert!(Level::all().all(|level| is_known(level.name())));
    for name in [
        "no-such-model",
        "causal",
        "strong-prefix",
        "strong-serializable",
    ] {
        assert!(!is_known(name), "{name}");
    }
    assert!(forbids("causal", "causality-cycle") && !forbids("causal", "G2-item"));
}
