//! The explanation of a violation, in words.

use super::model::{Action, Model, StateId};
use super::object::{LinearObject, ObjectOperation};
use super::search::Counterexample;
use seatrial_checker::Finding;
use seatrial_history::{History, Op};
use std::fmt::Write as _;

/// Operations of the prefix, states, and concurrent operations that are listed; there may be thousands.
const LISTED_MAX: usize = 8;

/// The name of the anomaly.
pub(super) const NONLINEARIZABLE: &str = "nonlinearizable";

/// The finding of one object, for a person to check by hand.
pub(super) fn finding(
    history: &History,
    model: Model,
    object: &LinearObject,
    counterexample: &Counterexample,
) -> Finding {
    let explanation = Explanation {
        history,
        model,
        object,
    };
    let mut text = explanation.headline(counterexample);
    explanation.prefix(counterexample, &mut text);
    explanation.states(counterexample, &mut text);
    explanation.concurrent(counterexample, &mut text);
    explanation.finding(counterexample, text)
}

struct Explanation<'a> {
    history: &'a History,
    model: Model,
    object: &'a LinearObject,
}

impl Explanation<'_> {
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
        let position = self.object.entries[entry].call as usize;
        let ObjectOperation { ret, .. } = self.object.entries[entry];
        let position = if self.object.entries[entry].is_required() {
            ret as usize
        } else {
            self.history.pair(position).unwrap_or(position)
        };
        &self.history.ops()[position]
    }

    fn value(&self, state: StateId) -> String {
        self.object.values.get(state).to_string()
    }

    /// The operation in words: "read 3", "cas from 1 to 2".
    fn describe(&self, entry: usize) -> String {
        let f = self.op(entry).f;
        match self.object.entries[entry].action {
            _ if self.model == Model::Mutex => f.to_string(),
            Action::Read(value) | Action::Write(value) | Action::Append(value) => {
                format!("{f} {}", self.value(value))
            }
            Action::Cas(from, to) => format!("{f} from {} to {}", self.value(from), self.value(to)),
        }
    }

    /// Process and index: "process 3, op 14".
    fn origin(&self, entry: usize) -> String {
        let op = self.op(entry);
        format!("process {}, op {}", op.process, op.index)
    }

    fn headline(&self, counterexample: &Counterexample) -> String {
        let entry = counterexample.entry;
        let key = match &self.object.key {
            Some(key) => format!("Key {key}: "),
            None => String::new(),
        };
        let call = self.object.entries[entry].call as usize;
        format!(
            "{key}{} ({}) cannot be linearized: it took place between op {} and op {}, and no order \
             of the operations before and beside it allows it.",
            self.describe(entry),
            self.origin(entry),
            self.history.ops()[call].index,
            self.op(entry).index,
        )
    }

    fn prefix(&self, counterexample: &Counterexample, text: &mut String) {
        let Some(prefix) = &counterexample.prefix else {
            return;
        };
        if prefix.is_empty() {
            text.push_str("\nNothing could take place before it.");
            return;
        }
        let skipped = prefix.len().saturating_sub(LISTED_MAX);
        let _ = write!(
            text,
            "\nThe longest order that works has {} {}",
            prefix.len(),
            if prefix.len() == 1 {
                "operation"
            } else {
                "operations"
            },
        );
        text.push_str(if skipped > 0 { "; it ends with:" } else { ":" });
        for &(entry, state) in &prefix[skipped..] {
            let (operation, origin) = (self.describe(entry), self.origin(entry));
            let _ = write!(text, "\n  {operation} ({origin}), then {}", self.is(state));
        }
    }

    /// The state in words: "it is 3".
    fn is(&self, state: StateId) -> String {
        match self.object.values.get(state) {
            seatrial_history::Value::Text(name) if self.model == Model::Mutex => {
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
            let fate = if self.object.entries[entry].is_required() {
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
