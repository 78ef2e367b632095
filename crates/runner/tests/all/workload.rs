//! Each workload with its checkers, in a simulated test: a sound system is valid, a broken one is found out.

use crate::model::run;
use seatrial_check::for_workload;
use seatrial_checker::Validity;
use seatrial_generator::workload::NAMES;

/// Of each test.
const OPERATIONS: u64 = 2_000;

#[test]
fn every_workload_finds_out_the_broken_and_spares_the_sound() {
    for name in NAMES {
        let checkers = for_workload(name, None).unwrap();
        for seed in 0..10 {
            let check = |fault_every: u64| {
                let history = run(name, seed, fault_every, OPERATIONS);
                let verdicts = checkers.iter().map(|one| one.check(&history));
                verdicts.collect::<Vec<_>>()
            };
            let sound = check(u64::MAX);
            assert_eq!(
                Validity::of(&sound),
                Validity::Valid,
                "{name} seed {seed}: {sound:?}"
            );
            assert_eq!(
                Validity::of(&check(20)),
                Validity::Invalid,
                "{name} seed {seed}"
            );
        }
    }
}

#[test]
fn one_seed_is_one_schedule() {
    for name in NAMES {
        let [first, again, other] = [1, 1, 2].map(|seed| run(name, seed, u64::MAX, OPERATIONS));
        assert_eq!(first.ops(), again.ops(), "{name}");
        assert_ne!(first.ops(), other.ops(), "{name}");
    }
}
