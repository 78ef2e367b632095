//! The connections of one client, and which node a command goes to.

use crate::commands::{RedisCommand, RedisRequest};
use crate::redis_connection::{Connection, refusal};
use crate::{RedisTopology, Settings};
use redis::{Cmd, RedisError, Value as Reply, cmd};
use seatrial_machine::NodeId;
use seatrial_runner::ClientSlot;
use seatrial_suite::StoreRefusal;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The name of the primary and its replicas, for sentinels.
pub(crate) const GROUP: &str = "main";
/// Redirections that one command follows.
const REDIRECTIONS_MAX: usize = 5;
/// Keys whose node is remembered.
const KNOWN_KEYS_MAX: usize = 10_000;

/// Why a command has no reply.
enum CommandError {
    /// It was not sent.
    NotSent(String),
    /// The server refused it, or the connection was lost.
    Error(RedisError),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NotSent(reason) => f.write_str(reason),
            CommandError::Error(error) => error.fmt(f),
        }
    }
}

/// Sends commands to the node that has their data, by one connection per node, opened when it is needed.
///
/// | topology | a command goes to |
/// | --- | --- |
/// | one server | it |
/// | sentinels | the primary, which a sentinel or a node's own role names; a read: the client's node if reads go anywhere |
/// | cluster | the node that the last redirection of its key named, at first the client's own |
pub(crate) struct RedisSession {
    settings: Settings,
    slot: ClientSlot,
    timeout: Duration,
    connections: BTreeMap<NodeId, Connection>,
    /// The primary, in a topology with sentinels.
    primary: Option<NodeId>,
    /// In a cluster: the node of a key.
    known: BTreeMap<String, NodeId>,
    /// Was a command left without a reply?
    pub(crate) is_broken: bool,
}

impl RedisSession {
    /// A session after a first round trip with a node that serves it.
    pub(crate) async fn open(
        settings: Settings,
        slot: &ClientSlot,
        timeout: Duration,
    ) -> Result<RedisSession, String> {
        let mut session = RedisSession {
            settings,
            slot: slot.clone(),
            timeout,
            connections: BTreeMap::new(),
            primary: None,
            known: BTreeMap::new(),
            is_broken: false,
        };
        if settings.topology == RedisTopology::Sentinel {
            session.primary = Some(session.find_primary().await?);
        }
        let node = session.primary.unwrap_or(session.home());
        let reply = session.ask_node(node, &cmd("PING")).await;
        reply.map_err(|error| error.to_string())?;
        Ok(session)
    }

    /// The data node of this client.
    fn home(&self) -> NodeId {
        let count = self.settings.topology.data_nodes();
        NodeId::server((self.slot.node.number() - 1) % count + 1)
    }

    /// The node that is the primary now: the one that the client's sentinel names, or the first whose role it is.
    async fn find_primary(&mut self) -> Result<NodeId, String> {
        let count = self.settings.topology.data_nodes();
        let home = self.home().number();
        if self.settings.by_role {
            for number in (home..home + count).map(|number| (number - 1) % count + 1) {
                let node = NodeId::server(number);
                if self.is_primary(node).await == Ok(true) {
                    return Ok(node);
                }
            }
            return Err("no node says that it is the primary".into());
        }
        let sentinel = NodeId::server(home + count);
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(GROUP);
        let reply = self.ask_node(sentinel, &question).await;
        let reply = reply.map_err(|error| format!("sentinel {sentinel}: {error}"))?;
        let node = node_at(&self.slot, &address_in(&reply)?)?;
        if self.is_primary(node).await? {
            Ok(node)
        } else {
            Err(format!("{sentinel} names {node}, which is no primary"))
        }
    }

    async fn is_primary(&mut self, node: NodeId) -> Result<bool, String> {
        let role = self.ask_node(node, &cmd("ROLE")).await;
        let role = role.map_err(|error| format!("{node}: {error}"))?;
        Ok(matches!(&role, Reply::Array(items) if word(items.first()) == Some("master".into())))
    }

    /// Sends a command and returns its reply with the node that answered. Redirections are followed: a node that redirects has
    /// executed nothing.
    pub(crate) async fn ask(
        &mut self,
        call: &RedisCommand,
    ) -> Result<(Reply, NodeId), StoreRefusal> {
        let mut node = self.target(call);
        for _ in 0..REDIRECTIONS_MAX {
            let error = match self.send(node, &call.request).await {
                Ok(reply) => return Ok((reply, node)),
                Err(CommandError::Error(error)) => error,
                Err(CommandError::NotSent(reason)) => {
                    self.is_broken = true;
                    return Err(StoreRefusal::Failed(format!("{node}: {reason}")));
                }
            };
            let Some((address, _)) = error
                .redirect_node()
                .filter(|_| error.code() == Some("MOVED"))
            else {
                return Err(self.refused(node, call, &error));
            };
            node = node_at(&self.slot, address).map_err(StoreRefusal::Failed)?;
            if self.known.len() >= KNOWN_KEYS_MAX {
                self.known.clear();
            }
            self.known.insert(call.key.clone(), node);
        }
        Err(StoreRefusal::Failed("too many redirections".into()))
    }

