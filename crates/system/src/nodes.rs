//! The nodes of a system that is data: processes, with the steps around them that its file describes.

use crate::definition::{CommandTemplate, FileTemplate, NodeDefinition, SystemDefinition};
use crate::helpers;
use crate::probe;
use crate::reported_state;
use crate::scope::{Folders, NodeScope, SystemPlaces};
use crate::short_command as command;
use crate::template::Scope;
use seatrial_generator::Membership;
use seatrial_machine::{Fault, NodeId, Rng};
use seatrial_runner::{
    BoxFuture, ClientError, Death, InjectionResult, Mesh, NodeError, NodeLimits, NodePlace,
    NodeState, Nodes, OrdinaryUser, ProcessNodes, Signal, System,
};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time limit of a command before or after the nodes.
const STEP_LIMIT: Duration = Duration::from_mins(2);

/// What the nodes and the clients of one test share.
#[derive(Debug)]
pub(crate) struct SharedSystem {
    pub(crate) definition: SystemDefinition,
    /// The folder of the file that describes the system.
    pub(crate) home: PathBuf,
    pub(crate) user: Option<OrdinaryUser>,
    /// Set when the nodes are prepared.
    pub(crate) cluster: OnceLock<SystemPlaces>,
}

impl SharedSystem {
    pub(crate) fn cluster(&self) -> Result<&SystemPlaces, String> {
        let cluster = self.cluster.get();
        cluster.ok_or_else(|| "the nodes are not prepared yet".to_owned())
    }

    fn scope(&self, node: NodeId) -> Result<NodeScope<'_>, String> {
        let node = index(node);
        let cluster = self.cluster()?;
        Ok(NodeScope {
            cluster,
            node,
            seen_from: node,
        })
    }

    fn definition_of(&self, node: NodeId) -> &NodeDefinition {
        &self.definition.definitions[index(node)]
    }
}

/// The index of a node in tables of nodes.
fn index(node: NodeId) -> usize {
    assert!(node.number() >= 1, "nodes are numbered from 1");
    node.number() as usize - 1
}

