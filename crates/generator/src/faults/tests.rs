use super::*;
use crate::{Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation};
use seatrial_history::{Op, OpType, Process, Value};
use seatrial_machine::{Fault, FaultInfo, Link};
use std::sync::{Arc, Mutex};

fn options(servers: u32, clients: u32) -> FaultOptions {
    FaultOptions::new(
        FaultKind::ALL,
        (1..=servers).map(NodeId::server).collect::<Vec<_>>(),
        (0..clients).map(NodeId::client).collect::<Vec<_>>(),
        Duration::from_secs(1),
    )
}

fn only(kind: FaultKind, servers: u32, clients: u32) -> FaultOptions {
    FaultOptions {
        kinds: vec![kind],
        ..options(servers, clients)
    }
}

/// A model of a system: a requested join or leave takes effect at the second query after it. The first member is the
/// primary.
struct ModelSystem {
    members: BTreeSet<NodeId>,
    /// Changes that have not taken effect, with the number of queries until then.
    pending: Vec<(u32, Fault)>,
}

impl ModelSystem {
    fn answer(&mut self, op: &Op) -> Value {
        match fault_of(op).unwrap() {
            fault @ (Fault::Join(_) | Fault::Leave(_)) => self.pending.push((2, fault)),
            Fault::View => {
                for (queries, _) in &mut self.pending {
                    *queries -= 1;
                }
                let due = |(queries, _): &mut (u32, Fault)| *queries == 0;
                for (_, fault) in self.pending.extract_if(.., due) {
                    match fault {
                        Fault::Join(node) => _ = self.members.insert(node),
                        Fault::Leave(node) => _ = self.members.remove(&node),
                        _ => {}
                    }
                }
                let members = self.members.iter();
                return membership_value(&Membership {
                    members: members.map(|&node| (node, self.members.clone())).collect(),
                    primaries: self.members.iter().take(1).copied().collect(),
                });
            }
            _ => {}
        }
        op.value.clone()
    }
}

/// The first `count` operations of a schedule and its healing, with their times; and the members at the end.
fn run(options: FaultOptions, seed: u64, count: u64) -> (Vec<(i64, Fault)>, BTreeSet<NodeId>) {
    let members = options.servers.iter().copied().collect();
    let system = ModelSystem {
        members,
        pending: Vec::new(),
    };
    let system = Arc::new(Mutex::new(system));
    let package = fault_package(options, Rng::from_seed(seed));
    let generator = package
        .faults
        .limit(count)
        .nemesis()
        .then(package.healing.nemesis());
    let interpreter = InterpreterOptions::new(2, Rng::from_seed(0));
    let client = {
        let system = Arc::clone(&system);
        move |op: &Op| {
            let value = system.lock().unwrap().answer(op);
            SimulatedReply::After(Duration::from_millis(1), OpType::Info, value)
        }
    };
    let history = Simulation::new(Interpreter::new(generator, &interpreter), client)
        .run()
        .unwrap();
    let begins = history.iter().step_by(2);
    let faults = begins.map(|op| (op.time, fault_of(op).unwrap())).collect();
    let members = system.lock().unwrap().members.clone();
    (faults, members)
}

fn faults(options: FaultOptions, seed: u64, count: u64) -> Vec<(i64, Fault)> {
    run(options, seed, count).0
}

#[test]
fn every_fault_comes_back_from_its_operation() {
    let mut names = BTreeSet::new();
    let all = FaultOptions {
        has_packets: true,
        ..options(5, 3)
    };
    for seed in 0..20 {
        for (_, fault) in faults(all.clone(), seed, 200) {
            let op = Op::invoke(Process::NEMESIS, fault.name(), fault_value(&fault));
            names.insert(fault.name());
            assert_eq!(fault_of(&op), Ok(fault));
        }
    }
    assert_eq!(names.len(), FaultInfo::all().len(), "{names:?}");
}

