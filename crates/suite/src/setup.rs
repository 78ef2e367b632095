//! What a suite is told about a real test, and what it returns.

use crate::{OptionValues, PlantedBug};
use seatrial_machine::Rng;
use seatrial_runner::{Clients, Nodes};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where lines for people go: one line per call. The caller escapes what must not reach a terminal.
pub type Report = fn(fmt::Arguments<'_>);

/// A real test, as the command line or a plan asks for it.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What the clients do; `None`: a plan says so, operation by operation.
    pub workload: Option<&'static str>,
    /// The number of nodes, as [`Suite::node_count`](crate::Suite::node_count) returned it.
    pub nodes: u32,
    /// Client threads.
    pub concurrency: u32,
    /// How long a client waits for the system before it gives an operation up.
    pub timeout: Duration,
    /// A bug to plant.
    pub bug: Option<&'static PlantedBug>,
    /// The port of every node; chosen free for each when `None`.
    pub port: Option<u16>,
    /// May the test cut or disturb the network? Then each client is an endpoint that faults can be aimed at; otherwise clients
    /// and nodes are connected without proxies, and clients may share connections.
    pub breaks_network: bool,
    /// The suite's own options.
    pub options: &'a OptionValues,
    /// Differs from run to run, even with the same seed: for names that no other run may have used.
    pub rng: Rng,
    /// Where notices for people go.
    pub report: Report,
}

/// The nodes and clients of a real test.
pub struct Deployment {
    /// The system.
    pub nodes: Arc<dyn Nodes>,
    /// Opens its clients.
    pub clients: Arc<dyn Clients>,
}

/// One node to run in this process.
#[derive(Clone, Debug)]
pub struct NodeSetup<'a> {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder for its data; to be made when missing.
    pub data: &'a Path,
    /// The file in which a test orders the node's clock to be wrong ([`seatrial_host::ClockOrder`]).
    pub clock: Option<&'a Path>,
    /// A bug to plant.
    pub bug: Option<&'static PlantedBug>,
    /// The suite's own options.
    pub options: &'a OptionValues,
    /// Where notices for people go.
    pub report: Report,
}
