//! The counterexample of an online check, and its finding.

use super::InternedWords;
use super::jit_linearizer::{Cell, Refuted};
use crate::explanation::{ActionWords, ViolationExcerpt};
use crate::linearization_search::Counterexample;
use crate::model::{Model, action, shape};
use crate::object::{NEVER, ObjectOperation};
use crate::values::{NumberedValues, ObjectStates};
use seatrial_checker::Finding;
use seatrial_history::{FixedMap, Key, Op};
use std::collections::{BTreeMap, BTreeSet};

/// An operation that no order can linearize before its completion.
#[derive(Clone, Debug)]
pub(super) struct OnlineCounterexample {
    pub(super) refuted: Refuted,
}

impl OnlineCounterexample {
    /// Positions of the operations that the finding names.
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

    /// The finding; `ops` are the operations at [`OnlineCounterexample::positions`].
    pub(super) fn finding(
        &self,
        model: Model,
        key: Option<&Key>,
        ops: &BTreeMap<u64, Op>,
        words: &InternedWords,
    ) -> Finding {
        // The positions that it names, numbered: positions of any length fit into the entries.
        let numbers: BTreeMap<u64, u32> = ops.keys().copied().zip(0..).collect();
        let named = (0u64..).zip(ops.values().cloned()).collect();
        let mut values = NumberedValues::new(model);
        let mut indeterminate = FixedMap::default();
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
                let end = end.and_then(number);
                if let Some(end) = end.filter(|_| !is_required) {
                    indeterminate.insert(call_number, end);
                }
                entries.push(ObjectOperation {
                    action: action(&shape, &mut values),
                    call: call_number,
                    ret: end.filter(|_| is_required).unwrap_or(NEVER),
                });
            }
        }
        let cells = refuted.states.iter();
        let states = cells.map(|&cell: &Cell| values.intern(&words.value(cell)));
        let counterexample = Counterexample {
            entry: 0,
            prefix: None,
            states: states.collect(),
            concurrent: (1..entries.len()).collect(),
            is_unfounded: false,
            out_of: None,
        };
        let states = ObjectStates::new(model, &values);
        let words = ActionWords {
            model,
            states: &states,
        };
        let excerpt =
            ViolationExcerpt::new((key, &entries[..]), &counterexample, &words, &indeterminate);
        let finding = excerpt.finding(&named);
        finding.expect("the operations that it names are there")
    }
}
