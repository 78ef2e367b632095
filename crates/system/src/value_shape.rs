//! Shapes of values: what the operations of each workload carry, and what their completions must.
//!
//! The bench checks every completion of a client here, in one place, so that a checker never meets a value of the wrong shape.

use seatrial_history::{Key, Mop, Observed, Symbol, Value};
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// The shape of the value of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueShape {
    /// The value of the invocation; it may be left out.
    Same,
    /// An integer, or null.
    IntegerOrNull,
    /// An integer.
    Integer,
    /// A list of integers, in any order, without duplicates: the elements of a set.
    IntegerSet,
    /// A list of integers, in order.
    Integers,
    /// An integer or a text.
    Scalar,
    /// An integer, or nothing.
    Fence,
    /// A transaction as invoked, its reads completed with a list of integers or null.
    ListTransaction,
    /// A transaction as invoked, its reads completed with an integer or null.
    RegisterTransaction,
    /// A transaction as invoked, its reads completed with a list, an integer or null.
    Transaction,
    /// An object with the balance of each account.
    Balances,
    /// A row: an object with `val` and `sts`, integers.
    Row,
    /// A list of rows.
    Rows,
    /// Operations on logs as invoked, sends completed with `[offset, value]`, polls with an object of messages.
    LogTransaction,
    /// Any value.
    Any,
}

impl fmt::Display for ValueShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueShape::Same => "the value of the invocation, or null",
            ValueShape::IntegerOrNull => "an integer or null",
            ValueShape::Integer => "an integer",
            ValueShape::IntegerSet => "a list of integers without duplicates",
            ValueShape::Integers => "a list of integers",
            ValueShape::Scalar => "an integer or a text",
            ValueShape::Fence => "an integer (a fence) or null",
            ValueShape::ListTransaction => {
                "the transaction of the invocation, each read [\"r\", key, [elements]] or [\"r\", key, null]"
            }
            ValueShape::RegisterTransaction => {
                "the transaction of the invocation, each read [\"r\", key, integer] or [\"r\", key, null]"
            }
            ValueShape::Transaction => "the transaction of the invocation, each read with its result",
            ValueShape::Balances => "an object with the balance of each account",
            ValueShape::Row => "an object with the integers `val` and `sts`",
            ValueShape::Rows => "a list of objects with the integers `val` and `sts`",
            ValueShape::LogTransaction => {
                "the operations of the invocation: [\"send\", log, [offset, value]], [\"poll\", {log: [[offset, value], …]}]"
            }
            ValueShape::Any => "any value",
        })
    }
}

/// The shape of the `ok` completion of `f` in a workload; `None`: in a plan with operations of its own.
pub(crate) fn shape_of(workload: Option<&str>, f: &str, invoked: &Value) -> ValueShape {
    let Some(workload) = workload else {
        return match invoked {
            Value::Txn(_) => ValueShape::Transaction,
            _ => ValueShape::Any,
        };
    };
    match (workload, f) {
        ("register" | "cas-register", "read") => ValueShape::IntegerOrNull,
        ("set", "read") => ValueShape::IntegerSet,
        ("counter", "read") | ("queue" | "total-queue", "dequeue") => ValueShape::Integer,
        ("queue" | "total-queue", "drain") => ValueShape::Integers,
        ("bank", "read") => ValueShape::Balances,
        ("unique-ids", "generate") => ValueShape::Scalar,
        ("list-append", "txn") => ValueShape::ListTransaction,
        ("rw-register" | "long-fork", _) => ValueShape::RegisterTransaction,
        ("mutex" | "lock", "acquire") => ValueShape::Fence,
        ("monotonic", "add") => ValueShape::Row,
        ("monotonic", "read") => ValueShape::Rows,
        ("log", "assign") => ValueShape::Same,
        ("log", _) => ValueShape::LogTransaction,
        _ => ValueShape::Same,
    }
}

