//! Isolation levels decided from their axioms, for transactions on registers whose values are written once.
//!
//! An axiomatic level asks for an order of commits, one for all: every session's transactions in their order, every
//! transaction after those that it reads from, and, as the level says, whoever wrote a key and was *seen* by a reader no
//! later than the one that it read the key from. So the verdict is no inference from anomalies that happen to show: there
//! is such an order, or there is none.
//!
//! ```
//! use seatrial_checker::Validity;
//! use seatrial_checker::txn::isolation::{Isolation, Model};
//! use seatrial_checker::txn::registers::Builder;
//! use seatrial_history::OpType;
//!
//! // One session writes x and y twice; the other sees the second y, and after that the first x.
//! let (x, y) = (0, 1);
//! let mut builder = Builder::default();
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
//! let verdict = Isolation::new(Model::AxiomaticReadCommitted).judge_columns(&columns);
//! assert_eq!(verdict.valid, Validity::Invalid);
//! assert_eq!(verdict.anomalies["non-monotonic-read"], 1);
//! # Ok::<(), seatrial_checker::txn::registers::Refusal>(())
//! ```

mod clocks;
mod decided;
mod direct;
mod exported;
mod model;
mod observed;
mod order;
mod own;
mod program;
mod witness;
mod words;

pub(super) use decided::{Settled, has_times, places};
pub(super) use exported::stamped;
pub use model::Model;

use super::Bound;
use super::findings::{FINDINGS_MAX, Findings};
use super::registers::{Columns, Refusal};
use crate::{Certificate, Checker, Validity, Verdict};
use clocks::Seen;
use direct::{Direct, Sight};
use exported::Exported;
use observed::Observer;
use order::Predecessors;
use program::{INITIAL, Program};
use seatrial_history::{Chunks, FoldError, Folder, History, OpType};
use serde_json::json;

/// Decides a [`Model`] for transactions of reads (`[:r k v]`) and writes (`[:w k v]`) of registers; no value may be
/// written twice to a key.
///
/// What is wrong before any level comes first: reads of values that nobody wrote, of failed and intermediate writes, of
/// own writes that come only later, and reads that contradict own writes. Then the pairs of transactions whose order
/// the level forces are found, as few as say it all, and one search for a cycle decides: without one its order of all
/// transactions is an order of commits, with one the shortest cycle is told (Biswas and Enea, "On the Complexity of
/// Checking Transactional Consistency", 2019; Moeldrup and Pavlogiannis, "AWDIT: An Optimal Weak Database Isolation
/// Tester", 2025).
///
/// Models from prefix consistency up ask for an order of versions as well, which is searched for where it cannot be told
/// (Biswas and Enea; Huang and others, "Efficient Black-Box Checking of Snapshot Isolation in Databases", 2023). Such a
/// search has a bound in steps; past it, the verdict is unknown.
///
/// An order of commits that somebody exported ([`Isolation::with_order`], or the timestamps that a database told) is the
/// first guess of that search. It is verified like any other guess, so a wrong one costs time and nothing else.
///
/// Its downside: where a key's value is written twice, nobody can say who was read, and the verdict is unknown.
#[derive(Clone, Debug)]
pub struct Isolation {
    model: Model,
    bound: Bound,
    order: Option<Exported>,
}

/// Two writers of a key whose order is forced: `reader` read the key from `after`, though it had seen `before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Forced {
    /// Who comes first.
    before: u32,
    /// Who comes later; [`INITIAL`]: a contradiction by itself.
    after: u32,
    reader: u32,
    key: u32,
}

impl Isolation {
    /// The name by which `--checker` and the results know it.
    pub const NAME: &'static str = "isolation";

    /// The checker of this model.
    pub fn new(model: Model) -> Isolation {
        Isolation {
            model,
            bound: Bound::default(),
            order: None,
        }
    }

