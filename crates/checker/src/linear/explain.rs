//! A violation in words.

use super::entry::{Entry, Object};
use super::model::{Action, Model, State};
use super::search::Stuck;
use crate::Finding;
use seatrial_history::{History, Op};
use std::fmt::Write as _;

/// Operations of the prefix, states and concurrent operations that are told; there may be thousands.
const TOLD_MAX: usize = 8;

/// The name of the anomaly.
pub(super) const NONLINEARIZABLE: &str = "nonlinearizable";

/// What went wrong with one object, for a person to check by hand.
pub(super) fn finding(history: &History, model: Model, object: &Object, stuck: &Stuck) -> Finding {
    let story = Story {
        history,
        model,
        object,
    };
    let mut text = story.headline(stuck);
    story.prefix(stuck, &mut text);
    story.states(stuck, &mut text);
    story.concurrent(stuck, &mut text);
    story.told(stuck, text)
}

/// The same when only the last moment is known: what was under way then, and what the object may have held.
pub(super) fn finding_of_moment(
    history: &History,
    model: Model,
    object: &Object,
    stuck: &Stuck,
) -> Finding {
    let story = Story {
        history,
        model,
        object,
    };
    let mut text = story.headline(stuck);
    story.states(stuck, &mut text);
    story.concurrent(stuck, &mut text);
    story.told(stuck, text)
}

struct Story<'a> {
    history: &'a History,
    model: Model,
    object: &'a Object,
}

impl Story<'_> {
    /// The finding with this text.
    fn told(&self, stuck: &Stuck, text: String) -> Finding {
        let last = stuck.prefix.iter().rev().take(1).map(|&(entry, _)| entry);
        let told = stuck.concurrent.iter().copied().take(TOLD_MAX);
        let mut operations: Vec<u64> = Vec::new();
        for entry in std::iter::once(stuck.entry).chain(last).chain(told) {
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

    /// The operation's completion, or its invocation when it never completed.
    fn op(&self, entry: usize) -> &Op {
        let position = self.object.entries[entry].call as usize;
        let Entry { ret, .. } = self.object.entries[entry];
        let position = if self.object.entries[entry].is_required() {
            ret as usize
        } else {
            self.history.pair(position).unwrap_or(position)
        };
        &self.history.ops()[position]
    }

    fn value(&self, state: State) -> String {
        self.object.values.get(state).to_string()
    }

    /// What the operation does: "read 3", "cas from 1 to 2".
    fn deed(&self, entry: usize) -> String {
        let f = self.op(entry).f;
        match self.object.entries[entry].action {
            _ if self.model == Model::Mutex => f.to_string(),
            Action::Read(value) | Action::Write(value) | Action::Append(value) => {
                format!("{f} {}", self.value(value))
            }
            Action::Cas(from, to) => format!("{f} from {} to {}", self.value(from), self.value(to)),
        }
    }

    /// Who did it and where it stands: "process 3, op 14".
    fn place(&self, entry: usize) -> String {
        let op = self.op(entry);
        format!("process {}, op {}", op.process, op.index)
    }

    fn headline(&self, stuck: &Stuck) -> String {
        let entry = stuck.entry;
        let key = match &self.object.key {
            Some(key) => format!("Key {key}: "),
            None => String::new(),
        };
        let call = self.object.entries[entry].call as usize;
        format!(
            "{key}{} ({}) cannot be linearized: it took place between op {} and op {}, and no order \
             of the operations before and beside it allows it.",
            self.deed(entry),
            self.place(entry),
            self.history.ops()[call].index,
            self.op(entry).index,
        )
    }

    fn prefix(&self, stuck: &Stuck, text: &mut String) {
        let prefix = &stuck.prefix;
        if prefix.is_empty() {
            text.push_str("\nNothing could take place before it.");
            return;
        }
        let skipped = prefix.len().saturating_sub(TOLD_MAX);
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
            let (deed, place) = (self.deed(entry), self.place(entry));
            let _ = write!(text, "\n  {deed} ({place}), then {}", self.is(state));
        }
    }

    /// The state in words: "it is 3".
    fn is(&self, state: State) -> String {
        match self.object.values.get(state) {
            seatrial_history::Value::Text(name) if self.model == Model::Mutex => {
                format!("it is {name}")
            }
            value => format!("it is {value}"),
        }
    }

    fn states(&self, stuck: &Stuck, text: &mut String) {
        if stuck.is_unfounded {
            text.push_str("\nNothing that began before its end leads to the state that it needs.");
            return;
        }
        let told = stuck.states.iter().take(TOLD_MAX);
        let told: Vec<_> = told.map(|&state| self.is(state)).collect();
        let states = told.join(" or ").replace("or it is ", "or ");
        let more = stuck.states.len().saturating_sub(TOLD_MAX);
        let _ = write!(text, "\nOver all orders, when it must take place {states}");
        if more > 0 {
            let _ = write!(text, " or one of {more} others");
        }
        text.push('.');
    }

    fn concurrent(&self, stuck: &Stuck, text: &mut String) {
        if stuck.concurrent.is_empty() {
            text.push_str("\nNothing is concurrent with its end.");
            return;
        }
        text.push_str("\nConcurrent with its end:");
        for &entry in stuck.concurrent.iter().take(TOLD_MAX) {
            let fate = if self.object.entries[entry].is_required() {
                ""
            } else {
                ", of unknown outcome"
            };
            let _ = write!(
                text,
                "\n  {} ({}{fate})",
                self.deed(entry),
                self.place(entry)
            );
        }
        let more = stuck.concurrent.len().saturating_sub(TOLD_MAX);
        if more > 0 {
            let _ = write!(text, "\n  and {more} more");
        }
    }
}
