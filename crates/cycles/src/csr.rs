//! Rows of items in two arrays: the compressed rows of sparse matrices.

use crate::components::Adjacency;
use std::ops::Range;

/// Rows of items, one after the other in one array (compressed sparse rows, CSR).
///
/// ```text
///   row 0: a b      starts  0 2 2 5
///   row 1:          items   a b c d e
///   row 2: c d e
/// ```
///
/// Four bytes a row and one item each; a row is a slice. It is filled in one of three ways:
///
/// - [`Csr::group`] sorts pairs (row, item) by row with a counting sort: two passes over the pairs, linear, stable.
/// - [`CsrCounter`] does the same for a source that emits its pairs twice, so that no list of pairs is ever held.
/// - [`Csr::push`] and [`Csr::end_row`] append rows in order.
///
/// A graph is a `Csr<u32>` of targets by source ([`Adjacency`]).
///
/// ```
/// use seatrial_cycles::Csr;
///
/// let pairs = [(2, 'c'), (0, 'a'), (2, 'd'), (0, 'b'), (2, 'e')];
/// let rows = Csr::group(3, pairs.iter().copied());
/// assert_eq!(rows.row(0), ['a', 'b']);
/// assert!(rows.row(1).is_empty());
/// assert_eq!(rows.row(2), ['c', 'd', 'e']);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csr<T> {
    /// By row: where its items start; one more, where the last row ends.
    starts: Vec<u32>,
    items: Vec<T>,
}

/// More items than 32 bits can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyItems;

impl<T> Default for Csr<T> {
    fn default() -> Csr<T> {
        Csr {
            starts: vec![0],
            items: Vec::new(),
        }
    }
}

impl<T> Csr<T> {
    /// No rows, with space for `rows` rows.
    pub fn with_capacity(rows: usize) -> Csr<T> {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        let items = Vec::new();
        Csr { starts, items }
    }

    /// Appends an item to the last row, which has not ended yet.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// The items of all rows, to append several to the last row, which has not ended yet.
    pub fn open_row(&mut self) -> &mut Vec<T> {
        &mut self.items
    }

    /// Ends the last row. Items that were taken out of it again ([`Csr::open_row`]) must not be those of rows before.
    pub fn end_row(&mut self) {
        let end = self.items.len();
        assert!(u32::try_from(end).is_ok(), "{end} items in rows");
        let start = self.starts.last().copied().unwrap_or(0);
        assert!(start as usize <= end, "items of an earlier row are missing");
        self.starts.push(end as u32);
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The numbers of all rows.
    pub fn row_numbers(&self) -> Range<u32> {
        0..self.row_count() as u32
    }

    /// Number of items in all rows.
    pub fn item_count(&self) -> usize {
        self.items.len()
    }

    /// The items of a row.
    #[inline]
    pub fn row(&self, row: u32) -> &[T] {
        let range = self.range(row);
        &self.items[range.start as usize..range.end as usize]
    }

    /// The items of a row, to be put into another order or changed in place.
    #[inline]
    pub fn row_mut(&mut self, row: u32) -> &mut [T] {
        let range = self.range(row);
        &mut self.items[range.start as usize..range.end as usize]
    }

    /// The items of several rows, from the first to the last, the last one included.
    pub fn rows_between(&self, first: u32, last: u32) -> &[T] {
        &self.items[self.starts[first as usize] as usize..self.starts[last as usize + 1] as usize]
    }

    /// Where the items of a row are among all.
    #[inline]
    pub fn range(&self, row: u32) -> Range<u32> {
        let row = row as usize;
        self.starts[row]..self.starts[row + 1]
    }

    /// The items of all rows, row after row.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// All rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        let ends = self.starts.array_windows();
        ends.map(|&[start, end]| &self.items[start as usize..end as usize])
    }

    /// Each item with its row, row after row.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, &T)> {
        let rows = self.rows().zip(0_u32..);
        rows.flat_map(|(items, row)| items.iter().map(move |item| (row, item)))
    }

    /// Do the starts divide exactly these items into rows?
    fn assert_divided(&self) {
        assert!(
            self.starts.first() == Some(&0),
            "the first row is not first"
        );
        assert!(
            self.starts
                .last()
                .is_some_and(|&end| end as usize == self.items.len()),
            "the last row does not end with the items"
        );
        debug_assert!(self.starts.is_sorted(), "a row ends before it starts");
    }
}

impl<T: Copy> Csr<T> {
    /// Keeps the rows in question, in their order; items move to the front, in place.
    pub fn retain_rows(&mut self, stays: impl Fn(u32) -> bool) {
        let (mut start, mut length, mut kept) = (0, 0, 0);
        for row in 0..self.row_count() {
            let end = self.starts[row + 1] as usize;
            if stays(row as u32) {
                self.items.copy_within(start..end, length);
                length += end - start;
                kept += 1;
                // Rows that stay are no more than those seen, so no start is overwritten before it is read.
                self.starts[kept] = length as u32;
            }
            start = end;
        }
        self.items.truncate(length);
        self.starts.truncate(kept + 1);
        self.assert_divided();
    }
}

impl<T: Copy + Default> Csr<T> {
    /// Sorts pairs of row and item by row; the items of a row keep their order. `pairs` is iterated twice and must
    /// give the same pairs both times.
    pub fn group(rows: usize, pairs: impl Iterator<Item = (u32, T)> + Clone) -> Csr<T> {
        let mut counter = CsrCounter::new(rows);
        for (row, _) in pairs.clone() {
            counter.count(row);
        }
        let mut filler = counter
            .into_filler()
            .expect("pairs that are held are fewer than 2^32");
        for (row, item) in pairs {
            filler.put(row, item);
        }
        filler.finish()
    }
}

