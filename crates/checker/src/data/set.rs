//! A set that is read at the end.

use super::data_type::{DataType, OperationEvent};
use super::element::{Element, elements};
use super::element_map::ElementMap;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType, Value};
use seatrial_machine::counted;
use std::collections::BTreeSet;

/// Elements are added (`add`), and the last read (`read`) must have every element whose addition succeeded, and none whose
/// addition was never invoked: Jepsen's `set`.
///
/// Anomalies: `lost` (added before the last read began, but not there) and `unexpected` (there, but no `add` of it was
/// ever invoked). Elements are `recovered` when their addition was indeterminate and they are there. Without a read, and
/// when elements were added after it began, the verdict is unknown. Its downside: it checks the last read only;
/// [`super::SetFull`] checks all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set;

/// The state of one set.
#[derive(Default)]
pub(crate) struct SetState {
    added: ElementMap<Addition>,
    /// The read that completed last: indices of its invocation and completion, and its value.
    read: Option<(u64, u64, SetRead)>,
}

/// What a read returned.
enum SetRead {
    Integers(Vec<i64>),
    Other(Value),
}

#[derive(Clone, Copy)]
struct Addition {
    invoked: u64,
    /// Index of the completion.
    acknowledged: Option<u64>,
}

impl DataType for Set {
    type State = SetState;
    const NAME: &'static str = "set";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];
    const INTEGER_READS: &'static [&'static str] = &["read"];

    fn apply(&self, state: &mut SetState, event: &OperationEvent<'_>) {
        match (event.kind, event.f == "add") {
            (OpType::Invoke, true) => {
                let added = Addition {
                    invoked: event.index,
                    acknowledged: None,
                };
                state.added.entry(&event.value.into(), added);
            }
            (OpType::Ok, true) => {
                let element = Element::from(event.argument());
                let absent = Addition {
                    invoked: event.started(),
                    acknowledged: None,
                };
                let added = state.added.entry(&element, absent);
                added.acknowledged.get_or_insert(event.index);
            }
            (OpType::Ok, false) if event.integers.is_some() => {
                // The memory of the read before.
                let mut integers = match state.read.take() {
                    Some((.., SetRead::Integers(integers))) => integers,
                    _ => Vec::new(),
                };
                integers.clear();
                integers.extend_from_slice(event.integers.unwrap_or_default());
                let read = SetRead::Integers(integers);
                state.read = Some((event.started(), event.index, read));
            }
            (OpType::Ok, false) if !matches!(event.value, Value::Nil) => {
                let read = SetRead::Other(event.value.clone());
                state.read = Some((event.started(), event.index, read));
            }
            _ => {}
        }
    }

    fn finish(&self, state: SetState, builder: &mut VerdictBuilder) {
        let SetState { added, read } = state;
        builder.count("attempts", added.len() as u64);
        let acknowledged = added
            .values()
            .iter()
            .filter(|one| one.acknowledged.is_some());
        builder.count("acknowledged", acknowledged.count() as u64);
        let Some((began, index, value)) = read else {
            return builder.no_evidence("the set was never read");
        };
        let read: BTreeSet<Element> = match value {
            SetRead::Integers(integers) => integers.into_iter().map(Element::Int).collect(),
            SetRead::Other(value) => {
                let Some(read) = elements(&value) else {
                    let reason = format!("op {index}: the read saw {value}, which is no set");
                    return builder.unknown(reason);
                };
                read.into_iter().collect()
            }
        };
        let mut lost = Vec::new();
        let (mut present, mut recovered, mut unread) = (0, Vec::new(), 0);
        for (element, one) in added.iter() {
            match (read.contains(&element), one.acknowledged) {
                (true, None) => recovered.push(element),
                (true, Some(_)) => present += 1,
                (false, None) => {}
                (false, Some(completion)) if completion > began => unread += 1,
                (false, Some(completion)) => {
                    builder.anomaly("lost", || {
                        let summary = format!(
                            "The addition of {element} (op {}) succeeded (op {completion}), but the last read (op \
                             {index}) does not have it.",
                            one.invoked
                        );
                        (vec![completion, index], summary)
                    });
                    lost.push(element);
                }
            }
        }
        let unexpected: Vec<&Element> = read.iter().filter(|one| !added.contains(one)).collect();
        for element in &unexpected {
            builder.anomaly("unexpected", || {
                let summary =
                    format!("The last read (op {index}) has {element}, which no operation added.");
                (vec![index], summary)
            });
        }
        builder.count("present", present + recovered.len() as u64);
        builder.count("unread", unread);
        if unread > 0 {
            builder.unknown(format!(
                "never read: {}, added after the last read (op {index}) began",
                counted(unread, "element")
            ));
        }
        builder.list("lost", lost.iter());
        builder.list("recovered", recovered.iter());
        builder.list("unexpected", unexpected.into_iter());
    }
}

impl Checker for Set {
    fn name(&self) -> &'static str {
        Set::NAME
    }

    fn robustness(&self) -> Robustness {
        Robustness::OF_FINAL_STATE
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
