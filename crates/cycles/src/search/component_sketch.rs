//! The part of a component that a picture can show.

use super::shortest_path::Cycle;
use crate::graph::{DependencyGraph, PROCESS, REALTIME};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of components with a sketch: the largest.
pub const SKETCHES_MAX: usize = 8;
/// Transactions in a sketch.
const NODES_MAX: usize = 40;
/// Dependencies in a sketch.
const DEPENDENCIES_MAX: usize = 120;
/// Edges that may be looked at for one sketch.
const STEPS_MAX: u64 = 1_000_000;

/// Some transactions of a component and the dependencies between them: those of its cycles first, then their
/// neighbours. Edges of real time and process order are shown only where one of these cycles has them; all of them
/// would be too many to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentSketch {
    /// Number of transactions of the whole component.
    pub size: usize,
    /// The transactions in the sketch, sorted.
    pub nodes: Vec<u32>,
    /// Source, target, kind; at most one edge from one transaction to another, the one of the lowest kind.
    pub edges: Vec<(u32, u32, u8)>,
    /// Number of dependencies between these transactions that did not fit.
    pub left_out: usize,
}

impl ComponentSketch {
    /// The sketch of a graph that is one component, in which these cycles were found.
    pub(super) fn of(graph: &DependencyGraph, cycles: &[&Cycle]) -> ComponentSketch {
        let mut walk = SketchWalk {
            graph,
            seen: vec![0; graph.node_count()],
            search: 0,
            steps: 0,
        };
        let first: Vec<u32> = cycles
            .iter()
            .flat_map(|cycle| cycle.nodes.clone())
            .collect();
        let nodes = walk.choose(&first);
        let mut edges = walk.edges(&nodes);
        edges.retain(|_, kind| *kind & (PROCESS | REALTIME) == 0);
        for (from, to, kind) in cycles.iter().flat_map(|cycle| cycle.steps()) {
            if nodes.contains(&from) && nodes.contains(&to) {
                edges.entry((from, to)).or_insert(kind);
            }
        }
        let mut edges: Vec<_> = edges
            .into_iter()
            .map(|((from, to), kind)| (from, to, kind))
            .collect();
        // The lowest kinds first: they make the worst anomalies, and the last ones may not fit.
        edges.sort_by_key(|&(from, to, kind)| (kind, from, to));
        let left_out = edges.len().saturating_sub(DEPENDENCIES_MAX);
        assert!(
            nodes.len() <= NODES_MAX,
            "{} transactions in a sketch",
            nodes.len()
        );
        ComponentSketch {
            size: graph.transactions as usize,
            nodes: nodes.into_iter().collect(),
            edges: edges.into_iter().take(DEPENDENCIES_MAX).collect(),
            left_out,
        }
    }

    /// Replaces each transaction `n` by `numbers[n]`.
    pub fn renumber(&mut self, numbers: &[u32]) {
        for node in &mut self.nodes {
            *node = numbers[*node as usize];
        }
        for (from, to, _) in &mut self.edges {
            *from = numbers[*from as usize];
            *to = numbers[*to as usize];
        }
    }
}

/// Walks from transaction to transaction, through helpers.
struct SketchWalk<'a> {
    graph: &'a DependencyGraph,
    /// By node: the search that reached it last.
    seen: Vec<u32>,
    search: u32,
    /// Edges looked at so far.
    steps: u64,
}

