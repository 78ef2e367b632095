//! Each workload with its checkers, in a simulated test: a sound system is valid, a broken one is found out.

use crate::model::run;
use seatrial_checker::{Validity, compose, for_workload};
use seatrial_generator::workload::NAMES;

/// Of each test.
const OPERATIONS: u64 = 2_000;

#[test]
fn every_workload_finds_out_the_broken_and_spares_the_sound() {
    for name in NAMES {
        let checkers = for_workload(name, None).unwrap();
        for seed in 0..10 {
            let sound = compose(&checkers, &run(name, seed, u64::MAX, OPERATIONS));
            assert_eq!(
                sound.valid,
                Validity::Valid,
                "{name} seed {seed}: {sound:?}"
            );
            let broken = compose(&checkers, &run(name, seed, 20, OPERATIONS));
            assert_eq!(broken.valid, Validity::Invalid, "{name} seed {seed}");
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
