//! A store of one first-in first-out queue.

use super::database_options::DatabaseOptions;
use super::planted_anomaly::Anomaly;
use super::step::{OperationFate, StepResult};
use seatrial_history::{OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::VecDeque;

/// Length at which clients only dequeue.
const LENGTH_MAX: usize = 1_024;

/// The operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueAction {
    Enqueue(i64),
    Dequeue,
    Drain,
}

/// A first-in first-out queue. An element whose delivery is not acknowledged stays in the queue. The last operation drains
/// the queue, so an element that no operation returned is definitely lost.
///
/// The store itself produces the anomalies: an element that is acknowledged and dropped, that is delivered and kept, or
/// that was never enqueued.
#[derive(Debug)]
pub(super) struct QueueStore {
    elements: VecDeque<i64>,
    next: i64,
    /// The next element that is never enqueued: below zero.
    garbage: i64,
    running: Vec<(QueueAction, Value)>,
    anomalies: Vec<Anomaly>,
    rate: f64,
    counts: Vec<u64>,
}

impl QueueStore {
    pub(super) fn new(options: &DatabaseOptions) -> QueueStore {
        let running = (0..options.concurrency).map(|_| (QueueAction::Dequeue, Value::Nil));
        QueueStore {
            elements: VecDeque::new(),
            next: 1,
            garbage: -1,
            running: running.collect(),
            anomalies: options.anomalies.clone(),
            rate: options.anomaly_rate,
            counts: vec![0; options.anomalies.len()],
        }
    }

    /// The anomalies, with the number of instances of each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Anomaly, u64)> {
        let counts = self.counts.iter().copied();
        self.anomalies.iter().copied().zip(counts)
    }

    /// A client's next operation, `is_last` when nothing follows it: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, is_last: bool, rng: &mut Rng) -> (Symbol, Value) {
        let is_full = self.elements.len() >= LENGTH_MAX;
        let action = if is_last {
            QueueAction::Drain
        } else if is_full || rng.below(2) == 0 {
            QueueAction::Dequeue
        } else {
            self.next += 1;
            QueueAction::Enqueue(self.next - 1)
        };
        self.running[client as usize] = (action, Value::Nil);
        let f = match action {
            QueueAction::Enqueue(_) => "enqueue",
            QueueAction::Dequeue => "dequeue",
            QueueAction::Drain => "drain",
        };
        (Symbol::new(f), self.invoked(client))
    }

    /// The value of a completion that is not `ok`: as it was invoked.
    pub(super) fn invoked(&self, client: u32) -> Value {
        match self.running[client as usize].0 {
            QueueAction::Enqueue(element) => Value::Int(element),
            QueueAction::Dequeue | QueueAction::Drain => Value::Nil,
        }
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        match &mut self.running[client as usize] {
            (QueueAction::Enqueue(element), _) => Value::Int(*element),
            (_, result) => std::mem::take(result),
        }
    }

    /// Carries out a client's operation, in one step.
    pub(super) fn step(&mut self, client: u32, fate: OperationFate, rng: &mut Rng) -> StepResult {
        let action = self.running[client as usize].0;
        if fate == OperationFate::Abort {
            return StepResult::Done(OpType::Fail);
        }
        let fault = match fate {
            OperationFate::Complete if !self.anomalies.is_empty() => self.fault(action, rng),
            _ => None,
        };
        let result = match action {
            QueueAction::Enqueue(element) => {
                if fault.is_none() {
                    self.elements.push_back(element);
                }
                Some(Value::Nil)
            }
            QueueAction::Dequeue if fault == Some(Anomaly::GarbageRead) => {
                self.garbage -= 1;
                Some(Value::Int(self.garbage + 1))
            }
            // A client that does not receive the reply cannot acknowledge the element.
            QueueAction::Dequeue if fault.is_some() || fate == OperationFate::LoseReply => {
                self.elements.front().copied().map(Value::Int)
            }
            QueueAction::Dequeue => self.elements.pop_front().map(Value::Int),
            QueueAction::Drain => Some(Value::List(
                self.elements.drain(..).map(Value::Int).collect(),
            )),
        };
        let Some(result) = result else {
            // The queue is empty.
            return StepResult::Done(OpType::Fail);
        };
        self.running[client as usize].1 = result;
        StepResult::Done(OpType::Ok)
    }

    /// Draws an anomaly for this operation, at the configured rate.
    fn fault(&mut self, action: QueueAction, rng: &mut Rng) -> Option<Anomaly> {
        if !rng.chance(self.rate) {
            return None;
        }
        let place = rng.index(self.anomalies.len());
        let anomaly = self.anomalies[place];
        let fits = match action {
            QueueAction::Enqueue(_) => anomaly == Anomaly::LostWrite,
            QueueAction::Dequeue if anomaly == Anomaly::DuplicateElements => {
                !self.elements.is_empty()
            }
            QueueAction::Dequeue => anomaly == Anomaly::GarbageRead,
            QueueAction::Drain => false,
        };
        if !fits {
            return None;
        }
        self.counts[place] += 1;
        Some(anomaly)
    }
}
