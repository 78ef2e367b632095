//! Plans as their readers meet them. Every TOML text here is also tried as the JSON that says the same.

mod fuzz;
mod guide;
mod messages;
mod schedules;
mod values;

use super::{PlanError, PlanSource, Syntax};
use seatrial_generator::plan::document::{Entry, Shape};
use seatrial_generator::plan::{Limits, Plan, Surroundings, Vocabulary};
use seatrial_generator::workload::{self, Workload, WorkloadOptions};
use seatrial_generator::{Answer, Generator, Interpreter, InterpreterOptions, Simulation};
use seatrial_history::{Op, OpType};
use seatrial_machine::{NodeId, Rng, Time};
use std::sync::Arc;
use std::time::Duration;

const VOCABULARY: Vocabulary<'static> = Vocabulary {
    workloads: &workload::NAMES,
    functions: None,
};

fn read(text: &str, syntax: Syntax) -> Result<Plan, PlanError> {
    let source = PlanSource {
        file: "plan",
        text,
        syntax,
    };
    source.plan(&VOCABULARY)
}

fn document(text: &str, syntax: Syntax) -> Entry {
    let source = PlanSource {
        file: "plan",
        text,
        syntax,
    };
    source.document().unwrap()
}

/// A TOML plan, after a look at the same in JSON.
fn plan(text: &str) -> Plan {
    let plan = read(text, Syntax::Toml).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let written = document(text, Syntax::Toml);
    let json = json(&written);
    assert_eq!(document(&json, Syntax::Json), written, "{json}");
    let same = read(&json, Syntax::Json).unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert_eq!(same.outline(), plan.outline());
    plan
}

/// The same in JSON.
fn json(entry: &Entry) -> String {
    match &entry.shape {
        Shape::Null => "null".into(),
        Shape::Bool(flag) => flag.to_string(),
        Shape::Int(number) => number.to_string(),
        Shape::Float(number) => format!("{number:?}"),
        Shape::Text(text) => serde_json::to_string(text).unwrap(),
        Shape::List(items) => {
            let items: Vec<String> = items.iter().map(json).collect();
            format!("[{}]", items.join(", "))
        }
        Shape::Table(fields) => {
            let field = |(name, entry): &(seatrial_generator::plan::document::Name, Entry)| {
                format!(
                    "{}:\n {}",
                    serde_json::to_string(&name.text).unwrap(),
                    json(entry)
                )
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn rng() -> Rng {
    Rng::from_seed(45_100)
}

/// What the nodes of a plan draw from; the third node in another draws from `root().fork("2")`.
fn root() -> Rng {
    rng().fork("plan")
}

fn surroundings() -> Surroundings {
    Surroundings {
        rng: rng(),
        servers: (1..=3).map(NodeId::server).collect(),
        clients: (0..3).map(NodeId::client).collect(),
        workloads: Arc::new(|name, rng, options| Workload::new(name, rng, options).ok()),
        kinds: None,
        interval: None,
        order: None,
        limits: Limits::default(),
    }
}

/// The workload of a plan that asks nothing of it.
fn workload(name: &str, rng: &Rng) -> Workload {
    Workload::new(name, rng, &WorkloadOptions::default()).unwrap()
}

fn built(text: &str) -> Box<dyn Generator> {
    plan(text).generator(surroundings())
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
        Answer::After(Duration::from_nanos(10), kind, op.value.clone())
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
