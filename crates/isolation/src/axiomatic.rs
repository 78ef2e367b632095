//! Isolation levels decided from their axioms, for transactions on registers whose values are written once.
//!
//! An axiomatic level asks for one order of commits: each session's transactions in their order, each transaction after
//! those that it reads from, and each writer of a key that a reader has *seen* no later than the writer that the reader
//! read the key from. What a reader has seen depends on the level. So the verdict is not inferred from the anomalies that
//! happen to show: there is such an order, or there is none.
//!
//! ```
//! use seatrial_checker::Validity;
//! use seatrial_isolation::{AxiomaticModel, Isolation};
//! use seatrial_isolation::registers::ColumnsBuilder;
//! use seatrial_history::OpType;
//!
//! // One session writes x and y twice; the other sees the second y, and after that the first x.
//! let (x, y) = (0, 1);
//! let mut builder = ColumnsBuilder::default();
//! for value in [1, 2] {
//!     builder.begin(1);
//!     builder.write(x, value);
//!     builder.write(y, value);
//!     builder.end(OpType::Ok);
//! }
//! builder.begin(2);
//! builder.read(y, Some(2));
//! builder.read(x, Some(1));
//! builder.end(OpType::Ok);
//! let columns = builder.finish()?;
//! let verdict = Isolation::new(AxiomaticModel::AxiomaticReadCommitted).check_columns(&columns);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! assert_eq!(verdict.anomalies["non-monotonic-read"], 1);
//! # Ok::<(), seatrial_isolation::registers::ColumnsError>(())
//! ```

mod axiom_explanation;
mod axiomatic_model;
mod commit_cycle;
mod commit_order;
mod direct_axioms;
mod exported_order;
mod observed_writers;
mod own_writes;
mod searched_models;
mod session_program;
mod visibility_clocks;

pub use axiomatic_model::AxiomaticModel;
pub use exported_order::timestamp_ranks;
pub use searched_models::{ModelDecision, certificate_positions, has_times};

use crate::registers::{self, Columns, ColumnsError};
use crate::without_times::WithoutTimes;
use commit_order::Predecessors;
use direct_axioms::{DirectInference, Sight};
use exported_order::ExportedOrder;
use observed_writers::ObservedSessions;
use seatrial_checker::{
    Aims, Anomaly, Checker, CommitOrderFigures, Details, FINDINGS_MAX, Figures, Findings,
    OnlineChecker, Validity, Verdict,
};
use seatrial_cycles::Level;
use seatrial_cycles::SearchBound;
use seatrial_history::History;
use session_program::{ReadSource, SessionProgram};
use visibility_clocks::VisibilityRule;

/// Decides an [`AxiomaticModel`] for transactions of reads (`[:r k v]`) and writes (`[:w k v]`) of registers; no value may be
/// written twice to a key.
///
/// Reads that are wrong at any level come first: of values that were never written, of failed and intermediate writes, of
/// own later writes, and reads that contradict own writes. Then it infers the pairs of transactions whose order the level
/// forces, no more than necessary, and searches for a cycle. Without one the topological order is an order of commits;
/// otherwise the shortest cycle is reported (Biswas and Enea, "On the Complexity of Checking Transactional Consistency",
/// 2019; Moeldrup and Pavlogiannis, "AWDIT: An Optimal Weak Database Isolation Tester", 2025).
///
/// Models from prefix consistency up ask for a version order as well, which is searched for where reads leave it open
/// (Biswas and Enea; Huang and others, "Efficient Black-Box Checking of Snapshot Isolation in Databases", 2023). That
/// search has a bound in steps; past it, the verdict is unknown.
///
/// An exported order of commits ([`Isolation::with_order`], or the database's timestamps) is the first guess of that
/// search. It is verified like any other guess, so a wrong one costs time and nothing else.
///
/// Its limit: if a value is written twice to a key, reads of it do not show which write they saw, and the verdict is
/// unknown.
#[derive(Clone, Debug, Default)]
pub struct Isolation {
    model: AxiomaticModel,
    /// Did the caller ask for the model, or is it the default, which is weaker for a history without times?
    is_asked: bool,
    bound: SearchBound,
    order: Option<ExportedOrder>,
}

