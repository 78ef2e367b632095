//! The dependency graph.

use super::dense::Map;
use super::transactions::NONE;
use std::hash::Hash;

/// Kinds of edges, as bits. From weak suspicion to strong: where several lead from one transaction to another, the
/// lowest bit tells most.
pub(super) const WW: u8 = 1;
/// A read of what was written.
pub(super) const WR: u8 = 2;
/// An overwrite of what was read.
pub(super) const RW: u8 = 4;
/// The order of one process.
pub(super) const PROCESS: u8 = 8;
/// Completed before the other was invoked.
pub(super) const REALTIME: u8 = 16;

/// The name of a kind.
pub(super) fn relation(kind: u8) -> &'static str {
    match kind {
        WW => "ww",
        WR => "wr",
        RW => "rw",
        PROCESS => "process",
        _ => "realtime",
    }
}

/// Source, target, kind.
pub(super) type Edge = (u32, u32, u8);

/// Whoever takes edges as they are found.
pub(super) trait Sink {
    /// There is one more node.
    fn node(&mut self) {}
    /// There is an edge.
    fn take(&mut self, from: u32, to: u32, kind: u8);
}

impl Sink for Vec<Edge> {
    fn take(&mut self, from: u32, to: u32, kind: u8) {
        self.push((from, to, kind));
    }
}

/// Edges while they are found. Nodes below [`Edges::transactions`] are transactions, the others helpers that stand
/// for many edges: a path between transactions through helpers is one edge of the kind of its parts.
pub(super) struct Edges<S = Vec<Edge>> {
    transactions: u32,
    nodes: u32,
    sink: S,
}

impl Edges {
    /// No edges yet between so many transactions.
    pub(super) fn new(transactions: usize) -> Edges {
        Edges::into(transactions, Vec::new())
    }

    /// The graph of these edges.
    pub(super) fn into_graph(self) -> Graph {
        Graph::from_edges(self.transactions, self.nodes, &self.sink)
    }
}

impl<S: Sink> Edges<S> {
    /// Edges between so many transactions, into `sink`, which knows of these nodes.
    pub(super) fn into(transactions: usize, sink: S) -> Edges<S> {
        Edges {
            transactions: transactions as u32,
            nodes: transactions as u32,
            sink,
        }
    }

    /// Who took the edges.
    pub(super) fn into_sink(self) -> S {
        self.sink
    }

    /// An edge; none from a node to itself.
    pub(super) fn link(&mut self, from: u32, to: u32, kind: u8) {
        if from != to {
            self.sink.take(from, to, kind);
        }
    }

    /// One more node that stands for edges.
    pub(super) fn helper(&mut self) -> u32 {
        self.nodes += 1;
        self.sink.node();
        self.nodes - 1
    }

