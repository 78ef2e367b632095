//! Cycles without two adjacent anti-dependencies.

use super::shortest_path::{Cycle, ShortestPaths, is_adjacent};
use crate::components::components;
use crate::graph::{DependencyGraph, RW};

/// A cycle over dependencies (kinds in `mask`) and anti-dependencies, no two of the latter adjacent; `None` if there is
/// none. The shortest of those through the first nodes, as many as `steps_max` edges allow.
///
/// Snapshot isolation forbids exactly these cycles (Cerone and Gotsman, "Analysing Snapshot Isolation", 2018). Every
/// node is doubled: (v, 0) was reached over a dependency and may be left over any edge, (v, 1) was reached over an
/// anti-dependency and must be left over a dependency. A cycle of the doubled graph is a closed walk of the wanted
/// kind. A walk that passes a node twice, once each way, splits there into two closed walks, of which the one that
/// arrives over a dependency is of the wanted kind again.
pub(super) fn nonadjacent(graph: &DependencyGraph, mask: u8, steps_max: u64) -> Option<Cycle> {
    let doubled = graph.doubled(mask);
    let original = graph.node_count() as u32;
    let mut best: Option<Cycle> = None;
    for members in components(&doubled, u8::MAX) {
        let mut numbers = vec![None; doubled.node_count()];
        let part = doubled.part(&members, &mut numbers);
        let mut walker = ShortestPaths::new(&part);
        for start in 0..part.transactions {
            if best.is_some() && walker.steps > steps_max {
                break;
            }
            let Some(walk) = walker.path(start, start, u8::MAX) else {
                continue;
            };
            let walk = undouble(&walk, &members, original, graph);
            let cycle = simple(walk);
            let shorter = |cycle: &Cycle| {
                let known = best.as_ref().map_or(usize::MAX, |best| best.nodes.len());
                cycle.nodes.len() < known
            };
            if let Some(cycle) = cycle.filter(shorter) {
                best = Some(cycle);
            }
        }
    }
    best
}

/// A walk of the doubled graph as one of the original graph, without helpers.
fn undouble(walk: &Cycle, members: &[u32], original: u32, graph: &DependencyGraph) -> Cycle {
    let nodes = walk
        .nodes
        .iter()
        .map(|&node| members[node as usize] % original);
    let steps = nodes.zip(walk.edges.iter().copied());
    let (nodes, edges) = steps.filter(|&(node, _)| !graph.is_helper(node)).unzip();
    Cycle { nodes, edges }
}

/// A simple cycle of the wanted kind within a closed walk of that kind. Each round shortens the walk at a repeated node.
fn simple(mut walk: Cycle) -> Option<Cycle> {
    loop {
        let length = walk.nodes.len();
        let repeated = (0..length)
            .flat_map(|first| (first + 1..length).map(move |second| (first, second)))
            .find(|&(first, second)| walk.nodes[first] == walk.nodes[second]);
        let Some((first, second)) = repeated else {
            return (length > 1 && !is_adjacent(&walk.edges)).then_some(walk);
        };
        let inner = Cycle {
            nodes: walk.nodes[first..second].to_vec(),
            edges: walk.edges[first..second].to_vec(),
        };
        walk.nodes.drain(first..second);
        walk.edges.drain(first..second);
        if is_adjacent(&walk.edges) || walk.nodes.len() < 2 {
            walk = inner;
        }
    }
}

impl DependencyGraph {
    /// This graph with every node doubled for [`nonadjacent`]: node v is (v, 0), node v + length is (v, 1). All nodes
    /// count as transactions.
    fn doubled(&self, mask: u8) -> DependencyGraph {
        let length = self.node_count() as u32;
        let mut edges = Vec::with_capacity(2 * self.edge_count());
        for node in 0..length {
            for position in self.edges(node) {
                let (target, kind) = self.edge(position);
                if kind == RW {
                    // An anti-dependency through a helper is two edges of this kind: the second leaves (helper, 1).
                    let from = node + if self.is_helper(node) { length } else { 0 };
                    edges.push((from, target + length, kind));
                } else if kind & mask != 0 {
                    edges.push((node, target, kind));
                    if !self.is_helper(node) {
                        edges.push((node + length, target, kind));
                    }
                }
            }
        }
        DependencyGraph::from_edges(2 * length, 2 * length, &edges)
    }
}
