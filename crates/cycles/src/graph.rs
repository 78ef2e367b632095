//! The dependency graph and how it is built.

use crate::csr::{Csr, CsrCounter};
use crate::dense_id;
use crate::ids::Txn;
use seatrial_history::FixedMap;
use std::hash::Hash;

/// The kinds of edges, as bits. Of several edges from one transaction to another the lowest bit says most, because it
/// makes the worse anomaly: a write dependency (`ww`), a version and the one that replaced it.
pub const WW: u8 = 1;
/// A read dependency (`wr`): a version and its reader.
pub const WR: u8 = 2;
/// An anti-dependency (`rw`): the reader of a version and the writer of the next.
pub const RW: u8 = 4;
/// The order of one process.
pub const PROCESS: u8 = 8;
/// Real time: one completed before the other was invoked.
pub const REALTIME: u8 = 16;

/// All kinds, in the order in which a graph keeps a node's edges.
const KINDS: [u8; 5] = [WW, WR, RW, PROCESS, REALTIME];

/// The name of a kind.
pub fn relation(kind: u8) -> &'static str {
    match kind {
        WW => "ww",
        WR => "wr",
        RW => "rw",
        PROCESS => "process",
        _ => "realtime",
    }
}

/// Source, target, kind.
pub type DependencyEdge = (u32, u32, u8);

dense_id! {
    /// A node of a [`DependencyGraph`], where a map from nodes must be able to say that there is none.
    pub GraphNode
}

/// Receives nodes and edges in the order in which they are found.
pub trait EdgeSink {
    /// Adds a node: the next helper.
    fn add_node(&mut self) {}
    /// Adds an edge of one kind.
    fn add_edge(&mut self, from: u32, to: u32, kind: u8);
}

impl EdgeSink for Vec<DependencyEdge> {
    fn add_edge(&mut self, from: u32, to: u32, kind: u8) {
        self.push((from, to, kind));
    }
}

/// Numbers nodes and passes edges to a sink.
///
/// Nodes below the number of transactions are transactions, the others *helpers* that stand for many edges: a path
/// between transactions through helpers is one edge, of the kind of its parts. So *m* sources and *n* targets take
/// *m + n* edges instead of *m n*.
pub struct EdgeBuilder<S = Vec<DependencyEdge>> {
    transactions: u32,
    nodes: u32,
    sink: S,
}

impl EdgeBuilder {
    /// Collects edges between this number of transactions in memory.
    pub fn new(transactions: usize) -> EdgeBuilder {
        EdgeBuilder::with_sink(transactions, Vec::new())
    }

    /// The graph of the edges.
    pub fn into_graph(self) -> DependencyGraph {
        DependencyGraph::from_edges(self.transactions, self.nodes, &self.sink)
    }
}

impl<S: EdgeSink> EdgeBuilder<S> {
    /// Passes edges between this number of transactions to `sink`, which must know these nodes already.
    pub fn with_sink(transactions: usize, sink: S) -> EdgeBuilder<S> {
        assert!(
            u32::try_from(transactions).is_ok(),
            "{transactions} transactions do not fit into 32 bits"
        );
        EdgeBuilder {
            transactions: transactions as u32,
            nodes: transactions as u32,
            sink,
        }
    }

    /// The sink, with all edges.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Adds an edge, unless it leads from a node to itself.
    pub fn link(&mut self, from: u32, to: u32, kind: u8) {
        debug_assert!(from < self.nodes && to < self.nodes, "edge {from} to {to}");
        if from != to {
            self.sink.add_edge(from, to, kind);
        }
    }

    /// Adds an edge between transactions.
    pub fn link_txns(&mut self, from: Txn, to: Txn, kind: u8) {
        self.link(from.get(), to.get(), kind);
    }

    /// Adds a helper: a node that stands for edges.
    pub fn add_helper(&mut self) -> u32 {
        self.nodes += 1;
        self.sink.add_node();
        self.nodes - 1
    }

