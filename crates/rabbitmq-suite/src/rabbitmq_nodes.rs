//! The nodes: their configuration, when they are ready, and when they have formed a cluster.

use crate::{QueueKind, RabbitmqSettings};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, System, SystemMembers, json_page};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The nodes of a test.
pub(crate) struct RabbitmqSystem {
    /// The program.
    pub(crate) server: PathBuf,
    pub(crate) settings: RabbitmqSettings,
    /// The word by which Erlang's nodes trust each other.
    pub(crate) cookie: String,
}

/// The name of the queue.
pub(crate) const QUEUE: &str = "elements";

/// Ports of a node: for clients, for the other nodes, for their names, for questions about itself.
pub(crate) const PORTS: u16 = 4;
const PEER: u16 = 1;
const NAMES: u16 = 2;
const MANAGEMENT: u16 = 3;

/// The user `guest` in a question.
const GUEST: &str = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n";

impl System for RabbitmqSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let folder = std::path::absolute(&place.folder)?;
        let file = |name: &str| folder.join(name);
        fs::write(file("rabbitmq.conf"), self.configuration(place, &folder)?)?;
        fs::write(file("plugins"), "[rabbitmq_management].\n")?;
        // The server of names ends with the node; Erlang would start one that stays.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "epmd & exec \"$0\""]).arg(&self.server);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("RABBITMQ_") || text.starts_with("ERL_") {
                command.env_remove(name);
            }
        }
        let ip = place.ip().to_string();
        command.current_dir(&folder).env("HOME", &folder);
        command.env("ERL_EPMD_PORT", place.own_port(NAMES)?.port().to_string());
        command.env("ERL_EPMD_ADDRESS", &ip);
        let mut set = |name: &str, value: String| {
            command.env(format!("RABBITMQ_{name}"), value);
        };
        let path = |name: &str| file(name).display().to_string();
        set("NODENAME", name_of(place.node, &ip));
        set("USE_LONGNAME", "true".into());
        set("DIST_PORT", place.own_port(PEER)?.port().to_string());
        set("CONFIG_FILE", path("rabbitmq.conf"));
        set("CONF_ENV_FILE", path("none"));
        set("MNESIA_BASE", path("data"));
        set("LOG_BASE", path("log"));
        set("PID_FILE", path("pid"));
        set("ENABLED_PLUGINS_FILE", path("plugins"));
        set("GENERATED_CONFIG_DIR", path("generated"));
        let quoted = ip.replace('.', ",");
        set(
            "SERVER_ADDITIONAL_ERL_ARGS",
            format!(
                "-setcookie {} -kernel inet_dist_use_interface {{{quoted}}}",
                self.cookie
            ),
        );
        Ok(command)
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            // A node of a cluster listens before it has joined the others; `formed` waits for that.
            tokio::net::TcpStream::connect(place.address).await?;
            Ok(())
        })
    }

    /// All nodes run in one cluster, and the queue has all of its members.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            for place in places {
                let nodes = ask(place, "/api/nodes").await?;
                let running = nodes.as_array().map_or(&[][..], Vec::as_slice).iter();
                let running = running.filter(|node| node["running"] == true).count();
                if running < places.len() {
                    return Err(format!(
                        "{} knows {running} of {} running nodes",
                        place.node,
                        places.len()
                    )
                    .into());
                }
            }
            let place = places.first().ok_or("no node")?;
            self.declare(place).await?;
            let found = queue(place).await?;
            let members = match self.settings.kind {
                QueueKind::Quorum => names(&found["online"]).len(),
                QueueKind::Mirrored => names(&found["synchronised_slave_nodes"]).len() + 1,
                QueueKind::Classic => places.len(),
            };
            if members < places.len() {
                return Err(format!("the queue has {members} of {} members", places.len()).into());
            }
            Ok(())
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }
}

