//! What an operator asks of a cluster, as messages, and the machine that asks. Byte map in `docs/formats/kv-protocol.md`.

use crate::message::{HEADER_LENGTH, MessageHeader, MessageKind};
use seatrial_machine::{Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::net::SocketAddr;
use std::time::Duration;

/// Bound of the text of a reply.
const TEXT_LENGTH_MAX: usize = 1_024;

/// A change of the cluster. Only the leader carries it out, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRequest {
    /// Adds a node that receives the log and does not vote. It must run already, with the founding voters of the cluster. Without
    /// an address it keeps the one that the log has, or with which each of the others was started.
    AddLearner(NodeId, Option<SocketAddr>),
    /// Lets a learner vote.
    Promote(NodeId),
    /// Removes a node.
    Remove(NodeId),
    /// Hands the leadership over.
    Lead(NodeId),
    /// Makes a checkpoint now, of the node that gets the message.
    Checkpoint,
}

/// What became of an [`AdminRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminReply {
    /// It was proposed. The status shows when it is done.
    Begun,
    /// Only the leader can do it; this is it, if the node knows.
    NotLeader(Option<NodeId>),
    /// It was refused, for this reason.
    Refused(String),
}

impl AdminRequest {
    /// The message, for a sender that waits for no reply.
    pub fn into_message(self) -> Vec<u8> {
        self.encode(0)
    }

    /// The message, with a token that comes back with the reply.
    pub fn encode(self, token: u64) -> Vec<u8> {
        let (code, node) = match self {
            AdminRequest::AddLearner(node, _) => (1, node.number()),
            AdminRequest::Promote(node) => (2, node.number()),
            AdminRequest::Remove(node) => (3, node.number()),
            AdminRequest::Lead(node) => (4, node.number()),
            AdminRequest::Checkpoint => (5, 0),
        };
        let mut bytes = header(MessageKind::Admin, code, node, token);
        if let AdminRequest::AddLearner(_, Some(address)) = self {
            bytes.extend_from_slice(address.to_string().as_bytes());
        }
        bytes
    }

    /// The request in a message with this header; `None`: it is none.
    pub fn decode(header: &MessageHeader, message: &[u8]) -> Option<AdminRequest> {
        let body = message.get(HEADER_LENGTH..)?;
        let node = (header.detail > 0 && u16::try_from(header.detail).is_ok())
            .then(|| NodeId::server(header.detail));
        if header.code == 1 {
            let address = match body {
                [] => None,
                text => Some(std::str::from_utf8(text).ok()?.parse().ok()?),
            };
            return Some(AdminRequest::AddLearner(node?, address));
        }
        match (header.code, body) {
            (2, []) => node.map(AdminRequest::Promote),
            (3, []) => node.map(AdminRequest::Remove),
            (4, []) => node.map(AdminRequest::Lead),
            (5, []) => Some(AdminRequest::Checkpoint),
            _ => None,
        }
    }
}

impl AdminReply {
    /// The message, with the token of its request.
    pub fn encode(&self, token: u64) -> Vec<u8> {
        match self {
            AdminReply::Begun => header(MessageKind::AdminReply, 0, 0, token),
            AdminReply::NotLeader(leader) => {
                let leader = leader.map_or(0, NodeId::number);
                header(MessageKind::AdminReply, 1, leader, token)
            }
            AdminReply::Refused(reason) => {
                let mut bytes = header(MessageKind::AdminReply, 2, 0, token);
                let end = reason.floor_char_boundary(TEXT_LENGTH_MAX);
                bytes.extend_from_slice(&reason.as_bytes()[..end]);
                bytes
            }
        }
    }

