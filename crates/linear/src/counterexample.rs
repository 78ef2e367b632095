//! The counterexample of a search that found no linearization.

use super::linearization_search::{Counterexample, NONE, Search, Transitions};
use super::values::StateId;

impl<T: Transitions> Search<'_, T> {
    /// The furthest point reached: the operation that cannot be linearized there, the longest prefix, the possible states.
    pub(crate) fn counterexample(&mut self) -> Counterexample {
        let records = 0..self.table.len() as u32;
        let furthest = records.clone().map(|record| self.table.key(record).0).max();
        let Some(furthest) = furthest else {
            return Counterexample::default();
        };
        let here = records.filter(|&record| self.table.key(record).0 == furthest);
        let here: Vec<u32> = here.collect();
        let mut states: Vec<_> = here
            .iter()
            .map(|&record| self.table.key(record).1)
            .collect();
        states.sort_unstable();
        states.dedup();
        let linearized = |record: &u32| -> u32 {
            let mask = self.table.mask(*record);
            mask.iter().map(|word| word.count_ones()).sum()
        };
        // Of equals, the one found first.
        let best = here
            .iter()
            .copied()
            .max_by_key(|record| (linearized(record), std::cmp::Reverse(*record)))
            .unwrap_or(0);
        let prefix = self.prefix(best);
        let prefix = self.place_absorbed(prefix);
        self.restore(best);
        let waiting = self.next_completion().unwrap_or_default();
        let entry = waiting as usize;
        let mut concurrent = self.open();
        concurrent.retain(|&other| other != entry);
        concurrent.sort_unstable();
        Counterexample {
            entry,
            prefix: Some(prefix),
            states,
            concurrent,
            is_unfounded: self.is_unfounded(waiting),
            out_of: None,
        }
    }

    /// The order of operations that led to a record, with the state after each.
    pub(crate) fn prefix(&mut self, record: u32) -> Vec<(usize, StateId)> {
        let mut path = vec![self.table.parent(record)];
        while let Some(&(parent, _)) = path.last()
            && parent != NONE
        {
            path.push(self.table.parent(parent));
        }
        let steps = path.into_iter().rev();
        steps
            .flat_map(|(parent, via)| self.replay(parent, via))
            .collect()
    }
}
