//! A topological order that is kept up to date while edges are added and removed.

use seatrial_cycles::{Csr, dense_id};

dense_id! {
    /// An added edge.
    EdgeId
}
dense_id! {
    /// The literal of an added edge, as a number of four bytes that may be missing.
    GraphLiteral
}

/// A path through the graph.
#[derive(Debug)]
pub(super) struct GraphPath {
    /// From the first node to the last.
    pub(super) nodes: Vec<u32>,
    /// The literals of those edges on it that have one, sorted.
    pub(super) literals: Vec<u32>,
}

/// An added edge, in a linked list of those that leave a node and one of those that lead to a node.
struct AddedEdge {
    from: u32,
    to: u32,
    literal: u32,
    /// The next edge in the list of those that leave its source.
    next_out: Option<EdgeId>,
    /// The next edge in the list of those that lead to its target.
    next_in: Option<EdgeId>,
}

/// A graph without cycles, with a topological order that is updated as edges are added: only nodes between the two ends of an
/// edge against the order are looked at and moved (Pearce and Kelly 2007). Edges are removed in reverse order of their
/// addition, for which the order need not change.
pub(super) struct IncrementalOrder {
    forward: Csr<u32>,
    backward: Csr<u32>,
    /// By node: its place in the order.
    pub(super) places: Vec<u32>,
    edges: Vec<AddedEdge>,
    /// By node: the last added edge that leaves it, and the last one that leads to it.
    out: Vec<Option<EdgeId>>,
    into: Vec<Option<EdgeId>>,
    /// By node: the last search that reached it, and from which node and over which literal that one did. Entries of earlier
    /// searches are not cleared: `seen` says whose they are.
    seen: Vec<u32>,
    origins: Vec<(u32, Option<GraphLiteral>)>,
    search: u32,
    /// Nodes that were moved, until the caller takes them.
    pub(super) moved: Vec<u32>,
    /// Number of edges looked at so far.
    pub(super) steps: u64,
}

impl IncrementalOrder {
    /// A graph with its nodes in this topological `order`, given by the edges from each node and to each node.
    pub(super) fn new(forward: Csr<u32>, backward: Csr<u32>, order: &[u32]) -> IncrementalOrder {
        let nodes = order.len();
        assert_eq!(forward.row_count(), nodes);
        assert_eq!(backward.row_count(), nodes);
        assert_eq!(forward.item_count(), backward.item_count());
        let mut places = vec![0; nodes];
        for (place, &node) in order.iter().enumerate() {
            places[node as usize] = place as u32;
        }
        IncrementalOrder {
            forward,
            backward,
            places,
            edges: Vec::new(),
            out: vec![None; nodes],
            into: vec![None; nodes],
            seen: vec![0; nodes],
            origins: vec![(0, None); nodes],
            search: 0,
            moved: Vec::new(),
            steps: 0,
        }
    }

    /// The place of a node.
    pub(super) fn place(&self, node: u32) -> u32 {
        self.places[node as usize]
    }

    /// Number of edges that were added.
    pub(super) fn added(&self) -> usize {
        self.edges.len()
    }

    /// Passes on all edges into a node: their sources and their literals; known edges have none.
    pub(super) fn sources(&self, node: u32, mut take: impl FnMut(u32, Option<u32>)) {
        for &from in self.backward.row(node) {
            take(from, None);
        }
        let mut edge = self.into[node as usize];
        while let Some(added) = edge {
            let AddedEdge {
                from,
                literal,
                next_in,
                ..
            } = self.edges[added.index()];
            take(from, Some(literal));
            edge = next_in;
        }
    }

    /// Removes the last added edges until this number is left.
    pub(super) fn truncate(&mut self, edges: usize) {
        // In reverse order, so that each edge is at the front of both its lists when it is removed.
        while self.edges.len() > edges {
            if let Some(edge) = self.edges.pop() {
                self.out[edge.from as usize] = edge.next_out;
                self.into[edge.to as usize] = edge.next_in;
            }
        }
    }

    /// Adds an edge. If it would close a cycle, it is not added, and the error is the path from `to` to `from`.
    pub(super) fn add(&mut self, from: u32, to: u32, literal: u32) -> Result<(), GraphPath> {
        if self.place(from) >= self.place(to) {
            if let Some(path) = self.path(to, from) {
                return Err(path);
            }
            self.reorder(from, to);
        }
        // At the front of both lists, so that the last edge added is the first to be removed.
        let added = EdgeId::new(self.edges.len() as u32);
        self.edges.push(AddedEdge {
            from,
            to,
            literal,
            next_out: self.out[from as usize].replace(added),
            next_in: self.into[to as usize].replace(added),
        });
        assert!(
            self.place(from) < self.place(to),
            "an added edge leads onward in the order"
        );
        Ok(())
    }

