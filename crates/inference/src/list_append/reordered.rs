//! Reads that show the appends of one transaction in another order.

use super::list_table::{AppendPair, BRANCH, ListId};
use super::lists::OrderedLists;
use super::read_anomalies::{Suspect, Suspects};
use seatrial_cycles::Txn;
use seatrial_cycles::anomaly::INCOMPATIBLE_ORDER;
use seatrial_history::FixedMap;
use std::collections::{BTreeMap, BTreeSet};

impl OrderedLists {
    /// Adds reads that show the appends of one transaction in another order than it performed them, or a later one without an
    /// earlier one.
    ///
    /// Most lists need one pass over their versions: appends of one transaction are adjacent, in ascending order, none is
    /// missing, and no transaction appended to the list in descending order. The other lists are compared pair by pair of
    /// appends, in time linear in their different reads times the pairs.
    pub(super) fn find_reordered(&self, asked: &[bool], suspects: &mut Suspects) {
        if self.table.pairs.is_empty() {
            return;
        }
        let doubtful = ListId::all(self.table.lists.len())
            .map(|at| asked[at.index()] && !self.is_plainly_ordered(at));
        let doubtful: Vec<bool> = doubtful.collect();
        if !doubtful.contains(&true) {
            return;
        }
        let pairs = self.table.pairs_of(|at| doubtful[at.index()]);
        // By list: each different read that contradicts the longest one, with its first reader.
        let mut others: BTreeMap<ListId, BTreeMap<u32, Txn>> = BTreeMap::new();
        let branching = (!self.table.branches.is_empty()).then(|| self.table.each_read());
        for (reader, (at, place)) in branching.into_iter().flatten() {
            if place & BRANCH != 0 && pairs.contains_key(&at) {
                let branches = others.entry(at).or_default();
                branches.entry(place).or_insert(reader);
            }
        }
        for (at, pairs) in pairs {
            let list = &self.table.lists[at.index()];
            if let Some(reader) = list.reader {
                self.find_reordered_in(reader, &list.elements, &pairs, suspects);
            }
            for (place, reader) in others.remove(&at).unwrap_or_default() {
                let elements = self.table.elements((at, place));
                self.find_reordered_in(reader, elements, &pairs, suspects);
            }
        }
    }

    /// Are the versions of a list in the order of their transactions, and do all its reads agree? False negatives are possible.
    fn is_plainly_ordered(&self, at: ListId) -> bool {
        let list = &self.table.lists[at.index()];
        if list.conflict.is_some() || list.is_descending || self.has_unseen_inside[at.index()] {
            return false;
        }
        let versions = self.versions(at);
        let elements = &list.elements[..versions.len()];
        let mut neighbours = versions.array_windows().zip(elements.array_windows());
        let is_last_inside = versions.last().is_some_and(|last| last.is_intermediate());
        let are_ordered = neighbours.all(|([one, next], [a, b])| {
            !one.is_intermediate() || one.number() == next.number() && a < b
        });
        are_ordered && !is_last_inside
    }

    /// Adds the reordered elements of one read, once for each transaction that appended them.
    fn find_reordered_in(
        &self,
        reader: Txn,
        elements: &[i64],
        pairs: &[AppendPair],
        suspects: &mut Suspects,
    ) {
        let mut places: FixedMap<i64, usize> = FixedMap::default();
        for (place, &element) in elements.iter().enumerate() {
            places.entry(element).or_insert(place);
        }
        let mut writers = BTreeSet::new();
        for &AppendPair {
            list,
            elements: [earlier, later],
        } in pairs
        {
            let Some(place) = places.get(&later) else {
                continue;
            };
            let is_ordered = places.get(&earlier).is_some_and(|before| before < place);
            let writer = self.writer(list, later).and_then(|writer| writer.number());
            // An aborted append is another anomaly, in whatever order.
            let failed = |number: &Txn| self.table.transactions.is_failed(*number);
            if let Some(writer) = writer.filter(|number| !is_ordered && !failed(number))
                && writers.insert(writer)
            {
                suspects.add(INCOMPATIBLE_ORDER, || Suspect::Reordered {
                    list,
                    reader,
                    writer,
                    elements: [earlier, later],
                });
            }
        }
    }
}
