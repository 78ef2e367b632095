//! The block volume for its users: an NBD server, the processes of a volume, and its commands.
//!
//! ```text
//!  nbdcopy, qemu, fio ──► NbdServer ──requests──► VolumeCalls ──► Upstairs, driven by the host ──► replicas
//!  (TCP or Unix socket)   one task per connection ◄──replies──┘    (one thread with the tasks)
//! ```
//!
//! # Reading order
//!
//! `lib.rs`, `volume_tools.rs` (commands), `volume_file.rs` (a volume's description and keys), `attach_process.rs` and
//! `replica_process.rs` (processes), `volume_calls.rs` (requests of this process and their replies), `nbd_server.rs` (sockets,
//! bounds), `nbd_connection.rs` (one client), `control_socket.rs` (commands to an attached volume), `offline_tools.rs`
//! (commands on folders), `volume_bench.rs`, `bench_processes.rs` and `nbd_client.rs` (rates and latencies).
//!
//! # What is absent
//!
//! - No byte of the protocol NBD: `seatrial_volume::nbd` has it, without sockets.
//! - No cache and no read-ahead: the kernel of the client has both.
//! - No queue without a bound: requests and bytes in flight are counted before a payload is read.

mod attach_process;
mod bench_processes;
mod control_socket;
mod nbd_client;
mod nbd_connection;
mod nbd_server;
mod offline_tools;
mod replica_process;
mod volume_bench;
mod volume_calls;
mod volume_file;
mod volume_tools;

use seatrial_suite::{Deployment, Setup, Suite, SuiteError, SuiteTool};

pub use nbd_server::{NbdAddress, NbdLimits, NbdServer, NbdSocket};
pub use volume_calls::VolumeCalls;

/// The volume: its commands.
pub static SUITE: Volume = Volume;

/// The suite of the volume.
#[derive(Clone, Copy, Debug)]
pub struct Volume;

impl Suite for Volume {
    fn name(&self) -> &'static str {
        "volume"
    }

    fn about(&self) -> &'static str {
        "a replicated, encrypted block volume"
    }

    fn workloads(&self) -> &'static [&'static str] {
        &[]
    }

    fn deploy(&self, _: &Setup<'_>) -> Result<Deployment, SuiteError> {
        Err("the volume has no workload".into())
    }

    fn bench(&self) -> Option<&'static SuiteTool> {
        Some(&bench_processes::BENCH_VOLUME)
    }

    fn tools(&self) -> &'static [SuiteTool] {
        volume_tools::TOOLS
    }
}
