//! Statistics: operations that succeeded, failed, or are of unknown outcome.

use crate::{Aims, Checked, Checker, Details, Figures, OnlineChecker, OperationFigures, Verdict};
use seatrial_history::{Chunk, ChunkSource, Fold, History, OpType, Order, SourceError};
use seatrial_machine::counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Counts completions of clients, altogether and by function, as Jepsen's `stats` does. Valid when every function
/// succeeded at least once; otherwise unknown, since a test whose writes never succeed has no evidence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats;

/// Completions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All completions.
    pub count: u64,
    /// Completions `ok`: the operation took effect.
    pub ok: u64,
    /// Completions `fail`: it did not.
    pub fail: u64,
    /// Unknown outcomes: completions `info`, and invocations that never completed.
    pub info: u64,
}

impl Counts {
    /// Counts one more that ended so.
    pub fn add(&mut self, kind: OpType) {
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
        // An invocation counts only if it has no completion.
        if op.process.is_client() && (!op.is_invoke() || history.pair(position).is_none()) {
            all.add(op.kind);
            by_function.entry(op.f.as_str()).or_default().add(op.kind);
        }
    }
    (all, by_function)
}

/// Counts by function, chunk by chunk. Operations that never completed are invocations minus paired completions, so no
/// operation is kept. (A completion counts for its own function, which is that of its invocation in any history that a test
/// writes.)
#[derive(Clone, Copy, Debug, Default)]
pub struct CountFold;

/// Operations of one function.
#[derive(Clone, Copy, Debug, Default)]
struct FunctionTally {
    /// By type.
    kinds: [u64; 4],
    /// Completions that have an invocation.
    paired: u64,
}

/// The accumulator of [`CountFold`].
#[derive(Clone, Debug, Default)]
pub struct FunctionCounts(BTreeMap<&'static str, FunctionTally>);

impl FunctionCounts {
    /// Counts an operation that was invoked and completed with this outcome.
    pub fn add(&mut self, f: &'static str, outcome: OpType) {
        let tally = self.0.entry(f).or_default();
        tally.kinds[OpType::Invoke as usize] += 1;
        tally.kinds[outcome as usize] += 1;
        tally.paired += 1;
    }

    /// Invocations without a completion.
    pub fn open(&self) -> u64 {
        let all = self.0.values();
        all.map(|tally| tally.kinds[OpType::Invoke as usize].saturating_sub(tally.paired))
            .sum()
    }
}

impl Fold for CountFold {
    type Accumulator = FunctionCounts;
    type Output = (Counts, BTreeMap<&'static str, Counts>);

    fn name(&self) -> String {
        "stats".into()
    }

    fn order(&self) -> Order {
        Order::Associative
    }

    fn start(&self) -> FunctionCounts {
        FunctionCounts::default()
    }

    fn reduce(&self, tally: &mut FunctionCounts, chunk: &Chunk) -> ControlFlow<()> {
        let is_client: Vec<bool> = chunk
            .processes()
            .iter()
            .map(|one| one.is_client())
            .collect();
        // A chunk has few templates: names are compared once for each, not for each operation. By template, the operations of
        // clients and those of them that complete an invocation.
        let mut counted = vec![(0_u64, 0_u64); chunk.template_functions().len()];
        let columns = chunk.template_ids().iter().zip(chunk.process_ids());
        for ((template, process), pair) in columns.zip(chunk.pairs()) {
            if is_client[*process as usize] {
                let (operations, paired) = &mut counted[*template as usize];
                *operations += 1;
                *paired += u64::from(*pair > 0);
            }
        }
        for ((kind, f), (operations, paired)) in chunk.template_functions().zip(counted) {
            if operations > 0 {
                let tally = tally.0.entry(f.as_str()).or_default();
                tally.kinds[kind as usize] += operations;
                tally.paired += paired;
            }
        }
        ControlFlow::Continue(())
    }

    fn combine(&self, tally: &mut FunctionCounts, later: FunctionCounts) -> ControlFlow<()> {
        for (f, more) in later.0 {
            tally.0.entry(f).or_default().join(more);
        }
        ControlFlow::Continue(())
    }

    fn finish(&self, tally: FunctionCounts) -> Self::Output {
        let mut all = Counts::default();
        let mut by_function = BTreeMap::new();
        for (f, FunctionTally { kinds, paired }) in tally.0 {
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

impl FunctionTally {
    fn join(&mut self, more: FunctionTally) {
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

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(RunningStats(FunctionCounts::default()))
    }
}

/// [`Stats`] on one history.
struct RunningStats(FunctionCounts);

impl OnlineChecker for RunningStats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn is_early(&self) -> bool {
        true // no violation is a matter of counts
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        CountFold.reduce(&mut self.0, chunk)
    }

    fn finish(self: Box<Self>, _: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let (all, by_function) = CountFold.finish(self.0);
        Ok(Stats::verdict(all, &by_function).into())
    }
}

impl Stats {
    /// The verdict on these counts.
    fn verdict(all: Counts, by_function: &BTreeMap<&'static str, Counts>) -> Verdict {
        let sum: u64 = by_function.values().map(|counts| counts.count).sum();
        assert!(sum == all.count, "each operation has one function");
        assert!(
            all.ok + all.fail + all.info == all.count,
            "each operation has one outcome"
        );
        let mut verdict = Verdict::valid("stats");
        verdict.details = Details::of(Figures::Operations(OperationFigures {
            counts: all,
            by_function: by_function.clone(),
        }));
        let never: Vec<_> = by_function
            .iter()
            .filter(|(_, counts)| counts.ok == 0)
            .map(|(f, counts)| format!("`{f}` (tried {})", counted(counts.count, "time")))
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
            Some("never succeeded: `cas` (tried 1 time)")
        );
        assert!(matches!(
            Stats.check(&History::default()).valid,
            Validity::Unknown(_)
        ));
    }
}
