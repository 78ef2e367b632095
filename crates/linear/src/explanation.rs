//! The explanation of a violation, in words.

use crate::essential::Essential;
use crate::linearization_search::Counterexample;
use crate::model::{Action, Model, Taken};
use crate::object::ObjectOperation;
use crate::order_excerpt::OrderExcerpt;
use crate::values::{ObjectStates, StateId, bounded_text};
use seatrial_checker::{EssentialOperations, Finding, LinearizationWitness};
use seatrial_history::{FixedMap, Key, Op, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Operations of the prefix, states, and concurrent operations that are listed; there may be thousands.
const LISTED_MAX: usize = 8;

/// The name of the anomaly.
pub(crate) const NONLINEARIZABLE: &str = "nonlinearizable";

/// The words of a data type for its actions and states.
pub(crate) trait ObjectWords<A> {
    /// What follows the name of the function: " 3", " from 1 to 2", or nothing.
    fn argument(&self, action: A) -> String;

    /// The state in words: "it is 3".
    fn state(&self, state: StateId) -> String;

    /// The state as a bounded text: "3".
    fn state_text(&self, state: StateId) -> String {
        let words = self.state(state);
        let text = words.strip_prefix("it is ").unwrap_or(&words);
        bounded_text(text, LinearizationWitness::STATE_LENGTH_MAX)
    }
}

/// The words of a [`Model`].
pub(crate) struct ActionWords<'a> {
    pub(crate) model: Model,
    pub(crate) states: &'a ObjectStates<'a>,
}

impl ObjectWords<Action> for ActionWords<'_> {
    fn argument(&self, action: Action) -> String {
        let value = |state| self.states.get(state).to_string();
        match action {
            _ if self.model == Model::Mutex => String::new(),
            Action::Read(value_of)
            | Action::Write(value_of)
            | Action::Append(value_of)
            | Action::Put(_, value_of)
            | Action::Increment(value_of) => format!(" {}", value(value_of)),
            Action::Cas(from, to) => format!(" from {} to {}", value(from), value(to)),
            Action::TakeAny(..) => " of unknown result".into(),
            Action::Take(_, taken) | Action::Peek(_, taken) => match taken {
                Taken::Element(element) => format!(" {}", value(element)),
                Taken::Nothing => " of nothing".into(),
                Taken::Unknown => " of unknown result".into(),
            },
        }
    }

    fn state(&self, state: StateId) -> String {
        match self.states.state(state) {
            Value::Text(name) if self.model == Model::Mutex => format!("it is {name}"),
            value => format!("it is {value}"),
        }
    }

    fn state_text(&self, state: StateId) -> String {
        match self.states.state(state) {
            Value::Text(name) if self.model == Model::Mutex => name.to_string(),
            _ => {
                let characters_max = LinearizationWitness::STATE_LENGTH_MAX;
                self.states.state_text(state, characters_max)
            }
        }
    }
}

/// An operation that a finding names.
struct ExcerptOperation {
    /// What follows the name of its function.
    argument: String,
    /// Position of its invocation.
    call: u32,
    /// Position of its completion; of its invocation, if it never completed.
    end: u32,
    is_required: bool,
}

/// What is kept of one object that is not linearizable: the operations that its finding names, and all words but those that are
/// read from the history again.
pub(crate) struct ViolationExcerpt {
    key: Option<Key>,
    /// By entry.
    entries: BTreeMap<usize, ExcerptOperation>,
    /// The operation that no order can linearize.
    failed: usize,
    /// The last operations of the longest linearizable prefix, with the state after each.
    prefix: Option<Vec<(usize, String)>>,
    /// Operations of that prefix.
    prefix_length: usize,
    /// The first of the possible states when the operation had to take effect.
    states: Vec<String>,
    states_length: usize,
    /// The first of the operations that were concurrent with its end.
    concurrent: Vec<usize>,
    concurrent_length: usize,
    is_unfounded: bool,
    /// Operations of the whole object, if these are a part of it.
    out_of: Option<usize>,
    /// Operations of this part.
    operations: usize,
    /// The contradiction in one line, instead of an order and states.
    reason: Option<String>,
    /// The order as data.
    order: Option<OrderExcerpt>,
}

/// The excerpt with the operations that it names.
struct ExcerptWords<'a> {
    excerpt: &'a ViolationExcerpt,
    ops: &'a BTreeMap<u64, Op>,
}

