use super::*;
use seatrial_generator::workload::WorkloadOptions;
use seatrial_generator::{FaultOptions, FaultOrder};
use seatrial_history::{OpType, Value};
use seatrial_report::fault_windows;
use seatrial_suite::{OptionValues, Work};
use std::collections::BTreeSet;
use std::time::Duration;

/// What `kv` has to survive.
const SURVIVED: [FaultKind; 7] = [
    FaultKind::Kill,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Packet,
    FaultKind::Clock,
    FaultKind::Disk,
    FaultKind::Membership,
];

/// A schedule of these kinds of faults on three nodes with `concurrency` clients.
fn faults_of(kinds: &[FaultKind], concurrency: u32) -> FaultOptions {
    let clients: Vec<NodeId> = (0..concurrency).map(NodeId::client).collect();
    let servers: Vec<NodeId> = (1..=3).map(NodeId::server).collect();
    FaultOptions::new(kinds, servers, clients, Duration::ZERO)
}

fn run(seed: u64, kinds: &[FaultKind], order: FaultOrder) -> SimulatedRun {
    let mut faults = faults_of(kinds, 4);
    faults.order = order;
    let simulation = SimulatedTest {
        seed,
        work: Work::Named(
            ["list-append", "register"][(seed % 2) as usize],
            WorkloadOptions::default(),
        ),
        faults,
        order: None,
        operations: 300,
        concurrency: 4,
        operation_interval: Some(Duration::from_millis(1)),
        bug: None,
        options: OptionValues::default(),
    };
    SUITE.run(&simulation).unwrap()
}

/// The clients' operations in order, without their times and processes.
fn asked(run: &SimulatedRun) -> Vec<String> {
    let clients = run.history.clients();
    let invocations = clients.iter().filter(|op| op.is_invoke());
    invocations
        .map(|op| format!("{} {}", op.f, op.value))
        .collect()
}

/// Transactions on lists: which one comes next does not depend on who asks. (Registers belong to groups of threads.)
#[test]
fn other_faults_leave_the_clients_asking_for_the_same() {
    for seed in [0, 2, 4, 6, 8, 10] {
        let calm = asked(&run(seed, &[], FaultOrder::Mix));
        assert!(calm.len() > 100, "seed {seed}: {}", calm.len());
        let mut compared = 0;
        let all = SURVIVED
            .iter()
            .map(|kind| vec![*kind])
            .chain([SURVIVED.to_vec()]);
        for kinds in all {
            for order in FaultOrder::ALL {
                let rough = asked(&run(seed, &kinds, order));
                let common = rough.len().min(calm.len());
                assert_eq!(
                    rough[..common],
                    calm[..common],
                    "seed {seed}, {kinds:?}, {order}"
                );
                compared += common;
            }
        }
        assert!(compared > 1_000, "seed {seed}: {compared}");
    }
}

#[test]
fn one_seed_is_one_run_byte_for_byte() {
    let mut kinds = SURVIVED.to_vec();
    kinds.push(FaultKind::Corruption);
    for seed in 0..10 {
        for order in FaultOrder::ALL {
            seatrial_sim::same_twice(seed, |seed| {
                let run = run(seed, &kinds, order);
                let lines = run.history.iter().map(|op| format!("{op:?}"));
                (lines.collect::<Vec<_>>(), run.fingerprint, run.world)
            });
        }
    }
}

#[test]
fn after_the_healing_nothing_is_broken_and_operations_succeed() {
    let mut served = 0;
    for seed in 0..60 {
        let order = FaultOrder::ALL[(seed % 3) as usize];
        let run = run(seed, &SURVIVED, order);
        assert!(
            run.boot_failures.is_empty(),
            "seed {seed}: {:?}",
            run.boot_failures
        );
        for window in fault_windows(&run.history) {
            let is_over = window.end.is_some() || window.instant || window.error.is_some();
            assert!(is_over, "seed {seed}, {order}: {window:?}");
        }
        let mended = run
            .history
            .iter()
            .rfind(|op| op.process == Process::NEMESIS);
        let mended = mended.map_or(0, |op| op.time);
        let after = run
            .history
            .iter()
            .filter(|op| op.time > mended && op.is_ok());
        served += usize::from(after.count() > 0);
    }
    // In a rough world, or with all operations done before, no client sends requests any more.
    assert!(served > 30, "{served}");
}

