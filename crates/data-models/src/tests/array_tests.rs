//! Block devices, and registers with transactions.

use super::{
    HistoryPlan, TestCall, TestObject, check, compare, last_call, many_clients, metamorphic,
};
use crate::RegisterArray;
use seatrial_checker::Validity;
use seatrial_history::{Key, Mop, Observed, Value};
use seatrial_interchange::import::{self, Format, ImportOptions};
use seatrial_machine::Rng;
use std::cell::Cell;
use std::collections::BTreeMap;

/// A block device.
struct TestDevice {
    /// Blocks of an operation.
    length: u64,
    /// The next value, of values that do not repeat.
    next: Option<Cell<i64>>,
}

fn pair(first: i64, second: Value) -> Value {
    Value::List([Value::Int(first), second].into())
}

fn first_of(value: &Value) -> (i64, &Value) {
    match value {
        Value::List(items) => (items[0].as_int().unwrap(), &items[1]),
        other => panic!("{other}"),
    }
}

impl TestDevice {
    fn new(length: u64) -> TestDevice {
        TestDevice { length, next: None }
    }
}

impl TestObject for TestDevice {
    type State = BTreeMap<i64, Value>;

    fn initial(&self) -> BTreeMap<i64, Value> {
        BTreeMap::new()
    }

    fn random(&self, rng: &mut Rng, size: u64, _: u64) -> (&'static str, Value) {
        let first = rng.below(size).cast_signed();
        let count = 1 + rng.below(self.length);
        let mut values = || match &self.next {
            Some(next) => next.replace(next.get() + 1),
            None => rng.below(3).cast_signed(),
        };
        let contents: Vec<Value> = (0..count).map(|_| Value::Int(values())).collect();
        match rng.below(8) {
            0 if self.next.is_none() => ("trim", pair(first, Value::Int(count.cast_signed()))),
            0..4 => ("write", pair(first, Value::List(contents.into()))),
            _ => ("read", pair(first, Value::Int(count.cast_signed()))),
        }
    }

    fn run(
        &self,
        blocks: &mut BTreeMap<i64, Value>,
        (f, argument, _): (&'static str, &Value, u64),
    ) -> Option<Value> {
        let (first, rest) = first_of(argument);
        match (f, rest) {
            ("write", Value::List(contents)) => {
                blocks.extend((first..).zip(contents.iter().cloned()));
                Some(argument.clone())
            }
            ("trim", Value::Int(count)) => {
                blocks.retain(|block, _| !(first..first + count).contains(block));
                Some(argument.clone())
            }
            (_, Value::Int(count)) => {
                let read = (first..first + count).map(|block| blocks.get(&block).cloned());
                let read = read.map(|one| one.unwrap_or(Value::Int(0)));
                Some(pair(first, Value::List(read.collect())))
            }
            other => panic!("{other:?}"),
        }
    }

    fn random_result(&self, rng: &mut Rng, _: u64, f: &str, argument: &Value) -> Value {
        let (first, rest) = first_of(argument);
        match (f, rest) {
            ("read", Value::Int(count)) => {
                let values = (0..*count).map(|_| Value::Int(rng.below(3).cast_signed()));
                pair(first, Value::List(values.collect()))
            }
            _ => argument.clone(),
        }
    }

    fn without_result(&self, f: &str, argument: &Value) -> Option<Value> {
        (f != "read").then(|| argument.clone())
    }
}

const PLAN: HistoryPlan = HistoryPlan {
    operations: 7,
    clients: 4,
    size: 3,
    crashes: 3,
    hidden: 0,
};

#[test]
fn devices_agree_with_the_brute_force() {
    for (length, seed) in [(1, 1), (2, 2)] {
        let counts = compare(&TestDevice::new(length), &RegisterArray::Blocks, PLAN, seed);
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
        metamorphic(&TestDevice::new(length), &RegisterArray::Blocks, PLAN, seed);
    }
}

#[test]
fn a_thousand_clients() {
    for length in [1, 3] {
        // Ranges over many blocks leave few that do not depend on one another, and searches short if clients are few.
        let device = TestDevice {
            length,
            next: Some(Cell::new(1)),
        };
        let blocks = if length == 1 { 40 } else { 100_000 };
        many_clients(
            &device,
            &RegisterArray::Blocks,
            blocks,
            |calls: &mut Vec<TestCall>| {
                let write = pair(3, Value::List([Value::Int(-1)].into()));
                calls.push(last_call(calls, "write", write.clone(), write));
                let read = pair(3, Value::List([Value::Int(0)].into()));
                calls.push(last_call(calls, "read", pair(3, Value::Int(1)), read));
            },
        );
    }
}

/// Registers with transactions.
struct TestRegisters {
    next: Option<Cell<i64>>,
}

fn key(register: i64) -> Key {
    Key::Int(register)
}

impl TestObject for TestRegisters {
    type State = BTreeMap<Key, i64>;

