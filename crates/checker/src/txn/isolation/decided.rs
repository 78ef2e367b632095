//! Models whose order is searched for.

use super::exported;
use super::{Isolation, Model};
use crate::certificate::{Certificate, Evidence, Proof};
use crate::txn::decision::{Answer, Effort, Follows, Impossible, Promise, Witness, decide};
use crate::txn::findings::{FINDINGS_MAX, Findings};
use crate::txn::registers::{Columns, Fault, NONE, Refusal};
use crate::{Anomaly, Validity, Verdict};
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
        let Some(promise) = self.model.promise() else {
            let (verdict, order) = self.decide(columns);
            let model = self.model.name();
            let proof = match order {
                Some(order) => Proof::Commits(places(columns, &order)),
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
            Reason::Order(witness) => witness.proof(columns),
            Reason::Core(core) => Proof::Core(places(columns, &core)),
            Reason::Faults => {
                let faults = verdict.findings.iter();
                let faults = faults.filter(|finding| is_fault(finding.anomaly));
                Proof::Findings(faults.map(Evidence::from).collect())
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
        let is_faulty = findings.names().next().is_some();
        let (settled, effort) = self.settle(columns, promise);
        let (mut least, mut reason, mut proof) = (None, None, None);
        let mut undecided = Vec::new();
        match settled {
            Settled::Holds(witness) => {
                proof = Some(witness.name());
                reason = Some(Reason::Order(witness));
            }
            Settled::Fails(impossible) => {
                let finding = impossible.finding;
                findings.add(finding.anomaly, || finding);
                least = Some(impossible.is_least);
                reason = Some(Reason::Core(impossible.transactions));
            }
            Settled::Open(question) => undecided.push(question),
        }
        let mut verdict = self.verdict(findings);
        if is_faulty {
            // They prove it with less; and no order replays reads that are wrong by themselves.
            reason = Some(Reason::Faults);
        }
        verdict.details = details(columns, effort);
        if let Some(least) = least {
            verdict.details["core_is_least"] = json!(least);
        }
        if verdict.valid == Validity::Invalid {
            return (verdict, reason);
        }
        if !undecided.is_empty() {
            return (verdict.no_anomaly_found(undecided), None);
        }
        verdict.proof = proof;
        (verdict, reason)
    }

    /// Decides a promise about the transactions that took place; what is wrong with single reads is left out.
    pub(in crate::txn) fn settle(&self, columns: &Columns, promise: Promise) -> (Settled, Effort) {
        let steps_max = self.bound.search_steps_max;
        let ranks = match &self.order {
            Some(order) => order.ranks(columns),
            None => exported::stamped(columns),
        };
        let words = in_words(self.model);
        let (answer, effort) = decide(columns, &ranks, promise, &words, steps_max);
        let settled = match answer {
            Answer::Holds(_) if promise.follows == Follows::Time && !has_times(columns) => {
                let open = "real time, as the history does not say when its transactions ran; the order of its sessions is kept";
                Settled::Open(open.into())
            }
            Answer::Holds(witness) => Settled::Holds(witness),
            Answer::Fails(impossible) => Settled::Fails(impossible),
            Answer::Open => Settled::Open(format!(
                "whether the transactions are {words}: the search for an order was stopped after {} steps",
                effort.steps
            )),
        };
        (settled, effort)
    }
}

/// What was decided of a model.
pub(in crate::txn) enum Settled {
    /// This order explains all.
    Holds(Witness),
    /// These transactions cannot be explained.
    Fails(Impossible),
    /// This question stayed open.
    Open(String),
}

impl Witness {
    /// What it is called as the proof of a verdict.
    pub(in crate::txn) fn name(&self) -> &'static str {
        match self {
            Witness::Serial(_) => Verdict::SERIAL_ORDER,
            Witness::Snapshots(_) => Verdict::SNAPSHOT_ORDER,
            Witness::Visible(_) => Verdict::VISIBILITY_ORDER,
        }
    }

    /// The proof that it is, in places of the columns' transactions.
    pub(in crate::txn) fn proof(&self, columns: &Columns) -> Proof {
        match self {
            Witness::Serial(order) => Proof::Serial(places(columns, order)),
            Witness::Snapshots(order) => Proof::Snapshots(places(columns, order)),
            Witness::Visible(order) => Proof::Visible(places(columns, order)),
        }
    }
}

/// The places of these transactions in a certificate.
pub(in crate::txn) fn places(columns: &Columns, numbers: &[u32]) -> Vec<u64> {
    let places = numbers.iter().map(|&number| columns.recorded(number));
    places.collect()
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

/// Is this anomaly one of a single read?
fn is_fault(anomaly: Anomaly) -> bool {
    Fault::ALL.into_iter().any(|fault| fault.name() == anomaly)
}

/// Does the history say when a transaction had ended, if any succeeded?
pub(in crate::txn) fn has_times(columns: &Columns) -> bool {
    let mut all = 0..columns.len() as u32;
    columns.count(OpType::Ok) == 0 || all.any(|number| columns.ended(number) != NONE)
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
pub(super) fn in_words(model: Model) -> String {
    match model {
        Model::Serializable => "serializable".into(),
        Model::StrongSessionSerializable => {
            "serializable in an order that follows their sessions".into()
        }
        Model::StrictSerializable => "serializable in an order that follows real time".into(),
        other => format!("explained by {}", other.name()),
    }
}