    /// The token and the reply in a message.
    pub fn decode(message: &[u8]) -> Option<(u64, AdminReply)> {
        let header = MessageHeader::decode(message).ok()?;
        if header.kind != MessageKind::AdminReply {
            return None;
        }
        let reply = match header.code {
            0 => AdminReply::Begun,
            1 if header.detail == 0 => AdminReply::NotLeader(None),
            1 if header.detail < 1 << 31 => {
                AdminReply::NotLeader(Some(NodeId::server(header.detail)))
            }
            2 => {
                let text = message.get(HEADER_LENGTH..)?;
                AdminReply::Refused(String::from_utf8_lossy(text).into_owned())
            }
            _ => return None,
        };
        Some((header.first, reply))
    }
}

fn header(kind: MessageKind, code: u8, detail: u32, token: u64) -> Vec<u8> {
    let header = MessageHeader {
        kind,
        code,
        count: 0,
        detail,
        first: token,
        second: 0,
    };
    header.encode().to_vec()
}

/// Sends changes to one node, each once: what became of one without a reply is in the status.
#[derive(Debug)]
pub struct AdminClient {
    server: NodeId,
    timeout: Duration,
    token: u64,
    waiting: Option<(Ticket, Time)>,
}

impl AdminClient {
    /// A client of this server, with a time limit for each reply.
    pub const fn new(server: NodeId, timeout: Duration) -> AdminClient {
        AdminClient {
            server,
            timeout,
            token: 0,
            waiting: None,
        }
    }

    fn finish(&mut self, reply: Option<AdminReply>, out: &mut Vec<Output<Option<AdminReply>>>) {
        if let Some((ticket, _)) = self.waiting.take() {
            out.push(Output::Reply(ticket, reply));
        }
    }
}

impl Machine for AdminClient {
    type Request = AdminRequest;
    /// `None`: no reply in time.
    type Reply = Option<AdminReply>;

    fn turn(&mut self, now: Time, input: Input<AdminRequest>, out: &mut Vec<Output<Self::Reply>>) {
        match input {
            Input::Request(ticket, request) => {
                self.finish(None, out);
                self.token += 1;
                self.waiting = Some((ticket, now + self.timeout));
                out.push(Output::Send {
                    to: self.server,
                    message: request.encode(self.token),
                });
            }
            Input::Message { from, bytes } if from == self.server => {
                if let Some((token, reply)) = AdminReply::decode(&bytes)
                    && token == self.token
                {
                    self.finish(Some(reply), out);
                }
            }
            _ => {}
        }
        if self.waiting.is_some_and(|waiting| waiting.1 <= now) {
            self.finish(None, out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.waiting.map(|waiting| waiting.1)
    }
}

impl Peer for AdminClient {
    fn connection_closed(&mut self, out: &mut Vec<Output<Self::Reply>>) {
        self.finish(None, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn requests_and_replies_survive_their_encoding() {
        let node = NodeId::server(4);
        for request in [
            AdminRequest::AddLearner(node, Some("127.0.0.1:7400".parse().unwrap())),
            AdminRequest::AddLearner(node, None),
            AdminRequest::Promote(node),
            AdminRequest::Remove(node),
            AdminRequest::Lead(node),
            AdminRequest::Checkpoint,
        ] {
            let bytes = request.encode(77);
            let header = MessageHeader::decode(&bytes).unwrap();
            assert_eq!((header.kind, header.first), (MessageKind::Admin, 77));
            assert_eq!(AdminRequest::decode(&header, &bytes), Some(request));
        }
        for reply in [
            AdminReply::Begun,
            AdminReply::NotLeader(None),
            AdminReply::NotLeader(Some(node)),
            AdminReply::Refused("a reason".into()),
        ] {
            assert_eq!(AdminReply::decode(&reply.encode(5)), Some((5, reply)));
        }
        let long = AdminReply::Refused("ä".repeat(5_000)).encode(1);
        assert!(long.len() <= HEADER_LENGTH + TEXT_LENGTH_MAX);
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut rng = Rng::from_seed(4);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.index(40)).map(|_| rng.word() as u8 % 10).collect();
            let _ = AdminReply::decode(&bytes);
            if let Ok(header) = MessageHeader::decode(&bytes) {
                let _ = AdminRequest::decode(&header, &bytes);
            }
        }
    }
}
