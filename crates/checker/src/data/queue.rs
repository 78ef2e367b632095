//! A queue whose elements were all enqueued.

use super::data_type::{DataType, OperationEvent};
use super::element::{Element, elements};
use super::element_map::ElementMap;
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Verdict};
use seatrial_history::{History, OpType};

/// Every element that was dequeued was enqueued before, and as often: Jepsen's `queue` over an unordered queue.
///
/// Every `enqueue` counts from its invocation on, whatever its outcome; a `dequeue` counts when it succeeds, and a
/// `drain` for each of its elements. Anomalies: `unexpected` (no enqueue of the element was invoked before), `duplicated`
/// (it was dequeued more often than an enqueue of it had been invoked). Neither order nor loss is checked:
/// [`super::TotalQueue`] finds what is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue;

/// The state of one queue.
#[derive(Default)]
pub(crate) struct QueueState {
    elements: ElementMap<QueuedElement>,
    unexpected: Vec<(Element, u64)>,
    /// Element, its enqueue, the previous dequeue, and the surplus one.
    duplicated: Vec<(Element, u64, u64, u64)>,
    enqueued: u64,
    dequeued: u64,
    /// The first drain whose value is not a list.
    refused: Option<u64>,
}

#[derive(Clone, Copy)]
struct QueuedElement {
    enqueued: u64,
    dequeued: u64,
    /// Index of the last enqueue.
    enqueue: u64,
    /// Index of the last dequeue.
    dequeue: u64,
}

impl QueueState {
    fn dequeue(&mut self, element: Element, index: u64) {
        self.dequeued += 1;
        let Some(known) = self.elements.get_mut(&element) else {
            self.unexpected.push((element, index));
            return;
        };
        if known.dequeued == known.enqueued {
            let (enqueue, dequeue) = (known.enqueue, known.dequeue);
            self.duplicated.push((element, enqueue, dequeue, index));
        } else {
            known.dequeued += 1;
            known.dequeue = index;
        }
    }
}

impl DataType for Queue {
    type State = QueueState;
    const NAME: &'static str = "queue";
    const FUNCTIONS: &'static [&'static str] = &["enqueue", "dequeue", "drain"];

    fn apply(&self, state: &mut QueueState, event: &OperationEvent<'_>) {
        match (event.kind, event.f.as_str()) {
            (OpType::Invoke, "enqueue") => {
                state.enqueued += 1;
                let absent = QueuedElement {
                    enqueued: 0,
                    dequeued: 0,
                    enqueue: event.index,
                    dequeue: event.index,
                };
                let known = state.elements.entry(&event.value.into(), absent);
                known.enqueued += 1;
                known.enqueue = event.index;
            }
            (OpType::Ok, "dequeue") => state.dequeue(event.value.into(), event.index),
            (OpType::Ok, "drain") => match elements(event.value) {
                Some(drained) => {
                    for element in drained {
                        state.dequeue(element, event.index);
                    }
                }
                None => state.refused = state.refused.or(Some(event.index)),
            },
            _ => {}
        }
    }

    fn finish(&self, state: QueueState, builder: &mut VerdictBuilder) {
        builder.count("enqueued", state.enqueued);
        builder.count("dequeued", state.dequeued);
        builder.count("unexpected", state.unexpected.len() as u64);
        builder.count("duplicated", state.duplicated.len() as u64);
        for (element, index) in &state.unexpected {
            builder.anomaly("unexpected", || {
                let summary =
                    format!("Op {index} dequeued {element}, before any enqueue of it was invoked.");
                (vec![*index], summary)
            });
        }
        for (element, enqueue, dequeue, index) in &state.duplicated {
            builder.anomaly("duplicated", || {
                let summary = format!(
                    "Op {index} dequeued {element}, which was enqueued by op {enqueue} and dequeued by op {dequeue} \
                     already."
                );
                (vec![*enqueue, *dequeue, *index], summary)
            });
        }
        if let Some(index) = state.refused {
            builder.unknown(format!("op {index}: the drain gave no list"));
        }
    }
}

impl Checker for Queue {
    fn name(&self) -> &'static str {
        Queue::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