/// Two writers of a key whose order is forced: `reader` read the key from `after`, though it had seen `before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ForcedOrder {
    /// The writer that must commit first.
    before: u32,
    /// The writer that must commit later; the initial state: a contradiction by itself.
    after: ReadSource,
    reader: u32,
    key: u32,
}

impl Isolation {
    /// The name by which `--checker` and the results know it.
    pub const NAME: &'static str = "isolation";

    /// The checker of this model.
    pub fn new(model: AxiomaticModel) -> Isolation {
        Isolation {
            model,
            is_asked: true,
            bound: SearchBound::default(),
            order: None,
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: SearchBound) -> Isolation {
        Isolation { bound, ..self }
    }

    /// The same, with an order in which transactions may have been committed: the index of a completion and a number,
    /// smaller ones first. It may be incomplete or wrong.
    #[must_use]
    pub fn with_order(self, order: Vec<(u64, i64)>) -> Isolation {
        let order = Some(ExportedOrder::new(order));
        Isolation { order, ..self }
    }

    /// Checks columns, or reports why there are none.
    pub fn check_gathered(&self, columns: Result<Columns, ColumnsError>) -> Verdict {
        match columns {
            Ok(columns) => self.check_columns(&columns),
            Err(refusal) => {
                let mut verdict = Verdict::valid(Isolation::NAME);
                verdict.model = Some(self.model.name().to_owned());
                verdict.unknown(refusal.to_string())
            }
        }
    }

    /// Checks columns.
    pub fn check_columns(&self, columns: &Columns) -> Verdict {
        self.decide(columns).0
    }

    /// Checks columns; also returns an order of commits of the transactions that took place, if there is one.
    pub fn decide(&self, columns: &Columns) -> (Verdict, Option<Vec<u32>>) {
        if let Some(order_model) = self.model.order_model() {
            let (verdict, proof) = self.search_verdict(columns, order_model);
            let order = proof.and_then(|proof| proof.commits());
            return (verdict, order);
        }
        let mut findings = Findings::default();
        columns.faults(|faulty| findings.add(faulty.fault.name(), || columns.finding(faulty)));
        let program = SessionProgram::new(columns);
        let decision = decide(&program, self.model);
        decision.tell(&program, self.model, &mut findings);
        let mut verdict = self.verdict(findings);
        let order = decision.order.filter(|_| verdict.anomalies.is_empty());
        verdict.proof = order.as_ref().map(|_| Verdict::COMMIT_ORDER);
        assert!(
            verdict.proof.is_some() == verdict.anomalies.is_empty(),
            "without an order there is a cycle"
        );
        verdict.details = Details::of(Figures::CommitOrder(CommitOrderFigures {
            registers: columns.figures(),
            edges: decision.edges,
            forced: decision.forced,
        }));
        (verdict, order)
    }

    /// The verdict with these findings, without details.
    fn verdict(&self, findings: Findings) -> Verdict {
        let mut verdict = Verdict::valid(Isolation::NAME);
        verdict.model = Some(self.model.name().to_owned());
        (verdict.anomalies, verdict.findings) = findings.into_parts();
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            verdict.not = vec![self.model.name()];
            verdict.also_not = self.model.stronger().map(AxiomaticModel::name).collect();
        }
        verdict
    }
}

/// The result for a weak model.
struct CommitDecision {
    /// An order of commits of all transactions that took place.
    order: Option<Vec<u32>>,
    /// The strongly connected components, if there is none.
    components: Vec<Vec<u32>>,
    /// Reads of an initial state whose reader had seen an overwrite of it: the first ones, and their number.
    unborn: Vec<ForcedOrder>,
    unborn_count: u64,
    /// Number of edges, and of those that the level forces.
    edges: usize,
    forced: usize,
}

