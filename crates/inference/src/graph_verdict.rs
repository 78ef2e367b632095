//! The verdict of a dependency graph: from anomalies, a proof and open questions.

use seatrial_checker::{
    Anomaly, DependencyFigures, Details, FINDINGS_MAX, Figures, Findings, InferenceFigures,
    TransactionCounts, Validity, Verdict, WindowFigures,
};
use seatrial_cycles::anomaly::{self, NO_ORDER};
use seatrial_cycles::search::CycleReport;
use seatrial_cycles::{Level, boundary};
use std::collections::BTreeMap;

/// The inputs of a verdict besides its findings.
pub(super) struct VerdictInputs<'a> {
    pub(super) checker: &'static str,
    pub(super) level: Level,
    pub(super) tally: TransactionTally,
    pub(super) keys: usize,
    /// Dependencies; `None` when no graph was made.
    pub(super) edges: Option<usize>,
    pub(super) found: &'a CycleReport,
    /// The proof that the level holds, if there is one: a witness order or a complete method, by the names of
    /// [`Verdict::proof`]. Without it, a verdict without anomalies is unknown.
    pub(super) proof: Option<&'static str>,
    /// Questions that are not decided, in words.
    pub(super) undecided: Vec<String>,
    /// Does a level hold that no anomaly contradicts? Only such levels are listed under `holds`.
    pub(super) is_established: &'a dyn Fn(Level) -> bool,
    /// Figures of lists.
    pub(super) windows: Option<WindowFigures>,
    /// Figures of registers.
    pub(super) inference: Option<InferenceFigures>,
}

/// Numbers of transactions.
#[derive(Clone, Copy)]
pub(super) struct TransactionTally {
    pub(super) transactions: usize,
    pub(super) ok: usize,
    pub(super) fail: usize,
}

/// Adds a level, and the levels that imply it, to those that a verdict rules out.
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

/// The figures of a verdict.
fn figures(summary: &VerdictInputs<'_>, tolerated: BTreeMap<Anomaly, u64>) -> Figures {
    let TransactionTally {
        transactions,
        ok,
        fail,
    } = summary.tally;
    Figures::Dependencies(Box::new(DependencyFigures {
        transactions: TransactionCounts::new(transactions, ok, fail),
        keys: summary.keys,
        edges: summary.edges,
        components: summary.found.components,
        largest_component: summary.found.largest,
        search_complete: summary.found.complete,
        findings_max: FINDINGS_MAX,
        tolerated,
        windows: summary.windows.clone(),
        inference: summary.inference.clone(),
    }))
}

/// The verdict: invalid if an anomaly was found that the level forbids, valid if the level is proven, otherwise unknown: no
/// anomaly was found, and some questions were not decided.
pub(super) fn verdict(findings: Findings, summary: &VerdictInputs<'_>) -> Verdict {
    let forbidden = summary.level.forbidden();
    let (counts, mut kept) = findings.by_anomaly();
    let mut verdict = Verdict::valid(summary.checker);
    verdict.model = Some(summary.level.name().to_owned());
    let boundary = boundary(counts.keys().copied());
    verdict.not = boundary.not;
    verdict.also_not = boundary.also_not;
    let mut tolerated = BTreeMap::new();
    for (anomaly, count) in counts {
        // `no-order` is only searched for at the level that is checked.
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
    verdict.details = Details::of(figures(summary, tolerated));
    // A level holds only if all its anomalies were searched for, which strict serializability does.
    if summary.level == Level::StrictSerializable && summary.found.complete {
        let holds = boundary.holds.into_iter();
        let holds = holds.filter(|&level| (summary.is_established)(level));
        verdict.details.holds = Some(holds.map(Level::name).collect());
    }
    assert!(
        verdict
            .findings
            .iter()
            .all(|one| verdict.anomalies.contains_key(one.anomaly)),
        "each finding is of an anomaly that the level forbids"
    );
    assert!(
        verdict.anomalies.is_empty() || !verdict.not.is_empty(),
        "a forbidden anomaly rules out a level"
    );
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
    if let Some(holds) = &mut verdict.details.holds {
        holds.clear();
    }
    verdict.no_anomaly_found(undecided)
}
