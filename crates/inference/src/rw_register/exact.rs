//! Exact decision of a level that inference leaves undecided.

use super::RwRegister;
use seatrial_checker::Verdict;
use seatrial_cycles::Level;
use seatrial_isolation::axiomatic::{
    AxiomaticModel, Isolation, ModelDecision, certificate_positions, has_times, timestamp_ranks,
};
use seatrial_isolation::decision::{
    self, Axiom, OrderModel, OrderWitness, RespectedOrder, UnexplainedTransactions,
};
use seatrial_isolation::registers::Columns;
use seatrial_verify::Proof;

/// Steps of a decision for the details only: which other levels hold.
const HOLDS_STEPS_MAX: u64 = 1_000_000;
/// Transactions of the longest history that is decided for the details.
const HOLDS_TRANSACTIONS_MAX: usize = 1 << 17;

/// The result of the exact decision of a level.
pub(super) enum ExactDecision {
    /// The level holds: the name of the proof, and the proof.
    Proven(&'static str, Proof),
    /// The level does not hold: no order explains these transactions.
    Refuted(UnexplainedTransactions),
    /// Undecided, with these open questions.
    Open(Vec<String>),
}

/// A model whose decision decides a level, at least in one direction.
struct DecidingModel {
    model: AxiomaticModel,
    /// Is the level refuted when the model is?
    is_exact: bool,
}

/// The models that decide a level, weak ones first. Each implies the level.
///
/// Registers have no predicates, so repeatable read (PL-2.99) is serializability. Consistent view (PL-2+) is parallel snapshot
/// isolation: no cycle with fewer than two anti-dependencies (Cerone and Gotsman, "Analysing Snapshot Isolation", 2016).
fn deciding_models(level: Level) -> Vec<DecidingModel> {
    use Level as L;
    let exact = |model| {
        vec![DecidingModel {
            model,
            is_exact: true,
        }]
    };
    let stronger = |models: &[AxiomaticModel]| {
        let models = models.iter().map(|&model| DecidingModel {
            model,
            is_exact: false,
        });
        models.collect()
    };
    match level {
        L::ReadUncommitted
        | L::StrongSessionReadUncommitted
        | L::StrongReadUncommitted
        | L::ReadCommitted
        | L::StrongSessionReadCommitted
        | L::StrongReadCommitted => Vec::new(),
        L::CursorStability | L::MonotonicView | L::UpdateAtomic => {
            stronger(&[AxiomaticModel::ParallelSnapshotIsolation])
        }
        L::MonotonicSnapshotRead | L::ForwardConsistentView => {
            stronger(&[AxiomaticModel::SnapshotIsolation])
        }
        L::MonotonicAtomicView | L::ReadAtomic => {
            stronger(&[AxiomaticModel::AxiomaticReadAtomic, AxiomaticModel::Prefix])
        }
        L::CausalCerone => stronger(&[AxiomaticModel::Causal, AxiomaticModel::Prefix]),
        L::UpdateSerializable => stronger(&[AxiomaticModel::Serializable]),
        L::ConsistentView | L::ParallelSnapshotIsolation => {
            exact(AxiomaticModel::ParallelSnapshotIsolation)
        }
        L::Prefix => exact(AxiomaticModel::Prefix),
        L::SnapshotIsolation => exact(AxiomaticModel::SnapshotIsolation),
        L::StrongSessionSnapshotIsolation => exact(AxiomaticModel::StrongSessionSnapshotIsolation),
        L::StrongSnapshotIsolation => exact(AxiomaticModel::StrongSnapshotIsolation),
        L::RepeatableRead | L::Serializable => exact(AxiomaticModel::Serializable),
        L::StrongSessionSerializable => exact(AxiomaticModel::StrongSessionSerializable),
        L::StrictSerializable => exact(AxiomaticModel::StrictSerializable),
    }
}

/// The order of sessions or time that an order must respect to prove a level.
fn follows(level: Level) -> RespectedOrder {
    if level.implies(Level::StrongReadUncommitted) {
        RespectedOrder::Time
    } else if level.implies(Level::StrongSessionReadUncommitted) {
        RespectedOrder::Sessions
    } else {
        RespectedOrder::Nothing
    }
}

/// Is there a read that is faulty at any level?
pub(super) fn is_faulty(columns: &Columns) -> bool {
    let mut is_faulty = false;
    columns.faults(|_| is_faulty = true);
    is_faulty
}

impl RwRegister {
    /// An order that proves the level, if one can be guessed: a serial order, which excludes all anomalies, or an order of
    /// snapshots for snapshot isolation.
    pub(super) fn guess(&self, columns: &Columns) -> Option<OrderWitness> {
        let follows = follows(self.level);
        if follows == RespectedOrder::Time && !has_times(columns) || is_faulty(columns) {
            return None;
        }
        let mut axioms = vec![Axiom::Serializable];
        let has_snapshots = self.level.implies(Level::SnapshotIsolation);
        if has_snapshots && !self.level.implies(Level::Serializable) {
            axioms.push(Axiom::Snapshot);
        }
        let models = axioms
            .into_iter()
            .map(|axiom| OrderModel { axiom, follows });
        let models: Vec<OrderModel> = models.collect();
        let ranks = match &self.order {
            Some(_) => self.ranks(columns),
            None => timestamp_ranks(columns),
        };
        decision::guess(columns, &ranks, &models)
    }

