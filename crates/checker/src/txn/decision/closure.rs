//! What reaches what, in a small graph that grows.

use super::lists::Lists;

/// The transitive closure of an acyclic graph as a matrix of bits: edges are added, and those since a mark are taken back.
///
/// Holds the square of the number of nodes in bits. Adding an edge costs one bit per node, and a row per node that reaches
/// something new by it (Italiano 1986).
#[derive(Clone)]
pub(super) struct Closure {
    nodes: usize,
    words: usize,
    /// By node, in `words` words: what it reaches.
    rows: Vec<u64>,
    /// Rows that were changed since the mark, and what was in them.
    changed: Vec<u32>,
    saved: Vec<u64>,
    /// Words looked at.
    pub(super) steps: u64,
}

/// An edge would close a cycle.
#[derive(Debug)]
pub(super) struct Cyclic;

impl Closure {
    /// The closure of a graph; `None` if it has a cycle.
    pub(super) fn new(graph: &Lists) -> Option<Closure> {
        let nodes = graph.rows() as usize;
        let words = nodes.div_ceil(64);
        let order = super::judge::topological(graph)?;
        let mut rows = vec![0_u64; nodes * words];
        let mut own = vec![0_u64; words];
        for &node in order.iter().rev() {
            own.fill(0);
            for &to in graph.of(node) {
                let row = &rows[to as usize * words..][..words];
                own.iter_mut()
                    .zip(row)
                    .for_each(|(own, &word)| *own |= word);
                own[to as usize / 64] |= 1 << (to % 64);
            }
            rows[node as usize * words..][..words].copy_from_slice(&own);
        }
        Some(Closure {
            nodes,
            words,
            rows,
            changed: Vec::new(),
            saved: Vec::new(),
            steps: (nodes * words) as u64,
        })
    }

    /// Is there a path from one node to another?
    #[inline]
    pub(super) fn reaches(&self, from: u32, to: u32) -> bool {
        let word = self.rows[from as usize * self.words + to as usize / 64];
        word >> (to % 64) & 1 == 1
    }

    /// From here on changes can be taken back.
    pub(super) fn mark(&mut self) {
        self.changed.clear();
        self.saved.clear();
    }

    /// Takes back what was added since the mark.
    pub(super) fn back(&mut self) {
        while let Some(node) = self.changed.pop() {
            let start = self.saved.len() - self.words;
            let row = &mut self.rows[node as usize * self.words..][..self.words];
            row.copy_from_slice(&self.saved[start..]);
            self.saved.truncate(start);
        }
    }

    /// Adds an edge, and passes on each node that reaches more by it.
    pub(super) fn add(
        &mut self,
        from: u32,
        to: u32,
        mut take: impl FnMut(u32),
    ) -> Result<(), Cyclic> {
        if from == to || self.reaches(to, from) {
            return Err(Cyclic);
        }
        if self.reaches(from, to) {
            return Ok(());
        }
        let mut gained = self.rows[to as usize * self.words..][..self.words].to_vec();
        gained[to as usize / 64] |= 1 << (to % 64);
        self.steps += self.nodes as u64;
        for node in 0..self.nodes as u32 {
            if node != from && !self.reaches(node, from) || self.reaches(node, to) {
                continue;
            }
            let row = &mut self.rows[node as usize * self.words..][..self.words];
            self.changed.push(node);
            self.saved.extend_from_slice(row);
            row.iter_mut()
                .zip(&gained)
                .for_each(|(own, &word)| *own |= word);
            self.steps += self.words as u64;
            take(node);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::decision::lists::testing::{Pairs, reaches};
    use seatrial_machine::Rng;

    #[test]
    fn is_what_walks_find_with_edges_added_and_taken_back() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            // More than a word of bits now and then.
            let nodes = 2 + rng.below(if seed % 10 == 0 { 90 } else { 12 }) as u32;
            let mut edges = Vec::new();
            for _ in 0..rng.below(2 * u64::from(nodes)) {
                let pair = [0, 0].map(|_: i32| rng.below(u64::from(nodes)) as u32);
                if pair[0] < pair[1] {
                    edges.push((pair[0], pair[1]));
                }
            }
            let graph = Lists::forward(nodes as usize, &Pairs(edges.clone()));
            let mut closure = Closure::new(&graph).unwrap();
            let mut marked = edges.len();
            for _ in 0..12 {
                match rng.below(5) {
                    0 => {
                        closure.mark();
                        marked = edges.len();
                    }
                    1 => {
                        closure.back();
                        closure.mark();
                        edges.truncate(marked);
                    }
                    _ => {
                        let [from, to] = [0, 0].map(|_: i32| rng.below(u64::from(nodes)) as u32);
                        let is_cycle = from == to || reaches(&edges, to, from);
                        let was: Vec<bool> = (0..nodes).map(|it| reaches(&edges, it, to)).collect();
                        let mut told = Vec::new();
                        let added = closure.add(from, to, |node| told.push(node));
                        assert_eq!(added.is_err(), is_cycle, "seed {seed}");
                        if !is_cycle {
                            edges.push((from, to));
                            let is_new = |&it: &u32| !was[it as usize] && reaches(&edges, it, to);
                            let new: Vec<u32> = (0..nodes).filter(is_new).collect();
                            assert_eq!(told, new, "seed {seed}");
                        }
                    }
                }
                for from in 0..nodes {
                    for to in 0..nodes {
                        let is_there = closure.reaches(from, to);
                        assert_eq!(is_there, reaches(&edges, from, to), "seed {seed}");
                    }
                }
            }
        }
    }

    #[test]
    fn there_is_none_of_a_graph_with_a_cycle() {
        let graph = Lists::forward(3, &Pairs(vec![(0, 1), (1, 2), (2, 0)]));
        assert!(Closure::new(&graph).is_none());
    }
}
