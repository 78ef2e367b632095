//! What a system under test tells seatrial about itself: the [`Suite`] trait, and what its methods take and return.
//!
//! The binary `seatrial` is `seatrial::main` with a list of suites. Its verbs `test`, `sim`, `node` and `plan`, their help
//! texts and completions know a system only by this trait, so a suite outside of this repository has the same command line
//! as the bundled one (`docs/guide/suites.md`, `examples/register`).
//!
//! A suite names its nodes ([`Suite::deploy`], [`Suite::run_node`]), options, workloads, clients, faults, planted bugs and,
//! if it has one, its simulated world ([`Simulator`]; [`simulate`] runs one).

mod option;
mod setup;
mod simulation;

pub use option::{OptionValues, SuiteOption, Verb};
pub use setup::{Deployment, NodeSetup, Report, Setup};
pub use simulation::{
    BootMachine, SimulatedRun, SimulatedSystem, Simulation, Simulator, Step, Timing, Work, simulate,
};

use seatrial_check::{UnknownName, for_workload};
use seatrial_checker::Checker;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng, unknown_name};
use seatrial_plan::{MakeWorkload, Vocabulary};
use std::error::Error;
use std::sync::Arc;

/// Why a suite cannot do what it was asked for.
pub type SuiteError = Box<dyn Error + Send + Sync>;

/// A bug that can be planted in a system, so that it can be shown that a test finds it.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBug {
    /// What `--bug` takes.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Seeds that `sim` may need to find it.
    pub seeds_max: u64,
}

/// A system under test. Only the first four methods and [`Suite::deploy`] have no default.
///
/// Suites are `static`: closures of a test keep references to them.
pub trait Suite: Send + Sync {
    /// Its name on the command line, in histories and in folders: lower case, digits, hyphens.
    fn name(&self) -> &'static str;

    /// One line for help texts.
    fn about(&self) -> &'static str;

    /// The workloads that its clients can carry out, at least one.
    fn workloads(&self) -> &'static [&'static str];

    /// The nodes and clients of a real test.
    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError>;

    /// The workload that `test` runs unless another is named: by default the first one.
    fn default_workload(&self) -> &'static str {
        self.workloads()[0]
    }

    /// The workload called `name`, one of [`Suite::workloads`]. By default the one of this name in
    /// [`seatrial_generator::workload`].
    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        Ok(Workload::new(name, rng, options)?)
    }

    /// The same as part of a plan, whose operations reach the clients without the name of their workload.
    fn planned_workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        self.workload(name, rng, options)
    }

    /// The functions (`f`) of operations that plans may use besides workloads; `None`: any.
    fn functions(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The checkers of a workload for the model that was asked for, if one was.
    fn checkers(
        &self,
        workload: &str,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        for_workload(workload, model)
    }

    /// The number of nodes: the one asked for by `--nodes` or a plan, if the system can have so many.
    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        match asked {
            None | Some(1) => Ok(1),
            Some(count) => Err(format!("{} has one node, not {count}", self.name()).into()),
        }
    }

    /// Options of its own, which `test`, `sim` and `node` take besides those of every suite.
    fn options(&self) -> &'static [SuiteOption] {
        &[]
    }

    /// The kinds of faults that `test` injects unless others are named.
    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    /// Names of faults that are never drawn, because they cannot be injected into its real nodes. By default those that
    /// processes cannot be given without root: their disks can neither be slowed down nor made to fail, and what was written
    /// but not synced stays with the kernel.
    fn omitted_faults(&self) -> &'static [&'static str] {
        &["slow-disk", "write-errors", "read-errors", "lose-unsynced"]
    }

    /// The bugs that can be planted in it.
    fn bugs(&self) -> &'static [PlantedBug] {
        &[]
    }

    /// Runs one node in this process until it is told to end ([`seatrial_host::terminated`]): the verb `node`. Systems with
    /// a program of their own have none.
    fn run_node(&self, _setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        Err(format!("the nodes of {} are no part of this program", self.name()).into())
    }

    /// Its simulated world, if it has one: the verb `sim`.
    fn simulator(&self) -> Option<&dyn Simulator> {
        None
    }
}

/// What plans of this suite may say.
pub fn vocabulary(suite: &dyn Suite) -> Vocabulary<'static> {
    Vocabulary {
        workloads: suite.workloads(),
        functions: suite.functions(),
    }
}

/// Makes the workloads of this suite's plans.
pub fn planned_workloads(suite: &'static dyn Suite) -> Arc<MakeWorkload> {
    Arc::new(|name: &str, rng: &Rng, options: &WorkloadOptions| {
        suite.planned_workload(name, rng, options).ok()
    })
}

/// The workload of this suite called `name`, as its table spells it.
pub fn known_workload(suite: &dyn Suite, name: &str) -> Result<&'static str, SuiteError> {
    let found = suite.workloads().iter().find(|known| **known == name);
    let names = suite.workloads().iter().copied();
    Ok(*found.ok_or_else(|| unknown_name("workload", name, names))?)
}

/// The bug of this suite called `name`.
pub fn known_bug(suite: &dyn Suite, name: &str) -> Result<&'static PlantedBug, SuiteError> {
    let found = suite.bugs().iter().find(|known| known.name == name);
    let names = suite.bugs().iter().map(|bug| bug.name);
    Ok(found.ok_or_else(|| unknown_name("bug", name, names))?)
}
