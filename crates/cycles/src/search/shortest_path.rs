//! Shortest paths and cycles.

use crate::anomaly::{CycleClass, CycleKind, CycleVariant};
use crate::graph::{DependencyGraph, PROCESS, REALTIME, RW, WR};
use std::collections::VecDeque;

/// A simple cycle of transactions: `edges[i]` leads from `nodes[i]` to the next node, the last one to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its nodes in order.
    pub nodes: Vec<u32>,
    /// The kind of the edge from each node to the next; the last one leads to the first.
    pub edges: Vec<u8>,
}

impl Cycle {
    /// The kind of this cycle, by its edges.
    pub fn classify(&self) -> CycleKind {
        assert_eq!(self.nodes.len(), self.edges.len(), "an edge for each node");
        let variant = if self.edges.contains(&REALTIME) {
            CycleVariant::Realtime
        } else if self.edges.contains(&PROCESS) {
            CycleVariant::Process
        } else {
            CycleVariant::Plain
        };
        let anti: u32 = self.edges.iter().map(|&kind| u32::from(kind == RW)).sum();
        let class = match anti {
            0 if self.edges.contains(&WR) => CycleClass::G1c,
            0 => CycleClass::G0,
            1 => CycleClass::GSingle,
            _ if is_adjacent(&self.edges) => CycleClass::G2Item,
            _ => CycleClass::GNonadjacent,
        };
        CycleKind { variant, class }
    }

    /// Source, target and kind of each edge.
    pub fn steps(&self) -> impl Iterator<Item = (u32, u32, u8)> {
        let next = self.nodes.iter().cycle().skip(1);
        let ends = self.nodes.iter().zip(next);
        ends.zip(&self.edges)
            .map(|((&from, &to), &kind)| (from, to, kind))
    }

    /// The same cycle with `numbers[node]` for each node, from its lowest node on.
    pub(super) fn renumber(&self, numbers: &[u32]) -> Cycle {
        let mut nodes: Vec<u32> = self
            .nodes
            .iter()
            .map(|&node| numbers[node as usize])
            .collect();
        let mut edges = self.edges.clone();
        let lowest = (0..nodes.len()).min_by_key(|&at| nodes[at]).unwrap_or(0);
        nodes.rotate_left(lowest);
        edges.rotate_left(lowest);
        Cycle { nodes, edges }
    }
}

/// Are two anti-dependencies adjacent in a cycle of these edges?
pub(super) fn is_adjacent(edges: &[u8]) -> bool {
    let next = edges.iter().cycle().skip(1);
    edges.iter().zip(next).any(|(&a, &b)| a == RW && b == RW)
}

/// Breadth-first search for shortest paths, counted in transactions: a helper adds nothing to the length. It owns the
/// memory for all its searches, 16 bytes a node; a search does not clear it, but has a number.
pub(super) struct ShortestPaths<'a> {
    graph: &'a DependencyGraph,
    /// Edges looked at so far, over all searches.
    pub(super) steps: u64,
    /// By node: the search that reached it last.
    seen: Vec<u32>,
    search: u32,
    /// By node, of that search: the node before it on the path, and the kind of the edge.
    parents: Vec<(u32, u8)>,
    /// By node, of that search: transactions on the path before it.
    depths: Vec<u32>,
    queue: VecDeque<u32>,
}

impl<'a> ShortestPaths<'a> {
    /// Searches in this graph.
    pub(super) fn new(graph: &'a DependencyGraph) -> ShortestPaths<'a> {
        ShortestPaths {
            graph,
            steps: 0,
            seen: vec![0; graph.node_count()],
            search: 0,
            parents: vec![(0, 0); graph.node_count()],
            depths: vec![0; graph.node_count()],
            queue: VecDeque::new(),
        }
    }

    /// A shortest path from one transaction to another (or back to itself) over edges of the kinds in `mask`: its
    /// nodes without the last one, and the kinds of its edges. `None` if there is none.
    pub(super) fn path(&mut self, from: u32, to: u32, mask: u8) -> Option<Cycle> {
        self.search += 1;
        self.queue.clear();
        self.queue.push_back(from);
        self.depths[from as usize] = 0;
        // A path back to its start must be able to reach it.
        if from != to {
            self.seen[from as usize] = self.search;
        }
        while let Some(node) = self.queue.pop_front() {
            let edges = self.graph.edges(node);
            self.steps += u64::from(edges.end - edges.start) + 1;
            for position in edges {
                let (target, kind) = self.graph.edge(position);
                if kind & mask == 0 || self.seen[target as usize] == self.search {
                    continue;
                }
                let helper = self.graph.is_helper(target);
                let depth = self.depths[node as usize] + u32::from(!helper);
                if target == to {
                    // From a transaction to its own helper and back is no path.
                    if from == to && depth < 2 {
                        continue;
                    }
                    return Some(self.trace(from, node, kind));
                }
                self.seen[target as usize] = self.search;
                self.parents[target as usize] = (node, kind);
                self.depths[target as usize] = depth;
                // A helper is as near as the node before it, so it comes before the rest of the queue.
                if helper {
                    self.queue.push_front(target);
                } else {
                    self.queue.push_back(target);
                }
            }
        }
        None
    }

    /// The path to `last`, and an edge of `kind` from there to the target.
    fn trace(&self, from: u32, last: u32, kind: u8) -> Cycle {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let (mut node, mut kind) = (last, kind);
        loop {
            if !self.graph.is_helper(node) {
                nodes.push(node);
                edges.push(kind);
            }
            if node == from {
                break;
            }
            (node, kind) = self.parents[node as usize];
        }
        nodes.reverse();
        edges.reverse();
        Cycle { nodes, edges }
    }

    /// The shortest cycle over the edge `from` → `to` of this kind, and back over kinds in `mask`.
    pub(super) fn around(&mut self, from: u32, to: u32, kind: u8, mask: u8) -> Option<Cycle> {
        let mut cycle = self.path(to, from, mask)?;
        cycle.nodes.insert(0, from);
        cycle.edges.insert(0, kind);
        Some(cycle)
    }
}

/// The edges of one kind between transactions, through helpers as well, by source; at most `count_max` of them.
pub(super) fn direct_edges(graph: &DependencyGraph, kind: u8, count_max: usize) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut helpers = Vec::new();
    for from in 0..graph.transactions {
        helpers.clear();
        helpers.push(from);
        while let Some(node) = helpers.pop() {
            for position in graph.edges(node) {
                let (target, of) = graph.edge(position);
                if of != kind {
                    continue;
                }
                if graph.is_helper(target) {
                    helpers.push(target);
                } else if target != from {
                    found.push((from, target));
                }
            }
        }
        if found.len() >= count_max {
            found.truncate(count_max);
            break;
        }
    }
    found
}
