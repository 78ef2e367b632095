//! The suite: what `seatrial test registers` and `seatrial node registers` are made from.

use crate::client::{Connect, Nodes};
use crate::monotone::{self, Monotone};
use crate::server;
use seatrial_check::{UnknownName, by_name, for_workload};
use seatrial_checker::Checker;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng};
use seatrial_runner::ProcessNodes;
use seatrial_suite::{Deployment, NodeSetup, PlantedBug, Setup, Suite, SuiteError};
use std::sync::Arc;

/// The suite of the register server.
pub static REGISTERS: Registers = Registers;

pub struct Registers;

const LAZY_LOG: &str = "lazy-log";

impl Suite for Registers {
    fn name(&self) -> &'static str {
        "registers"
    }

    fn about(&self) -> &'static str {
        "numbered registers behind a line protocol, one node"
    }

    /// One workload that seatrial has, with its checker, and one of our own.
    fn workloads(&self) -> &'static [&'static str] {
        &["cas-register", monotone::NAME]
    }

    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        match name {
            monotone::NAME => Ok(monotone::workload(rng)),
            _ => Ok(Workload::new(name, rng, options)?),
        }
    }

    fn checkers(
        &self,
        workload: &str,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        match workload {
            monotone::NAME => Ok(vec![by_name("stats", None)?, Box::new(Monotone)]),
            _ => for_workload(workload, model),
        }
    }

    /// Processes can be killed, paused and cut off from their clients whatever they are written in.
    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn bugs(&self) -> &'static [PlantedBug] {
        &[PlantedBug {
            name: LAZY_LOG,
            about: "acknowledges writes before they are in the log",
            seeds_max: 1,
        }]
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let nodes = Nodes {
            bug: setup.bug.map(|bug| bug.name),
        };
        let nodes = ProcessNodes::new(Arc::new(nodes), setup.nodes).with_ports(setup.port, 1);
        Ok(Deployment {
            nodes: Arc::new(nodes),
            clients: Arc::new(Connect {
                timeout: setup.timeout,
            }),
        })
    }

    fn run_node(&self, setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        let is_lazy = setup.bug.is_some_and(|bug| bug.name == LAZY_LOG);
        Ok(server::serve(setup.listen, setup.data, is_lazy)?)
    }
}
