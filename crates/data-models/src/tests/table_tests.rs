//! Tables: a mutex, a register, an object with several results; errors.

use super::{HistoryPlan, TestObject, check, compare, history, metamorphic, valid_calls};
use crate::{StateTableRow, TableModel};
use seatrial_checker::{Checker, Validity};
use seatrial_farm::least;
use seatrial_history::{History, Op, OpType, Process, Value};
use seatrial_linear::{Linearizable, Model};
use seatrial_machine::Rng;

type Row<'r> = (&'r str, &'r str, Option<i64>, Option<Value>, &'r str);

fn table(initial: &str, rows: &[Row<'_>]) -> Result<TableModel, String> {
    let rows = rows
        .iter()
        .map(|(state, operation, argument, result, next)| StateTableRow {
            state: (*state).into(),
            operation: (*operation).into(),
            argument: argument.map(Value::Int),
            result: result.clone(),
            next: (*next).into(),
        });
    TableModel::new(initial, &rows.collect::<Vec<_>>()).map_err(|error| error.to_string())
}

fn mutex() -> TableModel {
    let rows = [
        ("free", "acquire", None, None, "held"),
        ("held", "release", None, None, "free"),
    ];
    table("free", &rows).unwrap()
}

/// A register of nil, 0, 1 and 2.
fn register() -> TableModel {
    let mut rows: Vec<Row<'_>> = vec![("nil", "read", None, Some(Value::Nil), "same")];
    for (value, name) in [(0, "zero"), (1, "one"), (2, "two")] {
        rows.push(("*", "write", Some(value), None, name));
        rows.push((name, "read", None, Some(Value::Int(value)), "same"));
    }
    table("nil", &rows).unwrap()
}

/// A coin: `flip` shows 0 or 1, of which only the result is known; `look` shows the same.
fn coin() -> TableModel {
    let rows = [
        ("*", "flip", None, Some(Value::Int(0)), "heads"),
        ("*", "flip", None, Some(Value::Int(1)), "tails"),
        ("heads", "look", None, Some(Value::Int(0)), "same"),
        ("tails", "look", None, Some(Value::Int(1)), "same"),
    ];
    table("heads", &rows).unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tabled {
    Mutex,
    Register,
    Coin,
}

impl TestObject for Tabled {
    type State = Option<i64>;

    fn initial(&self) -> Option<i64> {
        (*self == Tabled::Coin).then_some(0)
    }

    fn random(&self, rng: &mut Rng, _: u64, _: u64) -> (&'static str, Value) {
        let first = rng.chance(0.5);
        match self {
            Tabled::Mutex if first => ("acquire", Value::Nil),
            Tabled::Mutex => ("release", Value::Nil),
            Tabled::Register if first => ("read", Value::Nil),
            Tabled::Register => ("write", Value::Int(rng.below(3).cast_signed())),
            Tabled::Coin if first => ("flip", Value::Nil),
            Tabled::Coin => ("look", Value::Nil),
        }
    }

    fn run(&self, state: &mut Option<i64>, call: (&'static str, &Value, u64)) -> Option<Value> {
        match call.0 {
            "acquire" if state.is_some() => return None,
            "release" if state.is_none() => return None,
            "acquire" => *state = Some(0),
            "release" => *state = None,
            "write" => {
                *state = call.1.as_int();
                return Some(call.1.clone());
            }
            "flip" => *state = state.map(|side| 1 - side),
            _ => {}
        }
        let shown = state.map_or(Value::Nil, Value::Int);
        Some(match self {
            Tabled::Mutex => Value::Nil,
            _ => shown,
        })
    }

    fn replay(
        &self,
        state: &mut Option<i64>,
        call: (&'static str, &Value, u64),
        known: Option<&Value>,
    ) -> bool {
        if let ("flip", Some(side)) = (call.0, known.and_then(Value::as_int)) {
            *state = Some(side);
            return (0..2).contains(&side);
        }
        let result = self.run(state, call);
        result.is_some_and(|result| known.is_none_or(|known| *known == result))
    }

    fn random_result(&self, rng: &mut Rng, _: u64, f: &str, argument: &Value) -> Value {
        match f {
            "read" | "flip" | "look" => Value::Int(rng.below(4).cast_signed()),
            _ => argument.clone(),
        }
    }

    fn without_result(&self, _: &str, _: &Value) -> Option<Value> {
        None
    }
}

const SMALL: HistoryPlan = HistoryPlan {
    operations: 9,
    clients: 4,
    size: 3,
    crashes: 3,
    hidden: 0,
};

#[test]
fn tables_agree_with_the_brute_force() {
    let counts = compare(&Tabled::Register, &register(), SMALL, 1);
    assert!(counts.iter().all(|&count| count > least(500)), "{counts:?}");
    // Results of a mutex cannot be wrong.
    let counts = compare(&Tabled::Mutex, &mutex(), SMALL, 2);
    assert!(counts[0] > least(2_000), "{counts:?}");
    metamorphic(&Tabled::Register, &register(), SMALL, 3);
}

#[test]
fn tables_agree_with_the_checkers_of_their_types() {
    let mut rng = Rng::from_seed(4);
    for (object, table, model, functions) in [
        (Tabled::Mutex, mutex(), Model::Mutex, ["acquire", "release"]),
        (
            Tabled::Register,
            register(),
            Model::Register,
            ["read", "write"],
        ),
    ] {
        let mut counts = [0; 2];
        for number in 0..3_000 {
            let calls = valid_calls(&object, &mut rng, SMALL);
            let mut ops: Vec<Op> = history(&object, &calls).iter().cloned().collect();
            // Some operations are others: a second release, a read of another value.
            for op in ops.iter_mut().filter(|_| number % 4 > 0) {
                if rng.chance(0.2) && object == Tabled::Register && op.is_ok() {
                    op.value = Value::Int(rng.below(4).cast_signed());
                }
            }
            if number % 4 > 0 && object == Tabled::Mutex {
                for process in 0..5 {
                    let other = functions[rng.index(2)].into();
                    if let Some(place) = ops.iter().position(|op| {
                        op.process == Process::Client(process) && op.kind == OpType::Invoke
                    }) {
                        let end = ops[place + 1..]
                            .iter()
                            .position(|op| op.process == Process::Client(process));
                        ops[place].f = other;
                        if let Some(end) = end {
                            ops[place + 1 + end].f = other;
                        }
                    }
                }
            }
            let history = History::from_unindexed(ops);
            let expected = Linearizable::new(model).check(&history).valid;
            assert_eq!(check(table.clone(), &history).valid, expected, "{calls:#?}");
            counts[usize::from(expected == Validity::Invalid)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
    }
}

#[test]
fn an_unknown_result_is_any_that_a_row_allows() {
    let op = |process, f: &'static str| Op::invoke(Process::Client(process), f, Value::Nil);
    let (flip, look) = (op(0, "flip"), op(1, "look"));
    let seen = |sides: &[i64]| {
        let mut ops = vec![flip.clone(), flip.complete(OpType::Info, Value::Nil)];
        for &side in sides {
            ops.push(look.clone());
            ops.push(look.complete(OpType::Ok, Value::Int(side)));
        }
        check(coin(), &History::from_unindexed(ops)).valid
    };
    assert_eq!(seen(&[0, 0]), Validity::Valid);
    assert_eq!(seen(&[0, 1]), Validity::Valid);
    assert_eq!(seen(&[1]), Validity::Valid);
    assert_eq!(seen(&[1, 0]), Validity::Invalid);
    assert_eq!(seen(&[0, 1, 0]), Validity::Invalid);
    assert_eq!(seen(&[2]), Validity::Invalid);
    // Of several clients, against all orders and all results: each side is a function of its own there.
    let counts = compare(
        &Tabled::Coin,
        &coin(),
        HistoryPlan {
            crashes: 0,
            ..SMALL
        },
        5,
    );
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}

#[test]
fn what_is_no_table_is_refused() {
    let one = || Some(Value::Int(1));
    let error = |rows: &[Row<'_>]| table("a", rows).unwrap_err();
    assert_eq!(error(&[]), "rows: there must be at least one row");
    assert_eq!(
        error(&[("b", "f", None, None, "same")]),
        "initial: unknown state \"a\": no row has it as its `state`"
    );
    assert_eq!(
        error(&[("a", "f", None, None, "b")]),
        "rows[0].next: unknown state \"b\": no row has it as its `state`"
    );
    assert!(error(&[("same", "f", None, None, "a")]).starts_with("rows[0].state: \"same\""));
    let end = ("b", "f", None, None, "same");
    let contradicting: [[Row<'_>; 2]; 5] = [
        [("a", "f", None, None, "a"), ("a", "f", None, None, "b")],
        [("a", "f", Some(1), None, "a"), ("a", "f", None, one(), "b")],
        [
            ("a", "f", Some(1), one(), "a"),
            ("a", "f", None, one(), "b"),
        ],
        [("*", "f", Some(2), None, "a"), ("b", "f", None, None, "b")],
        [("a", "f", None, one(), "a"), ("a", "f", None, None, "b")],
    ];
    for [first, second] in contradicting {
        for rows in [[first.clone(), second.clone()], [second, first]] {
            let text = error(
                &[
                    ("b", "g", None, None, "same"),
                    ("a", "g", None, None, "same"),
                ]
                .into_iter()
                .chain(rows)
                .collect::<Vec<_>>(),
            );
            assert!(text.contains("contradicts rows[2]"), "{text}");
        }
    }
    // The same row twice, and rows for different results, contradict nothing.
    let rows = [
        ("a", "f", None, one(), "a"),
        ("a", "f", None, one(), "same"),
        ("a", "f", Some(1), Some(Value::Nil), "b"),
        end,
    ];
    assert!(table("a", &rows).is_ok());
    let names: Vec<String> = (0..=TableModel::STATES_MAX)
        .map(|n| n.to_string())
        .collect();
    let rows = names
        .iter()
        .map(|name| (name.as_str(), "f", None, None, "same"));
    let text = table("0", &rows.collect::<Vec<_>>()).unwrap_err();
    assert_eq!(text, "rows[4096].state: there must be at most 4096 states");
    let many = names[..4_096].iter();
    let rows = many.map(|name| (name.as_str(), "f", None, None, "same"));
    let rows = rows.chain((0..16).map(|n| ("*", "g", Some(n), None, "same")));
    let text = table("0", &rows.collect::<Vec<_>>()).unwrap_err();
    assert!(text.starts_with("rows: 69632 rows"), "{text}");
}

#[test]
fn a_table_is_needed() {
    let read = Op::invoke(Process::Client(0), "read", Value::Nil);
    let history =
        History::from_unindexed(vec![read.clone(), read.complete(OpType::Ok, Value::Nil)]);
    let without = check(TableModel::default(), &history);
    assert!(matches!(&without.valid, Validity::Unknown(reason) if reason.contains("[model]")));
    let other = check(mutex(), &history);
    assert!(matches!(&other.valid, Validity::Unknown(reason) if reason.contains("`read`")));
}
