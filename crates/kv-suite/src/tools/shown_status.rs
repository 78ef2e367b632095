//! `seatrial kv status`.

use super::{DIGEST, JSON, StoreSession, runtime};
use seatrial_host::{Session, SessionOptions};
use seatrial_kv_protocol::{ReplicaStatus, StatusProbe};
use seatrial_machine::NodeId;
use seatrial_suite::{SuiteError, ToolExit, ToolSetup};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The endpoint of the server that is asked: a probe knows it only by its connection.
const SERVER: NodeId = NodeId::server(1);

/// Prints the status of each server.
pub(super) fn run(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let session = StoreSession::of(setup)?;
    let runtime = runtime()?;
    let mut answered = 0;
    let mut documents = Vec::new();
    for &address in &session.servers {
        let status = if setup.has(DIGEST.name) {
            runtime.block_on(session.digest_of(address))
        } else {
            runtime.block_on(session.status_of(address))
        };
        answered += usize::from(status.is_ok());
        if setup.has(JSON.name) {
            documents.push(document(address, &status));
            continue;
        }
        match status {
            Ok(status) => (setup.print)(format_args!("{address}  {}", line(&status))),
            Err(error) => (setup.print)(format_args!("{address}  no answer: {error}")),
        }
    }
    if setup.has(JSON.name) {
        (setup.print)(format_args!("{}", Value::from(documents)));
    }
    match answered {
        0 => Err("no server answered".into()),
        count if count == session.servers.len() => Ok(ToolExit::Done),
        _ => Ok(ToolExit::Negative),
    }
}

impl StoreSession {
    /// The status of one server.
    pub(crate) async fn status_of(&self, address: SocketAddr) -> std::io::Result<ReplicaStatus> {
        self.probe(address, StatusProbe::new(SERVER, self.timeout))
            .await
    }

    /// The status of one server with the digest of its state, which takes the server a pass over it.
    pub(crate) async fn digest_of(&self, address: SocketAddr) -> std::io::Result<ReplicaStatus> {
        let probe = StatusProbe::new(SERVER, self.timeout).with_digest();
        self.probe(address, probe).await
    }

    async fn probe(
        &self,
        address: SocketAddr,
        probe: StatusProbe,
    ) -> std::io::Result<ReplicaStatus> {
        let options = SessionOptions {
            server: SERVER,
            connect: self.connect_options(),
        };
        let mut session = Session::connect(address, probe, options).await?;
        let status = session.request(()).await.flatten();
        status.ok_or_else(|| std::io::Error::other("it does not answer"))
    }

    /// The first server that leads, or the first that does not.
    pub(crate) fn first_with_role(&self, leads: bool) -> Result<SocketAddr, SuiteError> {
        let runtime = runtime()?;
        for &address in &self.servers {
            let status = runtime.block_on(self.status_of(address));
            if status.is_ok_and(|it| (it.member.leader == Some(it.node)) == leads) {
                return Ok(address);
            }
        }
        let what = if leads { "leads" } else { "follows" };
        Err(format!("no server {what}").into())
    }
}

fn names(nodes: &BTreeSet<NodeId>) -> Vec<String> {
    nodes.iter().map(NodeId::to_string).collect()
}

fn line(status: &ReplicaStatus) -> String {
    let member = &status.member;
    let leader = member
        .leader
        .map_or("none".to_owned(), |leader| leader.to_string());
    let members = &status.members;
    let mut line = format!(
        "{} of cluster {}: {}, term {}, leader {leader}, members {}",
        status.node,
        status.cluster,
        member.role.name(),
        member.term,
        names(&members.voters).join(" "),
    );
    for (nodes, name) in [
        (&members.learners, "learners"),
        (&members.outgoing, "leaving"),
    ] {
        if !nodes.is_empty() {
            let _ = write!(line, ", {name} {}", names(nodes).join(" "));
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        "; log {}, durable {}, committed {}, applied {}, checkpoint {}; {} keys, {} bytes, {} sessions, start {}",
        member.last,
        member.persisted,
        member.committed,
        status.applied,
        status.checkpoints.newest,
        status.keys,
        status.bytes,
        status.sessions,
        status.start,
    );
    let checkpoints = &status.checkpoints;
    if let Some(index) = checkpoints.writing {
        let _ = write!(line, "; writes checkpoint {index}");
    }
    if let Some(index) = checkpoints.receiving {
        let _ = write!(line, "; receives checkpoint {index}");
    }
    if status.is_rejoining {
        line.push_str("; JOURNAL LOST: silent until a leader lets it rejoin");
    }
    if !status.readable.is_empty() {
        let indices: Vec<String> = status.readable.iter().map(u64::to_string).collect();
        let _ = write!(line, "; readable at {}", indices.join(" "));
    }
    if let Some(digest) = status.digest {
        let _ = write!(line, "; digest {digest} at {}", digest.index);
    }
    if checkpoints.different > 0 {
        line.push_str("; CHECKPOINTS OF NODES DIFFER");
    }
    line
}

fn document(address: SocketAddr, status: &std::io::Result<ReplicaStatus>) -> Value {
    let address = address.to_string();
    let status = match status {
        Ok(status) => status,
        Err(error) => return json!({ "address": address, "error": error.to_string() }),
    };
    let member = &status.member;
    json!({
        "address": address,
        "node": status.node.to_string(),
        "cluster": status.cluster,
        "start": status.start,
        "role": member.role.name(),
        "term": member.term,
        "leader": member.leader.map(|leader| leader.to_string()),
        "last": member.last,
        "persisted": member.persisted,
        "committed": member.committed,
        "applied": status.applied,
        "checkpoint": status.checkpoints.newest,
        "checkpoint-bytes": status.checkpoints.length,
        "checkpoint-writing": status.checkpoints.writing,
        "checkpoint-receiving": status.checkpoints.receiving,
        "checkpoints-made": status.checkpoints.made,
        "checkpoints-of-changes": status.checkpoints.changes,
        "checkpoints-skipped": status.checkpoints.skipped,
        "checkpoints-failed": status.checkpoints.failed,
        "checkpoints-received": status.checkpoints.received,
        "different-digests": status.checkpoints.different,
        "keys": status.keys,
        "bytes": status.bytes,
        "sessions": status.sessions,
        "rejoining": status.is_rejoining,
        "readable": status.readable,
        "digest": status.digest.map(|it| it.to_string()),
        "digest-index": status.digest.map(|it| it.index),
        "voters": names(&status.members.voters),
        "learners": names(&status.members.learners),
        "leaving": names(&status.members.outgoing),
    })
}
