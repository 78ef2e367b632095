//! Shortest paths and cycles.

use crate::txn::anomaly::{Class, Cyclic, Variant};
use crate::txn::graph::{Graph, PROCESS, REALTIME, RW, WR};
use std::collections::VecDeque;

/// A simple cycle of transactions: `edges[i]` leads from `nodes[i]` to the next node, the last one to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    pub(crate) nodes: Vec<u32>,
    pub(crate) edges: Vec<u8>,
}

impl Cycle {
    /// What this cycle is, by its edges.
    pub(crate) fn classify(&self) -> Cyclic {
        let variant = if self.edges.contains(&REALTIME) {
            Variant::Realtime
        } else if self.edges.contains(&PROCESS) {
            Variant::Process
        } else {
            Variant::Plain
        };
        let anti: u32 = self.edges.iter().map(|&kind| u32::from(kind == RW)).sum();
        let class = match anti {
            0 if self.edges.contains(&WR) => Class::G1c,
            0 => Class::G0,
            1 => Class::GSingle,
            _ if is_adjacent(&self.edges) => Class::G2Item,
            _ => Class::GNonadjacent,
        };
        Cyclic { variant, class }
    }

    /// From, to, kind of each edge.
    pub(super) fn steps(&self) -> impl Iterator<Item = (u32, u32, u8)> {
        let next = self.nodes.iter().cycle().skip(1);
        let ends = self.nodes.iter().zip(next);
        ends.zip(&self.edges)
            .map(|((&from, &to), &kind)| (from, to, kind))
    }

    /// The same cycle with other numbers for its nodes, beginning with the lowest.
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

/// Do two anti-dependencies follow one another somewhere in a cycle of these edges?
pub(super) fn is_adjacent(edges: &[u8]) -> bool {
    let next = edges.iter().cycle().skip(1);
    edges.iter().zip(next).any(|(&a, &b)| a == RW && b == RW)
}

/// Breadth-first search over transactions; helpers cost nothing. Its memory is used again and again.
pub(super) struct Walker<'a> {
    graph: &'a Graph,
    /// Edges looked at so far, over all searches.
    pub(super) steps: u64,
    /// The search that saw a node last.
    seen: Vec<u32>,
    search: u32,
    parents: Vec<(u32, u8)>,
    depths: Vec<u32>,
    queue: VecDeque<u32>,
}

impl<'a> Walker<'a> {
    /// A walker over this graph.
    pub(super) fn new(graph: &'a Graph) -> Walker<'a> {
        Walker {
            graph,
            steps: 0,
            seen: vec![0; graph.len()],
            search: 0,
            parents: vec![(0, 0); graph.len()],
            depths: vec![0; graph.len()],
            queue: VecDeque::new(),
        }
    }

    /// A shortest path from one transaction to another (or back to itself) over edges of the kinds in `mask`: its
    /// nodes without the last, and the kinds of its edges.
    pub(super) fn path(&mut self, from: u32, to: u32, mask: u8) -> Option<Cycle> {
        self.search += 1;
        self.queue.clear();
        self.queue.push_back(from);
        self.depths[from as usize] = 0;
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
                    // Through a helper to itself is no path.
                    if from == to && depth < 2 {
                        continue;
                    }
                    return Some(self.trace(from, node, kind));
                }
                self.seen[target as usize] = self.search;
                self.parents[target as usize] = (node, kind);
                self.depths[target as usize] = depth;
                if helper {
                    self.queue.push_front(target);
                } else {
                    self.queue.push_back(target);
                }
            }
        }
        None
    }

    /// The path that was found, from its last node before the target and the kind of its last edge.
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

    /// The shortest cycle that goes along the edge `from` → `to` of this kind and back over kinds in `mask`.
    pub(super) fn around(&mut self, from: u32, to: u32, kind: u8, mask: u8) -> Option<Cycle> {
        let mut cycle = self.path(to, from, mask)?;
        cycle.nodes.insert(0, from);
        cycle.edges.insert(0, kind);
        Some(cycle)
    }
}

/// Edges between transactions of one kind, helpers followed, in order; at most `count_max` of them.
pub(super) fn direct_edges(graph: &Graph, kind: u8, count_max: usize) -> Vec<(u32, u32)> {
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
