//! In which order the versions of lists came, and which transactions took place.

use super::table::{BRANCH, NONE, Table, Writer, outcome};
use crate::txn::level::Level;
use std::collections::BTreeMap;

/// For each length of a read of a list, the transaction of the last committed append in it and that of the first one
/// after it.
pub(super) struct Neighbours {
    before: Vec<u32>,
    after: Vec<u32>,
}

/// Everything that the graph and the direct anomalies are derived from.
pub(super) struct Lists {
    pub(super) table: Table,
    /// The agreed versions of all lists, each begins at its list's `first`: who appended them, nobody for an element
    /// that nobody appended or that was there before.
    versions: Vec<Writer>,
    /// Lists of which a version is not that of a committed transaction.
    gaps: BTreeMap<u32, Neighbours>,
    /// Which transactions took place: the nodes of the graph.
    happened: Vec<bool>,
    /// Committed appends that nobody read, of lists whose reads agree: lists and writers, sorted, each pair once.
    pub(super) unseen: Vec<(u32, u32)>,
    /// By list: is there a committed append that nobody read, of a transaction of which another one was read?
    pub(super) has_unseen_inside: Vec<bool>,
}

impl Lists {
    /// Fixes the version orders.
    pub(super) fn new(mut table: Table, level: Level) -> Lists {
        let mut versions = Vec::with_capacity(table.lists.iter().map(|l| l.elements.len()).sum());
        for list in &mut table.lists {
            list.agreed = list.agreed.min(list.elements.len() as u32);
            list.first = versions.len();
            for at in 0..list.agreed as usize {
                let writer = list.see(list.elements[at]);
                versions.push(writer.unwrap_or(Writer::NOBODY));
            }
        }
        see_branches(&mut table);
        let happened = table.outcomes.iter().map(|&one| one == outcome::OK);
        let mut lists = Lists {
            versions,
            gaps: BTreeMap::new(),
            happened: happened.collect(),
            unseen: Vec::new(),
            has_unseen_inside: Vec::new(),
            table,
        };
        // Below read committed, effects of an unknown transaction that were seen do not say that it committed.
        if level.implies(Level::ReadCommitted) {
            lists.add_unknown();
        }
        lists.find_gaps();
        lists.find_unseen();
        lists
    }

    /// Unknown transactions with an effect that was seen took place.
    fn add_unknown(&mut self) {
        let outcomes = &self.table.outcomes;
        let happened = &mut self.happened;
        let mut add = |writer: Writer| {
            if let Some(number) = writer.number()
                && outcomes[number as usize] == outcome::INFO
            {
                happened[number as usize] = true;
            }
        };
        self.versions.iter().copied().for_each(&mut add);
        for list in self
            .table
            .lists
            .iter()
            .filter(|list| list.conflict.is_some())
        {
            let seen = list.writers().filter(|writer| writer.is_seen());
            seen.for_each(&mut add);
        }
    }

    fn find_gaps(&mut self) {
        for at in 0..self.table.lists.len() as u32 {
            let versions = self.versions(at);
            let has_place = |&writer: &Writer| writer.is_gone() || self.committed(writer) != NONE;
            if versions.iter().all(has_place) {
                continue;
            }
            let count = versions.len();
            let (mut before, mut after) = (vec![NONE; count + 1], vec![NONE; count + 1]);
            for (position, &writer) in versions.iter().enumerate() {
                let number = self.committed(writer);
                let last = before[position];
                let has_none = number == NONE && !writer.is_gone();
                before[position + 1] = if has_none { last } else { number };
                after[position] = number;
            }
            for position in (0..count).rev() {
                if after[position] == NONE {
                    after[position] = after[position + 1];
                }
            }
            self.gaps.insert(at, Neighbours { before, after });
        }
    }

    fn find_unseen(&mut self) {
        let mut unseen = Vec::new();
        let mut inside = vec![false; self.table.lists.len()];
        // Transactions that appended more after an append that nobody read.
        let mut followed = Vec::new();
        for (at, list) in self.table.lists.iter().enumerate() {
            if list.conflict.is_some() {
                continue;
            }
            let first = unseen.len();
            let open = list.writers().filter(|writer| !writer.is_seen());
            followed.clear();
            open.for_each(|writer| match self.committed(writer) {
                NONE => {}
                number => {
                    if writer.is_intermediate() {
                        followed.push(number);
                    }
                    unseen.push((at as u32, number));
                }
            });
            unseen[first..].sort_unstable();
            if !followed.is_empty() {
                followed.sort_unstable();
                let is_followed = |number| followed.binary_search(&number).is_ok();
                let mut seen = self
                    .versions(at as u32)
                    .iter()
                    .filter_map(|one| one.number());
                inside[at] = seen.any(is_followed);
            }
        }
        unseen.dedup();
        self.unseen = unseen;
        self.has_unseen_inside = inside;
    }

