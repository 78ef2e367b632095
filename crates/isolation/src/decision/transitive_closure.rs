//! The transitive closure of a small graph to which edges are added.

use seatrial_cycles::Csr;

/// The transitive closure of an acyclic graph as a matrix of bits. Edges can be added, and those since a mark undone.
///
/// It takes the square of the number of nodes in bits. Adding an edge looks at one bit per node, and at one row per node that
/// reaches something new (Italiano 1986).
#[derive(Clone)]
pub(super) struct TransitiveClosure {
    nodes: usize,
    words: usize,
    /// By node, in `words` words: the nodes that it reaches.
    rows: Vec<u64>,
    /// Rows that changed since the mark, and their former contents.
    changed: Vec<u32>,
    saved: Vec<u64>,
    /// Number of words looked at.
    pub(super) steps: u64,
}

/// The error of an edge that would close a cycle.
#[derive(Debug)]
pub(super) struct WouldCycle;

impl TransitiveClosure {
    /// The closure of a graph; `None` if it has a cycle.
    pub(super) fn new(graph: &Csr<u32>) -> Option<TransitiveClosure> {
        let nodes = graph.row_count();
        let words = nodes.div_ceil(64);
        let order = super::guess_and_search::topological(graph)?;
        let mut rows = vec![0_u64; nodes * words];
        let mut own = vec![0_u64; words];
        for &node in order.iter().rev() {
            own.fill(0);
            for &to in graph.row(node) {
                let row = &rows[to as usize * words..][..words];
                own.iter_mut()
                    .zip(row)
                    .for_each(|(own, &word)| *own |= word);
                own[to as usize / 64] |= 1 << (to % 64);
            }
            rows[node as usize * words..][..words].copy_from_slice(&own);
        }
        Some(TransitiveClosure {
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

    /// Sets the mark: changes from here on can be undone.
    pub(super) fn mark(&mut self) {
        self.changed.clear();
        self.saved.clear();
    }

    /// Undoes all changes since the mark.
    pub(super) fn back(&mut self) {
        while let Some(node) = self.changed.pop() {
            let start = self.saved.len() - self.words;
            let row = &mut self.rows[node as usize * self.words..][..self.words];
            row.copy_from_slice(&self.saved[start..]);
            self.saved.truncate(start);
        }
        assert!(self.saved.is_empty(), "a changed row was not restored");
    }

    /// Adds an edge, and passes on each node that reaches more because of it.
    pub(super) fn add(
        &mut self,
        from: u32,
        to: u32,
        mut take: impl FnMut(u32),
    ) -> Result<(), WouldCycle> {
        if from == to || self.reaches(to, from) {
            return Err(WouldCycle);
        }
        if self.reaches(from, to) {
            return Ok(());
        }
        assert!(!self.reaches(from, from), "the graph has a cycle already");
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
mod tests;
