use super::*;
use seatrial_generator::KeyDistribution;
use seatrial_history::{Mop, Observed};
use std::collections::{BTreeMap, BTreeSet};

fn options(workload: DatabaseWorkload, operations: u64, seed: u64) -> DatabaseOptions {
    DatabaseOptions {
        seed,
        ..DatabaseOptions::new(workload, operations)
    }
}

#[test]
fn same_seed_same_history() {
    let objects = [
        DatabaseWorkload::Register,
        DatabaseWorkload::Set,
        DatabaseWorkload::Queue,
    ];
    let objects = objects.map(|workload| (workload, workload.strongest()));
    let transactions = StoreLevel::TRANSACTIONS.map(|level| (DatabaseWorkload::ListAppend, level));
    for (workload, isolation) in transactions.into_iter().chain(objects) {
        let options = DatabaseOptions {
            isolation: Some(isolation),
            ..options(workload, 3_000, 7)
        };
        let (one, two) = (Database::new(&options), Database::new(&options));
        assert!(one.unwrap().eq(two.unwrap()), "{isolation:?}");
        let other = DatabaseOptions {
            seed: 8,
            ..options.clone()
        };
        let (one, other) = (Database::new(&options), Database::new(&other));
        assert!(one.unwrap().ne(other.unwrap()), "{isolation:?}");
    }
}

/// Any options at all.
fn random_options(seed: u64) -> DatabaseOptions {
    let mut rng = Rng::from_seed(seed);
    let workload = *rng.pick(&DatabaseWorkload::ALL);
    let low = 1 + rng.below(4) as u32;
    let odd = if workload == DatabaseWorkload::Queue {
        0
    } else {
        rng.below(2)
    };
    let mut options = DatabaseOptions {
        isolation: Some(*rng.pick(workload.levels())),
        concurrency: 1 + rng.below(20) as u32,
        keys: 1 + rng.below(12) as u32,
        distribution: *rng.pick(&KeyDistribution::ALL),
        transaction_length: low..=low + rng.below(5) as u32,
        writes_per_key: 1..=1 + rng.below(40) as u32,
        fail: rng.unit() / 3.0,
        info: rng.unit() / 3.0,
        anomaly_rate: rng.unit() / 2.0,
        even_lengths: rng.chance(0.5),
        reads: rng.unit(),
        ..options(workload, 2 + 2 * rng.below(1_000) + odd, seed)
    };
    let is_transactional = matches!(
        workload,
        DatabaseWorkload::ListAppend | DatabaseWorkload::RwRegister
    );
    if is_transactional {
        options.read_before_write = rng.chance(0.3);
        options.no_key_twice = rng.chance(0.5) && *options.transaction_length.end() <= options.keys;
        options.timestamps = rng.chance(0.5) && options.store().has_snapshots();
    }
    let isolation = options.isolation;
    let mut anomalies = Anomaly::all();
    let fits = |one: &Anomaly| {
        one.is_seen_in(workload)
            && isolation.is_some_and(|level| one.is_admitted_by(level))
            && one.processes() <= options.concurrency
    };
    options.anomalies = anomalies.by_ref().filter(fits).collect();
    options
}

/// Every history is one that a recorder could have written.
#[test]
fn histories_are_well_formed() {
    for seed in 0..120 {
        let options = random_options(seed);
        let mut database = Database::new(&options).unwrap();
        let ops: Vec<Op> = database.by_ref().collect();
        assert_eq!(ops.len() as u64, options.operations, "seed {seed}");
        let mut open: BTreeMap<Process, Op> = BTreeMap::new();
        let (mut crashed, mut time, mut counts) = (BTreeSet::new(), 0, [0; 4]);
        for (index, op) in ops.iter().enumerate() {
            assert_eq!(op.index, index as u64, "seed {seed}");
            assert!(op.time >= time, "seed {seed}: {op} goes back in time");
            time = op.time;
            counts[op.kind as usize] += 1;
            assert!(!crashed.contains(&op.process), "seed {seed}: {op}");
            if op.is_invoke() {
                assert!(open.insert(op.process, op.clone()).is_none(), "seed {seed}");
                assert!(open.len() <= options.concurrency as usize, "seed {seed}");
                continue;
            }
            let invocation = open.remove(&op.process).unwrap();
            assert_eq!(invocation.f, op.f, "seed {seed}");
            if op.is_info() {
                crashed.insert(op.process);
            }
            let (Value::Txn(invoked), Value::Txn(completed)) = (&invocation.value, &op.value)
            else {
                // All operations on the data types return a result.
                let has_result = ["read", "dequeue", "drain"].contains(&op.f.as_str())
                    || options.workload > DatabaseWorkload::Queue;
                assert!(
                    has_result && op.is_ok() || op.value == invocation.value,
                    "{op}"
                );
                continue;
            };
            assert_eq!(invoked.len(), completed.len(), "seed {seed}");
            for (before, after) in invoked.iter().zip(completed.iter()) {
                assert_eq!(before.key(), after.key(), "seed {seed}");
                if !matches!((before, op.is_ok()), (Mop::Read { .. }, true)) {
                    assert_eq!(before, after, "seed {seed}");
                }
            }
        }
        assert!(open.len() as u64 <= options.operations % 2, "seed {seed}");
        assert_eq!(database.counts(), counts, "seed {seed}");
    }
}

