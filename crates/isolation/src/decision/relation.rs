//! Binary relations on numbers, and graphs made of them.

use seatrial_cycles::{Csr, CsrCounter};

/// A relation between numbers: a source of pairs. It must emit the same pairs in the same order each time.
pub(super) trait Relation {
    /// Are the pairs next to one another in memory? Otherwise finding them again costs more than keeping them for a moment.
    const IS_LISTED: bool = false;

    /// Emits all pairs.
    fn emit(&self, take: &mut impl FnMut(u32, u32));
}

impl Relation for Csr<u32> {
    const IS_LISTED: bool = true;

    fn emit(&self, take: &mut impl FnMut(u32, u32)) {
        for (row, &item) in self.pairs() {
            take(row, item);
        }
    }
}

/// By first number of each pair: the second numbers.
pub(super) fn successors<R: Relation>(rows: usize, relation: &R) -> Csr<u32> {
    grouped::<false, R>(rows, relation)
}

/// By second number of each pair: the first numbers.
pub(super) fn predecessors<R: Relation>(rows: usize, relation: &R) -> Csr<u32> {
    grouped::<true, R>(rows, relation)
}

/// A counting sort: counts by row, then places. The pairs of most relations are looked up all over memory (a version, its writer,
/// the version after it), so they are found once and kept in between, eight bytes each.
fn grouped<const IS_BACKWARD: bool, R: Relation>(rows: usize, relation: &R) -> Csr<u32> {
    let turned = |from, to| if IS_BACKWARD { (to, from) } else { (from, to) };
    let mut counter = CsrCounter::new(rows);
    let mut kept: Vec<(u32, u32)> = Vec::new();
    relation.emit(&mut |from, to| {
        let pair = turned(from, to);
        counter.count(pair.0);
        if !R::IS_LISTED {
            kept.push(pair);
        }
    });
    let mut filler = counter
        .into_filler()
        .expect("transactions in memory have fewer than 2^32 pairs");
    for (row, item) in kept {
        filler.put(row, item);
    }
    if R::IS_LISTED {
        relation.emit(&mut |from, to| {
            let (row, item) = turned(from, to);
            filler.put(row, item);
        });
    }
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
