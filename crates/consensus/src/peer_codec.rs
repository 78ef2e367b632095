//! Messages as bytes (`docs/formats/consensus.md`): checked by CRC-32C, every length bounded before memory is allocated. Entries
//! share the memory of the message. Never protobuf (rule 8).

use crate::log_entry::{
    ENTRY_LENGTH_MAX, LogEntry, MEMBERS_MAX, MemberChange, Members, Payload, SnapshotMark,
};
use crate::peer_message::{AppendRejection, Body, LinkNumber, PeerMessage, ReadContext};
use bytes::Bytes;
use seatrial_blocks::{crc32c, crc32c_more};
use seatrial_machine::NodeId;
use std::collections::BTreeSet;
use thiserror::Error;

/// Bound of an encoded message.
pub const MESSAGE_LENGTH_MAX: usize = 8 << 20;
/// Bound of the entries in one append.
pub const ENTRIES_MAX: usize = 131_072;
/// The version of the format.
pub const VERSION: u8 = 1;

/// Bytes before the fields of a kind: checksum, version, kind, flags, zero, sender, receiver, start, number, term.
const HEADER_LENGTH: usize = 40;
/// Bytes of an entry before its payload: term, kind, length.
const ENTRY_HEADER_LENGTH: usize = 13;

const REJECTED: u8 = 1;
const PRE_VOTE: u8 = 2;
const TRANSFER: u8 = 4;
const CONTEXT: u8 = 8;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Too short, too long, or bytes are left over.
    #[error("consensus message of {0} bytes has the wrong length")]
    Length(usize),
    /// The checksum differs.
    #[error("consensus message: expected CRC-32C {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// As written in the message.
        expected: u32,
        /// As computed from it.
        found: u32,
    },
    /// A version of the future.
    #[error("consensus message of version {0}; this program reads version 1")]
    Version(u8),
    /// A field has a value that it cannot have.
    #[error("consensus message: invalid {0}")]
    Field(&'static str),
}

/// The encoded message. Its length is known before: one allocation.
pub fn encode(message: &PeerMessage) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + 64 + entries_length(&message.body));
    let (kind, flags) = kind_and_flags(&message.body);
    bytes.extend_from_slice(&[0, 0, 0, 0, VERSION, kind, flags, 0]);
    bytes.extend_from_slice(&message.from.number().to_le_bytes());
    bytes.extend_from_slice(&message.to.number().to_le_bytes());
    put(
        &mut bytes,
        &[message.link.start, message.link.number, message.term],
    );
    match &message.body {
        Body::Append {
            previous_index,
            previous_term,
            commit,
            entries,
        } => {
            put(&mut bytes, &[*previous_index, *previous_term, *commit]);
            bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
            for entry in entries {
                put_entry(&mut bytes, entry);
            }
        }
        Body::AppendReply {
            index,
            commit,
            rejected,
        } => {
            put(&mut bytes, &[*index, *commit]);
            if let Some(rejection) = rejected {
                put(&mut bytes, &[rejection.hint_index, rejection.hint_term]);
            }
        }
        Body::Heartbeat { commit, context } | Body::HeartbeatReply { commit, context } => {
            put(&mut bytes, &[*commit]);
            if let Some(context) = context {
                put_context(&mut bytes, *context);
            }
        }
        Body::Vote {
            last_index,
            last_term,
            commit,
            commit_term,
            ..
        } => {
            put(
                &mut bytes,
                &[*last_index, *last_term, *commit, *commit_term],
            );
        }
        Body::VoteReply {
            commit,
            commit_term,
            ..
        } => put(&mut bytes, &[*commit, *commit_term]),
        Body::TimeoutNow => {}
        Body::ReadIndex(context) => put_context(&mut bytes, *context),
        Body::ReadIndexReply { index, context } => {
            put(&mut bytes, &[*index]);
            put_context(&mut bytes, *context);
        }
        Body::Snapshot(mark) => put_mark(&mut bytes, mark),
    }
    let checksum = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The message of these bytes. Total: any bytes are a message or an error. Memory is at most proportional to the bytes.
