//! A set of chunk numbers that finds the next missing one quickly.

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// A set of chunk numbers with a fast search for the next missing one. A second bitmap marks the full words of the first,
/// so that the search reads one word per 4,096 chunks of the set.
///
/// Memory grows with the chunks that are inserted, not with the count that a directory claims. A first chunk with a high
/// number allocates a bit for each one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ChunkSet {
    words: Vec<u64>,
    /// One bit per word: is it full?
    full: Vec<u64>,
}

impl ChunkSet {
    /// Adds `chunk`.
    pub(super) fn insert(&mut self, chunk: u64) {
        let (word, bit) = split(chunk);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
        if self.words[word] == u64::MAX {
            let (group, bit) = split(word as u64);
            if self.full.len() <= group {
                self.full.resize(group + 1, 0);
            }
            self.full[group] |= bit;
        }
        debug_assert!(self.contains(chunk));
    }

    /// Is `chunk` in the set?
    pub(super) fn contains(&self, chunk: u64) -> bool {
        let (word, bit) = split(chunk);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The first chunk not in the set, at or after `from`.
    pub(super) fn first_missing(&self, from: u64) -> u64 {
        let (word, _) = split(from);
        let in_word = next_zero(self.words.get(word).copied(), from % BITS);
        if in_word < BITS {
            return word as u64 * BITS + in_word;
        }
        let mut next = word as u64 + 1;
        loop {
            let (group, _) = split(next);
            let in_group = next_zero(self.full.get(group).copied(), next % BITS);
            next = group as u64 * BITS + in_group;
            if in_group < BITS {
                let word = self.words.get(next as usize).copied();
                return next * BITS + next_zero(word, 0);
            }
        }
    }

    /// The last chunk before `to` that is not in the set. Reads a word per 64 chunks of the set.
    pub(super) fn last_missing(&self, to: u64) -> Option<u64> {
        let (mut word, bit) = split(to.checked_sub(1)?);
        let mut above = !(bit | (bit - 1));
        loop {
            let present = self.words.get(word).copied().unwrap_or(0) | above;
            if present != u64::MAX {
                return Some(word as u64 * BITS + u64::from((!present).ilog2()));
            }
            (word, above) = (word.checked_sub(1)?, 0);
        }
    }
}

/// The word of a number, and its bit there.
const fn split(number: u64) -> (usize, u64) {
    ((number / BITS) as usize, 1 << (number % BITS))
}

/// The first zero bit at or after `from`; [`BITS`] when there is none.
fn next_zero(word: Option<u64>, from: u64) -> u64 {
    let below = (1u64 << from) - 1;
    u64::from((word.unwrap_or(0) | below).trailing_ones())
}

#[cfg(test)]
mod tests;
