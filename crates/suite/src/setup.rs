//! The setup that a suite receives for a real test, and the deployment that it returns.

use crate::{OptionValues, PlantedBug};
use seatrial_machine::Rng;
use seatrial_runner::{Clients, NetworkKind, Nodes};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where lines for people go: one line per call. The caller escapes what must not reach a terminal.
pub type Report = fn(fmt::Arguments<'_>);

/// The configuration of a real test, from the command line or a plan.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The workload; `None`: the operations come from a plan.
    pub workload: Option<&'static str>,
    /// The number of nodes, as [`Suite::node_count`](crate::Suite::node_count) returned it.
    pub nodes: u32,
    /// Number of client threads.
    pub concurrency: u32,
    /// Timeout of an operation.
    pub timeout: Duration,
    /// A bug to plant.
    pub bug: Option<&'static PlantedBug>,
    /// The port of every node; `None`: a free port for each.
    pub port: Option<u16>,
    /// May the test cut or disturb the network? If so, each client is an endpoint with links that faults can target;
    /// otherwise clients and nodes are connected without proxies, and clients may share connections.
    pub breaks_network: bool,
    /// How nodes and clients are connected. A suite whose nodes connect to each other at whole addresses
    /// ([`Addressing::WholeAddresses`](crate::Addressing::WholeAddresses)) can refuse a network without them, or warn that links
    /// between its nodes cannot be cut.
    pub network: NetworkKind,
    /// The suite's own options.
    pub options: &'a OptionValues,
    /// The seed of the test, for what must be the same in each run with this seed.
    pub seed: u64,
    /// Differs from run to run, even with the same seed: for names that no other run may have used.
    pub rng: Rng,
    /// Receives messages for the user.
    pub report: Report,
}

impl Setup<'_> {
    /// A note for the user, unless a server's program says that its version is one that the suite was tried with: in `said`
    /// that number stands after `mark`.
    pub fn note_version(&self, system: &str, (mark, tried): (&str, &[&str]), said: &str) {
        let is_tried = |tried: &&str| said.contains(&format!("{mark}{tried}."));
        if !tried.iter().any(is_tried) {
            (self.report)(format_args!(
                " note: this suite was tried with {system} {}, not with: {said}",
                tried.join(", ")
            ));
        }
    }

    /// A note for the user if links may be cut, but those between nodes (`server`, `member`) cannot be on this network.
    pub fn note_uncut_links(&self, node: &str) {
        if self.breaks_network && self.nodes > 1 && !self.network.has_whole_addresses() {
            (self.report)(format_args!(
                " note: on the network `{}` the links between {node}s cannot be cut, only those of clients: a {node} has one \
                 address for all others",
                self.network
            ));
        }
    }
}

/// The nodes and clients of a real test.
pub struct Deployment {
    /// The nodes of the system.
    pub nodes: Arc<dyn Nodes>,
    /// Opens its clients.
    pub clients: Arc<dyn Clients>,
}

/// One node to run in this process.
#[derive(Clone, Debug)]
pub struct NodeSetup<'a> {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder for its data; created if missing.
    pub data: &'a Path,
    /// The file through which a test skews the node's clock ([`seatrial_host::ClockOrder`]).
    pub clock: Option<&'a Path>,
    /// A bug to plant.
    pub bug: Option<&'static PlantedBug>,
    /// The suite's own options.
    pub options: &'a OptionValues,
    /// Receives messages for the user.
    pub report: Report,
}
