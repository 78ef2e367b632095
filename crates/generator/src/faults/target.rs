//! Targets of faults: which nodes, or which links between them.

use super::FaultError;
use seatrial_machine::{FaultKind, Link, NodeId, Rng};
use std::fmt;

/// The nodes that a fault affects, or the links that a partition cuts. The names are those of Jepsen's node specifications
/// and partition targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultTarget {
    /// One node; for a partition, one node isolated from all others.
    One,
    /// Fewer than half of the nodes; for a partition, these from the others.
    Minority,
    /// Fewer than a third of the nodes, at least one; for a partition, these from the others.
    MinorityThird,
    /// More than half of the nodes, drawn at random; for a partition, these from the others.
    Majority,
    /// The primaries; for a partition, each isolated from all others.
    Primaries,
    /// All nodes.
    All,
    /// Any number of nodes; for a partition, any number of links.
    Random,
    /// The first half of the nodes from the second, in their order.
    Halves,
    /// Two random halves.
    RandomHalves,
    /// Two random halves, and one node that reaches both.
    Bridge,
    /// Every node reaches a majority, but no two nodes the same majority.
    MajoritiesRing,
    /// Clients from nodes.
    Clients,
}

impl FaultTarget {
    /// All targets, as listed in help and messages.
    pub const ALL: [FaultTarget; 12] = [
        FaultTarget::One,
        FaultTarget::Minority,
        FaultTarget::MinorityThird,
        FaultTarget::Majority,
        FaultTarget::Primaries,
        FaultTarget::All,
        FaultTarget::Random,
        FaultTarget::Halves,
        FaultTarget::RandomHalves,
        FaultTarget::Bridge,
        FaultTarget::MajoritiesRing,
        FaultTarget::Clients,
    ];