/// The faults present at some time.
#[derive(Debug, Default)]
struct PresentFaults {
    nodes: BTreeSet<(&'static str, NodeId)>,
    links: BTreeSet<&'static str>,
    away: BTreeSet<NodeId>,
}

impl PresentFaults {
    fn apply(&mut self, fault: &Fault) {
        match fault {
            Fault::Kill(node) | Fault::LoseUnsynced(node) => {
                self.nodes.remove(&("pause", *node));
                self.nodes.insert(("kill", *node));
            }
            Fault::Restart(node) => _ = self.nodes.remove(&("kill", *node)),
            Fault::Pause(node) => {
                assert!(!self.nodes.contains(&("kill", *node)), "{node} is dead");
                self.nodes.insert(("pause", *node));
            }
            Fault::Resume(node) => _ = self.nodes.remove(&("pause", *node)),
            Fault::Cut(_) => _ = self.links.insert("cut"),
            Fault::Heal => _ = self.links.remove("cut"),
            Fault::Disturb { .. } => _ = self.links.insert("disturbed"),
            Fault::Calm => _ = self.links.remove("disturbed"),
            Fault::Skew {
                node,
                offset_ns: 0,
                rate_ppm: 0,
            } => _ = self.nodes.remove(&("clock", *node)),
            Fault::Skew { node, .. } | Fault::Strobe { node, .. } => {
                self.nodes.insert(("clock", *node));
            }
            Fault::Disk { node, .. } => _ = self.nodes.insert(("disk", *node)),
            Fault::MendDisk(node) => _ = self.nodes.remove(&("disk", *node)),
            Fault::Leave(node) => _ = self.away.insert(*node),
            Fault::Join(node) => _ = self.away.remove(node),
            Fault::Reset(_)
            | Fault::BitRot { .. }
            | Fault::Truncate { .. }
            | Fault::Snapshot(_)
            | Fault::Restore(_)
            | Fault::View => {}
        }
    }

