//! Keys that are written in order and read in reverse: Jepsen's `sequential`.

use crate::workload_check::{WorkloadCheck, WorkloadEvent, WorkloadTally, tuple, workload_checker};
use seatrial_checker::{CertainAnomalies, Robustness};
use seatrial_history::{OpType, Value};

/// A read found a later key and then not an earlier one.
const TRAILING_NIL: &str = "trailing-nil";

/// Checks that a client's inserts become visible in its order: `write` *k* inserts the keys *k*_0, *k*_1, … one after another,
/// `read` *k* reads them in reverse, and returns `[k [..]]` with nil for what it did not find. After a key that was found every
/// further one must be found: sequential consistency demands it. Jepsen's `sequential` of CockroachDB and Dgraph.
///
/// Anomaly: `trailing-nil`, once for each read with a nil after a key. Counts as in Jepsen: `all_count` reads without nil (where
/// Jepsen also compares the names of the keys), `some_count` with a nil, `none_count` with nothing else, `bad_count`. Writes of
/// unknown outcome need no care: they insert a prefix. Time O(n), memory constant but for `bad`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialInserts;

/// The reads so far.
#[derive(Default)]
pub(crate) struct SequentialReads {
    all: u64,
    some: u64,
    none: u64,
    bad: u64,
    /// The first bad reads: index, value.
    listed: Vec<(u64, String)>,
    refused: Option<(u64, String)>,
}

/// Bad reads that are kept.
const LISTED_MAX: usize = 64;

impl SequentialReads {
    fn read(&mut self, index: u64, value: &Value) {
        let pair;
        let found: &[Value] = match value {
            Value::List(items) => items,
            Value::Cas(first, second) => {
                pair = [Value::Int(*first), Value::Int(*second)];
                &pair
            }
            Value::Txn(mops) if mops.is_empty() => &[],
            other => {
                let reason = format!("it read {other}, and a read has the list of its keys");
                self.refused.get_or_insert((index, reason));
                return;
            }
        };
        let is_nil = |value: &Value| *value == Value::Nil;
        let from = found.iter().position(|value| !is_nil(value));
        let nils = found.iter().filter(|value| is_nil(value)).count();
        self.all += u64::from(nils == 0);
        self.some += u64::from(nils > 0);
        self.none += u64::from(nils == found.len());
        if from.is_some_and(|from| found[from..].iter().any(is_nil)) {
            self.bad += 1;
            if self.listed.len() < LISTED_MAX {
                self.listed.push((index, value.to_string()));
            }
        }
    }
}

impl WorkloadCheck for SequentialInserts {
    type State = SequentialReads;
    const NAME: &'static str = "sequential";
    const FUNCTIONS: &'static [&'static str] = &["read"];

    fn apply(&self, state: &mut SequentialReads, event: &WorkloadEvent<'_>) {
        if event.kind != OpType::Ok {
            return;
        }
        // `[k [..]]`, unless the key was taken off.
        let found = match tuple(event.value) {
            Some((_, found @ (Value::List(_) | Value::Cas(..) | Value::Txn(_)))) => found,
            _ => event.value,
        };
        state.read(event.index, found);
    }

    fn finish(&self, state: SequentialReads, tally: &mut WorkloadTally) {
        for (name, count) in [
            ("all_count", state.all),
            ("some_count", state.some),
            ("none_count", state.none),
            ("bad_count", state.bad),
        ] {
            tally.count(name, count);
        }
        if let Some((index, reason)) = state.refused {
            tally.unknown(&format!("op {index}: {reason}"));
        }
        if state.all + state.some > 0 {
            tally.note_evidence();
        }
        for (index, value) in &state.listed {
            tally.list("bad", || format!("op {index}: {value}"));
            tally.anomaly(TRAILING_NIL, || {
                let summary = format!(
                    "Op {index} read {value}, later keys first: it found a key, and then not one that was written before it."
                );
                (vec![*index], summary)
            });
        }
        tally.count_more(TRAILING_NIL, state.bad - state.listed.len() as u64);
    }
}

workload_checker!(
    SequentialInserts,
    Robustness {
        certain: CertainAnomalies::Only(&[TRAILING_NIL]),
        ..Robustness::OF_PREFIX
    }
);
