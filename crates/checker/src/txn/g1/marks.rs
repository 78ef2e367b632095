//! What is known of a key's elements, a few bits each.

use seatrial_history::Key;
use std::collections::BTreeMap;

/// Somebody appended it.
pub(super) const WRITTEN: usize = 0;
/// Its transaction failed.
pub(super) const FAILED: usize = 1;
/// Its own transaction appended more to the key after it.
pub(super) const INTERMEDIATE: usize = 2;
/// A successful transaction read it.
pub(super) const SEEN: usize = 3;
/// It was the last element that a successful transaction read, which did not append it itself.
pub(super) const LAST: usize = 4;
/// More than one operation appends it: an attempt that failed, and a retry.
pub(super) const REPEATED: usize = 5;

/// Sets of 64 neighbouring elements: one word for each of the six marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    /// The elements from 64 times this on.
    number: i64,
    words: [u64; 6],
}

/// The marks of one key's elements.
///
/// Rows lie in the order of their elements, only where there are any: 56 bytes for each 64 of a key that counts, which
/// is less than a byte per element. Marks are only ever added, so chunks can be marked side by side and joined in any
/// order. Its downside: elements that are far apart take a row each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    rows: Vec<Row>,
}

/// The marks of all keys.
pub(super) type Keys = BTreeMap<Key, Marks>;

impl Marks {
    /// Where the row of `element` is, made if there is none.
    fn row(&mut self, element: i64) -> &mut Row {
        let number = element >> 6;
        let place = match self.rows.last() {
            // Elements mostly come in order.
            Some(last) if last.number == number => self.rows.len() - 1,
            Some(last) if last.number > number => {
                let found = self.rows.binary_search_by_key(&number, |row| row.number);
                match found {
                    Ok(place) => place,
                    Err(place) => self.insert(place, number),
                }
            }
            _ => self.insert(self.rows.len(), number),
        };
        &mut self.rows[place]
    }

    fn insert(&mut self, place: usize, number: i64) -> usize {
        let words = [0; 6];
        self.rows.insert(place, Row { number, words });
        place
    }

    /// Marks `element`; was it marked so before?
    pub(super) fn mark(&mut self, element: i64, mark: usize) -> bool {
        let bit = 1 << (element & 63);
        let word = &mut self.row(element).words[mark];
        let before = *word & bit != 0;
        *word |= bit;
        before
    }

    /// Marks all elements of a list as seen, and those as last that `is_last` says.
    pub(super) fn see(&mut self, elements: &[i64], is_last: &[bool]) {
        let mut pairs = elements.iter().zip(is_last).peekable();
        while let Some(&(first, _)) = pairs.peek() {
            // Neighbours share a row.
            let number = first >> 6;
            let (mut seen, mut last) = (0_u64, 0_u64);
            while let Some((element, is_last)) =
                pairs.next_if(|(element, _)| *element >> 6 == number)
            {
                seen |= 1 << (element & 63);
                last |= u64::from(*is_last) << (element & 63);
            }
            let row = self.row(*first);
            row.words[SEEN] |= seen;
            row.words[LAST] |= last;
        }
    }

    /// Is `element` marked so?
    pub(super) fn is(&self, element: i64, mark: usize) -> bool {
        let number = element >> 6;
        let found = self.rows.binary_search_by_key(&number, |row| row.number);
        found.is_ok_and(|place| self.rows[place].words[mark] >> (element & 63) & 1 == 1)
    }

    /// Takes a mark off.
    pub(super) fn clear(&mut self, element: i64, mark: usize) {
        self.row(element).words[mark] &= !(1 << (element & 63));
    }

    /// Adds the marks of other chunks. An element that was appended both here and there is repeated; is there one?
    pub(super) fn join(&mut self, other: Marks) -> bool {
        if self.rows.is_empty() {
            *self = other;
            return false;
        }
        let mut has_repeated = false;
        for row in other.rows {
            let mine = self.row(row.number << 6);
            let both = mine.words[WRITTEN] & row.words[WRITTEN];
            has_repeated |= both != 0;
            for (word, more) in mine.words.iter_mut().zip(row.words) {
                *word |= more;
            }
            mine.words[REPEATED] |= both;
        }
        has_repeated
    }