/// The value of a completion, from JSON, for the value of the invocation (without its key); `None` if it has another shape.
pub(crate) fn completed(shape: ValueShape, invoked: &Value, json: Option<&Json>) -> Option<Value> {
    let given = json.filter(|json| !json.is_null());
    match (shape, given) {
        (ValueShape::Same, None) => Some(invoked.clone()),
        (ValueShape::Same, Some(json)) => (*json == to_json(invoked)).then(|| invoked.clone()),
        (ValueShape::Fence | ValueShape::Any, None) => Some(Value::Nil),
        // A read must say what it read: null, too.
        (ValueShape::IntegerOrNull, None) => json.map(|_| Value::Nil),
        (_, None) => None,
        (ValueShape::IntegerOrNull | ValueShape::Integer | ValueShape::Fence, Some(json)) => {
            json.as_i64().map(Value::Int)
        }
        (ValueShape::IntegerSet, Some(json)) => {
            let elements = integers(json)?;
            let mut sorted = elements.clone();
            sorted.sort_unstable();
            sorted.dedup();
            (sorted.len() == elements.len()).then(|| Value::integer_set(&elements))
        }
        (ValueShape::Integers, Some(json)) => {
            integers(json).map(|elements| Value::integers(&elements))
        }
        (ValueShape::Scalar, Some(Json::String(text))) => Some(Value::text(text.as_str())),
        (ValueShape::Scalar, Some(json)) => json.as_i64().map(Value::Int),
        (
            ValueShape::ListTransaction | ValueShape::RegisterTransaction | ValueShape::Transaction,
            Some(json),
        ) => transaction(shape, invoked, json),
        (ValueShape::Balances, Some(json)) => balances(json),
        (ValueShape::Row, Some(json)) => row(json),
        (ValueShape::Rows, Some(json)) => {
            let rows: Option<Vec<Value>> = json.as_array()?.iter().map(row).collect();
            rows.map(|rows| Value::List(rows.into()))
        }
        (ValueShape::LogTransaction, Some(json)) => log_transaction(invoked, json),
        (ValueShape::Any, Some(json)) => from_json(json),
    }
}

fn integers(json: &Json) -> Option<Vec<i64>> {
    json.as_array()?.iter().map(Json::as_i64).collect()
}

fn transaction(shape: ValueShape, invoked: &Value, json: &Json) -> Option<Value> {
    let (mops, given) = (invoked.as_txn()?, json.as_array()?);
    if mops.len() != given.len() {
        return None;
    }
    let mop = |(mop, given): (&Mop, &Json)| {
        let [name, key, value] = &given.as_array()?[..] else {
            return None;
        };
        let Mop::Read { key: known, .. } = mop else {
            return (*given == mop_json(mop)).then(|| mop.clone());
        };
        if name != "r" || *key != key_json(known) {
            return None;
        }
        let observed = match value {
            Json::Null => Observed::Nil,
            Json::Array(_) if shape != ValueShape::RegisterTransaction => {
                Observed::List(integers(value)?.into())
            }
            value if shape != ValueShape::ListTransaction => Observed::Register(value.as_i64()?),
            _ => return None,
        };
        let key = known.clone();
        Some(Mop::Read { key, observed })
    };
    let mops: Option<Vec<Mop>> = mops.iter().zip(given).map(mop).collect();
    mops.map(|mops| Value::Txn(mops.into()))
}

/// `{"0": 10, "1": 5}`.
fn balances(json: &Json) -> Option<Value> {
    let accounts = json.as_object()?.iter();
    let accounts =
        accounts.map(|(account, balance)| Some((account.parse().ok()?, balance.as_i64()?)));
    let accounts: Vec<(i64, i64)> = accounts.collect::<Option<_>>()?;
    Some(Value::balances(&accounts))
}

fn row(json: &Json) -> Option<Value> {
    let object = json.as_object()?;
    let pairs =
        ["val", "sts"].map(|name| Some((word(name), Value::Int(object.get(name)?.as_i64()?))));
    let pairs: Vec<(Value, Value)> = pairs.into_iter().collect::<Option<_>>()?;
    (object.len() == 2).then(|| Value::Map(pairs.into()))
}

fn word(name: &'static str) -> Value {
    Value::Word(Symbol::new(name))
}

fn log_transaction(invoked: &Value, json: &Json) -> Option<Value> {
    use seatrial_history::LogMop;
    let asked = invoked.as_log()?;
    // Objects have texts as names, and logs may have integers.
    let mops: Vec<LogMop> = json
        .as_array()?
        .iter()
        .map(log_mop)
        .collect::<Option<_>>()?;
    let fits = |(asked, done): (&LogMop, &LogMop)| match (asked, done) {
        (
            LogMop::Send { key, value, .. },
            LogMop::Send {
                key: sent,
                value: message,
                ..
            },
        ) => key == sent && value == message,
        (LogMop::Poll { .. }, LogMop::Poll { messages }) => messages.is_some(),
        _ => false,
    };
    let is_complete = mops.len() == asked.len() && asked.iter().zip(&mops).all(fits);
    is_complete.then(|| Value::log(&mops))
}

