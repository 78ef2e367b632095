//! Logs with offsets, kept as lists of the store: what a client that polls them has to remember.

use super::binding::{decimal, number};
use seatrial_history::{Key, LogMop, Op, Value};
use seatrial_kv::{Answer, Answers, Transaction, TransactionError};
use std::collections::BTreeMap;

/// The logs that a client polls, and how far it is in each. A poll goes on where the last one ended; an offset is the place
/// in the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumer {
    positions: BTreeMap<Key, usize>,
}

/// Messages that a poll gives of one log, at most.
const POLLED_MAX: usize = 64;

impl Consumer {
    /// Polls these logs from now on: those that it knows from where it is, others, or all, from the beginning.
    pub(super) fn assign(&mut self, op: &Op) -> Result<(), String> {
        let Value::List(keys) = &op.value else {
            return Err(format!("{} of {}: no list of logs", op.f, op.value));
        };
        let from_start = op.extra.get("seek-to-beginning?") == Some(&Value::Bool(true));
        let known = std::mem::take(&mut self.positions);
        let keys = keys.iter().map(|key| {
            let key = key.as_key().ok_or_else(|| format!("{key} names no log"))?;
            let position = known.get(&key).filter(|_| !from_start);
            Ok((key.clone(), position.copied().unwrap_or(0)))
        });
        self.positions = keys.collect::<Result<_, String>>()?;
        Ok(())
    }

    /// Asks for the logs that it polls, then sends, and looks after each send where it went.
    pub(super) fn ask(
        &self,
        mops: &[LogMop],
        transaction: &mut Transaction,
    ) -> Result<(), TransactionError> {
        if mops.iter().any(|mop| matches!(mop, LogMop::Poll { .. })) {
            for key in self.positions.keys() {
                transaction.read(&name(key))?;
            }
        }
        for mop in mops {
            if let LogMop::Send { key, value, .. } = mop {
                transaction.append(&name(key), &decimal(*value))?;
                transaction.read(&name(key))?;
            }
        }
        Ok(())
    }

    /// The answer to that.
    pub(super) fn answered(
        &mut self,
        mut mops: Vec<LogMop>,
        answers: &Answers,
    ) -> Result<Value, String> {
        let mut answers = answers.iter();
        let mut next = || answers.next().ok_or("an answer is missing");
        let mut polled = Vec::new();
        if mops.iter().any(|mop| matches!(mop, LogMop::Poll { .. })) {
            for (key, position) in &mut self.positions {
                polled.push((key.clone(), position, elements(&next()?)?));
            }
        }
        for mop in &mut mops {
            match mop {
                LogMop::Send { offset, .. } => {
                    next()?;
                    let length = elements(&next()?)?.len();
                    let last = length.checked_sub(1).ok_or("what was sent is not there")?;
                    *offset = Some(last as i64);
                }
                LogMop::Poll { messages } => {
                    let logs = polled.iter_mut().filter_map(|(key, position, log)| {
                        let from = **position;
                        let end = log.len().min(from + POLLED_MAX);
                        let values = log.get(from..end).unwrap_or_default();
                        **position = from + values.len();
                        let values = values.iter().copied();
                        let messages: Vec<_> = (from as i64..).zip(values).collect();
                        (!messages.is_empty()).then(|| (key.clone(), messages))
                    });
                    *messages = Some(logs.collect());
                }
            }
        }
        Ok(Value::log(&mops))
    }
}

fn name(log: &Key) -> Vec<u8> {
    format!("log {log}").into_bytes()
}

fn elements(answer: &Answer<'_>) -> Result<Vec<i64>, String> {
    match answer {
        Answer::Absent => Ok(Vec::new()),
        Answer::List(list) => list.iter().map(number).collect(),
        other => Err(format!("{other:?} is no list")),
    }
}