    /// A shortest path from one node to another, if there is one.
    pub(super) fn path(&mut self, from: u32, to: u32) -> Option<GraphPath> {
        if self.place(from) > self.place(to) {
            return None;
        }
        let seen = self.explore(from, to);
        if self.seen[to as usize] != self.search {
            return None;
        }
        drop(seen);
        let (mut nodes, mut literals) = (vec![to], Vec::new());
        let mut node = to;
        while node != from {
            let (origin, literal) = self.origins[node as usize];
            literals.extend(literal.map(GraphLiteral::get));
            nodes.push(origin);
            node = origin;
        }
        nodes.reverse();
        literals.sort_unstable();
        literals.dedup();
        Some(GraphPath { nodes, literals })
    }

    /// All nodes that `from` reaches and that are not after `to` in the order; stops when it reaches `to`.
    fn explore(&mut self, from: u32, to: u32) -> Vec<u32> {
        let limit = self.place(to);
        self.begin();
        let mut waiting = vec![from];
        self.seen[from as usize] = self.search;
        let mut next = 0;
        while let Some(&node) = waiting.get(next) {
            next += 1;
            if node == to {
                break;
            }
            for &target in self.forward.row(node) {
                self.steps += 1;
                if self.seen[target as usize] != self.search
                    && self.places[target as usize] <= limit
                {
                    self.seen[target as usize] = self.search;
                    self.origins[target as usize] = (node, None);
                    waiting.push(target);
                }
            }
            let mut edge = self.out[node as usize];
            while let Some(added) = edge {
                self.steps += 1;
                let AddedEdge {
                    to: target,
                    literal,
                    next_out,
                    ..
                } = self.edges[added.index()];
                if self.seen[target as usize] != self.search
                    && self.places[target as usize] <= limit
                {
                    self.seen[target as usize] = self.search;
                    self.origins[target as usize] = (node, Some(GraphLiteral::new(literal)));
                    waiting.push(target);
                }
                edge = next_out;
            }
        }
        waiting
    }

    /// All nodes that reach `to` and are not before `from` in the order.
    fn explore_back(&mut self, from: u32, to: u32) -> Vec<u32> {
        let limit = self.place(from);
        self.begin();
        let mut waiting = vec![to];
        self.seen[to as usize] = self.search;
        let mut next = 0;
        while let Some(&node) = waiting.get(next) {
            next += 1;
            for &source in self.backward.row(node) {
                self.steps += 1;
                if self.seen[source as usize] != self.search
                    && self.places[source as usize] >= limit
                {
                    self.seen[source as usize] = self.search;
                    waiting.push(source);
                }
            }
            let mut edge = self.into[node as usize];
            while let Some(added) = edge {
                self.steps += 1;
                let AddedEdge {
                    from: source,
                    next_in,
                    ..
                } = self.edges[added.index()];
                if self.seen[source as usize] != self.search
                    && self.places[source as usize] >= limit
                {
                    self.seen[source as usize] = self.search;
                    waiting.push(source);
                }
                edge = next_in;
            }
        }
        waiting
    }

    fn begin(&mut self) {
        if self.search == u32::MAX {
            self.seen.fill(0);
            self.search = 0;
        }
        self.search += 1;
    }

    /// Moves the nodes that reach `from` before those that `to` reaches, using the same places.
    fn reorder(&mut self, from: u32, to: u32) {
        let mut behind = self.explore(to, from);
        let mut before = self.explore_back(to, from);
        behind.sort_unstable_by_key(|&node| self.places[node as usize]);
        before.sort_unstable_by_key(|&node| self.places[node as usize]);
        let nodes: Vec<u32> = before.into_iter().chain(behind).collect();
        let mut places: Vec<u32> = nodes.iter().map(|&node| self.place(node)).collect();
        places.sort_unstable();
        assert!(
            places.array_windows().all(|[one, next]| one < next),
            "a node both reaches the source and is reached from the target: a cycle"
        );
        for (&node, place) in nodes.iter().zip(places) {
            self.places[node as usize] = place;
        }
        self.moved.extend(nodes);
    }
}

#[cfg(test)]
mod tests;
