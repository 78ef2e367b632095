//! A list of the state: its elements in shared chunks.

use imbl::Vector;
use std::sync::Arc;

/// A chunk is complete at this length.
const CHUNK_LENGTH: usize = 4 << 10;

/// The elements of a list in their encoding (length `u32` and bytes), cut into chunks at element boundaries. Complete chunks are
/// shared with snapshots, so an append after a snapshot copies the incomplete one (less than [`CHUNK_LENGTH`] bytes) and
/// O(log n) pointers; reading a list copies its chunks one after another.
///
/// The chunks are determined by the elements alone: a chunk ends at the first element that brings it to [`CHUNK_LENGTH`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredList {
    count: u32,
    /// Bytes of all chunks.
    length: usize,
    complete: Vector<Arc<[u8]>>,
    incomplete: Vec<u8>,
}

impl StoredList {
    /// Number of elements.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Length of the encoding, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The encoding, in pieces that each hold whole elements.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let complete = self.complete.iter().map(|chunk| &**chunk);
        complete.chain(std::iter::once(self.incomplete.as_slice()))
    }

    /// The chunk with this number; the incomplete one for every number after the complete ones.
    pub(crate) fn chunk(&self, number: usize) -> &[u8] {
        let complete = self.complete.get(number);
        complete.map_or(&self.incomplete, |chunk| chunk)
    }

    /// Where the next element would go: number of the chunk, offset in it.
    pub(crate) fn end(&self) -> (usize, usize) {
        (self.complete.len(), self.incomplete.len())
    }

    /// Does this list begin with all elements of `older`, and have more? Shared chunks are not compared byte by byte.
    pub(crate) fn continues(&self, older: &StoredList) -> bool {
        let pairs = older.complete.iter().zip(&self.complete);
        // Equal elements are in equal chunks, so only the last chunk of the older list can be a part of one here.
        self.count > older.count
            && self.complete.len() >= older.complete.len()
            && pairs.into_iter().all(|(one, other)| one == other)
            && self
                .chunk(older.complete.len())
                .starts_with(&older.incomplete)
    }

    /// Adds an element at the end.
    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) {
        let length = (value.len() as u32).to_le_bytes();
        self.incomplete.extend_from_slice(&length);
        self.incomplete.extend_from_slice(value);
        self.count += 1;
        self.length += 4 + value.len();
        if self.incomplete.len() >= CHUNK_LENGTH {
            self.complete.push_back(self.incomplete.as_slice().into());
            self.incomplete.clear();
        }
    }

    /// Returns to an earlier count and length of this list.
    pub(crate) fn truncate(&mut self, count: u32, length: usize) {
        debug_assert!(count <= self.count && length <= self.length);
        let mut end = self.length - self.incomplete.len();
        if length < end {
            // The chunk in which the new end lies becomes the incomplete one.
            self.incomplete.clear();
            while let Some(chunk) = self.complete.pop_back() {
                end -= chunk.len();
                if end <= length {
                    self.incomplete.extend_from_slice(&chunk[..length - end]);
                    break;
                }
            }
        } else {
            self.incomplete.truncate(length - end);
        }
        (self.count, self.length) = (count, length);
        debug_assert_eq!(self.chunks().map(<[u8]>::len).sum::<usize>(), length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    fn bytes(list: &StoredList) -> Vec<u8> {
        list.chunks().flatten().copied().collect()
    }

    #[test]
    fn equals_one_buffer_under_appends_truncations_and_snapshots() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut list = StoredList::default();
            // The twin: a buffer, and where each element ends in it.
            let (mut buffer, mut ends) = (Vec::new(), vec![0]);
            let mut held = Vec::new();
            for _ in 0..300 {
                if rng.chance(0.1) {
                    let count = rng.index(ends.len());
                    ends.truncate(count + 1);
                    buffer.truncate(ends[count]);
                    list.truncate(count as u32, ends[count]);
                } else {
                    let longest = if rng.chance(0.1) { 9_000 } else { 100 };
                    let value = vec![rng.word() as u8; rng.index(longest)];
                    buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
                    buffer.extend_from_slice(&value);
                    ends.push(buffer.len());
                    list.push(&value);
                }
                assert_eq!(bytes(&list), buffer, "seed {seed}");
                assert_eq!(list.count() as usize, ends.len() - 1, "seed {seed}");
                assert_eq!(list.length(), buffer.len(), "seed {seed}");
                if rng.chance(0.05) {
                    held.push((list.clone(), buffer.clone()));
                }
            }
            for (list, buffer) in held {
                assert_eq!(bytes(&list), buffer, "seed {seed}");
                // The chunks follow from the elements: a list built afresh is equal, chunk by chunk.
                let mut again = StoredList::default();
                let mut rest = buffer.as_slice();
                while let Some((length, after)) = rest.split_first_chunk() {
                    let (value, after) = after.split_at(u32::from_le_bytes(*length) as usize);
                    again.push(value);
                    rest = after;
                }
                assert_eq!(again, list, "seed {seed}");
            }
        }
    }
}
