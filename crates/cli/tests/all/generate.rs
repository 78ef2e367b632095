//! Generated histories against the checkers: what the generator says about them is what the checkers find.

use seatrial_checker::txn::{Level, ListAppend, RwRegister};
use seatrial_checker::{Checker, Validity, Verdict};
use seatrial_generator::database::{Database, Isolation, Options, Workload};
use seatrial_history::History;
use std::collections::BTreeSet;

/// Seeds for each level and workload.
const SEEDS: u64 = 24;

fn options(workload: Workload, isolation: Isolation, seed: u64) -> Options {
    Options {
        isolation,
        seed,
        concurrency: 10 + 5 * (seed % 5) as u32,
        keys: 2 + (seed % 7) as u32,
        fail: [0.0, 0.015, 0.1][seed as usize % 3],
        info: [0.005, 0.0, 0.05][seed as usize / 3 % 3],
        ..Options::new(workload, 2_000)
    }
}

fn verdict(workload: Workload, level: Level, history: &History) -> Verdict {
    match workload {
        Workload::RwRegister => RwRegister::new(level).check(history),
        Workload::ListAppend => ListAppend::new(level).check(history),
    }
}

fn level(isolation: Isolation) -> Level {
    Level::by_name(isolation.name()).unwrap()
}

/// Levels that are stronger than this one, as little as may be, and that anomalies can tell from it.
fn stronger(isolation: Isolation) -> &'static [Level] {
    match isolation {
        Isolation::ReadUncommitted => &[Level::ReadCommitted],
        Isolation::ReadCommitted => &[Level::ReadAtomic, Level::CursorStability],
        Isolation::ReadAtomic => &[Level::UpdateAtomic, Level::ConsistentView],
        Isolation::Prefix => &[Level::SnapshotIsolation],
        Isolation::SnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSessionSnapshotIsolation]
        }
        Isolation::StrongSessionSnapshotIsolation => {
            &[Level::RepeatableRead, Level::StrongSnapshotIsolation]
        }
        Isolation::StrongSnapshotIsolation => &[Level::RepeatableRead],
        Isolation::Serializable => &[Level::StrongSessionSerializable],
        Isolation::StrongSessionSerializable => &[Level::StrictSerializable],
        Isolation::StrictSerializable => &[],
    }
}

#[test]
fn a_level_holds_and_the_next_does_not() {
    for workload in [Workload::ListAppend, Workload::RwRegister] {
        for isolation in Isolation::TRANSACTIONS {
            let mut broken: BTreeSet<Level> = BTreeSet::new();
            for seed in 0..SEEDS {
                let options = options(workload, isolation, seed);
                let history = History::strict(Database::new(&options).unwrap().collect()).unwrap();
                let kept = verdict(workload, level(isolation), &history);
                assert_eq!(
                    kept.valid,
                    Validity::Valid,
                    "{workload:?} {isolation:?} seed {seed}: {:?}",
                    kept.findings
                );
                for &level in stronger(isolation) {
                    if verdict(workload, level, &history).valid == Validity::Invalid {
                        broken.insert(level);
                    }
                }
            }
            let expected: BTreeSet<Level> = stronger(isolation).iter().copied().collect();
            assert_eq!(broken, expected, "{workload:?} {isolation:?}");
        }
    }
}
