//! Models of real time against their definitions.

use super::session_models::check;
use super::small_histories::{
    SmallAccess, SmallOperation, SmallShape, effective, history, random, some_choice,
};
use crate::{Consistency, ConsistencyModel};
use seatrial_checker::{Checker, Details, Figures, Validity, Verdict};
use seatrial_farm::histories;
use seatrial_history::OpType;
use seatrial_machine::Rng;

/// Is there an order of these operations that follows `before`, step by step?
fn has_order(
    all: &[SmallOperation],
    members: &[usize],
    before: &impl Fn(&SmallOperation, &SmallOperation) -> bool,
    order: &mut Vec<usize>,
    accepts: &impl Fn(&[usize], usize) -> bool,
) -> bool {
    if members.is_empty() {
        return true;
    }
    members.iter().any(|&next| {
        let is_blocked = members.iter().any(|&other| before(&all[other], &all[next]));
        if is_blocked || !accepts(order, next) {
            return false;
        }
        let rest: Vec<usize> = members.iter().copied().filter(|&it| it != next).collect();
        order.push(next);
        let found = has_order(all, &rest, before, order, accepts);
        order.pop();
        found
    })
}

fn real_time(one: &SmallOperation, other: &SmallOperation) -> bool {
    one.is_certain() && one.end < other.call
}

/// Does the read return one of the last `versions` writes of its key in this order?
fn is_fresh(all: &[SmallOperation], order: &[usize], next: usize, versions: usize) -> bool {
    let Some(value) = all[next].read() else {
        return true;
    };
    let writes = order
        .iter()
        .rev()
        .filter(|&&it| all[it].key == all[next].key);
    let last = writes.filter_map(|&it| all[it].written()).chain([0]);
    last.take(versions).any(|it| it == value)
}

fn regular(all: &[SmallOperation], read: usize) -> bool {
    let members = (0..all.len())
        .filter(|&it| it == read || all[it].written().is_some() && all[it].key == all[read].key);
    let members: Vec<usize> = members.collect();
    has_order(
        all,
        &members,
        &real_time,
        &mut Vec::new(),
        &|order, next| is_fresh(all, order, next, 1),
    )
}

fn reads(all: &[SmallOperation]) -> impl Iterator<Item = usize> {
    (0..all.len()).filter(|&it| all[it].read().is_some())
}

fn is_concurrent(all: &[SmallOperation], read: usize) -> bool {
    all.iter().any(|write| {
        write.written().is_some()
            && write.key == all[read].key
            && write.call < all[read].end
            && !real_time(write, &all[read])
    })
}

/// Is there, for each key, an order in which reads return one of the last `versions` writes, when reads begin `earlier`?
fn atomic(all: &[SmallOperation], versions: usize, earlier: u64) -> bool {
    let before = |one: &SmallOperation, other: &SmallOperation| {
        let earlier = if other.read().is_some() { earlier } else { 0 };
        one.is_certain() && one.end * 10 + earlier < other.call * 10
    };
    (0..3).all(|key| {
        let members = (0..all.len()).filter(|&it| all[it].key == key);
        let members: Vec<usize> = members.collect();
        has_order(all, &members, &before, &mut Vec::new(), &|order, next| {
            is_fresh(all, order, next, versions)
        })
    })
}

fn by_definition(model: ConsistencyModel, operations: &[SmallOperation]) -> bool {
    some_choice(operations, |all| match model {
        ConsistencyModel::Regular => reads(all).all(|read| regular(all, read)),
        ConsistencyModel::Safe => {
            reads(all).all(|read| is_concurrent(all, read) || regular(all, read))
        }
        ConsistencyModel::VersionStaleness(versions) => atomic(all, versions as usize, 0),
        ConsistencyModel::TimeStaleness(time) => atomic(all, 1, time.cast_unsigned()),
        _ => unreachable!("a model of sessions"),
    })
}

fn shape(rng: &mut Rng) -> SmallShape {
    SmallShape {
        operations: 2 + rng.index(7),
        processes: 1 + rng.index(4),
        keys: 1 + rng.index(2),
        has_cas: false,
        has_repeats: false,
        spoil: *rng.pick(&[0.1, 0.3, 0.6]),
        info: *rng.pick(&[0.0, 0.1, 0.3]),
    }
}

