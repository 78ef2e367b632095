//! The servers: their configuration, when they are ready, and when they have formed a system.

use crate::NatsSettings;
use crate::jetstream_streams::{self as streams, streams as streams_of};
use crate::nats_connection::NatsConnection;
use seatrial_generator::Membership;
use seatrial_runner::{
    BoxFuture, ClientError, NodePlace, NodeState, System, SystemMembers, json_page,
};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The servers of a test.
pub(crate) struct NatsSystem {
    /// The program.
    pub(crate) server: PathBuf,
    pub(crate) settings: NatsSettings,
    /// The workload, whose streams are created; `None`: of a plan.
    pub(crate) workload: Option<&'static str>,
    /// Time limit of an operation.
    pub(crate) timeout: Duration,
}

/// Ports of a server: for clients, for the other servers, for the pages about itself.
pub(crate) const PORTS: u16 = 3;
const PEER: u16 = 1;
const MONITOR: u16 = 2;

/// Time limit of a question to a server.
const REPLY: Duration = Duration::from_secs(2);

/// What a server says of its part of the streams.
const STREAMS_PAGE: &str = "/jsz?accounts=true&streams=true";

impl System for NatsSystem {
    fn command(&self, place: &NodePlace) -> Result<Command, ClientError> {
        let folder = std::path::absolute(&place.folder)?;
        let file = folder.join("nats.conf");
        std::fs::write(&file, self.configuration(place, &folder.join("store"))?)?;
        let mut command = Command::new(&self.server);
        command.arg("--config").arg(file);
        Ok(command)
    }

    fn ready<'a>(&'a self, place: &'a NodePlace) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            json_page(place.own_port(MONITOR)?, "/varz", "").await?;
            Ok(())
        })
    }

    /// All servers are healthy and name the same leader; each stream has a leader, and followers that have all it has.
    fn formed<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async move {
            let mut leaders = BTreeSet::new();
            for place in places {
                let monitor = place.own_port(MONITOR)?;
                let named = |error| format!("{}: {error}", place.node);
                let health = json_page(monitor, "/healthz", "").await.map_err(named)?;
                if health["status"] != "ok" {
                    return Err(named(health.to_string().into()).into());
                }
                let known = json_page(monitor, "/jsz", "").await.map_err(named)?;
                let leader = known["meta_cluster"]["leader"].as_str();
                leaders.insert(leader.unwrap_or_default().to_owned());
            }
            if places.len() > 1 && (leaders.len() > 1 || leaders.contains("")) {
                return Err(format!("the servers name different leaders: {leaders:?}").into());
            }
            let place = places.first().ok_or("no server")?;
            let connection = NatsConnection::open(place.address, REPLY).await?;
            let (workload, replicas) = (self.workload, self.settings.replicas);
            streams::create(&connection, workload, replicas, self.timeout).await?;
            streams::formed(&connection, workload, replicas).await
        })
    }

    fn members(&self) -> Option<&dyn SystemMembers> {
        Some(self)
    }

    fn reports_states(&self) -> bool {
        self.settings.replicas > 1
    }

    /// Appends a message to each stream. A leader that was elected commits what its predecessor had appended only with the next
    /// message, while the predecessor may have stored it: without one they would differ for good.
    fn catch_up<'a>(&'a self, places: &'a [NodePlace]) -> BoxFuture<'a, Result<(), ClientError>> {
        Box::pin(async {
            let place = places.first().ok_or("no server")?;
            let connection = NatsConnection::open(place.address, REPLY).await?;
            for name in streams_of(self.workload) {
                let subject = streams::unread_subject(name).to_owned();
                connection.publish(subject, 0, None).await?;
            }
            Ok(())
        })
    }

    /// The numbers of the first and the last message of each stream, how many there are between them, and their length.
    fn state<'a>(
        &'a self,
        place: &'a NodePlace,
    ) -> BoxFuture<'a, Result<Option<NodeState>, ClientError>> {
        Box::pin(async {
            let answer = json_page(place.own_port(MONITOR)?, STREAMS_PAGE, "").await?;
            let mut revision = Vec::new();
            let mut held = Vec::new();
            for name in streams_of(self.workload) {
                let Some(stream) = streams_in(&answer).find(|stream| stream["name"] == *name)
                else {
                    // With fewer replicas than servers, this one has none.
                    if (self.settings.replicas as usize) < place.nodes.len() {
                        continue;
                    }
                    return Err(format!("it has no stream {name}").into());
                };
                let state = &stream["state"];
                revision.push(format!("{name} {}", state["last_seq"]));
                held.push(format!(
                    "{name}: {} messages from {} on, {} bytes",
                    state["messages"], state["first_seq"], state["bytes"]
                ));
            }
            Ok((!held.is_empty()).then(|| NodeState {
                revision: revision.join(", "),
                hash: held.join(", "),
                contents: None,
            }))
        })
    }
}

impl NatsSystem {
    fn configuration(
        &self,
        place: &NodePlace,
        store: &std::path::Path,
    ) -> Result<String, ClientError> {
        // Its text is in quotes, as JSON's.
        let quoted = |text: &str| Json::from(text).to_string();
        let store = quoted(&store.display().to_string());
        let sync = if self.settings.syncs_always {
            ", sync_interval: always"
        } else {
            ""
        };
        let mut text = format!(
            "server_name: {}\nlisten: {}\nhttp: {}\njetstream {{ store_dir: {store}{sync} }}\n",
            place.node,
            quoted(&place.address.to_string()),
            quoted(&place.own_port(MONITOR)?.to_string()),
        );
        if place.nodes.len() > 1 {
            let route = |ip: IpAddr| {
                let address = SocketAddr::new(ip, place.own_port(PEER)?.port());
                Ok::<_, ClientError>(quoted(&format!("nats-route://{address}")))
            };
            let routes = place.nodes.iter().map(|node| {
                let ip = place.ip_of(*node);
                route(ip.ok_or_else(|| format!("{node} has no address"))?)
            });
            let routes = routes.collect::<Result<Vec<String>, ClientError>>()?;
            let cluster = format!(
                "cluster {{ name: seatrial, listen: {}, routes: [{}] }}\n",
                quoted(&place.own_port(PEER)?.to_string()),
                routes.join(", ")
            );
            text.push_str(&cluster);
        }
        Ok(text)
    }
}

/// The streams on the page of a server.
fn streams_in(page: &Json) -> impl Iterator<Item = &Json> {
    let accounts = page["account_details"].as_array().into_iter().flatten();
    accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten())
}

/// Does a server's page say that it leads one of its streams?
fn leads(page: &Json, name: &str) -> bool {
    streams_in(page).any(|stream| stream["cluster"]["leader"] == *name)
}

impl SystemMembers for NatsSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for place in places {
                let Ok(answer) = json_page(place.own_port(MONITOR)?, STREAMS_PAGE, "").await else {
                    continue;
                };
                let all = place.nodes.iter().copied().collect();
                membership.members.insert(place.node, all);
                if place.nodes.len() == 1 || leads(&answer, &place.node.to_string()) {
                    membership.primaries.insert(place.node);
                }
            }
            if membership.members.is_empty() {
                return Err("no server answers".into());
            }
            Ok(membership)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_names_the_leader_of_each_stream() {
        let stream = |leader: &str| json!({"name": "data", "cluster": {"leader": leader}});
        let page = json!({"account_details": [{"stream_detail": [stream("n2")]}]});
        assert!(leads(&page, "n2") && !leads(&page, "n1"));
        assert!(!leads(&json!({}), "n1"));
    }
}
