//! Who belongs to the system, as its nodes see it.

use super::operation::{field, map_value, node, node_value};
use seatrial_history::Value;
use seatrial_machine::{Fault, NodeId, Rng};
use std::collections::{BTreeMap, BTreeSet};

/// What the nodes answered when they were asked who belongs to the system and who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The members as each node sees them; nodes that did not answer are missing.
    pub members: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// The nodes that say that they lead.
    pub primaries: BTreeSet<NodeId>,
}

impl View {
    /// The members that more than half of the nodes see that answered.
    pub fn merged(&self) -> BTreeSet<NodeId> {
        let mut votes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for members in self.members.values() {
            for &member in members {
                *votes.entry(member).or_default() += 1;
            }
        }
        let answers = self.members.len();
        let seen = votes.into_iter().filter(|(_, votes)| votes * 2 > answers);
        seen.map(|(member, _)| member).collect()
    }
}

/// A view as the value of the operation `view`: `{:members {"n1" ["n1" "n2"]} :primaries ["n1"]}`.
pub fn view_value(view: &View) -> Value {
    let list = |nodes: &BTreeSet<NodeId>| {
        Value::List(nodes.iter().map(|&node| node_value(node)).collect())
    };
    let members = view.members.iter();
    let members = members.map(|(&node, members)| (node_value(node), list(members)));
    map_value([
        ("members", Value::Map(members.collect())),
        ("primaries", list(&view.primaries)),
    ])
}

/// The view that such a value tells.
pub fn view_of(value: &Value) -> Option<View> {
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
    Some(View {
        members: members.collect::<Option<_>>()?,
        primaries: list(field(value, "primaries")?)?,
    })
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// Ask the nodes first.
    Ask,
    /// A change that is legal now.
    Make(Fault),
    /// An earlier change has not come to anything yet; ask again later.
    NotYet,
    /// There is nothing to change.
    Nothing,
}

/// The state machine of Jepsen's membership nemesis: ask for the view, choose a legal change, ask until the view shows it,
/// and only then choose another.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    /// All nodes that there are; members all of them in the beginning.
    nodes: BTreeSet<NodeId>,
    /// The members as they were seen last; taken when something is decided on it.
    seen: Option<BTreeSet<NodeId>>,
    /// The change that the view does not show yet: who, and as a member?
    pending: Option<(NodeId, bool)>,
}

impl Membership {
    pub(super) fn new(nodes: &[NodeId]) -> Membership {
        Membership {
            nodes: nodes.iter().copied().collect(),
            seen: None,
            pending: None,
        }
    }

    /// A majority of the nodes stays, so that a replicated system can go on.
    fn members_min(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// The nodes answered.
    pub(super) fn see(&mut self, view: &View) {
        let members = view.merged();
        if let Some((node, joins)) = self.pending
            && members.contains(&node) == joins
        {
            self.pending = None;
        }
        self.seen = Some(members).filter(|members| !members.is_empty());
    }

    /// The change that was asked for was refused: it will not come.
    pub(super) fn refused(&mut self) {
        self.pending = None;
    }

    fn decide(
        &mut self,
        choose: impl FnOnce(&Membership, &BTreeSet<NodeId>) -> Option<(NodeId, bool)>,
    ) -> Change {
        let Some(members) = self.seen.take() else {
            return Change::Ask;
        };
        if self.pending.is_some() {
            return Change::NotYet;
        }
        self.pending = choose(self, &members);
        match self.pending {
            Some((node, true)) => Change::Make(Fault::Join(node)),
            Some((node, false)) => Change::Make(Fault::Leave(node)),
            None => Change::Nothing,
        }
    }

    /// Another change: a member leaves, or a node that is none joins.
    pub(super) fn breaking(&mut self, rng: &mut Rng) -> Change {
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

    /// A step back to the beginning, when all nodes were members.
    pub(super) fn mending(&mut self) -> Change {
        self.decide(|this, members| {
            let missing = this.nodes.difference(members).next();
            missing.map(|&node| (node, true))
        })
    }
}
