//! Models whose order of transactions is searched for.

use super::exported_order;
use super::{AxiomaticModel, Isolation};
use crate::decision::{
    ModelAnswer, OrderModel, OrderWitness, RespectedOrder, SearchEffort, UnexplainedTransactions,
    decide,
};
use crate::registers::{Columns, ReadFault};
use seatrial_checker::{
    Anomaly, Details, FINDINGS_MAX, Figures, Findings, OrderSearchFigures, RegisterFigures,
    TransactionCounts, Validity, Verdict,
};
use seatrial_history::OpType;
use seatrial_verify::{Certificate, Evidence, Proof};

/// The proof of a verdict, in numbers of the columns.
pub(super) enum VerdictReason {
    /// This order explains all reads.
    Order(OrderWitness),
    /// These transactions have no order.
    Core(Vec<u32>),
    /// Single reads that are wrong at any level.
    Faults,
}

impl VerdictReason {
    /// The order of commits that it contains, if any.
    pub(super) fn commits(self) -> Option<Vec<u32>> {
        match self {
            VerdictReason::Order(OrderWitness::Serial(order) | OrderWitness::Visible(order)) => {
                Some(order)
            }
            VerdictReason::Order(OrderWitness::Snapshots(order)) => Some(seconds(&order)),
            VerdictReason::Core(_) | VerdictReason::Faults => None,
        }
    }
}

/// The second occurrences of numbers in an order.
fn seconds(order: &[u32]) -> Vec<u32> {
    let length = order.iter().max().map_or(0, |&last| last as usize + 1);
    let mut seen = vec![false; length];
    let again = |&&number: &&u32| std::mem::replace(&mut seen[number as usize], true);
    let commits: Vec<u32> = order.iter().filter(again).copied().collect();
    assert_eq!(
        2 * commits.len(),
        order.len(),
        "each transaction occurs twice"
    );
    commits
}

impl Isolation {
    /// The verdict and its certificate: an order of transactions, a cycle, or (from prefix consistency up) transactions that
    /// have no order. An unknown verdict has none.
    pub fn certify_columns(&self, columns: &Columns) -> (Verdict, Option<Certificate>) {
        let Some(order_model) = self.model.order_model() else {
            let (verdict, order) = self.decide(columns);
            let model = self.model.name();
            let proof = match order {
                Some(order) => Proof::Commits(certificate_positions(columns, &order)),
                None => Proof::Findings(telling(&verdict)),
            };
            return (verdict, Some(Certificate::new(model, proof)));
        };
        let (mut verdict, reason) = self.search_verdict(columns, order_model);
        if let Some(VerdictReason::Core(core)) = &reason
            && core.len() > Certificate::CORE_MAX
        {
            let (count, most) = (core.len(), Certificate::CORE_MAX);
            let unproven =
                format!("{count} transactions have no order, and no more than {most} are replayed");
            verdict.details.unproven = Some(unproven);
            return (verdict, None);
        }
        let proof = reason.map(|reason| match reason {
            VerdictReason::Order(witness) => witness.proof(columns),
            VerdictReason::Core(core) => Proof::Core(certificate_positions(columns, &core)),
            VerdictReason::Faults => {
                let faults = verdict.findings.iter();
                let faults = faults.filter(|finding| is_fault(finding.anomaly));
                Proof::Findings(faults.map(Evidence::from).collect())
            }
        });
        let model = self.model.name();
        let certificate = proof.map(|proof| Certificate::new(model, proof));
        (verdict, certificate)
    }

    /// The verdict of a model that is searched for.
    pub(super) fn search_verdict(
        &self,
        columns: &Columns,
        order_model: OrderModel,
    ) -> (Verdict, Option<VerdictReason>) {
        let mut findings = Findings::default();
        columns.faults(|faulty| findings.add(faulty.fault.name(), || columns.finding(faulty)));
        let is_faulty = findings.names().next().is_some();
        let (settled, effort) = self.settle(columns, order_model);
        let (mut least, mut reason, mut proof) = (None, None, None);
        let mut undecided = Vec::new();
        match settled {
            ModelDecision::Holds(witness) => {
                proof = Some(witness.name());
                reason = Some(VerdictReason::Order(witness));
            }
            ModelDecision::Fails(impossible) => {
                let finding = impossible.finding;
                findings.add(finding.anomaly, || finding);
                least = Some(impossible.is_least);
                reason = Some(VerdictReason::Core(impossible.transactions));
            }
            ModelDecision::Open(question) => undecided.push(question),
        }
        let mut verdict = self.verdict(findings);
        if is_faulty {
            // They are a smaller proof; and a replay of an order would fail at such reads.
            reason = Some(VerdictReason::Faults);
        }
        verdict.details = Details::of(figures(columns, effort));
        verdict.details.core_is_least = least;
        if verdict.valid == Validity::Invalid {
            return (verdict, reason);
        }
        if !undecided.is_empty() {
            return (verdict.no_anomaly_found(undecided), None);
        }
        verdict.proof = proof;
        (verdict, reason)
    }

