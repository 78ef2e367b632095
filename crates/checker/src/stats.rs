//! How many operations succeeded, failed, or were left unknown.

use crate::{Checker, Verdict};
use seatrial_history::{History, OpType};
use serde::Serialize;
use std::collections::BTreeMap;

/// Counts completions of clients, altogether and by function, as Jepsen's `stats` does. Valid when every function
/// succeeded at least once; otherwise unknown, since a test whose writes never succeed proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats;

/// Completions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All completions.
    pub count: u64,
    /// Those that took place.
    pub ok: u64,
    /// Those that did not.
    pub fail: u64,
    /// Those of which nobody knows, invocations that never completed included.
    pub info: u64,
}

impl Counts {
    fn add(&mut self, kind: OpType) {
        self.count += 1;
        match kind {
            OpType::Ok => self.ok += 1,
            OpType::Fail => self.fail += 1,
            OpType::Info | OpType::Invoke => self.info += 1,
        }
    }
}

/// The counts of a history: all client operations, and by function.
pub fn counts(history: &History) -> (Counts, BTreeMap<&'static str, Counts>) {
    let mut all = Counts::default();
    let mut by_function: BTreeMap<&'static str, Counts> = BTreeMap::new();
    for (position, op) in history.iter().enumerate() {
        // An invocation counts when nothing completes it.
        if op.process.is_client() && (!op.is_invoke() || history.pair(position).is_none()) {
            all.add(op.kind);
            by_function.entry(op.f.as_str()).or_default().add(op.kind);
        }
    }
    (all, by_function)
}

impl Checker for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn check(&self, history: &History) -> Verdict {
        let (all, by_function) = counts(history);
        let mut verdict = Verdict::valid(self.name());
        verdict.details = serde_json::json!({
            "count": all.count,
            "ok": all.ok,
            "fail": all.fail,
            "info": all.info,
            "by_function": by_function,
        });
        let never: Vec<_> = by_function
            .iter()
            .filter(|(_, counts)| counts.ok == 0)
            .map(|(f, counts)| format!("`{f}` (tried {} times)", counts.count))
            .collect();
        if all.count == 0 {
            verdict.unknown("no client operation was recorded")
        } else if never.is_empty() {
            verdict
        } else {
            verdict.unknown(format!("never succeeded: {}", never.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validity;
    use seatrial_history::{Op, Process, Value};

    fn history(completions: &[(&'static str, OpType)]) -> History {
        let mut ops = Vec::new();
        for (client, &(f, kind)) in completions.iter().enumerate() {
            let invocation = Op::invoke(Process::Client(client as u64), f, Value::Nil);
            let completion = invocation.complete(kind, Value::Nil);
            ops.push(invocation);
            if kind != OpType::Invoke {
                ops.push(completion);
            }
        }
        ops.push(
            Op::invoke(Process::NEMESIS, "kill", Value::Nil).complete(OpType::Info, Value::Nil),
        );
        History::from_unindexed(ops)
    }

    #[test]
    fn counts_by_function() {
        use OpType::{Fail, Info, Invoke, Ok};
        let history = history(&[
            ("read", Ok),
            ("read", Fail),
            ("write", Ok),
            ("write", Info),
            ("write", Invoke),
        ]);
        let (all, by_function) = counts(&history);
        assert_eq!((all.count, all.ok, all.fail, all.info), (5, 2, 1, 2));
        assert_eq!(by_function["write"].info, 2);
        assert_eq!(by_function.len(), 2);
        assert_eq!(Stats.check(&history).valid, Validity::Valid);
    }

    #[test]
    fn a_function_that_never_succeeds_proves_nothing() {
        let history = history(&[("read", OpType::Ok), ("cas", OpType::Fail)]);
        let verdict = Stats.check(&history);
        assert_eq!(
            verdict.reason.as_deref(),
            Some("never succeeded: `cas` (tried 1 times)")
        );
        assert!(matches!(
            Stats.check(&History::default()).valid,
            Validity::Unknown(_)
        ));
    }
}
