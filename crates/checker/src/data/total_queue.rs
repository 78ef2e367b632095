//! A queue that is drained at the end.

use super::element::{Element, elements};
use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use std::collections::BTreeMap;

/// What goes in comes out: Jepsen's `total-queue`, for histories that end by draining the queue (`drain`, or as many
/// `dequeue`s as it takes).
///
/// Anomalies: `lost` (an enqueue succeeded, nobody dequeued the element, and the queue was found empty by a drain or a
/// dequeue that began later), `unexpected` (dequeued, but nobody ever
/// tried to enqueue it). Elements that came out more often than they were tried to be put in are counted as `duplicated`,
/// which a queue that delivers at least once may do (the checker `queue` forbids it); those whose enqueue was not
/// acknowledged and that came out are `recovered`. What a drain took that crashed nobody knows: then a loss is unknown.
/// A dequeue or drain that crashed may name what it perhaps took, in its value; that is not lost but `uncertain`. (Jepsen's
/// knows no such values.)
#[derive(Clone, Copy, Debug, Default)]
pub struct TotalQueue;

/// What is known of one queue.
#[derive(Default)]
pub(crate) struct State {
    elements: BTreeMap<Element, Counted>,
    /// A drain that may have taken anything.
    crashed: Option<u64>,
    /// Drains under way.
    draining: u64,
    /// Dequeues under way.
    dequeuing: u64,
    /// The latest invocation of a drain that completed, or of a dequeue that found nothing.
    emptied: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    attempts: u64,
    acknowledged: u64,
    dequeued: u64,
    /// Named by operations that crashed.
    perhaps: u64,
    /// Index of the last completion that acknowledged it.
    acknowledgement: u64,
    /// Index of the last completion that took it.
    dequeue: u64,
}

/// Did this dequeue find the queue empty? One that failed for another reason says so in its error.
fn found_nothing(event: &Event<'_>) -> bool {
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

impl State {
    /// Every element that was inside when this began was taken out by then.
    fn empty(&mut self, event: &Event<'_>) {
        self.emptied = self.emptied.max(event.invocation.map(|it| it.index));
    }

    fn dequeue(&mut self, element: Element, index: u64) {
        let counted = self.elements.entry(element).or_default();
        counted.dequeued += 1;
        counted.dequeue = index;
    }

    fn drain(&mut self, event: &Event<'_>) {
        self.draining = self
            .draining
            .saturating_sub(u64::from(event.invocation.is_some()));
        match (event.kind, elements(event.value)) {
            (OpType::Ok, Some(drained)) => {
                for element in drained {
                    self.dequeue(element, event.index);
                }
                self.empty(event);
            }
            (OpType::Fail, _) => {}
            (OpType::Info, Some(perhaps)) if !perhaps.is_empty() => {
                for element in perhaps {
                    self.elements.entry(element).or_default().perhaps += 1;
                }
            }
            _ => self.crashed = self.crashed.or(Some(event.index)),
        }
    }
}

impl Judge for TotalQueue {
    type State = State;
    const NAME: &'static str = "total-queue";
    const FUNCTIONS: &'static [&'static str] = &["enqueue", "dequeue", "drain"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
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
                state.elements.entry(element).or_default().attempts += 1;
            }
            (OpType::Ok, "enqueue") => {
                let element = Element::from(event.argument());
                let counted = state.elements.entry(element).or_default();
                counted.acknowledged += 1;
                counted.acknowledgement = event.index;
            }
            (OpType::Ok, "dequeue") => state.dequeue(event.value.into(), event.index),
            (OpType::Info, "dequeue") if !matches!(event.value, Value::Nil) => {
                let element = Element::from(event.value);
                state.elements.entry(element).or_default().perhaps += 1;
            }
            (OpType::Invoke, "drain") => state.draining += 1,
            (_, "drain") => state.drain(event),
            _ => {}
        }
    }

    fn finish(&self, state: State, outcome: &mut Outcome) {
        let (mut lost, mut unexpected) = (Vec::new(), Vec::new());
        let mut undrained = 0;
        let [mut duplicated, mut recovered, mut uncertain] = [const { Vec::new() }; 3];
        for (element, counted) in &state.elements {
            let Counted {
                attempts,
                acknowledged,
                dequeued,
                ..
            } = *counted;
            let ok = dequeued.min(attempts);
            outcome.count("attempts", attempts);
            outcome.count("acknowledged", acknowledged);
            outcome.count("dequeued", dequeued);
            outcome.count("came_out", ok);
            let is_missing = acknowledged > dequeued + counted.perhaps;
            let is_drained = state.emptied > Some(counted.acknowledgement);
            undrained += u64::from(is_missing && !is_drained);
            if is_missing && is_drained {
                lost.push((element, counted));
            } else if acknowledged > dequeued {
                uncertain.push(element);
            }
            if attempts == 0 && dequeued > 0 {
                unexpected.push(element);
                outcome.anomaly("unexpected", || {
                    let index = counted.dequeue;
                    let summary = format!(
                        "Op {index} dequeued {element}, which nobody ever tried to enqueue."
                    );
                    (vec![index], summary)
                });
            } else if dequeued > attempts {
                duplicated.push(element);
            }
            if ok > acknowledged {
                recovered.push(element);
            }
        }
        outcome.list("lost", lost.iter().map(|one| one.0));
        outcome.list("uncertain", uncertain.into_iter());
        outcome.list("unexpected", unexpected.into_iter());
        outcome.list("duplicated", duplicated.into_iter());
        outcome.list("recovered", recovered.into_iter());
        outcome.count("undrained", undrained);
        if undrained > 0 {
            outcome.unknown(format!(
                "{undrained} elements were enqueued and not dequeued, and nothing shows that the queue was empty later: the \
                 history does not end by draining it"
            ));
        }
        match state.doubt(lost.len() as u64) {
            Some(reason) => outcome.unknown(reason),
            None => lost.iter().for_each(|one| tell_lost(*one, outcome)),
        }
    }
}

impl State {
    /// Why nobody knows whether so many elements that are missing are lost.
    fn doubt(&self, missing: u64) -> Option<String> {
        if missing == 0 {
            return None;
        }
        let why = match self.crashed {
            Some(index) => {
                format!("nobody knows what the drain took that crashed (op {index})")
            }
            None if self.draining > 0 => "a drain never completed".to_owned(),
            None if missing <= self.dequeuing => "as many dequeues never completed".to_owned(),
            None => return None,
        };
        Some(format!("{missing} elements are missing, but {why}"))
    }
}

/// One anomaly for an element that was acknowledged and never came out, or not as often.
fn tell_lost((element, counted): (&Element, &Counted), outcome: &mut Outcome) {
    outcome.anomaly("lost", || {
        let index = counted.acknowledgement;
        let summary = match counted.dequeued {
            0 => format!("Op {index} enqueued {element}, and nobody ever dequeued it."),
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

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
