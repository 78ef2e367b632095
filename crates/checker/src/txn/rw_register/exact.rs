//! The exact decision of what inference leaves open.

use super::RwRegister;
use crate::Proof;
use crate::Verdict;
use crate::txn::decision::{self, Axiom, Follows, Impossible, Promise, Witness};
use crate::txn::isolation::{Isolation, Model, Settled, has_times, places, stamped};
use crate::txn::level::Level;
use crate::txn::registers::Columns;

/// Steps of a decision that only tells what holds besides.
const HOLDS_STEPS_MAX: u64 = 1_000_000;
/// Transactions of the longest history that is decided for that, too.
const HOLDS_TRANSACTIONS_MAX: usize = 1 << 17;

/// What came of the exact decision of a level.
pub(super) enum Exact {
    /// The level holds: the name of the proof, and the proof.
    Proven(&'static str, Proof),
    /// It does not: no order explains these transactions.
    Refuted(Impossible),
    /// These questions stayed open.
    Open(Vec<String>),
}

/// A model whose decision bears on a level.
struct Bearing {
    model: Model,
    /// Is the level refuted when the model is?
    is_exact: bool,
}

/// The models that settle a level, weak ones first. Each implies the level.
///
/// Registers have no predicates, so repeatable read (PL-2.99) is serializability. Consistent view (PL-2+) is parallel snapshot
/// isolation: no cycle with fewer than two anti-dependencies (Cerone and Gotsman, "Analysing Snapshot Isolation", 2016).
fn bearings(level: Level) -> Vec<Bearing> {
    use Level as L;
    let exact = |model| {
        vec![Bearing {
            model,
            is_exact: true,
        }]
    };
    let stronger = |models: &[Model]| {
        let models = models.iter().map(|&model| Bearing {
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
            stronger(&[Model::ParallelSnapshotIsolation])
        }
        L::MonotonicSnapshotRead | L::ForwardConsistentView => {
            stronger(&[Model::SnapshotIsolation])
        }
        L::MonotonicAtomicView | L::ReadAtomic => {
            stronger(&[Model::AxiomaticReadAtomic, Model::Prefix])
        }
        L::CausalCerone => stronger(&[Model::Causal, Model::Prefix]),
        L::UpdateSerializable => stronger(&[Model::Serializable]),
        L::ConsistentView | L::ParallelSnapshotIsolation => exact(Model::ParallelSnapshotIsolation),
        L::Prefix => exact(Model::Prefix),
        L::SnapshotIsolation => exact(Model::SnapshotIsolation),
        L::StrongSessionSnapshotIsolation => exact(Model::StrongSessionSnapshotIsolation),
        L::StrongSnapshotIsolation => exact(Model::StrongSnapshotIsolation),
        L::RepeatableRead | L::Serializable => exact(Model::Serializable),
        L::StrongSessionSerializable => exact(Model::StrongSessionSerializable),
        L::StrictSerializable => exact(Model::StrictSerializable),
    }
}

/// What an order that proves a level must follow.
fn follows(level: Level) -> Follows {
    if level.implies(Level::StrongReadUncommitted) {
        Follows::Time
    } else if level.implies(Level::StrongSessionReadUncommitted) {
        Follows::Sessions
    } else {
        Follows::Nothing
    }
}

/// Is there a read with something wrong before any level?
pub(super) fn is_faulty(columns: &Columns) -> bool {
    let mut is_faulty = false;
    columns.faults(|_| is_faulty = true);
    is_faulty
}

impl RwRegister {
    /// An order that proves the level, if one can be guessed: a serial one, which leaves no anomaly of any kind, or one of
    /// snapshots for snapshot isolation.
    pub(super) fn guess(&self, columns: &Columns) -> Option<Witness> {
        let follows = follows(self.level);
        if follows == Follows::Time && !has_times(columns) || is_faulty(columns) {
            return None;
        }
        let mut axioms = vec![Axiom::Serializable];
        let has_snapshots = self.level.implies(Level::SnapshotIsolation);
        if has_snapshots && !self.level.implies(Level::Serializable) {
            axioms.push(Axiom::Snapshot);
        }
        let promises = axioms.into_iter().map(|axiom| Promise { axiom, follows });
        let promises: Vec<Promise> = promises.collect();
        let ranks = match &self.order {
            Some(_) => self.numbers(columns),
            None => stamped(columns),
        };
        decision::guess(columns, &ranks, &promises)
    }

    /// Decides the level, as far as it can be decided.
    pub(super) fn settle(&self, columns: &Columns) -> Exact {
        let bearings = bearings(self.level);
        if bearings.is_empty() {
            return match self.commits(columns) {
                Some(proof) => Exact::Proven(Verdict::COMMIT_ORDER, proof),
                None => Exact::Open(vec![
                    "whether an order of commits explains the reads".into(),
                ]),
            };
        }
        let is_faulty = is_faulty(columns);
        let mut open = Vec::new();
        for Bearing { model, is_exact } in bearings {
            let settled = match (model.promise(), is_exact) {
                (Some(promise), true) => self.isolation(model).settle(columns, promise).0,
                (Some(promise), false) => {
                    let steps_max = self.bound.search_steps_max;
                    match decision::witness(columns, promise, steps_max) {
                        Some(witness) => Settled::Holds(witness),
                        None => Settled::Open(self.beyond(model)),
                    }
                }
                (None, _) if is_faulty => Settled::Open(self.beyond(model)),
                (None, _) => {
                    let (_, order) = self.isolation(model).decide(columns);
                    if let Some(order) = order {
                        let proof = Proof::Commits(places(columns, &order));
                        return Exact::Proven(Verdict::COMMIT_ORDER, proof);
                    }
                    Settled::Open(self.beyond(model))
                }
            };
            match settled {
                Settled::Holds(_) if is_faulty => {
                    let reads =
                        "whether reads that contradict their own transaction have an explanation";
                    open.push(reads.to_owned());
                }
                Settled::Holds(witness) => {
                    return Exact::Proven(witness.name(), witness.proof(columns));
                }
                Settled::Fails(impossible) => return Exact::Refuted(impossible),
                Settled::Open(question) => open.push(question),
            }
        }
        Exact::Open(open)
    }

    /// The question that stays open when a model that implies the level is not known to hold.
    fn beyond(&self, model: Model) -> String {
        let (level, model) = (self.level.name(), model.name());
        format!("whether {level} holds where {model}, which implies it, was not established")
    }

    fn isolation(&self, model: Model) -> Isolation {
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

    /// Is a level that no anomaly contradicts established? Looked into with little effort, and only for short histories.
    pub(super) fn is_established(&self, level: Level, columns: &Columns) -> bool {
        if columns.len() > HOLDS_TRANSACTIONS_MAX {
            return false;
        }
        let other = RwRegister::new(level).with_bound(self.bound);
        let is_untimed = follows(level) == Follows::Time && !has_times(columns);
        let bearings = bearings(level);
        if bearings.is_empty() {
            return !is_untimed && other.commits(columns).is_some();
        }
        let promises = bearings
            .iter()
            .filter_map(|bearing| bearing.model.promise());
        let mut promises = promises.filter(|_| !is_untimed && !is_faulty(columns));
        promises.any(|promise| decision::witness(columns, promise, HOLDS_STEPS_MAX).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_settle_a_level_imply_it() {
        for level in Level::all() {
            for Bearing { model, is_exact } in bearings(level) {
                let Some(known) = Level::by_name(model.name()) else {
                    // Axiomatic levels have names of their own.
                    assert!(!is_exact && model.promise().is_none(), "{model:?}");
                    continue;
                };
                let promise = model.promise().unwrap();
                assert!(follows(level) <= promise.follows, "{level:?} {model:?}");
                assert!(is_exact || known.implies(level), "{level:?} {model:?}");
                assert!(known.implies(level), "{level:?} {model:?}");
            }
        }
    }
}
