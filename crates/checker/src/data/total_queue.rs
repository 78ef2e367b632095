//! A queue that is drained at the end.

use super::data_type::{DataType, OperationEvent};
use super::element::{Element, elements};
use super::element_map::ElementMap;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Robustness, Verdict};
use seatrial_history::{History, OpType, Value};
use seatrial_machine::counted;

/// Every element that is enqueued is dequeued: Jepsen's `total-queue`, for histories that end by draining the queue (`drain`,
/// or as many `dequeue`s as it takes).
///
/// Anomalies: `lost` (an enqueue succeeded, the element was never dequeued, and the queue was found empty by a drain or a
/// dequeue that began later), `unexpected` (dequeued, but no enqueue of it was ever invoked). Elements that were dequeued more
/// often than enqueued are counted as `duplicated`, which a queue with at-least-once delivery allows (the checker `queue`
/// forbids it); those that were dequeued although no enqueue of them succeeded are `recovered`. A drain that crashed may have
/// taken any element: then a loss is unknown. A dequeue or drain that crashed may name in its value the elements that it
/// possibly took; these are not lost but `uncertain`. (Jepsen has no such values.)
#[derive(Clone, Copy, Debug, Default)]
pub struct TotalQueue;

/// The state of one queue.
#[derive(Default)]
pub(crate) struct TotalQueueState {
    elements: ElementMap<ElementCounts>,
    /// The first drain that may have taken any element.
    crashed: Option<u64>,
    /// Drains under way.
    draining: u64,
    /// Dequeues under way.
    dequeuing: u64,
    /// The latest invocation of a drain that completed, or of a dequeue that found nothing.
    emptied: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct ElementCounts {
    attempts: u64,
    acknowledged: u64,
    dequeued: u64,
    /// Operations that crashed and possibly took it.
    perhaps: u64,
    /// Index of the last completion that acknowledged it.
    acknowledgement: u64,
    /// Index of the last completion that took it.
    dequeue: u64,
}

impl ElementCounts {
    /// Reports the sums of all elements, and how many dequeues found what was enqueued.
    fn report(&self, came_out: u64, builder: &mut VerdictBuilder) {
        builder.count("attempts", self.attempts);
        builder.count("acknowledged", self.acknowledged);
        builder.count("dequeued", self.dequeued);
        builder.count("came_out", came_out);
    }
}

/// Did this dequeue find the queue empty? A dequeue that failed for another reason has another error.
fn found_nothing(event: &OperationEvent<'_>) -> bool {
    const WORDS: [&str; 5] = ["empty", "exhausted", "none", "nothing", "not-found"];
    match (event.kind, event.value) {
        (OpType::Ok, Value::Nil) => true,
        (OpType::Fail, _) => event.extra.get("error").is_none_or(|error| {
            let error = error.to_string();
            WORDS.iter().any(|word| error.contains(word))
        }),
        _ => false,
    }
}

impl TotalQueueState {
    /// The queue was empty at some time during this operation: every element that was in it before has been dequeued.
    fn empty(&mut self, event: &OperationEvent<'_>) {
        self.emptied = self.emptied.max(event.invocation.map(|it| it.index));
    }

    fn dequeue(&mut self, element: &Element, index: u64) {
        let counted = self.elements.entry(element, ElementCounts::default());
        counted.dequeued += 1;
        counted.dequeue = index;
    }

    fn drain(&mut self, event: &OperationEvent<'_>) {
        self.draining = self
            .draining
            .saturating_sub(u64::from(event.invocation.is_some()));
        match (event.kind, elements(event.value)) {
            (OpType::Ok, Some(drained)) => {
                for element in drained {
                    self.dequeue(&element, event.index);
                }
                self.empty(event);
            }
            (OpType::Fail, _) => {}
            (OpType::Info, Some(perhaps)) if !perhaps.is_empty() => {
                for element in perhaps {
                    let absent = ElementCounts::default();
                    self.elements.entry(&element, absent).perhaps += 1;
                }
            }
            _ => self.crashed = self.crashed.or(Some(event.index)),
        }
    }
}

impl DataType for TotalQueue {
    type State = TotalQueueState;
    const NAME: &'static str = "total-queue";
    const FUNCTIONS: &'static [&'static str] = &["enqueue", "dequeue", "drain"];