/// The strongest store against a model that replays completions: every list that is read is a prefix of the longest.
#[test]
fn lists_of_a_strict_store_grow_at_their_ends() {
    let options = options(DatabaseWorkload::ListAppend, 20_000, 3);
    let mut longest: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let (mut reads, mut lengths) = (0, 0);
    for op in Database::new(&options).unwrap().filter(Op::is_ok) {
        for mop in op.value.as_txn().unwrap() {
            let (
                seatrial_history::Key::Int(key),
                Mop::Read {
                    observed: Observed::List(seen),
                    ..
                },
            ) = (mop.key(), mop)
            else {
                continue;
            };
            let known = longest.entry(*key).or_default();
            let common = known.len().min(seen.len());
            assert_eq!(known[..common], seen[..common], "{op}");
            known.extend_from_slice(&seen[common..]);
            reads += 1;
            lengths += seen.len();
        }
    }
    assert!(longest.len() > 50, "keys retire: {}", longest.len());
    let mean = lengths / reads;
    assert!((85..110).contains(&mean), "{mean} elements a read");
}

#[test]
fn transactions_have_the_shape_that_is_asked_for() {
    for distribution in KeyDistribution::ALL {
        let options = DatabaseOptions {
            transaction_length: 1..=15,
            even_lengths: true,
            keys: 40,
            distribution,
            reads: 0.25,
            no_key_twice: true,
            writes_per_key: 1..=3,
            ..options(DatabaseWorkload::RwRegister, 8_000, 2)
        };
        let (mut lengths, mut writes) = ([0_u32; 16], 0);
        for op in Database::new(&options).unwrap().filter(Op::is_invoke) {
            let mops = op.value.as_txn().unwrap();
            let keys: BTreeSet<_> = mops.iter().map(Mop::key).collect();
            assert_eq!(keys.len(), mops.len(), "{op}");
            lengths[mops.len()] += 1;
            let written = mops.iter().filter(|mop| matches!(mop, Mop::Write { .. }));
            writes += written.count();
        }
        assert_eq!(lengths[0], 0);
        let even = 4_000 / 15;
        let is_even = |&count: &u32| count.abs_diff(even) < even / 3;
        assert!(lengths[1..].iter().all(is_even), "{lengths:?}");
        assert!((23_000..25_000).contains(&writes), "{writes} of 32,000");
    }
    let options = DatabaseOptions {
        read_before_write: true,
        keys: 3,
        ..options(DatabaseWorkload::RwRegister, 4_000, 2)
    };
    let mut reads_besides = 0;
    for op in Database::new(&options).unwrap() {
        let mops = op.value.as_txn().unwrap();
        for (place, mop) in mops.iter().enumerate() {
            if matches!(mop, Mop::Write { .. }) {
                let before = &mops[place - 1];
                assert!(matches!(before, Mop::Read { .. }) && before.key() == mop.key());
                reads_besides += 1;
            }
        }
    }
    assert!(reads_besides > 4_000, "{reads_besides}");
}

#[test]
fn an_anomaly_can_come_once_and_late() {
    for anomalies in [
        vec![Anomaly::NonMonotonicRead],
        vec![Anomaly::G2Item, Anomaly::G1c],
    ] {
        let options = DatabaseOptions {
            anomalies: anomalies.clone(),
            anomaly_at: Some(0.9),
            ..options(DatabaseWorkload::RwRegister, 20_000, 4)
        };
        let mut database = Database::new(&options).unwrap();
        let others = |op: &Op| matches!(op.process, Process::Client(number) if number >= 100);
        let crashed: Vec<Op> = database.by_ref().collect();
        let once: Vec<_> = anomalies.iter().map(|&anomaly| (anomaly, 1)).collect();
        assert_eq!(database.anomalies(), once);
        // Processes above the first hundred follow crashes, or play a part.
        assert!(crashed.iter().any(others));
        assert_eq!(crashed.len(), 20_000);
    }
    let first = |at: Option<f64>| {
        let options = DatabaseOptions {
            anomalies: vec![Anomaly::G1c],
            anomaly_at: at,
            info: 0.0,
            ..options(DatabaseWorkload::RwRegister, 20_000, 4)
        };
        let mut database = Database::new(&options).unwrap();
        let is_part = |op: &Op| matches!(op.process, Process::Client(number) if number >= 100);
        database.find(is_part).unwrap().index
    };
    assert!((17_900..18_200).contains(&first(Some(0.9))));
    assert!(first(Some(0.0)) < 10);
}

