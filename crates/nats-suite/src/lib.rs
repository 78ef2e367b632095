//! NATS with JetStream as a system under test: one, three or five servers.
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `jetstream_streams.rs` (the streams of a test), `nats_connection.rs` (one connection, and
//! which errors are definite), `nats_client.rs` (requests of a test as messages), `nats_log.rs` (the same for the workload
//! `log`), `nats_nodes.rs` (the servers).
//!
//! # What is absent
//!
//! - No retry of a message that may have reached a server: its outcome is unknown.
//! - No proxy between servers: each has one address for all others. Links between them are cut in namespaces.
//! - No TLS and no accounts.

mod jetstream_streams;
mod nats_client;
mod nats_connection;
mod nats_log;
mod nats_nodes;

use nats_client::NatsClients;
use nats_nodes::NatsSystem;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{FaultKind, Rng};
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, NODE_DISK, OptionValues, Setup, Suite, SuiteError, SuiteOption,
    Verb, member_count, omitted_with_disks, workload_without_transactions,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The suite of NATS.
pub static NATS: Nats = Nats;

/// The suite of NATS.
#[derive(Clone, Copy, Debug)]
pub struct Nats;

const SERVER: ServerProgram = ServerProgram {
    name: "nats-server",
    folders: &["/usr/sbin"],
    install: "apt-get install --no-install-recommends nats-server",
};
/// Versions with which the suite was tried.
const TRIED: [&str; 3] = ["2.9", "2.10", "2.12"];

const NATS_SERVER: &str = "nats-server";
const REPLICAS: &str = "replicas";
const SYNC: &str = "sync";
const READS: &str = "reads";

const OPTIONS: [SuiteOption; 5] = [
    SuiteOption {
        name: NATS_SERVER,
        value_name: "PROGRAM",
        about: "The server: a path, or a name in PATH, such as one that `go build` made of another version",
        default: Some("nats-server"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: REPLICAS,
        value_name: "N",
        about: "Replicas of each stream: 1, 3 or 5, at most the number of nodes [default: that number]",
        default: None,
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: SYNC,
        value_name: "WHEN",
        about: "When messages are synced: default (every two minutes), always (before they are acknowledged; from 2.10 on)",
        default: Some("default"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: READS,
        value_name: "FROM",
        about: "Where reads go: leader (of the stream), any (the nearest replica, the default of NATS' key-value buckets)",
        default: Some("leader"),
        verbs: &[Verb::Test],
    },
    NODE_DISK,
];

/// What streams and registers can carry out. The first is the default.
const WORKLOADS: [&str; 7] = [
    "log",
    "total-queue",
    "queue",
    "set",
    "register",
    "cas-register",
    "unique-ids",
];

/// The values of the options.
#[derive(Clone, Copy, Debug)]
struct NatsSettings {
    replicas: u32,
    /// Are messages synced before they are acknowledged?
    syncs_always: bool,
    /// Does any replica answer reads?
    reads_anywhere: bool,
}

impl NatsSettings {
    fn read(nodes: u32, options: &OptionValues) -> Result<NatsSettings, SuiteError> {
        let replicas = options.number(REPLICAS, 1..=5, u64::from(nodes))?;
        let replicas = u32::try_from(replicas)?;
        if !matches!(replicas, 1 | 3 | 5) || replicas > nodes {
            return Err(format!(
                "--{REPLICAS} takes 1, 3 or 5, and at most the number of nodes, which is {nodes}, not {replicas}"
            )
            .into());
        }
        Ok(NatsSettings {
            replicas,
            syncs_always: options.one_of(SYNC, &["default", "always"])? == "always",
            reads_anywhere: options.one_of(READS, &["leader", "any"])? == "any",
        })
    }
}

impl Suite for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn about(&self) -> &'static str {
        "NATS JetStream, one, three or five servers"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &WORKLOADS
    }

    /// An operation on a log has one send or poll: JetStream has no transactions.
    fn workload(
        &self,
        name: &str,
        rng: &Rng,
        options: &WorkloadOptions,
    ) -> Result<Workload, SuiteError> {
        workload_without_transactions(name, rng, options)
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        member_count("NATS", &[1, 3, 5], asked)
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
    }

    fn omitted_faults_with(&self, options: &OptionValues) -> &'static [&'static str] {
        omitted_with_disks(options, self.omitted_faults())
    }

    fn log_patterns(&self) -> &'static [&'static str] {
        &["panic: ", r"\[FTL\]"]
    }

    fn addressing(&self) -> Addressing {
        Addressing::WholeAddresses
    }

    fn load(&self) -> Load {
        Load {
            rate: 500.0,
            concurrency: 12,
        }
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let settings = NatsSettings::read(setup.nodes, setup.options)?;
        let (server, version) = server(setup.options)?;
        let number = minor_version(&version);
        if settings.syncs_always && number.is_some_and(|number| number < (2, 10)) {
            return Err(format!(
                "--{SYNC} always: {version} has no option sync_interval, 2.10 and later do; build one with: \
                 go install github.com/nats-io/nats-server/v2@v2.10.22, and name it with --{NATS_SERVER}"
            )
            .into());
        }
        setup.note_version("NATS", ("v", &TRIED), &version);
        setup.note_uncut_links("server");
        let system = NatsSystem {
            server,
            settings,
            workload: setup.workload,
            timeout: setup.timeout,
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(40),
            ..NodeLimits::default()
        };
        let nodes = setup.with_disks(ProcessNodes::new(Arc::new(system), setup.nodes))?;
        Ok(Deployment {
            nodes: Arc::new(
                nodes
                    .with_ports(setup.port, nats_nodes::PORTS)
                    .with_limits(limits),
            ),
            clients: Arc::new(NatsClients {
                timeout: setup.timeout,
                workload: setup.workload.unwrap_or_default(),
                reads_anywhere: settings.reads_anywhere,
            }),
        })
    }
}

/// The program, and what it says of its version.
fn server(options: &OptionValues) -> Result<(PathBuf, String), SuiteError> {
    match options.path(NATS_SERVER) {
        Some(program) => SERVER.version_of(program, "--version"),
        None => SERVER.version("--version"),
    }
}

/// The first two numbers of a version such as `nats-server: v2.9.10`.
fn minor_version(text: &str) -> Option<(u32, u32)> {
    let (_, number) = text.rsplit_once('v')?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(minor_version("nats-server: v2.9.10"), Some((2, 9)));
        assert_eq!(minor_version("nats-server: v2.12.1"), Some((2, 12)));
        assert_eq!(minor_version("nats-server"), None);
        assert!(minor_version("nats-server: v2.9.10") < Some((2, 10)));
    }

    #[test]
    fn a_stream_has_no_more_replicas_than_nodes() {
        let mut options = OptionValues::default();
        let replicas =
            |options: &OptionValues| NatsSettings::read(3, options).map(|found| found.replicas);
        assert_eq!(replicas(&options).unwrap(), 3);
        options.insert(REPLICAS, "1".into());
        assert_eq!(replicas(&options).unwrap(), 1);
        for wrong in ["2", "5", "0"] {
            options.insert(REPLICAS, wrong.into());
            let error = replicas(&options).unwrap_err().to_string();
            assert!(error.starts_with("--replicas takes"), "{error}");
        }
    }
}
