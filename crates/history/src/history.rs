//! A history in memory.

use crate::Op;
use crate::pair::OpenInvocations;
use std::sync::OnceLock;

/// An immutable sequence of operations in the order in which they happened, with invocations and completions paired
/// on first use. Dense (index = position) unless it was filtered.
///
/// Its downside: everything is in memory, about 100 bytes and what the values share. Histories past that are folded
/// from the test file chunk by chunk.
#[derive(Debug, Default)]
pub struct History {
    ops: Vec<Op>,
    /// For each position the position of its other half, or [`UNPAIRED`].
    pairs: OnceLock<Vec<u32>>,
}

/// Marks an operation without another half.
pub const UNPAIRED: u32 = u32::MAX;

impl History {
    /// The history of these operations; their indices must rise. Pairing is lenient: an invocation of a process that
    /// is still busy, or a completion without invocation, stays unpaired.
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

    /// The history of these operations with these pairs, per position the other half's or [`UNPAIRED`].
    pub fn with_pairs(ops: Vec<Op>, pairs: Vec<u32>) -> History {
        let history = History::from_ops(ops);
        assert_eq!(pairs.len(), history.len(), "a pair for each operation");
        History {
            pairs: OnceLock::from(pairs),
            ..history
        }
    }

    /// The same, with indices assigned by position.
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

    /// Is nothing recorded?
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// All operations in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Op> {
        self.ops.iter()
    }

    /// All operations in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The operation with this index.
    pub fn get(&self, index: u64) -> Option<&Op> {
        self.position(index).map(|position| &self.ops[position])
    }

    /// Where the operation with this index stands.
    pub fn position(&self, index: u64) -> Option<usize> {
        match usize::try_from(index)
            .ok()
            .and_then(|guess| self.ops.get(guess))
        {
            Some(op) if op.index == index => Some(index as usize),
            _ => self.ops.binary_search_by_key(&index, |op| op.index).ok(),
        }
    }

    /// How many operations have an index below this one.
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

    /// The completion of the invocation at `position`; `None` while it never completed.
    pub fn completion(&self, position: usize) -> Option<&Op> {
        self.pair(position).map(|other| &self.ops[other])
    }

    /// The operations that satisfy `keep`, indices unchanged.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&Op) -> bool) -> History {
        History::from_ops(self.ops.iter().filter(|op| keep(op)).cloned().collect())
    }

    /// Clients' operations only.
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
    pairs
}
