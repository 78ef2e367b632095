//! Definite violations: no later operation can explain them.

use super::list_table::ListId;
use super::lists::OrderedLists;
use super::read_anomalies::Suspect;
use seatrial_checker::Anomaly;
use seatrial_cycles::anomaly::INCOMPATIBLE_ORDER;
use seatrial_cycles::{Level, Txn};
use seatrial_history::OpType;
use std::collections::BTreeSet;

/// Decides which suspects in a prefix of a history violate a level however the history continues.
///
/// Transactions that took effect and their reads do not change. A version order only becomes longer or finer (a dependency on
/// the next version becomes a chain with as many anti-dependencies), unless a read contradicts it, which the level forbids as
/// well. So every suspect is definite except
/// - a read of an element whose append is not known: its transaction may be of unknown outcome, or still under way;
/// - a read of a failed append, as long as the same element may be appended again and be the one that was read. In real time no
///   append that begins later explains it, only one that is still under way (`retried`);
/// - a suspect with a transaction that is still under way or of unknown outcome. (A transaction of unknown outcome took effect if
///   a successful transaction read its effect.)
/// - a suspect that rests on the order of versions, at a level that tolerates contradictory reads.
pub(super) struct Definite {
    forbidden: BTreeSet<Anomaly>,
    has_realtime: bool,
    /// Lists and elements of appends by transactions that are still under way.
    retried: BTreeSet<(ListId, i64)>,
}

impl Definite {
    /// Definite violations of this level.
    pub(super) fn new(level: Level) -> Definite {
        Definite {
            forbidden: level.forbidden(),
            has_realtime: level.implies(Level::StrongReadUncommitted),
            retried: BTreeSet::new(),
        }
    }

    /// With these appends under way.
    pub(super) fn with_retried(self, retried: BTreeSet<(ListId, i64)>) -> Definite {
        Definite { retried, ..self }
    }

    /// Is a failed append the only one of this element, however the history continues?
    fn is_only(&self, list: ListId, element: i64, lists: &OrderedLists) -> bool {
        let is_closed = lists.table.lists[list.index()].is_closed;
        is_closed || self.has_realtime && !self.retried.contains(&(list, element))
    }

    /// Is this suspect definite, and does the level forbid it?
    pub(super) fn is(&self, anomaly: Anomaly, suspect: &Suspect, lists: &OrderedLists) -> bool {
        let transactions = &lists.table.transactions;
        let is_known = |number: Txn| match transactions.outcome(number) {
            OpType::Ok => true,
            OpType::Fail => false,
            _ => transactions.completion(number).is_some() && lists.happened(number),
        };
        // A node after all transactions is a helper between several.
        let is_known_node = |&node: &u32| {
            let is_helper = node as usize >= lists.table.len();
            is_helper || is_known(Txn::new(node))
        };
        if !self.forbidden.contains(anomaly) {
            return false;
        }
        match suspect {
            // The reads of one transaction, or of a failed one, do not change.
            Suspect::Internal(_)
            | Suspect::Future(_)
            | Suspect::Duplicate { .. }
            | Suspect::Incompatible { .. }
            | Suspect::Reordered { .. } => true,
            Suspect::Aborted { list, element, .. } => self.is_only(*list, *element, lists),
            Suspect::Garbage { .. } | Suspect::Unordered { .. } => false,
            Suspect::Intermediate { writer, .. } => is_known(*writer),
            Suspect::Dirty { list, below, .. } => {
                self.has_orders() && self.is_only(*list, below.1, lists)
            }
            Suspect::Lost { .. } => self.has_orders(),
            Suspect::Cycle(cycle) => self.has_orders() && cycle.nodes.iter().all(is_known_node),
        }
    }

    /// Does the level forbid contradictory reads, so that version orders are reliable?
    fn has_orders(&self) -> bool {
        self.forbidden.contains(INCOMPATIBLE_ORDER)
    }
}
