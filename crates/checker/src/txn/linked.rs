//! The cycles of a graph that is never held as a whole with the kinds of its edges.

use super::Bound;
use super::anomaly::Cyclic;
use super::components::Arcs as _;
use super::graph::{Edges, Graph};
use super::rows::{Inside, Linked, Rows, TooManyEdges};
use super::search::{Found, search};
use std::collections::BTreeSet;

/// The wanted cycles between so many transactions that `all` links, and the number of edges. `shape` links the same
/// transactions to the same effect, perhaps with fewer edges; it is looked at first, without the kinds of edges, and
/// the rest only inside its components.
pub(super) fn cycles(
    transactions: usize,
    shape: &impl Linked,
    all: &impl Linked,
    wanted: &BTreeSet<Cyclic>,
    bound: Bound,
) -> Result<(Found, usize), TooManyEdges> {
    let rows = Rows::new(transactions, shape)?;
    let components = rows.components(&rows.peel(), transactions as u32);
    let (nodes, edges) = (rows.len(), rows.edge_count());
    drop(rows);
    let found = inside(transactions, nodes, all, &components, wanted, bound);
    Ok((found, edges))
}

/// The wanted cycles inside the components of a graph of so many transactions and nodes.
pub(super) fn inside(
    transactions: usize,
    nodes: usize,
    all: &impl Linked,
    components: &[Vec<u32>],
    wanted: &BTreeSet<Cyclic>,
    bound: Bound,
) -> Found {
    if components.is_empty() {
        let none = Graph::from_edges(0, 0, &[]);
        return search(&none, wanted, bound.search_steps_max);
    }
    let (inside, names) = Inside::new(nodes, components);
    let mut sink = Edges::into(transactions, inside);
    all.link(&mut sink);
    let own = names.partition_point(|&node| (node as usize) < transactions);
    let graph = sink.into_sink().graph(own as u32, names.len() as u32);
    let mut found = search(&graph, wanted, bound.search_steps_max);
    for (_, cycle) in &mut found.cycles {
        let known = std::mem::take(&mut cycle.nodes);
        cycle.nodes = known.iter().map(|&node| names[node as usize]).collect();
    }
    for sketch in &mut found.sketches {
        sketch.renumber(&names);
    }
    found
}
