//! The status of a replica as a message, and the machine that asks for it. Byte map in `docs/formats/kv-protocol.md`.

use crate::message::{HEADER_LENGTH, MessageError, MessageHeader, MessageKind};
use crate::replica_status::{CheckpointStatus, PAST_STATES_MAX, ReplicaStatus, StateDigest};
use seatrial_consensus::{MemberStatus, Members, Role};
use seatrial_machine::{FieldReader, Input, Machine, NodeId, Output, Peer, Ticket, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes of each kind that a status names; more are left out.
const NODES_MAX: usize = 256;

/// Bound of a status message: a small request must not make a node send much.
pub const LENGTH_MAX: usize = 4_096;

const _: () = assert!(
    HEADER_LENGTH + 6 + 18 * 8 + 3 * (2 + 4 * NODES_MAX) + 1 + 8 * PAST_STATES_MAX + DIGEST_LENGTH
        <= LENGTH_MAX
);

/// The code of a request that asks for the digest of the state as well.
const WITH_DIGEST: u8 = 1;
/// Bytes of the digest of a state, with its index.
const DIGEST_LENGTH: usize = 8 + 16;

/// Is it a request for the status? Then: does it ask for the digest of the state as well?
pub fn request(header: &MessageHeader, message: &[u8]) -> Option<bool> {
    let unused = (header.count, header.detail, header.second);
    let is_request = header.kind == MessageKind::Status
        && message.len() == HEADER_LENGTH
        && header.code <= WITH_DIGEST
        && unused == (0, 0, 0);
    is_request.then_some(header.code == WITH_DIGEST)
}

/// The message with this status, for the request with this token.
pub fn encode(status: &ReplicaStatus, token: u64) -> Vec<u8> {
    let header = MessageHeader {
        kind: MessageKind::StatusReply,
        code: 0,
        count: 0,
        detail: status.node.number(),
        first: token,
        second: status.cluster,
    };
    let member = &status.member;
    let mut bytes = header.encode().to_vec();
    bytes.push(role_byte(member.role));
    bytes.extend_from_slice(&member.leader.map_or(0, NodeId::number).to_le_bytes());
    for number in [
        member.term,
        member.last,
        member.persisted,
        member.committed,
        status.applied,
        status.checkpoints.newest,
        status.keys,
        status.bytes,
        status.sessions,
        status.start,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let members = &status.members;
    for nodes in [&members.voters, &members.learners, &members.outgoing] {
        let count = nodes.len().min(NODES_MAX);
        bytes.extend_from_slice(&(count as u16).to_le_bytes());
        for node in nodes.iter().take(count) {
            bytes.extend_from_slice(&node.number().to_le_bytes());
        }
    }
    let checkpoints = &status.checkpoints;
    for number in [
        checkpoints.length,
        checkpoints.writing.unwrap_or(0),
        checkpoints.receiving.unwrap_or(0),
        checkpoints.made,
        checkpoints.skipped,
        checkpoints.failed,
        checkpoints.received,
        checkpoints.different,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(u8::from(status.is_rejoining));
    let readable = &status.readable[..status.readable.len().min(PAST_STATES_MAX)];
    bytes.push(readable.len() as u8);
    for index in readable {
        bytes.extend_from_slice(&index.to_le_bytes());
    }
    bytes.extend_from_slice(&checkpoints.changes.to_le_bytes());
    let digest = status
        .digest
        .map_or((0, [0; 16]), |it| (it.index, it.bytes));
    bytes.extend_from_slice(&digest.0.to_le_bytes());
    bytes.extend_from_slice(&digest.1);
    debug_assert!(bytes.len() <= LENGTH_MAX);
    bytes
}

/// The status in a message, and the token of its request. Bytes after the known fields are those of a later version.
pub fn decode(message: &[u8]) -> Result<(u64, ReplicaStatus), MessageError> {
    let header = MessageHeader::decode(message)?;
    let mut cursor = FieldReader::starting_at(message, HEADER_LENGTH);
    let sender = node_of(header.detail).ok_or(MessageError::Value {
        field: "node",
        offset: 4,
        value: u64::from(header.detail),
    })?;
    if header.kind != MessageKind::StatusReply {
        return Err(cursor.never("type", 1, header.kind as u64));
    }
    let role = role(&mut cursor)?;
    let leader = match cursor.clone().word("leader")? {
        0 => {
            cursor.zeros(4)?;
            None
        }
        _ => Some(node(&mut cursor)?),
    };
    let mut number = |field| cursor.long(field);
    let (term, last) = (number("term")?, number("last entry")?);
    let (persisted, committed) = (number("durable entry")?, number("committed entry")?);
    let (applied, newest) = (number("applied entry")?, number("checkpoint")?);
    let (keys, bytes) = (number("keys")?, number("bytes")?);
    let (sessions, start) = (number("sessions")?, number("start")?);
    let members = Members {
        voters: nodes(&mut cursor)?,
        learners: nodes(&mut cursor)?,
        outgoing: nodes(&mut cursor)?,
        ..Members::default()
    };
    let mut checkpoints = checkpoints(newest, &mut cursor)?;
    let is_rejoining = cursor.truth("rejoining")?;
    let readable = usize::from(cursor.byte("number of readable states")?);
    if readable > PAST_STATES_MAX {
        return Err(cursor.never("number of readable states", 1, readable as u64));
    }
    let readable = (0..readable)
        .map(|_| cursor.long("readable index"))
        .collect::<Result<_, _>>()?;
    // An older node does not say it.
    checkpoints.changes = cursor.long("checkpoints of changes").unwrap_or(0);
    let digest = digest(&mut cursor);
    let member = MemberStatus {
        role,
        term,
        leader,
        last,
        persisted,
        committed,
        applied,
    };
    let status = ReplicaStatus {
        node: sender,
        cluster: header.second,
        start,
        member,
        members,
        applied,
        checkpoints,
        keys,
        bytes,
        sessions,
        is_rejoining,
        readable,
        digest,
    };
    Ok((header.first, status))
}

/// The digest at the end; `None`: not asked for, not known, or of an older node that does not say it.
fn digest(cursor: &mut FieldReader<'_>) -> Option<StateDigest> {
    let index = cursor.long("digest index").ok()?;
    let bytes = cursor.bytes("digest", 16).ok()?;
    let bytes = bytes.try_into().ok()?;
    (index > 0).then_some(StateDigest { index, bytes })
}

fn checkpoints(
    newest: u64,
    cursor: &mut FieldReader<'_>,
) -> Result<CheckpointStatus, MessageError> {
    let mut number = |field| cursor.long(field);
    let (length, writing) = (number("checkpoint length")?, number("checkpoint written")?);
    let (receiving, made) = (number("checkpoint received")?, number("checkpoints made")?);
    let (skipped, failed) = (
        number("checkpoints skipped")?,
        number("checkpoints failed")?,
    );
    let (received, different) = (
        number("checkpoints received")?,
        number("different digests")?,
    );
    Ok(CheckpointStatus {
        newest,
        length,
        writing: (writing > 0).then_some(writing),
        receiving: (receiving > 0).then_some(receiving),
        made,
        changes: 0, // it comes later
        skipped,
        failed,
        received,
        different,
        last_error: None,
    })
}

const fn role_byte(role: Role) -> u8 {
    match role {
        Role::Follower => 0,
        Role::PreCandidate => 1,
        Role::Candidate => 2,
        Role::Leader => 3,
    }
}

fn role(cursor: &mut FieldReader<'_>) -> Result<Role, MessageError> {
    Ok(match cursor.byte("role")? {
        0 => Role::Follower,
        1 => Role::PreCandidate,
        2 => Role::Candidate,
        3 => Role::Leader,
        other => return Err(cursor.never("role", 1, u64::from(other))),
    })
}

fn nodes(cursor: &mut FieldReader<'_>) -> Result<BTreeSet<NodeId>, MessageError> {
    let count = usize::from(cursor.half("number of nodes")?);
    if count > NODES_MAX {
        return Err(cursor.never("number of nodes", 2, count as u64));
    }
    (0..count).map(|_| node(cursor)).collect()
}

fn node(cursor: &mut FieldReader<'_>) -> Result<NodeId, MessageError> {
    let number = cursor.word("node")?;
    node_of(number).ok_or_else(|| cursor.never("node", 4, u64::from(number)))
}

/// The node with this number; `None`: no node of a cluster has it.
fn node_of(number: u32) -> Option<NodeId> {
    let is_node = (1..=u32::from(u16::MAX)).contains(&number);
    is_node.then(|| NodeId::server(number))
}

/// Asks one node for its status, without a session: repeats the request until it is answered or the time limit has passed.
#[derive(Debug)]
pub struct StatusProbe {
    server: NodeId,
    token: u64,
    timeout: Duration,
    /// Does it ask for the digest of the state as well?
    wants_digest: bool,
    /// The request without a reply, when it is sent again, and its deadline.
    waiting: Option<(Ticket, Time, Time)>,
}

/// Interval after which an unanswered request is repeated.
const REPEAT_INTERVAL: Duration = Duration::from_millis(250);

impl StatusProbe {
    /// A probe of this server, with a time limit for each request.
    pub const fn new(server: NodeId, timeout: Duration) -> StatusProbe {
        StatusProbe {
            server,
            token: 0,
            timeout,
            wants_digest: false,
            waiting: None,
        }
    }

    /// Asks for the digest of the state as well. Older nodes do not answer that.
    pub const fn with_digest(mut self) -> StatusProbe {
        self.wants_digest = true;
        self
    }

    fn send(&self, out: &mut Vec<Output<Option<ReplicaStatus>>>) {
        let request = MessageHeader {
            kind: MessageKind::Status,
            code: if self.wants_digest { WITH_DIGEST } else { 0 },
            count: 0,
            detail: 0,
            first: self.token,
            second: 0,
        };
        out.push(Output::Send {
            to: self.server,
            message: request.encode().to_vec(),
        });
    }

    fn finish(
        &mut self,
        status: Option<ReplicaStatus>,
        out: &mut Vec<Output<Option<ReplicaStatus>>>,
    ) {
        if let Some((ticket, _, _)) = self.waiting.take() {
            out.push(Output::Reply(ticket, status));
        }
    }
}

impl Machine for StatusProbe {
    type Request = ();
    /// `None`: no reply in time.
    type Reply = Option<ReplicaStatus>;

    fn turn(&mut self, now: Time, input: Input<()>, out: &mut Vec<Output<Self::Reply>>) {
        match input {
            Input::Request(ticket, ()) => {
                self.finish(None, out);
                self.token += 1;
                self.waiting = Some((ticket, now + REPEAT_INTERVAL, now + self.timeout));
                self.send(out);
            }
            Input::Message { from, bytes } if from == self.server => {
                // Late replies to earlier requests have other tokens.
                if let Ok((token, status)) = decode(&bytes)
                    && token == self.token
                {
                    self.finish(Some(status), out);
                }
            }
            _ => {}
        }
        let Some((ticket, again_at, deadline)) = self.waiting else {
            return;
        };
        if deadline <= now {
            self.finish(None, out);
        } else if again_at <= now {
            self.waiting = Some((ticket, now + REPEAT_INTERVAL, deadline));
            self.send(out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.waiting
            .map(|(_, again_at, deadline)| again_at.min(deadline))
    }

    fn check_invariants(&self) {
        debug_assert!(self.waiting.is_none() || self.token > 0);
    }
}

impl Peer for StatusProbe {
    fn connection_closed(&mut self, out: &mut Vec<Output<Self::Reply>>) {
        self.finish(None, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn status(nodes: u32) -> ReplicaStatus {
        let nodes: BTreeSet<NodeId> = (1..=nodes).map(NodeId::server).collect();
        ReplicaStatus {
            node: NodeId::server(2),
            cluster: 9,
            start: 4,
            member: MemberStatus {
                role: Role::Candidate,
                term: 7,
                leader: Some(NodeId::server(3)),
                last: 12,
                persisted: 11,
                committed: 10,
                applied: 9,
            },
            members: Members {
                voters: nodes,
                learners: [NodeId::server(8)].into(),
                ..Members::default()
            },
            applied: 9,
            checkpoints: CheckpointStatus {
                newest: 5,
                length: 1 << 34,
                writing: Some(8),
                made: 2,
                changes: 1,
                ..CheckpointStatus::default()
            },
            keys: 100,
            bytes: 1 << 33,
            sessions: 3,
            is_rejoining: true,
            readable: vec![7, 8],
            digest: Some(StateDigest {
                index: 9,
                bytes: *b"sixteen bytes...",
            }),
        }
    }

    #[test]
    fn a_status_survives_its_bytes_and_ignores_later_fields() {
        let expected = status(3);
        let mut bytes = encode(&expected, 77);
        assert_eq!(decode(&bytes), Ok((77, expected.clone())));
        bytes.extend_from_slice(b"fields of a later version");
        assert_eq!(decode(&bytes), Ok((77, expected)));
    }

    #[test]
    fn a_status_is_bounded() {
        let bytes = encode(&status(5_000), 1);
        assert!(bytes.len() <= LENGTH_MAX);
        let (_, status) = decode(&bytes).unwrap();
        assert_eq!(status.members.voters.len(), NODES_MAX);
    }

    #[test]
    fn cut_and_mutated_statuses_never_panic() {
        let whole = encode(&status(3), 77);
        let later = 8 + DIGEST_LENGTH;
        for length in 0..whole.len() - later {
            assert!(decode(&whole[..length]).is_err(), "{length}");
        }
        // Older nodes do not say the last two.
        let (_, oldest) = decode(&whole[..whole.len() - later]).unwrap();
        assert_eq!((oldest.checkpoints.changes, oldest.digest), (0, None));
        let (_, older) = decode(&whole[..whole.len() - DIGEST_LENGTH]).unwrap();
        assert_eq!((older.checkpoints.changes, older.digest), (1, None));
        let mut rng = Rng::from_seed(1);
        for _ in 0..10_000 {
            let mut bytes = whole.clone();
            let at = rng.index(bytes.len());
            bytes[at] = rng.word() as u8;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_probe_repeats_and_gives_up() {
        let server = NodeId::server(1);
        let mut probe = StatusProbe::new(server, Duration::from_millis(400));
        let mut out = Vec::new();
        probe.turn(Time::ZERO, Input::Request(Ticket(1), ()), &mut out);
        let again = probe.wake_at().unwrap();
        probe.turn(again, Input::Wake, &mut out);
        assert_eq!(out.len(), 2, "{out:?}");
        let deadline = probe.wake_at().unwrap();
        probe.turn(deadline, Input::Wake, &mut out);
        assert!(matches!(out.last(), Some(Output::Reply(Ticket(1), None))));
        out.clear();
        probe.turn(deadline, Input::Request(Ticket(2), ()), &mut out);
        // The reply to the first request is too late.
        for (token, expected) in [(1, 1), (2, 2)] {
            let bytes = encode(&status(1), token);
            let input = Input::Message {
                from: server,
                bytes,
            };
            probe.turn(deadline, input, &mut out);
            assert_eq!(out.len(), expected);
        }
        assert!(matches!(
            out.last(),
            Some(Output::Reply(Ticket(2), Some(_)))
        ));
        assert_eq!(probe.wake_at(), None);
    }
}
