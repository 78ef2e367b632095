//! A register that one client reads and writes in turn: Jepsen's `causal`.

use crate::workload_check::{WorkloadCheck, WorkloadEvent, WorkloadTally, workload_checker};
use seatrial_checker::Robustness;
use seatrial_history::{OpType, Value};

/// An operation does not follow the last one that its client saw.
const UNLINKED: &str = "unlinked";
/// A write of another value than the next one.
const UNEXPECTED_WRITE: &str = "unexpected-write";
/// A read that does not return what was written before it.
const CAUSAL_VIOLATION: &str = "causal-violation";

/// Checks that the operations on each key appear in the order in which they were issued: `read-init`, `write` 1, `read`,
/// `write` 2, `read`. A read returns the last value written, 0 at first, or nil for an unknown one; the field `link` of an
/// operation is `:init` or the field `position` of the one before. Jepsen's `jepsen.tests.causal`.
///
/// Differences: a write of unknown outcome may take effect at any time after its invocation, or never, so a later read may return
/// it, and the next operation may link to it; Jepsen ignores it and reports what follows. A failed write counts as one of the
/// numbers. Each key is checked up to its first anomaly, as in Jepsen. Anomalies: `causal-violation` (a read),
/// `unexpected-write`, `unlinked`. Time O(n), memory O(keys).
#[derive(Clone, Copy, Debug, Default)]
pub struct CausalRegister;

/// The register after the operations so far.
#[derive(Default)]
pub(crate) struct CausalRegisterState {
    /// The value, and the index of the write; 0 at first.
    value: i64,
    writer: Option<u64>,
    /// Writes so far, of any outcome.
    writes: i64,
    /// Writes under way or of unknown outcome that were not seen so far.
    pending: Vec<(i64, u64)>,
    last_position: Option<Value>,
    /// Did an operation of unknown outcome follow the last position? Then the next link is not known.
    is_link_open: bool,
    reads: u64,
    violation: Option<(&'static str, Vec<u64>, String)>,
    refused: Option<(u64, String)>,
}

impl CausalRegisterState {
    fn link(&mut self, event: &WorkloadEvent<'_>) {
        let link = event.extra.get("link");
        if self.violation.is_some() {
            return;
        }
        let is_initial = link.is_some_and(|link| link.to_string() == ":init");
        if is_initial || self.is_link_open || link == self.last_position.as_ref() {
            return;
        }
        let index = event.index;
        let show = |value: Option<&Value>| value.map_or("nil".to_owned(), Value::to_string);
        let summary = format!(
            "Op {index} links to {}, and the last position that its client saw is {}.",
            show(link),
            show(self.last_position.as_ref())
        );
        self.violation = Some((UNLINKED, vec![index], summary));
    }

    /// A write began: from now on it may be seen.
    fn begin(&mut self, index: u64, value: &Value) {
        let Value::Int(value) = *value else {
            let reason = format!("it writes {value}, and a write has a number");
            self.refused.get_or_insert((index, reason));
            return;
        };
        self.writes += 1;
        if value != self.writes {
            let summary = format!("Op {index} writes {value}, and {} was next.", self.writes);
            self.violation
                .get_or_insert((UNEXPECTED_WRITE, vec![index], summary));
        }
        self.pending.push((value, index));
    }

    /// A write ended: it took effect, or it did not.
    fn end(&mut self, event: &WorkloadEvent<'_>) {
        if event.invoked.is_none() && event.kind == OpType::Ok {
            self.begin(event.index, event.argument());
        }
        let Value::Int(value) = *event.argument() else {
            return;
        };
        self.pending.retain(|&(pending, _)| pending != value);
        if event.kind == OpType::Ok {
            (self.value, self.writer) = (value, Some(event.index));
        }
    }

    fn read(&mut self, event: &WorkloadEvent<'_>) {
        let index = event.index;
        self.reads += 1;
        let is_first = event.f == "read-init" && self.writes == 0;
        let value = match event.value {
            Value::Nil if is_first => None,
            Value::Nil => return,
            Value::Int(value) => Some(*value),
            other => {
                let reason = format!("it read {other}, and a read has a number");
                self.refused.get_or_insert((index, reason));
                return;
            }
        };
        if value == Some(self.value) {
            return;
        }
        if let Some(at) = self.pending.iter().position(|&(it, _)| Some(it) == value) {
            let (value, writer) = self.pending.remove(at);
            (self.value, self.writer) = (value, Some(writer));
            return;
        }
        let shown = value.map_or("nil".to_owned(), |value| value.to_string());
        let summary = match self.writer {
            Some(writer) => format!(
                "Op {index} read {shown}, and {} was written before it in op {writer}.",
                self.value
            ),
            None => {
                format!("Op {index} read {shown}, and nothing was written before it: expected 0.")
            }
        };
        let operations = self.writer.into_iter().chain([index]).collect();
        self.violation
            .get_or_insert((CAUSAL_VIOLATION, operations, summary));
    }
}

impl WorkloadCheck for CausalRegister {
    type State = CausalRegisterState;
    const NAME: &'static str = "causal";
    const FUNCTIONS: &'static [&'static str] = &["read-init", "read", "write"];

    fn apply(&self, state: &mut CausalRegisterState, event: &WorkloadEvent<'_>) {
        if state.violation.is_some() {
            return;
        }
        let is_write = event.f == "write";
        match event.kind {
            OpType::Invoke if is_write => return state.begin(event.index, event.value),
            OpType::Fail if is_write => return state.end(event),
            OpType::Invoke | OpType::Fail => return,
            OpType::Info => {
                state.is_link_open = true;
                return;
            }
            OpType::Ok => {}
        }
        state.link(event);
        if is_write {
            state.end(event);
        } else {
            state.read(event);
        }
        state.last_position = event.extra.get("position").cloned();
        state.is_link_open = false;
    }

    fn finish(&self, state: CausalRegisterState, tally: &mut WorkloadTally) {
        tally.count("reads", state.reads);
        tally.count("writes", state.writes.cast_unsigned());
        if state.reads > 0 {
            tally.note_evidence();
        }
        if let Some((index, reason)) = state.refused {
            tally.unknown(&format!("op {index}: {reason}"));
        }
        if let Some((anomaly, operations, summary)) = state.violation {
            tally.anomaly(anomaly, || (operations, summary));
        }
    }
}

workload_checker!(CausalRegister, Robustness::OF_PREFIX);
