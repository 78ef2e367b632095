//! Strongly connected components.

use crate::graph::DependencyGraph;

/// In [`visit`]: a node that was not visited yet.
const NEW: u32 = 0;
/// In [`visit`]: a node of a finished component.
const DONE: u32 = u32::MAX;

/// The strongly connected components of two transactions or more over edges of the kinds in `mask`, sorted by their
/// lowest nodes, each sorted. Linear in nodes and edges ([`visit`]).
pub fn components(graph: &DependencyGraph, mask: u8) -> Vec<Vec<u32>> {
    let nodes = 0..graph.node_count() as u32;
    components_from(&MaskedGraph(graph, mask), graph.transactions, nodes)
}

/// A graph as [`visit`] sees it: the edges of each node, by number.
pub trait Adjacency {
    /// Number of nodes.
    fn node_count(&self) -> usize;
    /// The edges of a node.
    fn edges(&self, node: u32) -> std::ops::Range<u32>;
    /// Where an edge leads; `None` for an edge to be ignored.
    fn target(&self, edge: u32) -> Option<u32>;
}

/// A graph with only the edges of these kinds.
struct MaskedGraph<'a>(&'a DependencyGraph, u8);

impl Adjacency for MaskedGraph<'_> {
    fn node_count(&self) -> usize {
        self.0.node_count()
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.0.edges(node)
    }

    fn target(&self, edge: u32) -> Option<u32> {
        let (target, kind) = self.0.edge(edge);
        (kind & self.1 != 0).then_some(target)
    }
}

/// The same for the components that can be reached from `roots`, of a graph whose nodes below `transactions` are
/// transactions and the others helpers.
pub fn components_from(
    graph: &impl Adjacency,
    transactions: u32,
    roots: impl Iterator<Item = u32>,
) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    visit(graph, roots, |members| {
        // A component of one transaction and helpers has no cycle of transactions.
        let transactions = members.iter().filter(|&&node| node < transactions);
        if transactions.take(2).count() == 2 {
            let mut members = members.to_vec();
            members.sort_unstable();
            found.push(members);
        }
    });
    found.sort_unstable_by_key(|members: &Vec<u32>| members[0]);
    assert!(
        found.array_windows().all(|[one, next]| one[0] < next[0]),
        "two components share their lowest node"
    );
    found
}

/// The component of each node, numbered in topological order, and their number: no edge leads to a lower number.
pub fn ranks(graph: &DependencyGraph, mask: u8) -> (Vec<u32>, u32) {
    let mut ranks = vec![0; graph.node_count()];
    let mut count = 0;
    visit(
        &MaskedGraph(graph, mask),
        0..graph.node_count() as u32,
        |members| {
            for &node in members {
                ranks[node as usize] = count;
            }
            count += 1;
        },
    );
    // A component is found after all components that it reaches, so the numbers above are in reverse.
    for rank in &mut ranks {
        assert!(*rank < count, "component {rank} of {count}");
        *rank = count - 1 - *rank;
    }
    (ranks, count)
}

