//! A violation that was seen while it happened, in words.

use super::Words;
use super::lane::{Cell, Refuted};
use crate::Finding;
use crate::linear::entry::{Entry, NEVER, Object};
use crate::linear::explain;
use crate::linear::model::{Model, Values, action, shape};
use crate::linear::search::Stuck as Found;
use seatrial_history::{History, Key, Op};
use std::collections::{BTreeMap, BTreeSet};

/// An operation that no order can place in time.
#[derive(Clone, Debug)]
pub(super) struct Stuck {
    pub(super) refuted: Refuted,
}

impl Stuck {
    /// Where the operations stand that the story is about.
    pub(super) fn positions(&self) -> BTreeSet<u64> {
        let refuted = &self.refuted;
        let known = refuted
            .operation
            .iter()
            .chain(refuted.concurrent.iter().flatten());
        let unknown = refuted.unknown.iter();
        let unknown = unknown.flat_map(|&(call, end)| std::iter::once(call).chain(end));
        known.copied().chain(unknown).collect()
    }

    /// The story, with the operations that it is about.
    pub(super) fn finding(
        &self,
        model: Model,
        key: Option<&Key>,
        ops: &BTreeMap<u64, Op>,
        words: &Words,
    ) -> Finding {
        let history = History::from_ops(ops.values().cloned().collect());
        let numbers: BTreeMap<u64, u32> = ops.keys().copied().zip(0..).collect();
        let mut values = Values::new(model);
        let mut entries = Vec::new();
        let refuted = &self.refuted;
        let known = std::iter::once(&refuted.operation).chain(&refuted.concurrent);
        let known = known.map(|&[call, end]| (call, Some(end), true));
        let unknown = refuted.unknown.iter();
        let unknown = unknown.map(|&(call, end)| (call, end, false));
        for (call, end, is_required) in known.chain(unknown) {
            let number = |at: u64| numbers.get(&at).copied();
            let (Some(call_number), Some(invocation)) = (number(call), ops.get(&call)) else {
                continue;
            };
            let completion = end.and_then(|end| ops.get(&end));
            if let Ok(Some(shape)) = shape(model, invocation, completion) {
                let end = end.filter(|_| is_required).and_then(number);
                entries.push(Entry {
                    action: action(&shape, &mut values),
                    call: call_number,
                    ret: end.unwrap_or(NEVER),
                });
            }
        }
        let cells = refuted.states.iter();
        let states = cells.map(|&cell: &Cell| values.intern(&words.value(cell)));
        let stuck = Found {
            entry: 0,
            prefix: Vec::new(),
            states: states.collect(),
            concurrent: (1..entries.len()).collect(),
            is_unfounded: false,
        };
        let object = Object {
            key: key.cloned(),
            entries,
            values,
        };
        explain::finding_of_moment(&history, model, &object, &stuck)
    }
}
