//! The neighbours that nodes of the workload `broadcast` are given: Maelstrom's topologies.

use serde_json::{Value as Json, json};

/// A shape of the graph of neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Topology {
    /// A two-dimensional grid.
    #[default]
    Grid,
    /// Each node with the one before and the one after it.
    Line,
    /// Each node with every other.
    Total,
    /// A tree in which each node has this many children.
    Tree(usize),
}

impl Topology {
    /// The names on the command line.
    pub(crate) const NAMES: [(&'static str, Topology); 6] = [
        ("grid", Topology::Grid),
        ("line", Topology::Line),
        ("total", Topology::Total),
        ("tree2", Topology::Tree(2)),
        ("tree3", Topology::Tree(3)),
        ("tree4", Topology::Tree(4)),
    ];

    /// Are the nodes at these places of `count` neighbours? Symmetric.
    fn are_neighbours(self, a: usize, b: usize, count: usize) -> bool {
        let (low, high) = (a.min(b), a.max(b));
        match self {
            Topology::Total => low != high,
            Topology::Line => low + 1 == high,
            Topology::Tree(children) => low != high && (high - 1) / children == low,
            Topology::Grid => {
                let width = (1..=count)
                    .find(|width| width * width >= count)
                    .unwrap_or(1);
                let is_beside = low + 1 == high && high % width != 0;
                is_beside || low + width == high
            }
        }
    }

    /// The neighbours of each of these nodes: the field `topology` of the message.
    pub(crate) fn json(self, names: &[String]) -> Json {
        let neighbours = |at: usize| -> Vec<&String> {
            let others = names.iter().enumerate();
            let others = others.filter(|&(other, _)| self.are_neighbours(at, other, names.len()));
            others.map(|(_, name)| name).collect()
        };
        let rows = names.iter().enumerate();
        rows.map(|(at, name)| (name.clone(), json!(neighbours(at))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn shapes_are_those_of_their_names() {
        let five = names(5);
        let of = |topology: Topology, node: &str| topology.json(&five)[node].clone();
        // n1 n2 n3
        // n4 n5
        assert_eq!(of(Topology::Grid, "n1"), json!(["n2", "n4"]));
        assert_eq!(of(Topology::Grid, "n3"), json!(["n2"]));
        assert_eq!(of(Topology::Grid, "n5"), json!(["n2", "n4"]));
        assert_eq!(of(Topology::Line, "n3"), json!(["n2", "n4"]));
        assert_eq!(of(Topology::Total, "n3"), json!(["n1", "n2", "n4", "n5"]));
        assert_eq!(of(Topology::Tree(2), "n2"), json!(["n1", "n4", "n5"]));
        assert_eq!(of(Topology::Tree(4), "n1"), json!(["n2", "n3", "n4", "n5"]));
        assert_eq!(Topology::Grid.json(&names(1)), json!({"n1": []}));
    }

    #[test]
    fn every_graph_is_connected() {
        for (name, topology) in Topology::NAMES {
            for count in 1..30 {
                let mut reached = vec![false; count];
                let mut next = vec![0];
                while let Some(at) = next.pop() {
                    if !std::mem::replace(&mut reached[at], true) {
                        next.extend((0..count).filter(|&b| topology.are_neighbours(at, b, count)));
                    }
                }
                assert!(reached.iter().all(|&reached| reached), "{name} of {count}");
            }
        }
    }
}
