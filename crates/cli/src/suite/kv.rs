//! The bundled key-value store as a system under test: simulated and real, with the same workloads and faults.

pub(crate) mod binding;
mod consumer;
mod errand;
pub(crate) mod real;
pub(crate) mod simulated;

use crate::args::RunArguments;
use anyhow::{Context as _, ensure};
use binding::ABORT;
use seatrial_checker::{Checker, for_workload};
use seatrial_generator::plan::{MakeWorkload, Vocabulary};
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_generator::{FaultOptions, FaultOrder, Generator, parse_fault};
use seatrial_history::{Mop, Op, Symbol, Value};
use seatrial_kv::Bug;
use seatrial_machine::unknown_name;
use seatrial_machine::{FaultKind, NodeId, Rng};
use std::sync::Arc;
use std::time::Duration;

/// The workloads that the store can serve.
pub(crate) const WORKLOADS: [&str; 15] = seatrial_generator::workload::NAMES;

/// Those that `sim kv` takes in turn when it is told none.
pub(crate) const USUAL: [&str; 2] = ["cas-register", "list-append"];

/// The words that plans may use: those workloads, and operations on registers and locks under keys or in transactions.
pub(crate) const VOCABULARY: Vocabulary<'static> = Vocabulary {
    workloads: &WORKLOADS,
    functions: Some(&["read", "write", "cas", "txn", "acquire", "release"]),
};

/// Makes the workloads of plans. Where an operation does not tell by itself what it is about, it carries the name.
pub(crate) fn planned_workloads() -> Arc<MakeWorkload> {
    Arc::new(|name: &str, rng: &Rng, options: &WorkloadOptions| {
        let made = workload(name, rng, options).ok()?;
        if !matches!(made.name, "set" | "counter" | "monotonic") {
            return Some(made);
        }
        let name = Value::Word(Symbol::new(made.name));
        let said = move |op: Op| op.with(errand::WORKLOAD, name.clone());
        Some(Workload {
            generator: made.generator.map(said.clone()).boxed(),
            last: made.last.map(|last| last.map(said).boxed()),
            ..made
        })
    })
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
    let names = BUGS.map(|(bug, _)| bug.name());
    Bug::from_name(name).with_context(|| unknown_name("bug", name, names))
}

/// How many seeds `sim kv` may take to find this bug.
pub(crate) fn seed_budget(bug: Bug) -> u64 {
    let known = BUGS.iter().find(|(known, _)| *known == bug);
    known.map_or(200, |(_, budget)| *budget)
}

/// The name of a workload whose operations the store knows.
pub(crate) fn known(name: &str) -> anyhow::Result<&'static str> {
    let found = WORKLOADS.into_iter().find(|known| *known == name);
    found.with_context(|| unknown_name("workload", name, WORKLOADS))
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

/// Faults that real processes cannot be given without root: their disks can neither be slowed down nor made to fail, and
/// what was written and not synced stays with the kernel.
pub(crate) const OMITTED: [&str; 4] = ["slow-disk", "write-errors", "read-errors", "lose-unsynced"];

/// The faults that `--faults` names, `usual` without it, on this one-node system with so many clients.
pub(crate) fn fault_options(
    run: &RunArguments,
    usual: Vec<FaultKind>,
    concurrency: u32,
) -> anyhow::Result<FaultOptions> {
    let mut options = fault_options_of(usual, concurrency);
    if let Some(names) = &run.faults {
        options.kinds.clear();
        let names = names.iter().map(|name| name.trim());
        for name in names.filter(|name| *name != "none" && !name.is_empty()) {
            let (kind, targets) = parse_fault(name)?;
            ensure!(
                targets.is_empty() || run.plan.is_none(),
                "a plan says by itself what its faults strike; {name} has no place beside --plan"
            );
            if !options.kinds.contains(&kind) {
                options.kinds.push(kind);
            }
            if !targets.is_empty() {
                options.targets.entry(kind).or_default().extend(targets);
            }
        }
        options.check()?;
    }
    if let Some(order) = &run.fault_schedule {
        options.order = FaultOrder::from_name(order)?;
    }
    Ok(options)
}

/// These kinds of faults on this one-node system with so many clients.
pub(crate) fn fault_options_of(kinds: Vec<FaultKind>, concurrency: u32) -> FaultOptions {
    let clients: Vec<NodeId> = (0..concurrency).map(NodeId::client).collect();
    FaultOptions::new(kinds, [NodeId::server(1)], clients, Duration::ZERO)
}