    /// Adds an edge from each of `sources` to each other node of `targets`, both sorted and without repetition; through
    /// a helper where that takes fewer edges.
    pub fn link_all(&mut self, sources: &[u32], targets: &[u32], kind: u8) {
        debug_assert!(sources.array_windows().all(|[one, next]| one < next));
        debug_assert!(targets.array_windows().all(|[one, next]| one < next));
        let both = sources
            .iter()
            .filter(|source| targets.binary_search(source).is_ok());
        let both: Vec<u32> = both.copied().collect();
        if sources.len() * targets.len() <= 2 * (sources.len() + targets.len()) {
            for &from in sources {
                for &to in targets {
                    self.link(from, to, kind);
                }
            }
        } else if let [one] = both[..] {
            // Through a helper it would reach itself: a cycle that does not exist.
            for &to in targets {
                self.link(one, to, kind);
            }
            let others: Vec<_> = sources
                .iter()
                .copied()
                .filter(|&from| from != one)
                .collect();
            self.link_all(&others, targets, kind);
        } else {
            // Two nodes that are in both lists reach each other anyway, so the helper adds no cycle.
            let helper = self.add_helper();
            for &from in sources {
                self.link(from, helper, kind);
            }
            for &to in targets {
                self.link(helper, to, kind);
            }
        }
    }

    /// Adds the order of each process's transactions: `all` are (process, transaction, did it certainly take place?) in
    /// order. A transaction of unknown outcome may still take place later, so nothing comes after it.
    pub fn link_processes<P: Eq + Hash>(&mut self, all: impl Iterator<Item = (P, u32, bool)>) {
        let mut last: FixedMap<P, u32> = FixedMap::default();
        for (process, number, is_ok) in all {
            if let Some(&before) = last.get(&process) {
                self.link(before, number, PROCESS);
            }
            if is_ok {
                last.insert(process, number);
            } else {
                last.remove(&process);
            }
        }
    }

    /// Adds real time: a transaction of `ended` comes before all of `begun` whose positions are higher. Both are
    /// (position, transaction), sorted by position.
    ///
    /// Helpers as barriers keep this linear: a completion points to the next barrier, a barrier to the next barrier and
    /// to the invocations up to there.
    ///
    /// ```text
    ///   completions    a     b  c          d
    ///                   \     \ |           \
    ///   barriers         B1 ──── B2 ───────── B3
    ///                    |       | \          |
    ///   invocations      e       f  g         h
    /// ```
    pub fn link_realtime(
        &mut self,
        begun: impl Iterator<Item = (u32, u32)>,
        ended: impl Iterator<Item = (u32, u32)>,
    ) {
        let mut barrier: Option<u32> = None;
        let mut ended = ended.peekable();
        let mut last = 0;
        for (position, number) in begun {
            assert!(last <= position, "invocations are not sorted by position");
            last = position;
            // A new barrier only if something completed since the last one.
            if ended.peek().is_some_and(|&(end, _)| end < position) {
                let next = self.add_helper();
                if let Some(barrier) = barrier {
                    self.link(barrier, next, REALTIME);
                }
                while let Some((_, from)) = ended.next_if(|&(end, _)| end < position) {
                    self.link(from, next, REALTIME);
                }
                barrier = Some(next);
            }
            if let Some(barrier) = barrier {
                self.link(barrier, number, REALTIME);
            }
        }
    }
}

/// A graph with the kinds of its edges: for each node its edges in the order of their kinds. Five bytes an edge, four a
/// node.
pub struct DependencyGraph {
    /// Nodes below this are transactions, the others helpers.
    pub transactions: u32,
    targets: Csr<u32>,
    /// By edge: its kind.
    kinds: Vec<u8>,
}

impl DependencyGraph {
    /// The graph with this number of nodes, of which the first `transactions` are transactions. Two counting passes over the
    /// edges and one for each kind.
    pub fn from_edges(transactions: u32, nodes: u32, edges: &[DependencyEdge]) -> DependencyGraph {
        assert!(
            transactions <= nodes,
            "{transactions} transactions in {nodes} nodes"
        );
        let mut counter = CsrCounter::new(nodes as usize);
        for &(from, ..) in edges {
            counter.count(from);
        }
        let mut targets = counter
            .into_filler()
            .expect("edges that are held in memory are fewer than 2^32");
        let mut kinds = vec![0; edges.len()];
        // Kind by kind, so that each node's edges are sorted by kind without a sort.
        for kind in KINDS {
            for &(from, to, _) in edges.iter().filter(|edge| edge.2 == kind) {
                let position = targets.put(from, to);
                kinds[position as usize] = kind;
            }
        }
        let targets = targets.finish();
        assert!(
            !kinds.contains(&0),
            "an edge has a kind that does not exist, or several"
        );
        assert_eq!(targets.item_count(), kinds.len());
        DependencyGraph {
            transactions,
            targets,
            kinds,
        }
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.targets.row_count()
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.kinds.len()
    }

