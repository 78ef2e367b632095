//! Deciding whether a history of registers keeps a promise: with an order that explains it, or with the transactions that no
//! order explains.
//!
//! A read tells whose write it saw, not what was there before: the order of versions that were written blindly is open, and to
//! decide whether some order explains all reads is hard in general (Papadimitriou 1979; Biswas and Enea 2019). Histories of
//! real systems are rarely hard. So an order of versions is guessed first, from when clients saw what, and verified in linear
//! time; the search begins where the guess is wrong, and goes no further than it must.

mod blocks;
mod clauses;
mod closure;
mod component;
mod core;
mod facts;
mod given;
mod judge;
mod known;
mod lists;
mod mend;
mod naming;
mod parallel;
mod promise;
mod replay;
mod solve;
mod story;
mod topology;
mod zones;

#[cfg(test)]
mod tests;

pub(super) use given::{Decided, Given, decide_given};
pub(super) use judge::{Effort, Witness};
pub(super) use promise::{Axiom, Follows, Promise};

use super::registers::Columns;
use crate::Finding;
use facts::Facts;
use judge::Decision;
use story::Story;

/// What was decided of columns.
pub(super) enum Answer {
    /// This order of the columns' transactions explains all.
    Holds(Witness),
    /// These cannot be explained.
    Fails(Impossible),
    /// The search was stopped at its bound.
    Open,
}

/// Transactions that no order explains.
pub(super) struct Impossible {
    /// Their numbers in the columns, sorted.
    pub(super) transactions: Vec<u32>,
    /// Can the others be explained whichever of them is left out?
    pub(super) is_least: bool,
    /// Why, in words.
    pub(super) finding: Finding,
}

/// An order that explains all of the columns' transactions that took place and keeps one of these promises, if a guess is right
/// or wrong about few events. Linear but for sorting and a short search. The guess of parallel snapshot isolation is no witness:
/// ask for snapshot isolation.
pub(super) fn guess(columns: &Columns, ranks: &[u32], promises: &[Promise]) -> Option<Witness> {
    let (facts, names) = Facts::of(columns, ranks);
    let mut guesses = promises.iter().map(|&promise| {
        assert!(promise.axiom != Axiom::Parallel, "its guess is no witness");
        judge::guessed(&facts, promise)
    });
    Some(guesses.find_map(|guess| guess)?.renamed(&names))
}

/// An order that explains all of the columns' transactions that took place and keeps a promise, if it is found within so many
/// steps.
pub(super) fn witness(columns: &Columns, promise: Promise, steps_max: u64) -> Option<Witness> {
    let (facts, names) = Facts::of(columns, &[]);
    match judge::decide(&facts, promise, steps_max, &mut Effort::default()) {
        Decision::Holds(witness) => Some(witness.renamed(&names)),
        Decision::Fails(_) | Decision::Open => None,
    }
}

/// Decides whether the transactions that took place keep a promise, whose name is `model` in words; what is wrong before any
/// level is left to others. `ranks` are places of the columns' transactions in an order that somebody exported ([`NONE`]: not
/// known), empty without one: the first guess, and no more than that. A search is stopped after so many steps.
///
/// [`NONE`]: super::registers::NONE
pub(super) fn decide(
    columns: &Columns,
    ranks: &[u32],
    promise: Promise,
    model: &str,
    steps_max: u64,
) -> (Answer, Effort) {
    let (facts, names) = Facts::of(columns, ranks);
    let mut effort = Effort::default();
    let answer = match judge::decide(&facts, promise, steps_max, &mut effort) {
        Decision::Open => Answer::Open,
        Decision::Holds(witness) => Answer::Holds(witness.renamed(&names)),
        Decision::Fails(found) => {
            let core = core::shrink(&facts, promise, found);
            let part = facts.only(&core.transactions);
            let transactions = core
                .transactions
                .iter()
                .map(|&number| names[number as usize]);
            let transactions: Vec<u32> = transactions.collect();
            let story = Story::new(&part, &transactions, columns, promise);
            let finding = story.tell(model, core.is_least, naming::anomaly(&part, promise));
            Answer::Fails(Impossible {
                finding,
                is_least: core.is_least,
                transactions,
            })
        }
    };
    (answer, effort)
}
