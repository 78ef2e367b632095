//! An exported order of commits, as a first guess.

use crate::decision::OrderRank;
use crate::registers::Columns;
use std::sync::Arc;

/// Numbers of transactions by the index of their completion, sorted by it; smaller numbers were committed first.
#[derive(Clone, Debug)]
pub(super) struct ExportedOrder(Arc<[(u64, i64)]>);

impl ExportedOrder {
    pub(super) fn new(mut order: Vec<(u64, i64)>) -> ExportedOrder {
        // If an index occurs twice, its first number counts: the sort is stable.
        order.sort_by_key(|&(index, _)| index);
        ExportedOrder(order.into())
    }

    /// By transaction of the columns: its place in the order, if it is in it.
    pub(super) fn ranks(&self, columns: &Columns) -> Vec<Option<OrderRank>> {
        let number = |transaction| {
            let index = columns.index(transaction);
            let place = self.0.partition_point(|&(other, _)| other < index);
            let found = self.0.get(place).filter(|&&(other, _)| other == index);
            found.map(|&(_, number)| number)
        };
        ranked(columns, number)
    }
}

/// By transaction: its place in the order of the database's commit timestamps; empty without timestamps.
pub fn timestamp_ranks(columns: &Columns) -> Vec<Option<OrderRank>> {
    let commits = columns.commits();
    if commits.is_empty() {
        return Vec::new();
    }
    ranked(columns, |transaction| Some(commits[transaction as usize]))
}

/// By transaction: its place in the order of these numbers; equal numbers in the order of the columns.
fn ranked<N: Ord>(columns: &Columns, number: impl Fn(u32) -> Option<N>) -> Vec<Option<OrderRank>> {
    let all = (0..columns.len() as u32).filter_map(|one| Some((number(one)?, one)));
    let mut all: Vec<(N, u32)> = all.collect();
    all.sort_unstable();
    let mut ranks = vec![None; columns.len()];
    for (rank, (_, transaction)) in OrderRank::all(all.len()).zip(all) {
        let before = ranks[transaction as usize].replace(rank);
        assert!(before.is_none(), "a transaction is in the order twice");
    }
    assert_eq!(ranks.len(), columns.len());
    ranks
}
