//! The operator of a simulated cluster: asks its servers to let nodes join and leave.

use super::StoreRequest;
use seatrial_kv_protocol::{AdminRequest, Outcome};
use seatrial_machine::{Input, NodeId, Output, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The operator's endpoint, which no client has.
pub(super) const OPERATOR: NodeId = NodeId::client(1 << 20);

/// Holds the membership that it was last asked for, and sends what leads there to all servers, again and again: messages are
/// lost, only a leader carries a change out, and one at a time. Requests that are carried out already are refused, so it needs no
/// replies.
pub(crate) struct Operator {
    servers: Vec<NodeId>,
    /// Time between two attempts.
    interval: Duration,
    /// Shall the node be a voter?
    wanted: BTreeMap<NodeId, bool>,
    due: Option<Time>,
}

impl Operator {
    pub(super) fn new(servers: Vec<NodeId>, interval: Duration) -> Operator {
        Operator {
            servers,
            interval,
            wanted: BTreeMap::new(),
            due: None,
        }
    }

    pub(super) fn turn(
        &mut self,
        now: Time,
        input: &Input<StoreRequest>,
        out: &mut Vec<Output<Outcome>>,
    ) {
        if let Input::Request(_, StoreRequest::Change { node, joins }) = input {
            self.wanted.insert(*node, *joins);
            self.due = Some(now);
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = Some(now + self.interval);
            for (&node, &joins) in &self.wanted {
                // An addition is carried out before a promotion: until then the other one is refused.
                let add = [
                    AdminRequest::AddLearner(node, None),
                    AdminRequest::Promote(node),
                ];
                let remove = [AdminRequest::Remove(node)];
                let requests = if joins { &add[..] } else { &remove };
                out.extend(requests.iter().flat_map(|request| self.to_all(*request)));
            }
        }
    }

    pub(super) const fn wake_at(&self) -> Option<Time> {
        self.due
    }

    fn to_all(&self, request: AdminRequest) -> impl Iterator<Item = Output<Outcome>> {
        self.servers.iter().map(move |to| Output::Send {
            to: *to,
            message: request.into_message(),
        })
    }
}
