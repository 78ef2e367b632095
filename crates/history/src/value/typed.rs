//! Typed values of common workloads, converted from and to plain values.
//!
//! Test files store each of these in a compact form; equality and printing are those of the plain values.

use super::{Key, Value};
use crate::Symbol;

/// A transfer between bank accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The debited account.
    pub from: i64,
    /// The credited account.
    pub to: i64,
    /// The amount.
    pub amount: i64,
}

/// A log and the messages polled from it: offsets and values.
pub type Polled = (Key, Vec<(i64, i64)>);

/// A micro-operation on logs with offsets, as in Jepsen's Kafka workload.
#[derive(Clone, Debug, PartialEq)]
pub enum LogMop {
    /// `[:send key value]`; once the offset is known, `[:send key [offset value]]`.
    Send {
        /// The log.
        key: Key,
        /// Offset of the message, if known.
        offset: Option<i64>,
        /// The message.
        value: i64,
    },
    /// `[:poll]`; once the messages are known, `[:poll {key [[offset value] …] …}]`.
    Poll {
        /// Per log offsets and values, in the order of delivery.
        messages: Option<Vec<Polled>>,
    },
}

fn word(name: &'static str) -> Value {
    Value::Word(Symbol::new(name))
}

fn list<const COUNT: usize>(items: [Value; COUNT]) -> Value {
    Value::List(items.into())
}

impl From<&Key> for Value {
    fn from(key: &Key) -> Value {
        match key {
            Key::Int(number) => Value::Int(*number),
            Key::Word(word) => Value::Word(*word),
            Key::Text(text) => Value::Text(text.clone()),
        }
    }
}

/// The items of a list; a list of two integers may be stored as a compare-and-set.
fn items(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::List(items) => Some(items.to_vec()),
        Value::Cas(first, second) => Some(vec![Value::Int(*first), Value::Int(*second)]),
        _ => None,
    }
}

fn pair(value: &Value) -> Option<(i64, i64)> {
    match items(value)?[..] {
        [Value::Int(first), Value::Int(second)] => Some((first, second)),
        _ => None,
    }
}

impl Value {
    /// This value as a key; `None` if it is neither an integer, a keyword nor a text.
    pub fn as_key(&self) -> Option<Key> {
        match self {
            Value::Int(number) => Some(Key::Int(*number)),
            Value::Word(word) => Some(Key::Word(*word)),
            Value::Text(text) => Some(Key::Text(text.clone())),
            _ => None,
        }
    }

    /// A list of integers.
    pub fn integers(numbers: &[i64]) -> Value {
        Value::List(numbers.iter().map(|&number| Value::Int(number)).collect())
    }

    /// A set of integers, the result of reading a set.
    pub fn integer_set(numbers: &[i64]) -> Value {
        Value::Set(numbers.iter().map(|&number| Value::Int(number)).collect())
    }

    /// The integers of a list or a set, in their order.
    pub fn as_integers(&self) -> Option<Vec<i64>> {
        match self {
            Value::List(items) | Value::Set(items) => items.iter().map(Value::as_int).collect(),
            Value::Cas(from, to) => Some(vec![*from, *to]),
            _ => None,
        }
    }

    /// A transfer between bank accounts: `{:from from, :to to, :amount amount}`.
    pub fn transfer(from: i64, to: i64, amount: i64) -> Value {
        let pairs = [("from", from), ("to", to), ("amount", amount)];
        Value::Map(
            pairs
                .map(|(name, number)| (word(name), Value::Int(number)))
                .into(),
        )
    }

    /// The value as a transfer, with its three fields in any order.
    pub fn as_transfer(&self) -> Option<Transfer> {
        let Value::Map(pairs) = self else {
            return None;
        };
        let field = |name: &str| {
            let is_it = |key: &Value| matches!(key, Value::Word(word) if *word == *name);
            pairs.iter().find(|(key, _)| is_it(key))?.1.as_int()
        };
        let transfer = Transfer {
            from: field("from")?,
            to: field("to")?,
            amount: field("amount")?,
        };
        (pairs.len() == 3).then_some(transfer)
    }

    /// The balances of bank accounts: `{account balance, …}`.
    pub fn balances(accounts: &[(i64, i64)]) -> Value {
        let pairs = accounts.iter();
        Value::Map(
            pairs
                .map(|&(account, balance)| (Value::Int(account), Value::Int(balance)))
                .collect(),
        )
    }

    /// Accounts and balances, in their order.
    pub fn as_balances(&self) -> Option<Vec<(i64, i64)>> {
        let Value::Map(pairs) = self else {
            return None;
        };
        let pairs = pairs.iter();
        pairs
            .map(|(account, balance)| Some((account.as_int()?, balance.as_int()?)))
            .collect()
    }

    /// A transaction on logs.
    pub fn log(mops: &[LogMop]) -> Value {
        Value::List(mops.iter().map(Value::from).collect())
    }

    /// The micro-operations of a transaction on logs.
    pub fn as_log(&self) -> Option<Vec<LogMop>> {
        let Value::List(mops) = self else {
            return None;
        };
        mops.iter().map(log_mop).collect()
    }
}

impl From<&LogMop> for Value {
    fn from(mop: &LogMop) -> Value {
        let pair = |&(offset, value): &(i64, i64)| Value::integers(&[offset, value]);
        match mop {
            LogMop::Send { key, offset, value } => {
                let sent = match offset {
                    Some(offset) => pair(&(*offset, *value)),
                    None => Value::Int(*value),
                };
                list([word("send"), key.into(), sent])
            }
            LogMop::Poll { messages: None } => list([word("poll")]),
            LogMop::Poll {
                messages: Some(logs),
            } => {
                let logs = logs.iter().map(|(key, messages)| {
                    let messages = messages.iter().map(pair).collect();
                    (Value::from(key), Value::List(messages))
                });
                list([word("poll"), Value::Map(logs.collect())])
            }
        }
    }
}

fn log_mop(value: &Value) -> Option<LogMop> {
    let items = items(value)?;
    let (name, arguments) = items.split_first()?;
    // JSON has no keywords.
    let name = match name {
        Value::Word(name) => name.as_str(),
        Value::Text(name) => name,
        _ => return None,
    };
    match (name, arguments) {
        ("send", [key, sent]) => {
            let (offset, value) = match sent {
                Value::Int(value) => (None, *value),
                sent => {
                    let (offset, value) = pair(sent)?;
                    (Some(offset), value)
                }
            };
            let key = key.as_key()?;
            Some(LogMop::Send { key, offset, value })
        }
        ("poll", []) => Some(LogMop::Poll { messages: None }),
        ("poll", [Value::Map(logs)]) => {
            let logs = logs.iter().map(|(key, messages)| {
                let Value::List(messages) = messages else {
                    return None;
                };
                let messages = messages.iter().map(pair);
                Some((key.as_key()?, messages.collect::<Option<Vec<_>>>()?))
            });
            let messages = Some(logs.collect::<Option<Vec<_>>>()?);
            Some(LogMop::Poll { messages })
        }
        _ => None,
    }
}