    /// An edge from each of `sources` to each other one of `targets`, both sorted and without repetition: through one
    /// helper when that is fewer edges.
    pub(super) fn link_all(&mut self, sources: &[u32], targets: &[u32], kind: u8) {
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
            // Through a helper it would reach itself, a cycle where there is none.
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
            // Two that are in both reach each other anyway.
            let helper = self.helper();
            for &from in sources {
                self.link(from, helper, kind);
            }
            for &to in targets {
                self.link(helper, to, kind);
            }
        }
    }

    /// The order of each process's transactions: `all` are (process, transaction, did it take place for certain?) in
    /// order. What is unknown may still happen later, so nothing follows it.
    pub(super) fn link_processes<P: Eq + Hash>(
        &mut self,
        all: impl Iterator<Item = (P, u32, bool)>,
    ) {
        let mut last: Map<P, u32> = Map::default();
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

    /// Real time: a transaction of `ended` comes before all of `begun` whose positions are higher. Both are (position,
    /// transaction) in the order of positions. Barriers keep this linear: a completion points to the next barrier, a
    /// barrier to the next one and to the invocations until then.
    pub(super) fn link_realtime(
        &mut self,
        begun: impl Iterator<Item = (u32, u32)>,
        ended: impl Iterator<Item = (u32, u32)>,
    ) {
        let mut barrier: Option<u32> = None;
        let mut ended = ended.peekable();
        for (position, number) in begun {
            if ended.peek().is_some_and(|&(end, _)| end < position) {
                let next = self.helper();
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

/// A graph in compressed rows: for each node its edges, in the order of their kinds.
pub(super) struct Graph {
    /// Nodes below this are transactions, the others helpers.
    pub(super) transactions: u32,
    starts: Vec<u32>,
    targets: Vec<u32>,
    kinds: Vec<u8>,
}

impl Graph {
    /// The graph of so many nodes, of which so many are transactions.
    pub(super) fn from_edges(transactions: u32, nodes: u32, edges: &[Edge]) -> Graph {
        let mut starts = vec![0_u32; nodes as usize + 1];
        for &(from, ..) in edges {
            starts[from as usize + 1] += 1;
        }
        for node in 0..nodes as usize {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; edges.len()];
        let mut kinds = vec![0; edges.len()];
        for kind in [WW, WR, RW, PROCESS, REALTIME] {
            for &(from, to, _) in edges.iter().filter(|edge| edge.2 == kind) {
                let slot = &mut next[from as usize];
                targets[*slot as usize] = to;
                kinds[*slot as usize] = kind;
                *slot += 1;
            }
        }
        Graph {
            transactions,
            starts,
            targets,
            kinds,
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of edges.
    pub(super) fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// Does this node only stand for edges?
    pub(super) fn is_helper(&self, node: u32) -> bool {
        node >= self.transactions
    }

    /// The edges of a node: positions for [`Graph::edge`].
    pub(super) fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    /// Target and kind of an edge.
    pub(super) fn edge(&self, position: u32) -> (u32, u8) {
        (
            self.targets[position as usize],
            self.kinds[position as usize],
        )
    }

    /// The part of the graph between these nodes (sorted, transactions thus first), renumbered by position.
    pub(super) fn part(&self, nodes: &[u32], numbers: &mut [u32]) -> Graph {
        for (number, &node) in nodes.iter().enumerate() {
            numbers[node as usize] = number as u32;
        }
        let mut starts = Vec::with_capacity(nodes.len() + 1);
        let (mut targets, mut kinds) = (Vec::new(), Vec::new());
        starts.push(0);
        for &node in nodes {
            for position in self.edges(node) {
                let (target, kind) = self.edge(position);
                let number = numbers[target as usize];
                if number != NONE {
                    targets.push(number);
                    kinds.push(kind);
                }
            }
            starts.push(targets.len() as u32);
        }
        for &node in nodes {
            numbers[node as usize] = NONE;
        }
        Graph {
            transactions: nodes.partition_point(|&node| !self.is_helper(node)) as u32,
            starts,
            targets,
            kinds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::registers::Columns;
    use seatrial_history::{History, Op, OpType, Process, Value};
    use seatrial_machine::Rng;

    /// Clients that run empty transactions at random, with unknown and failed ones.
    fn random_history(rng: &mut Rng) -> History {
        let (mut ops, mut open, mut next) = (Vec::new(), Vec::new(), 0);
        for _ in 0..30 {
            if open.len() < 4 && rng.chance(0.5) {
                let op = Op::invoke(Process::Client(next), "txn", Value::Txn([].into()));
                next += 1;
                ops.push(op.clone());
                open.push(op);
            } else if !open.is_empty() {
                let op = open.swap_remove(rng.index(open.len()));
                let kind = *rng.pick(&[OpType::Ok, OpType::Ok, OpType::Ok, OpType::Info]);
                ops.push(op.complete(kind, op.value.clone()));
            }
        }
        History::from_unindexed(ops)
    }

    #[test]
    fn barriers_are_real_time() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let history = random_history(&mut rng);
            let columns = Columns::of(&history).unwrap();
            let count = columns.len() as u32;
            let is_node: Vec<_> = (0..count).map(|_| rng.chance(0.9)).collect();
            let nodes = || (0..count).filter(|&number| is_node[number as usize]);
            let mut ended: Vec<_> = nodes()
                .map(|number| (columns.ended(number), number))
                .filter(|&(position, _)| position != NONE)
                .collect();
            ended.sort_unstable();
            let mut edges = Edges::new(columns.len());
            let begun = nodes().map(|number| (columns.begun(number), number));
            edges.link_realtime(begun, ended.into_iter());
            let graph = edges.into_graph();
            assert!(graph.edge_count() <= 3 * columns.len());
            for from in 0..count {
                let mut reached = vec![false; graph.len()];
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
                    let expected = nodes && columns.ended(from) < columns.begun(to);
                    assert_eq!(reached[to as usize], expected, "seed {seed}: {from} {to}");
                }
            }
        }
    }
}
