//! Cache of lists that a text repeats, so that only new elements are parsed.

use seatrial_history::FixedMap;
use std::cell::Cell;

/// Lists that are known at a time.
const LISTS_MAX: usize = 1_024;
/// Longest text of a list that is kept, in bytes; positions in it fit 16 bits.
const TEXT_LENGTH_MAX: usize = u16::MAX as usize;
/// Bytes of text of all lists together from which on they are forgotten.
const BYTES_MAX: usize = 4 << 20;
/// Keys used last, by their lowest bits.
const RECENT_KEYS: usize = 256;
/// Memory of a longer text is not used again for another list.
const KEPT_LENGTH_MAX: usize = 4_096;
/// Zeros after a known text, so that its last bytes are compared as a word.
const PADDING: usize = 8;

/// By key the longest list that was read of it, as it was written.
///
/// Histories of lists write the same list again and again, a little longer each time. What was compared byte by byte
/// need not be read number by number: some bytes a nanosecond. It is only ever a shortcut: whatever is not written exactly
/// as before is read as if there were no memory.
///
/// Its downside: a list that differs from the one that came first is read anew each time.
pub(super) struct KnownLists {
    lists: Vec<KnownList>,
    /// Number of those that are of a key; the others are memory to be used again.
    count: usize,
    by_key: FixedMap<i64, u32>,
    /// Spares most look-ups: a key and its number.
    recent: Vec<(i64, u32)>,
    bytes: usize,
}

/// One list.
#[derive(Default)]
pub(super) struct KnownList {
    /// The text after its opening bracket up to its last digit, then [`PADDING`].
    text: Vec<u8>,
    pub(super) integers: Vec<i64>,
    /// By position in the text: how many integers there are before, when one ends there, else 0.
    counts: Vec<u16>,
    /// What it has in common with the list of the same key in a chunk: see `chunk::TransactionPart::List`.
    pub(super) bond: Cell<u64>,
}

impl Default for KnownLists {
    fn default() -> KnownLists {
        KnownLists {
            lists: Vec::new(),
            count: 0,
            by_key: FixedMap::default(),
            recent: vec![(0, u32::MAX); RECENT_KEYS],
            bytes: 0,
        }
    }
}

impl KnownLists {
    /// Forgets everything when there is much. Numbers that were given before name nothing then.
    pub(super) fn make_room(&mut self) {
        if self.count >= LISTS_MAX || self.bytes >= BYTES_MAX {
            self.forget();
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        if self.bytes >= BYTES_MAX {
            self.lists.clear();
        }
        self.count = 0;
        self.bytes = 0;
        self.by_key.clear();
        self.recent.fill((0, u32::MAX));
    }

    /// The list of this number.
    pub(super) fn get(&self, number: u32) -> &KnownList {
        &self.lists[number as usize]
    }

    /// The number of this key's list.
    pub(super) fn number(&mut self, key: i64) -> u32 {
        let place = key as usize % RECENT_KEYS;
        let (recent, number) = self.recent[place];
        if recent == key && number != u32::MAX {
            return number;
        }
        let fresh = self.count as u32;
        let number = *self.by_key.entry(key).or_insert(fresh);
        if number == fresh {
            if self.lists.len() == self.count {
                self.lists.push(KnownList::default());
            }
            self.lists[self.count].clear();
            self.count += 1;
        }
        self.recent[place] = (key, number);
        number
    }

    /// Reads the list at the start of `rest`, after its opening bracket: the number of its integers and of its bytes, without
    /// the closing bracket. `read` reads an integer, `pass` a separator; both return the offset after it. `None` when the list
    /// does not extend the cached one, or is not a list of integers.
    pub(super) fn list(
        &mut self,
        number: u32,
        rest: &[u8],
        read: impl Fn(&[u8], usize) -> Option<(i64, usize)>,
        pass: impl Fn(&[u8], usize) -> Option<usize>,
    ) -> Option<(usize, usize)> {
        let list = &mut self.lists[number as usize];
        let length = list.text.len() - PADDING;
        let common = common_length(&list.text, rest).min(length);
        if rest.get(common) == Some(&b']') {
            // The list ends within the known text, or with it.
            let count = usize::from(list.counts[common]);
            return (count > 0).then_some((count, common));
        }
        if common < length {
            return None;
        }
        let end = list.extend(rest, read, pass)?;
        self.bytes += end - length;
        Some((list.integers.len(), end))
    }
}

impl KnownList {
    fn clear(&mut self) {
        if self.text.capacity() > KEPT_LENGTH_MAX {
            *self = KnownList::default();
        }
        self.text.clear();
        self.text.resize(PADDING, 0);
        self.integers.clear();
        self.counts.clear();
        self.counts.push(0);
        self.bond.set(0);
    }