    /// The committed transaction of a writer, else [`NONE`].
    pub(super) fn committed(&self, writer: Writer) -> u32 {
        let number = writer.number();
        number
            .filter(|&number| self.happened(number))
            .unwrap_or(NONE)
    }

    /// Did this transaction take place?
    pub(super) fn happened(&self, number: u32) -> bool {
        self.happened[number as usize]
    }

    /// Which transactions took place; the lists are of no use without.
    pub(super) fn take_happened(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.happened)
    }

    /// The agreed versions of a list.
    pub(super) fn versions(&self, at: u32) -> &[Writer] {
        let list = &self.table.lists[at as usize];
        &self.versions[list.first..list.first + list.agreed as usize]
    }

    /// How many agreed versions there are.
    pub(super) fn version_count(&self) -> usize {
        self.versions.len()
    }

    /// Are all versions of a list those of transactions that took place, and none of these gone?
    pub(super) fn is_committed(&self, at: u32) -> bool {
        let is_gone = |first: &Writer| first.is_gone();
        !self.gaps.contains_key(&at) && !self.versions(at).iter().any(is_gone)
    }

    /// Is this version one after which its transaction appended more?
    pub(super) fn is_intermediate(&self, version: usize) -> bool {
        self.versions[version].is_intermediate()
    }

    /// Is a read's place in the order of versions known?
    pub(super) fn is_regular(&self, (list, place): (u32, u32)) -> bool {
        place & BRANCH == 0 && place <= self.table.lists[list as usize].agreed
    }

    /// The transaction of the last committed append in the first `length` versions, and that of the first after them.
    pub(super) fn neighbours(&self, at: u32, length: u32) -> (u32, u32) {
        let length = length as usize;
        if !self.gaps.is_empty()
            && let Some(gap) = self.gaps.get(&at)
        {
            return (gap.before[length], gap.after[length]);
        }
        let versions = self.versions(at);
        let number = |writer: Option<&Writer>| writer.and_then(|one| one.number()).unwrap_or(NONE);
        let before = length.checked_sub(1).and_then(|last| versions.get(last));
        (number(before), number(versions.get(length)))
    }

    /// The committed transactions of a list's versions in order.
    pub(super) fn committed_versions(&self, at: u32) -> impl DoubleEndedIterator<Item = u32> {
        let versions = self.versions(at).iter();
        let numbers = versions.map(|&writer| self.committed(writer));
        numbers.filter(|&number| number != NONE)
    }

    /// Who appended this element.
    pub(super) fn writer(&self, at: u32, element: i64) -> Option<Writer> {
        self.table.lists[at as usize].writer(element)
    }

    /// The transactions of which something may still become known: those that touched a list that is not closed, and those
    /// that are not over.
    pub(super) fn unsettled(&self, closing: &[bool]) -> Vec<bool> {
        let table = &self.table;
        let settled = table.lists.iter().zip(closing);
        let settled: Vec<_> = settled
            .map(|(list, &closing)| list.is_closed || closing)
            .collect();
        let completions = table.completions.iter();
        let mut unsettled: Vec<_> = completions.map(|&position| position == NONE).collect();
        for (reader, (at, _)) in table.each_read() {
            unsettled[reader as usize] |= !settled[at as usize];
        }
        for (at, list) in table.lists.iter().enumerate() {
            if !settled[at] {
                let numbers = list.writers().filter_map(Writer::number);
                numbers.for_each(|number| unsettled[number as usize] = true);
            }
        }
        unsettled
    }
}

/// What lies past the agreed part of a list is known only from the reads themselves.
fn see_branches(table: &mut Table) {
    if table.lists.iter().all(|list| list.conflict.is_none()) {
        return;
    }
    for &(start, length, at) in &table.branches {
        for &element in &table.branch_elements[start..start + length as usize] {
            table.lists[at as usize].see(element);
        }
    }
    for list in &mut table.lists {
        for at in list.agreed as usize..list.elements.len() {
            list.see(list.elements[at]);
        }
    }
}
