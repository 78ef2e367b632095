//! Sets.

use super::{HistoryPlan, TestObject, check, compare, last_call, many_clients, metamorphic};
use crate::SetModel;
use seatrial_checker::Validity;
use seatrial_history::Value;
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::collections::BTreeSet;

/// Sets of which some operations read all elements, or none.
struct TestSet {
    /// Number of whole reads in 8 operations.
    reads: u64,
    /// Number of removals without effect in 8 operations.
    additions: u64,
    /// Are elements added once?
    is_unique: bool,
}

impl TestObject for TestSet {
    /// The elements.
    type State = BTreeSet<i64>;

    fn initial(&self) -> BTreeSet<i64> {
        BTreeSet::new()
    }

    fn random(&self, rng: &mut Rng, size: u64, _: u64) -> (&'static str, Value) {
        if rng.below(8) < self.reads {
            return ("read", Value::Nil);
        }
        let size = if self.is_unique { 1 << 40 } else { size };
        let element = Value::Int(rng.below(size).cast_signed());
        if rng.below(8) < self.additions {
            return (["add", "add", "contains"][rng.index(3)], element);
        }
        (["add", "remove", "contains"][rng.index(3)], element)
    }

    fn run(
        &self,
        state: &mut BTreeSet<i64>,
        (f, argument, _): (&'static str, &Value, u64),
    ) -> Option<Value> {
        let Value::Int(element) = argument else {
            return Some(Value::Set(
                state.iter().map(|&one| Value::Int(one)).collect(),
            ));
        };
        Some(Value::Bool(match f {
            "add" => state.insert(*element),
            "remove" => state.remove(element),
            _ => state.contains(element),
        }))
    }

    fn random_result(&self, rng: &mut Rng, size: u64, f: &str, _: &Value) -> Value {
        if f == "read" {
            let elements = (0..size.cast_signed()).filter(|_| rng.chance(0.5));
            return Value::Set(elements.map(Value::Int).collect());
        }
        Value::Bool(rng.chance(0.5))
    }

    fn without_result(&self, f: &str, argument: &Value) -> Option<Value> {
        ["add", "remove"].contains(&f).then(|| argument.clone())
    }
}

const PLAN: HistoryPlan = HistoryPlan {
    operations: 8,
    clients: 4,
    size: 3,
    crashes: 3,
    hidden: 5,
};

/// Operations on single elements, most of them on one or two.
const ELEMENTS: TestSet = TestSet {
    reads: 0,
    additions: 0,
    is_unique: false,
};

#[test]
fn elements_agree_with_the_brute_force() {
    let counts = compare(&ELEMENTS, &SetModel, PLAN, 1);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn whole_reads_agree_with_the_brute_force() {
    let mixed = TestSet {
        reads: 3,
        ..ELEMENTS
    };
    let counts = compare(&mixed, &SetModel, PLAN, 2);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    // Growing sets.
    let growing = TestSet {
        reads: 3,
        additions: 8,
        is_unique: false,
    };
    let plan = HistoryPlan { size: 6, ..PLAN };
    let counts = compare(&growing, &SetModel, plan, 3);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn relations_between_histories_hold() {
    metamorphic(&ELEMENTS, &SetModel, PLAN, 4);
    let reads = TestSet {
        reads: 3,
        ..ELEMENTS
    };
    metamorphic(&reads, &SetModel, PLAN, 5);
}

#[test]
fn a_thousand_clients() {
    let plant = |calls: &mut Vec<_>| {
        calls.push(last_call(calls, "add", Value::Int(77), Value::Bool(true)));
        calls.push(last_call(
            calls,
            "contains",
            Value::Int(77),
            Value::Bool(false),
        ));
    };
    for is_unique in [true, false] {
        let object = TestSet {
            is_unique,
            ..ELEMENTS
        };
        many_clients(&object, &SetModel, 40, |calls| {
            calls.push(last_call(calls, "remove", Value::Int(77), Value::Nil));
            let place = calls.len() - 1;
            calls[place].result = None;
            plant(calls);
        });
    }
    let growing = TestSet {
        reads: 2,
        additions: 8,
        is_unique: true,
    };
    many_clients(&growing, &SetModel, 40, |calls| {
        let nothing = Value::Set([].into());
        calls.push(last_call(calls, "read", Value::Nil, nothing));
    });
}

fn verdict(text: &str) -> (Validity, String) {
    let options = ImportOptions::default();
    let history = import::read("a.edn", text.as_bytes(), Format::Edn, options).unwrap();
    let verdict = check(SetModel, &history);
    let finding = verdict.findings.first().map(|one| one.summary.clone());
    (
        verdict.valid,
        finding.or(verdict.reason).unwrap_or_default(),
    )
}

#[test]
fn an_element_that_was_never_added_is_absent() {
    let (valid, _) = verdict(
        "{:process 0 :type :invoke :f :contains :value 5}
         {:process 0 :type :ok :f :contains :value false}",
    );
    assert_eq!(valid, Validity::Valid);
    let (valid, text) = verdict(
        "{:process 0 :type :invoke :f :contains :value 5}
         {:process 0 :type :ok :f :contains :value true}",
    );
    assert_eq!(valid, Validity::Invalid);
    assert!(
        text.starts_with("contains 5, which was there (process 0, op 1) cannot be linearized"),
        "{text}"
    );
}

#[test]
fn a_read_that_misses_an_element_is_explained() {
    let (valid, text) = verdict(
        "{:process 0 :type :invoke :f :add :value 1}
         {:process 0 :type :ok :f :add :value 1}
         {:process 1 :type :invoke :f :read}
         {:process 1 :type :ok :f :read :value #{}}",
    );
    assert_eq!(valid, Validity::Invalid);
    assert!(
        text.ends_with(
            "By what reads found, 1 is added after it was invoked; but an operation that needs the element, or adds \
             it, had completed before.\nIn contradiction with:\n  add 1 (process 0, op 1)"
        ),
        "{text}"
    );
}

#[test]
fn operations_that_no_set_has_are_unknown() {
    let (valid, text) = verdict("{:process 0 :type :invoke :f :pop :value 5}");
    assert!(matches!(valid, Validity::Unknown(_)));
    assert_eq!(text, "op 0: a set has no `pop`");
}