pub fn decode(bytes: &Bytes) -> Result<PeerMessage, DecodeError> {
    if bytes.len() < HEADER_LENGTH || bytes.len() > MESSAGE_LENGTH_MAX {
        return Err(DecodeError::Length(bytes.len()));
    }
    let mut fields = PeerFields { bytes, at: 0 };
    let (expected, found) = (fields.u32()?, crc32c_more(0, &bytes[4..]));
    if expected != found {
        return Err(DecodeError::Checksum { expected, found });
    }
    let version = fields.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let (kind, flags) = (fields.u8()?, fields.u8()?);
    if fields.u8()? != 0 {
        return Err(DecodeError::Field("reserved byte"));
    }
    let (from, to) = (fields.node()?, fields.node()?);
    let link = LinkNumber {
        start: fields.u64()?,
        number: fields.u64()?,
    };
    let term = fields.u64()?;
    let body = decode_body(&mut fields, kind, flags)?;
    // Every message has one encoding: unknown flags and bytes after the end are refused.
    if kind_and_flags(&body) != (kind, flags) {
        return Err(DecodeError::Field("flags"));
    }
    if fields.at != bytes.len() {
        return Err(DecodeError::Length(bytes.len()));
    }
    Ok(PeerMessage {
        from,
        to,
        link,
        term,
        body,
    })
}

fn kind_and_flags(body: &Body) -> (u8, u8) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    match body {
        Body::Append { .. } => (1, 0),
        Body::AppendReply { rejected, .. } => (2, flag(rejected.is_some(), REJECTED)),
        Body::Heartbeat { context, .. } => (3, flag(context.is_some(), CONTEXT)),
        Body::HeartbeatReply { context, .. } => (4, flag(context.is_some(), CONTEXT)),
        Body::Vote {
            pre_vote, transfer, ..
        } => (5, flag(*pre_vote, PRE_VOTE) | flag(*transfer, TRANSFER)),
        Body::VoteReply {
            pre_vote, granted, ..
        } => (6, flag(*pre_vote, PRE_VOTE) | flag(!*granted, REJECTED)),
        Body::TimeoutNow => (7, 0),
        Body::ReadIndex(_) => (8, 0),
        Body::ReadIndexReply { .. } => (9, 0),
        Body::Snapshot(mark) => (10, flag(mark.members.auto_leave, CONTEXT)),
    }
}

fn decode_body(fields: &mut PeerFields<'_>, kind: u8, flags: u8) -> Result<Body, DecodeError> {
    let has = |flag: u8| flags & flag != 0;
    Ok(match kind {
        1 => {
            let (previous_index, previous_term) = (fields.u64()?, fields.u64()?);
            let commit = fields.u64()?;
            let entries = fields.entries(previous_index)?;
            Body::Append {
                previous_index,
                previous_term,
                commit,
                entries,
            }
        }
        2 => Body::AppendReply {
            index: fields.u64()?,
            commit: fields.u64()?,
            rejected: if has(REJECTED) {
                Some(fields.rejection()?)
            } else {
                None
            },
        },
        3 => Body::Heartbeat {
            commit: fields.u64()?,
            context: fields.optional(has(CONTEXT))?,
        },
        4 => Body::HeartbeatReply {
            commit: fields.u64()?,
            context: fields.optional(has(CONTEXT))?,
        },
        5 => Body::Vote {
            pre_vote: has(PRE_VOTE),
            transfer: has(TRANSFER),
            last_index: fields.u64()?,
            last_term: fields.u64()?,
            commit: fields.u64()?,
            commit_term: fields.u64()?,
        },
        6 => Body::VoteReply {
            pre_vote: has(PRE_VOTE),
            granted: !has(REJECTED),
            commit: fields.u64()?,
            commit_term: fields.u64()?,
        },
        7 => Body::TimeoutNow,
        8 => Body::ReadIndex(fields.context()?),
        9 => Body::ReadIndexReply {
            index: fields.u64()?,
            context: fields.context()?,
        },
        10 => Body::Snapshot(fields.mark(has(CONTEXT))?),
        _ => return Err(DecodeError::Field("kind")),
    })
}

