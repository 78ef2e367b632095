//! The library's types from and to ours.

use super::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, EntryType, MessageType, RaftEntry,
    RaftMessage, Snapshot,
};
use crate::log_entry::{LogEntry, MemberChange, Members, Payload, SnapshotMark};
use crate::peer_codec::{decode_changes, encode_changes};
use crate::peer_message::{AppendRejection, Body, LinkNumber, PeerMessage, ReadContext};
use bytes::Bytes;
use seatrial_machine::NodeId;
use std::collections::BTreeSet;

/// The context of the vote requests of a transfer of leadership, by which the library knows them.
const TRANSFER: &[u8] = b"CampaignTransfer";
/// Bytes of a [`ReadContext`] inside of the library.
const CONTEXT_LENGTH: usize = 20;

pub(super) fn number(node: NodeId) -> u64 {
    u64::from(node.number())
}

/// The node with this number; `None` for numbers that no node has.
pub(super) fn node_id(number: u64) -> Option<NodeId> {
    let number = u32::try_from(number)
        .ok()
        .filter(|number| (1..1 << 31).contains(number));
    number.map(NodeId::server)
}

pub(super) fn to_entry(entry: &LogEntry) -> RaftEntry {
    let mut made = RaftEntry {
        index: entry.index,
        term: entry.term,
        ..RaftEntry::default()
    };
    match &entry.payload {
        Payload::Empty => {}
        Payload::Data(data) => made.data = data.clone(),
        Payload::Membership(changes) => {
            made.set_entry_type(EntryType::EntryConfChangeV2);
            // WrapperRule 8: the change travels in our encoding. The library reads its own one only where it is proposed.
            made.context = encode_changes(changes).into();
        }
        Payload::LeaveJoint => made.set_entry_type(EntryType::EntryConfChangeV2),
    }
    made
}

pub(super) fn from_entry(entry: &RaftEntry) -> LogEntry {
    let payload = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => Payload::Empty,
        EntryType::EntryNormal => Payload::Data(entry.data.clone()),
        _ if entry.context.is_empty() => Payload::LeaveJoint,
        // The context was encoded by `to_entry` or `propose_membership`.
        _ => decode_changes(&entry.context).map_or(Payload::Empty, Payload::Membership),
    };
    LogEntry {
        index: entry.index,
        term: entry.term,
        payload,
    }
}

pub(super) fn to_change(changes: &[MemberChange]) -> ConfChangeV2 {
    let single = |change: &MemberChange| {
        let mut single = ConfChangeSingle {
            node_id: number(change.node()),
            ..Default::default()
        };
        single.set_change_type(match change {
            MemberChange::AddVoter(_) => ConfChangeType::AddNode,
            MemberChange::AddLearner(_) => ConfChangeType::AddLearnerNode,
            MemberChange::Remove(_) => ConfChangeType::RemoveNode,
        });
        single
    };
    let mut change = ConfChangeV2::default();
    change.set_changes(changes.iter().map(single).collect::<Vec<_>>().into());
    change
}

pub(super) fn to_conf_state(members: &Members) -> ConfState {
    let numbers =
        |nodes: &BTreeSet<NodeId>| -> Vec<u64> { nodes.iter().copied().map(number).collect() };
    let mut state = ConfState {
        auto_leave: members.auto_leave,
        ..ConfState::default()
    };
    state.set_voters(numbers(&members.voters));
    state.set_learners(numbers(&members.learners));
    state.set_voters_outgoing(numbers(&members.outgoing));
    state.set_learners_next(numbers(&members.learners_next));
    state
}

pub(super) fn from_conf_state(state: &ConfState) -> Members {
    let nodes = |numbers: &[u64]| numbers.iter().copied().filter_map(node_id).collect();
    Members {
        voters: nodes(state.get_voters()),
        learners: nodes(state.get_learners()),
        outgoing: nodes(state.get_voters_outgoing()),
        learners_next: nodes(state.get_learners_next()),
        auto_leave: state.auto_leave,
    }
}

pub(super) fn to_snapshot(mark: &SnapshotMark) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    meta.index = mark.index;
    meta.term = mark.term;
    meta.set_conf_state(to_conf_state(&mark.members));
    let mut data = mark.length.to_le_bytes().to_vec();
    data.extend_from_slice(&mark.digest);
    snapshot.data = data.into();
    snapshot
}

pub(super) fn from_snapshot(snapshot: &Snapshot) -> SnapshotMark {
    let meta = snapshot.get_metadata();
    let part = |from: usize, to: usize| snapshot.data.get(from..to).unwrap_or_default();
    SnapshotMark {
        index: meta.index,
        term: meta.term,
        members: from_conf_state(meta.get_conf_state()),
        length: u64::from_le_bytes(part(0, 8).try_into().unwrap_or_default()),
        digest: part(8, 24).try_into().unwrap_or_default(),
    }
}

pub(super) fn from_context(context: ReadContext) -> [u8; CONTEXT_LENGTH] {
    let mut bytes = [0; CONTEXT_LENGTH];
    bytes[..4].copy_from_slice(&context.node.number().to_le_bytes());
    bytes[4..12].copy_from_slice(&context.start.to_le_bytes());
    bytes[12..].copy_from_slice(&context.token.to_le_bytes());
    bytes
}

pub(super) fn to_context(bytes: &[u8]) -> Option<ReadContext> {
    let bytes: &[u8; CONTEXT_LENGTH] = bytes.try_into().ok()?;
    Some(ReadContext {
        node: node_id(u64::from(u32::from_le_bytes(bytes[..4].try_into().ok()?)))?,
        start: u64::from_le_bytes(bytes[4..12].try_into().ok()?),
        token: u64::from_le_bytes(bytes[12..].try_into().ok()?),
    })
}

