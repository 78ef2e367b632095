//! The server of schedules: one node of a suite.

use crate::ScheduleError;
use seatrial_machine::{NodeId, Rng};
use seatrial_runner::{Mesh, NetworkKind, Nodes};
use seatrial_suite::{OptionValues, Report, Setup, Suite};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A server that runs, with its data in a folder. It ends with [`ScheduleServer::stop`]; if it is dropped, it is killed.
pub struct ScheduleServer {
    nodes: Arc<dyn Nodes>,
    /// Where sessions connect.
    pub address: SocketAddr,
}

/// Time limit of what the suite asks its own connections.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Connections: sessions of two schedules, one that watches.
const CONNECTIONS: u32 = 40;

impl ScheduleServer {
    /// Starts the suite's system with these options and waits until it serves. The folder must be empty. Runs within a runtime.
    pub async fn start(
        suite: &dyn Suite,
        options: &OptionValues,
        folder: &Path,
        report: Report,
    ) -> Result<ScheduleServer, ScheduleError> {
        let nodes = suite.node_count(Some(1)).map_err(ScheduleError::Suite)?;
        let seed = u64::from(std::process::id());
        let setup = Setup {
            workload: None,
            nodes,
            concurrency: CONNECTIONS,
            timeout: TIMEOUT,
            bug: None,
            port: None,
            breaks_network: false,
            network: NetworkKind::Local,
            options,
            seed,
            rng: Rng::from_seed(seed),
            report,
        };
        let nodes = suite.deploy(&setup).map_err(ScheduleError::Suite)?.nodes;
        let mesh = Mesh::without_proxies(Handle::current());
        nodes.prepare(folder, &mesh).await?;
        let first = *nodes.ids().first().expect("a system has a node");
        nodes.start(first).await?;
        nodes.formed().await?;
        let address = mesh.route(NodeId::client(0), first);
        let address = address.map_err(|error| ScheduleError::Suite(error.into()))?;
        Ok(ScheduleServer { nodes, address })
    }

    /// Ends the server in good order.
    pub async fn stop(self) -> Result<(), ScheduleError> {
        for node in self.nodes.ids() {
            self.nodes.stop(*node).await?;
        }
        Ok(())
    }
}
