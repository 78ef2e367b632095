//! A set that is read at the end.

use super::element::{Element, elements};
use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Elements are added (`add`), and the last read (`read`) must have every one whose addition succeeded, and none that
/// nobody tried to add: Jepsen's `set`.
///
/// Anomalies: `lost` (added before the last read began, but not there) and `unexpected` (there, but no `add` of it was
/// ever invoked). Elements are `recovered` when their addition was indeterminate and they are there. Without a read, and
/// when elements were added after it began, the answer is unknown. Its downside: it looks at the last read only;
/// [`super::SetFull`] looks at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set;

/// What is known of one set.
#[derive(Default)]
pub(crate) struct State {
    added: BTreeMap<Element, Added>,
    /// Of the read that completed last: where it began, its index, and its value.
    read: Option<(u64, u64, Value)>,
}

#[derive(Clone, Copy)]
struct Added {
    invoked: u64,
    /// Index of the completion.
    acknowledged: Option<u64>,
}

impl Judge for Set {
    type State = State;
    const NAME: &'static str = "set";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
        match (event.kind, event.f == "add") {
            (OpType::Invoke, true) => {
                let added = Added {
                    invoked: event.index,
                    acknowledged: None,
                };
                state.added.entry(event.value.into()).or_insert(added);
            }
            (OpType::Ok, true) => {
                let element = Element::from(event.argument());
                let added = state.added.entry(element).or_insert(Added {
                    invoked: event.started(),
                    acknowledged: None,
                });
                added.acknowledged.get_or_insert(event.index);
            }
            (OpType::Ok, false) if !matches!(event.value, Value::Nil) => {
                state.read = Some((event.started(), event.index, event.value.clone()));
            }
            _ => {}
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        let State { added, read } = state;
        outcome.count("attempts", added.len() as u64);
        let acknowledged = added.values().filter(|one| one.acknowledged.is_some());
        outcome.count("acknowledged", acknowledged.count() as u64);
        let Some((began, index, value)) = read else {
            return outcome.silent("the set was never read");
        };
        let Some(read) = elements(&value) else {
            return outcome.unknown(format!("op {index}: the read saw {value}, which is no set"));
        };
        let read: BTreeSet<Element> = read.into_iter().collect();
        let mut lost = Vec::new();
        let (mut present, mut recovered, mut unread) = (0, Vec::new(), 0);
        for (element, one) in &added {
            match (read.contains(element), one.acknowledged) {
                (true, None) => recovered.push(element),
                (true, Some(_)) => present += 1,
                (false, None) => {}
                (false, Some(completion)) if completion > began => unread += 1,
                (false, Some(completion)) => {
                    lost.push(element);
                    outcome.anomaly("lost", || {
                        let summary = format!(
                            "The addition of {element} (op {}) succeeded (op {completion}), but the last read (op \
                             {index}) does not have it.",
                            one.invoked
                        );
                        (vec![completion, index], summary)
                    });
                }
            }
        }
        let unexpected: Vec<&Element> =
            read.iter().filter(|one| !added.contains_key(one)).collect();
        for element in &unexpected {
            outcome.anomaly("unexpected", || {
                let summary =
                    format!("The last read (op {index}) has {element}, which nobody ever added.");
                (vec![index], summary)
            });
        }
        outcome.count("present", present + recovered.len() as u64);
        outcome.count("unread", unread);
        if unread > 0 {
            outcome.unknown(format!(
                "{unread} elements were added after the last read (op {index}) began"
            ));
        }
        outcome.list("lost", lost.into_iter());
        outcome.list("recovered", recovered.into_iter());
        outcome.list("unexpected", unexpected.into_iter());
    }
}

impl Checker for Set {
    fn name(&self) -> &'static str {
        Set::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
