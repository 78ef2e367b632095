//! Models of locks and of logs with offsets, for the workloads that use them.

use seatrial_history::{Key, LogMop, Op, Process, Value};
use std::collections::BTreeMap;

/// Locks by key, and logs with the positions of their consumers. A broken one grants a held lock, or forgets a
/// message that it acknowledges.
#[derive(Default)]
pub(crate) struct Shared {
    /// The owner, if it is held, and the fence of the last acquisition.
    locks: BTreeMap<Option<Key>, (Option<Process>, i64)>,
    logs: BTreeMap<Key, Vec<i64>>,
    positions: BTreeMap<Process, BTreeMap<Key, usize>>,
}

/// Messages that a poll gives of one log, at most.
const POLLED_MAX: usize = 16;

impl Shared {
    /// Acquires or releases a lock; `None` when that fails.
    pub(crate) fn lock(&mut self, key: Option<Key>, op: &Op, is_broken: bool) -> Option<Value> {
        let (holder, fence) = self.locks.entry(key).or_default();
        if op.f == "acquire" {
            if holder.is_some() && !is_broken {
                return None;
            }
            *holder = Some(op.process);
            *fence += 1;
            return Some(Value::Int(*fence));
        }
        if *holder == Some(op.process) {
            *holder = None;
        }
        Some(Value::Nil)
    }

    /// Sends and polls, or gives the process other logs to poll.
    pub(crate) fn log(&mut self, op: &Op, is_broken: bool) -> Option<Value> {
        let positions = self.positions.entry(op.process).or_default();
        if op.f == "assign" {
            let Value::List(keys) = &op.value else {
                return None;
            };
            let rewinds = op.extra.get("seek-to-beginning?").is_some();
            let old = std::mem::take(positions);
            let position = |key: &Key| old.get(key).copied().filter(|_| !rewinds).unwrap_or(0);
            let keys = keys.iter().filter_map(Value::as_key);
            *positions = keys.map(|key| (key.clone(), position(&key))).collect();
            return Some(op.value.clone());
        }
        // What it sends itself is there only when it has polled.
        let mut mops = op.value.as_log()?;
        for mop in &mut mops {
            if let LogMop::Poll { messages } = mop {
                let logs = positions.iter_mut().filter_map(|(key, position)| {
                    let log = self.logs.get(key).map_or(&[][..], |log| log);
                    let from = *position;
                    *position = log.len().min(from + POLLED_MAX);
                    let offsets = from as i64..;
                    let polled = offsets.zip(log[from..*position].iter().copied());
                    (from < *position).then(|| (key.clone(), polled.collect()))
                });
                *messages = Some(logs.collect());
            }
        }
        for mop in &mut mops {
            if let LogMop::Send { key, offset, value } = mop {
                let log = self.logs.entry(key.clone()).or_default();
                *offset = Some(log.len() as i64);
                if !is_broken {
                    log.push(*value);
                }
            }
        }
        Some(Value::log(&mops))
    }
}
