//! What a fault strikes: some of the nodes, or the links between them.

use super::FaultError;
use seatrial_machine::{FaultKind, Link, NodeId, Rng};
use std::fmt;

/// Which nodes a fault strikes, or which links a partition cuts. The names are those of Jepsen's node specifications and
/// partition targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// One node; as a partition, one node alone.
    One,
    /// Fewer than half of the nodes; as a partition, these from the others.
    Minority,
    /// Fewer than a third of the nodes, at least one; as a partition, these from the others.
    MinorityThird,
    /// More than half of the nodes; as a partition, these from the others, at random.
    Majority,
    /// The nodes that lead; as a partition, each of them alone.
    Primaries,
    /// All nodes.
    All,
    /// Any number of nodes; as a partition, any number of links.
    Random,
    /// The first half of the nodes from the second, in their order.
    Halves,
    /// Two random halves.
    RandomHalves,
    /// Two random halves and a node that both still reach.
    Bridge,
    /// Every node reaches a majority, but no two nodes the same.
    MajoritiesRing,
    /// Clients from nodes.
    Clients,
}

impl Target {
    /// All of them, in the order in which they are listed to people.
    pub const ALL: [Target; 12] = [
        Target::One,
        Target::Minority,
        Target::MinorityThird,
        Target::Majority,
        Target::Primaries,
        Target::All,
        Target::Random,
        Target::Halves,
        Target::RandomHalves,
        Target::Bridge,
        Target::MajoritiesRing,
        Target::Clients,
    ];

    /// The name that `--faults KIND:TARGET` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Target::One => "one",
            Target::Minority => "minority",
            Target::MinorityThird => "minority-third",
            Target::Majority => "majority",
            Target::Primaries => "primaries",
            Target::All => "all",
            Target::Random => "random",
            Target::Halves => "halves",
            Target::RandomHalves => "random-halves",
            Target::Bridge => "bridge",
            Target::MajoritiesRing => "majorities-ring",
            Target::Clients => "clients",
        }
    }

    /// Can faults of this kind strike it?
    pub const fn fits(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Partition | FaultKind::Packet => true,
            // Corruption strikes always the same few nodes, so that some copy stays whole.
            FaultKind::Membership | FaultKind::Corruption => false,
            _ => !matches!(
                self,
                Target::Halves
                    | Target::RandomHalves
                    | Target::Bridge
                    | Target::MajoritiesRing
                    | Target::Clients
            ),
        }
    }

    /// The fewest nodes with which it strikes anything.
    pub const fn nodes_min(self, kind: FaultKind) -> usize {
        match (self, kind) {
            (Target::Clients, _) | (Target::All, FaultKind::Packet) => 1,
            (Target::Bridge | Target::Minority, _) => 3,
            (Target::MajoritiesRing, _) => 4,
            (_, FaultKind::Partition | FaultKind::Packet) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of fault and, where the user chose, its targets: `kill`, `kill:majority`, `partition:bridge+majorities-ring`.
pub fn parse_fault(text: &str) -> Result<(FaultKind, Vec<Target>), FaultError> {
    let (name, targets) = text.split_once(':').unwrap_or((text, ""));
    let Some(kind) = FaultKind::from_name(name.trim()) else {
        return Err(FaultError::Kind(name.trim().to_owned()));
    };
    let mut found = Vec::new();
    let names = targets.split('+').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        let known = Target::ALL.into_iter().find(|known| known.name() == name);
        let Some(target) = known.filter(|target| target.fits(kind)) else {
            let target = name.to_owned();
            return Err(FaultError::Target { kind, target });
        };
        found.push(target);
    }
    Ok((kind, found))
}

/// Some of these nodes, as a target says of a system of so many; in their order.
pub(super) fn choose(rng: &mut Rng, target: Target, from: &[NodeId], size: usize) -> Vec<NodeId> {
    let count = match target {
        Target::Minority => size.saturating_sub(1) / 2,
        Target::MinorityThird => size.saturating_sub(1) / 3,
        Target::Majority => size / 2 + 1,
        Target::All => size,
        Target::Random => 1 + rng.index(size.max(1)),
        _ => 1,
    };
    let mut nodes = from.to_vec();
    rng.shuffle(&mut nodes);
    nodes.truncate(count.max(1));
    nodes.sort_unstable();
    nodes
}

/// Pairs of endpoints between which the links are struck. `primaries` are the nodes that lead.
pub(super) fn pairs_of(
    rng: &mut Rng,
    target: Target,
    servers: &[NodeId],
    clients: &[NodeId],
    primaries: &[NodeId],
) -> Vec<(NodeId, NodeId)> {
    let mut nodes = servers.to_vec();
    let count = nodes.len();
    if target != Target::Halves {
        rng.shuffle(&mut nodes);
    }
    let split = |at: usize| pairs(&nodes[..at.min(count)], &nodes[at.min(count)..]);
    match target {
        Target::One => split(1),
        Target::Minority => split((count.saturating_sub(1) / 2).max(1)),
        Target::Halves | Target::RandomHalves => split(count / 2),
        Target::Majority => split(count / 2 + 1),
        Target::MinorityThird => split((count.saturating_sub(1) / 3).max(1)),
        Target::Bridge => pairs(
            &nodes[..count.saturating_sub(1) / 2],
            &nodes[count.div_ceil(2).min(count)..],
        ),
        Target::MajoritiesRing => ring(&nodes),
        Target::All => every(&nodes).collect(),
        Target::Random => random(rng, &nodes),
        Target::Primaries => {
            let alone =
                |&(a, b): &(NodeId, NodeId)| primaries.contains(&a) || primaries.contains(&b);
            every(&nodes).filter(alone).collect()
        }
        Target::Clients => split_clients(rng, servers, clients),
    }
}

/// Every pair of nodes.
fn every(nodes: &[NodeId]) -> impl Iterator<Item = (NodeId, NodeId)> {
    let rest = move |a: usize| nodes[a + 1..].iter().map(move |&b| (nodes[a], b));
    (0..nodes.len()).flat_map(rest)
}

/// Every node reaches a majority, but no two the same: its neighbours on a ring.
fn ring(nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let count = nodes.len();
    // So many neighbours on either side make a majority with the node itself.
    let reach = (count / 2).div_ceil(2);
    let far = |a: usize, b: usize| (b - a).min(count - (b - a)) > reach;
    let all = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    all.filter(|&(a, b)| far(a, b))
        .map(|(a, b)| (nodes[a], nodes[b]))
        .collect()
}

/// Each pair with a chance of one half; at least one, if there is one.
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

/// Pairs of clients and servers: one, a random half or all of the clients, and one or all servers.
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

/// Every one of the first with every one of the second.
fn pairs(first: &[NodeId], second: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let with_all = |&a: &NodeId| second.iter().map(move |&b| (a, b));
    first.iter().flat_map(with_all).collect()
}

/// The links of these pairs, in both directions or all in the same one.
pub(super) fn directed(rng: &mut Rng, pairs: Vec<(NodeId, NodeId)>) -> Vec<Link> {
    let direction = rng.below(4);
    let links = pairs.into_iter().flat_map(|(a, b)| match direction {
        0 => vec![Link { from: a, to: b }],
        1 => vec![Link { from: b, to: a }],
        _ => Link::both(a, b).to_vec(),
    });
    links.collect()
}
