//! What happened, in numbers.

use crate::wording::{brief, one_line, shortened};
use seatrial_history::{History, Op, OpType, Symbol, Value};
use std::collections::BTreeMap;

/// How operations ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Took place.
    pub ok: u64,
    /// Did not take place.
    pub fail: u64,
    /// Nobody knows, including those that never completed.
    pub info: u64,
}

impl Counts {
    /// All operations.
    pub fn total(&self) -> u64 {
        self.ok + self.fail + self.info
    }

    fn add(&mut self, kind: OpType) {
        match kind {
            OpType::Ok => self.ok += 1,
            OpType::Fail => self.fail += 1,
            OpType::Invoke | OpType::Info => self.info += 1,
        }
    }
}

/// Counts over the clients' operations of a history. An operation is an invocation with its completion, if it has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// All operations together.
    pub total: Counts,
    /// Entries of the history: invocations and completions, also of nemeses.
    pub events: u64,
    /// By what was done.
    pub by_function: BTreeMap<Symbol, Counts>,
    /// By the node that was asked; empty when the history does not say.
    pub by_node: BTreeMap<String, Counts>,
    /// Why operations failed or stayed unknown (type, error as text, how many), the most frequent first.
    pub errors: Vec<(OpType, String, u64)>,
    /// Seconds between the first and the last operation of anyone; 0 when the history has no times.
    pub seconds: f64,
}

/// Distinct nodes and errors that are counted; more than that is noise in a summary.
const KINDS_MAX: usize = 1_000;
/// Errors that are kept.
const ERRORS_MAX: usize = 12;
/// Longest error text in characters.
const ERROR_LENGTH_MAX: usize = 100;

impl Summary {
    /// Counts a history.
    pub fn of(history: &History) -> Summary {
        let mut summary = Summary {
            events: history.len() as u64,
            ..Summary::default()
        };
        let mut errors: BTreeMap<(OpType, String), u64> = BTreeMap::new();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for (position, op) in history.iter().enumerate() {
            if op.time >= 0 {
                (first, last) = (first.min(op.time), last.max(op.time));
            }
            if !op.process.is_client() || !op.is_invoke() {
                continue;
            }
            let completion = history.completion(position);
            let kind = completion.map_or(OpType::Info, |completion| completion.kind);
            summary.total.add(kind);
            summary.by_function.entry(op.f).or_default().add(kind);
            if let Some(node) = node_of(op, completion) {
                count(&mut summary.by_node, node, |counts| counts.add(kind));
            }
            if kind != OpType::Ok {
                let error = completion.and_then(|completion| completion.extra.get("error"));
                let error = error.map_or_else(|| unexplained(completion), error_text);
                count(&mut errors, (kind, error), |number| *number += 1);
            }
        }
        if first < last {
            summary.seconds = (last as f64 - first as f64) / 1e9;
        }
        let errors = errors.into_iter();
        summary.errors = errors.map(|((kind, text), n)| (kind, text, n)).collect();
        summary
            .errors
            .sort_by_key(|error| std::cmp::Reverse(error.2));
        summary.errors.truncate(ERRORS_MAX);
        summary
    }
}

/// Changes the entry of `key`; a new key is left out once there are too many.
fn count<K: Ord, V: Default>(map: &mut BTreeMap<K, V>, key: K, change: impl FnOnce(&mut V)) {
    if map.len() < KINDS_MAX || map.contains_key(&key) {
        change(map.entry(key).or_default());
    }
}

/// The node that an operation went to, as its completion or its invocation says.
pub(crate) fn node_of(invocation: &Op, completion: Option<&Op>) -> Option<String> {
    let node = completion
        .and_then(|completion| completion.extra.get("node"))
        .or_else(|| invocation.extra.get("node"))?;
    Some(match node {
        Value::Text(text) => shortened(&one_line(text), ERROR_LENGTH_MAX).into_owned(),
        Value::Word(word) => word.to_string(),
        other => brief(other, ERROR_LENGTH_MAX),
    })
}

/// An error as one short line.
pub(crate) fn error_text(error: &Value) -> String {
    let text = match error {
        Value::Text(text) => shortened(text, ERROR_LENGTH_MAX).into_owned(),
        Value::Word(word) => word.to_string(),
        other => brief(other, ERROR_LENGTH_MAX),
    };
    one_line(&text).into_owned()
}

fn unexplained(completion: Option<&Op>) -> String {
    let text = match completion {
        Some(_) => "(no error given)",
        None => "(never completed)",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::Process;

    #[test]
    fn counts_by_function_node_and_error() {
        let op = |process: u64, f: &'static str| Op {
            time: 500_000_000,
            ..Op::invoke(Process::Client(process), f, Value::Nil)
        };
        let done = |op: &Op, kind| {
            let done = op.complete(kind, Value::Nil);
            let done = Op {
                time: 2_500_000_000,
                ..done
            };
            done.with("node", Value::text("n1"))
        };
        let (read, write, lost) = (op(0, "read"), op(1, "write"), op(2, "write"));
        let fault = Op::invoke(Process::NEMESIS, "kill", Value::Nil);
        let history = History::from_unindexed(vec![
            read.clone(),
            write.clone(),
            lost,
            fault,
            done(&read, OpType::Ok),
            done(&write, OpType::Fail).with("error", Value::text("not\nnow")),
        ]);
        let summary = Summary::of(&history);
        let counts = |ok, fail, info| Counts { ok, fail, info };
        assert_eq!(summary.total, counts(1, 1, 1));
        assert_eq!(summary.by_function[&Symbol::new("write")], counts(0, 1, 1));
        assert_eq!(summary.by_node["n1"], counts(1, 1, 0));
        let never = (OpType::Info, "(never completed)".to_owned(), 1);
        let fail = (OpType::Fail, "not now".to_owned(), 1);
        assert_eq!(summary.errors, [fail, never]);
        assert!((summary.seconds - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_million_different_errors_take_bounded_space() {
        let mut ops = Vec::new();
        for number in 0..3_000_u64 {
            let op = Op::invoke(Process::Client(number), "read", Value::Nil);
            let done = op.complete(OpType::Fail, Value::Nil);
            let done = done.with("error", Value::Int(number as i64));
            ops.extend([op, done.with("node", Value::Int(number as i64))]);
        }
        let summary = Summary::of(&History::from_unindexed(ops));
        assert_eq!(summary.total.fail, 3_000);
        assert_eq!(summary.by_node.len(), KINDS_MAX);
        assert_eq!(summary.errors.len(), ERRORS_MAX);
    }
}
