//! Strongly connected components.

use super::graph::Graph;

/// Not visited yet.
const NEW: u32 = 0;
/// Belongs to a finished component.
const DONE: u32 = u32::MAX;

/// The strongly connected components of two transactions or more, over edges of the kinds in `mask`: Tarjan's
/// algorithm (1972) without recursion, in Pearce's form with one number per node (2016). Components come in the order
/// of their lowest node, their nodes sorted. Linear in nodes and edges.
pub(super) fn components(graph: &Graph, mask: u8) -> Vec<Vec<u32>> {
    let nodes = 0..graph.len() as u32;
    components_from(&Masked(graph, mask), graph.transactions, nodes)
}

/// What the search follows: the edges of each node, by number.
pub(super) trait Arcs {
    /// Number of nodes.
    fn len(&self) -> usize;
    /// The edges of a node.
    fn edges(&self, node: u32) -> std::ops::Range<u32>;
    /// Where an edge leads; `None` when it does not count.
    fn target(&self, edge: u32) -> Option<u32>;
}

/// Only the edges of these kinds.
struct Masked<'a>(&'a Graph, u8);

impl Arcs for Masked<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.0.edges(node)
    }

    fn target(&self, edge: u32) -> Option<u32> {
        let (target, kind) = self.0.edge(edge);
        (kind & self.1 != 0).then_some(target)
    }
}

/// The same for those components that `roots` reach; nodes below `transactions` are such.
pub(super) fn components_from(
    arcs: &impl Arcs,
    transactions: u32,
    roots: impl Iterator<Item = u32>,
) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    visit(arcs, roots, |members| {
        let transactions = members.iter().filter(|&&node| node < transactions);
        if transactions.take(2).count() == 2 {
            let mut members = members.to_vec();
            members.sort_unstable();
            found.push(members);
        }
    });
    found.sort_unstable_by_key(|members: &Vec<u32>| members[0]);
    found
}

/// Numbers of the component of each node, in topological order: an edge never leads to a lower number.
pub(super) fn ranks(graph: &Graph, mask: u8) -> (Vec<u32>, u32) {
    let mut ranks = vec![0; graph.len()];
    let mut count = 0;
    visit(&Masked(graph, mask), 0..graph.len() as u32, |members| {
        for &node in members {
            ranks[node as usize] = count;
        }
        count += 1;
    });
    // Components are found after all that they reach.
    for rank in &mut ranks {
        *rank = count - 1 - *rank;
    }
    (ranks, count)
}

/// Hands every component to `take`, after those that it reaches.
pub(super) fn visit(
    arcs: &impl Arcs,
    roots: impl Iterator<Item = u32>,
    mut take: impl FnMut(&[u32]),
) {
    let mut low = vec![NEW; arcs.len()];
    let mut counter = NEW;
    // Visited nodes whose component is not finished.
    let mut open: Vec<u32> = Vec::new();
    // The path from the root: node, its first edge not taken yet, its own number.
    let mut path: Vec<(u32, u32, u32)> = Vec::new();
    for root in roots {
        if low[root as usize] != NEW {
            continue;
        }
        counter += 1;
        low[root as usize] = counter;
        open.push(root);
        path.push((root, arcs.edges(root).start, counter));
        while let Some((node, next, number)) = path.last_mut() {
            let (node, number) = (*node, *number);
            if *next == arcs.edges(node).end {
                path.pop();
                let lowest = low[node as usize];
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
            let target = arcs.target(*next);
            *next += 1;
            let Some(target) = target else {
                continue;
            };
            match low[target as usize] {
                NEW => {
                    counter += 1;
                    low[target as usize] = counter;
                    open.push(target);
                    path.push((target, arcs.edges(target).start, counter));
                }
                DONE => {}
                seen => low[node as usize] = low[node as usize].min(seen),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::graph::{RW, WR, WW};
    use seatrial_machine::Rng;

    /// Which nodes reach which, by closing the relation.
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
            let graph = Graph::from_edges(nodes as u32, nodes as u32, &edges);
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
        let graph = Graph::from_edges(nodes, nodes, &edges);
        assert_eq!(components(&graph, WW)[0].len(), nodes as usize);
    }
}
