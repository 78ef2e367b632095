//! The bundled key-value store as a system under test: processes and simulated machines, with the same workloads and faults.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     # mod seatrial { pub fn main(_: &[&'static dyn seatrial_suite::Suite]) -> std::process::ExitCode { 0.into() } }
//!     seatrial::main(&[&seatrial_kv_suite::SUITE])
//! }
//! ```
//!
//! ```text
//!  Op ──► OperationInProgress ──► Procedure of its data type (data/) ──► Transaction ─┬─► KvClient ──► node process
//!  completion ◄── retry at a conflict ◄──────────── answers ◄── Outcome ◄──────────────────┴─► TransactionClient ──► World
//! ```
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `operation_in_progress.rs` with `data.rs` (an operation as transactions),
//! `data/native.rs` and any other file of `data/`, one per data type; `processes.rs`, `kv_client.rs` and
//! `shared_connection.rs` (real tests), `simulated.rs` (simulated tests); `tools.rs` (commands: `seatrial kv`); `kv_bench.rs`
//! (`seatrial bench kv`).
//!
//! # What is absent
//!
//! - No second implementation of a data type: real and simulated tests execute the same procedures.
//! - No retry of a transaction whose outcome is unknown: the operation completes as `info`.
//! - No state outside of the store, except a consumer's positions in logs, which end with its process.
//! - No checker: the crate `check` chooses them by the workload's name.

mod checkpoint_options;
mod credentials;
mod data;
mod encoding;
mod kv_bench;
mod kv_client;
mod node_cluster;
mod node_process;
mod operation_in_progress;
mod process_members;
mod processes;
mod shared_connection;
mod simulated;
mod tools;

use checkpoint_options::CheckpointOptions;
use credentials::Credentials;
use data::ABORT;
use kv_client::KvClients;
use processes::{KeyFile, KvSystem};
use seatrial_generator::Generator;
use seatrial_generator::workload::{self, Workload, WorkloadOptions};
use seatrial_history::{Mop, Op, Symbol, Value};
use seatrial_host::SecretKey;
use seatrial_kv::Bug;
use seatrial_machine::Rng;
use seatrial_runner::ProcessNodes;
use seatrial_suite::{
    Deployment, NodeSetup, OMITTED_WITH_EARLIER_STATES, OptionValues, PlantedBug, Setup, Simulator,
    Suite, SuiteError, SuiteOption, SuiteTool, Verb,
};
use std::sync::Arc;

/// The bundled store.
pub static SUITE: Kv = Kv;

/// The suite of the bundled store.
#[derive(Clone, Copy, Debug)]
pub struct Kv;

/// The bugs that can be planted, and the number of seeds within which `sim kv` must find each. (Three more need
/// storms of elections, lost journals and starts from changes: the store's own tests find `vote-forgotten`, `damaged-votes` and
/// `sessions-of-base`.)
const BUGS: [PlantedBug; 13] = [
    planted(
        Bug::AckBeforeAppend,
        "replies before the journal is durable",
        50,
    ),
    planted(Bug::StaleRead, "reads from an old state", 20),
    planted(
        Bug::LostAppend,
        "appends of one entry overwrite each other",
        20,
    ),
    planted(Bug::DirtyAbort, "an aborted transaction leaves effects", 20),
    planted(
        Bug::MissingSync,
        "counts a journal block as durable before its sync",
        100,
    ),
    planted(
        Bug::ConflictKept,
        "keeps replaced entries at a restart",
        5_000,
    ),
    planted(Bug::StaleLeaderRead, "reads without asking a quorum", 100),
    planted(
        Bug::CommitWithoutQuorum,
        "executes entries before a quorum has them",
        100,
    ),
    planted(
        Bug::ReplyAtAppend,
        "replies when the leader alone has an entry",
        100,
    ),
    planted(
        Bug::FuzzyCheckpoint,
        "a checkpoint has the state of a later index",
        500,
    ),
    planted(
        Bug::PurgePastCheckpoint,
        "frees journal that no checkpoint has",
        100,
    ),
    planted(
        Bug::SessionsNotInCheckpoint,
        "starts from a checkpoint without its sessions",
        200,
    ),
    planted(
        Bug::OwnClock,
        "replicas stamp sessions with their own clocks: no client sees it",
        20,
    ),
];

