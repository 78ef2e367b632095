//! Element bits: six facts about each element of a key, one bit each.

use seatrial_history::Key;
use std::collections::BTreeMap;

/// It was appended.
pub(super) const WRITTEN: usize = 0;
/// Its transaction failed.
pub(super) const FAILED: usize = 1;
/// Its transaction appended more to the key after it.
pub(super) const INTERMEDIATE: usize = 2;
/// A successful transaction read it.
pub(super) const SEEN: usize = 3;
/// It was the last element of a read by a successful transaction that did not append it itself.
pub(super) const LAST: usize = 4;
/// Several operations append it: a failed attempt, and a retry.
pub(super) const REPEATED: usize = 5;

/// The bits of 64 adjacent elements: one word for each of the six facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitRow {
    /// The elements start at 64 times this number.
    number: i64,
    words: [u64; 6],
}

/// The bits of one key's elements.
///
/// Rows are sorted by element, and exist only where there are elements: 56 bytes for 64 consecutive elements, less than a byte
/// each. Bits are only set while chunks are read, so chunks can be read in parallel and joined in any order. Its downside:
/// elements that are far apart take a row each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ElementBits {
    rows: Vec<BitRow>,
}

/// The bits of all keys.
pub(super) type KeyBits = BTreeMap<Key, ElementBits>;

impl ElementBits {
    /// The row of `element`, new if necessary.
    fn row(&mut self, element: i64) -> &mut BitRow {
        let number = element >> 6;
        let place = match self.rows.last() {
            // The fast path: elements mostly ascend.
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
        self.rows.insert(place, BitRow { number, words });
        place
    }

    /// Sets a bit of `element`; true if it was set before.
    pub(super) fn set(&mut self, element: i64, mark: usize) -> bool {
        let bit = 1 << (element & 63);
        let word = &mut self.row(element).words[mark];
        let before = *word & bit != 0;
        *word |= bit;
        before
    }

    /// Sets [`SEEN`] for all elements of a list, and [`LAST`] where `is_last` is true.
    pub(super) fn set_seen(&mut self, elements: &[i64], is_last: &[bool]) {
        assert!(
            elements.len() <= is_last.len(),
            "each element of the list has a flag"
        );
        let mut pairs = elements.iter().zip(is_last).peekable();
        while let Some(&(first, _)) = pairs.peek() {
            // Adjacent elements share a row: their bits are collected in two words and set at once.
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

    /// Is this bit of `element` set?
    pub(super) fn get(&self, element: i64, mark: usize) -> bool {
        let number = element >> 6;
        let found = self.rows.binary_search_by_key(&number, |row| row.number);
        found.is_ok_and(|place| self.rows[place].words[mark] >> (element & 63) & 1 == 1)
    }

    /// Clears a bit of `element`.
    pub(super) fn clear(&mut self, element: i64, mark: usize) {
        self.row(element).words[mark] &= !(1 << (element & 63));
    }

    /// Adds the bits of other chunks. An element that was appended in both is repeated; true if there is one.
    pub(super) fn join(&mut self, other: ElementBits) -> bool {
        if self.rows.is_empty() {
            *self = other;
            return false;
        }
        let mut has_repeated = false;
        for row in other.rows {
            // The first element of the row finds it, or makes it.
            let mine = self.row(row.number << 6);
            let both = mine.words[WRITTEN] & row.words[WRITTEN];
            has_repeated |= both != 0;
            for (word, more) in mine.words.iter_mut().zip(row.words) {
                *word |= more;
            }
            mine.words[REPEATED] |= both;
        }
        debug_assert!(
            self.rows.is_sorted_by(|a, b| a.number < b.number),
            "rows ascend, each number once"
        );
        has_repeated
    }

    /// Do several operations append one of its elements?
    pub(super) fn has_repeated(&self) -> bool {
        self.any(|words| words[REPEATED])
    }

    fn any(&self, of: impl Fn(&[u64; 6]) -> u64) -> bool {
        self.rows.iter().any(|row| of(&row.words) != 0)
    }

    /// Was an element of a failed transaction read?
    pub(super) fn has_aborted_read(&self) -> bool {
        self.any(|words| words[FAILED] & words[SEEN])
    }

    /// Did a read end with an intermediate element?
    pub(super) fn has_intermediate_read(&self) -> bool {
        self.any(|words| words[INTERMEDIATE] & words[LAST])
    }

    /// Was an element read that was never appended?
    pub(super) fn has_garbage_read(&self) -> bool {
        self.any(|words| words[SEEN] & !words[WRITTEN])
    }

    /// Is there any anomaly?
    pub(super) fn is_suspect(&self) -> bool {
        self.has_aborted_read() || self.has_intermediate_read() || self.has_garbage_read()
    }

    /// Is no bit set?
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of elements that were appended.
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
    fn element_bits_are_six_sets() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut parts = [ElementBits::default(), ElementBits::default()];
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
                assert_eq!(parts[part].set(element, mark), !is_new, "seed {seed}");
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
                assert!(all.get(element, mark), "seed {seed}");
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
            assert!(!all.get(77, LAST) || twin.contains(&(77, LAST)));
            let is_repeated = |one: &(i64, usize)| one.1 == REPEATED;
            assert_eq!(all.has_repeated(), twin.iter().any(is_repeated));
            for &(element, mark) in &twin {
                all.clear(element, mark);
                assert!(!all.get(element, mark), "seed {seed}");
            }
            assert!(!all.any(|words| words.iter().fold(0, |all, word| all | word)));
        }
    }
}
