//! The configurations that a search has visited.

use super::values::StateId;

/// A set of configurations in the order in which they were found, each with its parent. Open addressing over an arena
/// of fixed-size records; nothing is ever removed.
pub(crate) struct ConfigurationTable {
    records: Vec<ConfigurationRecord>,
    /// The masks, `words` for each record.
    masks: Vec<u64>,
    words: usize,
    /// ConfigurationRecord number plus one, 0 for empty; the length is a power of two, at most half full.
    buckets: Vec<u32>,
}

/// A configuration without its mask (the next completion, the state), and the step that reached it.
struct ConfigurationRecord {
    key: (u32, StateId),
    bare: bool,
    parent: u32,
    via: u32,
}

impl ConfigurationTable {
    /// An empty table for masks of `words` words.
    pub(crate) fn new(words: usize) -> ConfigurationTable {
        ConfigurationTable {
            records: Vec::new(),
            masks: Vec::new(),
            words,
            buckets: vec![0; 16],
        }
    }

    /// Number of configurations.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.records[..])
            + size_of_val(&self.masks[..])
            + size_of_val(&self.buckets[..])
    }

    /// The next completion and the state of a record.
    pub(crate) fn key(&self, record: u32) -> (u32, StateId) {
        self.records[record as usize].key
    }

    /// The open operations that are linearized, by slot.
    pub(crate) fn mask(&self, record: u32) -> &[u64] {
        &self.masks[record as usize * self.words..][..self.words]
    }

    /// Was its last operation one of unknown outcome on which nothing depends yet?
    pub(crate) fn bare(&self, record: u32) -> bool {
        self.records[record as usize].bare
    }

    /// The record from which this one was reached, and the entry that was linearized.
    pub(crate) fn parent(&self, record: u32) -> (u32, u32) {
        let ConfigurationRecord { parent, via, .. } = self.records[record as usize];
        (parent, via)
    }

    /// Is this configuration known?
    pub(crate) fn contains(&self, key: (u32, StateId), bare: bool, mask: &[u64]) -> bool {
        self.buckets[self.find(key, bare, mask)] != 0
    }

    /// Adds a configuration and returns its number; `None` if it was visited before.
    pub(crate) fn insert(
        &mut self,
        key: (u32, StateId),
        bare: bool,
        mask: &[u64],
        parent: u32,
        via: u32,
    ) -> Option<u32> {
        let bucket = self.find(key, bare, mask);
        if self.buckets[bucket] != 0 {
            return None;
        }
        let number = self.records.len() as u32;
        debug_assert!(parent == u32::MAX || parent < number, "parents come first");
        self.records.push(ConfigurationRecord {
            key,
            bare,
            parent,
            via,
        });
        self.masks.extend_from_slice(mask);
        self.buckets[bucket] = number + 1;
        if self.records.len() * 2 > self.buckets.len() {
            self.grow();
        }
        debug_assert!(
            self.masks.len() == self.records.len() * self.words,
            "one mask for each record"
        );
        Some(number)
    }

    /// The bucket that holds this configuration, or the empty one where it belongs.
    fn find(&self, key: (u32, StateId), bare: bool, mask: &[u64]) -> usize {
        let limit = self.buckets.len() - 1;
        let mut bucket = hash(key, bare, mask) as usize & limit;
        loop {
            let number = self.buckets[bucket];
            if number == 0 {
                return bucket;
            }
            let record = &self.records[number as usize - 1];
            if record.key == key && record.bare == bare && self.mask(number - 1) == mask {
                return bucket;
            }
            bucket = (bucket + 1) & limit;
        }
    }

    /// Doubles the buckets. Their number stays a power of two, which makes `& limit` a remainder.
    fn grow(&mut self) {
        assert!(self.buckets.len().is_power_of_two(), "probing needs it");
        let limit = self.buckets.len() * 2 - 1;
        self.buckets.clear();
        self.buckets.resize(limit + 1, 0);
        for number in 0..self.records.len() as u32 {
            let record = &self.records[number as usize];
            let mut bucket = hash(record.key, record.bare, self.mask(number)) as usize & limit;
            while self.buckets[bucket] != 0 {
                bucket = (bucket + 1) & limit;
            }
            self.buckets[bucket] = number + 1;
        }
        assert!(
            2 * self.records.len() <= self.buckets.len(),
            "an empty bucket ends every probe"
        );
    }
}

/// The hash of a configuration.
fn hash(key: (u32, StateId), bare: bool, mask: &[u64]) -> u64 {
    seatrial_history::fixed_hash((key, bare, mask))
}
