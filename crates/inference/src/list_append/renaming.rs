//! Frees decided transactions, and renumbers the rest.

use super::table::{BRANCH, ElementWriter, InternalContradictions, ListTable, NONE};
use super::window_record::WindowResult;

/// The new number of each old one; [`NONE`] for what was freed.
pub(super) struct Renamed {
    pub(super) transactions: Vec<u32>,
    pub(super) lists: Vec<u32>,
    pub(super) processes: Vec<u32>,
}

/// New numbers for entries that stay, in their order.
fn numbers(stays: impl Iterator<Item = bool>) -> Vec<u32> {
    let mut next = 0;
    let numbers = stays.map(|stays| {
        if !stays {
            return NONE;
        }
        next += 1;
        next - 1
    });
    numbers.collect()
}

/// Keeps the entries of a column that have a number.
fn keep<T>(column: &mut Vec<T>, numbers: &[u32]) {
    let mut stays = numbers.iter().map(|&number| number != NONE);
    column.retain(|_| stays.next().unwrap_or(false));
}

impl ListTable {
    /// By list: is it closed, or `closing` now, and are all transactions that accessed it `gone`?
    pub(super) fn leaving(&self, gone: &[bool], closing: &[bool]) -> Vec<bool> {
        let lists = self.lists.iter().zip(closing);
        let mut leaving: Vec<_> = lists
            .map(|(list, closing)| list.is_closed || *closing)
            .collect();
        for (reader, (at, _)) in self.each_read() {
            leaving[at as usize] &= gone[reader as usize];
        }
        for (list, leaving) in self.lists.iter().zip(&mut leaving) {
            let mut writers = list.writers().filter_map(|writer| writer.number());
            *leaving = *leaving && writers.all(|number| gone[number as usize]);
        }
        leaving
    }

    /// Frees the transactions that are `gone` and the lists that are `leaving`. Lists that are `closing` are closed from now on.
    pub(super) fn free(&mut self, judged: &WindowResult, closing: &[bool]) -> Renamed {
        let WindowResult {
            gone,
            happened,
            leaving,
        } = judged;
        let transactions = numbers(gone.iter().map(|gone| !gone));
        for column in [
            &mut self.invocations,
            &mut self.completions,
            &mut self.processes,
        ] {
            keep(column, &transactions);
        }
        keep(&mut self.outcomes, &transactions);
        for (list, &closing) in self.lists.iter_mut().zip(closing) {
            list.is_closed |= closing;
        }
        self.keep_reads(&transactions);
        let lists = self.keep_lists(&transactions, happened, leaving);
        for read in &mut self.reads {
            read.0 = lists[read.0 as usize];
        }
        // Closed lists have been checked: their updates and pairs are not needed.
        let checked = self.lists.iter().map(|list| list.is_closed);
        let checked: Vec<bool> = checked.collect();
        self.updates.retain_mut(|update| {
            update.list = lists[update.list as usize];
            update.transaction = transactions[update.transaction as usize];
            let is_kept = update.list != NONE && update.transaction != NONE;
            is_kept && !checked[update.list as usize]
        });
        self.pairs.retain_mut(|pair| {
            pair.list = lists[pair.list as usize];
            pair.list != NONE && !checked[pair.list as usize]
        });
        if !self.branches.is_empty() {
            self.keep_branches(&lists);
        }
        let processes = self.keep_processes();
        let count = self.invocations.len();
        assert!(
            [
                self.completions.len(),
                self.processes.len(),
                self.outcomes.len()
            ] == [count; 3],
            "columns have one entry for each transaction"
        );
        assert!(
            self.read_ends.last().map_or(0, |&end| end as usize) == self.reads.len(),
            "the ranges of reads end with the reads"
        );
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

    fn keep_reads(&mut self, transactions: &[u32]) {
        let (mut start, mut length, mut ended) = (0, 0, 0);
        for at in 0..self.ended.len() {
            let end = self.read_ends[at] as usize;
            let number = transactions[self.ended[at] as usize];
            if number != NONE {
                self.reads.copy_within(start..end, length);
                length += end - start;
                self.ended[ended] = number;
                self.read_ends[ended] = length as u32;
                ended += 1;
            }
            start = end;
        }
        self.reads.truncate(length);
        self.ended.truncate(ended);
        self.read_ends.truncate(ended);
    }

    fn keep_lists(
        &mut self,
        transactions: &[u32],
        happened: &[bool],
        leaving: &[bool],
    ) -> Vec<u32> {
        let lists = numbers(leaving.iter().map(|leaving| !leaving));
        let rename = |number: u32| match transactions.get(number as usize) {
            Some(&NONE) if !happened[number as usize] => ElementWriter::VOID,
            None | Some(&NONE) => ElementWriter::GONE,
            Some(&number) => ElementWriter::new(number),
        };
        let mut place = 0;
        let closed = &mut self.closed;
        self.lists.retain_mut(|list| {
            place += 1;
            if lists[place - 1] == NONE {
                closed.insert(list.key.clone());
                return false;
            }
            list.rename(rename);
            true
        });
        self.integers.retain(|_, number| {
            *number = lists[*number as usize];
            *number != NONE
        });
        self.others.retain(|_, number| {
            *number = lists[*number as usize];
            *number != NONE
        });
        lists
    }

    /// Keeps the divergent reads of lists that stay: they show which appends were read.
    fn keep_branches(&mut self, lists: &[u32]) {
        let stays = self.branches.iter();
        let branches = numbers(stays.map(|&(_, _, list)| lists[list as usize] != NONE));
        let mut elements = Vec::new();
        let mut kept = Vec::new();
        for &(start, length, list) in &self.branches {
            let list = lists[list as usize];
            if list != NONE {
                kept.push((elements.len(), length, list));
                elements.extend_from_slice(&self.branch_elements[start..start + length as usize]);
            }
        }
        self.branches = kept;
        self.branch_elements = elements;
        for (_, place) in &mut self.reads {
            if *place & BRANCH != 0 {
                *place = BRANCH | branches[(*place & !BRANCH) as usize];
            }
        }
        for list in &mut self.lists {
            list.branches.retain_mut(|branch| {
                *branch = branches[*branch as usize];
                *branch != NONE
            });
        }
    }

    fn keep_processes(&mut self) -> Vec<u32> {
        let count = self
            .processes
            .iter()
            .max()
            .map_or(0, |&highest| highest + 1);
        let mut stays = vec![false; count as usize];
        for &process in &self.processes {
            stays[process as usize] = true;
        }
        let processes = numbers(stays.into_iter());
        for process in &mut self.processes {
            *process = processes[*process as usize];
        }
        processes
    }
}