    /// Decides the level exactly, within the bound.
    pub(super) fn settle(&self, columns: &Columns) -> ExactDecision {
        let deciding_models = deciding_models(self.level);
        if deciding_models.is_empty() {
            return match self.commits(columns) {
                Some(proof) => ExactDecision::Proven(Verdict::COMMIT_ORDER, proof),
                None => ExactDecision::Open(vec![
                    "whether an order of commits explains the reads".into(),
                ]),
            };
        }
        let is_faulty = is_faulty(columns);
        let mut open = Vec::new();
        for DecidingModel { model, is_exact } in deciding_models {
            let settled = match (model.order_model(), is_exact) {
                (Some(order_model), true) => self.isolation(model).settle(columns, order_model).0,
                (Some(order_model), false) => {
                    let steps_max = self.bound.search_steps_max;
                    match decision::witness(columns, order_model, steps_max) {
                        Some(witness) => ModelDecision::Holds(witness),
                        None => ModelDecision::Open(self.beyond(model)),
                    }
                }
                (None, _) if is_faulty => ModelDecision::Open(self.beyond(model)),
                (None, _) => {
                    let (_, order) = self.isolation(model).decide(columns);
                    if let Some(order) = order {
                        let proof = Proof::Commits(certificate_positions(columns, &order));
                        return ExactDecision::Proven(Verdict::COMMIT_ORDER, proof);
                    }
                    ModelDecision::Open(self.beyond(model))
                }
            };
            match settled {
                ModelDecision::Holds(_) if is_faulty => {
                    let reads =
                        "whether reads that contradict their own transaction have an explanation";
                    open.push(reads.to_owned());
                }
                ModelDecision::Holds(witness) => {
                    return ExactDecision::Proven(witness.name(), witness.proof(columns));
                }
                ModelDecision::Fails(impossible) => return ExactDecision::Refuted(impossible),
                ModelDecision::Open(question) => open.push(question),
            }
        }
        ExactDecision::Open(open)
    }

    /// The open question if a model that implies the level is not known to hold.
    fn beyond(&self, model: AxiomaticModel) -> String {
        let (level, model) = (self.level.name(), model.name());
        format!("whether {level} holds where {model}, which implies it, was not established")
    }

    fn isolation(&self, model: AxiomaticModel) -> Isolation {
        let isolation = Isolation::new(model).with_bound(self.bound);
        match &self.order {
            Some(order) => isolation.with_order(
                order
                    .iter()
                    .map(|(&index, &number)| (index, number))
                    .collect(),
            ),
            None => isolation,
        }
    }

    /// Does a level hold that no anomaly contradicts? Decided with a small bound, and for short histories only.
    pub(super) fn is_established(&self, level: Level, columns: &Columns) -> bool {
        if columns.len() > HOLDS_TRANSACTIONS_MAX {
            return false;
        }
        let other = RwRegister::new(level).with_bound(self.bound);
        let is_untimed = follows(level) == RespectedOrder::Time && !has_times(columns);
        let deciding_models = deciding_models(level);
        if deciding_models.is_empty() {
            return !is_untimed && other.commits(columns).is_some();
        }
        let models = deciding_models
            .iter()
            .filter_map(|deciding| deciding.model.order_model());
        let mut models = models.filter(|_| !is_untimed && !is_faulty(columns));
        models.any(|model| decision::witness(columns, model, HOLDS_STEPS_MAX).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_settle_a_level_imply_it() {
        for level in Level::all() {
            for DecidingModel { model, is_exact } in deciding_models(level) {
                let Some(known) = Level::by_name(model.name()) else {
                    // Axiomatic levels have names of their own.
                    assert!(!is_exact && model.order_model().is_none(), "{model:?}");
                    continue;
                };
                let order_model = model.order_model().unwrap();
                assert!(follows(level) <= order_model.follows, "{level:?} {model:?}");
                assert!(is_exact || known.implies(level), "{level:?} {model:?}");
                assert!(known.implies(level), "{level:?} {model:?}");
            }
        }
    }
}
