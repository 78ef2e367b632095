//! Sets and queues of simulated databases, whose truth is known: sound ones are valid, planted anomalies are found.

use seatrial_check::by_name;
use seatrial_checker::{Validity, Verdict};
use seatrial_database::{Anomaly, Database, DatabaseOptions, DatabaseWorkload, StoreLevel};
use seatrial_history::History;

/// Seeds for each case.
const SEEDS: u64 = 6;

fn options(workload: DatabaseWorkload, seed: u64) -> DatabaseOptions {
    DatabaseOptions {
        seed,
        fail: 0.05,
        info: 0.02,
        ..DatabaseOptions::new(workload, 4_000)
    }
}

fn check(checker: &str, model: Option<&str>, history: &History) -> Verdict {
    by_name(checker, model).unwrap().check(history)
}

/// The history and how many anomalies of each kind are in it.
fn run(options: &DatabaseOptions) -> (History, Vec<(Anomaly, u64)>) {
    let mut database = Database::new(options).unwrap();
    let history = History::from_ops(database.by_ref().collect());
    (history, database.anomalies())
}

#[test]
fn sound_sets_and_queues_are_valid() {
    for seed in 0..SEEDS {
        for (workload, checkers) in [
            (DatabaseWorkload::Set, ["set", "set-full"]),
            (DatabaseWorkload::Queue, ["queue", "total-queue"]),
        ] {
            let (history, _) = run(&options(workload, seed));
            for checker in checkers {
                let verdict = check(checker, None, &history);
                let shown = &verdict.findings;
                // The last read of a set may be older than its last additions.
                if checker == "set" {
                    assert!(
                        !verdict.anomalies.contains_key("unexpected"),
                        "seed {seed}: {shown:?}"
                    );
                } else {
                    assert_eq!(
                        verdict.valid,
                        Validity::Valid,
                        "{checker} seed {seed}: {shown:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn weak_sets_are_stale_and_no_worse() {
    let mut stale = 0;
    for seed in 0..SEEDS {
        for isolation in [StoreLevel::Sequential, StoreLevel::Eventual] {
            let options = DatabaseOptions {
                isolation: Some(isolation),
                ..options(DatabaseWorkload::Set, seed)
            };
            let (history, _) = run(&options);
            let verdict = check("set-full", None, &history);
            stale += verdict.anomalies.get("stale").copied().unwrap_or_default();
            for anomaly in ["aborted-read", "duplicated", "unexpected"] {
                assert!(
                    !verdict.anomalies.contains_key(anomaly),
                    "seed {seed} {anomaly}"
                );
            }
        }
    }
    assert!(stale > 100, "{stale}");
}

#[test]
fn planted_anomalies_of_sets_are_found() {
    let names = |anomaly| match anomaly {
        Anomaly::G1a => ["aborted-read"].as_slice(),
        Anomaly::GarbageRead => &["unexpected"],
        // Lost if no later read has the element.
        Anomaly::GSingleProcess | Anomaly::StaleRead | Anomaly::LostWrite => &["stale", "lost"],
        other => panic!("{other:?}"),
    };
    for anomaly in Anomaly::all().filter(|one| one.is_seen_in(DatabaseWorkload::Set)) {
        for seed in 0..SEEDS {
            let options = DatabaseOptions {
                anomalies: vec![anomaly],
                anomaly_rate: 0.01,
                ..options(DatabaseWorkload::Set, seed)
            };
            let (history, planted) = run(&options);
            let verdict = check("set-full", None, &history);
            let found = names(anomaly)
                .iter()
                .map(|name| verdict.anomalies.get(name).copied());
            let found: u64 = found.flatten().sum();
            assert!(planted[0].1 > 0, "{anomaly:?} seed {seed}");
            assert_eq!(
                found, planted[0].1,
                "{anomaly:?} seed {seed}: {:?}",
                verdict.anomalies
            );
        }
    }
}

#[test]
fn planted_anomalies_of_queues_are_found() {
    for (anomaly, checker, name) in [
        (Anomaly::GarbageRead, "total-queue", "unexpected"),
        (Anomaly::GarbageRead, "queue", "unexpected"),
        (Anomaly::DuplicateElements, "queue", "duplicated"),
        (Anomaly::LostWrite, "total-queue", "lost"),
    ] {
        for seed in 0..SEEDS {
            let options = DatabaseOptions {
                anomalies: vec![anomaly],
                anomaly_rate: 0.01,
                info: 0.0,
                ..options(DatabaseWorkload::Queue, seed)
            };
            let (history, planted) = run(&options);
            let verdict = check(checker, None, &history);
            let found = verdict.anomalies.get(name).copied().unwrap_or_default();
            assert!(planted[0].1 > 0, "{anomaly:?} seed {seed}");
            assert_eq!(
                found, planted[0].1,
                "{anomaly:?} seed {seed}: {:?}",
                verdict.anomalies
            );
        }
    }
}
