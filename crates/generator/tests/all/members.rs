//! The membership package against a system of several nodes in a simulated world, while links are cut and nodes paused: every
//! change comes to something before the next, a majority stays, and in the end all nodes are members.

use seatrial_generator::{
    FaultOptions, FaultOrder, Generator, Interpreter, InterpreterOptions, InterpreterReply,
    InterpreterRequest, Membership, fault_of, fault_package, membership_value,
};
use seatrial_history::{History, Op, OpType, Value};
use seatrial_machine::{
    DataFolder, Fault, FaultKind, Input, Machine, NodeId, Output, Rng, Ticket, Time,
};
use seatrial_sim::{Booted, World, WorldOptions, same_twice};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes of the system.
const COUNT: u32 = 5;
/// Interval at which a node sends its view to all others.
const GOSSIP: Duration = Duration::from_millis(20);

/// A node with a view of the members of the system, as of a version, which it sends to all. The highest version wins.
struct Member {
    id: NodeId,
    version: u8,
    members: BTreeSet<NodeId>,
    tell_at: Time,
}

impl Machine for Member {
    /// Who, and as a member?
    type Request = (NodeId, bool);
    type Reply = ();

    fn turn(&mut self, now: Time, input: Input<(NodeId, bool)>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Request(_, (node, joins)) => {
                self.version += 1;
                if joins {
                    self.members.insert(node);
                } else {
                    self.members.remove(&node);
                }
            }
            Input::Message { bytes, .. } if bytes[0] > self.version => {
                self.version = bytes[0];
                let members = bytes[1..]
                    .iter()
                    .map(|&number| NodeId::server(number.into()));
                self.members = members.collect();
            }
            _ => {}
        }
        if now >= self.tell_at {
            self.tell_at = now + GOSSIP;
            let numbers = self.members.iter().map(|node| node.number() as u8);
            let message: Vec<u8> = std::iter::once(self.version).chain(numbers).collect();
            for to in servers().filter(|to| *to != self.id) {
                let message = message.clone();
                out.push(Output::Send { to, message });
            }
        }
    }

    fn wake_at(&self) -> Option<Time> {
        Some(self.tell_at)
    }
}

fn servers() -> impl Iterator<Item = NodeId> {
    (1..=COUNT).map(NodeId::server)
}

fn world(seed: u64) -> World<Member> {
    let boot = |id, _: &DataFolder| {
        let machine = Member {
            id,
            version: 1,
            members: servers().collect(),
            tell_at: Time::ZERO,
        };
        Ok(Booted::new(machine))
    };
    let mut world = World::new(seed, WorldOptions::default(), boot);
    servers().for_each(|node| world.add(node));
    world
}

/// Carries out what the nemesis wants.
fn answer(world: &mut World<Member>, op: &Op) -> Op {
    let done = op.complete(OpType::Info, op.value.clone());
    let machines = |world: &World<Member>| -> Vec<(NodeId, u8, BTreeSet<NodeId>)> {
        let machine = |node| {
            world
                .machine(node)
                .map(|m| (node, m.version, m.members.clone()))
        };
        servers().filter_map(machine).collect()
    };
    let (node, joins) = match fault_of(op).expect("a fault") {
        Fault::View => {
            let members = machines(world).into_iter();
            let view = Membership {
                members: members.map(|(node, _, members)| (node, members)).collect(),
                primaries: BTreeSet::new(),
            };
            return op.complete(OpType::Info, membership_value(&view));
        }
        Fault::Join(node) => (node, true),
        Fault::Leave(node) => (node, false),
        fault => {
            world.apply(&fault);
            return done;
        }
    };
    let newest = machines(world)
        .into_iter()
        .max_by_key(|(_, version, _)| *version);
    match newest {
        Some((teller, ..)) if world.request(teller, Ticket(0), (node, joins)) => done,
        _ => done.with("error", Value::text("nobody is there")),
    }
}

/// Runs interpreter and world side by side; the history, and the world in the end.
fn run(seed: u64, order: FaultOrder) -> (History, World<Member>) {
    let kinds = [
        FaultKind::Membership,
        FaultKind::Membership,
        FaultKind::Partition,
        FaultKind::Pause,
    ];
    let options = FaultOptions {
        order,
        ..FaultOptions::new(
            kinds,
            servers().collect::<Vec<_>>(),
            [],
            Duration::from_millis(200),
        )
    };
    let package = fault_package(options, Rng::from_seed(seed));
    let generator = package
        .faults
        .limit(120)
        .nemesis()
        .then(package.healing.nemesis());
    let options = InterpreterOptions::new(1, Rng::from_seed(seed));
    let mut interpreter = Interpreter::new(generator, &options);
    let mut world = world(seed);
    let (mut ops, mut out) = (Vec::new(), Vec::new());
    let mut is_over = false;
    while !is_over {
        world.run_until(interpreter.wake_at().expect("never idle"));
        interpreter.turn(world.now(), Input::Wake, &mut out);
        while !out.is_empty() {
            for output in std::mem::take(&mut out) {
                let Output::Reply(_, step) = output else {
                    continue;
                };
                match step {
                    InterpreterReply::Record(op) => ops.push(op),
                    InterpreterReply::Invoke(thread, op) => {
                        let done = InterpreterRequest::Completed(thread, answer(&mut world, &op));
                        world.run_until(world.now() + Duration::from_millis(1));
                        interpreter.turn(world.now(), Input::Request(Ticket(0), done), &mut out);
                    }
                    InterpreterReply::Failed(failure) => panic!("seed {seed}: {failure}"),
                    InterpreterReply::Log(_) => {}
                    InterpreterReply::Done => is_over = true,
                }
            }
        }
    }
    (History::from_ops(ops), world)
}

#[test]
fn members_come_and_go_while_the_system_is_broken() {
    let mut changes = 0;
    for seed in 0..30 {
        let order = FaultOrder::ALL[seed as usize % 3];
        let (history, mut world) = run(seed, order);
        changes += history
            .iter()
            .filter(|op| op.f == "leave" || op.f == "join")
            .count();
        world.run_until(world.now() + Duration::from_secs(1));
        for node in servers() {
            let members = &world.machine(node).expect("it is up").members;
            assert_eq!(
                members.len(),
                COUNT as usize,
                "seed {seed}, {order}, {node}"
            );
        }
    }
    assert!(changes > 300, "{changes}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..5 {
        same_twice(seed, |seed| {
            let (history, world) = run(seed, FaultOrder::Mix);
            let lines: Vec<String> = history.iter().map(|op| format!("{op:?}")).collect();
            (lines, world.fingerprint())
        });
    }
}