impl ViolationExcerpt {
    /// What a finding about this object needs. `indeterminate` has the positions of the completions of operations of unknown
    /// outcome, by that of the invocation.
    pub(crate) fn new<A: Copy>(
        (key, operations): (Option<&Key>, &[ObjectOperation<A>]),
        counterexample: &Counterexample,
        words: &impl ObjectWords<A>,
        indeterminate: &FixedMap<u32, u32>,
    ) -> ViolationExcerpt {
        let prefix = counterexample.prefix.as_ref();
        let prefix_length = prefix.map_or(0, Vec::len);
        let prefix = prefix.map(|prefix| {
            let last = prefix[prefix_length.saturating_sub(LISTED_MAX)..].iter();
            last.map(|&(entry, state)| (entry, words.state(state)))
                .collect::<Vec<_>>()
        });
        let concurrent = counterexample.concurrent.iter().take(LISTED_MAX).copied();
        let concurrent: Vec<usize> = concurrent.collect();
        let listed = std::iter::once(counterexample.entry)
            .chain(prefix.iter().flatten().map(|&(entry, _)| entry))
            .chain(concurrent.iter().copied());
        let entries = listed.map(|number| {
            let entry = operations[number];
            let end = end(&entry, indeterminate);
            let operation = ExcerptOperation {
                argument: words.argument(entry.action),
                call: entry.call,
                end,
                is_required: entry.is_required(),
            };
            (number, operation)
        });
        let states = counterexample.states.iter().take(LISTED_MAX);
        ViolationExcerpt {
            key: key.cloned(),
            entries: entries.collect(),
            failed: counterexample.entry,
            prefix,
            prefix_length,
            states: states.map(|&state| words.state(state)).collect(),
            states_length: counterexample.states.len(),
            concurrent,
            concurrent_length: counterexample.concurrent.len(),
            is_unfounded: counterexample.is_unfounded,
            out_of: counterexample.out_of,
            operations: operations.len(),
            reason: None,
            order: None,
        }
    }

    /// With the contradiction in one line, instead of an order and states.
    pub(crate) fn with_reason(self, reason: String) -> ViolationExcerpt {
        let reason = Some(reason);
        ViolationExcerpt { reason, ..self }
    }

    /// With the order of the counterexample as data; the other parameters are those of
    /// [`ViolationExcerpt::new`].
    pub(crate) fn with_order<A: Copy>(
        self,
        operations: &[ObjectOperation<A>],
        counterexample: &Counterexample,
        words: &impl ObjectWords<A>,
        indeterminate: &FixedMap<u32, u32>,
    ) -> ViolationExcerpt {
        let end = |entry: &ObjectOperation<A>| end(entry, indeterminate);
        let order = OrderExcerpt::new(operations, counterexample, words, end);
        ViolationExcerpt { order, ..self }
    }

    /// Adds the essential operations to the order.
    pub(crate) fn set_essential<A: Copy>(
        &mut self,
        operations: &[ObjectOperation<A>],
        essential: Essential,
        indeterminate: &FixedMap<u32, u32>,
    ) {
        let end = |entry: &ObjectOperation<A>| end(entry, indeterminate);
        if let Some(order) = &mut self.order {
            order.set_essential(operations, self.out_of, essential, end);
        }
    }

    /// Positions of the operations that the finding names.
    pub(crate) fn positions(&self) -> BTreeSet<u64> {
        let ends = self.entries.values().map(|one| one.end);
        let first = self.entries[&self.failed].call;
        let order = self.order.iter().flat_map(OrderExcerpt::positions);
        ends.chain([first]).chain(order).map(u64::from).collect()
    }

    /// The finding; `ops` are the operations at [`ViolationExcerpt::positions`]. `None` if one is missing.
    pub(crate) fn finding(&self, ops: &BTreeMap<u64, Op>) -> Option<Finding> {
        if !self.positions().iter().all(|at| ops.contains_key(at)) {
            return None;
        }
        let words = ExcerptWords { excerpt: self, ops };
        let index = |position: u32| ops[&u64::from(position)].index;
        let witness = self.order.as_ref().map(|order| order.witness(index));
        let mut text = words.headline();
        if let Some(reason) = &self.reason {
            let _ = write!(text, "\n{reason}");
            words.listed("In contradiction with:", &mut text);
        } else {
            words.part(&mut text);
            // Of a part, nearly all are essential.
            if let Some(witness) = witness.as_ref().filter(|_| self.out_of.is_none()) {
                ExcerptWords::essential(witness.essential.as_ref(), &mut text);
            }
            words.prefix(&mut text);
            words.states(&mut text);
            words.concurrent(&mut text);
        }
        Some(words.finding(text, witness))
    }
}

/// The position of the completion of an operation, or of its invocation if it never completed.
fn end<A>(entry: &ObjectOperation<A>, indeterminate: &FixedMap<u32, u32>) -> u32 {
    if entry.is_required() {
        return entry.ret;
    }
    let end = indeterminate.get(&entry.call);
    end.copied().unwrap_or(entry.call)
}

