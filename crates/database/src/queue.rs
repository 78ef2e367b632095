//! A queue.

use super::anomaly::Anomaly;
use super::options::Options;
use super::step::{Plan, Step};
use seatrial_history::{OpType, Symbol, Value};
use seatrial_machine::Rng;
use std::collections::VecDeque;

/// A queue that is longer takes no more.
const LENGTH_MAX: usize = 1_024;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Enqueue(i64),
    Dequeue,
    Drain,
}

/// First in, first out. An element whose delivery is not acknowledged stays where it is. At the very end one client
/// drains what is left, so that an element that nobody took is lost.
///
/// Its anomalies are faults of the queue itself: an element that is acknowledged and dropped, that is delivered and
/// kept, or that nobody ever put in.
#[derive(Debug)]
pub(super) struct Queue {
    elements: VecDeque<i64>,
    next: i64,
    /// The next element that nobody puts in: below zero.
    garbage: i64,
    running: Vec<(Action, Value)>,
    anomalies: Vec<Anomaly>,
    rate: f64,
    counts: Vec<u64>,
}

impl Queue {
    pub(super) fn new(options: &Options) -> Queue {
        let running = (0..options.concurrency).map(|_| (Action::Dequeue, Value::Nil));
        Queue {
            elements: VecDeque::new(),
            next: 1,
            garbage: -1,
            running: running.collect(),
            anomalies: options.anomalies.clone(),
            rate: options.anomaly_rate,
            counts: vec![0; options.anomalies.len()],
        }
    }

    /// The anomalies and how many of each there are.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Anomaly, u64)> {
        let counts = self.counts.iter().copied();
        self.anomalies.iter().copied().zip(counts)
    }

    /// A client's next operation, `is_last` when nothing follows it: its invocation's `f` and value.
    pub(super) fn begin(&mut self, client: u32, is_last: bool, rng: &mut Rng) -> (Symbol, Value) {
        let is_full = self.elements.len() >= LENGTH_MAX;
        let action = if is_last {
            Action::Drain
        } else if is_full || rng.below(2) == 0 {
            Action::Dequeue
        } else {
            self.next += 1;
            Action::Enqueue(self.next - 1)
        };
        self.running[client as usize] = (action, Value::Nil);
        let f = match action {
            Action::Enqueue(_) => "enqueue",
            Action::Dequeue => "dequeue",
            Action::Drain => "drain",
        };
        (Symbol::new(f), self.invoked(client))
    }

    /// The value of a completion that is not `ok`: as it was invoked.
    pub(super) fn invoked(&self, client: u32) -> Value {
        match self.running[client as usize].0 {
            Action::Enqueue(element) => Value::Int(element),
            Action::Dequeue | Action::Drain => Value::Nil,
        }
    }

    /// The value of an `ok` completion.
    pub(super) fn result(&mut self, client: u32) -> Value {
        match &mut self.running[client as usize] {
            (Action::Enqueue(element), _) => Value::Int(*element),
            (_, result) => std::mem::take(result),
        }
    }

    /// A client's operation takes place.
    pub(super) fn step(&mut self, client: u32, plan: Plan, rng: &mut Rng) -> Step {
        let action = self.running[client as usize].0;
        if plan == Plan::Abort {
            return Step::Done(OpType::Fail);
        }
        let fault = match plan {
            Plan::Answer if !self.anomalies.is_empty() => self.fault(action, rng),
            _ => None,
        };
        let result = match action {
            Action::Enqueue(element) => {
                if fault.is_none() {
                    self.elements.push_back(element);
                }
                Some(Value::Nil)
            }
            Action::Dequeue if fault == Some(Anomaly::GarbageRead) => {
                self.garbage -= 1;
                Some(Value::Int(self.garbage + 1))
            }
            // Whoever loses the reply cannot acknowledge it.
            Action::Dequeue if fault.is_some() || plan == Plan::LoseReply => {
                self.elements.front().copied().map(Value::Int)
            }
            Action::Dequeue => self.elements.pop_front().map(Value::Int),
            Action::Drain => Some(Value::List(
                self.elements.drain(..).map(Value::Int).collect(),
            )),
        };
        let Some(result) = result else {
            // It is empty.
            return Step::Done(OpType::Fail);
        };
        self.running[client as usize].1 = result;
        Step::Done(OpType::Ok)
    }

    /// What goes wrong, now and then.
    fn fault(&mut self, action: Action, rng: &mut Rng) -> Option<Anomaly> {
        if !rng.chance(self.rate) {
            return None;
        }
        let place = rng.index(self.anomalies.len());
        let anomaly = self.anomalies[place];
        let fits = match action {
            Action::Enqueue(_) => anomaly == Anomaly::LostWrite,
            Action::Dequeue if anomaly == Anomaly::DuplicateElements => !self.elements.is_empty(),
            Action::Dequeue => anomaly == Anomaly::GarbageRead,
            Action::Drain => false,
        };
        if !fits {
            return None;
        }
        self.counts[place] += 1;
        Some(anomaly)
    }
}
