//! The cycles of a graph whose edges are never held as a whole together with their kinds.

use crate::anomaly::CycleKind;
use crate::components::Adjacency as _;
use crate::graph::{DependencyGraph, EdgeBuilder};
use crate::search::SearchBound;
use crate::search::{CycleReport, search};
use crate::shape::{ComponentEdges, EdgeSource, ShapeGraph, TooManyEdges};
use std::collections::BTreeSet;

/// Finds cycles of the wanted kinds among the edges of `all`; also returns the number of edges of `shape`.
///
/// `shape` reaches the same transactions from each transaction as `all`, perhaps with fewer edges. It is read first,
/// without the kinds of edges, to find the components; `all` then only inside these.
pub fn find_cycles(
    transactions: usize,
    shape: &impl EdgeSource,
    all: &impl EdgeSource,
    wanted: &BTreeSet<CycleKind>,
    bound: SearchBound,
) -> Result<(CycleReport, usize), TooManyEdges> {
    let graph = ShapeGraph::new(transactions, shape)?;
    let components = graph.components(&graph.peel(), transactions as u32);
    let (nodes, edges) = (graph.node_count(), graph.edge_count());
    // The search below needs its memory.
    drop(graph);
    let report = find_cycles_within(transactions, nodes, all, &components, wanted, bound);
    Ok((report, edges))
}

/// Finds cycles of the wanted kinds inside these components of a graph with this number of transactions and nodes.
pub fn find_cycles_within(
    transactions: usize,
    nodes: usize,
    all: &impl EdgeSource,
    components: &[Vec<u32>],
    wanted: &BTreeSet<CycleKind>,
    bound: SearchBound,
) -> CycleReport {
    if components.is_empty() {
        let none = DependencyGraph::from_edges(0, 0, &[]);
        return search(&none, wanted, bound.search_steps_max);
    }
    let (inside, names) = ComponentEdges::new(nodes, components);
    let mut edges = EdgeBuilder::with_sink(transactions, inside);
    all.emit_edges(&mut edges);
    let own = names.partition_point(|&node| (node as usize) < transactions);
    let graph = edges.into_sink().into_graph(own as u32, names.len() as u32);
    let mut report = search(&graph, wanted, bound.search_steps_max);
    // The search speaks of the nodes inside components; the caller of those of the whole graph.
    for (_, cycle) in &mut report.cycles {
        for node in &mut cycle.nodes {
            *node = names[*node as usize];
        }
        assert!(
            cycle
                .nodes
                .iter()
                .all(|&node| (node as usize) < transactions),
            "helpers are not part of a reported cycle"
        );
    }
    for sketch in &mut report.sketches {
        sketch.renumber(&names);
    }
    report
}