    /// The name that `--faults KIND:TARGET` takes.
    pub const fn name(self) -> &'static str {
        match self {
            FaultTarget::One => "one",
            FaultTarget::Minority => "minority",
            FaultTarget::MinorityThird => "minority-third",
            FaultTarget::Majority => "majority",
            FaultTarget::Primaries => "primaries",
            FaultTarget::All => "all",
            FaultTarget::Random => "random",
            FaultTarget::Halves => "halves",
            FaultTarget::RandomHalves => "random-halves",
            FaultTarget::Bridge => "bridge",
            FaultTarget::MajoritiesRing => "majorities-ring",
            FaultTarget::Clients => "clients",
        }
    }

    /// Does this target apply to faults of this kind?
    pub const fn fits(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Partition | FaultKind::Packet => true,
            // Corruption always damages the same minority, so that intact copies remain.
            FaultKind::Membership | FaultKind::Corruption => false,
            _ => !matches!(
                self,
                FaultTarget::Halves
                    | FaultTarget::RandomHalves
                    | FaultTarget::Bridge
                    | FaultTarget::MajoritiesRing
                    | FaultTarget::Clients
            ),
        }
    }

    /// The smallest number of nodes for which this target is not empty.
    pub const fn nodes_min(self, kind: FaultKind) -> usize {
        match (self, kind) {
            (FaultTarget::Clients, _) | (FaultTarget::All, FaultKind::Packet) => 1,
            (FaultTarget::Bridge | FaultTarget::Minority, _) => 3,
            (FaultTarget::MajoritiesRing, _) => 4,
            (_, FaultKind::Partition | FaultKind::Packet) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for FaultTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a kind of fault with optional targets: `kill`, `kill:majority`, `partition:bridge+majorities-ring`.
pub fn parse_fault(text: &str) -> Result<(FaultKind, Vec<FaultTarget>), FaultError> {
    let (name, targets) = text.split_once(':').unwrap_or((text, ""));
    let Some(kind) = FaultKind::from_name(name.trim()) else {
        return Err(FaultError::Kind(name.trim().to_owned()));
    };
    let mut found = Vec::new();
    let names = targets.split('+').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        let known = FaultTarget::ALL
            .into_iter()
            .find(|known| known.name() == name);
        let Some(target) = known.filter(|target| target.fits(kind)) else {
            let target = name.to_owned();
            return Err(FaultError::Target { kind, target });
        };
        found.push(target);
    }
    Ok((kind, found))
}

/// The nodes of this target, drawn from `candidates` and sorted. `size` is the number of nodes of the whole system, to
/// which majorities and minorities refer.
pub(super) fn choose(
    rng: &mut Rng,
    target: FaultTarget,
    candidates: &[NodeId],
    size: usize,
) -> Vec<NodeId> {
    let count = match target {
        FaultTarget::Minority => size.saturating_sub(1) / 2,
        FaultTarget::MinorityThird => size.saturating_sub(1) / 3,
        FaultTarget::Majority => size / 2 + 1,
        FaultTarget::All => size,
        FaultTarget::Random => 1 + rng.index(size.max(1)),
        _ => 1,
    };
    let mut nodes = candidates.to_vec();
    rng.shuffle(&mut nodes);
    nodes.truncate(count.max(1));
    nodes.sort_unstable();
    nodes
}

/// The pairs of endpoints whose links this target affects.
///
/// ```text
///   one      halves    bridge    majorities-ring (5 nodes: each reaches itself and its neighbours)
///   a│b c    a b│c d   a b│ │d e        a
///    │d e       │       └─ c ─┘       e   b      cut: a-c a-d b-d b-e c-e
///                                     d c
/// ```
pub(super) fn pairs_of(
    rng: &mut Rng,
    target: FaultTarget,
    servers: &[NodeId],
    clients: &[NodeId],
    primaries: &[NodeId],
) -> Vec<(NodeId, NodeId)> {
    let mut nodes = servers.to_vec();
    let count = nodes.len();
    if target != FaultTarget::Halves {
        rng.shuffle(&mut nodes);
    }
    let split = |at: usize| pairs(&nodes[..at.min(count)], &nodes[at.min(count)..]);
    match target {
        FaultTarget::One => split(1),
        FaultTarget::Minority => split((count.saturating_sub(1) / 2).max(1)),
        FaultTarget::Halves | FaultTarget::RandomHalves => split(count / 2),
        FaultTarget::Majority => split(count / 2 + 1),
        FaultTarget::MinorityThird => split((count.saturating_sub(1) / 3).max(1)),
        FaultTarget::Bridge => pairs(
            &nodes[..count.saturating_sub(1) / 2],
            &nodes[count.div_ceil(2).min(count)..],
        ),
        FaultTarget::MajoritiesRing => ring(&nodes),
        FaultTarget::All => every(&nodes).collect(),
        FaultTarget::Random => random(rng, &nodes),
        FaultTarget::Primaries => {
            let alone =
                |&(a, b): &(NodeId, NodeId)| primaries.contains(&a) || primaries.contains(&b);
            every(&nodes).filter(alone).collect()
        }
        FaultTarget::Clients => split_clients(rng, servers, clients),
    }
}

/// Every pair of nodes.
fn every(nodes: &[NodeId]) -> impl Iterator<Item = (NodeId, NodeId)> {
    let rest = move |a: usize| nodes[a + 1..].iter().map(move |&b| (nodes[a], b));
    (0..nodes.len()).flat_map(rest)
}

/// The pairs to cut so that every node reaches only its neighbours on a ring: a majority, and no two nodes the same one.
fn ring(nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let count = nodes.len();
    // The number of neighbours on either side that, with the node itself, form a majority.
    let reach = (count / 2).div_ceil(2);
    let far = |a: usize, b: usize| (b - a).min(count - (b - a)) > reach;
    let all = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    all.filter(|&(a, b)| far(a, b))
        .map(|(a, b)| (nodes[a], nodes[b]))
        .collect()
}

/// Each pair with probability 1/2, but at least one (unless there is no pair).
fn random(rng: &mut Rng, nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let all: Vec<_> = every(nodes).collect();
    if all.is_empty() {
        return all;
    }
    let one = *rng.pick(&all);
    all.into_iter()
        .filter(|pair| rng.chance(0.5) || *pair == one)
        .collect()
}

/// Pairs of a client and a server: one client, a random half or all of them, with one server or all.
fn split_clients(rng: &mut Rng, servers: &[NodeId], clients: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    if servers.is_empty() || clients.is_empty() {
        return Vec::new();
    }
    let mut clients = clients.to_vec();
    rng.shuffle(&mut clients);
    let count = match rng.below(3) {
        0 => 1,
        1 => clients.len().div_ceil(2),
        _ => clients.len(),
    };
    clients.truncate(count);
    let node = [*rng.pick(servers)];
    let servers = if rng.chance(0.5) { &node[..] } else { servers };
    pairs(&clients, servers)
}

/// The product of two lists of nodes.
fn pairs(first: &[NodeId], second: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let with_all = |&a: &NodeId| second.iter().map(move |&b| (a, b));
    first.iter().flat_map(with_all).collect()
}

/// The links of these pairs: in both directions, or (half of the time) all in the same one.
pub(super) fn directed(rng: &mut Rng, pairs: Vec<(NodeId, NodeId)>) -> Vec<Link> {
    let direction = rng.below(4);
    let links = pairs.into_iter().flat_map(|(a, b)| match direction {
        0 => vec![Link { from: a, to: b }],
        1 => vec![Link { from: b, to: a }],
        _ => Link::both(a, b).to_vec(),
    });
    links.collect()
}
