//! A graph without the kinds of its edges, for a first look at all of it.

use crate::components::{Adjacency, components_from};
use crate::csr::{Csr, CsrCounter, CsrFiller, TooManyItems};
use crate::dense_id;
use crate::graph::{DependencyEdge, DependencyGraph, EdgeBuilder, EdgeSink};

/// A source of edges. It must emit the same edges in the same order each time.
pub trait EdgeSource {
    /// Emits all edges.
    fn emit_edges<S: EdgeSink>(&self, edges: &mut EdgeBuilder<S>);
}

/// The first pass: counts the edges that leave each node.
struct OutDegrees(CsrCounter);

impl EdgeSink for OutDegrees {
    fn add_node(&mut self) {
        self.0.add_row();
    }

    fn add_edge(&mut self, from: u32, _: u32, _: u8) {
        self.0.count(from);
    }
}

/// The second pass: puts each target into the row of its source.
struct Targets(CsrFiller<u32>);

impl EdgeSink for Targets {
    fn add_edge(&mut self, from: u32, to: u32, _: u8) {
        self.0.put(from, to);
    }
}

/// The targets of edges by source: four bytes an edge and a node, without the kinds of edges.
///
/// The source emits its edges twice; once they are counted, then put into their rows. So no list of edges is ever held.
/// What follows is linear: [`ShapeGraph::peel`] removes all nodes before cycles, [`ShapeGraph::components`] looks only
/// at the rest.
pub struct ShapeGraph {
    targets: Csr<u32>,
}

/// The result of removing nodes without incoming edges, one after another (Kahn 1962).
pub struct PeeledNodes {
    /// The removed nodes in topological order.
    pub order: Vec<u32>,
    /// By node: its incoming edges from nodes that are left; 0 for all removed nodes.
    pub in_degrees: Vec<u32>,
}

impl PeeledNodes {
    /// Were all nodes removed, so that the graph has no cycle?
    pub fn is_all(&self, graph: &ShapeGraph) -> bool {
        self.order.len() == graph.node_count()
    }
}

/// More edges than 32 bits can number.
#[derive(Debug)]
pub struct TooManyEdges;

impl From<TooManyItems> for TooManyEdges {
    fn from(_: TooManyItems) -> TooManyEdges {
        TooManyEdges
    }
}

impl ShapeGraph {
    /// The graph of a source's edges between `transactions` transactions and its helpers.
    pub fn new(transactions: usize, source: &impl EdgeSource) -> Result<ShapeGraph, TooManyEdges> {
        let degrees = OutDegrees(CsrCounter::new(transactions));
        let mut edges = EdgeBuilder::with_sink(transactions, degrees);
        source.emit_edges(&mut edges);
        let targets = Targets(edges.into_sink().0.into_filler()?);
        let mut edges = EdgeBuilder::with_sink(transactions, targets);
        source.emit_edges(&mut edges);
        let targets = edges.into_sink().0.finish();
        assert!(
            targets.row_count() >= transactions,
            "a transaction has no row"
        );
        Ok(ShapeGraph { targets })
    }

    /// Number of edges.
    pub fn edge_count(&self) -> usize {
        self.targets.item_count()
    }

    /// The strongly connected components of two transactions or more among the nodes that [`ShapeGraph::peel`] left,
    /// sorted by their lowest nodes, each sorted. None for a graph without cycles.
    pub fn components(&self, peeled: &PeeledNodes, transactions: u32) -> Vec<Vec<u32>> {
        if peeled.is_all(self) {
            return Vec::new();
        }
        let nodes = 0..self.node_count() as u32;
        let rest = nodes.filter(|&node| peeled.in_degrees[node as usize] > 0);
        components_from(self, transactions, rest)
    }