fn put(bytes: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_context(bytes: &mut Vec<u8>, context: ReadContext) {
    bytes.extend_from_slice(&context.node.number().to_le_bytes());
    put(bytes, &[context.start, context.token]);
}

fn entries_length(body: &Body) -> usize {
    match body {
        Body::Append { entries, .. } => {
            let length = |entry: &LogEntry| ENTRY_HEADER_LENGTH + entry.payload.length();
            entries.iter().map(length).sum()
        }
        _ => 0,
    }
}

fn put_entry(bytes: &mut Vec<u8>, entry: &LogEntry) {
    put(bytes, &[entry.term]);
    let mut part = |kind: u8, payload: &[u8]| {
        bytes.push(kind);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
    };
    match &entry.payload {
        Payload::Empty => part(0, &[]),
        Payload::Data(data) => part(1, data),
        Payload::Membership(changes) => part(2, &encode_changes(changes)),
        Payload::LeaveJoint => part(3, &[]),
    }
}

fn put_mark(bytes: &mut Vec<u8>, mark: &SnapshotMark) {
    put(bytes, &[mark.index, mark.term, mark.length]);
    bytes.extend_from_slice(&mark.digest);
    put_members(bytes, &mark.members);
}

fn put_members(bytes: &mut Vec<u8>, members: &Members) {
    for nodes in [
        &members.voters,
        &members.learners,
        &members.outgoing,
        &members.learners_next,
    ] {
        bytes.push(nodes.len() as u8);
        for node in nodes {
            bytes.extend_from_slice(&node.number().to_le_bytes());
        }
    }
}

/// The bytes of a membership, for checkpoints: equal for equal memberships.
pub fn encode_members(members: &Members) -> Vec<u8> {
    let mut bytes = vec![u8::from(members.auto_leave)];
    put_members(&mut bytes, members);
    bytes
}

/// The membership of these bytes. Total: any bytes are a valid membership or an error.
pub fn decode_members(bytes: &[u8]) -> Result<Members, DecodeError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut fields = PeerFields {
        bytes: &bytes,
        at: 0,
    };
    let auto_leave = match fields.u8()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Field("membership")),
    };
    let members = fields.members(auto_leave)?;
    if fields.at != bytes.len() {
        return Err(DecodeError::Length(bytes.len()));
    }
    Ok(members)
}

/// Five bytes a change: what, and which node.
pub(crate) fn encode_changes(changes: &[MemberChange]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(changes.len() * 5);
    for change in changes {
        bytes.push(match change {
            MemberChange::AddVoter(_) => 0,
            MemberChange::AddLearner(_) => 1,
            MemberChange::Remove(_) => 2,
        });
        bytes.extend_from_slice(&change.node().number().to_le_bytes());
    }
    bytes
}

/// The reverse of [`encode_changes`].
pub(crate) fn decode_changes(bytes: &[u8]) -> Option<Vec<MemberChange>> {
    let (changes, rest) = bytes.as_chunks::<5>();
    if changes.is_empty() || changes.len() > MEMBERS_MAX || !rest.is_empty() {
        return None;
    }
    let change = |bytes: &[u8; 5]| {
        let node = server(u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]))?;
        match bytes[0] {
            0 => Some(MemberChange::AddVoter(node)),
            1 => Some(MemberChange::AddLearner(node)),
            2 => Some(MemberChange::Remove(node)),
            _ => None,
        }
    };
    changes.iter().map(change).collect()
}

fn server(number: u32) -> Option<NodeId> {
    (1..1 << 31)
        .contains(&number)
        .then(|| NodeId::server(number))
}

