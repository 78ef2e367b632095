//! The bundled key-value store as a system under test: simulated and real, with the same workloads and faults.

pub(crate) mod binding;
pub(crate) mod real;
pub(crate) mod simulated;

use anyhow::{Context as _, bail};
use binding::ABORT;
use seatrial_checker::{Checker, for_workload};
use seatrial_generator::Generator;
use seatrial_history::{Mop, Op, Value};
use seatrial_kv::Bug;
use seatrial_machine::{FaultKind, Rng};
use seatrial_runner::Workload;

/// The workloads whose operations the store knows.
pub(crate) const WORKLOADS: [&str; 2] = ["register", "list-append"];

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

/// The workload called `name`. Some transactions of `list-append` are made to abort, because a store that only ever
/// commits hides what its aborts leave behind.
pub(crate) fn workload(name: &str, rng: &Rng) -> anyhow::Result<(Workload, Box<dyn Generator>)> {
    let known = WORKLOADS
        .contains(&name)
        .then(|| Workload::named(name, rng));
    let Some(mut workload) = known.flatten() else {
        bail!(
            "there is no workload {name:?}; kv has {}",
            WORKLOADS.join(", ")
        );
    };
    let nothing: Box<dyn Generator> = Box::new(None::<Box<dyn Generator>>);
    let clients = std::mem::replace(&mut workload.generator, nothing);
    Ok((workload, clients.map(abort_some).boxed()))
}

/// Marks about one in sixteen transactions that append. The choice is part of the operation: asked again, it is the
/// same.
fn abort_some(op: Op) -> Op {
    let first_append = op
        .value
        .as_txn()
        .into_iter()
        .flatten()
        .find_map(|mop| match mop {
            Mop::Append { element, .. } => Some(*element),
            _ => None,
        });
    if first_append.is_some_and(|element| element % 16 == 7) {
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