fn compare(model: ConsistencyModel, shape: impl Fn(&mut Rng) -> SmallShape, usual: u64) {
    let all = histories(usual);
    let mut counts = [0u64; 2];
    for seed in 0..all {
        let mut rng = Rng::from_seed(seed ^ 0x0057_a1e5);
        let shape = shape(&mut rng);
        let operations = random(&mut rng, shape);
        let expected = by_definition(model, &operations);
        let verdict = check(model, &operations);
        let shown = effective(&operations);
        let wanted = if expected {
            Validity::Valid
        } else {
            Validity::Invalid
        };
        assert_eq!(
            verdict.valid, wanted,
            "{model}, seed {seed}: {verdict:#?} {shown:#?}"
        );
        assert_eq!(
            verdict.findings.is_empty(),
            expected,
            "{model}, seed {seed}"
        );
        counts[usize::from(!expected)] += 1;
    }
    println!("{model}: {all} histories: valid, invalid: {counts:?}");
    assert!(
        counts.iter().all(|&count| count > all / 100),
        "{model}: {counts:?}"
    );
}

#[test]
fn regular_registers_are_those_of_all_orders() {
    let shape = |rng: &mut Rng| SmallShape {
        has_repeats: rng.chance(0.5),
        ..shape(rng)
    };
    compare(ConsistencyModel::Regular, shape, 10_000);
    compare(ConsistencyModel::Safe, shape, 10_000);
}

#[test]
fn staleness_by_versions_is_that_of_all_orders() {
    for versions in 1..5 {
        compare(ConsistencyModel::VersionStaleness(versions), shape, 4_000);
    }
}

#[test]
fn staleness_of_many_concurrent_writes() {
    let shape = |rng: &mut Rng| SmallShape {
        operations: 7 + rng.index(3),
        processes: 4,
        keys: 1,
        info: 0.02,
        ..shape(rng)
    };
    for versions in 2..4 {
        compare(ConsistencyModel::VersionStaleness(versions), shape, 1_500);
    }
}

#[test]
fn staleness_by_time_is_that_of_all_orders() {
    for time in [0, 10, 30, 60] {
        compare(ConsistencyModel::TimeStaleness(time), shape, 4_000);
    }
}

