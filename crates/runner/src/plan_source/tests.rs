//! Plans as their readers meet them.

mod fuzz;
mod guide;
mod messages;
mod schedules;
mod values;

use super::{PlanError, PlanSource};
use seatrial_generator::workload::{self, Workload, WorkloadOptions};
use seatrial_generator::{Generator, Interpreter, InterpreterOptions, SimulatedReply, Simulation};
use seatrial_history::{Op, OpType};
use seatrial_machine::{NodeId, Rng, Time};
use seatrial_plan::{Plan, PlanEnvironment, PlanLimits, Vocabulary};
use std::sync::Arc;
use std::time::Duration;

const VOCABULARY: Vocabulary<'static> = Vocabulary {
    workloads: &workload::NAMES,
    functions: None,
};

fn read(text: &str) -> Result<Plan, PlanError> {
    let source = PlanSource { file: "plan", text };
    source.plan(&VOCABULARY)
}

fn plan(text: &str) -> Plan {
    read(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn rng() -> Rng {
    Rng::from_seed(45_100)
}

/// What the nodes of a plan draw from; the third node in another draws from `root().fork("2")`.
fn root() -> Rng {
    rng().fork("plan")
}

fn environment() -> PlanEnvironment {
    PlanEnvironment {
        rng: rng(),
        servers: (1..=3).map(NodeId::server).collect(),
        clients: (0..3).map(NodeId::client).collect(),
        workloads: Arc::new(|name, rng, options| Workload::new(name, rng, options).ok()),
        kinds: None,
        interval: None,
        order: None,
        limits: PlanLimits::default(),
    }
}

/// The workload of a plan that asks nothing of it.
fn workload(name: &str, rng: &Rng) -> Workload {
    Workload::new(name, rng, &WorkloadOptions::default()).unwrap()
}

fn built(text: &str) -> Box<dyn Generator> {
    plan(text).generator(environment())
}

/// Three clients and the nemesis. Every third operation of a client fails, every fifth is lost; all take 10 ns.
fn schedule(generator: impl Generator) -> Vec<String> {
    let options = InterpreterOptions::new(3, Rng::from_seed(3));
    let mut count = 0_u64;
    let client = move |op: &Op| {
        count += u64::from(op.process.is_client());
        let kind = match count {
            _ if !op.process.is_client() => OpType::Info,
            count if count.is_multiple_of(3) => OpType::Fail,
            count if count.is_multiple_of(5) => OpType::Info,
            _ => OpType::Ok,
        };
        SimulatedReply::After(Duration::from_nanos(10), kind, op.value.clone())
    };
    let interpreter = Interpreter::new(generator, &options);
    let simulation =
        Simulation::new(interpreter, client).stop_at(Time::from_nanoseconds(2_000_000_000));
    let history = simulation.run().expect("no mistakes");
    let lines = history.iter().map(|op| {
        let extra = op
            .extra
            .iter()
            .map(|(name, value)| format!(" {name}={value}"));
        let extra: String = extra.collect();
        format!(
            "{} {} {} {} {}{extra}",
            op.time,
            op.process,
            op.kind.name(),
            op.f,
            op.value
        )
    });
    lines.collect()
}

/// The plan does what the generator does, and something at all.
fn same(text: &str, generator: impl Generator) {
    let (planned, built) = (schedule(built(text)), schedule(generator));
    assert!(!built.is_empty(), "{text}");
    let differs = planned.iter().zip(&built).position(|(one, two)| one != two);
    if let Some(index) = differs {
        panic!(
            "{text}\nline {index}: the plan: {}, the generator: {}",
            planned[index], built[index]
        );
    }
    assert_eq!(planned.len(), built.len(), "{text}");
}