fn log_mop(json: &Json) -> Option<seatrial_history::LogMop> {
    use seatrial_history::LogMop;
    let items = json.as_array()?;
    match (items.first()?.as_str()?, &items[1..]) {
        ("send", [key, sent]) => {
            let key = key_of(key)?;
            let (offset, value) = if let Some(value) = sent.as_i64() {
                (None, value)
            } else {
                let (offset, value) = pair(sent)?;
                (Some(offset), value)
            };
            Some(LogMop::Send { key, offset, value })
        }
        ("poll", [logs]) => {
            let logs = logs.as_object()?.iter().map(|(key, messages)| {
                let key = match key.parse() {
                    Ok(number) => Key::Int(number),
                    Err(_) => Key::Text(key.as_str().into()),
                };
                let messages = messages.as_array()?.iter().map(pair);
                Some((key, messages.collect::<Option<Vec<_>>>()?))
            });
            let messages = Some(logs.collect::<Option<_>>()?);
            Some(LogMop::Poll { messages })
        }
        _ => None,
    }
}

fn pair(json: &Json) -> Option<(i64, i64)> {
    match &json.as_array()?[..] {
        [first, second] => Some((first.as_i64()?, second.as_i64()?)),
        _ => None,
    }
}

fn key_of(json: &Json) -> Option<Key> {
    match json {
        Json::String(text) => Some(Key::Text(text.as_str().into())),
        json => json.as_i64().map(Key::Int),
    }
}

/// A key as JSON.
pub(crate) fn key_json(key: &Key) -> Json {
    match key {
        Key::Int(number) => (*number).into(),
        Key::Word(word) => word.as_str().into(),
        Key::Text(text) => text.as_ref().into(),
    }
}

fn mop_json(mop: &Mop) -> Json {
    match mop {
        Mop::Append { key, element } => {
            Json::Array(vec!["append".into(), key_json(key), (*element).into()])
        }
        Mop::Write { key, value } => Json::Array(vec!["w".into(), key_json(key), (*value).into()]),
        Mop::Read { key, observed } => {
            let observed = match observed {
                Observed::Nil => Json::Null,
                Observed::List(elements) => elements.iter().copied().collect::<Vec<i64>>().into(),
                Observed::Register(value) => (*value).into(),
            };
            Json::Array(vec!["r".into(), key_json(key), observed])
        }
    }
}

/// A value as JSON. Keywords become texts, sets lists; the names of maps are written as texts.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Nil => Json::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Text(text) => text.as_ref().into(),
        Value::Word(word) => word.as_str().into(),
        Value::List(items) | Value::Set(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| {
                let name = match to_json(name) {
                    Json::String(text) => text,
                    other => other.to_string(),
                };
                (name, to_json(value))
            });
            Json::Object(pairs.collect())
        }
        Value::Cas(from, to) => vec![*from, *to].into(),
        Value::Txn(mops) => Json::Array(mops.iter().map(mop_json).collect()),
        Value::Keyed(key, value) => Json::Array(vec![key_json(key), to_json(value)]),
    }
}