const fn planted(bug: Bug, about: &'static str, seeds_max: u64) -> PlantedBug {
    PlantedBug {
        name: bug.name(),
        about,
        seeds_max,
    }
}

/// The key that nodes and clients share.
const KEY_FILE: &str = "key-file";
/// Memory that all clients together can make a node hold.
const MEMORY: &str = "memory";

/// Where a node shows its status.
const HTTP: &str = "http";

/// Number of clients that share a connection.
const SHARE: &str = "clients-per-connection";

/// Bytes of commands between checkpoints.
const CHECKPOINT_BYTES: &str = "checkpoint-bytes";
/// How checkpoints are made.
const CHECKPOINT_MODE: &str = "checkpoint-mode";
/// Percent of the time that writing a checkpoint may take.
const CHECKPOINT_SHARE: &str = "checkpoint-share";

/// Number of states that stay readable.
const PAST_STATES: &str = "past-states";

/// Is the journal written?
const LOG: &str = "log";
/// Blocks of the journal under way.
const LOG_BLOCKS: &str = "log-blocks";

const OPTIONS: [SuiteOption; 17] = [
    SuiteOption {
        name: CHECKPOINT_BYTES,
        value_name: "BYTES",
        about: "Bytes of commands between checkpoints, 1 at least; a node with data keeps the value of its first start",
        default: Some("67108864"),
        verbs: &[Verb::Test, Verb::Node],
    },
    SuiteOption {
        name: CHECKPOINT_MODE,
        value_name: "MODE",
        about: "How checkpoints are made: concurrent, or for comparisons blocking or none",
        default: Some("concurrent"),
        verbs: &[Verb::Test, Verb::Node],
    },
    SuiteOption {
        name: CHECKPOINT_SHARE,
        value_name: "PERCENT",
        about: "Percent of the time that writing a checkpoint may take, 1 to 100",
        default: Some("30"),
        verbs: &[Verb::Test, Verb::Node],
    },
    SuiteOption {
        name: PAST_STATES,
        value_name: "N",
        about: "States that stay readable at their index (`kv get --at`): those at the newest N checkpoints, at most 16; each \
                costs the memory of what was overwritten since",
        default: Some("0"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: LOG,
        value_name: "MODE",
        about: "synced: a write is durable when it is acknowledged; none: a crash loses all writes after the newest checkpoint; \
                one node only",
        default: Some("synced"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: LOG_BLOCKS,
        value_name: "N",
        about: "Blocks of the log under way at once at a leader, 1 to 64: for disks whose syncs take long",
        default: Some("1"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: node_cluster::NODE,
        value_name: "N",
        about: "Number of this node in its cluster, 1 to 65535",
        default: Some("1"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: node_cluster::PEERS,
        value_name: "NODES",
        about: "The other nodes of the cluster with their addresses, such as n2=127.0.0.1:7002,n3=127.0.0.1:7003",
        default: None,
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: node_cluster::VOTERS,
        value_name: "NODES",
        about: "The founding voters of the cluster, such as 1,2,3; for a node that joins later",
        default: Some("all nodes"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: node_cluster::CLUSTER,
        value_name: "N",
        about: "Number of the cluster; nodes of another one are refused",
        default: Some("1"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: SHARE,
        value_name: "N",
        about: "Clients that share a connection, 1 to 64",
        default: Some(
            "16; 1 in a test with faults of the network, which are between each client and its node",
        ),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: KEY_FILE,
        value_name: "FILE",
        about: "Key that nodes and clients share, 16 to 4,096 bytes in a file; neither talks to one without it",
        default: None,
        verbs: &[Verb::Test, Verb::Node],
    },
    SuiteOption {
        name: seatrial_suite::TLS_CERT,
        value_name: "FILE",
        about: "Certificate of this node in PEM, for the DNS names nN (its number) and seatrial; connections use TLS",
        default: None,
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: seatrial_suite::TLS_KEY,
        value_name: "FILE",
        about: "Private key of the certificate, in PEM",
        default: None,
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: seatrial_suite::TLS_CA,
        value_name: "FILE",
        about: "Certificate of the authority that signs those of all nodes and clients, in PEM",
        default: None,
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: HTTP,
        value_name: "ADDRESS",
        about: "Serve a status page, /metrics for Prometheus and /status.json here; a port alone is one of 127.0.0.1",
        default: None,
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: MEMORY,
        value_name: "MIB",
        about: "Mebibytes that all clients together can make a node hold besides the store, at least 64",
        default: Some("256"),
        verbs: &[Verb::Node],
    },
];

impl Suite for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn about(&self) -> &'static str {
        "the bundled key-value store, replicated"
    }

    /// A journal that is damaged is noticed; one that is put back to an earlier state is not.
    fn omitted_faults(&self) -> &'static [&'static str] {
        OMITTED_WITH_EARLIER_STATES
    }

    fn workloads(&self) -> &'static [&'static str] {
        &workload::NAMES
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let key = setup.options.path(KEY_FILE);
        let key = key.map(KeyFile::open).transpose()?;
        let credentials = Credentials {
            key: key.as_ref().map(|file| file.key.clone()),
            tls: None,
        };
        let system = Arc::new(KvSystem {
            bug: setup.bug.map(|bug| bug.name),
            key,
            checkpoints: CheckpointOptions::read(setup.options)?,
        });
        let nodes = ProcessNodes::new(system, setup.nodes).with_ports(setup.port, 1);
        let workload = setup.workload.unwrap_or_default();
        let tokens = setup.rng.fork("tokens");
        let share = if setup.breaks_network { 1 } else { 16 };
        let share = setup.options.number(SHARE, 1..=64, share)? as u32;
        if setup.breaks_network && share > 1 {
            return Err(format!(
                "--{SHARE} {share}: faults of the network need a connection for each client"
            )
            .into());
        }
        let clients = KvClients::new(tokens, setup.timeout, workload, credentials, share);
        Ok(Deployment {
            nodes: Arc::new(nodes),
            clients: Arc::new(clients),
        })
    }

    /// Makes some transactions abort: a store that always commits would hide bugs of its rollback.
    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        let workload = Workload::new(name, rng, options)?;
        Ok(Workload {
            generator: workload.generator.map(abort_some).boxed(),
            ..workload
        })
    }

    /// Adds the workload's name to operations whose function and value do not determine their data type.
    fn planned_workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        let made = self.workload(name, rng, options)?;
        if !data::NAMED.contains(&made.name) {
            return Ok(made);
        }
        let name = Value::Word(Symbol::new(made.name));
        let named = move |op: Op| op.with(data::WORKLOAD, name.clone());
        Ok(Workload {
            generator: made.generator.map(named.clone()).boxed(),
            last: made.last.map(|last| last.map(named).boxed()),
            ..made
        })
    }

    fn functions(&self) -> Option<&'static [&'static str]> {
        Some(&["read", "write", "cas", "txn", "acquire", "release"])
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        match asked {
            None => Ok(3),
            Some(count @ (1 | 3 | 5 | 7)) => Ok(count),
            Some(count) => Err(format!(
                "kv runs on 1, 3, 5 or 7 nodes, not {count}: an even number tolerates no more failures than one less"
            )
            .into()),
        }
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn bugs(&self) -> &'static [PlantedBug] {
        &BUGS
    }

    fn run_node(&self, setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        node_process::run(setup)
    }

    fn simulator(&self) -> Option<&dyn Simulator> {
        Some(self)
    }

    fn tools(&self) -> &'static [SuiteTool] {
        tools::TOOLS
    }

    fn bench(&self) -> Option<&'static SuiteTool> {
        Some(&kv_bench::BENCH)
    }
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

/// The store's bug for a planted bug of a test.
fn store_bug(planted: Option<&PlantedBug>) -> Option<Bug> {
    planted.and_then(|bug| Bug::from_name(bug.name))
}

/// Reads the key from the file that an option names.
fn read_key(options: &OptionValues) -> Result<Option<SecretKey>, SuiteError> {
    Ok(options
        .path(KEY_FILE)
        .map(SecretKey::read_and_warn)
        .transpose()?)
}
