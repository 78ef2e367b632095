//! Version orders of lists, and the transactions that took effect.

use super::list_table::{BRANCH, ElementWriter, ListId, ListTable};
use seatrial_cycles::{Level, Txn};
use seatrial_history::OpType;
use std::collections::BTreeMap;

/// For each length of a read of a list: the transactions of the last committed append in it, and of the first after it.
pub(super) struct CommittedNeighbours {
    before: Vec<Option<Txn>>,
    after: Vec<Option<Txn>>,
}

/// A table with fixed version orders: the source of the graph and of the direct anomalies.
pub(super) struct OrderedLists {
    pub(super) table: ListTable,
    /// The writers of the agreed versions of all lists, each from its list's `first`; no writer for an element without a known
    /// append or with an earlier occurrence.
    versions: Vec<ElementWriter>,
    /// Lists with a version whose transaction is not committed.
    gaps: BTreeMap<ListId, CommittedNeighbours>,
    /// Which transactions took effect: the nodes of the graph.
    happened: Vec<bool>,
    /// Unread committed appends of lists whose reads agree: lists and writers, sorted, each pair once.
    pub(super) unseen: Vec<(ListId, Txn)>,
    /// By list: has it an unread committed append of a transaction another append of which was read?
    pub(super) has_unseen_inside: Vec<bool>,
}

impl OrderedLists {
    /// Fixes the version orders.
    pub(super) fn new(mut table: ListTable, level: Level) -> OrderedLists {
        let mut versions = Vec::with_capacity(table.lists.iter().map(|l| l.elements.len()).sum());
        for list in &mut table.lists {
            list.agreed = list.agreed.min(list.elements.len() as u32);
            list.first = versions.len();
            for at in 0..list.agreed as usize {
                let writer = list.see(list.elements[at]);
                versions.push(writer.unwrap_or(ElementWriter::UNKNOWN));
            }
        }
        see_branches(&mut table);
        let happened = table.transactions.outcomes().iter();
        let happened = happened.map(|&one| one == OpType::Ok);
        let mut lists = OrderedLists {
            versions,
            gaps: BTreeMap::new(),
            happened: happened.collect(),
            unseen: Vec::new(),
            has_unseen_inside: Vec::new(),
            table,
        };
        // Below read committed, a transaction of unknown outcome may be read without having committed.
        if level.implies(Level::ReadCommitted) {
            lists.add_unknown();
        }
        lists.find_gaps();
        lists.find_unseen();
        assert!(
            lists.happened.len() == lists.table.len(),
            "each transaction took effect or not"
        );
        assert!(
            lists.unseen.is_sorted(),
            "unread appends are grouped by list"
        );
        debug_assert!(
            lists
                .unseen
                .iter()
                .all(|&(_, writer)| lists.happened(writer)),
            "unread appends that count took effect"
        );
        assert!(
            lists.has_unseen_inside.len() == lists.table.lists.len(),
            "one flag for each list"
        );
        lists
    }

