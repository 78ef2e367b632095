//! The nearest of many entries.

use std::collections::BinaryHeap;

/// Keeps the entries with the lowest ranks, at most `max` of them, and counts all. Memory: `max` entries. Entries of equal rank
/// that came first are kept.
#[derive(Debug)]
pub(crate) struct Nearest<T> {
    max: usize,
    count: u64,
    heap: BinaryHeap<Ranked<T>>,
}

#[derive(Debug)]
struct Ranked<T> {
    rank: (i64, u64),
    entry: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl<T> Nearest<T> {
    /// Keeps at most `max` entries.
    pub(crate) fn new(max: usize) -> Nearest<T> {
        assert!(max > 0, "a list without room");
        Nearest {
            max,
            count: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// Counts an entry of this rank; `make` is called if it is kept for now.
    pub(crate) fn add(&mut self, rank: i64, make: impl FnOnce() -> T) {
        let rank = (rank, self.count);
        self.count += 1;
        let is_full = self.heap.len() == self.max;
        if is_full && self.heap.peek().is_some_and(|last| last.rank < rank) {
            return;
        }
        let entry = make();
        if is_full {
            self.heap.pop();
        }
        self.heap.push(Ranked { rank, entry });
        debug_assert!(self.heap.len() <= self.max, "more entries than have room");
    }

    /// The entries in no order, and the number of those that are left out.
    pub(crate) fn into_parts(self) -> (Vec<T>, u64) {
        let left_out = self.count - self.heap.len() as u64;
        let entries = self.heap.into_iter().map(|ranked| ranked.entry);
        (entries.collect(), left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_ranks_stay() {
        let mut nearest = Nearest::new(3);
        for rank in [9, 4, 7, 4, 1, 8] {
            nearest.add(rank, || rank);
        }
        let (mut kept, left_out) = nearest.into_parts();
        kept.sort_unstable();
        assert_eq!((kept, left_out), (vec![1, 4, 4], 3));
    }
}
