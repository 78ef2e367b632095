//! The members: their command lines, when they are ready, and when they have formed a cluster.

use crate::etcd_keys::{self as keys, Integer, RangeReply, ReplyHeader};
use crate::gateway::Gateway;
use seatrial_generator::Membership;
use seatrial_machine::NodeId;
use seatrial_runner::{BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers};
use serde::Deserialize;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The members of a test.
pub(crate) struct EtcdSystem {
    /// The program.
    pub(crate) server: PathBuf,
    /// The name of the cluster, which no other run has.
    pub(crate) token: String,
    /// Has it several members? A single one has no other to be compared with.
    pub(crate) is_cluster: bool,
    /// Do members sync what they write?
    pub(crate) syncs: bool,
}

/// Time limit of a question to a member.
const REPLY: Duration = Duration::from_millis(800);

impl System for EtcdSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let client = format!("http://{}", place.address);
        let peer_port = place
            .address
            .port()
            .checked_add(1)
            .ok_or("--port is below 65535, for the members' own port")?;
        let peer = |ip: IpAddr| format!("http://{}", SocketAddr::new(ip, peer_port));
        let members = place.nodes.iter().map(|node| {
            let ip = place
                .ip_of(*node)
                .ok_or_else(|| format!("{node} has no address"))?;
            Ok(format!("{node}={}", peer(ip)))
        });
        let members = members.collect::<Result<Vec<String>, String>>()?.join(",");
        let own = peer(place.ip());
        let mut command = Command::new(&self.server);
        command.arg("--name").arg(place.node.to_string());
        command
            .arg("--data-dir")
            .arg(std::path::absolute(place.folder.join("data"))?);
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &own,
            "--initial-advertise-peer-urls",
            &own,
        ]);
        command.args([
            "--initial-cluster",
            &members,
            "--initial-cluster-token",
            &self.token,
        ]);
        command.args(["--initial-cluster-state", "new", "--logger", "zap"]);
        if !self.syncs {
            command.arg("--unsafe-no-fsync");
        }
        // Variables of the environment are options too.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        Ok(command)
    }

    /// It serves the other members. It serves clients only once there is a leader, for which others may be missing.
    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let port = place.address.port() + 1;
            tokio::net::TcpStream::connect((place.ip(), port)).await?;
            Ok(())
        })
    }

    /// Each member answers a linearizable read, and all name the same leader.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let mut leaders = Vec::new();
            for place in places {
                let status = EtcdStatus::of(place)
                    .await
                    .map_err(|error| format!("{}: {error}", place.node))?;
                leaders.push(status.leader.0);
                let mut gateway = Gateway::open(place.address, REPLY).await?;
                let read = gateway
                    .ask::<RangeReply>("/v3/kv/range", &keys::range("formed", false))
                    .await;
                read.map_err(|error| format!("{}: {error}", place.node))?;
            }
            let leader = leaders[0];
            if leader == 0 || leaders.iter().any(|other| *other != leader) {
                return Err(format!("the members name different leaders: {leaders:x?}").into());
            }
            Ok(())
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    fn reports_states(&self) -> bool {
        self.is_cluster
    }

    /// Members that have applied the same entries of the log have the same hash, and the same revision.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let before = EtcdStatus::of(place).await?;
            let mut gateway = Gateway::open(place.address, REPLY).await?;
            let HashReply { header, hash } = hash(&mut gateway).await?;
            let after = EtcdStatus::of(place).await?;
            if before.applied != after.applied {
                return Err("it is applying entries of the log".into());
            }
            Ok(Some(NodeState {
                revision: format!("applied index {}", after.applied.0),
                hash: format!("{} at revision {}", hash.0, header.revision.0),
                contents: None,
            }))
        })
    }
}

/// The hash of all keys of a member, at its revision.
#[derive(Deserialize)]
struct HashReply {
    #[serde(default)]
    header: ReplyHeader,
    hash: Integer,
}

/// Until version 3.5 the gateway has only the hash of a member's whole storage, which members share as well.
async fn hash(gateway: &mut Gateway) -> Result<HashReply, ClientError> {
    let all = json!({"revision": "0"});
    match gateway.ask("/v3/maintenance/hashkv", &all).await {
        Ok(reply) => Ok(reply),
        Err(_) => Ok(gateway.ask("/v3/maintenance/hash", &json!({})).await?),
    }
}

/// What a member says of itself. Members are unsigned: as signed integers they stay different.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EtcdStatus {
    header: ReplyHeader,
    /// 0 if it knows none.
    leader: Integer,
    /// The last entry of the log that it has applied.
    #[serde(rename = "raftAppliedIndex")]
    applied: Integer,
}

impl EtcdStatus {
    async fn of(place: &NodePlace) -> Result<EtcdStatus, ClientError> {
        let mut gateway = Gateway::open(place.address, REPLY).await?;
        Ok(gateway.ask("/v3/maintenance/status", &json!({})).await?)
    }
}

impl SystemMembers for EtcdSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for place in places {
                let Ok(status) = EtcdStatus::of(place).await else {
                    continue;
                };
                let all = place
                    .nodes
                    .iter()
                    .copied()
                    .collect::<std::collections::BTreeSet<NodeId>>();
                membership.members.insert(place.node, all);
                if status.leader != Integer(0) && status.leader == status.header.member_id {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                Err("no member answers".into())
            } else {
                Ok(membership)
            }
        })
    }
}