/// Calls `take` with each strongly connected component that can be reached from `roots`, after all components that it
/// reaches: Tarjan's algorithm (1972) without recursion, in Pearce's form with one number per node (2016). Linear in
/// nodes and edges; 4 bytes a node, and 16 for each node on the path from the root.
pub fn visit(
    graph: &impl Adjacency,
    roots: impl Iterator<Item = u32>,
    mut take: impl FnMut(&[u32]),
) {
    let mut low = vec![NEW; graph.node_count()];
    let mut counter = NEW;
    // Nodes that were visited, but whose component is not finished: Tarjan's stack.
    let mut open: Vec<u32> = Vec::new();
    // The path from the root: node, its first edge that was not followed yet, the node's own number. The stack of the
    // recursion, on the heap, since a path can be as long as the history.
    let mut path: Vec<(u32, u32, u32)> = Vec::new();
    for root in roots {
        if low[root as usize] != NEW {
            continue;
        }
        counter += 1;
        low[root as usize] = counter;
        open.push(root);
        path.push((root, graph.edges(root).start, counter));
        while let Some((node, next, number)) = path.last_mut() {
            let (node, number) = (*node, *number);
            if *next == graph.edges(node).end {
                path.pop();
                let lowest = low[node as usize];
                // It reaches no node before itself: it is the root of a component, whose nodes lie above it.
                if lowest == number {
                    let start = open.iter().rposition(|&one| one == node).unwrap_or(0);
                    for &member in &open[start..] {
                        low[member as usize] = DONE;
                    }
                    take(&open[start..]);
                    open.truncate(start);
                } else if let Some(&(parent, ..)) = path.last() {
                    let parent = &mut low[parent as usize];
                    *parent = (*parent).min(lowest);
                }
                continue;
            }
            let target = graph.target(*next);
            *next += 1;
            let Some(target) = target else {
                continue;
            };
            match low[target as usize] {
                NEW => {
                    counter += 1;
                    low[target as usize] = counter;
                    open.push(target);
                    path.push((target, graph.edges(target).start, counter));
                }
                // Of an earlier component, which does not lead back here.
                DONE => {}
                seen => low[node as usize] = low[node as usize].min(seen),
            }
        }
        assert!(open.is_empty(), "a component was not finished");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{RW, WR, WW};
    use seatrial_machine::Rng;

    /// By pairs of nodes: does the first reach the second? By closing the relation (Warshall).
    fn reach(nodes: usize, edges: &[(u32, u32, u8)], mask: u8) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; nodes]; nodes];
        for &(from, to, _) in edges.iter().filter(|edge| edge.2 & mask != 0) {
            reach[from as usize][to as usize] = true;
        }
        for middle in 0..nodes {
            for from in 0..nodes {
                for to in 0..nodes {
                    reach[from][to] |= reach[from][middle] && reach[middle][to];
                }
            }
        }
        reach
    }

    #[test]
    fn agrees_with_the_closure() {
        for seed in 0..3_000 {
            let mut rng = Rng::from_seed(seed);
            let nodes = 1 + rng.index(12);
            let count = rng.below(30);
            let node = |rng: &mut Rng| rng.index(nodes) as u32;
            let edges: Vec<_> = (0..count)
                .map(|_| (node(&mut rng), node(&mut rng), *rng.pick(&[WW, WR, RW])))
                .collect();
            let graph = DependencyGraph::from_edges(nodes as u32, nodes as u32, &edges);
            let mask = *rng.pick(&[WW, WW | WR, WW | WR | RW]);
            let reach = reach(nodes, &edges, mask);
            let found = components(&graph, mask);
            let (ranks, count) = ranks(&graph, mask);
            assert!(ranks.iter().all(|&rank| rank < count));
            for from in 0..nodes {
                for to in 0..nodes {
                    let together = from == to || reach[from][to] && reach[to][from];
                    assert_eq!(ranks[from] == ranks[to], together, "seed {seed}");
                    assert!(!reach[from][to] || ranks[from] <= ranks[to], "seed {seed}");
                    let both = [from as u32, to as u32];
                    let listed = |members: &Vec<u32>| both.iter().all(|one| members.contains(one));
                    if from != to {
                        assert_eq!(found.iter().any(listed), together, "seed {seed}");
                    }
                }
            }
            assert!(found.is_sorted_by_key(|members| members[0]), "seed {seed}");
        }
    }

    #[test]
    fn deep_graphs_do_not_exhaust_the_stack() {
        let nodes = 300_000;
        let mut edges: Vec<_> = (1..nodes).map(|node| (node - 1, node, WW)).collect();
        edges.push((nodes - 1, 0, WW));
        let graph = DependencyGraph::from_edges(nodes, nodes, &edges);
        assert_eq!(components(&graph, WW)[0].len(), nodes as usize);
    }
}
