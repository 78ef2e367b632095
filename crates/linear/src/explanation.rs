//! The explanation of a violation, in words.

use crate::model::{Action, Model, Taken};
use crate::object::{LinearObject, ObjectOperation};
use crate::search::Counterexample;
use crate::values::{ObjectStates, StateId};
use seatrial_checker::Finding;
use seatrial_history::{FixedMap, Key, Op, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Operations of the prefix, states, and concurrent operations that are listed; there may be thousands.
const LISTED_MAX: usize = 8;

/// The name of the anomaly.
pub(crate) const NONLINEARIZABLE: &str = "nonlinearizable";

/// What is kept of one object that is not linearizable: the operations that its finding names.
pub(crate) struct ViolationExcerpt<'v> {
    model: Model,
    key: Option<Key>,
    /// The entries that the finding names, each with the position of its completion (of its invocation, if it never completed).
    entries: BTreeMap<usize, (ObjectOperation, u32)>,
    states: ObjectStates<'v>,
    counterexample: Counterexample,
    /// Operations of the longest linearizable prefix, of which the last are in the counterexample.
    prefix_length: usize,
    /// Operations of the object.
    operations: usize,
}

/// The excerpt with the operations that it names.
struct Words<'a> {
    excerpt: &'a ViolationExcerpt<'a>,
    ops: &'a BTreeMap<u64, Op>,
}

impl<'v> ViolationExcerpt<'v> {
    /// What a finding about this object needs. `indeterminate` has the positions of the completions of operations of unknown
    /// outcome, by that of the invocation.
    pub(crate) fn new(
        model: Model,
        object: &LinearObject,
        counterexample: &Counterexample,
        states: ObjectStates<'v>,
        indeterminate: &FixedMap<u32, u32>,
    ) -> ViolationExcerpt<'v> {
        let mut counterexample = counterexample.clone();
        let prefix = counterexample.prefix.as_mut();
        let prefix_length = prefix.map_or(0, |prefix| {
            let length = prefix.len();
            prefix.drain(..length.saturating_sub(LISTED_MAX));
            length
        });
        let prefix = counterexample.prefix.iter().flatten();
        let prefix = prefix.map(|&(entry, _)| entry);
        let concurrent = counterexample.concurrent.iter().take(LISTED_MAX).copied();
        let listed = std::iter::once(counterexample.entry)
            .chain(prefix)
            .chain(concurrent);
        let entries = listed.map(|number| {
            let entry = object.entries[number];
            let end = if entry.is_required() {
                entry.ret
            } else {
                let end = indeterminate.get(&entry.call);
                end.copied().unwrap_or(entry.call)
            };
            (number, (entry, end))
        });
        ViolationExcerpt {
            model,
            key: object.key.clone(),
            entries: entries.collect(),
            states,
            counterexample,
            prefix_length,
            operations: object.entries.len(),
        }
    }

    /// Positions of the operations that the finding names.
    pub(crate) fn positions(&self) -> BTreeSet<u64> {
        let (first, _) = self.entries[&self.counterexample.entry];
        let ends = self.entries.values().map(|&(_, end)| end);
        ends.chain([first.call]).map(u64::from).collect()
    }

    /// The finding; `ops` are the operations at [`ViolationExcerpt::positions`]. `None` if one is missing.
    pub(crate) fn finding(&self, ops: &BTreeMap<u64, Op>) -> Option<Finding> {
        if !self.positions().iter().all(|at| ops.contains_key(at)) {
            return None;
        }
        let words = Words { excerpt: self, ops };
        let counterexample = &self.counterexample;
        let mut text = words.headline(counterexample);
        words.part(counterexample, &mut text);
        words.prefix(counterexample, &mut text);
        words.states(counterexample, &mut text);
        words.concurrent(counterexample, &mut text);
        Some(words.finding(counterexample, text))
    }
}

