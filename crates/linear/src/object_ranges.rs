//! The objects of a history in ranges, which threads decide side by side.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// Ranges for each thread: ranges differ in work, and a thread that is done takes the next one.
const RANGES_PER_THREAD: usize = 8;

/// Ranges of objects in order, each decided by one thread. The results come in the order of the ranges, so that they do not
/// depend on which thread was faster.
pub(crate) struct ObjectRanges {
    ranges: Vec<Range<usize>>,
    threads: usize,
    /// No range from this one on is needed any more.
    end: AtomicUsize,
}

impl ObjectRanges {
    /// `count` objects; `weight` is the number of operations of each. One range for one thread.
    pub(crate) fn new(
        count: usize,
        threads: usize,
        weight: impl Fn(usize) -> usize,
    ) -> ObjectRanges {
        let threads = threads.clamp(1, count.max(1));
        let share = if threads == 1 {
            usize::MAX
        } else {
            let all: usize = (0..count).map(&weight).sum();
            all / (threads * RANGES_PER_THREAD) + 1
        };
        let mut ranges = Vec::new();
        let (mut first, mut load) = (0, 0);
        for number in 0..count {
            load += weight(number);
            if load >= share || number + 1 == count {
                ranges.push(first..number + 1);
                (first, load) = (number + 1, 0);
            }
        }
        assert!(first == count, "each object is in a range");
        ObjectRanges {
            end: AtomicUsize::new(ranges.len()),
            ranges,
            threads,
        }
    }

    /// Is this range needed? Not when an earlier one has ended the check.
    pub(crate) fn is_needed(&self, range: usize) -> bool {
        range < self.end.load(Ordering::Relaxed)
    }

    /// No range after this one is needed.
    pub(crate) fn end_at(&self, range: usize) {
        self.end.fetch_min(range + 1, Ordering::Relaxed);
    }

    /// Calls `decide` with each range that is needed and its number, and with what `worker` made for the thread; returns the
    /// results, in order, up to the last range that is needed.
    pub(crate) fn decide<W, T: Send>(
        &self,
        worker: impl Fn() -> W + Sync,
        decide: impl Fn(&mut W, usize, Range<usize>) -> T + Sync,
    ) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::new());
        let work = || {
            let mut mine = worker();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.ranges.len() || !self.is_needed(number) {
                    return;
                }
                let result = decide(&mut mine, number, self.ranges[number].clone());
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push((number, result));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                // Without another thread, this one decides all.
                let _ = Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|&(number, _)| number);
        results.retain(|&(number, _)| self.is_needed(number));
        let numbers = results.iter().map(|&(number, _)| number);
        assert!(
            numbers.eq(0..self.end.load(Ordering::Relaxed)),
            "each range that is needed was decided"
        );
        results.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_end_with_the_first_that_ends_the_check() {
        for threads in [1, 2, 5] {
            for count in [0, 1, 2, 40, 1_000] {
                let ranges = ObjectRanges::new(count, threads, |number| number % 7);
                let all = ranges.decide(|| 0, |_, _, range| range);
                assert!(all.into_iter().flatten().eq(0..count), "{threads} {count}");
            }
            let ranges = ObjectRanges::new(1_000, threads, |_| 1);
            let ended = ranges.decide(
                || (),
                |(), number, range| {
                    if range.contains(&700) || range.contains(&999) {
                        ranges.end_at(number);
                    }
                    range
                },
            );
            let last = ended.last().unwrap();
            assert!(last.contains(&700), "{threads}: {last:?}");
            assert!(ended.iter().map(|range| range.end).is_sorted());
        }
    }
}
