//! Checkers of replies: echoes are what was sent, and no program breaks the protocol.

use seatrial_checker::{Aims, Checker, Finding, OnlineChecker, Validity, Verdict, WholeHistory};
use seatrial_history::{History, Value};
use std::collections::BTreeMap;

/// The field of an operation that names broken rules of the protocol which were noticed during it.
pub(crate) const VIOLATION: &str = "violation";

/// Findings with a text.
const FINDINGS_MAX: usize = 8;

/// Every echo equals the request: Maelstrom's `echo`. One pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoChecker;

/// No operation has the field [`VIOLATION`]: no node printed a line that is no message, answered twice, answered a request
/// that was
/// never sent, or sent a message to an unknown destination. One pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolChecker;

impl Checker for EchoChecker {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(*self))
    }

    fn check(&self, history: &History) -> Verdict {
        let mut open = BTreeMap::new();
        let mut wrong = Vec::new();
        for op in &history.clients() {
            if op.is_invoke() {
                open.insert(op.process, op.value.clone());
            } else if let Some(sent) = open.remove(&op.process)
                && op.is_ok()
                && sent != op.value
            {
                let text = format!("op {}: sent {sent}, and {} came back", op.index, op.value);
                wrong.push((op.index, text));
            }
        }
        verdict("echo", "wrong-echo", wrong)
    }
}

impl Checker for ProtocolChecker {
    fn name(&self) -> &'static str {
        "protocol"
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(*self))
    }

    fn check(&self, history: &History) -> Verdict {
        let mut broken = Vec::new();
        for op in &history.clients() {
            if let Some(Value::Text(text)) = op.extra.get(VIOLATION) {
                broken.push((op.index, text.to_string()));
            }
        }
        verdict("protocol", "protocol-violation", broken)
    }
}

/// Valid without `wrong` operations (index and text).
fn verdict(checker: &'static str, anomaly: &'static str, wrong: Vec<(u64, String)>) -> Verdict {
    let mut verdict = Verdict::valid(checker);
    if wrong.is_empty() {
        return verdict;
    }
    verdict.valid = Validity::Invalid;
    verdict.anomalies.insert(anomaly, wrong.len() as u64);
    for (index, summary) in wrong.into_iter().take(FINDINGS_MAX) {
        verdict.findings.push(Finding {
            anomaly,
            summary,
            operations: vec![index],
            steps: Vec::new(),
            linearization: None,
        });
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{Op, OpType, Process};

    fn history(completion: impl Fn(&Op) -> Op) -> History {
        let op = Op::invoke(Process::Client(0), "echo", Value::text("a"));
        let done = completion(&op);
        History::from_unindexed(vec![op, done])
    }

    #[test]
    fn a_changed_echo_is_wrong() {
        let right = history(|op| op.complete(OpType::Ok, Value::text("a")));
        assert_eq!(EchoChecker.check(&right).valid, Validity::Valid);
        let wrong = history(|op| op.complete(OpType::Ok, Value::text("b")));
        let verdict = EchoChecker.check(&wrong);
        assert_eq!(verdict.valid, Validity::Invalid);
        assert_eq!(
            verdict.findings[0].summary,
            "op 1: sent \"a\", and \"b\" came back"
        );
        let unknown = history(|op| op.complete(OpType::Info, Value::text("b")));
        assert_eq!(EchoChecker.check(&unknown).valid, Validity::Valid);
    }

    #[test]
    fn violations_are_found() {
        let right = history(|op| op.complete(OpType::Ok, op.value.clone()));
        assert_eq!(ProtocolChecker.check(&right).valid, Validity::Valid);
        let broken = history(|op| {
            let done = op.complete(OpType::Ok, op.value.clone());
            done.with(VIOLATION, Value::text("n1 answered twice"))
        });
        let verdict = ProtocolChecker.check(&broken);
        assert_eq!(verdict.valid, Validity::Invalid);
        assert_eq!(verdict.findings[0].summary, "n1 answered twice");
    }
}
