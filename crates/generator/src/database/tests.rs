use super::*;
use crate::Distribution;
use seatrial_history::{Mop, Observed};
use std::collections::{BTreeMap, BTreeSet};

fn options(workload: Workload, operations: u64, seed: u64) -> Options {
    Options {
        seed,
        ..Options::new(workload, operations)
    }
}

#[test]
fn same_seed_same_history() {
    let objects = [Workload::Register, Workload::Set, Workload::Queue];
    let objects = objects.map(|workload| (workload, workload.strongest()));
    let transactions = Isolation::TRANSACTIONS.map(|level| (Workload::ListAppend, level));
    for (workload, isolation) in transactions.into_iter().chain(objects) {
        let options = Options {
            isolation: Some(isolation),
            ..options(workload, 3_000, 7)
        };
        let (one, two) = (Database::new(&options), Database::new(&options));
        assert!(one.unwrap().eq(two.unwrap()), "{isolation:?}");
        let other = Options {
            seed: 8,
            ..options.clone()
        };
        let (one, other) = (Database::new(&options), Database::new(&other));
        assert!(one.unwrap().ne(other.unwrap()), "{isolation:?}");
    }
}

/// Any options at all.
fn random_options(seed: u64) -> Options {
    let mut rng = Rng::from_seed(seed);
    let workload = *rng.pick(&Workload::ALL);
    let low = 1 + rng.below(4) as u32;
    let odd = if workload == Workload::Queue {
        0
    } else {
        rng.below(2)
    };
    let mut options = Options {
        isolation: Some(*rng.pick(workload.levels())),
        concurrency: 1 + rng.below(20) as u32,
        keys: 1 + rng.below(12) as u32,
        distribution: *rng.pick(&Distribution::ALL),
        transaction_length: low..=low + rng.below(5) as u32,
        writes_per_key: 1..=1 + rng.below(40) as u32,
        fail: rng.unit() / 3.0,
        info: rng.unit() / 3.0,
        anomaly_rate: rng.unit() / 2.0,
        ..options(workload, 2 + 2 * rng.below(1_000) + odd, seed)
    };
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
                let is_read = ["read", "dequeue", "drain"].contains(&op.f.as_str());
                assert!(
                    is_read && op.is_ok() || op.value == invocation.value,
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
    let options = options(Workload::ListAppend, 20_000, 3);
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

/// What nobody can see any more is forgotten.
#[test]
fn memory_does_not_grow_with_the_history() {
    for isolation in Isolation::TRANSACTIONS {
        let options = Options {
            isolation: Some(isolation),
            writes_per_key: 4..=16,
            info: 0.05,
            ..options(Workload::RwRegister, 40_000, 5)
        };
        let mut database = Database::new(&options).unwrap();
        assert_eq!(database.by_ref().count(), 40_000);
        let System::Transactions(transactions) = &mut database.system else {
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

#[test]
fn what_cannot_be_simulated_is_told() {
    let told = |change: fn(&mut Options)| {
        let mut options = options(Workload::ListAppend, 10, 1);
        change(&mut options);
        Database::new(&options).err().unwrap().to_string()
    };
    assert_eq!(
        told(|options| options.concurrency = 0),
        "a concurrency of 0 to 0: it must lie between 1 and 65535, the lower end first"
    );
    assert_eq!(
        told(|options| (options.fail, options.info) = (0.8, 0.3)),
        "0.8 fail and 0.3 info: both are shares of all operations, together at most 1"
    );
    assert_eq!(
        told(|options| {
            options.anomalies = vec![Anomaly::G2Item];
            options.isolation = Some(Isolation::Serializable);
        }),
        "serializable excludes G2-item; those that have it are read-uncommitted, read-committed, read-atomic, \
         prefix, snapshot-isolation, strong-session-snapshot-isolation, strong-snapshot-isolation. Without a level \
         the store is strict but for the anomaly"
    );
    assert_eq!(
        told(|options| {
            options.workload = Workload::Queue;
            options.anomalies = vec![Anomaly::G0];
        }),
        "queue cannot show G0; it can show garbage-read, duplicate-elements, lost-write"
    );
    assert_eq!(
        told(|options| {
            options.concurrency = 3;
            options.anomalies = vec![Anomaly::GNonadjacent];
        }),
        "G-nonadjacent takes 4 processes, and there are 3"
    );
    assert_eq!(
        told(|options| options.isolation = Some(Isolation::Linearizable)),
        format!(
            "list-append has no isolation linearizable; it has {}",
            Isolation::TRANSACTIONS.map(Isolation::name).join(", ")
        )
    );
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = told(|options| options.transaction_length = 3..=2);
    assert_eq!(
        reversed,
        "a transaction length of 3 to 2: it must lie between 1 and 64, the lower end first"
    );
}
