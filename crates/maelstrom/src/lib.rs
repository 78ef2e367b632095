//! Maelstrom's protocol: nodes in any language, as programs that exchange JSON lines, on a simulated network.
//!
//! A *node* reads messages from its standard input and writes messages to its standard output, one JSON object a line; its
//! standard
//! error is its log. The network between nodes is in this process: it delays, loses, duplicates, reorders and cuts, from a
//! seed.
//! Programs written for Maelstrom (Kyle Kingsbury's workbench, `doc/protocol.md` there) run unchanged: the same messages, error
//! codes, workloads and services.
//!
//! ```text
//!  client ──call──► Hub ──line──► pipe ──► node (a process)
//!                    │ MessageBus: MessageNetwork (latency, loss, cuts), services, journal, rules of replies
//!  client ◄──reply── Hub ◄──line── pipe ◄── node
//! ```
//!
//! # Reading order
//!
//! `node_message.rs` and `error_code.rs` (the protocol), `message_network.rs` (transit), `service.rs`, `message_journal.rs` and
//! `bus.rs` (all of it without clock or thread), `hub.rs` (in real time), `node_pipes.rs` and `node_programs.rs` (processes),
//! `rpc.rs`, `exchange.rs`, `consumer.rs` and `maelstrom_client.rs` (operations), `maelstrom_workloads.rs`, `final_counter.rs`
//! and `protocol_checker.rs` (what is tested), `command_line.rs` (Maelstrom's option names), `topology.rs`, `diagram.rs`.
//!
//! # What is absent
//!
//! - No schedule of threads or processes: a seed fixes what happens to the k-th message of each link, not when a node sends it.
//! - No rule of a node's algorithm: replies are checked for their form here, and for their meaning from the history.

mod bus;
mod command_line;
mod consumer;
mod diagram;
mod error_code;
mod exchange;
mod final_counter;
mod hub;
mod maelstrom_client;
mod maelstrom_workloads;
mod message_journal;
mod message_network;
mod node_message;
mod node_pipes;
mod node_programs;
mod protocol_checker;
mod rpc;
mod service;
mod topology;

use exchange::Exchange;
use hub::Hub;
use maelstrom_client::MaelstromClients;
use maelstrom_workloads::{NAMES, named};
use message_network::{LatencyDistribution, TransitOptions};
use node_programs::{MaelstromNodes, MaelstromSystem};
use seatrial_check::{UnknownName, for_workload};
use seatrial_checker::Checker;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng, unknown_name};
use seatrial_runner::ProcessNodes;
use seatrial_suite::{Deployment, OptionValues, Setup, Suite, SuiteError, SuiteOption, Verb};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use topology::Topology;

/// The suite of programs that speak Maelstrom's protocol.
pub static SUITE: Maelstrom = Maelstrom;

/// The suite of programs that speak Maelstrom's protocol.
#[derive(Clone, Copy, Debug)]
pub struct Maelstrom;

const BIN: &str = "bin";
const BIN_ARGUMENTS: &str = "bin-args";
const LATENCY: &str = "latency";
const LATENCY_DISTRIBUTION: &str = "latency-dist";
const LOSS: &str = "loss";
const DUPLICATION: &str = "duplication";
const TOPOLOGY: &str = "topology";

const fn option(
    name: &'static str,
    value_name: &'static str,
    about: &'static str,
    default: Option<&'static str>,
) -> SuiteOption {
    SuiteOption {
        name,
        value_name,
        about,
        default,
        verbs: &[Verb::Test],
    }
}

const OPTIONS: [SuiteOption; 7] = [
    option(BIN, "FILE", "The program that runs a node", None),
    option(
        BIN_ARGUMENTS,
        "WORDS",
        "Arguments of that program, separated by spaces",
        None,
    ),
    option(
        LATENCY,
        "MILLISECONDS",
        "Mean latency of messages between nodes",
        Some("0"),
    ),
    option(
        LATENCY_DISTRIBUTION,
        "NAME",
        "Distribution of latencies: constant, uniform, exponential",
        Some("constant"),
    ),
    option(
        LOSS,
        "PERCENT",
        "Messages between nodes that are lost, of every hundred",
        Some("0"),
    ),
    option(
        DUPLICATION,
        "PERCENT",
        "Messages between nodes that arrive twice, of every hundred",
        Some("0"),
    ),
    option(
        TOPOLOGY,
        "NAME",
        "Neighbours in the workload broadcast: grid, line, total, tree2, tree3, tree4",
        Some("grid"),
    ),
];

