//! Frees decided transactions, and renumbers the rest.

use super::list_table::BranchId;
use super::list_table::{BRANCH, ElementWriter, InternalContradictions, ListId, ListTable};
use super::window_record::WindowResult;
use seatrial_cycles::Txn;
use seatrial_isolation::recorded_transactions::ProcessNumber;

/// The new number of each old one; `None` for what was freed.
pub(super) struct Renamed {
    pub(super) transactions: Vec<Option<Txn>>,
    pub(super) lists: Vec<Option<ListId>>,
    pub(super) processes: Vec<Option<ProcessNumber>>,
}

/// New numbers, made by `id`, for entries that stay, in their order.
fn numbers<Id>(stays: impl Iterator<Item = bool>, id: impl Fn(u32) -> Id) -> Vec<Option<Id>> {
    let mut next = 0;
    let numbers = stays.map(|stays| {
        stays.then(|| {
            next += 1;
            id(next - 1)
        })
    });
    numbers.collect()
}

/// Renames an id in place, by the new `numbers`; false if what it stands for was freed.
pub(super) fn rename<Id: Copy>(
    id: &mut Id,
    index: impl Fn(Id) -> usize,
    numbers: &[Option<Id>],
) -> bool {
    let renamed = numbers[index(*id)];
    if let Some(renamed) = renamed {
        *id = renamed;
    }
    renamed.is_some()
}

impl ListTable {
    /// By list: is it closed, or `closing` now, and are all transactions that accessed it `gone`?
    pub(super) fn leaving(&self, gone: &[bool], closing: &[bool]) -> Vec<bool> {
        let lists = self.lists.iter().zip(closing);
        let mut leaving: Vec<_> = lists
            .map(|(list, closing)| list.is_closed || *closing)
            .collect();
        for (reader, (at, _)) in self.each_read() {
            leaving[at.index()] &= gone[reader.index()];
        }
        for (list, leaving) in self.lists.iter().zip(&mut leaving) {
            let mut writers = list.writers().filter_map(|writer| writer.number());
            *leaving = *leaving && writers.all(|number| gone[number.index()]);
        }
        leaving
    }

    /// Frees the transactions that are `gone` and the lists that are `leaving`. Lists that are `closing` are closed from now on.
    pub(super) fn free(&mut self, result: &WindowResult, closing: &[bool]) -> Renamed {
        let WindowResult {
            gone,
            happened,
            leaving,
        } = result;
        let transactions = numbers(gone.iter().map(|gone| !gone), Txn::new);
        self.transactions.keep(&transactions);
        for (list, &closing) in self.lists.iter_mut().zip(closing) {
            list.is_closed |= closing;
        }
        self.reads.keep(&transactions);
        let lists = self.keep_lists(&transactions, happened, leaving);
        for (list, _) in self.reads.items_mut() {
            let stays = rename(list, ListId::index, &lists);
            assert!(
                stays,
                "a list leaves only after the transactions that read it"
            );
        }
        // Closed lists have been checked: their updates and pairs are not needed.
        let checked = self.lists.iter().map(|list| list.is_closed);
        let checked: Vec<bool> = checked.collect();
        self.updates.retain_mut(|update| {
            rename(&mut update.list, ListId::index, &lists)
                && rename(&mut update.transaction, Txn::index, &transactions)
                && !checked[update.list.index()]
        });
        self.pairs.retain_mut(|pair| {
            rename(&mut pair.list, ListId::index, &lists) && !checked[pair.list.index()]
        });
        if !self.branches.is_empty() {
            self.keep_branches(&lists);
        }
        let processes = self.transactions.keep_processes();
        assert!(
            self.lists.len() == self.integers.len() + self.others.len(),
            "each list has a key"
        );
        // These have been reported.
        self.internal = InternalContradictions::default();
        self.future = InternalContradictions::default();
        Renamed {
            transactions,
            lists,
            processes,
        }
    }

    fn keep_lists(
        &mut self,
        transactions: &[Option<Txn>],
        happened: &[bool],
        leaving: &[bool],
    ) -> Vec<Option<ListId>> {
        let lists = numbers(leaving.iter().map(|leaving| !leaving), ListId::new);
        let writer = |number: Txn| match transactions[number.index()] {
            None if happened[number.index()] => ElementWriter::GONE,
            None => ElementWriter::VOID,
            Some(number) => ElementWriter::new(number),
        };
        let mut place = 0;
        let closed = &mut self.closed;
        self.lists.retain_mut(|list| {
            place += 1;
            if lists[place - 1].is_none() {
                closed.insert(list.key.clone());
                return false;
            }
            list.rename(writer);
            true
        });
        self.integers
            .retain(|_, list| rename(list, ListId::index, &lists));
        self.others
            .retain(|_, list| rename(list, ListId::index, &lists));
        lists
    }

    /// Keeps the divergent reads of lists that stay: they show which appends were read.
    fn keep_branches(&mut self, lists: &[Option<ListId>]) {
        let stays = self.branches.iter();
        let branches = numbers(
            stays.map(|&(_, _, list)| lists[list.index()].is_some()),
            BranchId::new,
        );
        let mut elements = Vec::new();
        let mut kept = Vec::new();
        for &(start, length, list) in &self.branches {
            if let Some(list) = lists[list.index()] {
                kept.push((elements.len(), length, list));
                elements.extend_from_slice(&self.branch_elements[start..start + length as usize]);
            }
        }
        self.branches = kept;
        self.branch_elements = elements;
        for (_, place) in self.reads.items_mut() {
            if *place & BRANCH != 0 {
                let branch = branches[(*place & !BRANCH) as usize];
                *place = BRANCH | branch.expect("a read stays with its list").get();
            }
        }
        for list in &mut self.lists {
            list.branches
                .retain_mut(|branch| rename(branch, BranchId::index, &branches));
        }
    }
}
