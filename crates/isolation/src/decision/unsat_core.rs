//! The smallest set of transactions without an order.

use super::constraints::Constraints;
use super::guess_and_search::{OrderDecision, SearchEffort, decide};
use super::order_model::OrderModel;
use seatrial_cycles::Txn;
use std::collections::BTreeSet;

/// Steps of one trial, and of all trials together.
const TRIAL_STEPS_MAX: u64 = 2_000_000;
const STEPS_MAX: u64 = 100_000_000;

/// Transactions that have no order together: an unsatisfiable core.
#[derive(Debug)]
pub(super) struct UnsatCore {
    /// Sorted.
    pub(super) transactions: Vec<u32>,
    /// Have all others an order as soon as any one is left out?
    pub(super) is_least: bool,
}

/// Removes transactions while the rest has no order either: first many at a time, in the end one at a time (deletion-based
/// minimization). The result may be larger than necessary if a trial reached its bound.
pub(super) fn shrink(constraints: &Constraints, model: OrderModel, found: Vec<u32>) -> UnsatCore {
    let mut trials = CoreTrials {
        constraints,
        model,
        steps: 0,
        is_stopped: false,
    };
    let mut transactions = trials.grow(found);
    let mut length = transactions.len().div_ceil(2);
    while length > 0 {
        let mut end = transactions.len();
        let mut is_smaller = false;
        while end > 0 && transactions.len() > 1 {
            let start = end.saturating_sub(length);
            let mut rest = transactions.clone();
            rest.drain(start..end);
            if !rest.is_empty() && trials.fails(&rest) {
                transactions = rest;
                is_smaller = true;
            }
            end = start.min(transactions.len());
        }
        // Removing one can make others unnecessary, so passes repeat until one removes nothing.
        if length == 1 && !is_smaller {
            break;
        }
        length = length.div_ceil(2).min(transactions.len());
    }
    assert!(!transactions.is_empty(), "no transactions have an order");
    assert!(transactions.is_sorted(), "a core is sorted");
    UnsatCore {
        transactions,
        is_least: !trials.is_stopped,
    }
}

/// Decides parts of a history.
struct CoreTrials<'a> {
    constraints: &'a Constraints,
    model: OrderModel,
    steps: u64,
    is_stopped: bool,
}

impl CoreTrials<'_> {
    /// Is it certain that these have no order?
    fn fails(&mut self, transactions: &[u32]) -> bool {
        self.steps += transactions.len() as u64;
        if self.steps > STEPS_MAX {
            self.is_stopped = true;
            return false;
        }
        let constraints = self.constraints.only(transactions);
        let mut effort = SearchEffort::default();
        let decision = decide(&constraints, self.model, TRIAL_STEPS_MAX, &mut effort);
        self.steps += effort.steps;
        match decision {
            OrderDecision::Fails(_) => true,
            OrderDecision::Holds(_) => false,
            OrderDecision::Open => {
                self.is_stopped = true;
                false
            }
        }
    }

    /// The transactions that were found, with the writers of what they read if these are needed.
    fn grow(&mut self, found: Vec<u32>) -> Vec<u32> {
        let mut all: BTreeSet<u32> = found.into_iter().collect();
        let mut fresh: Vec<u32> = all.iter().copied().collect();
        let mut rounds = 0_u32;
        loop {
            // The rounds between two trials double, so that a long chain needs few trials.
            if rounds.is_power_of_two() || rounds == 0 || fresh.is_empty() {
                let transactions: Vec<u32> = all.iter().copied().collect();
                if fresh.is_empty() || self.fails(&transactions) {
                    return transactions;
                }
            }
            rounds += 1;
            let mut further = Vec::new();
            for number in fresh {
                for &version in self.constraints.reads.row(number) {
                    if let Some(writer) = self.constraints.writer(version).map(Txn::get)
                        && all.insert(writer)
                    {
                        further.push(writer);
                    }
                }
            }
            fresh = further;
        }
    }
}