/// Nodes that are started by [`ProcessNodes`]; before, between and after that, the file's commands run.
///
/// ```text
///   prepare: ports, helpers of clients
///   start: wipe, setup (first start) ─► files ─► process ─► ready ─► after_start (first start)
///   formed: every node is asked; then `check_client`
///   stop: stop.command ─► signal ─► logs are kept ─► wipe
/// ```
pub(crate) struct SystemNodes {
    shared: Arc<SharedSystem>,
    processes: ProcessNodes,
    /// By node: was it set up?
    is_set_up: Vec<AtomicBool>,
    /// Starts a client once the nodes have formed a system, so that a client that cannot work ends the test before it begins.
    check_client: Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl SystemNodes {
    pub(crate) fn new(
        shared: Arc<SharedSystem>,
        port: Option<u16>,
        check_client: Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    ) -> SystemNodes {
        let definition = &shared.definition;
        let count = definition.nodes.len();
        let limits = NodeLimits {
            ready: definition.ready_limit,
            stop: definition.stop.time,
        };
        let system = Arc::new(ProcessSystem(Arc::clone(&shared)));
        let in_a_row = 1 + definition.ports.len() as u16; // a definition has at most 1,000
        let processes = ProcessNodes::new(system, count as u32)
            .with_limits(limits)
            .with_ports(port, in_a_row);
        SystemNodes {
            processes,
            is_set_up: (0..count).map(|_| AtomicBool::new(false)).collect(),
            check_client,
            shared,
        }
    }

    async fn prepare_here(&self, folder: &Path, mesh: &Mesh) -> Result<(), NodeError> {
        // Processes of nodes may run elsewhere, and as another user: paths in templates are absolute.
        let folder = fs::canonicalize(folder).map_err(|error| file_error(folder, error))?;
        self.processes.prepare(&folder, mesh).await?;
        let helpers = folder.join("helpers");
        helpers::write(&helpers).map_err(|error| file_error(&helpers, error))?;
        let mut places = Vec::new();
        let mut ports = Vec::new();
        let named = self.shared.definition.ports.len() as u16; // it was asked for with the nodes
        for &node in self.processes.ids() {
            let place = self.processes.place(node).ok_or(NodeError::Unknown(node))?;
            if let Some(user) = &self.shared.user {
                user.own(&place.folder)
                    .map_err(|error| file_error(&place.folder, error))?;
            }
            let after = place.address.port() + 1;
            ports.push((after..after + named).collect());
            places.push(place.clone());
        }
        let cluster = SystemPlaces {
            folders: Folders {
                run: folder,
                home: self.shared.home.clone(),
                helpers,
            },
            names: self.shared.definition.nodes.clone(),
            ports,
            places,
        };
        assert!(
            self.shared.cluster.set(cluster).is_ok(),
            "nodes are prepared once"
        );
        Ok(())
    }

    async fn start_here(&self, node: NodeId) -> Result<InjectionResult, NodeError> {
        let definition = self.shared.definition_of(node);
        let is_first = !self.is_set_up[index(node)].swap(true, Ordering::Relaxed);
        if is_first {
            self.steps(node, "wipe", &self.shared.definition.wipe)
                .await?;
            self.steps(node, "setup", &definition.setup).await?;
        }
        let started = self.processes.start(node).await?;
        if is_first {
            self.steps(node, "after_start", &definition.after_start)
                .await?;
        }
        Ok(started)
    }

    /// Runs commands of the file one after another.
    async fn steps(
        &self,
        node: NodeId,
        what: &str,
        commands: &[CommandTemplate],
    ) -> Result<(), NodeError> {
        let failed = |error: String| NodeError::SetUp(format!("{node}: {what}: {error}"));
        for step in commands {
            let scope = self.shared.scope(node).map_err(failed)?;
            let environment = &self.shared.definition_of(node).environment;
            let mut filled = command::filled(step, environment, &scope).map_err(failed)?;
            filled.current_dir(&scope.cluster.places[scope.node].folder);
            let user = self.shared.user.as_ref();
            command::succeed(filled, user, STEP_LIMIT)
                .await
                .map_err(failed)?;
        }
        Ok(())
    }

    async fn stop_here(&self, node: NodeId) -> Result<(), NodeError> {
        let is_set_up = self.is_set_up[index(node)].swap(false, Ordering::Relaxed);
        if let Some(stop) = &self.shared.definition.stop.command
            && is_set_up
        {
            // A node that is down cannot be asked to stop; the signal follows in any case.
            let _ = self.steps(node, "stop", std::slice::from_ref(stop)).await;
        }
        self.processes.stop(node).await?;
        if !is_set_up {
            return Ok(());
        }
        self.keep_logs(node)?;
        self.steps(node, "wipe", &self.shared.definition.wipe).await
    }

    /// Copies the node's own logs into the run folder, as `n1-NAME.log`.
    fn keep_logs(&self, node: NodeId) -> Result<(), NodeError> {
        let failed = |error: String| NodeError::SetUp(format!("{node}: logs: {error}"));
        let scope = self.shared.scope(node).map_err(failed)?;
        for log in &self.shared.definition.logs {
            let path = PathBuf::from(log.fill(&scope).map_err(failed)?);
            let Some(name) = path.file_stem().filter(|_| path.is_file()) else {
                continue; // this node wrote none
            };
            let kept = format!("{node}-{}.log", name.to_string_lossy());
            let kept = scope.cluster.folders.run.join(kept);
            fs::copy(&path, &kept).map_err(|error| file_error(&kept, error))?;
        }
        Ok(())
    }

    /// The nodes that answer the question for the leader.
    async fn leaders(&self) -> Result<Membership, NodeError> {
        let Some(leader) = &self.shared.definition.leader else {
            return Err(NodeError::NoMembership);
        };
        let ids: BTreeSet<NodeId> = self.processes.ids().iter().copied().collect();
        let mut membership = Membership::default();
        for &node in &ids {
            membership.members.insert(node, ids.clone());
            let scope = self.shared.scope(node).map_err(NodeError::Members)?;
            let definition = self.shared.definition_of(node);
            let user = self.shared.user.as_ref();
            if probe::ask(leader, definition, user, &scope).await.is_ok() {
                membership.primaries.insert(node);
            }
        }
        Ok(membership)
    }
}

fn file_error(path: &Path, error: io::Error) -> NodeError {
    NodeError::File {
        path: path.to_owned(),
        error,
    }
}

/// Writes files from their templates, and gives them to `user`.
pub(crate) fn write_files(
    files: &[FileTemplate],
    user: Option<&OrdinaryUser>,
    scope: &dyn Scope,
) -> Result<(), String> {
    for file in files {
        let path = PathBuf::from(file.path.fill(scope)?);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&path, file.text.fill(scope)?).map_err(failed)?;
        if let Some(user) = user {
            user.own(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// The system as [`ProcessNodes`] needs it.
struct ProcessSystem(Arc<SharedSystem>);

impl System for ProcessSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let shared = &self.0;
        let scope = shared.scope(place.node)?;
        let node = shared.definition_of(place.node);
        write_files(&node.files, shared.user.as_ref(), &scope)?;
        let mut command = command::filled(&node.command, &node.environment, &scope)?;
        command.current_dir(&place.folder);
        Ok(command)
    }

    fn user(&self) -> Option<&OrdinaryUser> {
        self.0.user.as_ref()
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let shared = &self.0;
            let scope = shared.scope(place.node)?;
            let node = shared.definition_of(place.node);
            let answer = probe::ask(&shared.definition.ready, node, shared.user.as_ref(), &scope);
            answer.await?;
            Ok(())
        })
    }

    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let shared = &self.0;
            let Some(formed) = &shared.definition.formed else {
                return Ok(());
            };
            for place in places {
                let scope = shared.scope(place.node)?;
                let node = shared.definition_of(place.node);
                let answer = probe::ask(formed, node, shared.user.as_ref(), &scope).await;
                answer.map_err(|reason| format!("{}: {reason}", place.node))?;
            }
            Ok(())
        })
    }

    fn stop_signal(&self) -> Signal {
        self.0.definition.stop.signal
    }

    fn reports_states(&self) -> bool {
        self.0.definition.state.is_some()
    }

    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let shared = &self.0;
            let Some(question) = &shared.definition.state else {
                return Ok(None);
            };
            let scope = shared.scope(place.node)?;
            let node = shared.definition_of(place.node);
            let answer = probe::ask(question, node, shared.user.as_ref(), &scope).await?;
            Ok(Some(reported_state::read(&answer)?))
        })
    }
}

impl Nodes for SystemNodes {
    fn ids(&self) -> &[NodeId] {
        self.processes.ids()
    }

    fn prepare<'a>(
        &'a self,
        folder: &'a Path,
        mesh: &'a Mesh,
    ) -> BoxFuture<'a, Result<(), NodeError>> {
        Box::pin(self.prepare_here(folder, mesh))
    }

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<InjectionResult, NodeError>> {
        Box::pin(self.start_here(node))
    }

    fn formed(&self) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(async {
            self.processes.formed().await?;
            (self.check_client)().await.map_err(NodeError::SetUp)
        })
    }

    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        rng: Rng,
    ) -> BoxFuture<'a, Result<InjectionResult, NodeError>> {
        self.processes.inject(fault, rng)
    }

    fn view(&self) -> BoxFuture<'_, Result<Membership, NodeError>> {
        Box::pin(self.leaders())
    }

    fn reports_states(&self) -> bool {
        self.processes.reports_states()
    }

    fn state(&self, node: NodeId) -> BoxFuture<'_, Result<Option<NodeState>, NodeError>> {
        self.processes.state(node)
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(self.stop_here(node))
    }

    fn take_deaths(&self) -> Vec<Death> {
        self.processes.take_deaths()
    }
}
