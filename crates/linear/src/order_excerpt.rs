//! The longest order that works, kept as data for a finding.

use crate::essential::Essential;
use crate::explanation::ObjectWords;
use crate::linearization_search::Counterexample;
use crate::object::ObjectOperation;
use crate::values::StateId;
use seatrial_checker::{EssentialOperations, LinearizationPoint, LinearizationWitness};
use std::collections::{BTreeMap, BTreeSet};

const POINTS_MAX: usize = LinearizationWitness::POINTS_MAX;
const CONCURRENT_MAX: usize = LinearizationWitness::CONCURRENT_MAX;
const STATES_MAX: usize = LinearizationWitness::STATES_MAX;

/// A [`LinearizationWitness`] before its operations have indices: entries of the object, and states as text.
pub(crate) struct OrderExcerpt {
    failed: usize,
    /// The last entries of the order, with the state after each.
    points: Vec<(usize, String)>,
    left_out: usize,
    /// The state before these.
    before: String,
    states: Vec<String>,
    states_left_out: usize,
    concurrent: Vec<usize>,
    concurrent_left_out: usize,
    essential: Option<Essential>,
    /// Operations that are not essential.
    others: usize,
    /// By entry that is named: the position of its completion, or of its invocation if it never completed.
    ends: BTreeMap<usize, u32>,
}

impl OrderExcerpt {
    /// The order of a counterexample; `None` if it has none. `end` returns the position of the completion of an entry, or of its
    /// invocation.
    pub(crate) fn new<A: Copy>(
        operations: &[ObjectOperation<A>],
        counterexample: &Counterexample,
        words: &impl ObjectWords<A>,
        end: impl Fn(&ObjectOperation<A>) -> u32,
    ) -> Option<OrderExcerpt> {
        let prefix = counterexample.prefix.as_ref()?;
        let left_out = prefix.len().saturating_sub(POINTS_MAX);
        let before = left_out.checked_sub(1).map_or(0, |last| prefix[last].1);
        let points = prefix[left_out..].iter();
        let points: Vec<(usize, String)> = points
            .map(|&(entry, state)| (entry, words.state_text(state)))
            .collect();
        let concurrent = counterexample.concurrent.iter().take(CONCURRENT_MAX);
        let concurrent: Vec<usize> = concurrent.copied().collect();
        // Where nothing leads to the state that is needed, the search ended before it knew all states.
        let states: &[StateId] = if counterexample.is_unfounded {
            &[]
        } else {
            &counterexample.states
        };
        let states_listed = states.iter().take(STATES_MAX);
        let named = std::iter::once(counterexample.entry)
            .chain(points.iter().map(|&(entry, _)| entry))
            .chain(concurrent.iter().copied());
        let ends = named.map(|entry| (entry, end(&operations[entry])));
        Some(OrderExcerpt {
            failed: counterexample.entry,
            ends: ends.collect(),
            points,
            left_out,
            before: words.state_text(before),
            states: states_listed.map(|&one| words.state_text(one)).collect(),
            states_left_out: states.len().saturating_sub(STATES_MAX),
            concurrent_left_out: counterexample.concurrent.len() - concurrent.len(),
            concurrent,
            essential: None,
            others: 0,
        })
    }

    /// Adds the essential operations; `all` is the number of operations of the object, if these are a part of it.
    pub(crate) fn set_essential<A: Copy>(
        &mut self,
        operations: &[ObjectOperation<A>],
        all: Option<usize>,
        essential: Essential,
        end: impl Fn(&ObjectOperation<A>) -> u32,
    ) {
        if essential.entries.len() > POINTS_MAX {
            return;
        }
        // A removal of unknown outcome may stand for several entries, which have one call and no completion. Successes without
        // an invocation have one call as well, but a completion each.
        let times = |entry: &ObjectOperation<A>| (entry.call, entry.ret);
        let until = operations
            .iter()
            .filter(|entry| entry.call <= essential.until);
        let mut others: BTreeSet<(u32, u32)> = until.map(times).collect();
        for &entry in &essential.entries {
            others.remove(&times(&operations[entry]));
        }
        // The operations outside of a part may be left out altogether.
        let all = all.unwrap_or(operations.len());
        self.others = others.len() + all.saturating_sub(operations.len());
        let named = essential.entries.iter();
        self.ends
            .extend(named.map(|&entry| (entry, end(&operations[entry]))));
        self.essential = Some(essential);
    }

    /// Positions of the operations that it names.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.values().copied()
    }

    /// The witness; `index` returns the index of the operation at a position.
    pub(crate) fn witness(&self, index: impl Fn(u32) -> u64) -> LinearizationWitness {
        let index = |entry: &usize| index(self.ends[entry]);
        let points = self.points.iter();
        let points = points.map(|(entry, state)| LinearizationPoint {
            operation: index(entry),
            state: state.clone(),
        });
        let essential = self.essential.as_ref();
        LinearizationWitness {
            operation: index(&self.failed),
            order: points.collect(),
            left_out: self.left_out as u64,
            before: self.before.clone(),
            states: self.states.clone(),
            states_left_out: self.states_left_out as u64,
            concurrent: self.concurrent.iter().map(index).collect(),
            concurrent_left_out: self.concurrent_left_out as u64,
            essential: essential.map(|essential| EssentialOperations {
                operations: essential.entries.iter().map(index).collect(),
                others: self.others as u64,
                is_minimal: essential.is_minimal,
            }),
        }
    }
}
