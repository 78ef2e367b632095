//! The decision whether transactions have an order that explains all reads: such an order, or a small set of
//! transactions that has none.
//!
//! A read says which write it saw, not what it replaced: the version order of blind writes is open, and to decide
//! whether some version order explains all reads is NP-complete (Papadimitriou 1979; Biswas and Enea 2019). Histories
//! of real systems are rarely hard. So a version order is guessed first, from the times at which clients saw versions,
//! and verified in linear time. Only where the guess is wrong, a search follows.
//!
//! ```text
//!   Columns ─ Constraints ─ VersionBlocks ─ KnownOrder ─ guess ─ verify ─ OrderWitness
//!                                                          │ wrong
//!                                             replay, repair, clause search ─ OrderWitness
//!                                                          │ no order
//!                                                       UnsatCore ─ CoreExplanation
//! ```

mod clause_database;
mod clause_search;
mod constraints;
mod core_anomaly;
mod core_explanation;
mod given_transactions;
mod guess_and_search;
mod guess_repair;
mod incremental_order;
mod known_order;
mod order_model;
mod parallel_snapshot;
mod region_search;
mod relation;
mod replay_guess;
mod transitive_closure;
mod unsat_core;
mod version_blocks;
mod version_zones;

#[cfg(test)]
mod tests;

pub use given_transactions::{GivenDecision, GivenTransaction, decide_given};
pub use guess_and_search::{OrderWitness, SearchEffort};
pub use order_model::{Axiom, OrderModel, RespectedOrder};

use crate::registers::Columns;
use constraints::Constraints;
use core_explanation::CoreExplanation;
use guess_and_search::OrderDecision;
use seatrial_checker::Finding;

/// The decision about the transactions of columns.
pub enum ModelAnswer {
    /// This order of the columns' transactions explains all reads.
    Holds(OrderWitness),
    /// No order explains these transactions.
    Fails(UnexplainedTransactions),
    /// The search was stopped at its bound.
    Open,
}

seatrial_cycles::dense_id! {
    /// The rank of a transaction in an order that a database exported or a caller gave.
    pub OrderRank
}

/// Transactions that no order explains.
pub struct UnexplainedTransactions {
    /// Their numbers in the columns, sorted.
    pub transactions: Vec<u32>,
    /// Is there an order as soon as any one of them is left out?
    pub is_least: bool,
    /// The explanation.
    pub finding: Finding,
}

/// An order that explains all transactions of the columns that took place and keeps one of `models`, if a guess is right
/// or wrong about few events. Linear except for sorting and a short search. A guess for parallel snapshot isolation is
/// no witness: ask for snapshot isolation.
pub fn guess(
    columns: &Columns,
    ranks: &[Option<OrderRank>],
    models: &[OrderModel],
) -> Option<OrderWitness> {
    let (constraints, names) = Constraints::of(columns, ranks);
    let mut guesses = models.iter().map(|&model| {
        assert!(
            model.axiom != Axiom::Parallel,
            "a guess for parallel snapshot isolation is no witness"
        );
        guess_and_search::guessed(&constraints, model)
    });
    Some(guesses.find_map(|guess| guess)?.renamed(&names))
}

/// An order that explains all transactions of the columns that took place and keeps a model, if it is found within so
/// many steps.
pub fn witness(columns: &Columns, model: OrderModel, steps_max: u64) -> Option<OrderWitness> {
    let (constraints, names) = Constraints::of(columns, &[]);
    match guess_and_search::decide(&constraints, model, steps_max, &mut SearchEffort::default()) {
        OrderDecision::Holds(witness) => Some(witness.renamed(&names)),
        OrderDecision::Fails(_) | OrderDecision::Open => None,
    }
}

/// Decides whether the transactions that took place keep a model; a search is stopped after `steps_max` steps. Single reads
/// that are wrong at any level are ignored here.
///
/// `ranks` are places of the columns' transactions in an exported order, where known; empty without one. They are the
/// first guess and nothing more. `property` completes "these transactions cannot be …".
pub fn decide(
    columns: &Columns,
    ranks: &[Option<OrderRank>],
    model: OrderModel,
    property: &str,
    steps_max: u64,
) -> (ModelAnswer, SearchEffort) {
    let (constraints, names) = Constraints::of(columns, ranks);
    let mut effort = SearchEffort::default();
    let answer = match guess_and_search::decide(&constraints, model, steps_max, &mut effort) {
        OrderDecision::Open => ModelAnswer::Open,
        OrderDecision::Holds(witness) => ModelAnswer::Holds(witness.renamed(&names)),
        OrderDecision::Fails(found) => {
            let core = unsat_core::shrink(&constraints, model, found);
            let part = constraints.only(&core.transactions);
            let transactions = core
                .transactions
                .iter()
                .map(|&number| names[number as usize]);
            let transactions: Vec<u32> = transactions.collect();
            assert!(
                transactions.is_sorted(),
                "names grow with numbers, so a sorted core stays sorted"
            );
            let explanation = CoreExplanation::new(&part, &transactions, columns, model);
            let anomaly = core_anomaly::anomaly(&part, model);
            let finding = explanation.finding(property, core.is_least, anomaly);
            ModelAnswer::Fails(UnexplainedTransactions {
                finding,
                is_least: core.is_least,
                transactions,
            })
        }
    };
    (answer, effort)
}
