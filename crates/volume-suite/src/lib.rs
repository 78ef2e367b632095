//! The block volume for its users: an NBD server, the processes of a volume, and its commands.
//!
//! ```text
//!  nbdcopy, qemu, fio ──► NbdServer ──requests──► VolumeCalls ──► Upstairs, driven by the host ──► replicas
//!  (TCP or Unix socket)   one task per connection ◄──replies──┘    (one thread with the tasks)
//! ```
//!
//! # Reading order
//!
//! `lib.rs`, `volume_tools.rs` (commands), `volume_file.rs` (a volume's description and keys), `attach_process.rs`,
//! `owner_machine.rs` and `replica_process.rs` (processes), `volume_calls.rs` (requests of this process and their replies),
//! `nbd_server.rs` (sockets, bounds), `nbd_connection.rs` (one client), `control_socket.rs` (commands to an attached volume),
//! `sweep_tools.rs` (clones, keys, repair), `parent_export.rs` (the parent of a clone), `offline_tools.rs` (commands on
//! folders), `volume_bench.rs`, `bench_processes.rs`, `native_bench.rs`, `ownership_bench.rs` and `nbd_client.rs` (rates and
//! latencies). Tests: `disk_workload.rs` (operations), `volume_world.rs` and `volume_upkeep.rs` (simulated),
//! `volume_processes.rs`, `volume_node.rs` and `volume_clients.rs` (real).
//!
//! # What is absent
//!
//! - No byte of the protocol NBD: `seatrial_nbd` has it, without sockets.
//! - No cache and no read-ahead: the kernel of the client has both.
//! - No queue without a bound: requests and bytes in flight are counted before a payload is read.

mod attach_process;
mod bench_processes;
mod control_socket;
mod disk_workload;
mod locked_volume;
mod native_bench;
mod nbd_client;
mod nbd_connection;
mod nbd_server;
mod offline_tools;
mod owner_machine;
mod ownership_bench;
mod parent_export;
mod replica_process;
mod sweep_tools;
mod volume_bench;
mod volume_calls;
mod volume_clients;
mod volume_file;
mod volume_node;
mod volume_processes;
mod volume_tools;
mod volume_upkeep;
mod volume_world;

use disk_workload::DISK;
use seatrial_generator::workload::{Workload, WorkloadOptions};
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::ProcessNodes;
use seatrial_suite::{
    Deployment, NodeSetup, OMITTED_WITH_EARLIER_STATES, PlantedBug, Setup, Simulator, Suite,
    SuiteError, SuiteOption, SuiteTool, Verb,
};
use seatrial_volume::VolumeBug;
use std::sync::{Arc, Mutex};
use volume_clients::VolumeClients;
use volume_node::{NODE, PEERS};
use volume_processes::VolumeSystem;
use volume_world::GEOMETRY;

pub use nbd_server::{NbdAddress, NbdLimits, NbdServer, NbdSocket};
pub use volume_calls::VolumeCalls;

/// The volume: its commands, and tests of it.
pub static SUITE: Volume = Volume;

/// The suite of the volume.
#[derive(Clone, Copy, Debug)]
pub struct Volume;

/// The bugs that can be planted, and the number of seeds within which `sim volume` must find each. (Three more
/// are found by the crate's own tests: an assertion, a replica that lies, and replicas that are compared with each other.)
const BUGS: [PlantedBug; 12] = [
    planted(
        VolumeBug::FlushAtOneCopy,
        "a flush is acknowledged by one replica",
        3_000,
    ),
    planted(
        VolumeBug::MissingSync,
        "a flush is acknowledged before its sync",
        1_000,
    ),
    planted(
        VolumeBug::ShortWriteOvertakes,
        "a short write overtakes a longer one that is being encrypted",
        50,
    ),
    planted(
        VolumeBug::RepairOverwrites,
        "a repair overwrites newer writes",
        20,
    ),
    planted(
        VolumeBug::NonceReuse,
        "versions begin anew when a replica reconnects",
        10,
    ),
    planted(
        VolumeBug::DirtySource,
        "a replica that lacks writes is the source of a repair",
        50,
    ),
    planted(
        VolumeBug::BarrierLost,
        "a flush does not wait for the writes before it",
        3_000,
    ),
    planted(
        VolumeBug::ReadsWhileRepairing,
        "a replica is read before its repair has ended",
        10,
    ),
    planted(
        VolumeBug::ReadOvertakesWrite,
        "a read does not wait for the writes before it",
        10,
    ),
    planted(
        VolumeBug::ReplayGap,
        "a replica that lacks more than what was kept for it is not compared",
        1_000,
    ),
    planted(
        VolumeBug::FillOverwrites,
        "filling a clone overwrites newer writes",
        100,
    ),
    planted(
        VolumeBug::RekeyWithoutLock,
        "sealing with a new key overwrites newer writes",
        100,
    ),
];

