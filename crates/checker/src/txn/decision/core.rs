//! The least transactions that cannot be explained.

use super::facts::Facts;
use super::judge::{Decision, Effort, decide};
use super::promise::Promise;
use crate::txn::transactions::NONE;
use std::collections::BTreeSet;

/// Steps of one trial, and trials of all sizes together.
const TRIAL_STEPS_MAX: u64 = 2_000_000;
const STEPS_MAX: u64 = 100_000_000;

/// Transactions that cannot be explained together.
#[derive(Debug)]
pub(super) struct Core {
    /// Sorted.
    pub(super) transactions: Vec<u32>,
    /// Can all be explained as soon as any one of them is left out?
    pub(super) is_least: bool,
}

/// Takes transactions away as long as the rest cannot be explained either: first many at a time, in the end each by itself.
/// What is left may still be found to be too large when a trial was stopped at its bound.
pub(super) fn shrink(facts: &Facts, promise: Promise, found: Vec<u32>) -> Core {
    let mut trials = Trials {
        facts,
        promise,
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
        // Leaving one out can make others needless.
        if length == 1 && !is_smaller {
            break;
        }
        length = length.div_ceil(2).min(transactions.len());
    }
    Core {
        transactions,
        is_least: !trials.is_stopped,
    }
}

/// Decides parts of a history.
struct Trials<'a> {
    facts: &'a Facts,
    promise: Promise,
    steps: u64,
    is_stopped: bool,
}

impl Trials<'_> {
    /// Is it certain that these cannot be explained?
    fn fails(&mut self, transactions: &[u32]) -> bool {
        self.steps += transactions.len() as u64;
        if self.steps > STEPS_MAX {
            self.is_stopped = true;
            return false;
        }
        let facts = self.facts.only(transactions);
        let mut effort = Effort::default();
        let decision = decide(&facts, self.promise, TRIAL_STEPS_MAX, &mut effort);
        self.steps += effort.steps;
        match decision {
            Decision::Fails(_) => true,
            Decision::Holds(_) => false,
            Decision::Open => {
                self.is_stopped = true;
                false
            }
        }
    }

    /// The transactions that were found, with the writers of what they read as far as it takes.
    fn grow(&mut self, found: Vec<u32>) -> Vec<u32> {
        let mut all: BTreeSet<u32> = found.into_iter().collect();
        let mut fresh: Vec<u32> = all.iter().copied().collect();
        let mut rounds = 0_u32;
        loop {
            // A long chain takes ever more rounds at a time.
            if rounds.is_power_of_two() || rounds == 0 || fresh.is_empty() {
                let transactions: Vec<u32> = all.iter().copied().collect();
                if fresh.is_empty() || self.fails(&transactions) {
                    return transactions;
                }
            }
            rounds += 1;
            let mut further = Vec::new();
            for number in fresh {
                for &version in self.facts.reads.of(number) {
                    let writer = self.facts.writers[version as usize];
                    if writer != NONE && all.insert(writer) {
                        further.push(writer);
                    }
                }
            }
            fresh = further;
        }
    }
}
