//! What each package of faults does under each schedule: time, thread and operation, from one seed. The nemesis needs a
//! millisecond for each; three nodes, two clients; after eight faults all is healed.

use super::{line, ns};
use expect_test::expect_file;
use seatrial_generator::{
    FaultOptions, FaultOrder, Generator, Interpreter, InterpreterOptions, Membership,
    SimulatedReply, Simulation, fault_of, fault_package, membership_value,
};
use seatrial_history::{Op, OpType};
use seatrial_machine::{Fault, FaultKind, NodeId, Rng};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// A system whose nodes join and leave at once. The first member leads.
fn system() -> impl FnMut(&Op) -> SimulatedReply + Send + 'static {
    let mut members: BTreeSet<NodeId> = (1..=3).map(NodeId::server).collect();
    move |op| {
        let mut value = op.value.clone();
        match fault_of(op).expect("a fault") {
            Fault::Join(node) => _ = members.insert(node),
            Fault::Leave(node) => _ = members.remove(&node),
            Fault::View => {
                value = membership_value(&Membership {
                    members: members
                        .iter()
                        .map(|&node| (node, members.clone()))
                        .collect(),
                    primaries: members.iter().take(1).copied().collect(),
                });
            }
            _ => {}
        }
        SimulatedReply::After(ns(1_000_000), OpType::Info, value)
    }
}

fn schedule(order: FaultOrder, kinds: &[FaultKind]) -> String {
    let servers: Vec<NodeId> = (1..=3).map(NodeId::server).collect();
    let clients: Vec<NodeId> = (0..2).map(NodeId::client).collect();
    let options = FaultOptions {
        order,
        ..FaultOptions::new(kinds, servers, clients, Duration::from_secs(1))
    };
    let package = fault_package(options, Rng::from_seed(18));
    let faults = package.faults.limit(8).nemesis();
    let generator = faults.then(package.healing.nemesis());
    let interpreter = InterpreterOptions::new(2, Rng::from_seed(0));
    let interpreter = Interpreter::new(generator, &interpreter);
    let history = Simulation::new(interpreter, system()).run();
    let history = history.expect("no mistakes");
    let mut text = String::new();
    for op in history.iter().step_by(2) {
        writeln!(text, "  {}", line(op)).expect("a string");
    }
    text
}

/// All packages, each for itself, and then all together.
fn schedules(order: FaultOrder) -> String {
    let mut text = String::new();
    for kind in FaultKind::ALL {
        write!(text, "{kind}\n{}", schedule(order, &[kind])).expect("a string");
    }
    write!(text, "together\n{}", schedule(order, &FaultKind::ALL)).expect("a string");
    text
}

#[test]
fn mix() {
    expect_file!["faults/mix.txt"].assert_eq(&schedules(FaultOrder::Mix));
}

#[test]
fn interval() {
    expect_file!["faults/interval.txt"].assert_eq(&schedules(FaultOrder::Interval));
}

#[test]
fn one_at_a_time() {
    expect_file!["faults/one-at-a-time.txt"].assert_eq(&schedules(FaultOrder::OneAtATime));
}
