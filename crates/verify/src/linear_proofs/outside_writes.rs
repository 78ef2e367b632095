//! What the operations outside of a core of a register may do between those of the core.

use super::core_search::CoreMember;
use super::linear_model::OperationEffect as Effect;
use super::operation_table::OperationValue;
use std::collections::{BTreeMap, BTreeSet};

/// The intervals of operations with one effect, by completion, each with the earliest invocation of those from it on.
type EffectIntervals = Vec<(u32, u32)>;

/// Writes and compare-and-sets that a core does not name. Each may take effect any number of times between its invocation
/// and its completion: more than in any linearization, so what is refuted with them is refuted without.
///
/// Only values that the core reads, or compares with, matter, and those from which such compare-and-sets lead to them. Any
/// other value would be overwritten unseen.
#[derive(Default)]
pub(super) struct OutsideWrites {
    writes: BTreeMap<OperationValue, EffectIntervals>,
    /// By the value that it leads to, then the one that it needs.
    swaps: BTreeMap<OperationValue, BTreeMap<OperationValue, EffectIntervals>>,
}

impl OutsideWrites {
    /// Adds an operation by its invocation and completion.
    pub(super) fn add(&mut self, effect: Effect, call: u32, ret: u32) {
        match effect {
            Effect::Write(value) | Effect::Replace(value) => {
                self.writes.entry(value).or_default().push((ret, call));
            }
            Effect::Cas(from, to) if from != to => {
                let swaps = self.swaps.entry(to).or_default();
                swaps.entry(from).or_default().push((ret, call));
            }
            _ => {}
        }
    }

    /// Keeps what matters to these members. `absent` is the value of a map's key that reads as absent.
    pub(super) fn end(&mut self, members: &[CoreMember], absent: Option<OperationValue>) {
        let mut needed: BTreeSet<OperationValue> = BTreeSet::new();
        let mut new: Vec<OperationValue> = Vec::new();
        for member in members {
            match member.effect {
                Effect::Read(value) | Effect::Cas(value, _) => new.push(value),
                Effect::ReadAbsent => new.extend(absent),
                _ => {}
            }
        }
        while let Some(value) = new.pop() {
            if needed.insert(value)
                && let Some(swaps) = self.swaps.get(&value)
            {
                new.extend(swaps.keys());
            }
        }
        self.writes.retain(|value, _| needed.contains(value));
        self.swaps.retain(|value, _| needed.contains(value));
        let swaps = self.swaps.values_mut().flat_map(BTreeMap::values_mut);
        for intervals in self.writes.values_mut().chain(swaps) {
            intervals.sort_unstable();
            let mut earliest = u32::MAX;
            for (_, call) in intervals.iter_mut().rev() {
                earliest = earliest.min(*call);
                *call = earliest;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.swaps.is_empty()
    }

    /// The values that the register can have next, each with the earliest time, which is not after `limit`.
    pub(super) fn moves(
        &self,
        value: OperationValue,
        now: u32,
        limit: u32,
    ) -> Vec<(OperationValue, u32)> {
        let earliest = |intervals: &EffectIntervals| {
            let first = intervals.partition_point(|&(ret, _)| ret < now);
            let then = intervals.get(first).map(|&(_, call)| call.max(now))?;
            (then <= limit).then_some(then)
        };
        let mut moves = Vec::new();
        for (&to, intervals) in &self.writes {
            moves.extend(earliest(intervals).map(|then| (to, then)));
        }
        for (&to, swaps) in &self.swaps {
            let then = swaps.get(&value).and_then(earliest);
            moves.extend(then.map(|then| (to, then)));
        }
        moves
    }
}
