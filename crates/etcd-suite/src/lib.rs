//! etcd as a system under test: one, three or five members.
//!
//! Clients use the JSON gateway that each member has, over HTTP: the crates for etcd's own protocol need the compiler of protocol
//! buffers on the machine that builds. The gateway passes requests on to the same service of the same process.
//!
//! # Reading order
//!
//! `lib.rs` (what the suite declares), `http_connection.rs` (one request after the other over HTTP), `gateway.rs` (requests and
//! replies in JSON, and which errors are definite), `etcd_keys.rs` (requests and replies about keys), `etcd_client.rs` (requests
//! of a test as transactions of etcd), `etcd_nodes.rs` (the members).
//!
//! # What is absent
//!
//! - No proxy between members: each announces one address to all others. Links between them are cut in namespaces.
//! - No retry of a write that may have reached a member. A transaction whose comparisons failed is begun again: it changed
//!   nothing.

mod etcd_client;
mod etcd_keys;
mod etcd_nodes;
mod gateway;
mod http_connection;

use etcd_client::EtcdClients;
use etcd_nodes::EtcdSystem;
use seatrial_machine::FaultKind;
use seatrial_runner::{NodeLimits, ProcessNodes, ServerProgram};
use seatrial_suite::{
    Addressing, Deployment, Load, STORE_WORKLOADS, Setup, Suite, SuiteError, SuiteOption, Verb,
    member_count,
};
use std::sync::Arc;
use std::time::Duration;

/// The suite of etcd.
pub static ETCD: Etcd = Etcd;

/// The suite of etcd.
#[derive(Clone, Copy, Debug)]
pub struct Etcd;

const SERVER: ServerProgram = ServerProgram {
    name: "etcd",
    folders: &[],
    install: "apt-get install --no-install-recommends etcd-server",
};
/// Versions with which the suite was tried.
const TRIED: [&str; 2] = ["3.4", "3.5"];

const PROGRAM: &str = "etcd";
const READS: &str = "reads";
const LEASE: &str = "lease";
const UNSAFE_NO_FSYNC: &str = "unsafe-no-fsync";

const OPTIONS: [SuiteOption; 4] = [
    SuiteOption {
        name: PROGRAM,
        value_name: "PROGRAM",
        about: "The server: a path, or a name in PATH, such as one that `go build` made of another version",
        default: Some("etcd"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: READS,
        value_name: "HOW",
        about: "Consistency of reads: linearizable (a quorum is asked), serializable (the client's own member answers)",
        default: Some("linearizable"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: LEASE,
        value_name: "SECONDS",
        about: "Time to live of the lease of a lock, 1 to 3600",
        default: Some("10"),
        verbs: &[Verb::Test],
    },
    SuiteOption {
        name: UNSAFE_NO_FSYNC,
        value_name: "WHEN",
        about: "etcd's flag of this name, on or off: members sync nothing, which only a loss of power could show",
        default: Some("off"),
        verbs: &[Verb::Test],
    },
];

impl Suite for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn about(&self) -> &'static str {
        "etcd, one, three or five members"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &STORE_WORKLOADS
    }

    fn default_workload(&self) -> &'static str {
        "list-append"
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        member_count("etcd", &[1, 3, 5], asked)
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn faults(&self) -> &'static [FaultKind] {
        &[FaultKind::Kill, FaultKind::Pause, FaultKind::Partition]
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
        let reads = setup
            .options
            .one_of(READS, &["linearizable", "serializable"])?;
        let lease = setup.options.number(LEASE, 1..=3_600, 10)?;
        let no_fsync = setup.options.one_of(UNSAFE_NO_FSYNC, &["off", "on"])?;
        let (server, version) = match setup.options.path(PROGRAM) {
            Some(program) => SERVER.version_of(program, "--version")?,
            None => SERVER.version("--version")?,
        };
        setup.note_version("etcd", (": ", &TRIED), &version);
        setup.note_uncut_links("member");
        let system = EtcdSystem {
            server,
            token: format!("{:x}", setup.rng.fork("cluster").word()),
            is_cluster: setup.nodes > 1,
            syncs: no_fsync == "off",
        };
        let limits = NodeLimits {
            ready: Duration::from_secs(30),
            ..NodeLimits::default()
        };
        let nodes = ProcessNodes::new(Arc::new(system), setup.nodes);
        Ok(Deployment {
            nodes: Arc::new(nodes.with_ports(setup.port, 2).with_limits(limits)),
            clients: Arc::new(EtcdClients::new(
                setup.timeout,
                setup.workload.unwrap_or_default(),
                reads == "serializable",
                lease,
                setup.rng.fork("owners"),
            )),
        })
    }
}
