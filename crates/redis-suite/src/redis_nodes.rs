//! The servers: their configuration, when they are ready, and when they have formed a system.

use crate::cluster;
use crate::redis_connection::Connection;
use crate::redis_session::{GROUP, word};
use crate::{RedisTopology, Settings};
use redis::{Value as Reply, cmd};
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The processes of a test. A node's configuration is written once: servers and sentinels change it themselves afterwards.
pub(crate) struct RedisSystem {
    /// The program.
    pub(crate) server: PathBuf,
    /// Does the version forbid the command DEBUG unless it is configured otherwise, as 7.0 and later do?
    pub(crate) debugs_on_demand: bool,
    pub(crate) settings: Settings,
}

/// Time limit of a question to a node.
const REPLY: Duration = Duration::from_millis(800);

impl System for RedisSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let number = place.node.number();
        let is_sentinel = number > self.settings.topology.data_nodes();
        let name = if is_sentinel {
            "sentinel.conf"
        } else {
            "redis.conf"
        };
        let folder = std::path::absolute(&place.folder)?;
        // The configuration takes text in quotes.
        let quoted = format!("{:?}", folder.display().to_string());
        let file = folder.join(name);
        if !file.exists() {
            let text = if is_sentinel {
                self.sentinel_file(place, &quoted)?
            } else {
                self.server_file(place, &quoted)?
            };
            std::fs::write(&file, text)?;
        }
        let mut command = Command::new(&self.server);
        command.arg(file);
        if is_sentinel {
            command.arg("--sentinel");
        }
        Ok(command)
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let reply = ask(place.address, &cmd("PING")).await?;
            match word(Some(&reply)).as_deref() {
                Some("PONG") => Ok(()),
                _ => Err(format!("PING is answered with {reply:?}").into()),
            }
        })
    }

    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            match self.settings.topology {
                RedisTopology::One => Ok(()),
                RedisTopology::Sentinel => watched(places).await,
                RedisTopology::Cluster => cluster::form(places).await,
            }
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    fn reports_states(&self) -> bool {
        self.settings.topology != RedisTopology::One
    }

    /// The digest of all keys, at the position of the stream of changes that the node has. Sentinels hold no data.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let topology = self.settings.topology;
            let holds_data = place.node.number() <= topology.data_nodes();
            if topology == RedisTopology::One || !holds_data {
                return Ok(None);
            }
            let before = position(place).await?;
            let digest = ask(place.address, cmd("DEBUG").arg("DIGEST")).await?;
            let hash = word(Some(&digest)).ok_or("the answer to DEBUG DIGEST is no text")?;
            if position(place).await? != before {
                return Err("it is receiving changes".into());
            }
            Ok(Some(NodeState {
                revision: before,
                hash,
                contents: None,
            }))
        })
    }

    /// In a cluster a primary is compared with its replica.
    fn state_group(&self, node: NodeId) -> Option<String> {
        let primaries = self.settings.topology.nodes() / 2;
        let is_cluster = self.settings.topology == RedisTopology::Cluster;
        is_cluster.then(|| format!("shard {}", (node.number() - 1) % primaries + 1))
    }
}

/// The stream of changes that a node follows or makes, and its position in it.
async fn position(place: &NodePlace) -> Result<String, ClientError> {
    let info = ask(place.address, cmd("INFO").arg("replication")).await?;
    let info = word(Some(&info)).unwrap_or_default();
    let fields: BTreeMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    if field("role") == "slave" && field("master_link_status") != "up" {
        return Err("it has no connection to its primary".into());
    }
    let (stream, offset) = (field("master_replid"), field("master_repl_offset"));
    Ok(format!("{stream}:{offset}"))
}

impl SystemMembers for RedisSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            let all: std::collections::BTreeSet<NodeId> =
                places.iter().map(|place| place.node).collect();
            for place in &places[..self.settings.topology.data_nodes() as usize] {
                let Ok(Reply::Array(role)) = ask(place.address, &cmd("ROLE")).await else {
                    continue;
                };
                membership.members.insert(place.node, all.clone());
                if word(role.first()).as_deref() == Some("master") {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                Err("no node answers".into())
            } else {
                Ok(membership)
            }
        })
    }
}