    fn count(&self) -> usize {
        self.nodes.len() + self.links.len() + self.away.len()
    }
}

#[test]
fn healing_leaves_no_fault() {
    for order in FaultOrder::ALL {
        for seed in 0..30 {
            let mut present = PresentFaults::default();
            let mut most = 0;
            let options = FaultOptions {
                order,
                ..options(5, 2)
            };
            let (faults, members) = run(options, seed, 60);
            for (_, fault) in faults {
                present.apply(&fault);
                most = most.max(present.count());
            }
            assert!(most > 0, "{order}, seed {seed} injected nothing");
            assert_eq!(present.count(), 0, "{order}, seed {seed}: {present:?}");
            assert_eq!(members.len(), 5, "{order}, seed {seed}: {members:?}");
        }
    }
}

#[test]
fn one_at_a_time_is_never_two() {
    for kind in FaultKind::ALL {
        let options = FaultOptions {
            order: FaultOrder::OneAtATime,
            kinds: vec![kind, FaultKind::Kill, FaultKind::Partition],
            ..options(5, 2)
        };
        let mut present = PresentFaults::default();
        let mut injected = 0;
        for (_, fault) in faults(options, 9, 300) {
            let (before, kinds) = (present.count(), present.nodes.len());
            present.apply(&fault);
            // A read error takes effect at a restart, so its node is killed as well.
            let limit = if kind == FaultKind::Disk { 2 } else { 1 };
            assert!(
                present.count() <= limit,
                "{kind}: {fault:?} in addition: {present:?}"
            );
            injected += usize::from(present.count() > before || present.nodes.len() > kinds);
        }
        assert!(injected > 40, "{kind}: {injected}");
    }
}

#[test]
fn the_interval_is_kept_and_the_first_fault_waits() {
    let times: Vec<i64> = faults(only(FaultKind::Partition, 3, 0), 1, 400)
        .iter()
        .map(|(time, _)| *time)
        .collect();
    let mean = times[399] as f64 / 400e9;
    assert!((0.9..1.1).contains(&mean), "{mean}");
    assert!(times[0] > 0);
}

#[test]
fn interval_streams_are_independent() {
    let stream = |kinds: &[FaultKind]| -> Vec<(i64, Fault)> {
        let options = FaultOptions {
            order: FaultOrder::Interval,
            kinds: kinds.to_vec(),
            ..options(5, 2)
        };
        let faults = faults(options, 7, 300).into_iter();
        let cuts = faults.filter(|(_, fault)| fault.kind() == FaultKind::Partition);
        // A fault may be some milliseconds late while the nemesis is busy.
        cuts.map(|(time, fault)| (time / 1_000_000_000, fault))
            .take(30)
            .collect()
    };
    let alone = stream(&[FaultKind::Partition]);
    let together = stream(&[FaultKind::Clock, FaultKind::Partition, FaultKind::Packet]);
    let without_times = |stream: &[(i64, Fault)]| -> Vec<Fault> {
        stream.iter().map(|(_, fault)| fault.clone()).collect()
    };
    assert_eq!(without_times(&alone), without_times(&together));
    for ((alone, _), (together, _)) in alone.iter().zip(&together) {
        assert!(together - alone <= 1, "{alone} s and {together} s");
    }
}

#[test]
fn one_server_and_clients_cut_client_links_only() {
    let (mut clients_cut, mut one_way) = (BTreeSet::new(), 0);
    for (_, fault) in faults(only(FaultKind::Partition, 1, 4), 3, 300) {
        let Fault::Cut(links) = fault else { continue };
        let ends = |link: &Link| link.from.is_client() != link.to.is_client();
        assert!(links.iter().all(ends));
        let nodes: BTreeSet<NodeId> = links.iter().flat_map(|link| [link.from, link.to]).collect();
        one_way += usize::from(links.len() == nodes.len() - 1);
        clients_cut.insert(nodes.len() - 1);
    }
    assert_eq!(clients_cut, BTreeSet::from([1, 2, 4]));
    assert!(one_way > 10);
}

#[test]
fn every_target_affects_its_number_of_nodes() {
    let killed = |text: &str, servers: u32| -> Vec<Vec<NodeId>> {
        let (kind, targets) = parse_fault(text).unwrap();
        let options = FaultOptions {
            order: FaultOrder::OneAtATime,
            targets: BTreeMap::from([(kind, targets)]),
            ..only(kind, servers, 0)
        };
        let mut groups: Vec<Vec<NodeId>> = vec![Vec::new()];
        for (_, fault) in faults(options, 4, 200) {
            match fault {
                Fault::Kill(node) => groups.last_mut().unwrap().push(node),
                _ if groups.last().unwrap().is_empty() => {}
                _ => groups.push(Vec::new()),
            }
        }
        groups.retain(|group| !group.is_empty());
        groups.pop(); // the limit may have truncated it
        groups
    };
    for (text, sizes) in [
        ("kill:one", 1..=1),
        ("kill:minority", 2..=2),
        ("kill:minority-third", 1..=1),
        ("kill:majority", 3..=3),
        ("kill:all", 5..=5),
        ("kill:random", 1..=5),
    ] {
        let groups = killed(text, 5);
        let found: BTreeSet<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(found, sizes.collect(), "{text}");
    }
    let primaries = killed("kill:primaries", 5);
    assert!(primaries.len() > 20);
    assert!(
        primaries
            .iter()
            .all(|group| group[..] == [NodeId::server(1)])
    );
}

/// For each partition of a schedule, the number of links that each of five nodes loses.
fn losses(target: &str) -> Vec<[usize; 5]> {
    let (kind, targets) = parse_fault(&format!("partition:{target}")).unwrap();
    let options = FaultOptions {
        targets: BTreeMap::from([(kind, targets)]),
        ..only(kind, 5, 0)
    };
    let mut all = Vec::new();
    for (_, fault) in faults(options, 2, 300) {
        let Fault::Cut(links) = fault else { continue };
        let pairs: BTreeSet<(NodeId, NodeId)> = links
            .iter()
            .map(|link| (link.from.min(link.to), link.from.max(link.to)))
            .collect();
        let lost = |node| {
            pairs
                .iter()
                .filter(|(a, b)| *a == node || *b == node)
                .count()
        };
        all.push([1, 2, 3, 4, 5].map(|number| lost(NodeId::server(number))));
    }
    assert!(all.len() > 50, "{target}: {}", all.len());
    all
}

#[test]
fn every_partition_has_its_shape() {
    let sorted = |target: &str| -> BTreeSet<[usize; 5]> {
        let mut losses = losses(target);
        for lost in &mut losses {
            lost.sort_unstable();
        }
        losses.into_iter().collect()
    };
    assert_eq!(sorted("one"), BTreeSet::from([[1, 1, 1, 1, 4]]));
    assert_eq!(sorted("random-halves"), BTreeSet::from([[2, 2, 2, 3, 3]]));
    assert_eq!(sorted("minority"), BTreeSet::from([[2, 2, 2, 3, 3]]));
    assert_eq!(sorted("majority"), BTreeSet::from([[2, 2, 2, 3, 3]]));
    assert_eq!(sorted("minority-third"), BTreeSet::from([[1, 1, 1, 1, 4]]));
    assert_eq!(sorted("bridge"), BTreeSet::from([[0, 2, 2, 2, 2]]));
    assert_eq!(sorted("majorities-ring"), BTreeSet::from([[2; 5]]));
    assert_eq!(sorted("all"), BTreeSet::from([[4; 5]]));
    assert!(sorted("random").len() > 10);
    assert!(losses("halves").iter().all(|lost| *lost == [3, 3, 2, 2, 2]));
    assert!(
        losses("primaries")
            .iter()
            .all(|lost| *lost == [4, 1, 1, 1, 1])
    );
}

#[test]
fn omitted_faults_are_never_drawn() {
    let mut options = options(3, 1);
    options.omitted = BTreeSet::from(["lose", "throttle", "write-errors", "reset", "truncate"]);
    let omitted = options.omitted.clone();
    let mut slow = 0;
    for (_, fault) in faults(options.clone(), 5, 2_000) {
        assert!(!omitted.contains(fault.name()), "{fault:?}");
        slow += usize::from(fault.name() == "slow");
    }
    assert!(slow > 20);
    options.kinds = vec![FaultKind::Packet];
    options.omitted.extend(["slow", "reorder", "flap"]);
    assert!(
        faults(options, 5, 10)
            .iter()
            .all(|(_, fault)| *fault == Fault::Calm)
    );
}

#[test]
fn packets_are_changed_where_there_are_packets() {
    let names = |has_packets| -> BTreeSet<&'static str> {
        let mut options = only(FaultKind::Packet, 3, 2);
        options.has_packets = has_packets;
        let faults = faults(options, 5, 400);
        faults.iter().map(|(_, fault)| fault.name()).collect()
    };
    let streams = ["calm", "flap", "lose", "reorder", "slow", "throttle"];
    assert_eq!(names(false), BTreeSet::from(streams));
    let mut packets = BTreeSet::from(streams);
    packets.extend(["corrupt", "duplicate"]);
    assert_eq!(names(true), packets);
}

