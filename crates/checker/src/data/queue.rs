//! A queue whose elements come from somewhere.

use super::element::{Element, elements};
use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType};
use std::collections::BTreeMap;

/// Every element that was dequeued was enqueued before, and as often: Jepsen's `queue` over an unordered queue.
///
/// Every `enqueue` counts from its invocation on, whatever became of it; a `dequeue` counts when it succeeds, and a
/// `drain` for each of its elements. Anomalies: `unexpected` (no enqueue of the element was invoked before), `duplicated`
/// (it was dequeued more often than anybody had tried to enqueue it by then). Neither order nor loss is looked at:
/// [`super::TotalQueue`] finds what is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue;

/// What is known of one queue.
#[derive(Default)]
pub(crate) struct State {
    elements: BTreeMap<Element, Known>,
    unexpected: Vec<(Element, u64)>,
    /// Element, its enqueue, the dequeue before, the dequeue too many.
    duplicated: Vec<(Element, u64, u64, u64)>,
    enqueued: u64,
    dequeued: u64,
    /// A drain whose value is no list.
    refused: Option<u64>,
}

#[derive(Clone, Copy)]
struct Known {
    enqueued: u64,
    dequeued: u64,
    /// Index of the last enqueue.
    enqueue: u64,
    /// Index of the last dequeue.
    dequeue: u64,
}

impl State {
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

impl Judge for Queue {
    type State = State;
    const NAME: &'static str = "queue";
    const FUNCTIONS: &'static [&'static str] = &["enqueue", "dequeue", "drain"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
        match (event.kind, event.f.as_str()) {
            (OpType::Invoke, "enqueue") => {
                state.enqueued += 1;
                let known = state.elements.entry(event.value.into()).or_insert(Known {
                    enqueued: 0,
                    dequeued: 0,
                    enqueue: event.index,
                    dequeue: event.index,
                });
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

    fn finish(&self, state: State, outcome: &mut Outcome) {
        outcome.count("enqueued", state.enqueued);
        outcome.count("dequeued", state.dequeued);
        outcome.count("unexpected", state.unexpected.len() as u64);
        outcome.count("duplicated", state.duplicated.len() as u64);
        for (element, index) in &state.unexpected {
            outcome.anomaly("unexpected", || {
                let summary = format!(
                    "Op {index} dequeued {element}, which nobody had tried to enqueue by then."
                );
                (vec![*index], summary)
            });
        }
        for (element, enqueue, dequeue, index) in &state.duplicated {
            outcome.anomaly("duplicated", || {
                let summary = format!(
                    "Op {index} dequeued {element}, which was enqueued by op {enqueue} and dequeued by op {dequeue} \
                     already."
                );
                (vec![*enqueue, *dequeue, *index], summary)
            });
        }
        if let Some(index) = state.refused {
            outcome.unknown(format!("op {index}: the drain gave no list"));
        }
    }
}

impl Checker for Queue {
    fn name(&self) -> &'static str {
        Queue::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
