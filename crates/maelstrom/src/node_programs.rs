//! Nodes: the program under test as processes, each greeted with `init`.

use crate::hub::{Hub, HubFigures};
use crate::maelstrom_client::endpoint;
use crate::node_message::{Body, EndpointName, body, kind};
use crate::node_pipes::connect;
use crate::topology::Topology;
use seatrial_generator::Membership;
use seatrial_machine::{Disturbance, Fault, Link, NodeId, Rng};
use seatrial_runner::{
    BoxFuture, ClientError, Death, InjectionResult, LinkControl, Mesh, Meter, NodeError, NodePlace,
    NodeStreams, Nodes, ProcessNodes, System,
};
use seatrial_suite::Report;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How to start a node and find out that it is ready.
#[derive(Debug)]
pub(crate) struct MaelstromSystem {
    hub: Hub,
    program: PathBuf,
    arguments: Vec<OsString>,
    topology: Option<Topology>,
    greetings: Mutex<Greetings>,
}

/// By node: what became of the greeting of its present process, once that is known.
type Greetings = BTreeMap<NodeId, Arc<OnceLock<Result<(), String>>>>;

impl MaelstromSystem {
    /// Nodes that run `program` with `arguments`. `topology` is what they are told after `init`, if the workload has neighbours.
    pub(crate) fn new(
        hub: Hub,
        program: PathBuf,
        arguments: Vec<OsString>,
        topology: Option<Topology>,
    ) -> MaelstromSystem {
        MaelstromSystem {
            hub,
            program,
            arguments,
            topology,
            greetings: Mutex::default(),
        }
    }

    fn greetings(&self) -> MutexGuard<'_, Greetings> {
        self.greetings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl System for MaelstromSystem {
    /// The program runs in its node's folder, which survives kills, so that a node may keep files there.
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&place.folder);
        Ok(command)
    }

    /// Pipes to the network. The greeting is sent at once, and waits in the pipe until the process reads.
    fn streams(&self, place: &NodePlace) -> Result<Option<NodeStreams>, ClientError> {
        let name = endpoint(place.node);
        let ends = connect(&name, &self.hub)?;
        let nodes: Vec<String> = place.nodes.iter().map(ToString::to_string).collect();
        let fields = [
            ("node_id", name.as_str().into()),
            ("node_ids", nodes.clone().into()),
        ];
        let mut requests = vec![body("init", fields)];
        if let Some(topology) = self.topology {
            requests.push(body("topology", [("topology", topology.json(&nodes))]));
        }
        let answered = Arc::new(OnceLock::new());
        self.greetings().insert(place.node, Arc::clone(&answered));
        let hub = self.hub.clone();
        tokio::spawn(async move {
            let result = greet(&hub, &name, requests).await;
            assert!(answered.set(result).is_ok(), "one task sets it");
        });
        Ok(Some(NodeStreams {
            input: ends.input.into(),
            output: ends.output.into(),
        }))
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        let greeting = self.greetings().get(&place.node).cloned();
        let answered = greeting.and_then(|greeting| greeting.get().cloned());
        let result = match answered {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(reason.into()),
            None => Err("it has not answered init".into()),
        };
        Box::pin(std::future::ready(result))
    }
}

/// Sends each request to a node and waits for its reply before the next.
async fn greet(hub: &Hub, node: &EndpointName, requests: Vec<Body>) -> Result<(), String> {
    for request in requests {
        let asked = kind(&request).to_owned();
        let reply = hub.greet(node, request).await;
        let reply = reply.map_err(|_| format!("{node} did not answer {asked}"))?;
        if reply.kind() != format!("{asked}_ok") {
            let found = Json::Object(reply.body);
            return Err(format!("{node} answered {asked} with {found}"));
        }
    }
    Ok(())
}

/// The processes of a test, and the simulated network between them. At the end it writes `messages.svg` and `net.json` to the run
/// folder.
pub(crate) struct MaelstromNodes {
    processes: ProcessNodes,
    hub: Hub,
    report: Report,
    folder: OnceLock<PathBuf>,
    /// Nodes that have not been stopped for good.
    left: Mutex<BTreeSet<NodeId>>,
}