#[test]
fn corruption_is_limited_to_a_minority() {
    let mut corrupted = BTreeSet::new();
    for (_, fault) in faults(only(FaultKind::Corruption, 5, 0), 5, 600) {
        if let Fault::BitRot { node, .. } | Fault::Truncate { node, .. } | Fault::Restore(node) =
            fault
        {
            corrupted.insert(node);
        }
    }
    assert_eq!(corrupted.len(), 2);
}

#[test]
fn members_leave_and_join_one_by_one_and_a_majority_remains() {
    for seed in 0..20 {
        let (mut faults, members) = run(only(FaultKind::Membership, 5, 0), seed, 200);
        // Healing does not know the pending change, and may let a node join twice.
        faults.truncate(200);
        let mut away = BTreeSet::new();
        let mut changes = 0;
        let mut queries = 0;
        for (_, fault) in &faults {
            match fault {
                Fault::View => queries += 1,
                Fault::Leave(node) => assert!(away.insert(*node)),
                Fault::Join(node) => assert!(away.remove(node)),
                other => panic!("{other:?}"),
            }
            if !matches!(fault, Fault::View) {
                // The model needs two queries; the next change waits for them.
                assert!(queries >= 2 || changes == 0, "seed {seed}");
                (changes, queries) = (changes + 1, 0);
            }
            assert!(away.len() <= 2, "seed {seed}: {away:?}");
        }
        assert!(changes > 40, "seed {seed}: {changes}");
        assert_eq!(members.len(), 5);
    }
}

