//! Anomalies as they are found, and the verdict that they make.

use super::anomaly::{self, NO_ORDER};
use super::level::{Level, boundary};
use super::search::Found;
use crate::{Anomaly, Finding, Validity, Verdict};
use std::collections::BTreeMap;

/// Findings of one anomaly that are kept; all are counted.
pub(crate) const FINDINGS_MAX: usize = 8;

/// Counts of anomalies, and the first findings of each.
#[derive(Clone, Default)]
pub(crate) struct Findings {
    counts: BTreeMap<Anomaly, u64>,
    kept: BTreeMap<Anomaly, Vec<Finding>>,
}

impl Findings {
    /// Counts one more; `make` is called when it is among the first.
    pub(crate) fn add(&mut self, anomaly: Anomaly, make: impl FnOnce() -> Finding) {
        *self.counts.entry(anomaly).or_default() += 1;
        let kept = self.kept.entry(anomaly).or_default();
        if kept.len() < FINDINGS_MAX {
            kept.push(make());
        }
    }

    /// Counts so many more without telling of them.
    pub(crate) fn count(&mut self, anomaly: Anomaly, count: u64) {
        *self.counts.entry(anomaly).or_default() += count;
    }

    /// The names of the anomalies that were found.
    pub(crate) fn names(&self) -> impl Iterator<Item = Anomaly> {
        self.counts.keys().copied()
    }

    /// The counts, and what was kept, by anomaly.
    pub(crate) fn into_parts(self) -> (BTreeMap<Anomaly, u64>, Vec<Finding>) {
        (self.counts, self.kept.into_values().flatten().collect())
    }

    /// These findings of so many anomalies.
    pub(super) fn of(
        counts: BTreeMap<Anomaly, u64>,
        kept: BTreeMap<Anomaly, Vec<Finding>>,
    ) -> Findings {
        Findings { counts, kept }
    }

    /// The names of all anomalies that were counted.
    pub(super) fn anomalies(&self) -> impl Iterator<Item = Anomaly> {
        self.counts.keys().copied()
    }

    /// Adds an anomaly without steps.
    pub(crate) fn tell(&mut self, anomaly: Anomaly, tell: impl FnOnce() -> (Vec<u64>, String)) {
        self.add(anomaly, || {
            let (mut operations, summary) = tell();
            let mut seen = std::collections::BTreeSet::new();
            operations.retain(|&operation| seen.insert(operation));
            Finding {
                anomaly,
                summary,
                operations,
                steps: Vec::new(),
            }
        });
    }
}

/// What goes into a verdict besides the findings.
pub(super) struct Summary<'a> {
    pub(super) checker: &'static str,
    pub(super) level: Level,
    pub(super) tally: Tally,
    pub(super) keys: usize,
    pub(super) edges: usize,
    pub(super) found: &'a Found,
    /// What establishes that the level holds, if anything does: a witness order or a complete method, by the names of
    /// [`Verdict::proof`]. Without it, a verdict without anomalies is unknown.
    pub(super) proof: Option<&'static str>,
    /// Questions that the history leaves open, in words.
    pub(super) undecided: Vec<String>,
    /// Is a level that no anomaly contradicts established, too? Only such levels are listed under `holds`.
    pub(super) is_established: &'a dyn Fn(Level) -> bool,
}

/// Counts of transactions.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    pub(super) transactions: usize,
    pub(super) ok: usize,
    pub(super) fail: usize,
}

/// Adds a level and those that imply it to what a verdict rules out.
fn rule_out(level: Level, verdict: &mut Verdict) {
    let known = |verdict: &Verdict, name| {
        verdict
            .not
            .iter()
            .chain(&verdict.also_not)
            .any(|&it| it == name)
    };
    if !known(verdict, level.name()) {
        verdict.not.push(level.name());
    }
    for stronger in Level::all().filter(|&other| other != level && other.implies(level)) {
        if !known(verdict, stronger.name()) {
            verdict.also_not.push(stronger.name());
        }
    }
}

/// Counts and figures of a verdict.
fn details(summary: &Summary<'_>, tolerated: &BTreeMap<Anomaly, u64>) -> serde_json::Value {
    let Tally {
        transactions,
        ok,
        fail,
    } = summary.tally;
    serde_json::json!({
        "transactions": transactions,
        "ok": ok,
        "fail": fail,
        "info": transactions - ok - fail,
        "keys": summary.keys,
        "edges": summary.edges,
        "components": summary.found.components,
        "largest_component": summary.found.largest,
        "search_complete": summary.found.complete,
        "findings_max": FINDINGS_MAX,
        "tolerated": tolerated,
    })
}

/// The verdict: invalid when an anomaly was found that the level forbids, valid when the level is proven, and otherwise
/// unknown: no anomaly was found, and some questions were not decided.
pub(super) fn verdict(findings: Findings, summary: &Summary<'_>) -> Verdict {
    let forbidden = summary.level.forbidden();
    let Findings { counts, mut kept } = findings;
    let mut verdict = Verdict::valid(summary.checker);
    verdict.model = Some(summary.level.name().to_owned());
    let boundary = boundary(counts.keys().copied());
    verdict.not = boundary.not;
    verdict.also_not = boundary.also_not;
    let mut tolerated = BTreeMap::new();
    for (anomaly, count) in counts {
        // That there is no order is only found for the level that is asked for.
        if forbidden.contains(anomaly) || anomaly == NO_ORDER {
            verdict.anomalies.insert(anomaly, count);
        } else {
            tolerated.insert(anomaly, count);
        }
    }
    for anomaly in anomaly::all().filter(|anomaly| forbidden.contains(anomaly)) {
        verdict
            .findings
            .extend(kept.remove(anomaly).unwrap_or_default());
    }
    if let Some(found) = kept.remove(NO_ORDER) {
        verdict.findings.extend(found);
        rule_out(summary.level, &mut verdict);
    }
    verdict.details = details(summary, &tolerated);
    // What was not looked for cannot be said to hold.
    if summary.level == Level::StrictSerializable && summary.found.complete {
        let holds = boundary.holds.into_iter();
        let holds = holds.filter(|&level| (summary.is_established)(level));
        verdict.details["holds"] = holds.map(Level::name).collect();
    }
    if !verdict.anomalies.is_empty() {
        verdict.valid = Validity::Invalid;
        verdict.undecided.clone_from(&summary.undecided);
        return verdict;
    }
    if summary.proof.is_some() {
        verdict.proof = summary.proof;
        return verdict;
    }
    if !summary.found.complete {
        let size = summary.found.largest;
        return verdict.unknown(format!(
            "the search for cycles among {size} transactions was stopped before one was found"
        ));
    }
    let mut undecided = summary.undecided.clone();
    if undecided.is_empty() {
        let level = summary.level.name();
        undecided.push(format!("whether an order of transactions proves {level}"));
    }
    if !verdict.details["holds"].is_null() {
        verdict.details["holds"] = serde_json::json!([]);
    }
    verdict.no_anomaly_found(undecided)
}