impl RedisSystem {
    /// The configuration of a server that holds data.
    fn server_file(&self, place: &NodePlace, folder: &str) -> Result<String, ClientError> {
        let (ip, port) = (place.address.ip(), place.address.port());
        let Settings {
            fsync,
            down_after,
            min_replicas,
            ..
        } = self.settings;
        let mut text = format!(
            "bind {ip}\nport {port}\ndir {folder}\ndaemonize no\nprotected-mode no\nsave \"\"\n\
             appendonly yes\nappendfsync {fsync}\nrepl-diskless-sync-delay 0\n"
        );
        if self.debugs_on_demand {
            text.push_str("enable-debug-command yes\n"); // for DEBUG DIGEST
        }
        match self.settings.topology {
            RedisTopology::One => {}
            RedisTopology::Sentinel => {
                let _ = writeln!(
                    text,
                    "replica-announce-ip {ip}\nreplica-announce-port {port}"
                );
                let _ = writeln!(
                    text,
                    "min-replicas-to-write {min_replicas}\nmin-replicas-max-lag 10"
                );
                if place.node != NodeId::server(1) {
                    let primary = address_of(place, NodeId::server(1))?;
                    let _ = writeln!(text, "replicaof {} {}", primary.ip(), primary.port());
                }
            }
            RedisTopology::Cluster => {
                let bus = port
                    .checked_add(1)
                    .ok_or("--port is below 65535, for the cluster's own port")?;
                let _ = writeln!(
                    text,
                    "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port {bus}\n\
                     cluster-node-timeout {down_after}\ncluster-announce-ip {ip}"
                );
            }
        }
        Ok(text)
    }

    fn sentinel_file(&self, place: &NodePlace, folder: &str) -> Result<String, ClientError> {
        let (ip, port) = (place.address.ip(), place.address.port());
        let primary = address_of(place, NodeId::server(1))?;
        let down_after = self.settings.down_after;
        Ok(format!(
            "bind {ip}\nport {port}\ndir {folder}\ndaemonize no\nprotected-mode no\nsentinel announce-ip {ip}\n\
             sentinel monitor {GROUP} {} {} 2\nsentinel down-after-milliseconds {GROUP} {down_after}\n\
             sentinel failover-timeout {GROUP} {}\n",
            primary.ip(),
            primary.port(),
            (down_after * 5).max(3_000),
        ))
    }
}

/// The address of another node, without a proxy: nodes and sentinels compare addresses. All nodes have the same port.
fn address_of(place: &NodePlace, node: NodeId) -> Result<SocketAddr, ClientError> {
    let ip = place
        .ip_of(node)
        .ok_or_else(|| format!("{node} has no address"))?;
    Ok(SocketAddr::new(ip, place.address.port()))
}

/// Asks a node on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, command: &redis::Cmd) -> Result<Reply, ClientError> {
    let mut connection = Connection::open(address, REPLY).await?;
    Ok(connection.ask(command).await?)
}

/// Checks that every sentinel knows the primary, both replicas and the other sentinels, and that both replicas are in sync. A
/// failover before that would find no replica.
async fn watched(places: &[NodePlace]) -> Result<(), ClientError> {
    let (servers, sentinels) = places.split_at(RedisTopology::Sentinel.data_nodes() as usize);
    let info = ask(servers[0].address, cmd("INFO").arg("replication")).await?;
    let info = word(Some(&info)).unwrap_or_default();
    let in_sync = info
        .lines()
        .filter(|line| line.starts_with("slave") && line.contains("state=online"));
    let count = in_sync.count();
    if count + 1 != servers.len() {
        return Err(format!("{count} of {} replicas are in sync", servers.len() - 1).into());
    }
    for place in sentinels {
        let reply = ask(place.address, cmd("SENTINEL").arg("MASTER").arg(GROUP)).await?;
        let state = fields(&reply);
        let field = |name: &str| state.get(name).map_or("", String::as_str);
        let known = [
            field("flags"),
            field("num-slaves"),
            field("num-other-sentinels"),
        ];
        if known != ["master", "2", "2"] {
            let [flags, replicas, others] = known;
            let node = place.node;
            return Err(format!(
                "sentinel {node} knows {replicas} of 2 replicas and {others} of 2 sentinels; the primary is {flags}"
            )
            .into());
        }
    }
    Ok(())
}

/// The names and values in a reply that lists them in turn.
fn fields(reply: &Reply) -> BTreeMap<String, String> {
    let items: Vec<&Reply> = match reply {
        Reply::Array(items) => items.iter().collect(),
        Reply::Map(pairs) => pairs
            .iter()
            .flat_map(|(name, value)| [name, value])
            .collect(),
        _ => Vec::new(),
    };
    let pairs = items.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((word(Some(pair[0]))?, word(Some(pair[1]))?)))
        .collect()
}