    /// Removes the nodes before all cycles, in topological order (Kahn 1962). Linear in nodes and edges.
    pub fn peel(&self) -> PeeledNodes {
        let mut in_degrees = vec![0_u32; self.node_count()];
        for &target in self.targets.items() {
            in_degrees[target as usize] += 1;
        }
        let nodes = 0..self.node_count() as u32;
        let mut order = Vec::with_capacity(self.node_count());
        order.extend(nodes.filter(|&node| in_degrees[node as usize] == 0));
        // The order is its own queue: what lies at `next` and after it is removed, but its edges are not.
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &target in self.targets.row(node) {
                let count = &mut in_degrees[target as usize];
                *count -= 1;
                if *count == 0 {
                    order.push(target);
                }
            }
        }
        let left = in_degrees.iter().filter(|&&count| count > 0).count();
        assert!(
            order.len() + left == self.node_count(),
            "each node is either removed or has an incoming edge from one that is left"
        );
        PeeledNodes { order, in_degrees }
    }

    /// By node: is it one of `roots`, or can it be reached from one?
    pub fn reached(&self, roots: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut is_reached = vec![false; self.node_count()];
        let mut waiting = Vec::new();
        for node in roots {
            if !std::mem::replace(&mut is_reached[node as usize], true) {
                waiting.push(node);
            }
        }
        while let Some(node) = waiting.pop() {
            for &target in self.targets.row(node) {
                if !std::mem::replace(&mut is_reached[target as usize], true) {
                    waiting.push(target);
                }
            }
        }
        is_reached
    }

    /// Number of edges that leave this node.
    pub fn degree(&self, node: u32) -> usize {
        self.targets.range(node).len()
    }
}

impl Adjacency for ShapeGraph {
    fn node_count(&self) -> usize {
        self.targets.row_count()
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.targets.range(node)
    }

    fn target(&self, edge: u32) -> Option<u32> {
        self.targets.target(edge)
    }
}

/// Keeps only the edges inside components, renumbered.
pub struct ComponentEdges {
    /// By node: its component and its number among the nodes of all components; `None` outside of all.
    places: Vec<Option<NumberedNode>>,
    edges: Vec<DependencyEdge>,
}

/// A node of a component.
#[derive(Clone, Copy)]
struct NumberedNode {
    component: ComponentId,
    number: u32,
}

dense_id! {
    /// One of the components. Its spare value is that of [`NumberedNode`] as well.
    ComponentId
}

const _: () = assert!(size_of::<Option<NumberedNode>>() == 8);

impl ComponentEdges {
    /// For the components of a graph with this number of nodes. The second value has the node of that graph for each node of
    /// [`ComponentEdges::into_graph`], sorted.
    pub fn new(nodes: usize, components: &[Vec<u32>]) -> (ComponentEdges, Vec<u32>) {
        let mut names: Vec<u32> = components.iter().flatten().copied().collect();
        names.sort_unstable();
        assert!(
            names.array_windows().all(|[one, next]| one < next),
            "a node is in one component only"
        );
        let mut places = vec![None; nodes];
        for (members, component) in components.iter().zip(ComponentId::all(components.len())) {
            for &node in members {
                places[node as usize] = Some(NumberedNode {
                    component,
                    number: 0,
                });
            }
        }
        for (name, number) in names.iter().zip(0..) {
            if let Some(place) = &mut places[*name as usize] {
                place.number = number;
            }
        }
        let edges = Vec::new();
        (ComponentEdges { places, edges }, names)
    }

    /// The graph of the edges inside components; `transactions` of its nodes are not helpers.
    pub fn into_graph(self, transactions: u32, nodes: u32) -> DependencyGraph {
        DependencyGraph::from_edges(transactions, nodes, &self.edges)
    }
}

impl EdgeSink for ComponentEdges {
    fn add_edge(&mut self, from: u32, to: u32, kind: u8) {
        let places = self.places[from as usize].zip(self.places[to as usize]);
        if let Some((from, to)) = places
            && from.component == to.component
        {
            self.edges.push((from.number, to.number, kind));
        }
    }
}
