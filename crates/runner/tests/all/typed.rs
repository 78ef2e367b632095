//! Generated histories of data types: valid ones of 4 to 1,000 clients, and planted anomalies, which their checkers find.

use seatrial_check::by_name;
use seatrial_checker::{Checker, Validity, certify};
use seatrial_database::{Anomaly, Database, DatabaseOptions, DatabaseWorkload};
use seatrial_generator::KeyDistribution;
use seatrial_history::History;

/// The data types with their models, if they have several.
const TYPES: [(DatabaseWorkload, Option<&str>); 6] = [
    (DatabaseWorkload::LinearizableSet, None),
    (DatabaseWorkload::AppendLog, None),
    (DatabaseWorkload::BlockDevice, None),
    (DatabaseWorkload::MultiRegister, None),
    (DatabaseWorkload::Semaphore, Some("permits:3")),
    (DatabaseWorkload::LinearizableLock, Some("fenced")),
];

fn options(workload: DatabaseWorkload, clients: u32, seed: u64) -> DatabaseOptions {
    DatabaseOptions {
        seed,
        concurrency: clients,
        keys: clients.div_ceil(4),
        distribution: KeyDistribution::Uniform,
        info: 0.01,
        writes_per_key: 20..=60,
        ..DatabaseOptions::new(workload, u64::from(clients) * 20 + 2_000)
    }
}

fn history(options: &DatabaseOptions) -> (History, Vec<(Anomaly, u64)>) {
    let mut database = Database::new(options).unwrap();
    let history = History::from_ops(database.by_ref().collect());
    (history, database.anomalies())
}

fn checker(workload: DatabaseWorkload, model: Option<&str>) -> Box<dyn Checker> {
    by_name(workload.name(), model).unwrap()
}

#[test]
fn sound_data_types_are_valid_with_any_number_of_clients() {
    for (workload, model) in TYPES {
        for clients in [4, 30, 200, 1_000] {
            let options = options(workload, clients, u64::from(clients));
            let (history, _) = history(&options);
            let checker = checker(workload, model);
            let (verdict, certificate) = certify(&*checker, &history).unwrap();
            assert_eq!(
                verdict.valid,
                Validity::Valid,
                "{workload:?} {clients}: {:?} {:?}",
                verdict.reason,
                verdict.findings
            );
            let certificate = certificate.unwrap_or_else(|| {
                panic!("{workload:?} {clients}: {:?}", verdict.details.unproven)
            });
            assert_eq!(seatrial_verify::verify(&history, &certificate), Ok(()));
        }
    }
}

#[test]
fn planted_anomalies_of_data_types_are_found() {
    for (workload, model) in TYPES {
        let mut found = 0;
        for anomaly in Anomaly::all().filter(|one| one.is_seen_in(workload)) {
            for clients in [4, 100, 1_000] {
                let options = DatabaseOptions {
                    anomalies: vec![anomaly],
                    anomaly_at: Some(0.7),
                    ..options(workload, clients, 7)
                };
                assert!(!options.is_valid());
                let (history, counts) = history(&options);
                assert_eq!(counts, [(anomaly, 1)]);
                let checker = checker(workload, model);
                let (verdict, certificate) = certify(&*checker, &history).unwrap();
                let what = format!("{workload:?} {anomaly:?} {clients}");
                assert_eq!(
                    verdict.valid,
                    Validity::Invalid,
                    "{what} {:?}",
                    verdict.reason
                );
                // One key is not linearizable, and no other.
                assert_eq!(verdict.findings.len(), 1, "{what}");
                let certificate =
                    certificate.unwrap_or_else(|| panic!("{what}: {:?}", verdict.details.unproven));
                assert_eq!(
                    seatrial_verify::verify(&history, &certificate),
                    Ok(()),
                    "{what}"
                );
                found += 1;
            }
        }
        assert!(found >= 6, "at least two anomalies of {workload:?}");
    }
}
