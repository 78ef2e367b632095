//! Models whose order is searched for.

use super::exported::{self, Exported};
use super::{Isolation, Model};
use crate::certificate::{Certificate, Evidence, Proof};
use crate::txn::decision::{Answer, Effort, Follows, Promise, Witness, decide};
use crate::txn::findings::{FINDINGS_MAX, Findings};
use crate::txn::registers::{Columns, NONE, Refusal};
use crate::{Validity, Verdict};
use seatrial_history::{Chunks, FoldError, Folder, OpType};
use serde_json::json;

/// What proves a verdict, in numbers of the columns.
pub(super) enum Reason {
    /// This order.
    Order(Witness),
    /// These transactions.
    Core(Vec<u32>),
    /// What is wrong before any level.
    Faults,
}

impl Reason {
    /// The order of commits that it is, if it is one.
    pub(super) fn commits(self) -> Option<Vec<u32>> {
        match self {
            Reason::Order(Witness::Serial(order) | Witness::Visible(order)) => Some(order),
            Reason::Order(Witness::Snapshots(order)) => Some(seconds(&order)),
            Reason::Core(_) | Reason::Faults => None,
        }
    }
}

/// What stands here for the second time.
fn seconds(order: &[u32]) -> Vec<u32> {
    let length = order.iter().max().map_or(0, |&last| last as usize + 1);
    let mut seen = vec![false; length];
    let again = |&&number: &&u32| std::mem::replace(&mut seen[number as usize], true);
    order.iter().filter(again).copied().collect()
}

impl Isolation {
    /// Judges the folder's history and proves the verdict: with an order of transactions, with a cycle, or (from prefix
    /// consistency up) with transactions that have no order. Nothing is proven when the verdict is unknown.
    pub fn certify<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<(Verdict, Option<Certificate>), FoldError<C::Error>> {
        Ok(self.certify_gathered(Columns::gather(folder)?))
    }

    /// The same of columns; without a proof when there are none.
    pub fn certify_gathered(
        &self,
        columns: Result<Columns, Refusal>,
    ) -> (Verdict, Option<Certificate>) {
        match columns {
            Ok(columns) => self.certify_columns(&columns),
            Err(refusal) => (self.judge_gathered(Err(refusal)), None),
        }
    }

    /// The same of transactions in columns.
    pub fn certify_columns(&self, columns: &Columns) -> (Verdict, Option<Certificate>) {
        let places = |numbers: &[u32]| -> Vec<u64> {
            let places = numbers.iter().map(|&number| columns.recorded(number));
            places.collect()
        };
        let Some(promise) = self.model.promise() else {
            let (verdict, order) = self.decide(columns);
            let model = self.model.name();
            let proof = match order {
                Some(order) => Proof::Commits(places(&order)),
                None => Proof::Findings(telling(&verdict)),
            };
            return (verdict, Some(Certificate::new(model, proof)));
        };
        let (mut verdict, reason) = self.decided(columns, promise);
        if let Some(Reason::Core(core)) = &reason
            && core.len() > Certificate::CORE_MAX
        {
            let (count, most) = (core.len(), Certificate::CORE_MAX);
            let unproven =
                format!("{count} transactions have no order, and no more than {most} are replayed");
            verdict.details["unproven"] = unproven.into();
            return (verdict, None);
        }
        let proof = reason.map(|reason| match reason {
            Reason::Order(Witness::Serial(order)) => Proof::Serial(places(&order)),
            Reason::Order(Witness::Snapshots(order)) => Proof::Snapshots(places(&order)),
            Reason::Order(Witness::Visible(order)) => Proof::Visible(places(&order)),
            Reason::Core(core) => Proof::Core(places(&core)),
            Reason::Faults => {
                Proof::Findings(verdict.findings.iter().map(Evidence::from).collect())
            }
        });
        let model = self.model.name();
        let certificate = proof.map(|proof| Certificate::new(model, proof));
        (verdict, certificate)
    }

    /// Decides a promise.
    pub(super) fn decided(&self, columns: &Columns, promise: Promise) -> (Verdict, Option<Reason>) {
        let mut findings = Findings::default();
        columns.faults(|faulty| findings.add(faulty.fault.name(), || columns.finding(faulty)));
        let steps_max = self.bound.search_steps_max;
        let stamped = || exported::stamped(columns);
        let ranks = |order: &Exported| order.ranks(columns);
        let ranks = self.order.as_ref().map_or_else(stamped, ranks);
        let words = in_words(self.model);
        let (answer, effort) = decide(columns, &ranks, promise, &words, steps_max);
        drop(ranks);
        let (mut least, mut reason, mut open) = (None, None, false);
        match answer {
            Answer::Holds(witness) => reason = Some(Reason::Order(witness)),
            Answer::Fails(impossible) => {
                let finding = impossible.finding;
                findings.add(finding.anomaly, || finding);
                least = Some(impossible.is_least);
                reason = Some(Reason::Core(impossible.transactions));
            }
            Answer::Open => open = true,
        }
        let mut verdict = self.verdict(findings);
        if !verdict.anomalies.is_empty() && !matches!(reason, Some(Reason::Core(_))) {
            reason = Some(Reason::Faults);
        }
        verdict.details = details(columns, effort);
        if let Some(least) = least {
            verdict.details["core_is_least"] = json!(least);
        }
        if verdict.valid == Validity::Invalid {
            return (verdict, reason);
        }
        if open {
            let text = format!(
                "the search for an order was stopped after {} steps",
                effort.steps
            );
            return (verdict.unknown(text), None);
        }
        if promise.follows == Follows::Time && !has_times(columns) {
            let text = "the history does not say when its transactions ran; the order of its sessions is kept";
            return (verdict.unknown(text), None);
        }
        (verdict, reason)
    }
}

/// The findings that prove an invalid verdict of a weak model: reads with something wrong, if there are any; else cycles.
fn telling(verdict: &Verdict) -> Vec<Evidence> {
    let all = verdict.findings.iter();
    let faults = all.clone().filter(|finding| finding.steps.is_empty());
    let faults: Vec<_> = faults.map(Evidence::from).collect();
    if faults.is_empty() {
        all.map(Evidence::from).collect()
    } else {
        faults
    }
}

/// Is there a transaction of which is known when it had ended?
fn has_times(columns: &Columns) -> bool {
    let mut all = 0..columns.len() as u32;
    columns.is_empty() || all.any(|number| columns.ended(number) != NONE)
}

fn details(columns: &Columns, effort: Effort) -> serde_json::Value {
    json!({
        "transactions": columns.len(),
        "ok": columns.count(OpType::Ok),
        "fail": columns.count(OpType::Fail),
        "info": columns.count(OpType::Info),
        "sessions": columns.session_count(),
        "keys": columns.key_count(),
        "events": columns.event_count(),
        "unsettled": effort.unsettled,
        "pairs": effort.pairs,
        "clauses": effort.clauses,
        "steps": effort.steps,
        "findings_max": FINDINGS_MAX,
    })
}

/// What transactions cannot be when the model does not hold, in words.
fn in_words(model: Model) -> String {
    match model {
        Model::Serializable => "serializable".into(),
        Model::StrongSessionSerializable => {
            "serializable in an order that follows their sessions".into()
        }
        Model::StrictSerializable => "serializable in an order that follows real time".into(),
        other => format!("explained by {}", other.name()),
    }
}