    /// Transactions of unknown outcome with an effect that was read took effect.
    fn add_unknown(&mut self) {
        let outcomes = self.table.transactions.outcomes();
        let happened = &mut self.happened;
        let mut add = |writer: ElementWriter| {
            if let Some(number) = writer.number()
                && outcomes[number.index()] == OpType::Info
            {
                happened[number.index()] = true;
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
        for at in ListId::all(self.table.lists.len()) {
            let versions = self.versions(at);
            let has_place =
                |&writer: &ElementWriter| writer.is_gone() || self.committed(writer).is_some();
            if versions.iter().all(has_place) {
                continue;
            }
            let count = versions.len();
            let (mut before, mut after) = (vec![None; count + 1], vec![None; count + 1]);
            for (position, &writer) in versions.iter().enumerate() {
                let number = self.committed(writer);
                let last = before[position];
                // A freed writer ends what an earlier one wrote: the version before is that of no known transaction.
                before[position + 1] = if writer.is_gone() {
                    None
                } else {
                    number.or(last)
                };
                after[position] = number;
            }
            for position in (0..count).rev() {
                // From the end, so that a run of versions without a transaction takes the first one after it.
                after[position] = after[position].or(after[position + 1]);
            }
            debug_assert!(
                before[0].is_none() && after[count].is_none(),
                "no version comes before the empty list or after the whole one"
            );
            self.gaps.insert(at, CommittedNeighbours { before, after });
        }
    }

    fn find_unseen(&mut self) {
        let mut unseen = Vec::new();
        let mut inside = vec![false; self.table.lists.len()];
        // Transactions that appended more after an unread append.
        let mut followed = Vec::new();
        for (at, list) in ListId::all(self.table.lists.len()).zip(&self.table.lists) {
            if list.conflict.is_some() {
                continue;
            }
            let first = unseen.len();
            let open = list.writers().filter(|writer| !writer.is_seen());
            followed.clear();
            open.for_each(|writer| match self.committed(writer) {
                None => {}
                Some(number) => {
                    if writer.is_intermediate() {
                        followed.push(number);
                    }
                    unseen.push((at, number));
                }
            });
            unseen[first..].sort_unstable();
            if !followed.is_empty() {
                followed.sort_unstable();
                let is_followed = |number| followed.binary_search(&number).is_ok();
                let mut seen = self.versions(at).iter().filter_map(|one| one.number());
                inside[at.index()] = seen.any(is_followed);
            }
        }
        unseen.dedup();
        self.unseen = unseen;
        self.has_unseen_inside = inside;
    }

    /// The committed transaction of a writer.
    pub(super) fn committed(&self, writer: ElementWriter) -> Option<Txn> {
        writer.number().filter(|&number| self.happened(number))
    }

    /// Did this transaction take effect?
    pub(super) fn happened(&self, number: Txn) -> bool {
        self.happened[number.index()]
    }

    /// Takes the flags of transactions that took effect; the lists cannot be used afterwards.
    pub(super) fn take_happened(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.happened)
    }

    /// The agreed versions of a list.
    pub(super) fn versions(&self, at: ListId) -> &[ElementWriter] {
        let list = &self.table.lists[at.index()];
        &self.versions[list.first..list.first + list.agreed as usize]
    }

    /// Number of agreed versions of all lists.
    pub(super) fn version_count(&self) -> usize {
        self.versions.len()
    }

    /// Did the transactions of all versions of a list take effect, and is none of them freed?
    pub(super) fn is_committed(&self, at: ListId) -> bool {
        let is_gone = |first: &ElementWriter| first.is_gone();
        !self.gaps.contains_key(&at) && !self.versions(at).iter().any(is_gone)
    }

    /// Did the transaction of this version append more after it?
    pub(super) fn is_intermediate(&self, version: usize) -> bool {
        self.versions[version].is_intermediate()
    }

    /// Is a read's position in the version order known?
    pub(super) fn is_regular(&self, (list, place): (ListId, u32)) -> bool {
        place & BRANCH == 0 && place <= self.table.lists[list.index()].agreed
    }

    /// The transactions of the last committed append in the first `length` versions, and of the first after them.
    pub(super) fn neighbours(&self, at: ListId, length: u32) -> (Option<Txn>, Option<Txn>) {
        let length = length as usize;
        // Most tables have no gaps, and this is asked for each read: the check saves the search in the map.
        if !self.gaps.is_empty()
            && let Some(gap) = self.gaps.get(&at)
        {
            return (gap.before[length], gap.after[length]);
        }
        let versions = self.versions(at);
        let number = |writer: Option<&ElementWriter>| writer.and_then(|one| one.number());
        let before = length.checked_sub(1).and_then(|last| versions.get(last));
        (number(before), number(versions.get(length)))
    }

    /// The committed transactions of a list's versions in order.
    pub(super) fn committed_versions(&self, at: ListId) -> impl DoubleEndedIterator<Item = Txn> {
        let versions = self.versions(at).iter();
        versions.filter_map(|&writer| self.committed(writer))
    }

    /// The writer of this element.
    pub(super) fn writer(&self, at: ListId, element: i64) -> Option<ElementWriter> {
        self.table.lists[at.index()].writer(element)
    }

    /// Transactions that later operations may affect: those that accessed a list that is not closed, and those that are still
    /// under way.
    pub(super) fn unsettled(&self, closing: &[bool]) -> Vec<bool> {
        let table = &self.table;
        let settled = table.lists.iter().zip(closing);
        let settled: Vec<_> = settled
            .map(|(list, &closing)| list.is_closed || closing)
            .collect();
        let completions = table.transactions.completions().iter();
        let mut unsettled: Vec<_> = completions.map(Option::is_none).collect();
        for (reader, (at, _)) in table.each_read() {
            unsettled[reader.index()] |= !settled[at.index()];
        }
        for (at, list) in table.lists.iter().enumerate() {
            if !settled[at] {
                let numbers = list.writers().filter_map(ElementWriter::number);
                numbers.for_each(|number| unsettled[number.index()] = true);
            }
        }
        unsettled
    }
}

/// Marks the elements after the agreed part of a list as read, which only the reads themselves have.
fn see_branches(table: &mut ListTable) {
    if table.lists.iter().all(|list| list.conflict.is_none()) {
        return;
    }
    for &(start, length, at) in &table.branches {
        for &element in &table.branch_elements[start..start + length as usize] {
            table.lists[at.index()].see(element);
        }
    }
    for list in &mut table.lists {
        for at in list.agreed as usize..list.elements.len() {
            list.see(list.elements[at]);
        }
    }
}
