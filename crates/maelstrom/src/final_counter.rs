//! Counters of nodes that converge: the final reads of all clients must agree with what was added.

use seatrial_checker::{Aims, Checker, Finding, OnlineChecker, Validity, Verdict, WholeHistory};
use seatrial_history::{History, Op, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Each final read must be a sum that is possible: of all additions that succeeded, and of any of those whose outcome is unknown.
/// Reads before the end may return anything, as in Maelstrom's `pn-counter`.
///
/// The possible sums are kept as intervals; one addition of unknown outcome at most doubles their number, and neighbours
/// merge, so
/// with small amounts there are few. One pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinalCounter;

/// The name of the checker.
const NAME: &str = "final-counter";
/// The anomaly: a final read that is no possible sum.
const ANOMALY: &str = "impossible-sum";
/// The most intervals of possible sums; with more, the verdict is unknown.
const INTERVALS_MAX: usize = 4_096;
/// Findings with a text.
const FINDINGS_MAX: usize = 8;

/// Sums that are possible, as sorted intervals that neither touch nor overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PossibleSums(Vec<(i64, i64)>);

impl PossibleSums {
    /// The same with `amount` added or not.
    fn with_or_without(&self, amount: i64) -> PossibleSums {
        let shifted = self
            .0
            .iter()
            .map(|(low, high)| (low + amount, high + amount));
        let mut all: Vec<(i64, i64)> = self.0.iter().copied().chain(shifted).collect();
        all.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(all.len());
        for (low, high) in all {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        PossibleSums(merged)
    }

    fn contains(&self, sum: i64) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&sum))
    }

    fn shown(&self) -> String {
        let shown = self.0.iter().take(8).map(|(low, high)| {
            if low == high {
                low.to_string()
            } else {
                format!("{low} to {high}")
            }
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

impl Checker for FinalCounter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(WholeHistory::new(*self))
    }

    fn check(&self, history: &History) -> Verdict {
        let mut verdict = Verdict::valid(NAME);
        let Some((sums, reads)) = sums_and_reads(history) else {
            let reason = "too many additions have an unknown outcome".to_owned();
            verdict.valid = Validity::Unknown(reason);
            return verdict;
        };
        if reads.is_empty() {
            verdict.valid = Validity::Unknown("no final read succeeded".into());
            return verdict;
        }
        let wrong: Vec<&(u64, i64)> = reads
            .iter()
            .filter(|(_, sum)| !sums.contains(*sum))
            .collect();
        if wrong.is_empty() {
            return verdict;
        }
        for (index, sum) in wrong.iter().take(FINDINGS_MAX) {
            let possible = sums.shown();
            verdict.findings.push(Finding {
                anomaly: ANOMALY,
                summary: format!("op {index} read {sum} at the end; possible: {possible}"),
                operations: vec![*index],
                steps: Vec::new(),
                linearization: None,
            });
        }
        verdict.valid = Validity::Invalid;
        verdict.anomalies.insert(ANOMALY, wrong.len() as u64);
        verdict
    }
}

/// The possible sums at the end, and the final reads (index and sum); `None` if there are too many possibilities.
fn sums_and_reads(history: &History) -> Option<(PossibleSums, Vec<(u64, i64)>)> {
    let is_final = |op: &Op| op.extra.get("final") == Some(&Value::Bool(true));
    let mut acknowledged = 0_i64;
    let mut unknown: BTreeMap<_, i64> = BTreeMap::new();
    let mut final_reads = BTreeSet::new();
    let mut reads = Vec::new();
    for op in &history.clients() {
        match (op.f.as_str(), op.is_invoke()) {
            ("add", true) => {
                unknown.insert(op.process, op.value.as_int().unwrap_or(0));
            }
            // An addition without a known outcome stays in the table: its process never acts again.
            ("add", false) if op.is_ok() => {
                acknowledged += unknown.remove(&op.process).unwrap_or(0);
            }
            ("add", false) if op.is_fail() => drop(unknown.remove(&op.process)),
            ("read", true) if is_final(op) => drop(final_reads.insert(op.process)),
            ("read", false) if final_reads.remove(&op.process) && op.is_ok() => {
                reads.extend(op.value.as_int().map(|sum| (op.index, sum)));
            }
            _ => {}
        }
    }
    let mut sums = PossibleSums(vec![(acknowledged, acknowledged)]);
    for amount in unknown.into_values() {
        sums = sums.with_or_without(amount);
        if sums.0.len() > INTERVALS_MAX {
            return None;
        }
    }
    Some((sums, reads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{OpType, Process};
    use seatrial_machine::Rng;

    fn history(adds: &[(i64, OpType)], read: i64) -> History {
        let mut ops = Vec::new();
        for (process, (amount, kind)) in adds.iter().enumerate() {
            let add = Op::invoke(Process::Client(process as u64), "add", Value::Int(*amount));
            ops.extend([add.clone(), add.complete(*kind, add.value.clone())]);
        }
        let read_op =
            Op::invoke(Process::Client(1_000), "read", Value::Nil).with("final", Value::Bool(true));
        ops.extend([
            read_op.clone(),
            read_op.complete(OpType::Ok, Value::Int(read)),
        ]);
        History::from_unindexed(ops)
    }

    #[test]
    fn agrees_with_all_subsets() {
        let mut rng = Rng::from_seed(2);
        let kinds = [OpType::Ok, OpType::Fail, OpType::Info];
        for _ in 0..20_000 {
            let amount = |rng: &mut Rng| rng.below(11).cast_signed() - 5;
            let adds: Vec<(i64, OpType)> = (0..rng.below(7))
                .map(|_| (amount(&mut rng), *rng.pick(&kinds)))
                .collect();
            let read = rng.below(31).cast_signed() - 15;
            let sure: i64 = adds
                .iter()
                .filter(|(_, kind)| *kind == OpType::Ok)
                .map(|(a, _)| a)
                .sum();
            let open: Vec<i64> = adds
                .iter()
                .filter(|(_, kind)| *kind == OpType::Info)
                .map(|(amount, _)| *amount)
                .collect();
            let possible = (0..1_u32 << open.len()).any(|subset| {
                let chosen = (0..open.len()).filter(|bit| subset >> bit & 1 == 1);
                sure + chosen.map(|bit| open[bit]).sum::<i64>() == read
            });
            let verdict = FinalCounter.check(&history(&adds, read));
            assert_eq!(
                verdict.valid == Validity::Valid,
                possible,
                "{adds:?} {read}"
            );
        }
    }

    #[test]
    fn without_a_final_read_nothing_is_known() {
        let verdict = FinalCounter.check(&History::from_unindexed(Vec::new()));
        assert_eq!(
            verdict.valid,
            Validity::Unknown("no final read succeeded".into())
        );
    }
}
