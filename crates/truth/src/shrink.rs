//! Shrinks a case while it shows the same disagreement.

use crate::case::{Case, CaseOutcome, Kind};

/// The smallest case that can be had by leaving something out, one thing after another, for which `still` holds.
pub(crate) fn shrink(case: &Case, still: &dyn Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    loop {
        let next = smaller(&best).into_iter().find(|case| still(case));
        let Some(next) = next else {
            return best;
        };
        best = next;
    }
}

/// Cases with one thing less, the largest steps first.
fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |mut other: Case| {
        other.renumber();
        all.push(other);
    };
    for number in 0..case.txns.len() {
        let mut other = case.clone();
        other.txns.remove(number);
        if !other.txns.is_empty() {
            add(other);
        }
    }
    for number in 0..case.txns.len() {
        for at in 0..case.txns[number].micros.len() {
            let mut other = case.clone();
            other.txns[number].micros.remove(at);
            add(other);
        }
    }
    for number in 0..case.txns.len() {
        let txn = &case.txns[number];
        if txn.outcome == CaseOutcome::Info {
            let mut other = case.clone();
            other.txns[number].outcome = CaseOutcome::Ok;
            if other.txns[number].ended.is_some() {
                add(other);
            }
        }
        for at in 0..txn.micros.len() {
            let micro = txn.micros[at];
            if micro.is_write || micro.value == 0 {
                continue;
            }
            let mut other = case.clone();
            other.txns[number].micros[at].value = match case.kind {
                Kind::Lists => micro.value >> 4,
                Kind::Registers => 0,
            };
            add(other);
        }
    }
    all
}