    /// The same with another bound.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Isolation {
        Isolation { bound, ..self }
    }

    /// The same, with an order in which transactions may have been committed: the index of a completion and a number,
    /// smaller ones first. It may lack transactions, and nothing is believed.
    #[must_use]
    pub fn with_order(self, order: Vec<(u64, i64)>) -> Isolation {
        let order = Some(Exported::new(order));
        Isolation { order, ..self }
    }

    /// Judges the folder's history. The error is that of a chunk that cannot be read.
    pub fn judge<C: Chunks + 'static>(
        &self,
        folder: &Folder<C>,
    ) -> Result<Verdict, FoldError<C::Error>> {
        Ok(self.judge_gathered(Columns::gather(folder)?))
    }

    /// Judges columns, or says why there are none.
    pub fn judge_gathered(&self, columns: Result<Columns, Refusal>) -> Verdict {
        match columns {
            Ok(columns) => self.judge_columns(&columns),
            Err(refusal) => {
                let mut verdict = Verdict::valid(Isolation::NAME);
                verdict.model = Some(self.model.name().to_owned());
                verdict.unknown(refusal.to_string())
            }
        }
    }

    /// Judges columns.
    pub fn judge_columns(&self, columns: &Columns) -> Verdict {
        self.decide(columns).0
    }

    /// Judges columns; with an order of commits of the transactions that took place, when there is one.
    pub fn decide(&self, columns: &Columns) -> (Verdict, Option<Vec<u32>>) {
        if let Some(promise) = self.model.promise() {
            let (verdict, proof) = self.decided(columns, promise);
            let order = proof.and_then(|proof| proof.commits());
            return (verdict, order);
        }
        let mut findings = Findings::default();
        columns.faults(|faulty| findings.add(faulty.fault.name(), || columns.finding(faulty)));
        let program = Program::new(columns);
        let decision = decide(&program, self.model);
        decision.tell(&program, self.model, &mut findings);
        let mut verdict = self.verdict(findings);
        let order = decision.order.filter(|_| verdict.anomalies.is_empty());
        verdict.proof = order.as_ref().map(|_| Verdict::COMMIT_ORDER);
        assert!(
            verdict.proof.is_some() == verdict.anomalies.is_empty(),
            "without an order there is a cycle"
        );
        verdict.details = json!({
            "transactions": columns.len(),
            "ok": columns.count(OpType::Ok),
            "fail": columns.count(OpType::Fail),
            "info": columns.count(OpType::Info),
            "sessions": columns.session_count(),
            "keys": columns.key_count(),
            "events": columns.event_count(),
            "edges": decision.edges,
            "forced": decision.forced,
            "findings_max": FINDINGS_MAX,
        });
        (verdict, order)
    }

    /// The verdict that these findings make, without details.
    fn verdict(&self, findings: Findings) -> Verdict {
        let mut verdict = Verdict::valid(Isolation::NAME);
        verdict.model = Some(self.model.name().to_owned());
        (verdict.anomalies, verdict.findings) = findings.into_parts();
        if !verdict.anomalies.is_empty() {
            verdict.valid = Validity::Invalid;
            verdict.not = vec![self.model.name()];
            verdict.also_not = self.model.stronger().map(Model::name).collect();
        }
        verdict
    }
}

/// What came out.
struct Decision {
    /// All transactions that took place, as they may have been committed.
    order: Option<Vec<u32>>,
    /// Transactions that come before one another.
    components: Vec<Vec<u32>>,
    /// Reads of an initial state whose reader had seen somebody overwrite it, the first and all.
    unborn: Vec<Forced>,
    unborn_count: u64,
    /// Pairs of predecessors, and how many of them the level forces.
    edges: usize,
    forced: usize,
}

fn decide(program: &Program<'_>, model: Model) -> Decision {
    let mut decision = Decision {
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
            // What happened before what is not defined, and there is no order anyhow.
            decision.components = predecessors.components();
            return decision;
        }
    }
    let mut forced = Vec::new();
    infer(program, model, known.as_deref(), &mut |it| {
        if it.after != INITIAL {
            forced.push((it.after, it.before));
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

/// Tells what the model forces. `known` is an order of sessions and reads; without one, models that need it tell nothing.
fn infer(
    program: &Program<'_>,
    model: Model,
    known: Option<&[u32]>,
    take: &mut impl FnMut(Forced),
) {
    let sight = match model {
        Model::AxiomaticReadCommitted => Some(Sight::FromThen),
        Model::AxiomaticReadAtomic => Some(Sight::Always),
        _ => None,
    };
    if let Some(sight) = sight {
        Direct::new(program, sight).infer(take);
    }
    let seen = match model {
        Model::Causal => Some(Seen::Everything),
        Model::Pram => Some(Seen::BySession),
        Model::MonotonicWrites => Some(Seen::BeforeSources),
        _ => None,
    };
    if let (Some(seen), Some(order)) = (seen, known) {
        clocks::infer(program, seen, order, take);
    }
    match model {
        Model::AxiomaticReadAtomic | Model::ReadYourWrites => own::infer(program, take),
        Model::MonotonicReads => observed::infer(program, Observer::Own, take),
        Model::WritesFollowReads => observed::infer(program, Observer::Sources, take),
        _ => {}
    }
}

impl Decision {
    /// Tells what was found.
    fn tell(&self, program: &Program<'_>, model: Model, findings: &mut Findings) {
        for forced in &self.unborn {
            let told = || words::unborn(program, model, *forced);
            findings.add(model.violation(), told);
        }
        let more = self.unborn_count - self.unborn.len() as u64;
        if more > 0 {
            findings.count(model.violation(), more);
        }
        for cycle in witness::cycles(program, model, &self.components) {
            let anomaly = words::anomaly(model, &cycle);
            findings.add(anomaly, || words::cycle(program, model, anomaly, &cycle));
        }
        let more = self.components.len().saturating_sub(witness::CYCLES_MAX) as u64;
        if more > 0 {
            // Not looked into; at least one of their edges is the model's as a rule.
            findings.count(model.violation(), more);
        }
    }
}

impl Checker for Isolation {
    fn name(&self) -> &'static str {
        Isolation::NAME
    }

    fn check(&self, history: &History) -> Verdict {
        self.judge_gathered(Columns::of(history))
    }

    fn certify(&self, history: &History) -> Option<(Verdict, Option<Certificate>)> {
        Some(self.certify_gathered(Columns::of(history)))
    }
}

#[cfg(test)]
mod tests;
