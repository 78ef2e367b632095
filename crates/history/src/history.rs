//! A history in memory.

use crate::Op;
use crate::pair::OpenInvocations;
use std::sync::OnceLock;

/// An immutable sequence of operations in memory, in the order in which they were recorded. Invocations and completions
/// are paired on first use, in linear time. Dense (index = position) unless it was filtered.
///
/// Memory: about 100 bytes per operation, plus its value. Fold larger histories from their test file instead.
#[derive(Debug, Default)]
pub struct History {
    ops: Vec<Op>,
    /// For each position the position of its other half, or [`UNPAIRED`].
    pairs: OnceLock<Vec<u32>>,
}

/// Pair of an operation without other half.
pub const UNPAIRED: u32 = u32::MAX;

impl History {
    /// Creates a history; indices must rise. Pairing is lenient: an invocation without completion and a completion without
    /// invocation stay unpaired, as does an invocation whose process invokes again.
    pub fn from_ops(ops: Vec<Op>) -> History {
        assert!(
            ops.len() < UNPAIRED as usize,
            "too many operations for a history in memory"
        );
        debug_assert!(
            ops.is_sorted_by(|a, b| a.index < b.index),
            "indices must rise"
        );
        History {
            ops,
            pairs: OnceLock::new(),
        }
    }

    /// Creates a history with known pairs: for each position the position of its other half, or [`UNPAIRED`].
    pub fn with_pairs(ops: Vec<Op>, pairs: Vec<u32>) -> History {
        let history = History::from_ops(ops);
        assert_eq!(pairs.len(), history.len(), "a pair for each operation");
        History {
            pairs: OnceLock::from(pairs),
            ..history
        }
    }

    /// Creates a history whose indices are assigned by position.
    pub fn from_unindexed(mut ops: Vec<Op>) -> History {
        for (index, op) in ops.iter_mut().enumerate() {
            op.index = index as u64;
        }
        History::from_ops(ops)
    }

    /// Number of operations (an invocation and its completion are two).
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Is there no operation?
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// All operations in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Op> {
        self.ops.iter()
    }

    /// All operations in order, as a slice.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The operation with this index.
    pub fn get(&self, index: u64) -> Option<&Op> {
        self.position(index).map(|position| &self.ops[position])
    }

    /// The position of the operation with this index: constant time if dense, else a binary search.
    pub fn position(&self, index: u64) -> Option<usize> {
        match usize::try_from(index)
            .ok()
            .and_then(|guess| self.ops.get(guess))
        {
            Some(op) if op.index == index => Some(index as usize),
            _ => self.ops.binary_search_by_key(&index, |op| op.index).ok(),
        }
    }

    /// The number of operations with an index below this one.
    pub fn position_from(&self, index: u64) -> usize {
        self.ops.partition_point(|op| op.index < index)
    }

    /// The position of the other half of the operation at `position`: completion of an invocation, invocation of a
    /// completion.
    pub fn pair(&self, position: usize) -> Option<usize> {
        let pairs = self.pairs.get_or_init(|| pair(&self.ops));
        pairs
            .get(position)
            .filter(|&&other| other != UNPAIRED)
            .map(|&other| other as usize)
    }

    /// The completion of the invocation at `position`; `None` if it never completed.
    pub fn completion(&self, position: usize) -> Option<&Op> {
        self.pair(position).map(|other| &self.ops[other])
    }

    /// The operations that satisfy `keep`, with their indices.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&Op) -> bool) -> History {
        History::from_ops(self.ops.iter().filter(|op| keep(op)).cloned().collect())
    }

    /// The operations of clients.
    #[must_use]
    pub fn clients(&self) -> History {
        self.filter(|op| op.process.is_client())
    }
}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Op;
    type IntoIter = std::slice::Iter<'a, Op>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Pairs invocations with completions.
fn pair(ops: &[Op]) -> Vec<u32> {
    let mut pairs = vec![UNPAIRED; ops.len()];
    let mut open = OpenInvocations::default();
    for (position, op) in ops.iter().enumerate() {
        if let Some(invocation) = open.follow(position as u64, op) {
            pairs[position] = invocation as u32;
            pairs[invocation as usize] = position as u32;
        }
    }
    debug_assert!(
        pairs.iter().enumerate().all(|(position, &other)| {
            other == UNPAIRED || pairs[other as usize] as usize == position
        }),
        "pairing is symmetric"
    );
    pairs
}