/// What `seatrial maelstrom` is followed by.
const USAGE: &str = "usage: seatrial maelstrom test -w WORKLOAD --bin FILE [OPTIONS] [-- ARGUMENTS] (docs/guide/maelstrom.md)";
/// Number of nodes, unless asked otherwise.
const NODES: u32 = 5;
/// Most nodes of a test.
const NODES_MAX: u32 = 1_000;
/// The largest latency, in milliseconds.
const LATENCY_MAX: u64 = 60_000;

impl Suite for Maelstrom {
    fn name(&self) -> &'static str {
        "maelstrom"
    }

    fn about(&self) -> &'static str {
        "programs that speak Maelstrom's protocol (--bin), on a simulated network"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        let known = named(name).ok_or_else(|| unknown_name("workload", name, NAMES))?;
        known.operations(rng, options)
    }

    fn checkers(
        &self,
        workload: &str,
        model: Option<&str>,
    ) -> Result<Vec<Box<dyn Checker>>, UnknownName> {
        match named(workload) {
            Some(known) => known.checkers(model),
            None => for_workload(workload, model),
        }
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        let count = asked.unwrap_or(NODES);
        if (1..=NODES_MAX).contains(&count) {
            return Ok(count);
        }
        Err(format!("maelstrom runs on 1 to {NODES_MAX} nodes, not {count}").into())
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Partition]
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    /// `test` with Maelstrom's options.
    fn translate(&self, words: &[OsString]) -> Option<Result<Vec<OsString>, SuiteError>> {
        let translated = match words.split_first() {
            Some((verb, options)) if verb == "test" => command_line::translate(options),
            _ => Err(USAGE.into()),
        };
        Some(translated.map_err(Into::into))
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let name = setup.workload.ok_or("maelstrom takes no plans")?;
        let workload = named(name).ok_or_else(|| unknown_name("workload", name, NAMES))?;
        let transit = transit_options(setup.options)?;
        let topology = chosen(setup.options, TOPOLOGY, &Topology::NAMES)?;
        let has_topology = workload.exchange == Exchange::Broadcast;
        let program = program(setup.options)?;
        let arguments = setup.options.get(BIN_ARGUMENTS).map(|words| {
            let words = words.to_string_lossy();
            let words = words.split_whitespace().map(Into::into);
            words.collect::<Vec<_>>()
        });
        let hub = Hub::new(transit, &Rng::from_seed(setup.seed).fork("maelstrom"));
        let system = MaelstromSystem::new(
            hub.clone(),
            program,
            arguments.unwrap_or_default(),
            has_topology.then_some(topology),
        );
        let processes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(MaelstromNodes::new(processes, hub.clone(), setup.report)),
            clients: Arc::new(MaelstromClients {
                hub,
                exchange: workload.exchange,
            }),
        })
    }
}

/// What happens to every message, from the options.
fn transit_options(options: &OptionValues) -> Result<TransitOptions, SuiteError> {
    let percent = |name: &str| options.number(name, 0..=100, 0);
    Ok(TransitOptions {
        latency: Duration::from_millis(options.number(LATENCY, 0..=LATENCY_MAX, 0)?),
        distribution: chosen(options, LATENCY_DISTRIBUTION, &LatencyDistribution::NAMES)?,
        loss_percent: percent(LOSS)? as u8,
        duplication_percent: percent(DUPLICATION)? as u8,
    })
}

/// The value that the option `option` names; the default if it is not given.
fn chosen<T: Copy + Default>(
    options: &OptionValues,
    option: &str,
    known: &[(&'static str, T)],
) -> Result<T, SuiteError> {
    let Some(given) = options.get(option) else {
        return Ok(T::default());
    };
    let name = given.to_string_lossy();
    let found = known.iter().find(|(known, _)| *known == name);
    let found = found.ok_or_else(|| {
        let names = known.iter().map(|(name, _)| *name);
        format!("--{option}: {}", unknown_name("value", &name, names))
    })?;
    Ok(found.1)
}

/// The program under test: a file, as an absolute path, because nodes run in folders of their own; or a name in PATH.
fn program(options: &OptionValues) -> Result<PathBuf, SuiteError> {
    let file = options
        .path(BIN)
        .ok_or("--bin FILE: the program under test is missing")?;
    if file.components().count() == 1 && !file.exists() {
        return Ok(file.to_owned());
    }
    std::path::absolute(file)
        .and_then(|path| path.metadata().map(|_| path))
        .map_err(|error| format!("--{BIN} {}: {error}", file.display()).into())
}
