//! A component, as far as a picture can show it.

use super::walk::Cycle;
use crate::txn::graph::{Graph, PROCESS, REALTIME};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Components that are sketched: the largest.
pub(crate) const SKETCHES_MAX: usize = 8;
/// Transactions in a sketch.
const NODES_MAX: usize = 40;
/// Dependencies in a sketch.
const DEPENDENCIES_MAX: usize = 120;
/// Edges that may be looked at for one sketch.
const STEPS_MAX: u64 = 1_000_000;

/// Some transactions of a component and how they depend on one another: those of its cycles first, then their
/// neighbours. Real time and the order of a process are told only where one of these cycles takes them: there are too
/// many to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sketch {
    /// Transactions of the whole component.
    pub(crate) size: usize,
    /// Those in the sketch, sorted.
    pub(crate) nodes: Vec<u32>,
    /// From, to, kind; at most one from one transaction to another, the one that tells most.
    pub(crate) edges: Vec<(u32, u32, u8)>,
    /// Dependencies between them that did not fit.
    pub(crate) left_out: usize,
}

impl Sketch {
    /// The sketch of a graph that is one component, in which these cycles were found.
    pub(super) fn of(graph: &Graph, cycles: &[&Cycle]) -> Sketch {
        let mut walk = Walk {
            graph,
            seen: vec![0; graph.len()],
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
        // What tells most first.
        edges.sort_by_key(|&(from, to, kind)| (kind, from, to));
        let left_out = edges.len().saturating_sub(DEPENDENCIES_MAX);
        Sketch {
            size: graph.transactions as usize,
            nodes: nodes.into_iter().collect(),
            edges: edges.into_iter().take(DEPENDENCIES_MAX).collect(),
            left_out,
        }
    }

    /// The same with other numbers for its transactions.
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        for node in &mut self.nodes {
            *node = numbers[*node as usize];
        }
        for (from, to, _) in &mut self.edges {
            *from = numbers[*from as usize];
            *to = numbers[*to as usize];
        }
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    /// The search that saw a node last.
    seen: Vec<u32>,
    search: u32,
    steps: u64,
}

impl Walk<'_> {
    /// So many nodes: `first`, then what they lead to, nearest first.
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

    /// The transactions that a transaction leads to, helpers followed, with the kinds of the edges.
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

    /// The edges between these, each from one to another once.
    fn edges(&mut self, nodes: &BTreeSet<u32>) -> BTreeMap<(u32, u32), u8> {
        let mut edges: BTreeMap<(u32, u32), u8> = BTreeMap::new();
        for &from in nodes {
            for (to, kind) in self.targets(from) {
                if nodes.contains(&to) {
                    let known = edges.entry((from, to)).or_insert(kind);
                    // The lowest bit tells most.
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
    use crate::txn::graph::{Edges, RW, WR, WW};

    #[test]
    fn a_small_component_is_shown_whole() {
        // 0 → 1 → 2 → 0 by data; in real time 0 before 1 before 2.
        let mut edges = Edges::new(4);
        for (from, to, kind) in [(0, 1, WW), (1, 2, WR), (2, 0, RW), (0, 1, RW)] {
            edges.link(from, to, kind);
        }
        let barrier = edges.helper();
        edges.link(0, barrier, REALTIME);
        edges.link(barrier, 1, REALTIME);
        let next = edges.helper();
        edges.link(barrier, next, REALTIME);
        edges.link(1, next, REALTIME);
        edges.link(next, 2, REALTIME);
        edges.link(next, 3, REALTIME);
        edges.link(3, 0, RW);
        let cycle = Cycle {
            nodes: vec![0, 2],
            edges: vec![REALTIME, RW],
        };
        let sketch = Sketch::of(&edges.into_graph(), &[&cycle]);
        assert_eq!(sketch.size, 4);
        assert_eq!(sketch.nodes, [0, 1, 2, 3]);
        // Of real time only what the cycle takes.
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
        let mut edges = Edges::new(1_000);
        for node in 0..1_000 {
            edges.link(node, (node + 1) % 1_000, WW);
            edges.link(node, (node + 7) % 1_000, PROCESS);
        }
        edges.link(901, 900, RW);
        let cycle = Cycle {
            nodes: vec![900, 901],
            edges: vec![WW, RW],
        };
        let sketch = Sketch::of(&edges.into_graph(), &[&cycle]);
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
