//! The peeks of each value.

use super::value_table::ValueTable;
use std::ops::Range;

/// A compressed-row table from values to numbers of peeks, in the order of the history. 4 bytes for each peek and value;
/// nothing without peeks.
pub(super) struct PeeksByValue {
    /// Where each value's begin in `peeks`, then the end of the last ones.
    starts: Vec<u32>,
    /// Numbers of peeks in the table.
    pub(super) peeks: Vec<u32>,
}

impl PeeksByValue {
    pub(super) fn new(table: &ValueTable) -> PeeksByValue {
        let mut starts = Vec::new();
        let mut peeks = vec![0u32; table.peeks.len()];
        if !peeks.is_empty() {
            starts.resize(table.spans.len() + 1, 0u32);
        }
        for peek in &table.peeks {
            starts[peek.value as usize] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        // Filled from the ends, so that each start ends up where its value's peeks begin.
        for (number, peek) in table.peeks.iter().enumerate().rev() {
            let start = &mut starts[peek.value as usize];
            *start -= 1;
            peeks[*start as usize] = number as u32;
        }
        debug_assert!(starts.is_sorted(), "values' ranges follow each other");
        PeeksByValue { starts, peeks }
    }

    /// Where the peeks of a value are in [`PeeksByValue::peeks`].
    pub(super) fn range(&self, value: u32) -> Range<usize> {
        let value = value as usize;
        match self.starts.get(value..value + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }

    pub(super) fn of(&self, value: u32) -> &[u32] {
        &self.peeks[self.range(value)]
    }

    /// Sorts the peeks of each value.
    pub(super) fn sort_each_by_key(&mut self, key: impl Fn(u32) -> u32) {
        for value in 1..self.starts.len() {
            let range = self.range(value as u32 - 1);
            self.peeks[range].sort_unstable_by_key(|&peek| key(peek));
        }
    }
}
