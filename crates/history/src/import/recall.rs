//! Lists that a text repeats.

/// Lists that are remembered at a time; a power of two.
const LISTS_MAX: usize = 256;
/// Longest text of one that is remembered, in bytes.
const TEXT_LENGTH_MAX: usize = 1 << 16;
/// Bytes before a list that tell whose it is.
const NAME_LENGTH_MAX: usize = 24;

/// Lists of integers as they were written last, each by the text before it (`["r",17,`).
///
/// Histories of lists write the same list again and again, a little longer each time. What was compared byte by byte
/// need not be read number by number: some bytes a nanosecond. It is only ever a shortcut: whatever is not written exactly as
/// before is read as if there were no memory.
pub(super) struct Recall {
    lists: Vec<Remembered>,
}

/// One list.
#[derive(Default)]
struct Remembered {
    /// The text before it.
    name: Vec<u8>,
    /// From behind its opening bracket to its last digit.
    text: Vec<u8>,
    integers: Vec<i64>,
    /// Where in the text each integer ends.
    ends: Vec<u32>,
}

impl Default for Recall {
    fn default() -> Recall {
        let empty = std::iter::repeat_with(Remembered::default);
        Recall {
            lists: empty.take(LISTS_MAX).collect(),
        }
    }
}

impl Recall {
    /// The integers of the list that opens at `at`, and where it ends, behind its closing bracket. `None` when it is to be read
    /// like anything else.
    pub(super) fn list(&mut self, text: &[u8], at: usize) -> Option<(&[i64], usize)> {
        let start = at.saturating_sub(NAME_LENGTH_MAX);
        let name = &text[start..at];
        let opened = name.iter().rposition(|&byte| byte == b'[')?;
        let name = &name[opened..];
        let rest = text.get(at + 1..)?;
        if !matches!(rest.first(), Some(b'0'..=b'9' | b'-')) {
            // No list of integers: it would only take another's place.
            return None;
        }
        let hash = name.iter().fold(0_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let list = &mut self.lists[((hash >> 32) ^ hash) as usize % LISTS_MAX];
        if list.name != name {
            list.name.clear();
            list.name.extend_from_slice(name);
            list.text.clear();
            list.integers.clear();
            list.ends.clear();
        }
        let common = common_length(&list.text, rest);
        if rest.get(common) == Some(&b']') {
            // It ends within what is known, or with it.
            let place = list.ends.binary_search(&(common as u32)).ok()?;
            return Some((&list.integers[..=place], at + common + 2));
        }
        if common < list.text.len() {
            return None;
        }
        let length = list.extend(rest)?;
        Some((&list.integers, at + length + 2))
    }
}

impl Remembered {
    /// Reads on behind what is known. How long the list's text is; `None` when it is not one of plain integers, or a very long
    /// one.
    fn extend(&mut self, rest: &[u8]) -> Option<usize> {
        let known = (self.text.len(), self.integers.len());
        let length = self.read(rest);
        if let Some(length) = length {
            self.text.extend_from_slice(&rest[known.0..length]);
        } else {
            self.integers.truncate(known.1);
            self.ends.truncate(known.1);
        }
        length
    }

    fn read(&mut self, rest: &[u8]) -> Option<usize> {
        let mut at = self.text.len();
        if at > 0 {
            // An integer may go on where the known one ends.
            at += usize::from(*rest.get(at)? == b',');
            if at == self.text.len() {
                return None;
            }
        }
        loop {
            let is_negative = *rest.get(at)? == b'-';
            at += usize::from(is_negative);
            let first = at;
            let mut integer = 0_i64;
            while let Some(digit @ b'0'..=b'9') = rest.get(at) {
                if at - first == 18 {
                    // Longer ones may not fit.
                    return None;
                }
                integer = integer * 10 + i64::from(digit - b'0');
                at += 1;
            }
            if at == first || at > TEXT_LENGTH_MAX {
                return None;
            }
            self.integers
                .push(if is_negative { -integer } else { integer });
            self.ends.push(at as u32);
            match *rest.get(at)? {
                b',' => at += 1,
                b']' => return Some(at),
                _ => return None,
            }
        }
    }
}

/// How many bytes both begin with.
fn common_length(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[..length], &other[..length]);
    let words = one.chunks_exact(32).zip(other.chunks_exact(32));
    let same = 32 * words.take_while(|(a, b)| a == b).count();
    let rest = one[same..].iter().zip(&other[same..]);
    same + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn what_is_recalled_is_what_is_written() {
        let mut recalled = 0;
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut recall = Recall::default();
            let mut longest: Vec<Vec<i64>> = vec![Vec::new(); 3];
            for _ in 0..60 {
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
                let whole = format!("[\"r\",{key},[{}]]", texts.join(space));
                let cut = if rng.chance(0.1) {
                    rng.index(whole.len())
                } else {
                    whole.len()
                };
                let text = &whole.as_bytes()[..cut];
                let Some(at) = text.iter().skip(1).position(|&byte| byte == b'[') else {
                    continue;
                };
                if let Some((integers, end)) = recall.list(text, at + 1) {
                    assert_eq!((integers, end), (&list[..], whole.len() - 1), "seed {seed}");
                    recalled += 1;
                }
            }
        }
        assert!(recalled > 5_000, "{recalled}");
    }
}
