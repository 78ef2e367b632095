//! Binary relations on numbers, and graphs made of them.

use seatrial_cycles::{Csr, CsrCounter};

/// A relation between numbers: a source of pairs. It must emit the same pairs in the same order each time.
pub(super) trait Relation {
    /// Emits all pairs.
    fn emit(&self, take: &mut impl FnMut(u32, u32));
}

impl Relation for Csr<u32> {
    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for (row, &item) in self.pairs() {
            take(row, item);
        }
    }
}

/// By first number of each pair: the second numbers. The relation is read twice, so no list of pairs is ever held.
pub(super) fn successors(rows: usize, relation: &impl Relation) -> Csr<u32> {
    grouped::<false>(rows, relation)
}

/// By second number of each pair: the first numbers.
pub(super) fn predecessors(rows: usize, relation: &impl Relation) -> Csr<u32> {
    grouped::<true>(rows, relation)
}

fn grouped<const IS_BACKWARD: bool>(rows: usize, relation: &impl Relation) -> Csr<u32> {
    let mut counter = CsrCounter::new(rows);
    relation.emit(&mut |from, to| counter.count(if IS_BACKWARD { to } else { from }));
    let mut filler = counter
        .into_filler()
        .expect("transactions in memory have fewer than 2^32 pairs");
    relation.emit(&mut |from, to| {
        let (row, item) = if IS_BACKWARD { (to, from) } else { (from, to) };
        filler.put(row, item);
    });
    filler.finish()
}

/// Small graphs for tests, and what walks find in them.
#[cfg(test)]
pub(super) mod testing {
    use super::Relation;

    /// A list of edges.
    pub(in crate::decision) struct Pairs(pub(in crate::decision) Vec<(u32, u32)>);

    impl Relation for Pairs {
        fn emit(&self, take: &mut impl FnMut(u32, u32)) {
            for &(from, to) in &self.0 {
                take(from, to);
            }
        }
    }

    /// Is there a path of at least one edge?
    pub(in crate::decision) fn reaches(edges: &[(u32, u32)], from: u32, to: u32) -> bool {
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
