//! Membership of the system as its nodes report it, and the planning of legal membership changes.

use super::fault_operation::{field, map_value, node, node_value};
use seatrial_history::Value;
use seatrial_machine::{Fault, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};

/// The answers of the nodes to the operation `view`: the members and primaries that they report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The members as each node reports them; a node that did not answer is missing.
    pub members: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// The nodes that report themselves as primary.
    pub primaries: BTreeSet<NodeId>,
}

impl Membership {
    /// The members that more than half of the answering nodes report.
    pub fn merged(&self) -> BTreeSet<NodeId> {
        let mut votes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for members in self.members.values() {
            for &member in members {
                *votes.entry(member).or_default() += 1;
            }
        }
        let answers = self.members.len();
        let majority = votes.into_iter().filter(|(_, votes)| votes * 2 > answers);
        majority.map(|(member, _)| member).collect()
    }
}

/// A membership as the value of the operation `view`: `{:members {"n1" ["n1" "n2"]} :primaries ["n1"]}`.
pub fn membership_value(membership: &Membership) -> Value {
    let list = |nodes: &BTreeSet<NodeId>| {
        Value::List(nodes.iter().map(|&node| node_value(node)).collect())
    };
    let members = membership.members.iter();
    let members = members.map(|(&node, members)| (node_value(node), list(members)));
    map_value([
        ("members", Value::Map(members.collect())),
        ("primaries", list(&membership.primaries)),
    ])
}

/// The membership that a value of [`membership_value`] encodes; `None` for any other value.
pub fn membership_of(value: &Value) -> Option<Membership> {
    let list = |value: &Value| match value {
        Value::List(nodes) => nodes.iter().map(node).collect::<Option<BTreeSet<_>>>(),
        _ => None,
    };
    let Value::Map(members) = field(value, "members")? else {
        return None;
    };
    let members = members
        .iter()
        .map(|(name, members)| Some((node(name)?, list(members)?)));
    Some(Membership {
        members: members.collect::<Option<_>>()?,
        primaries: list(field(value, "primaries")?)?,
    })
}

/// The next step of a membership change.
#[derive(Debug, PartialEq)]
pub(super) enum MembershipStep {
    /// Query the nodes first.
    Query,
    /// Request this change, which is legal now.
    Request(Fault),
    /// An earlier change is not visible yet; query again later.
    NotYet,
    /// No change is needed or legal.
    Nothing,
}

/// The state machine of Jepsen's membership nemesis: query the membership, request a legal change, query until the
/// membership shows it, and only then choose another.
///
/// ```text
///   Query ──► on_membership ──► Request(change) ──► Query ──► … shows the change? ──► Query ─► next change
///                                    └► on_refused: the change is dropped
/// ```
#[derive(Clone, Debug)]
pub(super) struct MembershipPlanner {
    /// All nodes of the system; initially all are members.
    nodes: BTreeSet<NodeId>,
    /// The members reported last; taken by the next decision, so that no decision rests on an old report.
    reported: Option<BTreeSet<NodeId>>,
    /// The requested change that no report shows yet: the node, and whether it joins.
    pending: Option<(NodeId, bool)>,
    /// Changes refused one after the other.
    refusals: u32,
}

/// Refusals of a row after which the initial membership is given up: a system that lost a majority never restores it, and each
/// attempt may take as long as its time limit.
const REFUSALS_MAX: u32 = 6;

impl MembershipPlanner {
    pub(super) fn new(nodes: &[NodeId]) -> MembershipPlanner {
        MembershipPlanner {
            nodes: nodes.iter().copied().collect(),
            reported: None,
            pending: None,
            refusals: 0,
        }
    }

    /// The fewest members: a majority of all nodes, so that a replicated system stays available.
    fn members_min(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Receives a report of the nodes.
    pub(super) fn on_membership(&mut self, membership: &Membership) {
        let members = membership.merged();
        if let Some((node, joins)) = self.pending
            && members.contains(&node) == joins
        {
            self.pending = None;
            self.refusals = 0;
        }
        // No members: no majority answered, which is no basis for a change.
        self.reported = Some(members).filter(|members| !members.is_empty());
    }

    /// The system refused the requested change; it will not become visible.
    pub(super) fn on_refused(&mut self) {
        self.pending = None;
        self.refusals += 1;
    }

    /// Chooses a change with `choose` if the membership is known and no change is pending.
    fn decide(
        &mut self,
        choose: impl FnOnce(&MembershipPlanner, &BTreeSet<NodeId>) -> Option<(NodeId, bool)>,
    ) -> MembershipStep {
        let Some(members) = self.reported.take() else {
            return MembershipStep::Query;
        };
        if self.pending.is_some() {
            return MembershipStep::NotYet;
        }
        self.pending = choose(self, &members);
        match self.pending {
            Some((node, true)) => MembershipStep::Request(Fault::Join(node)),
            Some((node, false)) => MembershipStep::Request(Fault::Leave(node)),
            None => MembershipStep::Nothing,
        }
    }

    /// A random legal change: a member leaves, or another node joins.
    pub(super) fn change(&mut self, rng: &mut Rng) -> MembershipStep {
        self.decide(|this, members| {
            let outside = this.nodes.difference(members).map(|&node| (node, true));
            let mut legal: Vec<(NodeId, bool)> = outside.collect();
            if members.len() > this.members_min() {
                let inside = members.intersection(&this.nodes);
                legal.extend(inside.map(|&node| (node, false)));
            }
            (!legal.is_empty()).then(|| *rng.pick(&legal))
        })
    }

    /// A step towards the initial membership, of all nodes: the first missing node joins. Nothing after too many refusals.
    pub(super) fn restore(&mut self) -> MembershipStep {
        if self.refusals >= REFUSALS_MAX {
            return MembershipStep::Nothing;
        }
        self.decide(|this, members| {
            let missing = this.nodes.difference(members).next();
            missing.map(|&node| (node, true))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_that_cannot_be_restored_is_given_up() {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId::server).collect();
        let members: BTreeSet<NodeId> = nodes[1..].iter().copied().collect();
        let report = Membership {
            members: nodes.iter().map(|node| (*node, members.clone())).collect(),
            primaries: BTreeSet::new(),
        };
        let joins = MembershipStep::Request(Fault::Join(nodes[0]));
        let mut planner = MembershipPlanner::new(&nodes);
        for _ in 0..REFUSALS_MAX {
            assert_eq!(planner.restore(), MembershipStep::Query);
            planner.on_membership(&report);
            assert_eq!(planner.restore(), joins);
            planner.on_refused();
        }
        planner.on_membership(&report);
        assert_eq!(planner.restore(), MembershipStep::Nothing);
        // Chosen changes are still tried, and one that works ends the row.
        let step = planner.change(&mut Rng::from_seed(1));
        assert_eq!(step, joins);
        let mut all = report.clone();
        all.members
            .values_mut()
            .for_each(|it| *it = nodes.iter().copied().collect());
        planner.on_membership(&all);
        planner.on_membership(&report);
        assert_eq!(planner.restore(), joins);
    }
}