/// A key that is written for ever takes no more memory than its last versions.
#[test]
fn a_key_may_be_written_for_ever() {
    for isolation in [StoreLevel::Serializable, StoreLevel::StrictSerializable] {
        let options = DatabaseOptions {
            isolation: Some(isolation),
            keys: 1,
            writes_per_key: 1 << 30..=1 << 30,
            ..options(DatabaseWorkload::RwRegister, 20_000, 5)
        };
        let mut database = Database::new(&options).unwrap();
        let mut written = BTreeSet::new();
        for op in database.by_ref() {
            for mop in op.value.as_txn().unwrap() {
                match mop {
                    Mop::Write { value, .. } => drop(written.insert(*value)),
                    Mop::Read { observed, .. } => {
                        if let Observed::Register(value) = observed {
                            assert!(written.contains(value), "{op}");
                        }
                    }
                    Mop::Append { .. } => panic!("{op}"),
                }
            }
        }
        assert!(written.len() > 20_000);
        let StoreSystem::Transactions(transactions) = &database.system else {
            panic!("transactions");
        };
        assert!(transactions.store.at(0).elements.len() < 10_000);
    }
}

/// Unreachable versions are freed.
#[test]
fn memory_does_not_grow_with_the_history() {
    for isolation in StoreLevel::TRANSACTIONS {
        let options = DatabaseOptions {
            isolation: Some(isolation),
            writes_per_key: 4..=16,
            info: 0.05,
            ..options(DatabaseWorkload::RwRegister, 40_000, 5)
        };
        let mut database = Database::new(&options).unwrap();
        assert_eq!(database.by_ref().count(), 40_000);
        let StoreSystem::Transactions(transactions) = &mut database.system else {
            panic!("transactions");
        };
        let keys = transactions.store.foreign_key();
        let slots = transactions.store.len();
        assert!(
            keys > 3_000 && slots < 150,
            "{isolation:?}: {slots} of {keys}"
        );
    }
}

/// Why a history with this change cannot be made.
fn error_of(change: fn(&mut DatabaseOptions)) -> String {
    let mut options = options(DatabaseWorkload::ListAppend, 10, 1);
    change(&mut options);
    Database::new(&options).err().unwrap().to_string()
}

#[test]
fn invalid_options_are_errors() {
    assert_eq!(
        error_of(|options| options.concurrency = 0),
        "concurrency 0 to 0 must be between 1 and 65535, the lower end first"
    );
    assert_eq!(
        error_of(|options| (options.fail, options.info) = (0.8, 0.3)),
        "0.8 fail and 0.3 info must be fractions of all operations, together at most 1"
    );
    assert_eq!(
        error_of(|options| {
            options.anomalies = vec![Anomaly::G2Item];
            options.isolation = Some(StoreLevel::Serializable);
        }),
        "serializable excludes G2-item; levels that allow it: read-uncommitted, read-committed, read-atomic, \
         prefix, snapshot-isolation, strong-session-snapshot-isolation, strong-snapshot-isolation. Without a level \
         the store is strict except for the anomaly"
    );
    assert_eq!(
        error_of(|options| {
            options.workload = DatabaseWorkload::Queue;
            options.anomalies = vec![Anomaly::G0];
        }),
        "queue cannot show G0 (available: garbage-read, duplicate-elements, lost-write)"
    );
    assert_eq!(
        error_of(|options| {
            options.concurrency = 3;
            options.anomalies = vec![Anomaly::GNonadjacent];
        }),
        "G-nonadjacent needs 4 processes, found a concurrency of 3"
    );
    assert_eq!(
        error_of(|options| options.isolation = Some(StoreLevel::Linearizable)),
        format!(
            "list-append has no isolation linearizable (available: {})",
            StoreLevel::TRANSACTIONS.map(StoreLevel::name).join(", ")
        )
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = error_of(|options| options.transaction_length = 3..=2);
    assert_eq!(
        reversed,
        "transaction length 3 to 2 must be between 1 and 64, the lower end first"
    );
}

#[test]
fn inconsistent_transaction_options_are_errors() {
    assert_eq!(
        error_of(|options| (options.no_key_twice, options.keys) = (true, 7)),
        "8 micro-operations on distinct keys need as many keys, found 7"
    );
    assert_eq!(
        error_of(|options| {
            options.timestamps = true;
            options.isolation = Some(StoreLevel::ReadCommitted);
        }),
        "read-committed has no snapshots, so there are no timestamps"
    );
    assert_eq!(
        error_of(|options| {
            options.workload = DatabaseWorkload::Set;
            options.read_before_write = true;
        }),
        "set has no transactions, so options of transactions do not apply"
    );
    assert_eq!(
        error_of(|options| {
            options.workload = DatabaseWorkload::Queue;
            options.anomaly_at = Some(0.9);
        }),
        "queue supports anomalies only at a rate"
    );
    assert_eq!(
        error_of(|options| options.anomaly_at = Some(1.5)),
        "anomalies must be a fraction of all operations from 0 to 1, found 1.5"
    );
    assert_eq!(
        error_of(|options| options.reads = -0.5),
        "reads must be a fraction of micro-operations from 0 to 1, found -0.5"
    );
}
