//! Online checker of transactions on lists, while they are recorded or at once.

use super::definite::Definite;
use super::gather::{ListFold, ListFoldState};
use super::late::LateKeys;
use super::list_table::ElementWriter;
use super::lists::OrderedLists;
use super::window_record::KeptSuspect;
use super::witness_context::WitnessContext;
use super::witness_explanation::WitnessExplanation;
use super::{ListAppend, ListTable, ListsError, Windows, reopened};
use seatrial_checker::{
    Aims, Anomaly, Checked, FINDINGS_MAX, Finding, OnlineChecker, Progress, Verdict,
};
use seatrial_cycles::Level;
use seatrial_cycles::anomaly::GARBAGE_READ;
use seatrial_history::{Chunk, ChunkSource, Fold as _, SourceError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// A check of one history of lists.
///
/// It owns the table of all transactions in memory, and the results of earlier windows. [`OnlineLists::search`] checks the table
/// as it is, without freeing anything, to find violations before the window ends; the verdict at the end does not depend on it.
///
/// Its downside: a search takes time in proportion to the table (some tenths of a microsecond per transaction), so the caller
/// decides how often.
pub(super) struct OnlineLists {
    gather: ListFold,
    gathering: ListFoldState,
    /// Findings that were returned before.
    reported: BTreeMap<Anomaly, ReportedFindings>,
    /// Definite suspects of the last search, and their context.
    searched: Option<(WitnessContext, Vec<(Anomaly, KeptSuspect)>)>,
    /// Anomalies of the last search, in transactions that are still in memory.
    counts: BTreeMap<Anomaly, u64>,
    /// Position of the history at the last search.
    searched_at: u64,
}

/// Findings of one anomaly that were returned.
#[derive(Default)]
struct ReportedFindings {
    /// Number of suspects in the record that were returned.
    kept: usize,
    /// Their operations.
    operations: BTreeSet<Vec<u64>>,
}

impl OnlineLists {
    /// Starts to check a history.
    pub(super) fn new(mut checker: ListAppend, aims: &Aims) -> OnlineLists {
        if aims.early && checker.windows == Windows::default() {
            checker.windows = Windows::EARLY;
        }
        let gather = ListFold {
            checker,
            certify: aims.certify,
            late: LateKeys::default(),
        };
        OnlineLists {
            gathering: gather.start(),
            gather,
            reported: BTreeMap::new(),
            searched: None,
            counts: BTreeMap::new(),
            searched_at: 0,
        }
    }
}

impl OnlineChecker for OnlineLists {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn is_early(&self) -> bool {
        true
    }

    fn push(&mut self, chunk: &Chunk) -> ControlFlow<()> {
        let windows = self.gathering.record().windows;
        let flow = self.gather.reduce(&mut self.gathering, chunk);
        if self.gathering.record().windows != windows {
            // The suspects of the last search are in the record now, or will be found again.
            self.searched = None;
            self.counts.clear();
        }
        flow
    }

    fn search(&mut self) {
        let position = self.gathering.position();
        let table = self.gathering.table();
        if table.refusal.is_some() || self.searched_at == position {
            return;
        }
        let level = self.gather.checker.level;
        self.searched_at = position;
        let retried = self.gathering.open_appends();
        let table = self.gathering.table();
        let mut lists = OrderedLists::new(std::mem::take(table), level);
        // With too many dependencies the search finds nothing; the verdict at the end will say so.
        let suspects = self.gathering.record().search(&lists).unwrap_or_default();
        let definite = Definite::new(level).with_retried(retried);
        let (mut transactions, mut named, mut found) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (anomaly, suspects) in suspects.kept {
            let reported = self.reported.get(anomaly);
            let reported = reported.map_or(0, |reported| reported.operations.len());
            let sound = |suspect: &_| definite.is(anomaly, suspect, &lists);
            for suspect in suspects.into_iter().filter(sound) {
                if reported >= FINDINGS_MAX {
                    break;
                }
                transactions.extend(suspect.transactions());
                named.extend(suspect.list());
                let kept = KeptSuspect {
                    context: 0,
                    suspect,
                    is_definite: true,
                };
                found.push((anomaly, kept));
            }
        }
        self.counts = suspects.counts;
        // The transaction that appended the element may still be under way.
        self.counts.remove(GARBAGE_READ);
        let has_found = !found.is_empty();
        self.searched =
            has_found.then(|| (WitnessContext::new(&lists, transactions, named), found));
        lists.table.forget_orders();
        *self.gathering.table() = lists.table;
    }

    /// At most [`FINDINGS_MAX`] of each anomaly.
    fn definite(&mut self, source: &dyn ChunkSource) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        let record = self.gathering.record();
        let mut fresh: Vec<(Anomaly, &WitnessContext, &KeptSuspect)> = Vec::new();
        for (&anomaly, kept) in &record.kept {
            let reported = self.reported.entry(anomaly).or_default();
            let new = kept[reported.kept..].iter().filter(|kept| kept.is_definite);
            fresh.extend(new.map(|kept| (anomaly, &record.contexts[kept.context], kept)));
            reported.kept = kept.len();
        }
        if let Some((context, suspects)) = &self.searched {
            fresh.extend(
                suspects
                    .iter()
                    .map(|(anomaly, kept)| (*anomaly, context, kept)),
            );
        }
        if fresh.is_empty() {
            return Ok(findings);
        }
        let positions = fresh.iter().flat_map(|(_, context, _)| context.positions());
        let ops = source.recall(&positions.collect())?;
        for (anomaly, context, kept) in fresh {
            let finding = WitnessExplanation { context, ops: &ops }.finding(anomaly, &kept.suspect);
            let reported = self.reported.entry(anomaly).or_default();
            if reported.operations.len() < FINDINGS_MAX
                && reported.operations.insert(finding.operations.clone())
            {
                findings.push(finding);
            }
        }
        self.searched = None;
        Ok(findings)
    }

    fn progress(&mut self) -> Progress {
        let open = self.counts.clone();
        let held = self.gathering.table().len();
        let note = match &self.gathering.table().refusal {
            None => None,
            Some(ListsError::Reopened(key)) => Some(format!(
                "{}; the whole history will be checked at the end",
                reopened(key)
            )),
            Some(ListsError::Operation(refused)) => Some(refused.to_string()),
            Some(ListsError::Size(reason)) => Some((*reason).to_owned()),
            Some(ListsError::Twice(key, element, _)) => {
                Some(format!("element {element} was appended to key {key} twice"))
            }
        };
        let record = self.gathering.record();
        let mut anomalies = record.counts.clone();
        for (anomaly, count) in open {
            *anomalies.entry(anomaly).or_default() += count;
        }
        let forbidden = self.gather.checker.level.forbidden();
        anomalies.retain(|anomaly, _| forbidden.contains(anomaly));
        Progress {
            decided: record.tally.transactions as u64,
            held: held as u64,
            windows: record.windows as u64,
            anomalies,
            note,
        }
    }

    /// Rules out no weaker models: if a later read contradicts the version order of a cycle, that contradiction is the violation
    /// instead.
    fn rule_out(&self, verdict: &mut Verdict) {
        let level = self.gather.checker.level;
        verdict.model = Some(level.name().to_owned());
        if !verdict.anomalies.is_empty() {
            let stronger = Level::all().filter(|&other| other != level && other.implies(level));
            verdict.not = vec![level.name()];
            verdict.also_not = stronger.map(Level::name).collect();
        }
    }

    fn finish(self: Box<Self>, source: &dyn ChunkSource) -> Result<Checked, SourceError> {
        let OnlineLists {
            gather, gathering, ..
        } = *self;
        let gathered = gather.finish(gathering);
        let concluded = gather.checker.conclude(source, gathered, gather.certify)?;
        Ok(concluded.into())
    }
}

impl ListTable {
    /// Undoes [`OrderedLists::new`]: removes version orders and marks of reads.
    fn forget_orders(&mut self) {
        for list in &mut self.lists {
            list.rename(ElementWriter::new);
        }
    }
}
