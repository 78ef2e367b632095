//! What nothing that is still to come can take back.

use super::lists::Lists;
use super::reads::Suspect;
use super::table::{NONE, outcome};
use crate::Anomaly;
use crate::txn::anomaly::INCOMPATIBLE_ORDER;
use crate::txn::level::Level;
use std::collections::BTreeSet;

/// Tells which suspects of the beginning of a history are violations of a level however the history goes on.
///
/// Transactions that took place and what they read stay what they are. A version order only becomes longer or finer (a dependency
/// on the next version becomes a chain of them, as many of which are anti-dependencies), unless a read contradicts it, which the
/// level forbids as well. So everything is definite but
/// - a read of an element that nobody is known to have appended: whoever did may be unknown or still under way;
/// - what rests on a transaction that is still under way, or of which nobody knows whether it took place. (One of unknown
///   outcome took place when a successful transaction saw what it did.)
/// - any order of versions at a level that tolerates that reads contradict each other.
pub(super) struct Definite {
    forbidden: BTreeSet<Anomaly>,
}

impl Definite {
    /// For this level.
    pub(super) fn new(level: Level) -> Definite {
        Definite {
            forbidden: level.forbidden(),
        }
    }

    /// Is this one definite, and does the level forbid it?
    pub(super) fn is(&self, anomaly: Anomaly, suspect: &Suspect, lists: &Lists) -> bool {
        let is_known = |&number: &u32| {
            let at = number as usize;
            match lists.table.outcomes.get(at) {
                // None: no transaction, but a helper between some.
                Some(&outcome::OK) | None => true,
                Some(&outcome::FAIL) => false,
                Some(_) => lists.table.completions.get(at) != Some(&NONE) && lists.happened(number),
            }
        };
        if !self.forbidden.contains(anomaly) {
            return false;
        }
        match suspect {
            // A transaction that failed did so for good.
            Suspect::Internal(_)
            | Suspect::Future(_)
            | Suspect::Duplicate { .. }
            | Suspect::Incompatible { .. }
            | Suspect::Reordered { .. }
            | Suspect::Aborted { .. } => true,
            Suspect::Garbage { .. } | Suspect::Unordered { .. } => false,
            Suspect::Intermediate { writer, .. } => is_known(writer),
            Suspect::Dirty { .. } | Suspect::Lost { .. } => self.has_orders(),
            Suspect::Cycle(cycle) => self.has_orders() && cycle.nodes.iter().all(is_known),
        }
    }

    /// Are reads that contradict each other forbidden?
    fn has_orders(&self) -> bool {
        self.forbidden.contains(INCOMPATIBLE_ORDER)
    }
}