impl RabbitmqSystem {
    fn configuration(&self, place: &NodePlace, folder: &Path) -> Result<String, ClientError> {
        let management = place.own_port(MANAGEMENT)?;
        let mut lines = vec![
            format!("listeners.tcp.default = {}", place.address),
            "loopback_users = none".into(),
            format!("management.tcp.ip = {}", management.ip()),
            format!("management.tcp.port = {}", management.port()),
            "log.console = true".into(),
            "log.console.level = info".into(),
            "log.file = false".into(),
            format!(
                "cluster_partition_handling = {}",
                self.settings.partition_handling
            ),
        ];
        if self.settings.kind == QueueKind::Mirrored {
            let file = folder.join("definitions.json");
            fs::write(&file, mirrored_definitions().to_string())?;
            lines.push(format!("load_definitions = {}", file.display()));
        }
        if place.nodes.len() > 1 {
            lines.push("cluster_formation.peer_discovery_backend = classic_config".into());
            // They begin one after the other by a lock; a delay on top of it only takes time.
            for bound in ["min", "max"] {
                lines.push(format!(
                    "cluster_formation.randomized_startup_delay_range.{bound} = 0"
                ));
            }
            for (number, node) in (1..).zip(&place.nodes) {
                let ip = place
                    .ip_of(*node)
                    .ok_or_else(|| format!("{node} has no address"))?;
                lines.push(format!(
                    "cluster_formation.classic_config.nodes.{number} = {}",
                    name_of(*node, &ip.to_string())
                ));
            }
        }
        Ok(lines.join("\n") + "\n")
    }

    /// Creates the queue, unless it is there.
    async fn declare(&self, place: &NodePlace) -> Result<(), ClientError> {
        let uri = format!("amqp://guest:guest@{}/%2f", place.address);
        let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let mut arguments = FieldTable::default();
        let kind = match self.settings.kind {
            QueueKind::Quorum => "quorum",
            QueueKind::Mirrored | QueueKind::Classic => "classic",
        };
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        channel
            .queue_declare(QUEUE.into(), QueueDeclareOptions::durable(), arguments)
            .await?;
        connection.close(200, "done".into()).await?;
        Ok(())
    }
}

/// What a node has from its start: how the queue is mirrored, and the usual user, whom it would not have with such a file.
fn mirrored_definitions() -> Json {
    json!({
        "vhosts": [{"name": "/"}],
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "policies": [{
            "vhost": "/", "name": "mirrored", "pattern": "^elements$", "apply-to": "queues", "priority": 0,
            "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"},
        }],
    })
}

/// The name of a node in Erlang.
fn name_of(node: NodeId, ip: &str) -> String {
    format!("{node}@{ip}")
}

/// The node that has this name.
fn node_named(name: &str, nodes: &[NodeId]) -> Option<NodeId> {
    let (short, _) = name.split_once('@')?;
    nodes.iter().copied().find(|node| node.to_string() == short)
}

async fn ask(place: &NodePlace, path: &str) -> Result<Json, ClientError> {
    json_page(place.own_port(MANAGEMENT)?, path, GUEST).await
}

/// What a node says of the queue.
async fn queue(place: &NodePlace) -> Result<Json, ClientError> {
    ask(place, &format!("/api/queues/%2F/{QUEUE}")).await
}

/// The texts of a list.
fn names(list: &Json) -> Vec<&str> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Json::as_str).collect()
}

impl SystemMembers for RabbitmqSystem {
    /// The leader of the queue, or the node of a classic one.
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for place in places {
                let Ok(found) = queue(place).await else {
                    continue;
                };
                let all = place.nodes.iter().copied().collect();
                membership.members.insert(place.node, all);
                let leader = found["leader"].as_str().or(found["node"].as_str());
                let leader = leader.and_then(|name| node_named(name, &place.nodes));
                if leader == Some(place.node) {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                return Err("no node answers".into());
            }
            Ok(membership)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_nodes() {
        let nodes = [NodeId::server(1), NodeId::server(12)];
        assert_eq!(name_of(nodes[1], "10.0.0.12"), "n12@10.0.0.12");
        assert_eq!(node_named("n12@10.0.0.12", &nodes), Some(nodes[1]));
        assert_eq!(node_named("n2@10.0.0.2", &nodes), None);
        assert_eq!(node_named("n1", &nodes), None);
        assert_eq!(names(&json!(["a", 1, "b"])), ["a", "b"]);
        assert!(names(&Json::Null).is_empty());
    }
}
