//! How often each instant is covered, with the least covered instant at hand.

/// A segment tree of counts with addition on ranges, and the least count.
///
/// Counts are stored as differences (zkw's form): the least count below a node is the sum of the numbers from the node to the
/// root, and of two siblings one is 0. So there are no postponed additions to push down, and all walks go up or down one
/// path, in loops. O(log n) for each addition and each search; 4 bytes for each node, 8 to 16 for each instant.
pub(super) struct CoverageCounts {
    /// Node `i` has children `2 i` and `2 i + 1`. Instant `i` is leaf `size + 1 + i`: a free leaf at each end, so that a
    /// range has neighbours.
    nodes: Vec<i32>,
    size: usize,
}

/// Added to a leaf, takes it out of the search: more than any count.
const RETIRED: i32 = 1 << 30;

impl CoverageCounts {
    /// Counts of each instant, which may be negative for none.
    pub(super) fn new(counts: impl ExactSizeIterator<Item = i32>) -> CoverageCounts {
        let size = (counts.len() + 2).next_power_of_two();
        let mut nodes = vec![RETIRED; 2 * size];
        for (leaf, count) in nodes[size + 1..].iter_mut().zip(counts) {
            debug_assert!((0..RETIRED).contains(&count), "a count");
            *leaf = count;
        }
        for node in (1..size).rev() {
            let least = nodes[2 * node].min(nodes[2 * node + 1]);
            nodes[2 * node] -= least;
            nodes[2 * node + 1] -= least;
            nodes[node] = least;
        }
        CoverageCounts { nodes, size }
    }

    /// An instant with the least count, and that count; None if all are retired.
    pub(super) fn least(&self) -> Option<(u32, i32)> {
        let least = self.nodes[1];
        if least >= RETIRED / 2 {
            return None;
        }
        let mut node = 1;
        while node < self.size {
            node *= 2;
            node += usize::from(self.nodes[node] != 0);
        }
        Some(((node - self.size - 1) as u32, least))
    }

    /// Adds to the counts of the instants from `first` to before `after`.
    pub(super) fn add(&mut self, first: u32, after: u32, count: i32) {
        if first >= after {
            return;
        }
        // The neighbours of the range: all between them on the way up is inside.
        let mut low = self.size + first as usize;
        let mut high = self.size + 1 + after as usize;
        while low ^ high != 1 {
            if low.is_multiple_of(2) {
                self.nodes[low + 1] += count;
            }
            if !high.is_multiple_of(2) {
                self.nodes[high - 1] += count;
            }
            (low, high) = (low / 2, high / 2);
            self.balance(low);
            self.balance(high);
        }
        self.balance_above(low);
    }

    /// Takes an instant out of the search for the least.
    pub(super) fn retire(&mut self, instant: u32) {
        let leaf = self.size + 1 + instant as usize;
        self.nodes[leaf] += RETIRED;
        self.balance_above(leaf);
    }

    fn balance_above(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            // Nothing moved up, so nothing changes above.
            if !self.balance(node) {
                break;
            }
        }
    }

    /// Moves what both children have in common to the node; true if it is not 0.
    fn balance(&mut self, node: usize) -> bool {
        let least = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        if least != 0 {
            self.nodes[2 * node] -= least;
            self.nodes[2 * node + 1] -= least;
            self.nodes[node] += least;
        }
        least != 0
    }
}