impl SketchWalk<'_> {
    /// At most [`NODES_MAX`] nodes: `first`, then the nodes that can be reached from them, nearest first.
    fn choose(&mut self, first: &[u32]) -> BTreeSet<u32> {
        let mut chosen = BTreeSet::new();
        let mut queue = VecDeque::new();
        for &node in first.iter().chain(&[0]) {
            if chosen.len() < NODES_MAX && chosen.insert(node) {
                queue.push_back(node);
            }
        }
        while let Some(node) = queue.pop_front() {
            for (target, _) in self.targets(node) {
                if chosen.len() == NODES_MAX {
                    return chosen;
                }
                if chosen.insert(target) {
                    queue.push_back(target);
                }
            }
        }
        chosen
    }

    /// The transactions to which a transaction has an edge, directly or through helpers, with the kinds of these edges.
    fn targets(&mut self, from: u32) -> Vec<(u32, u8)> {
        let mut found = Vec::new();
        let mut waiting = vec![(from, 0)];
        self.search += 1;
        while let Some((node, by)) = waiting.pop() {
            for position in self.graph.edges(node) {
                self.steps += 1;
                if self.steps > STEPS_MAX {
                    return found;
                }
                let (target, kind) = self.graph.edge(position);
                // A path through helpers is one edge, so all its parts are of one kind.
                if by != 0 && by != kind {
                    continue;
                }
                if !self.graph.is_helper(target) {
                    if target != from {
                        found.push((target, kind));
                    }
                } else if std::mem::replace(&mut self.seen[target as usize], self.search)
                    != self.search
                {
                    waiting.push((target, kind));
                }
            }
        }
        found
    }

    /// The edges between these nodes, for each pair the one of the lowest kind.
    fn edges(&mut self, nodes: &BTreeSet<u32>) -> BTreeMap<(u32, u32), u8> {
        let mut edges: BTreeMap<(u32, u32), u8> = BTreeMap::new();
        for &from in nodes {
            for (to, kind) in self.targets(from) {
                if nodes.contains(&to) {
                    let known = edges.entry((from, to)).or_insert(kind);
                    *known = (*known).min(kind);
                }
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{EdgeBuilder, RW, WR, WW};

    #[test]
    fn a_small_component_is_shown_whole() {
        // 0 → 1 → 2 → 0 by data; in real time 0 before 1 before 2.
        let mut edges = EdgeBuilder::new(4);
        for (from, to, kind) in [(0, 1, WW), (1, 2, WR), (2, 0, RW), (0, 1, RW)] {
            edges.link(from, to, kind);
        }
        let barrier = edges.add_helper();
        edges.link(0, barrier, REALTIME);
        edges.link(barrier, 1, REALTIME);
        let next = edges.add_helper();
        edges.link(barrier, next, REALTIME);
        edges.link(1, next, REALTIME);
        edges.link(next, 2, REALTIME);
        edges.link(next, 3, REALTIME);
        edges.link(3, 0, RW);
        let cycle = Cycle {
            nodes: vec![0, 2],
            edges: vec![REALTIME, RW],
        };
        let sketch = ComponentSketch::of(&edges.into_graph(), &[&cycle]);
        assert_eq!(sketch.size, 4);
        assert_eq!(sketch.nodes, [0, 1, 2, 3]);
        // Of real time only the cycle's own edge.
        assert_eq!(
            sketch.edges,
            [
                (0, 1, WW),
                (1, 2, WR),
                (2, 0, RW),
                (3, 0, RW),
                (0, 2, REALTIME)
            ]
        );
    }

    #[test]
    fn of_a_large_component_its_cycle_is_shown() {
        let mut edges = EdgeBuilder::new(1_000);
        for node in 0..1_000 {
            edges.link(node, (node + 1) % 1_000, WW);
            edges.link(node, (node + 7) % 1_000, PROCESS);
        }
        edges.link(901, 900, RW);
        let cycle = Cycle {
            nodes: vec![900, 901],
            edges: vec![WW, RW],
        };
        let sketch = ComponentSketch::of(&edges.into_graph(), &[&cycle]);
        assert_eq!((sketch.size, sketch.nodes.len()), (1_000, NODES_MAX));
        assert!(sketch.edges.contains(&(900, 901, WW)));
        assert!(sketch.edges.contains(&(901, 900, RW)));
        assert!(
            sketch
                .nodes
                .iter()
                .all(|node| *node == 0 || *node >= 900 || *node < 300)
        );
    }
}