const fn planted(bug: VolumeBug, about: &'static str, seeds_max: u64) -> PlantedBug {
    PlantedBug {
        name: bug.name(),
        about,
        seeds_max,
    }
}

const OPTIONS: [SuiteOption; 2] = [
    SuiteOption {
        name: NODE,
        value_name: "N",
        about: "Number of this node in a test; the largest of all is the upstairs, the others are replicas",
        default: Some("1"),
        verbs: &[Verb::Node],
    },
    SuiteOption {
        name: PEERS,
        value_name: "NODES",
        about: "The other nodes of the test with their addresses, such as n2=127.0.0.1:7002,n3=127.0.0.1:7003",
        default: None,
        verbs: &[Verb::Node],
    },
];

/// The volume's bug for a planted bug of a test.
fn volume_bug(planted: Option<&PlantedBug>) -> Option<VolumeBug> {
    let named = |bug: &VolumeBug| planted.is_some_and(|it| it.name == bug.name());
    VolumeBug::ALL.into_iter().find(named)
}

impl Suite for Volume {
    fn name(&self) -> &'static str {
        "volume"
    }

    fn about(&self) -> &'static str {
        "a replicated, encrypted block volume"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &[DISK]
    }

    fn deploy(&self, setup: &Setup<'_>) -> Result<Deployment, SuiteError> {
        let system = Arc::new(VolumeSystem {
            bug: setup.bug.map(|bug| bug.name),
        });
        let nodes = ProcessNodes::new(system, setup.nodes).with_ports(setup.port, 1);
        let clients = VolumeClients {
            tokens: Mutex::new(setup.rng.fork("tokens")),
            upstairs: NodeId::server(setup.nodes),
            request_timeout: setup.timeout,
        };
        Ok(Deployment {
            nodes: Arc::new(nodes),
            clients: Arc::new(clients),
        })
    }

    fn workload(&self, name: &str, rng: &Rng, _: &WorkloadOptions) -> Result<Workload, SuiteError> {
        let made = disk_workload::workload(name, rng, GEOMETRY.blocks);
        made.ok_or_else(|| format!("{name} is no workload of the volume").into())
    }

    fn functions(&self) -> Option<&'static [&'static str]> {
        Some(&["read", "write", "trim", "flush"])
    }

    fn node_count(&self, asked: Option<u32>) -> Result<u32, SuiteError> {
        match asked {
            None => Ok(4),
            Some(count @ (2 | 4 | 6)) => Ok(count),
            Some(count) => Err(format!(
                "volume runs on 2, 4 or 6 nodes, not {count}: 1, 3 or 5 replicas and the upstairs"
            )
            .into()),
        }
    }

    /// Flushed writes may be gone if a replica is put back to an earlier state while another one is behind.
    fn omitted_faults(&self) -> &'static [&'static str] {
        OMITTED_WITH_EARLIER_STATES
    }

    fn options(&self) -> &'static [SuiteOption] {
        &OPTIONS
    }

    fn bugs(&self) -> &'static [PlantedBug] {
        &BUGS
    }

    fn run_node(&self, setup: &NodeSetup<'_>) -> Result<(), SuiteError> {
        volume_node::run(setup)
    }

    fn simulator(&self) -> Option<&dyn Simulator> {
        Some(self)
    }

    fn bench(&self) -> Option<&'static SuiteTool> {
        Some(&bench_processes::BENCH_VOLUME)
    }

    fn tools(&self) -> &'static [SuiteTool] {
        volume_tools::TOOLS
    }
}