/// JSON as a value; `None` for an integer that is too large. Nesting is bounded by the reader of JSON.
pub(crate) fn from_json(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => Value::Nil,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(float)) if number.is_f64() => Value::Float(float),
            _ => return None,
        },
        Json::String(text) => Value::Text(Arc::from(text.as_str())),
        Json::Array(items) => {
            let items: Vec<Value> = items.iter().map(from_json).collect::<Option<_>>()?;
            Value::List(items.into())
        }
        Json::Object(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(name, value)| Some((Value::text(name.as_str()), from_json(value)?)));
            let pairs: Vec<(Value, Value)> = pairs.collect::<Option<_>>()?;
            Value::Map(pairs.into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the values are written where they are passed"
    )]
    fn done(workload: &str, f: &str, invoked: &Value, json: Json) -> Option<Value> {
        completed(shape_of(Some(workload), f, invoked), invoked, Some(&json))
    }

    #[test]
    fn values_have_the_shape_of_their_operation() {
        let nil = &Value::Nil;
        assert_eq!(done("register", "read", nil, json!(5)), Some(Value::Int(5)));
        assert_eq!(done("register", "read", nil, Json::Null), Some(Value::Nil));
        assert_eq!(done("register", "read", nil, json!("5")), None);
        assert_eq!(done("register", "read", nil, json!(5.5)), None);
        assert_eq!(
            completed(ValueShape::IntegerOrNull, nil, None),
            None,
            "a read says what it read"
        );
        let four = &Value::Int(4);
        assert_eq!(
            done("register", "write", four, json!(4)),
            Some(Value::Int(4))
        );
        assert_eq!(
            done("register", "write", four, Json::Null),
            Some(Value::Int(4))
        );
        assert_eq!(done("register", "write", four, json!(5)), None);
        let cas = &Value::Cas(1, 2);
        assert_eq!(
            done("cas-register", "cas", cas, json!([1, 2])),
            Some(Value::Cas(1, 2))
        );
        assert_eq!(
            done("set", "read", nil, json!([2, 1])),
            Some(Value::integer_set(&[1, 2]))
        );
        assert_eq!(done("set", "read", nil, json!([1, 1])), None);
        assert_eq!(done("queue", "dequeue", nil, Json::Null), None);
        assert_eq!(
            done("queue", "drain", nil, json!([])),
            Some(Value::integers(&[]))
        );
        assert_eq!(
            done("bank", "read", nil, json!({"0": 5, "1": 7})),
            Some(Value::balances(&[(0, 5), (1, 7)]))
        );
        assert_eq!(done("bank", "read", nil, json!({"a": 5})), None);
        assert_eq!(done("lock", "acquire", nil, Json::Null), Some(Value::Nil));
        assert_eq!(
            done("unique-ids", "generate", nil, json!("x")),
            Some(Value::text("x"))
        );
        assert!(done("monotonic", "read", nil, json!([{"val": 1, "sts": 2}])).is_some());
        assert!(done("monotonic", "read", nil, json!([{"val": 1}])).is_none());
    }

    #[test]
    fn transactions_are_those_that_were_invoked() {
        let key = Key::Int(3);
        let mops = [
            Mop::Append {
                key: key.clone(),
                element: 7,
            },
            Mop::Read {
                key,
                observed: Observed::Nil,
            },
        ];
        let txn = &Value::Txn(mops.into());
        assert_eq!(to_json(txn), json!([["append", 3, 7], ["r", 3, null]]));
        let fine = done(
            "list-append",
            "txn",
            txn,
            json!([["append", 3, 7], ["r", 3, [1, 7]]]),
        )
        .unwrap();
        assert_eq!(fine.to_string(), "[[:append 3 7] [:r 3 [1 7]]]");
        for wrong in [
            json!([["append", 3, 7]]),
            json!([["append", 3, 8], ["r", 3, [1]]]),
            json!([["append", 3, 7], ["r", 4, [1]]]),
            json!([["append", 3, 7], ["r", 3, 1]]),
            json!([["append", 3, 7], ["r", 3, ["1"]]]),
            json!("x"),
        ] {
            assert_eq!(
                done("list-append", "txn", txn, wrong.clone()),
                None,
                "{wrong}"
            );
        }
        let logs = Value::log(&[
            seatrial_history::LogMop::Send {
                key: Key::Int(1),
                offset: None,
                value: 9,
            },
            seatrial_history::LogMop::Poll { messages: None },
        ]);
        assert_eq!(to_json(&logs), json!([["send", 1, 9], ["poll"]]));
        let polled = json!([["send", 1, [0, 9]], ["poll", {"1": [[0, 9]]}]]);
        assert!(
            done("log", "txn", &logs, polled)
                .unwrap()
                .as_log()
                .is_some()
        );
        assert_eq!(
            done(
                "log",
                "txn",
                &logs,
                json!([["send", 1, [0, 8]], ["poll", {}]])
            ),
            None
        );
    }

    #[test]
    fn values_of_any_shape_come_back() {
        for json in [json!(null), json!([1, "a", {"b": 2.5}]), json!(true)] {
            assert_eq!(to_json(&from_json(&json).unwrap()), json);
        }
        assert_eq!(from_json(&json!(u64::MAX)), None);
    }
}
