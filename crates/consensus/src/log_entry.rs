//! Entries of the replicated log, the vote, memberships and snapshot marks.

use bytes::Bytes;
use seatrial_machine::NodeId;
use std::collections::BTreeSet;

/// Bound of the bytes of one proposed entry.
pub const ENTRY_LENGTH_MAX: usize = (4 << 20) + 1_024;
/// Bound of the nodes in each list of a [`Members`], and of the changes in one membership entry.
pub const MEMBERS_MAX: usize = 64;

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Position in the log, from 1.
    pub index: u64,
    /// The term of the leader that appended it.
    pub term: u64,
    /// What it carries.
    pub payload: Payload,
}

/// What an [`LogEntry`] carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the first entry of each leader, and a membership change that its leader refused.
    Empty,
    /// Bytes of the state machine, never empty, shared.
    Data(Bytes),
    /// A change of the membership.
    Membership(Vec<MemberChange>),
    /// The end of a joint membership.
    LeaveJoint,
}

impl Payload {
    /// Bytes of the state machine in it.
    pub fn length(&self) -> usize {
        match self {
            Payload::Data(bytes) => bytes.len(),
            Payload::Membership(changes) => changes.len() * 5,
            Payload::Empty | Payload::LeaveJoint => 0,
        }
    }
}

/// One change of a membership. Several in one entry go through a joint membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Add a voter, or promote a learner.
    AddVoter(NodeId),
    /// Add a learner, or demote a voter.
    AddLearner(NodeId),
    /// Remove a member.
    Remove(NodeId),
}

impl MemberChange {
    /// The node that is added, promoted, demoted or removed.
    pub fn node(self) -> NodeId {
        match self {
            MemberChange::AddVoter(node)
            | MemberChange::AddLearner(node)
            | MemberChange::Remove(node) => node,
        }
    }
}

/// The members of a cluster at one index. While `outgoing` is not empty the membership is joint: both `voters` and `outgoing`
/// need a majority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Nodes that vote.
    pub voters: BTreeSet<NodeId>,
    /// Nodes that receive the log and do not vote.
    pub learners: BTreeSet<NodeId>,
    /// Voters of the membership that is being left.
    pub outgoing: BTreeSet<NodeId>,
    /// Nodes of `outgoing` that become learners when the joint membership ends.
    pub learners_next: BTreeSet<NodeId>,
    /// Does the leader end the joint membership by itself?
    pub auto_leave: bool,
}

impl Members {
    /// A membership of voters only.
    pub fn of_voters(voters: impl IntoIterator<Item = NodeId>) -> Members {
        Members {
            voters: voters.into_iter().collect(),
            ..Members::default()
        }
    }

    /// Is this node a voter or a learner, of either half of a joint membership?
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node)
            || self.learners.contains(&node)
            || self.outgoing.contains(&node)
    }

    /// All nodes, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let all = self
            .voters
            .iter()
            .chain(&self.learners)
            .chain(&self.outgoing);
        all.copied().collect()
    }

    /// Can a cluster have this membership? There is a voter, no voter is a learner, and only a joint membership has parts that
    /// belong to its end.
    pub fn is_valid(&self) -> bool {
        let both = self.voters.union(&self.outgoing);
        !self.voters.is_empty()
            && self.nodes().iter().all(|node| is_server(*node))
            && both.into_iter().all(|voter| !self.learners.contains(voter))
            && self.learners_next.is_subset(&self.outgoing)
            && self.learners_next.is_disjoint(&self.voters)
            && (!self.outgoing.is_empty() || !self.auto_leave)
            && self.nodes().len() <= MEMBERS_MAX
    }
}

/// Can this node be a member? Servers are counted from 1.
pub(crate) fn is_server(node: NodeId) -> bool {
    !node.is_client() && node.number() > 0
}

/// What a node must remember of elections: at most one vote a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The newest term that the node knows.
    pub term: u64,
    /// The candidate that got its vote in that term.
    pub vote: Option<NodeId>,
    /// The newest index known to be committed. Written along with entries: the membership after a restart is then at most
    /// one change old, and such neighbours share a quorum.
    pub commit: u64,
}

/// A checkpoint of the state, without the state: what a member needs to know to ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The last index whose effect it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The members at that index.
    pub members: Members,
    /// Bytes of the state.
    pub length: u64,
    /// A digest of the state.
    pub digest: [u8; 16],
}
