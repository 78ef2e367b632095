//! Which messages reach the library (rule 9): checks that need no state of elections, and the order of links.

use crate::log_entry::{LogEntry, Payload, SnapshotMark, is_server};
use crate::peer_message::{Body, LinkNumber, PeerMessage};
use seatrial_machine::NodeId;
use std::collections::BTreeMap;

/// Indices and terms above this are refused: sums of them cannot overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// What a message is compared with.
pub(crate) struct Local {
    pub(crate) node: NodeId,
    pub(crate) term: u64,
    pub(crate) last: u64,
    pub(crate) is_leader: bool,
    pub(crate) is_member: bool,
}

/// The newest number of each sender. At most as many senders as ever were members.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<NodeId, LinkNumber>);

impl Links {
    /// Is the message newer than all before it from its sender? Remembers it.
    pub(crate) fn admit(&mut self, from: NodeId, number: LinkNumber) -> bool {
        let newest = self.0.entry(from).or_default();
        let is_newer = number > *newest;
        if is_newer {
            *newest = number;
        }
        is_newer
    }
}

/// Why a message is dropped; `None` if it may be stepped.
pub(crate) fn objection(message: &PeerMessage, local: &Local) -> Option<&'static str> {
    if message.to != local.node || !is_server(message.from) || message.from == local.node {
        return Some("sender or receiver");
    }
    let is_read = matches!(message.body, Body::ReadIndex(_));
    if message.term > NUMBER_MAX || (message.term == 0) != is_read {
        return Some("term");
    }
    // A request may come from a member that this node does not know yet: it may be the one to say that the sender joined. Who
    // may open a link at all is decided where links are authenticated. A reply is for a question asked to a member.
    let from_member_only = matches!(
        message.body,
        Body::AppendReply { .. }
            | Body::HeartbeatReply { .. }
            | Body::VoteReply { .. }
            | Body::ReadIndex(_)
    );
    if from_member_only && !local.is_member {
        return Some("a reply of a node that is no member");
    }
    body_objection(message, local)
}

fn body_objection(message: &PeerMessage, local: &Local) -> Option<&'static str> {
    let term = message.term;
    let bounded = |numbers: &[u64]| numbers.iter().all(|number| *number <= NUMBER_MAX);
    // Of an earlier or later term, positions are not used: the library only looks at the term.
    let exceeds = |index: u64| local.is_leader && term == local.term && index > local.last;
    let fits = match &message.body {
        Body::Append {
            previous_index,
            previous_term,
            commit,
            entries,
        } => {
            bounded(&[*previous_index, *commit])
                && *previous_term <= term
                && (*previous_index == 0) == (*previous_term == 0)
                && are_consecutive(entries, *previous_index, *previous_term, term)
                && !(local.is_leader && term == local.term)
        }
        Body::AppendReply {
            index,
            commit,
            rejected,
        } => {
            let hint = rejected.map_or(0, |rejection| rejection.hint_index);
            let hint_term = rejected.map_or(0, |rejection| rejection.hint_term);
            bounded(&[*index, *commit, hint])
                && hint_term <= term
                && hint <= *index
                && !exceeds(*index)
                && !exceeds(*commit)
        }
        Body::HeartbeatReply { commit, .. } => bounded(&[*commit]) && !exceeds(*commit),
        Body::Heartbeat { commit, .. } => {
            bounded(&[*commit]) && !(local.is_leader && term == local.term)
        }
        Body::Vote {
            last_index,
            last_term,
            commit,
            commit_term,
            ..
        } => {
            bounded(&[*last_index, *commit])
                && *last_term <= term
                && commit_term <= last_term
                && commit <= last_index
        }
        Body::VoteReply {
            commit,
            commit_term,
            ..
        } => bounded(&[*commit]) && *commit_term <= term,
        Body::TimeoutNow => !local.is_leader,
        Body::ReadIndex(context) => local.is_leader && context.node == message.from,
        Body::ReadIndexReply { index, context } => {
            bounded(&[*index]) && !local.is_leader && context.node == local.node
        }
        Body::Snapshot(mark) => !local.is_leader && is_whole(mark, term),
    };
    if fits { None } else { Some("fields") }
}

fn is_whole(mark: &SnapshotMark, term: u64) -> bool {
    mark.index > 0
        && mark.index <= NUMBER_MAX
        && mark.term > 0
        && mark.term <= term
        && mark.members.is_valid()
}

fn are_consecutive(entries: &[LogEntry], index: u64, term: u64, message_term: u64) -> bool {
    let mut last = (index, term);
    entries.iter().all(|entry| {
        let follows = entry.index == last.0 + 1 && entry.term >= last.1 && entry.term > 0;
        last = (entry.index, entry.term);
        let changes_fit = match &entry.payload {
            Payload::Membership(changes) => changes.iter().all(|change| is_server(change.node())),
            _ => true,
        };
        follows && changes_fit
    }) && last.1 <= message_term
}
