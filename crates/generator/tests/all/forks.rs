//! One part of a test changes nothing for another.

use crate::soundness::{DEPTH, RandomTrees, build};
use crate::twin::Gen;
use seatrial_farm::{histories, least};
use seatrial_generator::{
    Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation, any, operation,
};
use seatrial_history::{Op, OpType, Value};
use seatrial_machine::{Rng, Time};
use std::time::Duration;

/// When a test is stopped.
const STOP: i64 = 2_000;

/// What clients did in a test of this seed, with a nemesis or without one; `None` if its random tree made a mistake, which
/// ends a test (as a rule, one of too few threads for a `reserve`).
fn clients(seed: u64, nemesis: bool) -> Option<Vec<String>> {
    let rng = Rng::from_seed(seed);
    let concurrency = 1 + rng.fork("concurrency").below(5) as u32;
    // A tree may say things for ever at one instant.
    let clients = build(&RandomTrees::new(seed, concurrency).tree(DEPTH))
        .limit(500)
        .clients()
        .boxed();
    let faults = RandomTrees::new(seed + 1_000_000, concurrency).tree(DEPTH);
    let faults = faults_or_kills(&faults).limit(60).nemesis().boxed();
    let parts = [clients].into_iter().chain(nemesis.then_some(faults));
    let options = InterpreterOptions {
        operation_timeout: Some(Duration::from_nanos(300)),
        ..InterpreterOptions::new(concurrency, rng.fork("interpreter"))
    };
    let interpreter = Interpreter::new(any(rng.fork("any"), parts), &options);
    // What a client answers depends on nothing but what it is asked.
    let client = move |op: &Op| {
        let mut rng = Rng::from_seed(seed).fork(&format!("{} {} {}", op.process, op.f, op.value));
        let kinds = [OpType::Ok, OpType::Ok, OpType::Fail, OpType::Info];
        match rng.below(20) {
            0 => SimulatedReply::Never,
            _ => SimulatedReply::After(
                Duration::from_nanos(1 + rng.below(40)),
                *rng.pick(&kinds),
                op.value.clone(),
            ),
        }
    };
    let mut simulation =
        Simulation::new(interpreter, client).stop_at(Time::from_nanoseconds(STOP as u64));
    let mut lines = Vec::new();
    simulation.run_with(|op| {
        // A test that has ended without its nemesis gets a stop request while it drains, and gives up.
        if op.process.is_client() && op.time < STOP {
            let kind = op.kind.name();
            lines.push(format!(
                "{} {} {kind} {} {}",
                op.time, op.process, op.f, op.value
            ));
        }
    });
    simulation.failure().is_none().then_some(lines)
}

/// This tree, and a fault now and then beside it.
fn faults_or_kills(faults: &Gen) -> Box<dyn Generator> {
    let kill = operation("kill", Value::Nil).repeat();
    let kill = kill.stagger(Rng::from_seed(1), Duration::from_nanos(37));
    any(Rng::from_seed(2), [build(faults), kill.boxed()]).boxed()
}

#[test]
fn a_nemesis_changes_nothing_for_the_clients() {
    let (mut compared, mut operations) = (0, 0);
    for seed in 0..histories(600) {
        if let (Some(without), Some(with)) = (clients(seed, false), clients(seed, true)) {
            assert!(with == without, "seed {seed}");
            compared += 1;
            operations += without.len() as u64;
        }
    }
    assert!(
        compared > least(400) && operations > least(10_000),
        "{operations} in {compared}"
    );
}
