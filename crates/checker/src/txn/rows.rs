//! A graph of which only the shape is kept, for a first look at all of it.

use super::components::{Arcs, components_from};
use super::graph::{Edge, Edges, Graph, Sink};
use super::transactions::NONE;

/// Whoever knows edges, and tells them in the same order each time.
pub(super) trait Linked {
    /// Tells them all.
    fn link<S: Sink>(&self, edges: &mut Edges<S>);
}

/// How many edges leave each node, counted.
struct Counts(Vec<u32>);

impl Sink for Counts {
    fn node(&mut self) {
        self.0.push(0);
    }

    fn take(&mut self, from: u32, _: u32, _: u8) {
        self.0[from as usize] += 1;
    }
}

/// Targets, each put where its source's next one belongs.
struct Fill {
    /// Where the next target of each node belongs, one place further: in the end, where its targets end.
    ends: Vec<u32>,
    targets: Vec<u32>,
}

impl Sink for Fill {
    fn take(&mut self, from: u32, to: u32, _: u8) {
        let end = &mut self.ends[from as usize + 1];
        self.targets[*end as usize] = to;
        *end += 1;
    }
}

/// Targets of edges in compressed rows: four bytes an edge and a node, without the kinds of edges.
///
/// Whoever knows the edges tells them twice, in the same order; once they are counted, then put in their places. So no
/// list of edges is ever held.
pub(super) struct Rows {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

/// What is left when nodes are taken away that nothing leads to any more, one after another.
pub(super) struct Peeled {
    /// Those that were taken away, in this order.
    pub(super) order: Vec<u32>,
    /// For each node how many edges lead to it from those that are left.
    pub(super) before: Vec<u32>,
}

impl Peeled {
    /// Is nothing left?
    pub(super) fn is_all(&self, rows: &Rows) -> bool {
        self.order.len() == rows.len()
    }
}

/// More edges than can be numbered.
#[derive(Debug)]
pub(super) struct TooManyEdges;

impl Rows {
    /// The graph between so many transactions that `linked` tells.
    pub(super) fn new(transactions: usize, linked: &impl Linked) -> Result<Rows, TooManyEdges> {
        let mut edges = Edges::into(transactions, Counts(vec![0; transactions]));
        linked.link(&mut edges);
        let counts = edges.into_sink();
        let mut ends = Vec::with_capacity(counts.0.len() + 2);
        ends.extend([0, 0]);
        let mut sum = 0_u32;
        for count in counts.0 {
            sum = sum.checked_add(count).ok_or(TooManyEdges)?;
            ends.push(sum);
        }
        // The last place is only there while rows are filled.
        let targets = vec![0; sum as usize];
        let mut edges = Edges::into(transactions, Fill { ends, targets });
        linked.link(&mut edges);
        let mut fill = edges.into_sink();
        fill.ends.pop();
        Ok(Rows {
            starts: fill.ends,
            targets: fill.targets,
        })
    }

    /// Number of edges.
    pub(super) fn edge_count(&self) -> usize {
        self.targets.len()
    }

    /// The components of two transactions or more, their nodes sorted, by their lowest nodes: of what [`Rows::peel`] left.
    /// Of a graph without cycles, none.
    pub(super) fn components(&self, peeled: &Peeled, transactions: u32) -> Vec<Vec<u32>> {
        if peeled.is_all(self) {
            return Vec::new();
        }
        let rest = (0..self.len() as u32).filter(|&node| peeled.before[node as usize] > 0);
        components_from(self, transactions, rest)
    }

    /// The nodes before all cycles in an order in which no edge leads back, and for each other node how many edges lead
    /// to it from others such (Kahn 1962).
    pub(super) fn peel(&self) -> Peeled {
        let mut before = vec![0_u32; self.len()];
        for &target in &self.targets {
            before[target as usize] += 1;
        }
        let nodes = 0..self.len() as u32;
        let mut order = Vec::with_capacity(self.len());
        order.extend(nodes.filter(|&node| before[node as usize] == 0));
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &target in &self.targets[self.range(node)] {
                let count = &mut before[target as usize];
                *count -= 1;
                if *count == 0 {
                    order.push(target);
                }
            }
        }
        Peeled { order, before }
    }

    /// By node: is it one of these, or can it be reached from one of them?
    pub(super) fn reached(&self, from: impl Iterator<Item = u32>) -> Vec<bool> {
        let mut reached = vec![false; self.len()];
        let mut waiting = Vec::new();
        for node in from {
            if !std::mem::replace(&mut reached[node as usize], true) {
                waiting.push(node);
            }
        }
        while let Some(node) = waiting.pop() {
            for &target in &self.targets[self.range(node)] {
                if !std::mem::replace(&mut reached[target as usize], true) {
                    waiting.push(target);
                }
            }
        }
        reached
    }

    /// How many edges leave this node.
    pub(super) fn degree(&self, node: u32) -> usize {
        self.range(node).len()
    }

    fn range(&self, node: u32) -> std::ops::Range<usize> {
        let node = node as usize;
        self.starts[node] as usize..self.starts[node + 1] as usize
    }
}

impl Arcs for Rows {
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        let node = node as usize;
        self.starts[node]..self.starts[node + 1]
    }

    fn target(&self, edge: u32) -> Option<u32> {
        Some(self.targets[edge as usize])
    }
}

/// Takes only the edges inside components.
pub(super) struct Inside {
    /// By node: the number of its component, [`NONE`] outside of all.
    component: Vec<u32>,
    /// By node of a component: its number among those nodes.
    numbers: Vec<u32>,
    found: Vec<Edge>,
}

impl Inside {
    /// For the components of a graph of so many nodes; with the names of the nodes of [`Inside::graph`].
    pub(super) fn new(nodes: usize, components: &[Vec<u32>]) -> (Inside, Vec<u32>) {
        let mut names: Vec<u32> = components.iter().flatten().copied().collect();
        names.sort_unstable();
        let mut inside = Inside {
            component: vec![NONE; nodes],
            numbers: vec![NONE; nodes],
            found: Vec::new(),
        };
        for (component, members) in components.iter().enumerate() {
            for &node in members {
                inside.component[node as usize] = component as u32;
            }
        }
        for (number, &name) in names.iter().enumerate() {
            inside.numbers[name as usize] = number as u32;
        }
        (inside, names)
    }

    /// The graph of what was taken; `transactions` of its nodes are no helpers.
    pub(super) fn graph(self, transactions: u32, nodes: u32) -> Graph {
        Graph::from_edges(transactions, nodes, &self.found)
    }
}

impl Sink for Inside {
    fn take(&mut self, from: u32, to: u32, kind: u8) {
        let component = self.component[from as usize];
        if component != NONE && component == self.component[to as usize] {
            let (from, to) = (self.numbers[from as usize], self.numbers[to as usize]);
            self.found.push((from, to, kind));
        }
    }
}
