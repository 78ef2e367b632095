//! Judging transactions on lists while they are recorded.

use super::definite::Definite;
use super::gather::{Gather, Gathering};
use super::late::LateKeys;
use super::lists::Lists;
use super::record::Kept;
use super::scene::Scene;
use super::stage::Stage;
use super::table::Writer;
use super::{ListAppend, Refusal, Table, reopened};
use crate::online::{Progress, Recall};
use crate::txn::anomaly::GARBAGE_READ;
use crate::txn::findings::FINDINGS_MAX;
use crate::txn::level::Level;
use crate::{Anomaly, Finding, Verdict};
use seatrial_history::{Chunk, Chunks, Fold as _, FoldError, Folder};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a judgement of a history whose end is not known yet.
///
/// It owns the compact table of all transactions that are not settled, and what was found. Chunks go into the table as they do
/// when a finished history is judged, and leave it as they do there: so the verdict in the end is the same. In between,
/// [`OnlineLists::look`] judges the table as it stands, without letting anything go, to see violations at once.
///
/// Its downside: a look takes time in proportion to the table (some tenths of a microsecond a transaction), so whoever asks
/// for one decides how often.
pub(crate) struct OnlineLists {
    gather: Gather,
    gathering: Gathering,
    /// What has been found, told or not.
    told: BTreeMap<Anomaly, Told>,
    /// What the last look found that is definite, and what must be known of it.
    seen: Option<(Stage, Vec<(Anomaly, Kept)>)>,
    /// How many anomalies the last look found, by name, in what was not let go since.
    counts: BTreeMap<Anomaly, u64>,
    /// Operations that were known at the last look.
    looked_at: u64,
}

/// Findings of one anomaly that were handed out.
#[derive(Default)]
struct Told {
    /// How many of those that were kept when transactions were let go.
    kept: usize,
    /// Their operations.
    operations: BTreeSet<Vec<u64>>,
}

impl OnlineLists {
    /// The judgement that this checker will give.
    pub(crate) fn new(judge: ListAppend) -> OnlineLists {
        let gather = Gather {
            judge,
            certify: false,
            late: LateKeys::default(),
        };
        OnlineLists {
            gathering: gather.start(),
            gather,
            told: BTreeMap::new(),
            seen: None,
            counts: BTreeMap::new(),
            looked_at: 0,
        }
    }

    /// Takes what is new in a chunk into account.
    pub(crate) fn push(&mut self, chunk: &Chunk) {
        let windows = self.gathering.record().windows;
        // Whatever is refused now is told in the end.
        let _ = self.gather.reduce(&mut self.gathering, chunk);
        if self.gathering.record().windows != windows {
            // What the last look has seen was kept when it was let go, or will be seen again.
            self.seen = None;
            self.counts.clear();
        }
    }

    /// Judges what is known, as it is.
    pub(crate) fn look(&mut self) {
        let position = self.gathering.position();
        let table = self.gathering.table();
        if table.refusal.is_some() || self.looked_at == position {
            return;
        }
        let level = self.gather.judge.level;
        self.looked_at = position;
        let retried = self.gathering.open_appends();
        let table = self.gathering.table();
        let mut lists = Lists::new(std::mem::take(table), level);
        // With more dependencies than can be numbered the judgement will say so when it comes to that.
        let suspects = self.gathering.record().look(&lists).unwrap_or_default();
        let definite = Definite::new(level).with_retried(retried);
        let (mut transactions, mut named, mut found) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (anomaly, suspects) in suspects.kept {
            let told = self.told.get(anomaly);
            let told = told.map_or(0, |told| told.operations.len());
            let sound = |suspect: &_| definite.is(anomaly, suspect, &lists);
            for suspect in suspects.into_iter().filter(sound) {
                if told >= FINDINGS_MAX {
                    break;
                }
                transactions.extend(suspect.transactions());
                named.extend(suspect.list());
                let kept = Kept {
                    stage: 0,
                    suspect,
                    is_definite: true,
                };
                found.push((anomaly, kept));
            }
        }
        self.counts = suspects.counts;
        // Who appended it may be under way.
        self.counts.remove(GARBAGE_READ);
        let has_found = !found.is_empty();
        self.seen = has_found.then(|| (Stage::new(&lists, transactions, named), found));
        lists.table.forget_orders();
        *self.gathering.table() = lists.table;
    }

