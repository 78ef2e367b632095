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
/// - a read of a failed append, as long as the same element may be appended again and the read be of that append. In real time
///   no append that begins later explains it, only one that is still under way (`retried`);
/// - what rests on a transaction that is still under way, or of which nobody knows whether it took place. (One of unknown
///   outcome took place when a successful transaction saw what it did.)
/// - any order of versions at a level that tolerates that reads contradict each other.
pub(super) struct Definite {
    forbidden: BTreeSet<Anomaly>,
    has_realtime: bool,
    /// Elements of lists that transactions append which are still under way.
    retried: BTreeSet<(u32, i64)>,
}

impl Definite {
    /// For this level.
    pub(super) fn new(level: Level) -> Definite {
        Definite {
            forbidden: level.forbidden(),
            has_realtime: level.implies(Level::StrongReadUncommitted),
            retried: BTreeSet::new(),
        }
    }

    /// The same while these elements are appended.
    pub(super) fn with_retried(self, retried: BTreeSet<(u32, i64)>) -> Definite {
        Definite { retried, ..self }
    }

    /// Is a failed append the only one of this element, whatever comes?
    fn is_only(&self, list: u32, element: i64, lists: &Lists) -> bool {
        let is_closed = lists.table.lists[list as usize].is_closed;
        is_closed || self.has_realtime && !self.retried.contains(&(list, element))
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
            | Suspect::Reordered { .. } => true,
            Suspect::Aborted { list, element, .. } => self.is_only(*list, *element, lists),
            Suspect::Garbage { .. } | Suspect::Unordered { .. } => false,
            Suspect::Intermediate { writer, .. } => is_known(writer),
            Suspect::Dirty { list, below, .. } => {
                self.has_orders() && self.is_only(*list, below.1, lists)
            }
            Suspect::Lost { .. } => self.has_orders(),
            Suspect::Cycle(cycle) => self.has_orders() && cycle.nodes.iter().all(is_known),
        }
    }

    /// Are reads that contradict each other forbidden?
    fn has_orders(&self) -> bool {
        self.forbidden.contains(INCOMPATIBLE_ORDER)
    }
}
