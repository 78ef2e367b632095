//! The log as consensus reads it: terms of all entries, the newest entries in memory, older ones from the journal.

use crate::log_entry::LogEntry;
use std::collections::VecDeque;

/// Why [`EntryLog::entries`] has no entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingEntries {
    /// The range begins below the first index.
    Compacted,
    /// The range is not in memory; it can be fetched.
    NotCached,
}

/// The log of one node. Entries are appended before they are durable; [`crate::Consensus`] counts what is durable.
///
/// Terms of all entries from `first_index() - 1` on must be known without waiting; entries above the applied index must be in
/// memory. Others may be reported as [`MissingEntries::NotCached`].
pub trait EntryLog {
    /// The first entry that was not compacted.
    fn first_index(&self) -> u64;
    /// The last entry; `first_index() - 1` if there is none.
    fn last_index(&self) -> u64;
    /// The term of an entry in `first_index() - 1 ..= last_index()`.
    fn term(&self, index: u64) -> Option<u64>;
    /// Entries of `low..high` from `low` on: as many as fit in `bytes_max`, at least one.
    fn entries(&self, low: u64, high: u64, bytes_max: u64)
    -> Result<Vec<LogEntry>, MissingEntries>;
    /// Appends consecutive entries; the first may replace an entry and all that follow it.
    fn append(&mut self, entries: &[LogEntry]);
    /// Removes all entries up to this index.
    fn compact(&mut self, to: u64);
    /// Removes all entries; the next has index `index + 1`.
    fn reset(&mut self, index: u64, term: u64);
    /// May drop entries up to `applied` from memory.
    fn trim(&mut self, applied: u64);
    /// Entries that were fetched, for the next call of `entries`.
    fn fetched(&mut self, entries: Vec<LogEntry>);
}

/// The newest entries in a deque of at most `bytes_max` bytes (more while they are not applied), terms as runs of equal terms,
/// one range of fetched entries. Reading an entry is O(1), a term O(log(terms)).
#[derive(Debug)]
pub struct CachedLog {
    /// First entry that was not compacted.
    first: u64,
    /// First index of `cache`; `last + 1` when it is empty.
    cache_first: u64,
    cache: VecDeque<LogEntry>,
    cache_bytes: usize,
    bytes_max: usize,
    /// (first index, term), both increasing; the first run covers `first - 1`.
    runs: Vec<(u64, u64)>,
    /// Consecutive entries from the journal, until the next ones come.
    fetched: Vec<LogEntry>,
}

/// Bytes of memory that an entry takes beyond its payload.
const OVERHEAD: usize = 64;

impl CachedLog {
    /// An empty log after (`index`, `term`), with this bound of its memory.
    pub fn new(index: u64, term: u64, bytes_max: usize) -> CachedLog {
        CachedLog {
            first: index + 1,
            cache_first: index + 1,
            cache: VecDeque::new(),
            cache_bytes: 0,
            bytes_max,
            runs: vec![(index, term)],
            fetched: Vec::new(),
        }
    }

    /// Entries in memory.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    fn truncate(&mut self, from: u64) {
        while self.last_index() >= from && !self.cache.is_empty() {
            if let Some(entry) = self.cache.pop_back() {
                self.cache_bytes -= entry.payload.length() + OVERHEAD;
            }
        }
        if self.cache.is_empty() {
            self.cache_first = self.cache_first.min(from);
        }
        self.runs.retain(|run| run.0 < from || run.0 < self.first);
        // Fetched entries may be among the replaced ones.
        self.fetched.clear();
    }

    fn drop_front(&mut self) {
        if let Some(entry) = self.cache.pop_front() {
            self.cache_bytes -= entry.payload.length() + OVERHEAD;
            self.cache_first = entry.index + 1;
        }
    }

    fn take_while(entries: &[LogEntry], low: u64, high: u64, bytes_max: u64) -> Vec<LogEntry> {
        let Some(skip) = entries
            .first()
            .and_then(|first| low.checked_sub(first.index))
        else {
            return Vec::new();
        };
        Self::take(entries.iter().skip(skip as usize), high, bytes_max)
    }

    fn take<'a>(
        entries: impl Iterator<Item = &'a LogEntry>,
        high: u64,
        bytes_max: u64,
    ) -> Vec<LogEntry> {
        let mut left = bytes_max;
        let mut taken = Vec::new();
        for entry in entries.take_while(|entry| entry.index < high) {
            let length = entry.payload.length() as u64;
            // At least one, else a large entry would stop replication for ever.
            if length > left && !taken.is_empty() {
                break;
            }
            left = left.saturating_sub(length);
            taken.push(entry.clone());
        }
        taken
    }
}

impl EntryLog for CachedLog {
    fn first_index(&self) -> u64 {
        self.first
    }

    fn last_index(&self) -> u64 {
        self.cache_first + self.cache.len() as u64 - 1
    }

    fn term(&self, index: u64) -> Option<u64> {
        if index + 1 < self.first || index > self.last_index() {
            return None;
        }
        let after = self.runs.partition_point(|run| run.0 <= index);
        after.checked_sub(1).map(|at| self.runs[at].1)
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        bytes_max: u64,
    ) -> Result<Vec<LogEntry>, MissingEntries> {
        if low < self.first {
            return Err(MissingEntries::Compacted);
        }
        if low >= self.cache_first {
            let skip = (low - self.cache_first) as usize;
            return Ok(Self::take(
                self.cache.range(skip.min(self.cache.len())..),
                high,
                bytes_max,
            ));
        }
        let taken = Self::take_while(&self.fetched, low, high.min(self.cache_first), bytes_max);
        if taken.is_empty() {
            Err(MissingEntries::NotCached)
        } else {
            Ok(taken)
        }
    }

