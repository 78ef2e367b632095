//! The bundled key-value store as a system under test: simulated and real, with the same workloads and faults.

pub(crate) mod binding;
mod errand;
pub(crate) mod real;
pub(crate) mod simulated;

use anyhow::Context as _;
use binding::ABORT;
use seatrial_checker::{Checker, for_workload};
use seatrial_generator::Generator;
use seatrial_generator::plan::{MakeWorkload, Vocabulary};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_history::{Mop, Op, Value};
use seatrial_kv::Bug;
use seatrial_machine::{FaultKind, Rng};
use std::sync::Arc;

/// The workloads that the store can serve.
pub(crate) const WORKLOADS: [&str; 10] = [
    "register",
    "cas-register",
    "list-append",
    "rw-register",
    "set",
    "queue",
    "total-queue",
    "counter",
    "bank",
    "unique-ids",
];

/// Those that `sim kv` takes in turn when it is told none.
pub(crate) const USUAL: [&str; 2] = ["cas-register", "list-append"];

/// Those of plans. Others have operations that tell not by themselves what they are about.
const PLANNED: [&str; 8] = [
    "register",
    "cas-register",
    "list-append",
    "rw-register",
    "queue",
    "total-queue",
    "bank",
    "unique-ids",
];

/// The words that plans may use: those workloads, and operations on registers under keys or in transactions.
pub(crate) const VOCABULARY: Vocabulary<'static> = Vocabulary {
    workloads: &PLANNED,
    functions: Some(&["read", "write", "cas", "txn"]),
};

/// Makes the workloads of plans.
pub(crate) fn planned_workloads() -> Arc<MakeWorkload> {
    Arc::new(|name: &str, rng: &Rng, options: &WorkloadOptions| workload(name, rng, options).ok())
}

/// What `--bug` takes, and how many seeds `sim kv` may take to find it.
pub(crate) const BUGS: [(Bug, u64); 4] = [
    (Bug::AckBeforeAppend, 50),
    (Bug::StaleRead, 20),
    (Bug::LostAppend, 20),
    (Bug::DirtyAbort, 20),
];

/// The bug called `name`.
pub(crate) fn bug(name: &str) -> anyhow::Result<Bug> {
    let names = || BUGS.map(|(bug, _)| bug.name()).join(", ");
    Bug::from_name(name).with_context(|| format!("there is no bug {name:?}; kv has {}", names()))
}

/// How many seeds `sim kv` may take to find this bug.
pub(crate) fn seed_budget(bug: Bug) -> u64 {
    let known = BUGS.iter().find(|(known, _)| *known == bug);
    known.map_or(200, |(_, budget)| *budget)
}

/// The name of a workload whose operations the store knows.
pub(crate) fn known(name: &str) -> anyhow::Result<&'static str> {
    let found = WORKLOADS.into_iter().find(|known| *known == name);
    found.with_context(|| {
        let served = WORKLOADS.join(", ");
        if seatrial_generator::workload::NAMES.contains(&name) {
            format!("kv cannot serve the workload {name:?}; it serves {served}")
        } else {
            format!("there is no workload {name:?}; kv serves {served}")
        }
    })
}

/// The workload called `name`. Some transactions are made to abort, because a store that only ever commits hides what
/// its aborts leave behind.
pub(crate) fn workload(
    name: &str,
    rng: &Rng,
    options: &WorkloadOptions,
) -> anyhow::Result<Workload> {
    let workload = Workload::new(known(name)?, rng, options)?;
    Ok(Workload {
        generator: workload.generator.map(abort_some).boxed(),
        ..workload
    })
}

/// Marks about one in sixteen transactions that write. The choice is part of the operation: asked again, it is the
/// same.
fn abort_some(op: Op) -> Op {
    let mut mops = op.value.as_txn().into_iter().flatten();
    let first_write = mops.find_map(|mop| match mop {
        Mop::Append { element, .. } => Some(*element),
        Mop::Write { value, .. } => Some(*value),
        Mop::Read { .. } => None,
    });
    if first_write.is_some_and(|number| number % 16 == 7) {
        return op.with(ABORT, Value::Bool(true));
    }
    op
}

/// The checkers of a workload, for the model that was asked for.
pub(crate) fn checkers(
    workload: &str,
    model: Option<&str>,
) -> anyhow::Result<Vec<Box<dyn Checker>>> {
    for_workload(workload, model).map_err(anyhow::Error::from)
}

/// The families of faults that `--faults` names; `default` without it.
pub(crate) fn fault_kinds(
    names: Option<&[String]>,
    default: &[FaultKind],
) -> anyhow::Result<Vec<FaultKind>> {
    let Some(names) = names else {
        return Ok(default.to_vec());
    };
    let mut kinds = Vec::new();
    for name in names
        .iter()
        .map(|name| name.trim())
        .filter(|name| *name != "none")
    {
        let kind = FaultKind::from_name(name).with_context(|| {
            let known = FaultKind::ALL.map(FaultKind::name).join(", ");
            format!("there is no fault {name:?}; known are {known}, and none")
        })?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}