fn figure(verdict: &Verdict, name: &str) -> serde_json::Value {
    match &verdict.details {
        Details {
            figures: Figures::DataType(figures),
            ..
        } => figures.others.get(name).cloned().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_least_staleness_is_found() {
    let mut seen = [0; 5];
    for seed in 0..histories(3_000) {
        let mut rng = Rng::from_seed(seed ^ 0x1ea5);
        let shape = shape(&mut rng);
        let mut operations = random(&mut rng, shape);
        // Values that were never written have no least staleness.
        operations.retain(|it| it.read() != Some(999) && it.outcome != OpType::Fail);
        let all = effective(&operations);
        if operations.is_empty() {
            // Nothing is stale then, not even by the one version that is the least of a read.
            assert_eq!(
                figure(
                    &check(ConsistencyModel::VersionStaleness(1), &operations),
                    "smallest_k"
                ),
                0
            );
            continue;
        }
        if reads(&all).any(|it| {
            let value = all[it].read();
            value != Some(0) && !all.iter().any(|write| write.written() == value)
        }) {
            continue;
        }
        let verdict = check(ConsistencyModel::VersionStaleness(1), &operations);
        let holds =
            |versions, earlier| some_choice(&operations, |all| atomic(all, versions, earlier));
        let least = (1..20).find(|&versions| holds(versions, 0)).unwrap();
        assert_eq!(
            figure(&verdict, "smallest_k"),
            least,
            "seed {seed}: {verdict:?} {all:#?}"
        );
        let time = (0..1_000)
            .map(|step| step * 10)
            .find(|&time| holds(1, time))
            .unwrap();
        assert_eq!(
            figure(&verdict, "smallest_delta_ns"),
            time,
            "seed {seed}: {all:#?}"
        );
        seen[least.min(4)] += 1;
    }
    let enough = seatrial_farm::least(20);
    assert!(seen[1..4].iter().all(|&count| count > enough), "{seen:?}");
}

#[test]
fn models_of_real_time_imply_one_another() {
    for seed in 0..histories(2_000) {
        let mut rng = Rng::from_seed(seed ^ 0x0a70);
        let shape = SmallShape {
            operations: 10 + rng.index(40),
            spoil: *rng.pick(&[0.02, 0.05, 0.3]),
            ..shape(&mut rng)
        };
        let operations = random(&mut rng, shape);
        let holds = |model| check(model, &operations).valid == Validity::Valid;
        let linearizable = holds(ConsistencyModel::VersionStaleness(1));
        if linearizable {
            for model in ConsistencyModel::LISTED {
                assert!(holds(model), "seed {seed}: {model}");
            }
        }
        assert_eq!(
            linearizable,
            holds(ConsistencyModel::TimeStaleness(0)),
            "seed {seed}"
        );
        let mut is_weaker = linearizable;
        for versions in 2..6 {
            let is_stale = holds(ConsistencyModel::VersionStaleness(versions));
            assert!(is_stale || !is_weaker, "seed {seed}: {versions}");
            is_weaker = is_stale;
        }
        let regular = holds(ConsistencyModel::Regular);
        assert!(!regular || holds(ConsistencyModel::Safe), "seed {seed}");
    }
}

#[test]
fn names_have_numbers() {
    for name in ConsistencyModel::NAMES {
        let model = ConsistencyModel::by_name(name).unwrap();
        assert_eq!(model.to_string(), name);
        assert!(ConsistencyModel::LISTED.contains(&model));
    }
    let other = ConsistencyModel::by_name("within-250us");
    assert_eq!(other, Some(ConsistencyModel::TimeStaleness(250_000)));
    let other = ConsistencyModel::by_name("12-atomic");
    assert_eq!(other, Some(ConsistencyModel::VersionStaleness(12)));
    for wrong in [
        "0-atomic",
        "x-atomic",
        "within-",
        "within-5",
        "within-5h",
        "within-99999999999s",
    ] {
        assert_eq!(ConsistencyModel::by_name(wrong), None, "{wrong}");
    }
}

fn operation(process: u64, access: SmallAccess, call: u64, end: u64) -> SmallOperation {
    SmallOperation {
        process,
        key: 0,
        access,
        call,
        end,
        outcome: OpType::Ok,
    }
}

#[test]
fn a_stale_read_is_explained() {
    use SmallAccess::{Read, Write};
    let stale = [
        operation(0, Write(1), 0, 1),
        operation(0, Write(2), 2, 3),
        operation(0, Write(3), 4, 5),
        operation(1, Read(1), 6, 7),
    ];
    let summary = |model| check(model, &stale).findings[0].summary.clone();
    assert_eq!(
        summary(ConsistencyModel::Regular),
        "The read of 1 of key 0 by op 7 (process 1) returned an old value: the write of 3 to key 0 by op 5 (process 0) began \
         after the write of 1 to key 0 by op 1 (process 0) had ended, and ended before the read began."
    );
    assert_eq!(
        summary(ConsistencyModel::VersionStaleness(2)),
        "The read of 1 of key 0 by op 7 (process 1) returned the version of the write of 1 to key 0 by op 1 (process 0), at \
         least the 3rd newest: 2 newer writes had ended before the read began:\n  \
         the write of 2 to key 0 by op 3 (process 0)\n  \
         the write of 3 to key 0 by op 5 (process 0)"
    );
    assert_eq!(
        summary(ConsistencyModel::TimeStaleness(20)),
        "Two values of key 0 were each seen before the other; reads must begin at least 30ns earlier to explain them:\n  \
         1: the write of 1 to key 0 by op 1 (process 0), last returned by the read of 1 of key 0 by op 7 (process 1)\n  \
         2: the write of 2 to key 0 by op 3 (process 0)"
    );
    let verdict = check(ConsistencyModel::VersionStaleness(3), &stale);
    assert_eq!(verdict.valid, Validity::Valid);
    // A read that ended before its write began.
    let early = [operation(0, Read(1), 0, 1), operation(1, Write(1), 2, 3)];
    for model in ConsistencyModel::LISTED {
        let verdict = check(model, &early);
        let is_of_sessions = !model.is_stale()
            && !matches!(model, ConsistencyModel::Regular | ConsistencyModel::Safe);
        assert_eq!(
            verdict.valid == Validity::Valid,
            is_of_sessions,
            "{model}: {verdict:?}"
        );
    }
    // Without keys, and without times.
    let plain = history(&stale, false);
    let verdict = Consistency::new(ConsistencyModel::VersionStaleness(3)).check(&plain);
    assert_eq!(verdict.valid, Validity::Valid);
}

#[test]
fn swapped_reads_are_reduced_to_a_core() {
    use SmallAccess::{Read, Write};
    // Two concurrent writes, read in turns: 1, 2, 1, among other operations.
    let mut operations = vec![
        operation(0, Write(1), 0, 3),
        operation(1, Write(2), 1, 2),
        operation(2, Read(1), 4, 5),
        operation(2, Read(2), 6, 7),
        operation(2, Read(1), 8, 9),
    ];
    for number in 0..100u64 {
        let at = 10 + 4 * number;
        operations.push(operation(3, Write(10 + number.cast_signed()), at, at + 1));
        operations.push(operation(
            4,
            Read(10 + number.cast_signed()),
            at + 2,
            at + 3,
        ));
    }
    let verdict = check(ConsistencyModel::VersionStaleness(1), &operations);
    let finding = &verdict.findings[0];
    assert!(
        finding
            .summary
            .starts_with("These 5 operations alone have no order"),
        "{finding:?}"
    );
    assert_eq!(figure(&verdict, "smallest_k"), 2);
}
