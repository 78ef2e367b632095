//! A selection of operations: by key, process, node, function, type and time.

use crate::subject::{ChunkSubjects, SubjectSet};
use seatrial_history::chunk::ChunkSummary;
use seatrial_history::{Chunk, OpType, OpView, Process, Value};

/// Conditions on operations. All of them must hold; an empty list is no condition, and of a list one entry must match.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The keys or elements that it is about ([`OperationSubject`](crate::OperationSubject)).
    pub keys: SubjectSet,
    /// Its process.
    pub processes: Vec<Process>,
    /// The node that it was sent to, or that a fault names.
    pub nodes: Vec<String>,
    /// Its function.
    pub functions: Vec<String>,
    /// Its type.
    pub kinds: Vec<OpType>,
    /// The first and the last time, in nanoseconds since the test began. What has no time is not selected.
    pub time: Option<(i64, i64)>,
}

impl Selection {
    /// Are there no conditions?
    pub fn is_all(&self) -> bool {
        let Selection {
            keys,
            processes,
            nodes,
            functions,
            kinds,
            time,
        } = self;
        keys.is_empty()
            && processes.is_empty()
            && nodes.is_empty()
            && functions.is_empty()
            && kinds.is_empty()
            && time.is_none()
    }

    /// May a chunk with this summary have selected operations? Costs no read of the chunk.
    pub fn may_select(&self, chunk: &ChunkSummary) -> bool {
        self.time
            .is_none_or(|(from, to)| chunk.time_max >= from && chunk.time_min <= to)
    }

    /// The selected operations of a chunk, in order.
    pub fn of<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = OpView<'a>> {
        let subjects = (!self.keys.is_empty()).then(|| ChunkSubjects::new(&self.keys, chunk));
        let is_about = move |view: OpView<'_>| match &subjects {
            None => true,
            Some(subjects) => subjects.concern(view),
        };
        let cheap = chunk.views().filter(|view| self.admits(*view));
        cheap.filter(move |view| is_about(*view))
    }

    /// All conditions except that on keys, the cheapest first.
    fn admits(&self, view: OpView<'_>) -> bool {
        let in_time = |(from, to): (i64, i64)| (from..=to).contains(&view.time());
        self.time.is_none_or(in_time)
            && (self.kinds.is_empty() || self.kinds.contains(&view.kind()))
            && (self.processes.is_empty() || self.processes.contains(&view.process()))
            && (self.functions.is_empty() || {
                let name = view.f();
                self.functions.iter().any(|one| one == name.as_str())
            })
            && (self.nodes.is_empty() || self.concerns_node(view))
    }

    /// Was the operation sent to one of the nodes, or does a fault name one?
    fn concerns_node(&self, view: OpView<'_>) -> bool {
        let mut fields = view.extra();
        let field = fields.find_map(|(name, tape)| (name == "node").then(|| tape.to_value()));
        match field {
            Some(Value::Text(node)) => self.nodes.iter().any(|one| **one == *node),
            Some(other) => self.nodes.contains(&other.to_string()),
            None => !view.process().is_client() && self.is_named(&view.op().value),
        }
    }

    /// Does the value of a fault name one of the nodes, at any depth?
    fn is_named(&self, value: &Value) -> bool {
        match value {
            Value::Text(text) => self.nodes.iter().any(|one| **one == **text),
            Value::Word(word) => self.nodes.iter().any(|one| one == word.as_str()),
            Value::List(items) | Value::Set(items) => items.iter().any(|item| self.is_named(item)),
            Value::Map(fields) => {
                let mut all = fields.iter();
                all.any(|(field, value)| self.is_named(field) || self.is_named(value))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{ChunkSource, History, Op};
    use std::ops::ControlFlow;

    /// Six operations, at 0 to 5 s: three writes of 7, 8, 9 on n1, n2, n1, a kill of n2, and two completions.
    fn history() -> History {
        let write =
            |process, value| Op::invoke(Process::Client(process), "write", Value::Int(value));
        let (one, two, three) = (write(0, 7), write(1, 8), write(2, 9));
        let on = |op: &Op, node: &'static str| op.clone().with("node", Value::text(node));
        let kill = Op::invoke(Process::NEMESIS, "kill", Value::text("n2"));
        let kill = Op {
            kind: OpType::Info,
            ..kill
        };
        let ops = [
            on(&one, "n1"),
            on(&two, "n2"),
            on(&three, "n1"),
            kill,
            on(&one.complete(OpType::Ok, Value::Int(7)), "n1"),
            on(&two.complete(OpType::Fail, Value::Int(8)), "n2"),
        ];
        let ops = ops.into_iter().enumerate().map(|(at, op)| Op {
            index: at as u64,
            time: at as i64 * 1_000_000_000,
            ..op
        });
        History::from_ops(ops.collect())
    }

    fn selected(selection: &Selection) -> Vec<u64> {
        let mut found = Vec::new();
        let round = history().round(&mut |chunk| {
            let summary = ChunkSummary::of(0, chunk);
            let views: Vec<u64> = selection.of(chunk).map(OpView::index).collect();
            assert!(views.is_empty() || selection.may_select(&summary));
            found.extend(views);
            ControlFlow::Continue(())
        });
        round.unwrap();
        found
    }

    #[test]
    fn each_condition_and_all_of_them() {
        assert!(Selection::default().is_all());
        assert_eq!(selected(&Selection::default()), [0, 1, 2, 3, 4, 5]);
        let mut keys = SubjectSet::default();
        keys.insert_text("7");
        let by_key = Selection {
            keys,
            ..Selection::default()
        };
        assert!(!by_key.is_all());
        assert_eq!(selected(&by_key), [0, 4]);
        let on_n2 = Selection {
            nodes: vec!["n2".into()],
            ..Selection::default()
        };
        assert_eq!(selected(&on_n2), [1, 3, 5]);
        let of_nemesis = Selection {
            processes: vec![Process::NEMESIS],
            ..Selection::default()
        };
        assert_eq!(selected(&of_nemesis), [3]);
        let writes = Selection {
            functions: vec!["write".into()],
            kinds: vec![OpType::Ok, OpType::Fail],
            ..Selection::default()
        };
        assert_eq!(selected(&writes), [4, 5]);
        let late = Selection {
            time: Some((2_000_000_000, 4_000_000_000)),
            nodes: vec!["n1".into()],
            ..Selection::default()
        };
        assert_eq!(selected(&late), [2, 4]);
    }

    #[test]
    fn chunks_outside_of_the_time_are_not_read() {
        let after = Selection {
            time: Some((6_000_000_000, i64::MAX)),
            ..Selection::default()
        };
        let round = history().round(&mut |chunk| {
            assert!(!after.may_select(&ChunkSummary::of(0, chunk)));
            ControlFlow::Continue(())
        });
        round.unwrap();
    }
}