#[test]
fn at_the_end_clients_look_at_all_there_is() {
    for workload in ["set", "counter", "queue", "bank"] {
        let options = WorkloadOptions {
            writes_per_key: matches!(workload, "set" | "counter").then_some(20),
            ..WorkloadOptions::default()
        };
        for seed in 0..10 {
            let simulation = SimulatedTest {
                seed,
                work: Work::Named(workload, options.clone()),
                faults: faults_of(&SURVIVED[..3], 6),
                order: None,
                operations: 300,
                concurrency: 6,
                operation_interval: None,
                bug: None,
                options: OptionValues::default(),
            };
            let history = SUITE.run(&simulation).unwrap().history;
            let ops = history.ops();
            let mended = ops.iter().rposition(|op| op.process == Process::NEMESIS);
            let f = if workload == "queue" { "drain" } else { "read" };
            // The last moment before which something else was under way.
            let mut others = ops.iter();
            let other = others.rposition(|op| op.process.is_client() && op.f != f);
            let begin = mended.max(other).unwrap() + 1;
            let tail = &ops[begin..];
            assert!(tail.iter().any(Op::is_ok), "{workload} {seed}: {tail:?}");
            let keys = |ops: &[Op], kind: OpType| -> BTreeSet<String> {
                let of_kind = ops.iter().filter(|op| op.kind == kind);
                let keys = of_kind.filter_map(|op| match &op.value {
                    Value::Keyed(key, _) => Some(key.to_string()),
                    _ => None,
                });
                keys.collect()
            };
            let (all, seen) = (keys(ops, OpType::Invoke), keys(tail, OpType::Ok));
            assert_eq!(all, seen, "{workload} {seed}");
        }
    }
}

/// The hash of each state that a node reports at the end. All are of one revision.
fn hashes_of(seed: u64, bug: Option<Bug>) -> Vec<String> {
    let bug = bug.map(|bug| {
        let planted = crate::BUGS.iter().find(|it| it.name == bug.name());
        planted.expect("a bug of the suite")
    });
    let simulation = SimulatedTest {
        seed,
        work: Work::Named("list-append", WorkloadOptions::default()),
        faults: faults_of(&SURVIVED, 4),
        order: None,
        operations: 300,
        concurrency: 4,
        operation_interval: None,
        bug,
        options: OptionValues::default(),
    };
    let run = SUITE.run(&simulation).unwrap();
    let field = |op: &Op, name: &str| match &op.value {
        Value::Map(fields) => {
            let mut found = fields.iter().filter(|it| it.0.to_string() == name);
            found.next().map(|it| it.1.to_string()).unwrap_or_default()
        }
        other => panic!("{other}"),
    };
    let states: Vec<&Op> = run
        .history
        .iter()
        .filter(|op| op.f == *"node-state")
        .collect();
    assert_eq!(run.has_states, !states.is_empty());
    let revisions: BTreeSet<String> = states.iter().map(|op| field(op, ":revision")).collect();
    assert!(revisions.len() <= 1, "seed {seed}: {revisions:?}");
    states.iter().map(|op| field(op, ":hash")).collect()
}

#[test]
fn replicas_end_with_one_state() {
    let mut complete = 0;
    for seed in 0..40 {
        let hashes = hashes_of(seed, None);
        assert!(
            hashes.windows(2).all(|two| two[0] == two[1]),
            "seed {seed}: {hashes:?}"
        );
        assert!(
            hashes.iter().all(|hash| hash.len() >= 32),
            "seed {seed}: {hashes:?}"
        );
        complete += usize::from(hashes.len() == 3);
    }
    // In the others a node was down at the end, or had left.
    assert!(complete >= 35, "{complete}");
}

#[test]
fn replicas_with_clocks_of_their_own_diverge() {
    let diverge = |seed: &u64| {
        let hashes = hashes_of(*seed, Some(Bug::OwnClock));
        hashes.windows(2).any(|two| two[0] != two[1])
    };
    assert!((0..20).filter(diverge).count() >= 10);
}