/// Reads fields from the front of a message.
struct PeerFields<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl PeerFields<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8], DecodeError> {
        let from = self.at;
        let end = from
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len());
        self.at = end.ok_or(DecodeError::Length(self.bytes.len()))?;
        Ok(&self.bytes[from..self.at])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let length = self.bytes.len();
        self.take(N)?
            .try_into()
            .map_err(|_| DecodeError::Length(length))
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn node(&mut self) -> Result<NodeId, DecodeError> {
        server(self.u32()?).ok_or(DecodeError::Field("node"))
    }

    fn rejection(&mut self) -> Result<AppendRejection, DecodeError> {
        Ok(AppendRejection {
            hint_index: self.u64()?,
            hint_term: self.u64()?,
        })
    }

    fn context(&mut self) -> Result<ReadContext, DecodeError> {
        Ok(ReadContext {
            node: self.node()?,
            start: self.u64()?,
            token: self.u64()?,
        })
    }

    fn optional(&mut self, is_there: bool) -> Result<Option<ReadContext>, DecodeError> {
        if is_there {
            self.context().map(Some)
        } else {
            Ok(None)
        }
    }

    fn entries(&mut self, previous_index: u64) -> Result<Vec<LogEntry>, DecodeError> {
        let count = self.u32()? as usize;
        // The bytes that are there bound the count before memory is taken for it.
        if count > ENTRIES_MAX || count * ENTRY_HEADER_LENGTH > self.bytes.len() - self.at {
            return Err(DecodeError::Field("count of entries"));
        }
        let mut entries = Vec::with_capacity(count);
        for number in 1..=count as u64 {
            let index = previous_index
                .checked_add(number)
                .ok_or(DecodeError::Field("index"))?;
            let term = self.u64()?;
            entries.push(LogEntry {
                index,
                term,
                payload: self.payload()?,
            });
        }
        Ok(entries)
    }

    fn payload(&mut self) -> Result<Payload, DecodeError> {
        let (kind, length) = (self.u8()?, self.u32()? as usize);
        if length > ENTRY_LENGTH_MAX {
            return Err(DecodeError::Field("length of an entry"));
        }
        let from = self.at;
        let bytes = self.take(length)?;
        match (kind, length) {
            (0, 0) => Ok(Payload::Empty),
            (1, 1..) => Ok(Payload::Data(self.bytes.slice(from..from + length))),
            (2, _) => decode_changes(bytes)
                .map(Payload::Membership)
                .ok_or(DecodeError::Field("membership change")),
            (3, 0) => Ok(Payload::LeaveJoint),
            _ => Err(DecodeError::Field("payload of an entry")),
        }
    }

    fn nodes(&mut self) -> Result<BTreeSet<NodeId>, DecodeError> {
        let count = usize::from(self.u8()?);
        if count > MEMBERS_MAX {
            return Err(DecodeError::Field("count of members"));
        }
        let mut nodes = BTreeSet::new();
        for _ in 0..count {
            let node = self.node()?;
            if nodes.last().is_some_and(|last| *last >= node) {
                return Err(DecodeError::Field("order of members"));
            }
            nodes.insert(node);
        }
        Ok(nodes)
    }

    fn mark(&mut self, auto_leave: bool) -> Result<SnapshotMark, DecodeError> {
        let (index, term, length) = (self.u64()?, self.u64()?, self.u64()?);
        let digest = self.array()?;
        let members = self.members(auto_leave)?;
        Ok(SnapshotMark {
            index,
            term,
            members,
            length,
            digest,
        })
    }

    fn members(&mut self, auto_leave: bool) -> Result<Members, DecodeError> {
        let (voters, learners) = (self.nodes()?, self.nodes()?);
        let (outgoing, learners_next) = (self.nodes()?, self.nodes()?);
        let members = Members {
            voters,
            learners,
            outgoing,
            learners_next,
            auto_leave,
        };
        if !members.is_valid() {
            return Err(DecodeError::Field("membership"));
        }
        Ok(members)
    }
}
