//! A counter that only grows.

use super::judge::{Event, Judge};
use super::outcome::Outcome;
use crate::{Checker, Verdict};
use seatrial_history::{History, OpType, Value};
use std::collections::BTreeMap;

/// Every `read` sees at least what was surely added before it began, and at most what anybody had tried to add before it
/// ended: Jepsen's `counter`. `add` carries what is added, never less than zero; the counter begins at zero.
///
/// Anomalies: `below-bounds` and `above-bounds`, once for each such read. An addition that failed counts for nothing, not
/// even while it was under way: a read whose judgement hangs on additions under way is held back until they complete.
/// The test is necessary, not sufficient: a counter may be wrong within the bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter;

/// What is known of one counter.
#[derive(Default)]
pub(crate) struct State {
    /// What was surely added.
    acknowledged: i128,
    /// What was tried to add and did not fail so far.
    attempted: i128,
    /// What part of it is under way.
    undecided: i128,
    /// By the index of a read's invocation what was surely added then.
    reading: BTreeMap<u64, i128>,
    held_back: Vec<Read>,
    wrong: Vec<(bool, Read)>,
    reads: u64,
    /// The first operation that cannot be judged, and why.
    refused: Option<(u64, &'static str)>,
}

/// A read that took place.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Index of its completion.
    index: u64,
    value: i128,
    lower: i128,
    upper: i128,
    /// The upper bound without what was under way then and still is.
    sure: i128,
}

impl State {
    fn refuse(&mut self, index: u64, reason: &'static str) {
        self.refused.get_or_insert((index, reason));
    }

    fn add(&mut self, event: &Event<'_>) {
        let Some(amount) = event.argument().as_int().map(i128::from) else {
            return self.refuse(event.index, "what is added is no integer");
        };
        if amount < 0 {
            return self.refuse(event.index, "the checker knows no decrements");
        }
        if event.kind == OpType::Invoke {
            self.attempted += amount;
            self.undecided += amount;
            return;
        }
        // What is said to have been tried, not what the completion claims.
        let tried = event.invocation.and_then(|started| started.value.as_int());
        let Some(tried) = tried.map(i128::from) else {
            return self.refuse(event.index, "it completes no addition");
        };
        self.undecided -= tried;
        match event.kind {
            OpType::Fail => self.attempted -= tried,
            OpType::Ok => self.acknowledged += amount,
            _ => {}
        }
        self.decide(event.started(), event.kind == OpType::Fail, tried);
    }

    /// An addition is no longer under way: the reads that were held back while it was come closer to a judgement.
    fn decide(&mut self, invocation: u64, has_failed: bool, amount: i128) {
        let wrong = &mut self.wrong;
        self.held_back.retain_mut(|read| {
            if read.index < invocation {
                return true;
            }
            if has_failed {
                read.upper -= amount;
            } else {
                read.sure += amount;
            }
            if read.value > read.upper {
                wrong.push((false, *read));
            }
            read.value > read.sure && read.value <= read.upper
        });
    }

    fn read(&mut self, event: &Event<'_>) {
        if event.kind == OpType::Invoke {
            self.reading.insert(event.index, self.acknowledged);
            return;
        }
        let lower = self.reading.remove(&event.started());
        if event.kind != OpType::Ok || matches!(event.value, Value::Nil) {
            return;
        }
        let Some(value) = event.value.as_int().map(i128::from) else {
            return self.refuse(event.index, "the read saw no integer");
        };
        let Some(lower) = lower else {
            return self.refuse(event.index, "it completes no read");
        };
        self.reads += 1;
        let read = Read {
            index: event.index,
            value,
            lower,
            upper: self.attempted,
            sure: self.attempted - self.undecided,
        };
        if value < lower {
            self.wrong.push((true, read));
        } else if value > read.upper {
            self.wrong.push((false, read));
        } else if value > read.sure {
            self.held_back.push(read);
        }
    }
}

impl Judge for Counter {
    type State = State;
    const NAME: &'static str = "counter";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];

    fn take(&self, state: &mut State, event: &Event<'_>) {
        if event.f == "add" {
            state.add(event);
        } else {
            state.read(event);
        }
    }

    fn finish(&self, mut state: State, outcome: &mut Outcome) {
        outcome.count("reads", state.reads);
        outcome.count("wrong_reads", state.wrong.len() as u64);
        outcome.figure("lower", state.acknowledged.to_string().into());
        outcome.figure("upper", state.attempted.to_string().into());
        if let Some((index, reason)) = state.refused {
            return outcome.unknown(format!("op {index}: {reason}"));
        }
        state.wrong.sort_by_key(|(_, read)| read.index);
        for (is_below, read) in state.wrong {
            let Read {
                index,
                value,
                lower,
                upper,
                ..
            } = read;
            let anomaly = if is_below {
                "below-bounds"
            } else {
                "above-bounds"
            };
            outcome.anomaly(anomaly, || {
                let why = if is_below {
                    format!("{lower} had been added for sure before it began")
                } else {
                    format!("no more than {upper} had been tried to add before it ended")
                };
                (vec![index], format!("Op {index} read {value}, but {why}."))
            });
        }
        if state.reads == 0 {
            outcome.silent("the counter was never read");
        }
    }
}

impl Checker for Counter {
    fn name(&self) -> &'static str {
        Counter::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge(history)
    }
}
