//! Logs with offsets: each is a list of its messages, and an offset is the place in the list. A client keeps how far it has
//! polled each log.

use super::{Procedure, ProcedureStep, cannot};
use crate::encoding::{decimal, number};
use seatrial_history::{Key, LogMop, Op, OpType, Value};
use seatrial_kv_protocol::{Answer, Answers, Transaction, TransactionError};
use std::collections::BTreeMap;

/// The logs that a client polls, with its position in each: a poll begins where the last one ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumer {
    positions: BTreeMap<Key, usize>,
}

/// Maximum number of messages of one log in a poll.
const POLLED_MAX: usize = 64;

/// An operation on logs is one transaction of the store.
#[derive(Debug)]
pub(super) struct LogProcedure;

impl Procedure for LogProcedure {
    fn begin(&mut self, op: &Op, consumer: &mut Consumer) -> Result<ProcedureStep, String> {
        let mut transaction = Transaction::new();
        if op.f == "assign" {
            consumer.assign(op)?;
        } else {
            let mops = op.value.as_log().ok_or_else(|| cannot(op))?;
            let asked = consumer.ask(&mops, &mut transaction);
            asked.map_err(|error| error.to_string())?;
        }
        Ok(ProcedureStep::Whole(transaction))
    }

    fn resume(
        &mut self,
        op: &Op,
        answers: &Answers,
        consumer: &mut Consumer,
    ) -> Result<ProcedureStep, String> {
        let value = if op.f == "assign" {
            op.value.clone()
        } else {
            consumer.answered(op.value.as_log().unwrap_or_default(), answers)?
        };
        Ok(ProcedureStep::Done(op.complete(OpType::Ok, value)))
    }
}

impl Consumer {
    /// Assigns logs to the client. It keeps its position in logs that it had before, unless it must seek to the beginning.
    fn assign(&mut self, op: &Op) -> Result<(), String> {
        let Value::List(keys) = &op.value else {
            return Err(format!("{} of {}: no list of logs", op.f, op.value));
        };
        let from_start = op.extra.get("seek-to-beginning?") == Some(&Value::Bool(true));
        let known = std::mem::take(&mut self.positions);
        let keys = keys.iter().map(|key| {
            let key = key
                .as_key()
                .ok_or_else(|| format!("{key} is not the name of a log"))?;
            let position = known.get(&key).filter(|_| !from_start);
            Ok((key.clone(), position.copied().unwrap_or(0)))
        });
        self.positions = keys.collect::<Result<_, String>>()?;
        Ok(())
    }

    /// Reads the polled logs, then sends, and reads after each send to learn the offset.
    fn ask(&self, mops: &[LogMop], transaction: &mut Transaction) -> Result<(), TransactionError> {
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

    /// Decodes the answers to that.
    fn answered(&mut self, mut mops: Vec<LogMop>, answers: &Answers) -> Result<Value, String> {
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
                    let last = length.checked_sub(1).ok_or("a sent message is missing")?;
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
        other => Err(format!("{other:?} is not a list")),
    }
}
