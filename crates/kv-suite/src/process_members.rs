//! Faults of membership on node processes: a node leaves the cluster and joins it again.

use crate::credentials::Credentials;
use crate::processes::KvSystem;
use crate::tools::StoreSession;
use seatrial_generator::Membership;
use seatrial_kv_protocol::{AdminReply, AdminRequest, ReplicaStatus};
use seatrial_machine::{Fault, NodeId};
use seatrial_runner::{BoxFuture, ClientError, NodePlace, SystemMembers};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time limit of one question or request.
const REPLY: Duration = Duration::from_secs(1);
/// Time limit of a change, from the request until the leader has it.
const CHANGE: Duration = Duration::from_secs(10);
/// Pause between two looks at a change under way.
const PAUSE: Duration = Duration::from_millis(100);

impl SystemMembers for KvSystem {
    fn view<'a>(
        &'a self,
        places: &'a [NodePlace],
    ) -> BoxFuture<'a, Result<Membership, ClientError>> {
        Box::pin(async move {
            let mut membership = Membership::default();
            for (node, status) in statuses(&self.operator(places), places).await {
                if status.member.leader == Some(node) {
                    membership.primaries.insert(node);
                }
                membership.members.insert(node, status.members.voters);
            }
            if membership.merged().is_empty() {
                return Err("no majority of the nodes reports a member".into());
            }
            Ok(membership)
        })
    }

    /// The node keeps its folder and its process: it joins with the log that it has.
    fn change<'a>(
        &'a self,
        places: &'a [NodePlace],
        change: &'a Fault,
    ) -> BoxFuture<'a, Result<String, ClientError>> {
        Box::pin(async move {
            let node = change.node().ok_or("a change of no node")?;
            let joins = matches!(change, Fault::Join(_));
            let session = self.operator(places);
            let began = Instant::now();
            loop {
                let reason = match step(&session, places, node, joins).await {
                    Ok(voters) => return Ok(voters),
                    Err(reason) => reason,
                };
                if began.elapsed() > CHANGE {
                    return Err(format!("after {CHANGE:?}: {reason}").into());
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

impl KvSystem {
    /// How an operator reaches the nodes: not through the network that is made to fail.
    pub(crate) fn operator(&self, places: &[NodePlace]) -> StoreSession {
        StoreSession {
            servers: places.iter().map(|place| place.address).collect(),
            credentials: Credentials {
                key: self.key.as_ref().map(|it| it.key.clone()),
                tls: None,
            },
            timeout: REPLY,
        }
    }
}

/// The status of each node that answers. All are asked at once.
async fn statuses(session: &StoreSession, places: &[NodePlace]) -> BTreeMap<NodeId, ReplicaStatus> {
    let ask = |address: SocketAddr| {
        let session = session.clone();
        // A node that is paused accepts connections and does not answer.
        let status = async move { session.status_of(address).await };
        tokio::spawn(async move { tokio::time::timeout(REPLY, status).await })
    };
    let asked: Vec<_> = places.iter().map(|it| (it.node, ask(it.address))).collect();
    let mut found = BTreeMap::new();
    for (node, answer) in asked {
        if let Ok(Ok(Ok(status))) = answer.await {
            found.insert(node, status);
        }
    }
    found
}

/// One step of a change: a request to the leader. Returns the voters once the change is in force there; an error says what is
/// missing.
async fn step(
    session: &StoreSession,
    places: &[NodePlace],
    node: NodeId,
    joins: bool,
) -> Result<String, String> {
    let statuses = statuses(session, places).await;
    let leads = |status: &&ReplicaStatus| status.member.leader == Some(status.node);
    let leaders = statuses.values().filter(leads);
    // A leader that was cut off may not know yet that there is another.
    let leader = leaders.max_by_key(|status| status.member.term);
    let leader = leader.ok_or("no node leads")?;
    let members = &leader.members;
    if members.voters.contains(&node) == joins && (joins || !members.contains(node)) {
        let voters: Vec<String> = members.voters.iter().map(NodeId::to_string).collect();
        return Ok(format!("voters {}", voters.join(" ")));
    }
    let request = match joins {
        false => AdminRequest::Remove(node),
        true if members.learners.contains(&node) => AdminRequest::Promote(node),
        true => AdminRequest::AddLearner(node, None),
    };
    let place = places.iter().find(|place| place.node == leader.node);
    let address = place.ok_or("an unknown node leads")?.address;
    match session.admin(address, request).await {
        Ok(AdminReply::Begun) => Err("the change is under way".to_owned()),
        Ok(AdminReply::Refused(reason)) => Err(reason),
        Ok(AdminReply::NotLeader(_)) => Err(format!("{} leads no more", leader.node)),
        Err(error) => Err(format!("{}: {error}", leader.node)),
    }
}