    fn apply(&self, state: &mut TotalQueueState, event: &OperationEvent<'_>) {
        if event.f == "dequeue" {
            if event.kind == OpType::Invoke {
                state.dequeuing += 1;
            } else {
                let ended = u64::from(event.invocation.is_some());
                state.dequeuing = state.dequeuing.saturating_sub(ended);
            }
            if found_nothing(event) {
                return state.empty(event);
            }
        }
        match (event.kind, event.f.as_str()) {
            (OpType::Invoke, "enqueue") => {
                let element = Element::from(event.value);
                let absent = ElementCounts::default();
                state.elements.entry(&element, absent).attempts += 1;
            }
            (OpType::Ok, "enqueue") => {
                let element = Element::from(event.argument());
                let counted = state.elements.entry(&element, ElementCounts::default());
                counted.acknowledged += 1;
                counted.acknowledgement = event.index;
            }
            (OpType::Ok, "dequeue") => state.dequeue(&event.value.into(), event.index),
            (OpType::Info, "dequeue") if !matches!(event.value, Value::Nil) => {
                let element = Element::from(event.value);
                let absent = ElementCounts::default();
                state.elements.entry(&element, absent).perhaps += 1;
            }
            (OpType::Invoke, "drain") => state.draining += 1,
            (_, "drain") => state.drain(event),
            _ => {}
        }
    }

    fn finish(&self, state: TotalQueueState, builder: &mut VerdictBuilder) {
        let (mut lost, mut unexpected) = (Vec::new(), Vec::new());
        let mut undrained = 0;
        let [mut duplicated, mut recovered, mut uncertain] = [const { Vec::new() }; 3];
        // Summed here: to look up four counts by their names takes longer than the rest for each element.
        let mut sums = ElementCounts::default();
        let mut came_out = 0;
        for (element, counted) in state.elements.iter() {
            let ElementCounts {
                attempts,
                acknowledged,
                dequeued,
                ..
            } = *counted;
            let ok = dequeued.min(attempts);
            sums.attempts += attempts;
            sums.acknowledged += acknowledged;
            sums.dequeued += dequeued;
            came_out += ok;
            let is_missing = acknowledged > dequeued + counted.perhaps;
            let is_drained = state.emptied > Some(counted.acknowledgement);
            undrained += u64::from(is_missing && !is_drained);
            if attempts == 0 && dequeued > 0 {
                unexpected.push(element.clone());
                builder.anomaly("unexpected", || {
                    let index = counted.dequeue;
                    let summary = format!(
                        "Op {index} dequeued {element}, which no operation tried to enqueue."
                    );
                    (vec![index], summary)
                });
            } else if dequeued > attempts {
                duplicated.push(element.clone());
            }
            if ok > acknowledged {
                recovered.push(element.clone());
            }
            if is_missing && is_drained {
                lost.push((element, counted));
            } else if acknowledged > dequeued {
                uncertain.push(element);
            }
        }
        if state.elements.len() > 0 {
            sums.report(came_out, builder);
        }
        builder.list("lost", lost.iter().map(|one| &one.0));
        builder.list("uncertain", uncertain.iter());
        builder.list("unexpected", unexpected.iter());
        builder.list("duplicated", duplicated.iter());
        builder.list("recovered", recovered.iter());
        builder.count("undrained", undrained);
        if undrained > 0 {
            builder.unknown(format!(
                "enqueued and not dequeued: {}; nothing shows that the queue was empty later: the \
                 history does not end by draining it",
                counted(undrained, "element")
            ));
        }
        match state.doubt(lost.len() as u64) {
            Some(reason) => builder.unknown(reason),
            None => {
                for (element, counted) in &lost {
                    report_lost(element, counted, builder);
                }
            }
        }
    }
}

impl TotalQueueState {
    /// Why `missing` elements that were not dequeued may not be lost; `None` if they are lost.
    fn doubt(&self, missing: u64) -> Option<String> {
        if missing == 0 {
            return None;
        }
        let why = match self.crashed {
            Some(index) => {
                format!("a drain that crashed (op {index}) may have taken them")
            }
            None if self.draining > 0 => "a drain never completed".to_owned(),
            None if missing <= self.dequeuing => "as many dequeues never completed".to_owned(),
            None => return None,
        };
        Some(format!(
            "missing: {}, but {why}",
            counted(missing, "element")
        ))
    }
}

/// Reports an element that was enqueued more often than dequeued.
fn report_lost(element: &Element, counted: &ElementCounts, builder: &mut VerdictBuilder) {
    builder.anomaly("lost", || {
        let index = counted.acknowledgement;
        let summary = match counted.dequeued {
            0 => format!("Op {index} enqueued {element}, and it was never dequeued."),
            count => format!(
                "{element} was enqueued {} times, last by op {index}, but dequeued {count} times only.",
                counted.acknowledged
            ),
        };
        (vec![index], summary)
    });
}

impl Checker for TotalQueue {
    fn name(&self) -> &'static str {
        TotalQueue::NAME
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
