//! Rows of reads and writes, in the order in which transactions completed.

use seatrial_cycles::{Csr, Txn};
use std::ops::Range;

/// The reads or writes of transactions, a row for each that completed, in the order of completions.
///
/// ```text
///   transaction   2     0      3          in the order in which rows ended
///   row           a b   c      d e f      one array of items
/// ```
///
/// A pass over a history ends a row when it has read the completion, so rows are only appended and no transaction needs
/// space for reads that are yet to come. Eight bytes a row and one item each. [`CompletionRows::by_transaction`] sorts the
/// rows by transaction when all are there, for checkers that look transactions up.
#[derive(Clone, Debug)]
pub struct CompletionRows<T> {
    /// By row: its transaction.
    transactions: Vec<Txn>,
    rows: Csr<T>,
}

impl<T> Default for CompletionRows<T> {
    fn default() -> CompletionRows<T> {
        CompletionRows {
            transactions: Vec::new(),
            rows: Csr::default(),
        }
    }
}

impl<T> CompletionRows<T> {
    /// Appends an item to the last row, which has not ended yet.
    #[inline]
    pub fn push(&mut self, item: T) {
        self.rows.push(item);
    }

    /// Ends the last row, which is that of this transaction.
    #[inline]
    pub fn end_row(&mut self, number: Txn) {
        self.rows.end_row();
        self.transactions.push(number);
    }

    /// By row: its transaction, in the order of completions.
    #[inline]
    pub fn transactions(&self) -> &[Txn] {
        &self.transactions
    }

    /// Number of items in all rows, also in the one that has not ended.
    #[inline]
    pub fn item_count(&self) -> usize {
        self.rows.item_count()
    }

    /// The items of all rows.
    #[inline]
    pub fn items(&self) -> &[T] {
        self.rows.items()
    }

    /// The items of all rows, to be changed in place, and the last row to be extended.
    #[inline]
    pub fn items_mut(&mut self) -> &mut [T] {
        self.rows.open_row()
    }

    /// Where the items of a row are among all.
    #[inline]
    pub fn range(&self, row: u32) -> Range<u32> {
        self.rows.range(row)
    }

    /// All rows with their transactions.
    pub fn iter(&self) -> impl Iterator<Item = (Txn, &[T])> {
        self.transactions.iter().copied().zip(self.rows.rows())
    }

    /// All items with their transactions.
    pub fn pairs(&self) -> impl Iterator<Item = (Txn, &T)> {
        let rows = self.iter();
        rows.flat_map(|(number, items)| items.iter().map(move |item| (number, item)))
    }

    /// Asserts that there is one row for each of the transactions that have one, and no row without an end.
    pub fn assert_complete(&self) {
        assert_eq!(
            self.transactions.len(),
            self.rows.row_count(),
            "each row has a transaction"
        );
        let ended = self.rows.row_count().checked_sub(1);
        assert_eq!(
            ended.map_or(0, |last| self.rows.range(last as u32).end as usize),
            self.rows.item_count(),
            "the last row has ended"
        );
    }
}

impl<T: Copy> CompletionRows<T> {
    /// Keeps the rows of transactions that have a new number, and renames these. In place: a window has more items than
    /// anything else.
    pub fn keep(&mut self, numbers: &[Option<Txn>]) {
        let transactions = &self.transactions;
        self.rows
            .retain_rows(|row| numbers[transactions[row as usize].index()].is_some());
        self.transactions.retain_mut(|number| {
            let renamed = numbers[number.index()];
            *number = renamed.unwrap_or(*number);
            renamed.is_some()
        });
        self.assert_complete();
    }

    /// The rows in the order of their transactions, of which there are `count`; that of a transaction without a row is
    /// empty. Moves nothing if they are in this order already.
    pub fn by_transaction(self, count: usize) -> Csr<T> {
        self.assert_complete();
        let is_sorted = self.transactions.len() == count
            && self.transactions.iter().copied().eq(Txn::all(count));
        if is_sorted {
            return self.rows;
        }
        let mut places: Vec<Option<u32>> = vec![None; count];
        for (&number, row) in self.transactions.iter().zip(0..) {
            let before = places[number.index()].replace(row);
            assert!(before.is_none(), "a transaction has one row");
        }
        let mut sorted = Csr::with_capacity(count);
        sorted.open_row().reserve_exact(self.rows.item_count());
        for place in places {
            if let Some(row) = place {
                sorted.open_row().extend_from_slice(self.rows.row(row));
            }
            sorted.end_row();
        }
        assert_eq!(sorted.item_count(), self.rows.item_count());
        sorted
    }
}