    /// Reads the rest of the list, after the cached part, and returns the length of its text; `None` when it has other elements
    /// than integers, or is longer than [`TEXT_LENGTH_MAX`].
    fn extend(
        &mut self,
        rest: &[u8],
        read: impl Fn(&[u8], usize) -> Option<(i64, usize)>,
        pass: impl Fn(&[u8], usize) -> Option<usize>,
    ) -> Option<usize> {
        let (known, count) = (self.text.len() - PADDING, self.integers.len());
        let mut at = known;
        let end = loop {
            if at > 0 {
                // An integer may continue where the known one ends: then nothing was consumed.
                match pass(rest, at) {
                    Some(next) => at = next,
                    None => break None,
                }
            }
            let Some((integer, end)) = read(rest, at) else {
                break None;
            };
            if end > TEXT_LENGTH_MAX {
                break None;
            }
            self.integers.push(integer);
            self.counts.resize(end, 0);
            self.counts.push(self.integers.len() as u16);
            at = end;
            if rest.get(at) == Some(&b']') {
                break Some(at);
            }
        };
        if let Some(end) = end {
            self.text.truncate(known);
            self.text.extend_from_slice(&rest[known..end]);
            self.text.extend([0; PADDING]);
        } else {
            self.integers.truncate(count);
            self.counts.truncate(known + 1);
        }
        end
    }
}

/// How many bytes both begin with.
fn common_length(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[..length], &other[..length]);
    let blocks = one
        .as_chunks::<32>()
        .0
        .iter()
        .zip(other.as_chunks::<32>().0);
    let same = 32 * blocks.take_while(|(a, b)| a == b).count();
    let (words, last) = one[same..].as_chunks::<8>();
    let (other_words, other_last) = other[same..].as_chunks::<8>();
    for (place, (&a, &b)) in words.iter().zip(other_words).enumerate() {
        let different = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        if different != 0 {
            return same + 8 * place + different.trailing_zeros() as usize / 8;
        }
    }
    let rest = last.iter().zip(other_last).take_while(|(a, b)| a == b);
    same + 8 * words.len() + rest.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn read(text: &[u8], at: usize) -> Option<(i64, usize)> {
        let rest = &text[at..];
        let inside = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let length = rest.iter().take_while(|byte| inside(byte)).count();
        let integer = str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
        Some((integer, at + length))
    }

    fn pass(text: &[u8], at: usize) -> Option<usize> {
        (text.get(at) == Some(&b',')).then_some(at + 1)
    }

    #[test]
    fn known_names_are_the_written_ones() {
        let mut found = 0;
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut known = KnownLists::default();
            let mut longest: Vec<Vec<i64>> = vec![Vec::new(); 3];
            for _ in 0..60 {
                known.make_room();
                let key = rng.index(3);
                let list = &mut longest[key];
                for _ in 0..rng.below(4) {
                    list.push(match rng.below(12) {
                        0 => *rng.pick(&[i64::MIN, i64::MAX, -1, 0, 1 << 60]),
                        _ => rng.below(300).cast_signed() - 20,
                    });
                }
                let mut list = list[..rng.index(list.len() + 1)].to_vec();
                if rng.chance(0.1) && !list.is_empty() {
                    let at = rng.index(list.len());
                    list[at] = rng.below(30).cast_signed();
                }
                let texts: Vec<_> = list.iter().map(i64::to_string).collect();
                let space = if rng.chance(0.05) { ", " } else { "," };
                let whole = format!("{}]]", texts.join(space));
                let cut = if rng.chance(0.1) {
                    rng.index(whole.len())
                } else {
                    whole.len()
                };
                let number = known.number(key as i64 * RECENT_KEYS as i64);
                let text = &whole.as_bytes()[..cut];
                if let Some((count, end)) = known.list(number, text, read, pass) {
                    let integers = &known.get(number).integers[..count];
                    assert_eq!((integers, end), (&list[..], whole.len() - 2), "seed {seed}");
                    found += 1;
                }
            }
        }
        assert!(found > 5_000, "{found}");
    }

    #[test]
    fn as_many_bytes_are_common_as_one_by_one() {
        for seed in 0..2_000 {
            let mut rng = Rng::from_seed(seed);
            let mut one: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(2) as u8).collect();
            let mut other = one.clone();
            for text in [&mut one, &mut other] {
                text.truncate(rng.index(text.len() + 1).max(text.len() / 2));
                if rng.chance(0.5) && !text.is_empty() {
                    let at = rng.index(text.len());
                    text[at] = 7;
                }
            }
            let pairs = one.iter().zip(&other).take_while(|(a, b)| a == b);
            assert_eq!(common_length(&one, &other), pairs.count(), "seed {seed}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut known = KnownLists::default();
        for key in 0..20_000 {
            known.make_room();
            let number = known.number(key);
            let text = format!("{}]", "12345678,".repeat(2_000) + "1");
            assert!(known.list(number, text.as_bytes(), read, pass).is_some());
            assert!(known.count <= LISTS_MAX && known.bytes < BYTES_MAX + 2 * TEXT_LENGTH_MAX);
            if key == 600 {
                break;
            }
        }
        let long = format!("{}1]", "12345678,".repeat(20_000));
        let number = known.number(-1);
        assert!(known.list(number, long.as_bytes(), read, pass).is_none());
        assert!(known.get(number).integers.is_empty());
        for key in (0..3 * LISTS_MAX as i64).map(|key| key + 1_000) {
            known.make_room();
            let number = known.number(key);
            assert_eq!(known.list(number, b"1,2]", read, pass), Some((2, 3)));
            assert!(known.count <= LISTS_MAX);
        }
    }
}
