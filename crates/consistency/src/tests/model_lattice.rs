//! Implications between models, and violations in words.

use super::session_models::{check, operation};
use super::small_histories::{SmallAccess, SmallShape, history, random};
use crate::{Consistency, ConsistencyModel};
use seatrial_checker::{Checker, Validity};
use seatrial_farm::histories;
use seatrial_machine::Rng;

#[test]
fn a_model_implies_the_weaker_ones() {
    for seed in 0..histories(3_000) {
        let mut rng = Rng::from_seed(seed ^ 0x1a77);
        let shape = SmallShape {
            operations: 4 + rng.index(20),
            processes: 1 + rng.index(4),
            keys: 1 + rng.index(3),
            has_cas: false,
            has_repeats: false,
            spoil: *rng.pick(&[0.02, 0.1, 0.4]),
            info: 0.05,
        };
        let operations = random(&mut rng, shape);
        let verdicts = ConsistencyModel::LISTED.map(|model| (model, check(model, &operations)));
        for (model, verdict) in &verdicts {
            for (other, weaker) in &verdicts {
                let is_contradiction = model.implies(*other)
                    && verdict.valid == Validity::Valid
                    && weaker.valid != Validity::Valid;
                assert!(
                    !is_contradiction,
                    "seed {seed}: {model} holds and {other} does not: {weaker:?}"
                );
            }
        }
    }
}

#[test]
fn models_are_found_by_name() {
    for model in ConsistencyModel::LISTED {
        assert_eq!(ConsistencyModel::by_name(&model.to_string()), Some(model));
    }
    assert_eq!(ConsistencyModel::by_name("linearizable"), None);
}

#[test]
fn a_violation_names_its_operations() {
    use SmallAccess::{Read, Write};
    // Two processes see two concurrent writes in opposite orders: each view is one of its own.
    let opposite = [
        operation(0, 0, Write(1), 0),
        operation(1, 0, Write(2), 2),
        operation(2, 0, Read(1), 4),
        operation(2, 0, Read(2), 6),
        operation(3, 0, Read(2), 8),
        operation(3, 0, Read(1), 10),
    ];
    let is_of_sessions =
        |model: &ConsistencyModel| model.implies(ConsistencyModel::WritesFollowReads);
    for model in ConsistencyModel::LISTED.into_iter().filter(is_of_sessions) {
        let verdict = check(model, &opposite);
        let is_one_order = model.implies(ConsistencyModel::CausalConvergence);
        assert_eq!(
            verdict.valid == Validity::Invalid,
            is_one_order,
            "{model}: {verdict:?}"
        );
    }
    // The second process read y, which was written after x, and then no x.
    let causal = [
        operation(0, 0, Write(1), 0),
        operation(0, 1, Write(2), 2),
        operation(1, 1, Read(2), 4),
        operation(1, 0, Read(0), 6),
    ];
    let verdict = Consistency::new(ConsistencyModel::Pram).check(&history(&causal, true));
    assert_eq!(verdict.valid, Validity::Invalid);
    let finding = &verdict.findings[0];
    assert_eq!(finding.anomaly, "session-order-violation");
    assert_eq!(finding.operations, [1, 3, 5, 7]);
    assert_eq!(
        finding.summary,
        "No order of all writes that follows the order of each process explains the reads of process 1: each of these comes \
         before the next, and the last one before the first.\n  \
         the write of 1 to key 0 by op 1 (process 0), then the write of 2 to key 1 by op 3 (process 0)\n  \
         the write of 2 to key 1 by op 3 (process 0), whose value is returned by the read of 2 of key 1 by op 5 (process 1)\n  \
         the read of 2 of key 1 by op 5 (process 1), then the read of nil of key 0 by op 7 (process 1)\n  \
         the read of nil of key 0 by op 7 (process 1), before every write such as the write of 1 to key 0 by op 1 (process 0)"
    );
    let unknown = check(ConsistencyModel::MonotonicWrites, &causal);
    let Validity::Unknown(reason) = unknown.valid else {
        panic!("{unknown:?}");
    };
    assert_eq!(
        reason,
        "a single read shows one write, so it cannot contradict monotonic-writes alone; the history does not satisfy `pram`, \
         which would imply it: check that model"
    );
}

#[test]
fn a_process_that_reads_back_and_forth() {
    use SmallAccess::{Read, Write};
    let back = [
        operation(0, 0, Write(1), 0),
        operation(1, 0, Write(2), 2),
        operation(2, 0, Read(1), 4),
        operation(2, 0, Read(2), 6),
        operation(2, 0, Read(1), 8),
    ];
    let verdict = check(ConsistencyModel::MonotonicReads, &back);
    assert_eq!(
        verdict.findings[0].summary,
        "Process 2 read 1 of key 0 in op 5, then 2 in op 7, then 1 again in op 9."
    );
    assert_eq!(
        check(ConsistencyModel::ReadYourWrites, &back).valid,
        Validity::Valid
    );
    // Causal consistency orders nothing between reads of one process.
    assert_eq!(
        check(ConsistencyModel::Causal, &back).valid,
        Validity::Valid
    );
    assert_eq!(
        check(ConsistencyModel::Pram, &back).valid,
        Validity::Invalid
    );
    let missed = [operation(0, 0, Write(1), 0), operation(0, 0, Read(0), 2)];
    let verdict = check(ConsistencyModel::ReadYourWrites, &missed);
    assert_eq!(
        verdict.findings[0].summary,
        "Process 0 read nil of key 0 in op 3, after the write of 1 to key 0 by op 1 (process 0)."
    );
}