    /// The definite violations that were not handed out before, at most eight of each kind.
    pub(crate) fn tell<R: Recall>(&mut self, recall: &R) -> Result<Vec<Finding>, R::Error> {
        let mut findings = Vec::new();
        let record = self.gathering.record();
        let mut fresh: Vec<(Anomaly, &Stage, &Kept)> = Vec::new();
        for (&anomaly, kept) in &record.kept {
            let told = self.told.entry(anomaly).or_default();
            let new = kept[told.kept..].iter().filter(|kept| kept.is_definite);
            fresh.extend(new.map(|kept| (anomaly, &record.stages[kept.stage], kept)));
            told.kept = kept.len();
        }
        if let Some((stage, seen)) = &self.seen {
            fresh.extend(seen.iter().map(|(anomaly, kept)| (*anomaly, stage, kept)));
        }
        if fresh.is_empty() {
            return Ok(findings);
        }
        let positions = fresh.iter().flat_map(|(_, stage, _)| stage.positions());
        let ops = recall.recall(&positions.collect())?;
        for (anomaly, stage, kept) in fresh {
            let finding = Scene { stage, ops: &ops }.finding(anomaly, &kept.suspect);
            let told = self.told.entry(anomaly).or_default();
            if told.operations.len() < FINDINGS_MAX
                && told.operations.insert(finding.operations.clone())
            {
                findings.push(finding);
            }
        }
        self.seen = None;
        Ok(findings)
    }

    /// How far it is.
    pub(crate) fn progress(&mut self) -> Progress {
        let open = self.counts.clone();
        let held = self.gathering.table().len();
        let note = match &self.gathering.table().refusal {
            None => None,
            Some(Refusal::Reopened(key)) => Some(format!(
                "{}; it will be judged as a whole in the end",
                reopened(key)
            )),
            Some(Refusal::Operation(index, reason)) => Some(format!("op {index}: {reason}")),
            Some(Refusal::Size(reason)) => Some((*reason).to_owned()),
            Some(Refusal::Twice(key, element, _)) => {
                Some(format!("element {element} was appended to key {key} twice"))
            }
        };
        let record = self.gathering.record();
        let mut anomalies = record.counts.clone();
        for (anomaly, count) in open {
            *anomalies.entry(anomaly).or_default() += count;
        }
        let forbidden = self.gather.judge.level.forbidden();
        anomalies.retain(|anomaly, _| forbidden.contains(anomaly));
        Progress {
            judged: record.tally.transactions as u64,
            held: held as u64,
            windows: record.windows as u64,
            anomalies,
            note,
        }
    }

    /// Names the model, which the anomalies of this verdict rule out, if there are any. Weaker models they may not rule out in
    /// the end: when a read contradicts the order of versions that a cycle rests on, that is the violation instead.
    pub(crate) fn rule_out(&self, verdict: &mut Verdict) {
        let level = self.gather.judge.level;
        verdict.model = Some(level.name().to_owned());
        if !verdict.anomalies.is_empty() {
            let stronger = Level::all().filter(|&other| other != level && other.implies(level));
            verdict.not = vec![level.name()];
            verdict.also_not = stronger.map(Level::name).collect();
        }
    }

    /// The verdict on the whole history, which is gone through again when something is to be told, or when a key came back
    /// that had been taken for closed.
    pub(crate) fn finish<C: Chunks + 'static>(
        self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        let gathered = self.gather.finish(self.gathering);
        let (verdict, _) = self.gather.judge.conclude(folder, gathered, false)?;
        Ok(verdict)
    }
}

impl Table {
    /// Makes it again what it was before version orders were fixed.
    fn forget_orders(&mut self) {
        for list in &mut self.lists {
            list.rename(Writer::new);
        }
    }
}