/// The first pass over a source of pairs (row, item): counts the items of each row.
///
/// ```
/// use seatrial_cycles::CsrCounter;
///
/// let mut counter = CsrCounter::new(2);
/// for row in [1, 0, 1] {
///     counter.count(row);
/// }
/// let mut filler = counter.into_filler().unwrap();
/// for (row, item) in [(1, 10), (0, 20), (1, 30)] {
///     filler.put(row, item);
/// }
/// assert_eq!(filler.finish().row(1), [10, 30]);
/// ```
pub struct CsrCounter {
    /// Two places ahead of each row: the number of its items. [`CsrFiller`] needs the space in front.
    counts: Vec<u32>,
}

impl CsrCounter {
    /// A counter for `rows` rows.
    pub fn new(rows: usize) -> CsrCounter {
        CsrCounter {
            counts: vec![0; rows + 2],
        }
    }

    /// Adds an empty row at the end.
    pub fn add_row(&mut self) {
        self.counts.push(0);
    }

    /// Counts an item of a row.
    #[inline]
    pub fn count(&mut self, row: u32) {
        self.counts[row as usize + 2] += 1;
    }

    /// The table for the second pass, which must emit the same pairs.
    pub fn into_filler<T: Copy + Default>(self) -> Result<CsrFiller<T>, TooManyItems> {
        let mut ends = self.counts;
        let mut sum = 0_u32;
        for end in &mut ends {
            sum = sum.checked_add(*end).ok_or(TooManyItems)?;
            *end = sum;
        }
        Ok(CsrFiller {
            items: vec![T::default(); sum as usize],
            fingerprint: fingerprint(&ends[2..]),
            ends,
        })
    }
}

/// The second pass over a source of pairs (row, item): puts each item into its row.
pub struct CsrFiller<T> {
    /// One place ahead of each row: where its next item belongs. When all are there, this is where the row ends,
    /// that is where the next row starts: no second array of starts is needed.
    ends: Vec<u32>,
    items: Vec<T>,
    /// Of where the rows will end: the second pass must come to the same.
    fingerprint: u64,
}

/// A hash of where rows end; different for ends that differ in one place, and for almost all others.
fn fingerprint(ends: &[u32]) -> u64 {
    let mix = |hash: u64, &end: &u32| (hash ^ u64::from(end)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ends.iter().fold(0, mix)
}

impl<T: Copy> CsrFiller<T> {
    /// Puts the next item into a row. Returns its position among all items.
    #[inline]
    pub fn put(&mut self, row: u32, item: T) -> u32 {
        let end = &mut self.ends[row as usize + 1];
        let position = *end;
        self.items[position as usize] = item;
        *end += 1;
        position
    }

    /// The rows.
    pub fn finish(mut self) -> Csr<T> {
        // The last place was there only while the rows were filled.
        self.ends.pop();
        assert!(
            fingerprint(&self.ends[1..]) == self.fingerprint,
            "the second pass has other rows than the first"
        );
        let rows = Csr {
            starts: self.ends,
            items: self.items,
        };
        rows.assert_divided();
        rows
    }
}

impl Adjacency for Csr<u32> {
    fn node_count(&self) -> usize {
        self.row_count()
    }

    fn edges(&self, node: u32) -> Range<u32> {
        self.range(node)
    }

    fn target(&self, edge: u32) -> Option<u32> {
        Some(self.items[edge as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn rows_hold_their_items_in_order() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let rows = 1 + rng.index(9);
            let pairs: Vec<(u32, u32)> = (0..rng.below(40))
                .map(|_| (rng.index(rows) as u32, rng.below(6) as u32))
                .collect();
            let grouped = Csr::group(rows, pairs.iter().copied());
            assert_eq!(
                (grouped.row_count(), grouped.item_count()),
                (rows, pairs.len())
            );
            let mut appended = Csr::with_capacity(rows);
            for row in 0..rows as u32 {
                let own = pairs.iter().filter(|pair| pair.0 == row);
                let own: Vec<u32> = own.map(|pair| pair.1).collect();
                assert_eq!(grouped.row(row), own, "seed {seed}");
                appended.open_row().extend(own);
                appended.end_row();
            }
            assert_eq!(grouped, appended);
            let all: Vec<_> = grouped.pairs().collect();
            assert!(all.is_sorted_by_key(|pair| pair.0));
            assert_eq!(all.len(), pairs.len());
            let expected: Vec<Vec<u32>> = grouped.rows().map(<[u32]>::to_vec).collect();
            let stays: Vec<bool> = expected.iter().map(|_| rng.chance(0.6)).collect();
            let mut retained = grouped;
            retained.retain_rows(|row| stays[row as usize]);
            let staying = expected.iter().zip(&stays);
            let staying = staying.filter_map(|(row, stays)| stays.then_some(row.as_slice()));
            assert!(retained.rows().eq(staying), "seed {seed}");
        }
    }

    #[test]
    #[should_panic(expected = "other rows")]
    fn two_passes_that_differ_are_refused() {
        let mut counter = CsrCounter::new(2);
        counter.count(0);
        counter.count(1);
        let mut filler = counter.into_filler::<u32>().unwrap();
        filler.put(0, 1);
        filler.put(0, 2);
        let _ = filler.finish();
    }

    #[test]
    #[should_panic(expected = "other rows")]
    fn a_second_pass_that_ends_early_is_refused() {
        let mut counter = CsrCounter::new(1);
        counter.count(0);
        let _ = counter.into_filler::<u32>().unwrap().finish();
    }
}