impl Words<'_> {
    /// The finding with this text.
    fn finding(&self, counterexample: &Counterexample, text: String) -> Finding {
        let last = counterexample
            .prefix
            .iter()
            .flatten()
            .rev()
            .take(1)
            .map(|&(entry, _)| entry);
        let listed = counterexample.concurrent.iter().copied().take(LISTED_MAX);
        let mut operations: Vec<u64> = Vec::new();
        for entry in std::iter::once(counterexample.entry)
            .chain(last)
            .chain(listed)
        {
            let index = self.op(entry).index;
            if !operations.contains(&index) {
                operations.push(index);
            }
        }
        Finding {
            anomaly: NONLINEARIZABLE,
            summary: text,
            operations,
            steps: Vec::new(),
        }
    }

    /// The completion of an operation, or its invocation if it never completed.
    fn op(&self, entry: usize) -> &Op {
        let (_, end) = self.excerpt.entries[&entry];
        &self.ops[&u64::from(end)]
    }

    fn entry(&self, entry: usize) -> ObjectOperation {
        let (entry, _) = self.excerpt.entries[&entry];
        entry
    }

    fn value(&self, state: StateId) -> String {
        self.excerpt.states.get(state).to_string()
    }

    /// The operation in words: "read 3", "cas from 1 to 2".
    fn describe(&self, entry: usize) -> String {
        let f = self.op(entry).f;
        match self.entry(entry).action {
            _ if self.excerpt.model == Model::Mutex => f.to_string(),
            Action::Read(value) | Action::Write(value) | Action::Append(value) => {
                format!("{f} {}", self.value(value))
            }
            Action::Cas(from, to) => format!("{f} from {} to {}", self.value(from), self.value(to)),
            Action::Put(_, element) | Action::Increment(element) => {
                format!("{f} {}", self.value(element))
            }
            Action::TakeAny(..) => format!("{f} of unknown result"),
            Action::Take(_, taken) | Action::Peek(_, taken) => match taken {
                Taken::Element(element) => format!("{f} {}", self.value(element)),
                Taken::Nothing => format!("{f} of nothing"),
                Taken::Unknown => format!("{f} of unknown result"),
            },
        }
    }

    /// Process and index: "process 3, op 14".
    fn origin(&self, entry: usize) -> String {
        let op = self.op(entry);
        format!("process {}, op {}", op.process, op.index)
    }

    fn headline(&self, counterexample: &Counterexample) -> String {
        let entry = counterexample.entry;
        let key = match &self.excerpt.key {
            Some(key) => format!("Key {key}: "),
            None => String::new(),
        };
        let call = u64::from(self.entry(entry).call);
        format!(
            "{key}{} ({}) cannot be linearized: it took place between op {} and op {}, and no order \
             of the operations before and beside it allows it.",
            self.describe(entry),
            self.origin(entry),
            self.ops[&call].index,
            self.op(entry).index,
        )
    }

    /// How many operations suffice, if these are not all.
    fn part(&self, counterexample: &Counterexample, text: &mut String) {
        if let Some(all) = counterexample.out_of {
            let part = self.excerpt.operations;
            let _ = write!(
                text,
                "\nOf the {all} operations, these {part} alone have no order; what follows is about them."
            );
        }
    }

    fn prefix(&self, counterexample: &Counterexample, text: &mut String) {
        let Some(prefix) = &counterexample.prefix else {
            return;
        };
        if prefix.is_empty() {
            text.push_str("\nNothing could take place before it.");
            return;
        }
        let length = self.excerpt.prefix_length;
        let noun = if length == 1 {
            "operation"
        } else {
            "operations"
        };
        let _ = write!(text, "\nThe longest order that works has {length} {noun}");
        let is_cut = length > prefix.len();
        text.push_str(if is_cut { "; it ends with:" } else { ":" });
        for &(entry, state) in prefix {
            let (operation, origin) = (self.describe(entry), self.origin(entry));
            let _ = write!(text, "\n  {operation} ({origin}), then {}", self.is(state));
        }
    }

    /// The state in words: "it is 3".
    fn is(&self, state: StateId) -> String {
        match self.excerpt.states.state(state) {
            Value::Text(name) if self.excerpt.model == Model::Mutex => {
                format!("it is {name}")
            }
            value => format!("it is {value}"),
        }
    }

    fn states(&self, counterexample: &Counterexample, text: &mut String) {
        if counterexample.is_unfounded {
            text.push_str("\nNothing that began before its end leads to the state that it needs.");
            return;
        }
        let listed = counterexample.states.iter().take(LISTED_MAX);
        let listed: Vec<_> = listed.map(|&state| self.is(state)).collect();
        let states = listed.join(" or ").replace("or it is ", "or ");
        let more = counterexample.states.len().saturating_sub(LISTED_MAX);
        let _ = write!(text, "\nOver all orders, when it must take place {states}");
        if more > 0 {
            let _ = write!(text, " or one of {more} others");
        }
        text.push('.');
    }

    fn concurrent(&self, counterexample: &Counterexample, text: &mut String) {
        if counterexample.concurrent.is_empty() {
            text.push_str("\nNothing is concurrent with its end.");
            return;
        }
        text.push_str("\nConcurrent with its end:");
        for &entry in counterexample.concurrent.iter().take(LISTED_MAX) {
            let fate = if self.entry(entry).is_required() {
                ""
            } else {
                ", of unknown outcome"
            };
            let _ = write!(
                text,
                "\n  {} ({}{fate})",
                self.describe(entry),
                self.origin(entry)
            );
        }
        let more = counterexample.concurrent.len().saturating_sub(LISTED_MAX);
        if more > 0 {
            let _ = write!(text, "\n  and {more} more");
        }
    }
}
