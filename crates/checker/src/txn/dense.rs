//! Dense numbers in place of keys and values.

use seatrial_history::Key;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};

/// A hash map whose order and speed are the same in every run.
pub(crate) type Map<K, V> = HashMap<K, V, Mix>;

/// Multiply-and-fold hashing of a few integers. Not for hostile keys: an adversary could slow a checker down, as he
/// could with any large history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

impl BuildHasher for Mix {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        *self
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_i64(&mut self, word: i64) {
        self.write_u64(word.cast_unsigned());
    }
}

/// Which of many (key, value) pairs is where: a table by value for each key whose values lie close together, as
/// counters do, and a hash map for the rest.
#[derive(Default)]
pub(super) struct Elements {
    spans: Vec<Span>,
    tables: Vec<u32>,
    sparse: Map<(u32, i64), u32>,
}

/// The values of one key.
#[derive(Clone, Copy)]
struct Span {
    low: i64,
    /// Where its table begins.
    first: usize,
    /// Length of its table; 0 when its values are in the hash map.
    length: usize,
}

/// A place in a table that nothing has.
const EMPTY: u32 = u32::MAX;

impl Elements {
    /// The index of `pairs`, whose keys are below `keys`. The error names two equal ones.
    pub(super) fn new(
        keys: usize,
        pairs: impl Iterator<Item = (u32, i64)> + Clone,
    ) -> Result<Elements, (u32, u32)> {
        let mut ranges = vec![(0_usize, i64::MAX, i64::MIN); keys];
        for (key, value) in pairs.clone() {
            let (count, low, high) = &mut ranges[key as usize];
            *count += 1;
            *low = (*low).min(value);
            *high = (*high).max(value);
        }
        let mut elements = Elements::default();
        let mut first = 0;
        for (count, low, high) in ranges {
            let span = high
                .checked_sub(low)
                .and_then(|span| usize::try_from(span).ok());
            let length = span
                .filter(|&span| span < 4 * count + 16)
                .map_or(0, |span| span + 1);
            elements.spans.push(Span { low, first, length });
            first += length;
        }
        elements.tables = vec![EMPTY; first];
        for (number, (key, value)) in pairs.enumerate() {
            let number = number as u32;
            let slot = match elements.place(key, value) {
                Some(place) => &mut elements.tables[place],
                None => elements.sparse.entry((key, value)).or_insert(EMPTY),
            };
            if *slot != EMPTY {
                return Err((*slot, number));
            }
            *slot = number;
        }
        Ok(elements)
    }

    /// Where the value stands in the tables; `None` when its key has none.
    fn place(&self, key: u32, value: i64) -> Option<usize> {
        let Span { low, first, length } = self.spans[key as usize];
        let offset = usize::try_from(value.checked_sub(low)?).ok()?;
        (offset < length).then_some(first + offset)
    }

    /// The position of this pair among all.
    pub(super) fn find(&self, key: u32, value: i64) -> Option<u32> {
        if self.spans[key as usize].length == 0 {
            return self.sparse.get(&(key, value)).copied();
        }
        let number = self.tables[self.place(key, value)?];
        (number != EMPTY).then_some(number)
    }
}

/// Numbers for keys, in order of first appearance.
#[derive(Default)]
pub(super) struct Keys<'a> {
    integers: Map<i64, u32>,
    others: BTreeMap<&'a Key, u32>,
    known: Vec<&'a Key>,
}

impl<'a> Keys<'a> {
    /// The number of `key`.
    pub(super) fn number(&mut self, key: &'a Key) -> u32 {
        let next = self.known.len() as u32;
        let number = match key {
            Key::Int(integer) => *self.integers.entry(*integer).or_insert(next),
            other => *self.others.entry(other).or_insert(next),
        };
        if number == next {
            self.known.push(key);
        }
        number
    }

    /// The key of this number.
    pub(super) fn key(&self, number: u32) -> &'a Key {
        self.known[number as usize]
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn finds_what_is_there() {
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let wide = rng.chance(0.5);
            let extremes = [i64::MIN, i64::MAX, 0, -1, 7];
            let value = |rng: &mut Rng| match rng.below(8) {
                0 if wide => *rng.pick(&extremes),
                1 if wide => rng.word().cast_signed(),
                _ => rng.below(30).cast_signed() - 10,
            };
            let count = rng.index(20);
            let pairs: Vec<_> = (0..count)
                .map(|_| (rng.index(3) as u32, value(&mut rng)))
                .collect();
            let first = |pair: &(u32, i64)| pairs.iter().position(|one| one == pair);
            match Elements::new(3, pairs.iter().copied()) {
                Ok(elements) => {
                    for _ in 0..50 {
                        let pair = (rng.index(3) as u32, value(&mut rng));
                        let found = elements.find(pair.0, pair.1).map(|number| number as usize);
                        assert_eq!(found, first(&pair), "seed {seed} {pair:?} in {pairs:?}");
                    }
                    for (number, pair) in pairs.iter().enumerate() {
                        assert_eq!(
                            elements.find(pair.0, pair.1),
                            Some(number as u32),
                            "seed {seed}"
                        );
                    }
                }
                Err((one, other)) => {
                    assert!(one < other, "seed {seed}");
                    assert_eq!(pairs[one as usize], pairs[other as usize], "seed {seed}");
                }
            }
        }
    }
}