#[test]
fn a_system_with_too_few_nodes_is_an_error() {
    let error = |options: FaultOptions| options.check().unwrap_err().to_string();
    let membership = "fault membership needs at least 2 nodes, found 1";
    assert_eq!(error(only(FaultKind::Membership, 1, 3)), membership);
    let (kind, targets) = parse_fault("partition:majorities-ring").unwrap();
    let mut ring = only(kind, 3, 0);
    ring.targets.insert(kind, targets);
    let text = "fault partition:majorities-ring needs at least 4 nodes, found 3";
    assert_eq!(error(ring), text);
    assert_eq!(only(FaultKind::Membership, 2, 0).check(), Ok(()));
    assert!(faults(only(FaultKind::Membership, 1, 0), 1, 5).is_empty());
}

#[test]
fn errors_about_unknown_names_list_the_available_ones() {
    let error = |text| parse_fault(text).unwrap_err().to_string();
    let earthquake = "unknown fault `earthquake` (available: kill, pause, partition, packet, clock, disk, corruption, \
                      membership, none)";
    assert_eq!(error("earthquake"), earthquake);
    let bridge = "fault kill has no target \"bridge\" (available: one, minority, minority-third, majority, primaries, \
                  all, random)";
    assert_eq!(error("kill:bridge"), bridge);
    assert_eq!(
        error("membership:one"),
        "fault membership has no target \"one\" (it takes no target)"
    );
    let order = FaultOrder::from_name("often").unwrap_err().to_string();
    assert_eq!(
        order,
        "unknown fault schedule `often` (available: mix, interval, one-at-a-time)"
    );
}

#[test]
fn invalid_fault_operations_are_errors() {
    let op = |f: &'static str, value| Op::invoke(Process::NEMESIS, f, value);
    let message = |op: Op| fault_of(&op).unwrap_err().to_string();
    assert_eq!(message(op("frob", Value::Nil)), "unknown fault frob");
    let kill = "the value of kill must be a node, found \"x\"";
    assert_eq!(message(op("kill", Value::text("x"))), kill);
    for name in ["n", "n-1", "n2147483648", "é1", "", "n99999999999999"] {
        assert!(fault_of(&op("kill", Value::text(name))).is_err(), "{name}");
    }
    for name in [
        "slow",
        "lose",
        "reorder",
        "throttle",
        "strobe",
        "truncate",
        "slow-disk",
    ] {
        assert!(fault_of(&op(name, Value::Nil)).is_err(), "{name}");
    }
    assert_eq!(membership_of(&Value::Nil), None);
}

#[test]
fn errors_about_fault_values_describe_valid_ones() {
    let message = |name: &'static str, value: Value| {
        fault_of(&Op::invoke(Process::NEMESIS, name, value))
            .unwrap_err()
            .to_string()
    };
    let messages = [
        message("explode", Value::Nil),
        message("kill", Value::Int(1)),
        message("lose", Value::text("n1")),
        message("cut", Value::text("n1")),
        message("skew", Value::text("n1")),
    ];
    assert_eq!(
        messages,
        [
            "unknown fault explode",
            "the value of kill must be a node, found 1",
            "the value of lose must be a map of links and percent (1 to 100), found \"n1\"",
            "the value of cut must be a list of links, found \"n1\"",
            "the value of skew must be a map of node, offset-ns (-1000000000000000000 to \
             1000000000000000000) and rate-ppm (-1000000 to 1000000), found \"n1\"",
        ]
    );
}