impl ExcerptWords<'_> {
    /// The finding with this text.
    fn finding(&self, text: String, witness: Option<LinearizationWitness>) -> Finding {
        let last = self.excerpt.prefix.iter().flatten().next_back();
        let mut operations: Vec<u64> = Vec::new();
        for entry in std::iter::once(self.excerpt.failed)
            .chain(last.map(|&(entry, _)| entry))
            .chain(self.excerpt.concurrent.iter().copied())
        {
            let index = self.op(entry).index;
            if !operations.contains(&index) {
                operations.push(index);
            }
        }
        let essential = witness.iter().flat_map(|one| &one.essential);
        let essential = essential.flat_map(|one| one.operations.iter().take(LISTED_MAX));
        for &index in essential {
            if !operations.contains(&index) {
                operations.push(index);
            }
        }
        Finding {
            anomaly: NONLINEARIZABLE,
            summary: text,
            operations,
            steps: Vec::new(),
            linearization: witness.map(Box::new),
        }
    }

    /// The completion of an operation, or its invocation if it never completed.
    fn op(&self, entry: usize) -> &Op {
        &self.ops[&u64::from(self.excerpt.entries[&entry].end)]
    }

    /// The operation in words: "read 3", "cas from 1 to 2".
    fn describe(&self, entry: usize) -> String {
        format!(
            "{}{}",
            self.op(entry).f,
            self.excerpt.entries[&entry].argument
        )
    }

    /// Process and index: "process 3, op 14".
    fn origin(&self, entry: usize) -> String {
        let op = self.op(entry);
        format!("process {}, op {}", op.process, op.index)
    }

    fn headline(&self) -> String {
        let entry = self.excerpt.failed;
        let key = match &self.excerpt.key {
            Some(key) => format!("Key {key}: "),
            None => String::new(),
        };
        let call = u64::from(self.excerpt.entries[&entry].call);
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
    fn part(&self, text: &mut String) {
        if let Some(all) = self.excerpt.out_of {
            let part = self.excerpt.operations;
            let _ = write!(
                text,
                "\nOf the {all} operations, these {part} alone have no order; what follows is about them."
            );
        }
    }

    /// The operations that suffice, if these are not all.
    fn essential(essential: Option<&EssentialOperations>, text: &mut String) {
        let Some(essential) = essential else {
            text.push_str("\nWhich operations suffice was not found within the bound on work.");
            return;
        };
        let others = match essential.others {
            0 => return,
            1 => "one".to_owned(),
            others => others.to_string(),
        };
        let named = match &essential.operations[..] {
            [only] => format!("Op {only} suffices"),
            [first @ .., last] if first.len() < LISTED_MAX => {
                let first: Vec<String> = first.iter().map(u64::to_string).collect();
                format!("Ops {} and {last} suffice", first.join(", "))
            }
            all => format!("{} operations suffice", all.len()),
        };
        let _ = write!(
            text,
            "\n{named}, whether or not the other {others} took effect."
        );
        if !essential.is_minimal {
            text.push_str(" Fewer may suffice: the bound on work was reached.");
        }
    }

    fn prefix(&self, text: &mut String) {
        let Some(prefix) = &self.excerpt.prefix else {
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
        for (entry, state) in prefix {
            let (operation, origin) = (self.describe(*entry), self.origin(*entry));
            let _ = write!(text, "\n  {operation} ({origin}), then {state}");
        }
    }

    fn states(&self, text: &mut String) {
        if self.excerpt.is_unfounded {
            text.push_str("\nNothing that began before its end leads to the state that it needs.");
            return;
        }
        if self.excerpt.states.is_empty() {
            return;
        }
        let states = self.excerpt.states.join(" or ").replace("or it is ", "or ");
        let more = self.excerpt.states_length - self.excerpt.states.len();
        let _ = write!(text, "\nOver all orders, when it must take place {states}");
        if more > 0 {
            let _ = write!(text, " or one of {more} others");
        }
        text.push('.');
    }

    fn concurrent(&self, text: &mut String) {
        if self.excerpt.concurrent.is_empty() {
            text.push_str("\nNothing is concurrent with its end.");
        } else {
            self.listed("Concurrent with its end:", text);
        }
    }

    /// The operations beside the one that cannot be linearized.
    fn listed(&self, heading: &str, text: &mut String) {
        if self.excerpt.concurrent.is_empty() {
            return;
        }
        let _ = write!(text, "\n{heading}");
        for &entry in &self.excerpt.concurrent {
            let fate = if self.excerpt.entries[&entry].is_required {
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
        let more = self.excerpt.concurrent_length - self.excerpt.concurrent.len();
        if more > 0 {
            let _ = write!(text, "\n  and {more} more");
        }
    }
}
