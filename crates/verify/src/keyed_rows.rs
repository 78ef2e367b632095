//! Rows of a table by key, and the writers of each value.

use super::dense_number::TransactionNumber;
use super::transaction_table::TransactionTable;
use std::collections::BTreeSet;
use std::ops::Range;

/// Rows in groups, those of a key side by side in order (compressed rows, CSR); 4 bytes a key. The only table of rows of
/// this crate. It is filled in two passes over a source of rows, without comparisons ([`KeyedRows::new`]), or key after
/// key ([`KeyedRows::push`], [`KeyedRows::end_key`]).
pub(super) struct KeyedRows<T> {
    /// By key: where its rows start; one more, where the last ones end.
    starts: Vec<u32>,
    rows: Vec<T>,
}

impl<T> KeyedRows<T> {
    /// No key, with space for this number of keys.
    pub(super) fn with_capacity(key_count: usize) -> KeyedRows<T> {
        let mut starts = Vec::with_capacity(key_count + 1);
        starts.push(0);
        let rows = Vec::new();
        KeyedRows { starts, rows }
    }

    /// Adds a row of the key that has not ended yet.
    pub(super) fn push(&mut self, row: T) {
        self.rows.push(row);
    }

    /// Ends the last key.
    pub(super) fn end_key(&mut self) {
        let end = self.rows.len();
        assert!(u32::try_from(end).is_ok(), "{end} rows by key");
        self.starts.push(end as u32);
    }

    /// Number of keys.
    pub(super) fn key_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of rows of all keys.
    pub(super) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The rows of all keys, key after key.
    pub(super) fn rows(&self) -> &[T] {
        &self.rows
    }

    /// The range of a key's rows among those of all keys.
    pub(super) fn range(&self, key: u32) -> Range<usize> {
        let [start, end] = [key, key + 1].map(|at| self.starts[at as usize] as usize);
        start..end
    }

    /// The rows of a key, in order.
    pub(super) fn of(&self, key: u32) -> &[T] {
        &self.rows[self.range(key)]
    }

    /// The same, to be sorted.
    pub(super) fn of_mut(&mut self, key: u32) -> &mut [T] {
        let range = self.range(key);
        &mut self.rows[range]
    }

    /// The rows of each key.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        let mut rest = &mut self.rows[..];
        self.starts.array_windows().map(move |[start, end]| {
            let (group, others) = std::mem::take(&mut rest).split_at_mut((end - start) as usize);
            rest = others;
            group
        })
    }
}

impl<T: Copy + Default> KeyedRows<T> {
    /// `emit` passes on all rows with their keys, the same ones each time that it is called.
    pub(super) fn new(
        key_count: usize,
        mut emit: impl FnMut(&mut dyn FnMut(u32, T)),
    ) -> KeyedRows<T> {
        let mut starts = vec![0_u32; key_count + 1];
        emit(&mut |key, _| starts[key as usize + 1] += 1);
        for key in 0..key_count {
            starts[key + 1] += starts[key];
        }
        let mut rows = vec![T::default(); starts[key_count] as usize];
        let mut next = starts.clone();
        emit(&mut |key, row| {
            let place = &mut next[key as usize];
            rows[*place as usize] = row;
            *place += 1;
        });
        // The next place of each key is where the following key starts just if both passes had the same rows.
        assert!(
            next[..key_count] == starts[1..],
            "the second pass has other rows than the first"
        );
        assert_eq!(starts[key_count] as usize, rows.len());
        KeyedRows { starts, rows }
    }
}

/// The writes of a table, to be found by key and value in logarithmic time; 16 bytes a write.
pub(super) struct WrittenValues {
    /// By key: sorted by value and writer.
    all: KeyedRows<PackedWrite>,
}

/// A write; the writer's number is doubled, plus one if the writer wrote the key again afterwards.
#[derive(Clone, Copy, Default)]
struct PackedWrite {
    value: i64,
    writer: u32,
}

/// The transaction that wrote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueWriter {
    pub(super) transaction: u32,
    /// Was this its last write of the key?
    pub(super) is_last: bool,
}

impl PackedWrite {
    fn writer(self) -> ValueWriter {
        ValueWriter {
            transaction: self.writer / 2,
            is_last: self.writer & 1 == 0,
        }
    }
}

impl WrittenValues {
    /// The appends and writes of these transactions.
    pub(super) fn new(table: &TransactionTable, is_counted: impl Fn(u32) -> bool) -> WrittenValues {
        WrittenValues::select(table, |_| true, is_counted)
    }

    /// The appends and writes of these transactions to these keys.
    pub(super) fn of_keys(
        table: &TransactionTable,
        keys: &BTreeSet<u32>,
        is_counted: impl Fn(u32) -> bool,
    ) -> WrittenValues {
        let mut is_wanted = vec![false; table.key_count()];
        for &key in keys {
            is_wanted[key as usize] = true;
        }
        WrittenValues::select(table, |key| is_wanted[key as usize], is_counted)
    }

    fn select(
        table: &TransactionTable,
        is_wanted: impl Fn(u32) -> bool,
        is_counted: impl Fn(u32) -> bool,
    ) -> WrittenValues {
        // By key: the last transaction that emitted a write. Events are read in reverse, so its first one here is final.
        let mut last = vec![None; table.key_count()];
        let mut all = KeyedRows::new(table.key_count(), |emit| {
            // `KeyedRows` asks twice: to count, and to place.
            last.fill(None);
            for (number, _, events) in table.each().filter(|(number, ..)| is_counted(*number)) {
                for event in events.iter().rev().filter(|event| is_wanted(event.key)) {
                    if let Some(value) = event.appended().or(event.written()) {
                        let own = Some(TransactionNumber::new(number));
                        let later = std::mem::replace(&mut last[event.key as usize], own);
                        let writer = 2 * number + u32::from(later == own);
                        emit(event.key, PackedWrite { value, writer });
                    }
                }
            }
        });
        for group in all.each_mut() {
            group.sort_unstable_by_key(|one| (one.value, one.writer));
        }
        assert_eq!(all.key_count(), table.key_count());
        WrittenValues { all }
    }

    /// The transactions that wrote a value to a key.
    pub(super) fn of(&self, key: u32, value: i64) -> impl Iterator<Item = ValueWriter> {
        let group = self.all.of(key);
        let start = group.partition_point(|one| one.value < value);
        let same = group[start..]
            .iter()
            .take_while(move |one| one.value == value);
        same.map(|one| one.writer())
    }

    /// A key and a value that two of the transactions for which `counts` holds wrote to it, if there is one.
    pub(super) fn twice(&self, counts: impl Fn(u32) -> bool) -> Option<(u32, i64)> {
        let mut keys = 0..self.all.key_count() as u32;
        keys.find_map(|key| {
            let mut same = self.all.of(key).chunk_by(|a, b| a.value == b.value);
            let found = same.find(|same| {
                let writers = same.iter().map(|one| one.writer().transaction);
                writers.filter(|&one| counts(one)).count() > 1
            })?;
            Some((key, found[0].value))
        })
    }
}
