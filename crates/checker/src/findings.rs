//! Counts of anomalies and the first findings of each.

use crate::{Anomaly, Finding};
use std::collections::BTreeMap;

/// Findings of one anomaly that are kept; all anomalies are counted.
pub const FINDINGS_MAX: usize = 8;

/// Counts of anomalies, and the first findings of each.
#[derive(Clone, Default)]
pub struct Findings {
    counts: BTreeMap<Anomaly, u64>,
    kept: BTreeMap<Anomaly, Vec<Finding>>,
}

impl Findings {
    /// Counts an anomaly; `make` is called for the first [`FINDINGS_MAX`] only.
    pub fn add(&mut self, anomaly: Anomaly, make: impl FnOnce() -> Finding) {
        *self.counts.entry(anomaly).or_default() += 1;
        let kept = self.kept.entry(anomaly).or_default();
        if kept.len() < FINDINGS_MAX {
            kept.push(make());
        }
        debug_assert!(kept.len() <= FINDINGS_MAX, "no more findings than are kept");
    }

    /// Counts `count` anomalies without findings.
    pub fn count(&mut self, anomaly: Anomaly, count: u64) {
        *self.counts.entry(anomaly).or_default() += count;
    }

    /// The names of the anomalies that were found.
    pub fn names(&self) -> impl Iterator<Item = Anomaly> {
        self.counts.keys().copied()
    }

    /// The counts, and the findings sorted by anomaly.
    pub fn into_parts(self) -> (BTreeMap<Anomaly, u64>, Vec<Finding>) {
        self.check();
        (self.counts, self.kept.into_values().flatten().collect())
    }

    /// The counts and the findings, both by anomaly.
    pub fn by_anomaly(self) -> (BTreeMap<Anomaly, u64>, BTreeMap<Anomaly, Vec<Finding>>) {
        self.check();
        (self.counts, self.kept)
    }

    /// A finding is of an anomaly that was counted, and not of one that was not.
    fn check(&self) {
        for (anomaly, findings) in &self.kept {
            let count = self.counts.get(anomaly).copied().unwrap_or_default();
            debug_assert!(findings.len() as u64 <= count, "{count} {anomaly}");
            debug_assert!(findings.iter().all(|one| one.anomaly == *anomaly));
        }
    }

    /// Findings with these counts.
    ///
    /// # Panics
    /// If there are more findings of an anomaly than its count.
    pub fn of(counts: BTreeMap<Anomaly, u64>, kept: BTreeMap<Anomaly, Vec<Finding>>) -> Findings {
        for (anomaly, findings) in &kept {
            let count = counts.get(anomaly).copied().unwrap_or_default();
            assert!(
                findings.len() as u64 <= count,
                "{} findings of {count} {anomaly}",
                findings.len()
            );
        }
        Findings { counts, kept }
    }

    /// Adds an anomaly without steps. `explain` returns its operations, of which each is kept once, and its description.
    pub fn explain(&mut self, anomaly: Anomaly, explain: impl FnOnce() -> (Vec<u64>, String)) {
        self.add(anomaly, || {
            let (mut operations, summary) = explain();
            let mut seen = std::collections::BTreeSet::new();
            operations.retain(|&operation| seen.insert(operation));
            Finding {
                anomaly,
                summary,
                operations,
                steps: Vec::new(),
                linearization: None,
            }
        });
    }
}