    /// Does this node only stand for edges?
    pub fn is_helper(&self, node: u32) -> bool {
        node >= self.transactions
    }

    /// The edges of a node: positions for [`DependencyGraph::edge`].
    pub fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.targets.range(node)
    }

    /// Target and kind of an edge.
    pub fn edge(&self, position: u32) -> (u32, u8) {
        (
            self.targets.items()[position as usize],
            self.kinds[position as usize],
        )
    }

    /// The subgraph of these nodes (sorted, so transactions come first), renumbered by their place in `nodes`.
    ///
    /// `numbers` is scratch space with a place for each node, `None` everywhere before and after: clearing only what
    /// was set keeps the cost linear in the subgraph.
    pub fn part(&self, nodes: &[u32], numbers: &mut [Option<GraphNode>]) -> DependencyGraph {
        debug_assert!(nodes.is_sorted());
        for (number, &node) in nodes.iter().enumerate() {
            numbers[node as usize] = Some(GraphNode::new(number as u32));
        }
        let mut targets = Csr::with_capacity(nodes.len());
        let mut kinds = Vec::new();
        for &node in nodes {
            for position in self.edges(node) {
                let (target, kind) = self.edge(position);
                if let Some(number) = numbers[target as usize] {
                    targets.push(number.get());
                    kinds.push(kind);
                }
            }
            targets.end_row();
        }
        for &node in nodes {
            numbers[node as usize] = None;
        }
        assert_eq!(targets.row_count(), nodes.len());
        assert_eq!(targets.item_count(), kinds.len());
        DependencyGraph {
            transactions: nodes.partition_point(|&node| !self.is_helper(node)) as u32,
            targets,
            kinds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    /// Random transactions of several clients: the positions of invocation and completion, if it is known.
    fn random_spans(rng: &mut Rng) -> Vec<(u32, Option<u32>)> {
        let (mut spans, mut open) = (Vec::new(), Vec::new());
        for position in 0..30 {
            if open.len() < 4 && rng.chance(0.5) {
                open.push(spans.len());
                spans.push((position, None));
            } else if !open.is_empty() {
                let number = open.swap_remove(rng.index(open.len()));
                if rng.chance(0.75) {
                    spans[number].1 = Some(position);
                }
            }
        }
        spans
    }

    #[test]
    fn barriers_are_real_time() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let spans = random_spans(&mut rng);
            let count = spans.len() as u32;
            let is_node: Vec<_> = (0..count).map(|_| rng.chance(0.9)).collect();
            let nodes = || (0..count).filter(|&number| is_node[number as usize]);
            let mut ended: Vec<_> = nodes()
                .filter_map(|number| Some((spans[number as usize].1?, number)))
                .collect();
            ended.sort_unstable();
            let mut edges = EdgeBuilder::new(spans.len());
            let begun = nodes().map(|number| (spans[number as usize].0, number));
            edges.link_realtime(begun, ended.into_iter());
            let graph = edges.into_graph();
            assert!(graph.edge_count() <= 3 * spans.len());
            for from in 0..count {
                let mut reached = vec![false; graph.node_count()];
                let mut waiting = vec![from];
                while let Some(node) = waiting.pop() {
                    for position in graph.edges(node) {
                        let (target, _) = graph.edge(position);
                        if !std::mem::replace(&mut reached[target as usize], true) {
                            waiting.push(target);
                        }
                    }
                }
                for to in 0..count {
                    let nodes = is_node[from as usize] && is_node[to as usize];
                    let expected = nodes
                        && spans[from as usize]
                            .1
                            .is_some_and(|end| end < spans[to as usize].0);
                    assert_eq!(reached[to as usize], expected, "seed {seed}: {from} {to}");
                }
            }
        }
    }
}
