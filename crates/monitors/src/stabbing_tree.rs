//! Intervals by begin, of which those that contain an instant are taken out one by one.

/// A tournament tree over the ends of intervals that are sorted by begin: the intervals that contain an instant are those of a
/// prefix (begun by then) whose end is greater. O(log n) for each that is found or taken out; 8 bytes for each interval.
pub(super) struct StabbingTree {
    /// Node `i` has children `2 i` and `2 i + 1`; leaves are the second half. Greatest end (exclusive) below; 0: none.
    greatest: Vec<u32>,
}

impl StabbingTree {
    /// A tree of intervals with these exclusive ends, all greater than 0.
    pub(super) fn new(ends: impl ExactSizeIterator<Item = u32>) -> StabbingTree {
        let count = ends.len();
        let mut greatest = vec![0; count];
        greatest.extend(ends);
        for node in (1..count).rev() {
            greatest[node] = greatest[2 * node].max(greatest[2 * node + 1]);
        }
        StabbingTree { greatest }
    }

    fn count(&self) -> usize {
        self.greatest.len() / 2
    }

    /// An interval among those from `first` to before `after` that ends after `instant`.
    pub(super) fn find(&self, first: usize, after: usize, instant: u32) -> Option<usize> {
        let count = self.count();
        assert!(first <= after && after <= count, "a range of intervals");
        // The range is a union of O(log n) subtrees: those at its two borders, level by level.
        let (mut low, mut high) = (first + count, after + count);
        while low < high {
            if low % 2 == 1 {
                if self.greatest[low] > instant {
                    return Some(self.descend(low, instant));
                }
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                if self.greatest[high] > instant {
                    return Some(self.descend(high, instant));
                }
            }
            (low, high) = (low / 2, high / 2);
        }
        None
    }

    /// The leaf below `node` that ends after `instant`.
    fn descend(&self, mut node: usize, instant: u32) -> usize {
        while node < self.count() {
            node *= 2;
            node += usize::from(self.greatest[node] <= instant);
        }
        assert!(
            self.greatest[node] > instant,
            "the greatest of a node is that of a leaf"
        );
        node - self.count()
    }

    /// Is this interval not taken out?
    pub(super) fn contains(&self, interval: usize) -> bool {
        self.greatest[interval + self.count()] > 0
    }

    /// Takes an interval out; nothing if it is out.
    pub(super) fn remove(&mut self, interval: usize) {
        let mut node = interval + self.count();
        self.greatest[node] = 0;
        while node > 1 {
            node /= 2;
            let greatest = self.greatest[2 * node].max(self.greatest[2 * node + 1]);
            if greatest == self.greatest[node] {
                break;
            }
            self.greatest[node] = greatest;
        }
    }
}