    /// Decides a model for the transactions that took place; single reads that are wrong at any level are ignored.
    pub fn settle(
        &self,
        columns: &Columns,
        order_model: OrderModel,
    ) -> (ModelDecision, SearchEffort) {
        let steps_max = self.bound.search_steps_max;
        let ranks = match &self.order {
            Some(order) => order.ranks(columns),
            None => exported_order::timestamp_ranks(columns),
        };
        let words = in_words(self.model);
        let (answer, effort) = decide(columns, &ranks, order_model, &words, steps_max);
        let settled = match answer {
            ModelAnswer::Holds(_)
                if order_model.follows == RespectedOrder::Time && !has_times(columns) =>
            {
                let open = "real time, as the history does not say when its transactions ran; the order of its sessions is kept";
                ModelDecision::Open(open.into())
            }
            ModelAnswer::Holds(witness) => ModelDecision::Holds(witness),
            ModelAnswer::Fails(impossible) => ModelDecision::Fails(impossible),
            ModelAnswer::Open => ModelDecision::Open(format!(
                "whether the transactions are {words}: the search for an order was stopped after {} steps",
                effort.steps
            )),
        };
        (settled, effort)
    }
}

/// The decision about a model.
pub enum ModelDecision {
    /// This order explains all reads.
    Holds(OrderWitness),
    /// These transactions have no order.
    Fails(UnexplainedTransactions),
    /// This question stayed open.
    Open(String),
}

impl OrderWitness {
    /// The name of this kind of proof in a verdict.
    pub fn name(&self) -> &'static str {
        match self {
            OrderWitness::Serial(_) => Verdict::SERIAL_ORDER,
            OrderWitness::Snapshots(_) => Verdict::SNAPSHOT_ORDER,
            OrderWitness::Visible(_) => Verdict::VISIBILITY_ORDER,
        }
    }

    /// The proof for a certificate, in places of the columns' transactions.
    pub fn proof(&self, columns: &Columns) -> Proof {
        match self {
            OrderWitness::Serial(order) => Proof::Serial(certificate_positions(columns, order)),
            OrderWitness::Snapshots(order) => {
                Proof::Snapshots(certificate_positions(columns, order))
            }
            OrderWitness::Visible(order) => Proof::Visible(certificate_positions(columns, order)),
        }
    }
}

/// The places of these transactions in a certificate.
pub fn certificate_positions(columns: &Columns, numbers: &[u32]) -> Vec<u64> {
    let certificate_positions = numbers.iter().map(|&number| columns.recorded(number));
    certificate_positions.collect()
}

/// The findings that prove an invalid verdict of a weak model: faulty reads if there are any, otherwise cycles.
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

/// Is this an anomaly of a single read?
fn is_fault(anomaly: Anomaly) -> bool {
    ReadFault::ALL
        .into_iter()
        .any(|fault| fault.name() == anomaly)
}

/// Does the history have the time at which a transaction had ended, if any succeeded?
pub fn has_times(columns: &Columns) -> bool {
    let mut all = 0..columns.len() as u32;
    columns.count(OpType::Ok) == 0 || all.any(|number| columns.ended(number).is_some())
}

impl Columns {
    /// Counts for the details of a verdict.
    pub(super) fn figures(&self) -> RegisterFigures {
        let [ok, fail] = [OpType::Ok, OpType::Fail].map(|outcome| self.count(outcome));
        RegisterFigures {
            transactions: TransactionCounts::new(self.len(), ok, fail),
            sessions: self.session_count(),
            keys: self.key_count(),
            events: self.event_count(),
            findings_max: FINDINGS_MAX,
        }
    }
}

fn figures(columns: &Columns, effort: SearchEffort) -> Figures {
    Figures::OrderSearch(OrderSearchFigures {
        registers: columns.figures(),
        unsettled: effort.unsettled,
        pairs: effort.pairs,
        clauses: effort.clauses,
        steps: effort.steps,
    })
}

/// The property that transactions lack if the model does not hold: "these transactions cannot be …".
pub(super) fn in_words(model: AxiomaticModel) -> String {
    match model {
        AxiomaticModel::Serializable => "serializable".into(),
        AxiomaticModel::StrongSessionSerializable => {
            "serializable in an order that follows their sessions".into()
        }
        AxiomaticModel::StrictSerializable => {
            "serializable in an order that follows real time".into()
        }
        other => format!("explained by {}", other.name()),
    }
}
