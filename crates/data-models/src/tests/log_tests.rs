//! Append logs.

use super::{
    HistoryPlan, TestCall, TestObject, check, compare, last_call, many_clients, metamorphic,
};
use crate::AppendLogModel;
use seatrial_checker::Validity;
use seatrial_history::Value;
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::cell::Cell;

/// A log of values, which repeat or not.
struct TestLog {
    /// The next value, of values that do not repeat.
    next: Option<Cell<i64>>,
    /// Number of whole reads in 8 operations.
    reads: u64,
}

impl TestObject for TestLog {
    type State = Vec<Value>;

    /// Each history has its own values, small ones.
    fn initial(&self) -> Vec<Value> {
        if let Some(next) = &self.next {
            next.set(0);
        }
        Vec::new()
    }

    fn random(&self, rng: &mut Rng, size: u64, _: u64) -> (&'static str, Value) {
        if rng.below(8) < self.reads {
            return ("read", Value::Nil);
        }
        if rng.chance(0.4) {
            return ("read", Value::Int(rng.below(size + 1).cast_signed()));
        }
        let value = match &self.next {
            Some(next) => next.replace(next.get() + 1),
            None => rng.below(size).cast_signed(),
        };
        ("append", Value::Int(value))
    }

    fn run(
        &self,
        log: &mut Vec<Value>,
        (f, argument, _): (&'static str, &Value, u64),
    ) -> Option<Value> {
        Some(match (f, argument) {
            ("append", value) => {
                log.push(value.clone());
                Value::Int(log.len() as i64 - 1)
            }
            (_, Value::Int(at)) => log.get(*at as usize).cloned().unwrap_or_default(),
            _ => Value::List(log.clone().into()),
        })
    }

    fn random_result(&self, rng: &mut Rng, size: u64, f: &str, argument: &Value) -> Value {
        let mut value = || match rng.below(size + 1) {
            0 => Value::Nil,
            value => Value::Int(value.cast_signed() - 1),
        };
        match (f, argument) {
            ("append", _) => Value::Int(rng.below(4).cast_signed()),
            (_, Value::Int(_)) => value(),
            _ => {
                let items = [value(), value(), value()].into_iter();
                let items = items.filter(|one| *one != Value::Nil);
                Value::List(items.collect())
            }
        }
    }

    fn without_result(&self, f: &str, argument: &Value) -> Option<Value> {
        (f == "append").then(|| argument.clone())
    }

    fn recorded(&self, f: &str, argument: &Value, result: &Value) -> Value {
        match (f, argument) {
            ("append", value) => Value::List([result.clone(), value.clone()].into()),
            (_, Value::Int(_)) => Value::List([argument.clone(), result.clone()].into()),
            _ => result.clone(),
        }
    }
}

const PLAN: HistoryPlan = HistoryPlan {
    operations: 7,
    clients: 4,
    size: 4,
    crashes: 3,
    hidden: 2,
};

fn unique() -> TestLog {
    TestLog {
        next: Some(Cell::new(0)),
        reads: 1,
    }
}

#[test]
fn logs_agree_with_the_brute_force() {
    let repeating = TestLog {
        next: None,
        reads: 1,
    };
    let counts = compare(&repeating, &AppendLogModel, PLAN, 1);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    let counts = compare(&unique(), &AppendLogModel, PLAN, 2);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    let counts = compare(
        &unique(),
        &AppendLogModel,
        HistoryPlan { hidden: 0, ..PLAN },
        3,
    );
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn relations_between_histories_hold() {
    metamorphic(&unique(), &AppendLogModel, PLAN, 4);
}

#[test]
fn a_thousand_clients() {
    many_clients(
        &unique(),
        &AppendLogModel,
        400,
        |calls: &mut Vec<TestCall>| {
            calls.push(last_call(calls, "read", Value::Nil, Value::List([].into())));
        },
    );
}

#[test]
fn offsets_are_explained() {
    let text = b"{:process 0 :type :invoke :f :append :value 7}
                 {:process 0 :type :ok :f :append :value [0 7]}
                 {:process 1 :type :invoke :f :append :value 8}
                 {:process 1 :type :ok :f :append :value [1 8]}
                 {:process 1 :type :invoke :f :append :value 9}
                 {:process 2 :type :invoke :f :read :value 2}
                 {:process 2 :type :ok :f :read :value [2 9]}
                 {:process 2 :type :invoke :f :read :value 2}
                 {:process 2 :type :ok :f :read :value [2 nil]}";
    let history = import::read("a.edn", text, Format::Edn, ImportOptions::default()).unwrap();
    let verdict = check(AppendLogModel, &history);
    assert_eq!(verdict.valid, Validity::Invalid);
    assert_eq!(
        verdict.findings[0].summary,
        "read 9 at offset 2 (process 2, op 6) cannot be linearized: it took place between op 5 and op 6, and no \
         order of the operations before and beside it allows it.\n\
         By the offsets another operation must take effect no later, which was invoked after this one had completed.\n\
         In contradiction with:\n  read of offset 2, past the end (process 2, op 8)"
    );
}
