//! A bit for each operation of a chunk.

/// A bit for each operation of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    words: Vec<u64>,
    length: usize,
    /// Number of places before each group of words; empty unless indexed. An indexed mask is not changed.
    sums: Vec<u32>,
}

/// Words of a group.
const GROUP: usize = 8;

impl Mask {
    /// The places from `start` to `end`, of a chunk with this many places.
    pub(super) fn of(length: usize, start: usize, end: usize) -> Mask {
        let mut words = vec![0; length.div_ceil(64)];
        let (start, end) = (start.min(length), end.min(length));
        for (number, word) in words.iter_mut().enumerate() {
            let first = number * 64;
            let (from, to) = (start.clamp(first, first + 64), end.clamp(first, first + 64));
            if from < to {
                *word = (u64::MAX >> (64 - (to - from))) << (from - first);
            }
        }
        Mask {
            words,
            length,
            sums: Vec::new(),
        }
    }

    /// Adds the index for fast ranks.
    pub(super) fn indexed(mut self) -> Mask {
        let mut sum = 0;
        self.sums.reserve_exact(self.words.len().div_ceil(GROUP));
        for group in self.words.chunks(GROUP) {
            self.sums.push(sum);
            sum += group.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        self
    }

    /// The first word of the last group with at most `rank` places before it, and their number.
    fn group_of_rank(&self, rank: usize) -> (usize, usize) {
        let after = self.sums.partition_point(|&sum| sum as usize <= rank);
        match after.checked_sub(1) {
            Some(group) => (group * GROUP, self.sums[group] as usize),
            None => (0, 0),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of::<Mask>() + 8 * self.words.capacity() + 4 * self.sums.capacity()) as u64
    }

    /// Number of places in the mask.
    pub(super) fn count(&self) -> usize {
        let counts = self.words.iter().map(|word| word.count_ones() as usize);
        counts.sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Is this place in the mask?
    pub(super) fn has(&self, place: usize) -> bool {
        let word = self.words.get(place / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// The rank of a place: the number of places in the mask before it.
    pub(super) fn rank(&self, place: usize) -> usize {
        let place = place.min(self.length);
        let group = place / 64 / GROUP;
        let (first, sum) = match self.sums.get(group) {
            Some(&sum) => (group * GROUP, sum as usize),
            None => (0, 0),
        };
        let whole = self.words[first..place / 64].iter();
        let whole: usize = whole.map(|word| word.count_ones() as usize).sum();
        let part = match (self.words.get(place / 64), place % 64) {
            (Some(word), bits) if bits > 0 => (word << (64 - bits)).count_ones() as usize,
            _ => 0,
        };
        sum + whole + part
    }

    /// The place with this rank.
    pub(super) fn select(&self, rank: usize) -> Option<usize> {
        let (first, before) = self.group_of_rank(rank);
        let mut left = rank - before;
        for (number, &word) in self.words.iter().enumerate().skip(first) {
            let count = word.count_ones() as usize;
            if left < count {
                let mut word = word;
                for _ in 0..left {
                    word &= word - 1;
                }
                return Some(number * 64 + word.trailing_zeros() as usize);
            }
            left -= count;
        }
        None
    }

    /// The first place in it from `place` on.
    pub(super) fn next(&self, place: usize) -> Option<usize> {
        let mut number = place / 64;
        let mut word = self.words.get(number)? & (u64::MAX << (place % 64));
        while word == 0 {
            number += 1;
            word = *self.words.get(number)?;
        }
        Some(number * 64 + word.trailing_zeros() as usize)
    }

    /// Keeps the places whose value in `column`, one for each place, is one to keep. Asks about all.
    pub(super) fn retain_column<T>(&mut self, column: &[T], keep: impl Fn(&T) -> bool) {
        for (word, values) in self.words.iter_mut().zip(column.chunks(64)) {
            let mut kept = 0;
            for (bit, value) in values.iter().enumerate() {
                kept |= u64::from(keep(value)) << bit;
            }
            *word &= kept;
        }
    }

    /// Keeps the places for which `keep` is true; called only for places in the mask.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (number, word) in self.words.iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                if !keep(number * 64 + bit as usize) {
                    *word &= !(1 << bit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn a_mask_equals_a_list_of_places() {
        let mut rng = Rng::from_seed(11);
        for length in [0, 1, 63, 64, 65, 200, 512, 1_000, 2_500] {
            let bounds = [rng.index(length + 2), rng.index(length + 2)];
            let (start, end) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
            let column: Vec<u64> = (0..length).map(|_| rng.below(3)).collect();
            let mut mask = Mask::of(length, start, end);
            mask.retain_column(&column, |&value| value > 0);
            mask.retain(|place| place % 5 != 1);
            let twin: Vec<usize> = (start..end.min(length))
                .filter(|&place| column[place] > 0 && place % 5 != 1)
                .collect();
            let places = (0..length).filter(|&place| mask.has(place));
            assert_eq!(places.collect::<Vec<_>>(), twin);
            assert_eq!(
                (mask.count(), mask.is_empty()),
                (twin.len(), twin.is_empty())
            );
            let indexed = mask.clone().indexed();
            for place in 0..length + 70 {
                assert_eq!(indexed.rank(place), mask.rank(place));
                assert_eq!(indexed.select(place), mask.select(place));
                assert_eq!(mask.has(place), twin.contains(&place));
                let before = twin.iter().filter(|&&other| other < place);
                assert_eq!(mask.rank(place), before.count(), "{place} of {length}");
                let next = twin.iter().find(|&&other| other >= place);
                assert_eq!(mask.next(place), next.copied());
                assert_eq!(mask.select(place), twin.get(place).copied());
            }
        }
    }
}