    fn target(&self, call: &RedisCommand) -> NodeId {
        match (self.settings.topology, self.primary) {
            (RedisTopology::Sentinel, Some(_)) if call.is_read && self.settings.reads_anywhere => {
                self.home()
            }
            (_, Some(primary)) => primary,
            (_, None) => self.known.get(&call.key).copied().unwrap_or(self.home()),
        }
    }

    /// The refusal of a command. After it a client is opened anew if its node is the wrong one or may still reply.
    fn refused(&mut self, node: NodeId, call: &RedisCommand, error: &RedisError) -> StoreRefusal {
        let refusal = match refusal(error) {
            StoreRefusal::Unknown(reason) if call.is_read => StoreRefusal::Failed(reason),
            other => other,
        };
        let is_misled = matches!(
            error.code(),
            Some("READONLY" | "CLUSTERDOWN" | "MASTERDOWN")
        );
        self.is_broken |= error.code().is_none() || is_misled;
        match refusal {
            StoreRefusal::Failed(reason) => StoreRefusal::Failed(format!("{node}: {reason}")),
            StoreRefusal::Unknown(reason) => StoreRefusal::Unknown(format!("{node}: {reason}")),
            other @ StoreRefusal::Perhaps(..) => other,
        }
    }

    async fn ask_node(&mut self, node: NodeId, command: &Cmd) -> Result<Reply, CommandError> {
        let connection = self.connection(node).await?;
        connection.ask(command).await.map_err(CommandError::Error)
    }

    async fn send(&mut self, node: NodeId, request: &RedisRequest) -> Result<Reply, CommandError> {
        let connection = self.connection(node).await?;
        let reply = match request {
            RedisRequest::One(command) => connection.ask(command).await,
            RedisRequest::Multi(commands) => connection.transact(commands).await,
        };
        reply.map_err(CommandError::Error)
    }

    /// The connection to a node, which is opened when it is needed.
    async fn connection(&mut self, node: NodeId) -> Result<&mut Connection, CommandError> {
        if !self.connections.contains_key(&node) {
            let opened = self.connect(node).await.map_err(CommandError::NotSent)?;
            self.connections.insert(node, opened);
        }
        let connection = self.connections.get_mut(&node);
        connection.ok_or_else(|| CommandError::NotSent("no connection".into()))
    }

    async fn connect(&self, node: NodeId) -> Result<Connection, String> {
        let address = self
            .slot
            .address_of(node)
            .map_err(|error| error.to_string())?;
        let mut connection = Connection::open(address, self.timeout)
            .await
            .map_err(|error| error.to_string())?;
        if self.settings.topology == RedisTopology::Cluster && self.settings.reads_anywhere {
            let reply = connection.ask(&cmd("READONLY")).await;
            reply.map_err(|error| error.to_string())?;
        }
        // A proxy accepts connections to a node that is dead: a first round trip shows it.
        let reply = connection.ask(&cmd("ECHO").arg("open").clone()).await;
        match reply {
            Err(error) if error.code().is_none() => Err(error.to_string()),
            _ => Ok(connection), // sentinels know no ECHO
        }
    }
}

/// The node that announces this address, `IP:PORT`.
fn node_at(slot: &ClientSlot, address: &str) -> Result<NodeId, String> {
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is no address"))?;
    let found = slot.mesh.node_of(parsed.ip());
    found.ok_or_else(|| format!("no node has the address {address}"))
}

/// The address in a sentinel's reply: a list of host and port.
fn address_in(reply: &Reply) -> Result<String, String> {
    let Reply::Array(items) = reply else {
        return Err(format!("the sentinel knows no primary: {reply:?}"));
    };
    match (word(items.first()), word(items.get(1))) {
        (Some(host), Some(port)) => Ok(format!("{host}:{port}")),
        _ => Err(format!("the sentinel names no address: {reply:?}")),
    }
}

/// A reply that is text.
pub(crate) fn word(reply: Option<&Reply>) -> Option<String> {
    match reply? {
        Reply::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Reply::SimpleString(text) => Some(text.clone()),
        Reply::Okay => Some("OK".into()),
        Reply::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
