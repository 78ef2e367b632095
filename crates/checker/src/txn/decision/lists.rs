//! Rows of numbers, one after the other.

use crate::txn::components::Arcs;

/// Whoever knows pairs of numbers, and tells them in the same order each time.
pub(super) trait Relation {
    /// Tells them all.
    fn tell(&self, take: &mut impl FnMut(u32, u32));
}

/// Lists of numbers in compressed rows; a graph when the numbers are rows again.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists {
            starts: vec![0],
            items: Vec::new(),
        }
    }
}

impl Lists {
    /// By first number of each pair: the second ones. Nothing is held but the rows, since all is told twice.
    pub(super) fn forward(rows: usize, relation: &impl Relation) -> Lists {
        Lists::told::<false>(rows, relation)
    }

    /// By second number of each pair: the first ones.
    pub(super) fn backward(rows: usize, relation: &impl Relation) -> Lists {
        Lists::told::<true>(rows, relation)
    }

    fn told<const BACKWARD: bool>(rows: usize, relation: &impl Relation) -> Lists {
        // The next place of each row, one row further; in the end, where the row ends.
        let mut starts = vec![0_u32; rows + 2];
        relation.tell(&mut |from, to| {
            let row = if BACKWARD { to } else { from };
            starts[row as usize + 2] += 1;
        });
        for row in 2..starts.len() {
            starts[row] += starts[row - 1];
        }
        let mut items = vec![0; starts[rows + 1] as usize];
        relation.tell(&mut |from, to| {
            let (row, item) = if BACKWARD { (to, from) } else { (from, to) };
            let place = &mut starts[row as usize + 1];
            items[*place as usize] = item;
            *place += 1;
        });
        starts.pop();
        Lists { starts, items }
    }

    /// One more item of the row that is not ended yet.
    pub(super) fn push(&mut self, item: u32) {
        self.items.push(item);
    }

    /// Ends a row.
    pub(super) fn end(&mut self) {
        self.starts.push(self.items.len() as u32);
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    /// The items of a row.
    pub(super) fn of(&self, row: u32) -> &[u32] {
        let row = row as usize;
        &self.items[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The same, to be put into another order.
    pub(super) fn of_mut(&mut self, row: u32) -> &mut [u32] {
        let row = row as usize;
        &mut self.items[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// By item: the rows that it stands in.
    pub(super) fn inverted(&self, items: usize) -> Lists {
        Lists::backward(items, self)
    }
}

impl Relation for Lists {
    fn tell(&self, take: &mut impl FnMut(u32, u32)) {
        for row in 0..self.rows() {
            for &item in self.of(row) {
                take(row, item);
            }
        }
    }
}

impl Arcs for Lists {
    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        self.starts[node as usize]..self.starts[node as usize + 1]
    }

    fn target(&self, edge: u32) -> Option<u32> {
        Some(self.items[edge as usize])
    }
}

/// Small graphs for tests, and what walks find in them.
#[cfg(test)]
pub(super) mod testing {
    use super::Relation;

    /// Edges in a row.
    pub(in crate::txn::decision) struct Pairs(pub(in crate::txn::decision) Vec<(u32, u32)>);

    impl Relation for Pairs {
        fn tell(&self, take: &mut impl FnMut(u32, u32)) {
            for &(from, to) in &self.0 {
                take(from, to);
            }
        }
    }

    /// Is there a path of at least one edge?
    pub(in crate::txn::decision) fn reaches(edges: &[(u32, u32)], from: u32, to: u32) -> bool {
        let mut seen = vec![from];
        let mut next = 0;
        while let Some(&node) = seen.get(next) {
            next += 1;
            for &(_, other) in edges.iter().filter(|edge| edge.0 == node) {
                if other == to {
                    return true;
                }
                if !seen.contains(&other) {
                    seen.push(other);
                }
            }
        }
        false
    }
}
