//! How many operations succeeded, failed, or were left unknown.

use crate::{Checker, Verdict};
use seatrial_history::{Chunk, Fold, History, OpType, Order};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

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

/// Counts by function while a history passes by in chunks. What is never completed is what was invoked less what
/// completed, so nothing is remembered of an operation. (A completion counts for its own function, which is that of its
/// invocation in any history that a test writes.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountFold;

/// Operations of one function.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// By type.
    kinds: [u64; 4],
    /// Completions that complete something.
    paired: u64,
}

/// What [`CountFold`] has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedBy(BTreeMap<&'static str, Passed>);

impl Fold for CountFold {
    type Accumulator = PassedBy;
    type Output = (Counts, BTreeMap<&'static str, Counts>);

    fn name(&self) -> String {
        "stats".into()
    }

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> PassedBy {
        PassedBy::default()
    }

    fn reduce(&self, passed: &mut PassedBy, chunk: &Chunk) -> ControlFlow<()> {
        let is_client: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        // A chunk has a handful of functions.
        let mut functions: Vec<(_, Passed)> = Vec::new();
        let mut last = 0;
        let columns = chunk.kinds().iter().zip(chunk.process_ids());
        for (place, ((kind, process), pair)) in columns.zip(chunk.pairs()).enumerate() {
            if !is_client[*process as usize] {
                continue;
            }
            let f = chunk.f(place);
            if functions.get(last).is_none_or(|one| one.0 != f) {
                let known = functions.iter().position(|one| one.0 == f);
                last = known.unwrap_or(functions.len());
                if known.is_none() {
                    functions.push((f, Passed::default()));
                }
            }
            let passed = &mut functions[last].1;
            passed.kinds[*kind as usize] += 1;
            passed.paired += u64::from(*pair > 0);
        }
        for (f, more) in functions {
            passed.0.entry(f.as_str()).or_default().join(more);
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, passed: &mut PassedBy, later: PassedBy) -> ControlFlow<()> {
        for (f, more) in later.0 {
            passed.0.entry(f).or_default().join(more);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, passed: PassedBy) -> Self::Output {
        let mut all = Counts::default();
        let mut by_function = BTreeMap::new();
        for (f, Passed { kinds, paired }) in passed.0 {
            let [invoked, ok, fail, info] = kinds;
            let info = info + invoked.saturating_sub(paired);
            let count = ok + fail + info;
            all.count += count;
            all.ok += ok;
            all.fail += fail;
            all.info += info;
            by_function.insert(
                f,
                Counts {
                    count,
                    ok,
                    fail,
                    info,
                },
            );
        }
        (all, by_function)
    }
}

impl Passed {
    fn join(&mut self, more: Passed) {
        for (sum, count) in self.kinds.iter_mut().zip(more.kinds) {
            *sum += count;
        }
        self.paired += more.paired;
    }
}

impl Checker for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn check(&self, history: &History) -> Verdict {
        let (all, by_function) = counts(history);
        Stats::verdict(all, &by_function)
    }
}

impl Stats {
    /// The verdict on these counts.
    pub(crate) fn verdict(all: Counts, by_function: &BTreeMap<&'static str, Counts>) -> Verdict {
        let mut verdict = Verdict::valid("stats");
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
