//! Chunk by chunk against the whole history in memory.

use seatrial_check::{by_name, names};
use seatrial_checker::{Aims, check_source};
use seatrial_history::{History, Key, Op, OpType, Process, Value};
use seatrial_machine::Rng;

/// Clients and a nemesis that do anything in any order.
fn any_history(rng: &mut Rng) -> History {
    let ops = (0..rng.below(40_000)).map(|_| {
        let process = match rng.below(5) {
            4 => Process::NEMESIS,
            number => Process::Client(number),
        };
        // A completion belongs to the function of its invocation.
        let f = match process {
            Process::Client(number) => ["read", "write", "cas", "read"][number as usize],
            Process::Named(_) => *rng.pick(&["kill", "read"]),
        };
        let kinds = [OpType::Invoke, OpType::Ok, OpType::Fail, OpType::Info];
        let kind = kinds[rng.index(if f == "cas" { 1 } else { 4 })];
        Op {
            kind,
            ..Op::invoke(process, f, Value::Nil)
        }
    });
    History::from_unindexed(ops.collect())
}

/// Values of all forms, most of which do not fit the function.
fn any_value(form: u64, rng: &mut Rng) -> Value {
    let integers = |rng: &mut Rng| -> Vec<Value> {
        let length = rng.below(4).saturating_sub(1);
        (0..length)
            .map(|_| Value::Int(rng.below(7) as i64 - 1))
            .collect()
    };
    match form {
        0 => Value::Nil,
        1 => Value::List(integers(rng).into()),
        2 => Value::Set(integers(rng).into()),
        3 => Value::Cas(rng.below(6) as i64, rng.below(6) as i64),
        4 => Value::text("1.5"),
        5 => {
            let rows = (0..rng.below(3)).map(|_| Value::List(integers(rng).into()));
            Value::List(rows.collect())
        }
        6 => {
            let pairs = (0..rng.below(3)).map(|key| (Value::Int(key as i64), Value::Int(5)));
            Value::Map(pairs.collect())
        }
        _ => Value::Int(rng.below(7) as i64 - 1),
    }
}

/// Operations of data types with any values.
fn any_operations(rng: &mut Rng) -> History {
    let all = [
        "add", "read", "enqueue", "dequeue", "drain", "transfer", "generate", "acquire", "release",
        "write", "read", "add",
    ];
    let functions: Vec<_> = (0..4).map(|_| *rng.pick(&all)).collect();
    // Of each client mostly one form, and in half of the histories only that: what is refused hides the rest.
    let forms: Vec<u64> = (0..4).map(|_| rng.below(9)).collect();
    let others = if rng.chance(0.5) { 0.1 } else { 0.0 };
    let is_keyed = rng.chance(0.5);
    let ops = (0..rng.below(2_000)).map(|_| {
        let process = rng.below(4);
        let kinds = [
            OpType::Invoke,
            OpType::Ok,
            OpType::Ok,
            OpType::Fail,
            OpType::Info,
        ];
        let form = if rng.chance(others) {
            rng.below(9)
        } else {
            forms[process as usize]
        };
        let mut value = any_value(form, rng);
        if is_keyed {
            value = Value::Keyed(Key::Int(rng.below(2) as i64), value.into());
        }
        let op = Op::invoke(Process::Client(process), functions[process as usize], value);
        Op {
            kind: *rng.pick(&kinds),
            ..op
        }
    });
    History::from_unindexed(ops.collect())
}

#[test]
fn chunk_by_chunk_the_verdict_is_the_same() {
    for seed in 0..seatrial_farm::seeds(80) {
        let mut rng = Rng::from_seed(seed);
        let history = if seed.is_multiple_of(4) {
            any_history(&mut rng)
        } else {
            any_operations(&mut rng)
        };
        for name in names() {
            let checker = by_name(name, None).unwrap();
            let whole = checker.check(&history);
            let checked = check_source(&*checker, &history, &Aims::default()).unwrap();
            let text = |verdict| serde_json::to_string(verdict).unwrap();
            assert_eq!(text(&checked.verdict), text(&whole), "{name}, seed {seed}");
        }
    }
}