    fn append(&mut self, entries: &[LogEntry]) {
        let Some(first) = entries.first() else { return };
        if first.index <= self.last_index() {
            self.truncate(first.index);
        }
        assert!(first.index == self.last_index() + 1, "a gap in the log");
        for entry in entries {
            if self.runs.last().is_none_or(|run| run.1 != entry.term) {
                self.runs.push((entry.index, entry.term));
            }
            self.cache_bytes += entry.payload.length() + OVERHEAD;
            self.cache.push_back(entry.clone());
        }
    }

    fn compact(&mut self, to: u64) {
        let to = to.min(self.last_index());
        if to < self.first {
            return;
        }
        let Some(term) = self.term(to) else { return };
        while self.cache_first <= to {
            self.drop_front();
        }
        self.runs.retain(|run| run.0 > to);
        self.runs.insert(0, (to, term));
        self.first = to + 1;
        self.fetched.clear();
    }

    fn reset(&mut self, index: u64, term: u64) {
        *self = CachedLog::new(index, term, self.bytes_max);
    }

    fn trim(&mut self, applied: u64) {
        while self.cache_bytes > self.bytes_max && self.cache_first <= applied {
            self.drop_front();
        }
    }

    fn fetched(&mut self, entries: Vec<LogEntry>) {
        self.fetched = entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use bytes::Bytes;
    use seatrial_machine::Rng;

    /// The same log as a plain list: (term, length) of each index from `first - 1` on.
    struct EntryList {
        base: (u64, u64),
        entries: Vec<LogEntry>,
    }

    impl EntryList {
        fn last(&self) -> (u64, u64) {
            self.entries
                .last()
                .map_or(self.base, |entry| (entry.index, entry.term))
        }

        fn term(&self, index: u64) -> Option<u64> {
            let at = index.checked_sub(self.base.0)?;
            match at {
                0 => Some(self.base.1),
                _ => self.entries.get(at as usize - 1).map(|entry| entry.term),
            }
        }
    }

    fn append(rng: &mut Rng, log: &mut CachedLog, twin: &mut EntryList) {
        let (last, last_term) = twin.last();
        let from = if rng.chance(0.2) {
            twin.base.0 + 1 + rng.below(last - twin.base.0 + 1)
        } else {
            last + 1
        };
        let before = twin.term(from - 1).unwrap_or(last_term);
        let term = before.max(1) + rng.below(2);
        let new: Vec<LogEntry> = (from..from + 1 + rng.below(5))
            .map(|index| LogEntry {
                index,
                term,
                payload: Payload::Data(Bytes::from(vec![index as u8; 1 + rng.index(30)])),
            })
            .collect();
        log.append(&new);
        twin.entries.truncate((from - twin.base.0 - 1) as usize);
        twin.entries.extend(new);
    }

    fn compare(rng: &mut Rng, log: &mut CachedLog, twin: &EntryList) {
        let (last, _) = twin.last();
        assert_eq!(
            (log.first_index(), log.last_index()),
            (twin.base.0 + 1, last)
        );
        for index in twin.base.0.saturating_sub(1)..=last + 1 {
            assert_eq!(log.term(index), twin.term(index), "term of {index}");
        }
        let low = twin.base.0 + rng.below(last - twin.base.0 + 1);
        let expected: Vec<LogEntry> = twin
            .entries
            .iter()
            .filter(|entry| entry.index >= low)
            .cloned()
            .collect();
        match log.entries(low, last + 1, u64::MAX) {
            Err(MissingEntries::Compacted) => assert_eq!(low, twin.base.0),
            Err(MissingEntries::NotCached) => {
                log.fetched(expected.clone());
                let found = log
                    .entries(low, last + 1, u64::MAX)
                    .expect("they were fetched");
                assert!(!found.is_empty() && expected.starts_with(&found));
            }
            Ok(found) => assert!(expected.starts_with(&found) && (low > last || !found.is_empty())),
        }
        if low > twin.base.0
            && low <= last
            && let Ok(one) = log.entries(low, last + 1, 0)
        {
            assert_eq!(one.len(), 1, "at least one entry, however long");
        }
    }

    #[test]
    fn agrees_with_a_plain_list() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut log = CachedLog::new(0, 0, 300);
            let mut twin = EntryList {
                base: (0, 0),
                entries: Vec::new(),
            };
            for _ in 0..60 {
                let (last, _) = twin.last();
                match rng.below(10) {
                    0 => {
                        let to = twin.base.0 + rng.below(last - twin.base.0 + 1);
                        if let Some(term) = twin.term(to) {
                            log.compact(to);
                            twin.entries.retain(|entry| entry.index > to);
                            twin.base = (to, term);
                        }
                    }
                    1 => log.trim(twin.base.0 + rng.below(last - twin.base.0 + 1)),
                    2 if rng.chance(0.1) => {
                        let base = (last + rng.below(9), twin.last().1 + 1);
                        log.reset(base.0, base.1);
                        twin = EntryList {
                            base,
                            entries: Vec::new(),
                        };
                    }
                    _ => append(&mut rng, &mut log, &mut twin),
                }
                compare(&mut rng, &mut log, &twin);
            }
        }
    }
}
