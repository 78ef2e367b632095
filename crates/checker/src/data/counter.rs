//! A counter that only grows.

use super::data_type::{DataType, OperationEvent};
use super::verdict_builder::VerdictBuilder;
use crate::{Aims, Checker, OnlineChecker, Verdict};
use seatrial_history::{History, OpType, Value};
use std::collections::BTreeMap;

/// Every `read` returns at least the sum of all additions that had succeeded before it began, and at most the sum of all that
/// were invoked before it ended: Jepsen's `counter`. `add` carries the amount, never negative; the counter starts at zero.
///
/// Anomalies: `below-bounds` and `above-bounds`, once for each such read. An addition that failed never counts, not even while
/// it was under way: a read that depends on additions under way is held back until they complete.
/// The test is necessary, not sufficient: a counter may be wrong within the bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter;

/// The state of one counter.
#[derive(Default)]
pub(crate) struct CounterState {
    /// The sum of additions that succeeded.
    acknowledged: i128,
    /// The sum of additions that were invoked and have not failed.
    attempted: i128,
    /// The part of `attempted` that is under way.
    undecided: i128,
    /// `acknowledged` when each read began, by the index of its invocation.
    reading: BTreeMap<u64, i128>,
    held_back: Vec<BoundedRead>,
    wrong: Vec<(bool, BoundedRead)>,
    reads: u64,
    /// The first operation that cannot be checked, and why.
    refused: Option<(u64, &'static str)>,
}

/// A read that succeeded, with its bounds.
#[derive(Clone, Copy, Debug)]
struct BoundedRead {
    /// Index of its completion.
    index: u64,
    value: i128,
    lower: i128,
    upper: i128,
    /// The upper bound without the additions that were under way then and still are.
    sure: i128,
}

impl CounterState {
    fn refuse(&mut self, index: u64, reason: &'static str) {
        self.refused.get_or_insert((index, reason));
    }

    fn add(&mut self, event: &OperationEvent<'_>) {
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
        // The amount of the invocation counts, whatever the completion claims.
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

    /// Decides reads that were held back, now that this addition is no longer under way.
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

    fn read(&mut self, event: &OperationEvent<'_>) {
        if event.kind == OpType::Invoke {
            self.reading.insert(event.index, self.acknowledged);
            return;
        }
        let lower = self.reading.remove(&event.started());
        let is_empty = matches!(event.value, Value::Nil) && event.integers.is_none();
        if event.kind != OpType::Ok || is_empty {
            return;
        }
        let Some(value) = event.value.as_int().map(i128::from) else {
            return self.refuse(event.index, "the read saw no integer");
        };
        let Some(lower) = lower else {
            return self.refuse(event.index, "it completes no read");
        };
        self.reads += 1;
        let read = BoundedRead {
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

impl DataType for Counter {
    type State = CounterState;
    const NAME: &'static str = "counter";
    const FUNCTIONS: &'static [&'static str] = &["add", "read"];
    // Lists of integers are no sums: nothing needs them.
    const INTEGER_READS: &'static [&'static str] = &["read"];

    fn apply(&self, state: &mut CounterState, event: &OperationEvent<'_>) {
        if event.f == "add" {
            state.add(event);
        } else {
            state.read(event);
        }
    }

    fn finish(&self, mut state: CounterState, builder: &mut VerdictBuilder) {
        builder.count("reads", state.reads);
        builder.count("wrong_reads", state.wrong.len() as u64);
        builder.figure("lower", state.acknowledged.to_string().into());
        builder.figure("upper", state.attempted.to_string().into());
        if let Some((index, reason)) = state.refused {
            return builder.unknown(format!("op {index}: {reason}"));
        }
        state.wrong.sort_by_key(|(_, read)| read.index);
        for (is_below, read) in state.wrong {
            let BoundedRead {
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
            builder.anomaly(anomaly, || {
                let why = if is_below {
                    format!("{lower} had been added for sure before it began")
                } else {
                    format!("no more than {upper} had been tried to add before it ended")
                };
                (vec![index], format!("Op {index} read {value}, but {why}."))
            });
        }
        if state.reads == 0 {
            builder.no_evidence("the counter was never read");
        }
    }
}

impl Checker for Counter {
    fn name(&self) -> &'static str {
        Counter::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_history(history)
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        self.online()
    }
}