fn decide(program: &SessionProgram<'_>, model: AxiomaticModel) -> CommitDecision {
    let mut decision = CommitDecision {
        order: None,
        components: Vec::new(),
        unborn: Vec::new(),
        unborn_count: 0,
        edges: 0,
        forced: 0,
    };
    let mut known = None;
    if model.needs_order() {
        let predecessors = Predecessors::new(program, &mut []);
        known = predecessors.order(program);
        decision.edges = predecessors.edge_count();
        if known.is_none() {
            // Without an order of sessions and reads, causality is not defined, and there is no order of commits.
            decision.components = predecessors.components();
            return decision;
        }
    }
    let mut forced = Vec::new();
    infer(program, model, known.as_deref(), &mut |it| {
        if let Some(after) = it.after.transaction() {
            forced.push((after, it.before));
            return;
        }
        decision.unborn_count += 1;
        if decision.unborn.len() < FINDINGS_MAX {
            decision.unborn.push(it);
        }
    });
    if known.is_some() && forced.is_empty() {
        decision.order = known;
        return decision;
    }
    drop(known);
    decision.forced = forced.len();
    let predecessors = Predecessors::new(program, &mut forced);
    drop(forced);
    decision.edges = predecessors.edge_count();
    decision.order = predecessors.order(program);
    if decision.order.is_none() {
        decision.components = predecessors.components();
    }
    decision
}

/// Infers the pairs that the model forces. `known` is an order of sessions and reads; models that need it infer nothing
/// without one.
fn infer(
    program: &SessionProgram<'_>,
    model: AxiomaticModel,
    known: Option<&[u32]>,
    take: &mut impl FnMut(ForcedOrder),
) {
    let sight = match model {
        AxiomaticModel::AxiomaticReadCommitted => Some(Sight::FromThen),
        AxiomaticModel::AxiomaticReadAtomic => Some(Sight::Always),
        _ => None,
    };
    if let Some(sight) = sight {
        DirectInference::new(program, sight).infer(take);
    }
    let seen = match model {
        AxiomaticModel::Causal => Some(VisibilityRule::Everything),
        AxiomaticModel::Pram => Some(VisibilityRule::BySession),
        AxiomaticModel::MonotonicWrites => Some(VisibilityRule::BeforeSources),
        _ => None,
    };
    if let (Some(seen), Some(order)) = (seen, known) {
        visibility_clocks::infer(program, seen, order, take);
    }
    match model {
        AxiomaticModel::AxiomaticReadAtomic | AxiomaticModel::ReadYourWrites => {
            own_writes::infer(program, take);
        }
        AxiomaticModel::MonotonicReads => {
            observed_writers::infer(program, ObservedSessions::Own, take);
        }
        AxiomaticModel::WritesFollowReads => {
            observed_writers::infer(program, ObservedSessions::Sources, take);
        }
        _ => {}
    }
}

impl CommitDecision {
    /// Adds the findings.
    fn tell(&self, program: &SessionProgram<'_>, model: AxiomaticModel, findings: &mut Findings) {
        for forced in &self.unborn {
            let finding = || axiom_explanation::unborn(program, model, *forced);
            findings.add(model.violation(), finding);
        }
        let more = self.unborn_count - self.unborn.len() as u64;
        if more > 0 {
            findings.count(model.violation(), more);
        }
        for cycle in commit_cycle::cycles(program, model, &self.components) {
            let anomaly = axiom_explanation::anomaly(model, &cycle);
            findings.add(anomaly, || {
                axiom_explanation::cycle(program, model, anomaly, &cycle)
            });
        }
        let more = self
            .components
            .len()
            .saturating_sub(commit_cycle::CYCLES_MAX) as u64;
        if more > 0 {
            // These are not looked into; at least one of their edges is forced by the model as a rule.
            findings.count(model.violation(), more);
        }
    }
}

impl Checker for Isolation {
    fn name(&self) -> &'static str {
        Isolation::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.check_gathered(Columns::of(history))
    }

    fn open_in_stretches(&self) -> Option<&'static [Anomaly]> {
        Some(registers::OPEN_IN_STRETCHES)
    }

    fn start(&self, aims: &Aims) -> Box<dyn OnlineChecker> {
        let start = |model: AxiomaticModel| -> Box<dyn OnlineChecker> {
            let checker = Isolation {
                model,
                ..self.clone()
            };
            let certify = aims.certify;
            registers::start(Isolation::NAME, aims, move |columns| match columns {
                Ok(columns) if certify => checker.certify_columns(&columns).into(),
                columns => checker.check_gathered(columns).into(),
            })
        };
        // A model that is no level of Adya's does not speak of real time.
        let Some(level) = Level::by_name(self.model.name()) else {
            return start(self.model);
        };
        WithoutTimes::start(level, self.is_asked, &aims.provenance, |level| {
            let model = AxiomaticModel::by_name(level.name());
            start(model.expect("each model with real time has one without"))
        })
    }
}

#[cfg(test)]
mod tests;
