//! How operations ended by node, and why.

use crate::wording::error_text;
use seatrial_checker::Counts;
use seatrial_history::{Chunk, FixedMap, Fold, OpType, Order, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Counts of the clients' operations by what their extra fields say. An operation is an invocation with its completion,
/// if it has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Breakdown {
    /// By the node that was asked; empty when the history does not say.
    pub(crate) by_node: BTreeMap<String, Counts>,
    /// Why operations failed or stayed unknown (type, error as text, how many), the most frequent first.
    pub(crate) errors: Vec<(OpType, String, u64)>,
}

/// Distinct nodes and errors that are counted; more than that is noise.
const KINDS_MAX: usize = 1_000;
/// Errors that are kept.
const ERRORS_MAX: usize = 12;

/// Counts by node and error in one pass, in order: an invocation must be seen before its completion. Remembers the nodes
/// of the invocations that are open.
pub(crate) struct BreakdownFold;

/// What [`BreakdownFold`] has counted.
#[derive(Default)]
pub(crate) struct BreakdownState {
    by_node: BTreeMap<String, Counts>,
    errors: BTreeMap<(OpType, String), u64>,
    /// The nodes of invocations of earlier chunks that have not completed, by position.
    open: FixedMap<u64, Option<String>>,
    /// For each place of a chunk: is it a completion, or an invocation that completes in the chunk?
    done: Vec<bool>,
}

impl Fold for BreakdownFold {
    type Accumulator = BreakdownState;
    type Output = Breakdown;

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> BreakdownState {
        BreakdownState::default()
    }

    fn reduce(&self, broken: &mut BreakdownState, chunk: &Chunk) -> ControlFlow<()> {
        broken.take(chunk);
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut BreakdownState, _: BreakdownState) -> ControlFlow<()> {
        unreachable!("a linear fold has one accumulator")
    }

    fn finish(&self, mut broken: BreakdownState) -> Breakdown {
        for node in std::mem::take(&mut broken.open).into_values() {
            broken.count(OpType::Info, node, || "(never completed)".to_owned());
        }
        let errors = broken.errors.into_iter();
        let mut errors: Vec<_> = errors.map(|((kind, text), n)| (kind, text, n)).collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.2));
        errors.truncate(ERRORS_MAX);
        Breakdown {
            by_node: broken.by_node,
            errors,
        }
    }
}

impl BreakdownState {
    fn take(&mut self, chunk: &Chunk) {
        let first = chunk.first_position();
        self.done.clear();
        self.done.resize(chunk.len(), false);
        let is_client = |place: usize| {
            let process = chunk.process_ids()[place];
            chunk.processes()[process as usize].is_client()
        };
        for (place, &kind) in chunk.kinds().iter().enumerate() {
            if kind == OpType::Invoke || !is_client(place) {
                continue;
            }
            let Some(invocation) = chunk.invocation(place) else {
                continue;
            };
            let own = node(chunk, place);
            let asked = if let Some(at) = invocation.checked_sub(first) {
                self.done[at as usize] = true;
                own.or_else(|| node(chunk, at as usize))
            } else {
                let carried = self.open.remove(&invocation).flatten();
                own.or(carried)
            };
            let error = || {
                let error = extra(chunk, place, "error");
                error.map_or_else(|| "(no error given)".to_owned(), |it| error_text(&it))
            };
            self.count(kind, asked, error);
        }
        for (place, &kind) in chunk.kinds().iter().enumerate() {
            if kind == OpType::Invoke && !self.done[place] && is_client(place) {
                self.open.insert(first + place as u64, node(chunk, place));
            }
        }
    }

    fn count(&mut self, kind: OpType, node: Option<String>, error: impl FnOnce() -> String) {
        if let Some(node) = node {
            count(&mut self.by_node, node, |counts| counts.add(kind));
        }
        if kind != OpType::Ok {
            count(&mut self.errors, (kind, error()), |number| *number += 1);
        }
    }
}

/// Changes the entry of `key`; a new key is left out once there are too many.
fn count<K: Ord, V: Default>(map: &mut BTreeMap<K, V>, key: K, change: impl FnOnce(&mut V)) {
    if let Some(known) = map.get_mut(&key) {
        change(known);
    } else if map.len() < KINDS_MAX {
        change(map.entry(key).or_default());
    }
}

/// An extra field of the operation at this place.
fn extra(chunk: &Chunk, place: usize, name: &str) -> Option<Value> {
    let mut fields = chunk.extra(place);
    fields.find_map(|(field, tape)| (field == name).then(|| tape.to_value()))
}

/// The node that the operation at this place names.
fn node(chunk: &Chunk, place: usize) -> Option<String> {
    extra(chunk, place, "node").map(|node| error_text(&node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{ChunkSource, History, Op, Process};

    fn breakdown(ops: Vec<Op>) -> Breakdown {
        let history: &dyn ChunkSource = &History::from_unindexed(ops);
        history.fold(&BreakdownFold).unwrap()
    }

    #[test]
    fn counts_by_node_and_error() {
        let op =
            |process: u64, f: &'static str| Op::invoke(Process::Client(process), f, Value::Nil);
        let done = |op: &Op, kind| {
            let done = op.complete(kind, Value::Nil);
            done.with("node", Value::text("n1"))
        };
        let (read, write, lost) = (op(0, "read"), op(1, "write"), op(2, "write"));
        let fault = Op::invoke(Process::NEMESIS, "kill", Value::Nil);
        let breakdown = breakdown(vec![
            read.clone(),
            write.clone(),
            lost.with("node", Value::text("n2")),
            fault,
            done(&read, OpType::Ok),
            done(&write, OpType::Fail).with("error", Value::text("not\nnow")),
        ]);
        let counts = |ok, fail, info| Counts {
            count: ok + fail + info,
            ok,
            fail,
            info,
        };
        assert_eq!(breakdown.by_node["n1"], counts(1, 1, 0));
        assert_eq!(breakdown.by_node["n2"], counts(0, 0, 1));
        let never = (OpType::Info, "(never completed)".to_owned(), 1);
        let fail = (OpType::Fail, "not now".to_owned(), 1);
        assert_eq!(breakdown.errors, [fail, never]);
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
        let breakdown = breakdown(ops);
        assert_eq!(breakdown.by_node.len(), KINDS_MAX);
        assert_eq!(breakdown.errors.len(), ERRORS_MAX);
    }

    /// Invocations and completions in different chunks: the nodes of either half are found.
    #[test]
    fn operations_that_cross_chunks() {
        let mut ops = Vec::new();
        let many = 21_000_u64;
        let invocations = (0..many).map(|n| Op::invoke(Process::Client(n), "read", Value::Nil));
        let invocations: Vec<Op> = invocations
            .map(|op| op.with("node", Value::text("n1")))
            .collect();
        let kind = |number: usize| [OpType::Ok, OpType::Fail, OpType::Info][number % 3];
        let completions = invocations.iter().enumerate();
        let completions: Vec<Op> = completions
            .map(|(number, op)| Op {
                extra: Op::invoke(op.process, "read", Value::Nil).extra,
                ..op.complete(kind(number), Value::Nil)
            })
            .collect();
        ops.extend(invocations);
        ops.extend(completions);
        let found = breakdown(ops);
        assert_eq!(found.by_node["n1"].count, many);
        assert_eq!(
            found.errors.iter().map(|error| error.2).sum::<u64>(),
            many / 3 * 2
        );
    }
}
