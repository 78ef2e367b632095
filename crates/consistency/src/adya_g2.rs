//! Two inserts that each must see the other: Jepsen's `adya-g2`.

use crate::workload_check::{WorkloadCheck, WorkloadEvent, WorkloadTally, tuple, workload_checker};
use seatrial_checker::{CertainAnomalies, Robustness};
use seatrial_history::{OpType, Value};
use std::collections::BTreeMap;

/// Both inserts of a key succeeded.
const G2: &str = "G2";

/// Checks for anti-dependency cycles through predicates (Adya's G2): for each key there are two transactions, `insert` with
/// `[key [a-id nil]]` and `[key [nil b-id]]`; each reads both tables by a predicate, and inserts its row if both are empty. At
/// most one of them may succeed in a serializable system. Jepsen's `jepsen.tests.adya`.
///
/// Anomaly: `G2`, once for each key of which more than one insert succeeded. Figures as in Jepsen: `key_count`, `legal_count`,
/// `illegal_count`, `illegal`. An insert of unknown outcome is no evidence. Time O(n), memory O(keys).
#[derive(Clone, Copy, Debug, Default)]
pub struct AdyaG2;

/// The successful inserts by key, for a history that was not read as keyed; otherwise of one key.
#[derive(Default)]
pub(crate) struct PairInserts {
    succeeded: BTreeMap<String, Vec<(u64, String)>>,
}

impl WorkloadCheck for AdyaG2 {
    type State = PairInserts;
    const NAME: &'static str = "adya-g2";
    const FUNCTIONS: &'static [&'static str] = &["insert"];

    fn apply(&self, state: &mut PairInserts, event: &WorkloadEvent<'_>) {
        let value = event.argument();
        let (key, ids) = match tuple(value) {
            Some((key, ids @ (Value::List(_) | Value::Cas(..)))) => (key.to_string(), ids),
            _ => (String::new(), value),
        };
        let inserts = state.succeeded.entry(key).or_default();
        if event.kind == OpType::Ok {
            inserts.push((event.index, ids.to_string()));
        }
    }

    fn finish(&self, state: PairInserts, tally: &mut WorkloadTally) {
        for (key, inserts) in state.succeeded {
            let of_key = match tally.key() {
                Some(key) => key.to_string(),
                None => key.clone(),
            };
            tally.count("key_count", 1);
            tally.count("legal_count", u64::from(inserts.len() == 1));
            tally.count("illegal_count", u64::from(inserts.len() > 1));
            if !inserts.is_empty() {
                tally.note_evidence();
            }
            if inserts.len() < 2 {
                continue;
            }
            tally.list("illegal", || format!("{of_key}: {}", inserts.len()));
            tally.anomaly(G2, || {
                let shown = inserts.iter().take(LISTED_MAX);
                let shown = shown.map(|(index, ids)| format!("{ids} in op {index}"));
                let shown: Vec<String> = shown.collect();
                let prefix = if key.is_empty() {
                    String::new()
                } else {
                    format!("Key {key}: ")
                };
                let summary = format!(
                    "{prefix}{} inserts succeeded, and each must have seen no row: {}.",
                    inserts.len(),
                    shown.join(", ")
                );
                let operations = inserts.iter().take(LISTED_MAX).map(|(index, _)| *index);
                (operations.collect(), summary)
            });
        }
    }
}

/// Inserts that a finding lists.
const LISTED_MAX: usize = 8;

workload_checker!(
    AdyaG2,
    Robustness {
        certain: CertainAnomalies::Only(&[G2]),
        ..Robustness::OF_PREFIX
    }
);