    /// Does more than one operation append one of its elements?
    pub(super) fn has_repeated(&self) -> bool {
        self.any(|words| words[REPEATED])
    }

    fn any(&self, of: impl Fn(&[u64; 6]) -> u64) -> bool {
        self.rows.iter().any(|row| of(&row.words) != 0)
    }

    /// Was an element read whose transaction failed?
    pub(super) fn has_aborted_read(&self) -> bool {
        self.any(|words| words[FAILED] & words[SEEN])
    }

    /// Did a read end with an element that its own transaction appended more after?
    pub(super) fn has_intermediate_read(&self) -> bool {
        self.any(|words| words[INTERMEDIATE] & words[LAST])
    }

    /// Was an element read that nobody appended?
    pub(super) fn has_garbage_read(&self) -> bool {
        self.any(|words| words[SEEN] & !words[WRITTEN])
    }

    /// Is there any anomaly?
    pub(super) fn is_suspect(&self) -> bool {
        self.has_aborted_read() || self.has_intermediate_read() || self.has_garbage_read()
    }

    /// Is nothing marked?
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many elements were appended.
    pub(super) fn written(&self) -> u64 {
        let counts = self.rows.iter();
        counts
            .map(|row| u64::from(row.words[WRITTEN].count_ones()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn marks_are_six_sets() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut parts = [Marks::default(), Marks::default()];
            let mut twins: [BTreeSet<(i64, usize)>; 2] = Default::default();
            let extremes = [i64::MIN, i64::MAX, -1, 0, 63, 64];
            for _ in 0..rng.below(200) {
                let element = match rng.below(8) {
                    0 => *rng.pick(&extremes),
                    1 => rng.word().cast_signed(),
                    _ => rng.below(300).cast_signed() - 100,
                };
                let (part, mark) = (rng.index(2), rng.index(6));
                let is_new = twins[part].insert((element, mark));
                assert_eq!(parts[part].mark(element, mark), !is_new, "seed {seed}");
            }
            let [mut all, more] = parts;
            let [mut twin, other] = twins;
            let is_written = |&&(_, mark): &&(i64, usize)| mark == WRITTEN;
            let both = twin.intersection(&other).filter(is_written);
            let repeated: Vec<_> = both.map(|&(element, _)| (element, REPEATED)).collect();
            assert_eq!(all.join(more), !repeated.is_empty(), "seed {seed}");
            twin.extend(other);
            twin.extend(repeated);
            for &(element, mark) in &twin {
                assert!(all.is(element, mark), "seed {seed}");
            }
            let count = |mark| twin.iter().filter(|one| one.1 == mark).count() as u64;
            assert_eq!(all.written(), count(WRITTEN), "seed {seed}");
            let pair = |a, b| {
                twin.iter()
                    .any(|one| one.1 == a && twin.contains(&(one.0, b)))
            };
            assert_eq!(all.has_aborted_read(), pair(FAILED, SEEN));
            assert_eq!(all.has_intermediate_read(), pair(INTERMEDIATE, LAST));
            let garbage = |one: &(i64, usize)| one.1 == SEEN && !twin.contains(&(one.0, WRITTEN));
            assert_eq!(all.has_garbage_read(), twin.iter().any(garbage));
            assert!(!all.is(77, LAST) || twin.contains(&(77, LAST)));
            let is_repeated = |one: &(i64, usize)| one.1 == REPEATED;
            assert_eq!(all.has_repeated(), twin.iter().any(is_repeated));
            for &(element, mark) in &twin {
                all.clear(element, mark);
                assert!(!all.is(element, mark), "seed {seed}");
            }
            assert!(!all.any(|words| words.iter().fold(0, |all, word| all | word)));
        }
    }
}