pub(super) fn context_bytes(context: Option<ReadContext>) -> Bytes {
    context.map_or_else(Bytes::new, |context| {
        Bytes::copy_from_slice(&from_context(context))
    })
}

/// An entry without position that carries a read's context, as the library wants it.
pub(super) fn context_entry(context: ReadContext) -> Vec<RaftEntry> {
    vec![RaftEntry {
        data: context_bytes(Some(context)),
        ..RaftEntry::default()
    }]
}

pub(super) fn to_library(message: PeerMessage) -> RaftMessage {
    let mut made = RaftMessage {
        from: number(message.from),
        to: number(message.to),
        term: message.term,
        ..RaftMessage::default()
    };
    let kind = match message.body {
        Body::Append {
            previous_index,
            previous_term,
            commit,
            entries,
        } => {
            (made.index, made.log_term, made.commit) = (previous_index, previous_term, commit);
            made.set_entries(entries.iter().map(to_entry).collect::<Vec<_>>().into());
            MessageType::MsgAppend
        }
        Body::AppendReply {
            index,
            commit,
            rejected,
        } => {
            (made.index, made.commit, made.reject) = (index, commit, rejected.is_some());
            if let Some(AppendRejection {
                hint_index,
                hint_term,
            }) = rejected
            {
                (made.reject_hint, made.log_term) = (hint_index, hint_term);
            }
            MessageType::MsgAppendResponse
        }
        Body::Heartbeat { commit, context } => {
            (made.commit, made.context) = (commit, context_bytes(context));
            MessageType::MsgHeartbeat
        }
        Body::HeartbeatReply { commit, context } => {
            (made.commit, made.context) = (commit, context_bytes(context));
            MessageType::MsgHeartbeatResponse
        }
        body => fill_vote_or_read(&mut made, body),
    };
    made.set_msg_type(kind);
    made
}

/// The kinds that do not carry entries or heartbeats.
fn fill_vote_or_read(made: &mut RaftMessage, body: Body) -> MessageType {
    match body {
        Body::Vote {
            pre_vote,
            transfer,
            last_index,
            last_term,
            commit,
            commit_term,
        } => {
            (made.index, made.log_term) = (last_index, last_term);
            (made.commit, made.commit_term) = (commit, commit_term);
            if transfer {
                made.context = Bytes::from_static(TRANSFER);
            }
            if pre_vote {
                MessageType::MsgRequestPreVote
            } else {
                MessageType::MsgRequestVote
            }
        }
        Body::VoteReply {
            pre_vote,
            granted,
            commit,
            commit_term,
        } => {
            (made.reject, made.commit, made.commit_term) = (!granted, commit, commit_term);
            if pre_vote {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            }
        }
        Body::TimeoutNow => MessageType::MsgTimeoutNow,
        Body::ReadIndex(context) => {
            made.set_entries(context_entry(context).into());
            MessageType::MsgReadIndex
        }
        Body::ReadIndexReply { index, context } => {
            made.index = index;
            made.set_entries(context_entry(context).into());
            MessageType::MsgReadIndexResp
        }
        Body::Snapshot(mark) => {
            made.set_snapshot(to_snapshot(&mark));
            MessageType::MsgSnapshot
        }
        // Handled by the caller.
        Body::Append { .. }
        | Body::AppendReply { .. }
        | Body::Heartbeat { .. }
        | Body::HeartbeatReply { .. } => MessageType::MsgAppend,
    }
}

/// The message in our form, without its place on the link; `None` for kinds that are not sent.
pub(super) fn from_library(message: &RaftMessage, from: NodeId) -> Option<PeerMessage> {
    let kind = message.get_msg_type();
    let (commit, commit_term) = (message.commit, message.commit_term);
    let read = || to_context(&message.entries.first()?.data);
    let pre_vote = matches!(
        kind,
        MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
    );
    let body = match kind {
        MessageType::MsgAppend => Body::Append {
            previous_index: message.index,
            previous_term: message.log_term,
            commit,
            entries: message.entries.iter().map(from_entry).collect(),
        },
        MessageType::MsgAppendResponse => Body::AppendReply {
            index: message.index,
            commit,
            rejected: message.reject.then_some(AppendRejection {
                hint_index: message.reject_hint,
                hint_term: message.log_term,
            }),
        },
        MessageType::MsgHeartbeat => Body::Heartbeat {
            commit,
            context: to_context(&message.context),
        },
        MessageType::MsgHeartbeatResponse => Body::HeartbeatReply {
            commit,
            context: to_context(&message.context),
        },
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::Vote {
            pre_vote,
            transfer: message.context == TRANSFER,
            last_index: message.index,
            last_term: message.log_term,
            commit,
            commit_term,
        },
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            Body::VoteReply {
                pre_vote,
                granted: !message.reject,
                commit,
                commit_term,
            }
        }
        MessageType::MsgTimeoutNow => Body::TimeoutNow,
        MessageType::MsgReadIndex => Body::ReadIndex(read()?),
        MessageType::MsgReadIndexResp => Body::ReadIndexReply {
            index: message.index,
            context: read()?,
        },
        MessageType::MsgSnapshot => Body::Snapshot(from_snapshot(message.get_snapshot())),
        _ => return None,
    };
    let to = node_id(message.to)?;
    Some(PeerMessage {
        from,
        to,
        link: LinkNumber::default(),
        term: message.term,
        body,
    })
}