    fn initial(&self) -> BTreeMap<Key, i64> {
        BTreeMap::new()
    }

    fn random(&self, rng: &mut Rng, size: u64, _: u64) -> (&'static str, Value) {
        let mops = (0..=rng.below(2)).map(|_| {
            let key = key(rng.below(size).cast_signed());
            if rng.chance(0.5) {
                let observed = Observed::Nil;
                return Mop::Read { key, observed };
            }
            let value = match &self.next {
                Some(next) => next.replace(next.get() + 1),
                None => rng.below(3).cast_signed(),
            };
            Mop::Write { key, value }
        });
        ("txn", Value::Txn(mops.collect()))
    }

    fn run(
        &self,
        registers: &mut BTreeMap<Key, i64>,
        (_, argument, _): (&'static str, &Value, u64),
    ) -> Option<Value> {
        let mops = argument.as_txn().unwrap().iter().map(|mop| match mop {
            Mop::Read { key, .. } => {
                let value = registers.get(key).copied();
                Mop::Read {
                    key: key.clone(),
                    observed: value.map_or(Observed::Nil, Observed::Register),
                }
            }
            Mop::Write { key, value } => {
                registers.insert(key.clone(), *value);
                mop.clone()
            }
            Mop::Append { .. } => panic!("no list"),
        });
        Some(Value::Txn(mops.collect()))
    }

    fn random_result(&self, rng: &mut Rng, _: u64, _: &str, argument: &Value) -> Value {
        let mops = argument.as_txn().unwrap().iter().map(|mop| match mop {
            Mop::Read { key, .. } => Mop::Read {
                key: key.clone(),
                observed: match rng.below(4).cast_signed() {
                    3 => Observed::Nil,
                    value => Observed::Register(value),
                },
            },
            other => other.clone(),
        });
        Value::Txn(mops.collect())
    }

    fn without_result(&self, _: &str, _: &Value) -> Option<Value> {
        None
    }
}

#[test]
fn transactions_agree_with_the_brute_force() {
    let registers = TestRegisters { next: None };
    let counts = compare(&registers, &RegisterArray::Transactions, PLAN, 1);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    metamorphic(&registers, &RegisterArray::Transactions, PLAN, 2);
}

#[test]
fn transactions_of_a_thousand_clients() {
    let registers = TestRegisters {
        next: Some(Cell::new(1)),
    };
    many_clients(
        &registers,
        &RegisterArray::Transactions,
        100_000,
        |calls: &mut Vec<TestCall>| {
            let (key, value) = (key(1), 5_000_000);
            let write = Value::Txn(
                [Mop::Write {
                    key: key.clone(),
                    value,
                }]
                .into(),
            );
            calls.push(last_call(calls, "txn", write.clone(), write));
            let observed = Observed::Nil;
            let read = Value::Txn([Mop::Read { key, observed }].into());
            calls.push(last_call(calls, "txn", read.clone(), read));
        },
    );
}

#[test]
fn a_torn_write_is_explained() {
    let text = b"{:process 0 :type :invoke :f :write :value [4 [1 2]]}
                 {:process 0 :type :ok :f :write :value [4 [1 2]]}
                 {:process 1 :type :invoke :f :read :value [4 2]}
                 {:process 1 :type :ok :f :read :value [4 [1 0]]}";
    let history = import::read("a.edn", text, Format::Edn, ImportOptions::default()).unwrap();
    let verdict = check(RegisterArray::Blocks, &history);
    assert_eq!(verdict.valid, Validity::Invalid);
    let text = &verdict.findings[0].summary;
    assert!(
        text.starts_with("read [r 5 0] (process 1, op 3) cannot be linearized"),
        "{text}"
    );
    assert!(
        text.contains("write [w 5 2] (process 0, op 1), then it is {5 2}"),
        "{text}"
    );
}

#[test]
fn maps_of_registers_are_read_and_written() {
    let text = |read: &str| {
        format!(
            "{{:process 0 :type :invoke :f :write :value {{:x 1 :y 2}}}}
             {{:process 0 :type :ok :f :write :value {{:x 1 :y 2}}}}
             {{:process 1 :type :invoke :f :read :value nil}}
             {{:process 1 :type :ok :f :read :value {read}}}"
        )
    };
    for (read, expected) in [
        ("{:y 2 :x 1}", Validity::Valid),
        ("{:x 1 :y 1}", Validity::Invalid),
    ] {
        let text = text(read);
        let history = import::read(
            "a.edn",
            text.as_bytes(),
            Format::Edn,
            ImportOptions::default(),
        );
        let verdict = check(RegisterArray::Transactions, &history.unwrap());
        assert_eq!(verdict.valid, expected, "{:?}", verdict.reason);
    }
}