impl MaelstromNodes {
    /// These processes on this network.
    pub(crate) fn new(processes: ProcessNodes, hub: Hub, report: Report) -> MaelstromNodes {
        let left = processes.ids().iter().copied().collect();
        MaelstromNodes {
            processes,
            hub,
            report,
            folder: OnceLock::new(),
            left: Mutex::new(left),
        }
    }

    /// Writes what passed through the network, once all nodes have stopped.
    fn conclude(&self) {
        let Some(folder) = self.folder.get() else {
            return;
        };
        let figures = self.hub.figures();
        let net = serde_json::to_string_pretty(&net_json(&figures)).unwrap_or_default();
        let files = [("net.json", net), ("messages.svg", self.hub.diagram())];
        for (name, content) in files {
            let path = folder.join(name);
            if let Err(error) = fs::write(&path, content) {
                (self.report)(format_args!("{}: {error}", path.display()));
            }
        }
        let journal = figures.journal;
        (self.report)(format_args!(
            "{} messages between nodes, {:.2} for each request of a client (net.json, messages.svg)",
            journal.between_nodes(),
            journal.per_request(),
        ));
        for text in self.hub.take_violations() {
            (self.report)(format_args!("the protocol was broken: {text}"));
        }
    }
}

/// What passed through the network, in Maelstrom's words where it has them.
fn net_json(figures: &HubFigures) -> Json {
    let mut json = figures.journal.json();
    json["network"] = json!({
        "lost": figures.transit.lost,
        "duplicated": figures.transit.duplicated,
        "cut": figures.transit.cut,
        "overflow": figures.transit.overflow,
        "node-down": figures.delivery.down,
        "queue-full": figures.delivery.full,
        "violations": figures.violations,
    });
    json
}

impl Nodes for MaelstromNodes {
    fn ids(&self) -> &[NodeId] {
        self.processes.ids()
    }

    fn prepare<'a>(
        &'a self,
        folder: &'a Path,
        mesh: &'a Mesh,
    ) -> BoxFuture<'a, Result<(), NodeError>> {
        mesh.attach(Arc::new(HubLinks(self.hub.clone())));
        assert!(
            self.folder.set(folder.to_owned()).is_ok(),
            "nodes are prepared once"
        );
        Box::pin(async move {
            self.hub.start_timer();
            self.processes.prepare(folder, mesh).await
        })
    }

    fn start(&self, node: NodeId) -> BoxFuture<'_, Result<InjectionResult, NodeError>> {
        self.processes.start(node)
    }

    fn inject<'a>(
        &'a self,
        fault: &'a Fault,
        rng: Rng,
    ) -> BoxFuture<'a, Result<InjectionResult, NodeError>> {
        self.processes.inject(fault, rng)
    }

    fn view(&self) -> BoxFuture<'_, Result<Membership, NodeError>> {
        self.processes.view()
    }

    fn stop(&self, node: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(async move {
            let result = self.processes.stop(node).await;
            let is_last = {
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                left.remove(&node) && left.is_empty()
            };
            if is_last {
                self.conclude();
            }
            result
        })
    }

    fn take_deaths(&self) -> Vec<Death> {
        self.processes.take_deaths()
    }
}

/// The links of the simulated network, for the nemesis. Messages stand for bytes in what it counts.
#[derive(Debug)]
struct HubLinks(Hub);

fn named(links: &[Link]) -> impl Iterator<Item = (EndpointName, EndpointName)> {
    links
        .iter()
        .map(|link| (endpoint(link.from), endpoint(link.to)))
}

impl LinkControl for HubLinks {
    fn cut(&self, links: &[Link]) {
        self.0.cut(named(links));
    }

    fn disturb(&self, links: &[Link], how: Disturbance) {
        self.0.disturb(named(links), how);
    }

    fn heal(&self) {
        self.0.heal();
    }

    fn calm(&self) {
        self.0.calm();
    }

    fn meter(&self, links: &[Link]) -> Meter {
        let (cut, disturbed) = self.0.traffic(named(links));
        Meter {
            held_bytes: cut,
            disturbed_bytes: disturbed,
            ..Meter::default()
        }
    }
}
