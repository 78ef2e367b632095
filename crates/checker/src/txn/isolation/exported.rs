//! An order of commits that somebody exported.

use crate::txn::registers::{Columns, NONE};
use std::sync::Arc;

/// Numbers of transactions by the index of their completion, sorted by it; smaller numbers were committed first.
#[derive(Clone, Debug)]
pub(super) struct Exported(Arc<[(u64, i64)]>);

impl Exported {
    pub(super) fn new(mut order: Vec<(u64, i64)>) -> Exported {
        // Of an index that comes twice the first number counts.
        order.sort_by_key(|&(index, _)| index);
        Exported(order.into())
    }

    /// The place in the order of each of the columns' transactions; [`NONE`] of those that it does not have.
    pub(super) fn ranks(&self, columns: &Columns) -> Vec<u32> {
        let number = |transaction| {
            let index = columns.index(transaction);
            let place = self.0.partition_point(|&(other, _)| other < index);
            let found = self.0.get(place).filter(|&&(other, _)| other == index);
            found.map(|&(_, number)| number)
        };
        ranked(columns, number)
    }
}

/// The place of each transaction in the order that the columns' own timestamps say; empty when they have none.
pub(in crate::txn) fn stamped(columns: &Columns) -> Vec<u32> {
    let commits = columns.commits();
    if commits.is_empty() {
        return Vec::new();
    }
    ranked(columns, |transaction| Some(commits[transaction as usize]))
}

/// Places by these numbers, those of equal ones as in the columns.
fn ranked<N: Ord>(columns: &Columns, number: impl Fn(u32) -> Option<N>) -> Vec<u32> {
    let all = (0..columns.len() as u32).filter_map(|one| Some((number(one)?, one)));
    let mut all: Vec<(N, u32)> = all.collect();
    all.sort_unstable();
    let mut ranks = vec![NONE; columns.len()];
    for (place, (_, transaction)) in all.into_iter().enumerate() {
        ranks[transaction as usize] = place as u32;
    }
    ranks
}
