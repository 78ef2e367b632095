//! The durable checkpoints of a node: their files, which are kept, and what they free.

use seatrial_consensus::SnapshotMark;
use seatrial_machine::FileName;

/// Chains that are kept: the newest, and one without any file of it in case that one is damaged.
const CHAINS_MAX: usize = 2;

/// One file. The greater one is read first at a start: the newer one, and of two at one index the whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CheckpointFile {
    /// The index of its state.
    pub(crate) index: u64,
    /// It has the changes since the whole file at this index; `None`: it is whole.
    pub(crate) base: Option<u64>,
}

impl CheckpointFile {
    /// The file of a whole state.
    pub(crate) const fn whole(index: u64) -> CheckpointFile {
        CheckpointFile { index, base: None }
    }

    /// Its name.
    pub(crate) fn name(self) -> FileName {
        let CheckpointFile { index, base } = self;
        let name = match base {
            None => format!("checkpoint-{index:020}"),
            Some(base) => format!("changes-{index:020}-of-{base:020}"),
        };
        FileName::new(&name).expect("digits are a name")
    }

    /// The file with this name, if it is one.
    pub(crate) fn named(name: &FileName) -> Option<CheckpointFile> {
        let text = name.as_str();
        let file = if let Some(digits) = text.strip_prefix("checkpoint-") {
            CheckpointFile::whole(digits.parse().ok()?)
        } else {
            let (index, base) = text.strip_prefix("changes-")?.split_once("-of-")?;
            CheckpointFile {
                index: index.parse().ok()?,
                base: Some(base.parse().ok()?),
            }
        };
        (file.name() == *name).then_some(file)
    }

    /// Orders files by age; see the type.
    pub(crate) fn age(self) -> (u64, bool) {
        (self.index, self.base.is_none())
    }
}

/// A whole checkpoint, and the newest one of changes since then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointChain {
    pub(crate) whole: SnapshotMark,
    /// Its length is that of both files, its digest that of the file of changes, in which that of the whole one stands.
    pub(crate) changes: Option<SnapshotMark>,
}

impl CheckpointChain {
    /// The newest checkpoint of the chain.
    pub(crate) fn newest(&self) -> &SnapshotMark {
        self.changes.as_ref().unwrap_or(&self.whole)
    }

    fn changes_file(&self) -> Option<CheckpointFile> {
        let base = Some(self.whole.index);
        let changes = self.changes.as_ref()?;
        Some(CheckpointFile {
            index: changes.index,
            base,
        })
    }

    fn files(&self) -> impl Iterator<Item = CheckpointFile> {
        let whole = CheckpointFile::whole(self.whole.index);
        std::iter::once(whole).chain(self.changes_file())
    }
}

/// The durable checkpoints. Two chains are kept, so any one file may be damaged: another state can be read, and the journal after
/// it is there.
#[derive(Debug)]
pub(crate) struct StoredCheckpoints {
    /// By the index of the whole file.
    chains: Vec<CheckpointChain>,
    /// Files that a start has found besides; they are removed when there are two chains.
    leftover: Vec<CheckpointFile>,
}

impl StoredCheckpoints {
    pub(crate) fn new(
        newest: Option<CheckpointChain>,
        leftover: Vec<CheckpointFile>,
    ) -> StoredCheckpoints {
        StoredCheckpoints {
            chains: newest.into_iter().collect(),
            leftover,
        }
    }

    fn newest_chain(&self) -> Option<&CheckpointChain> {
        self.chains.iter().max_by_key(|it| it.newest().index)
    }

    /// The newest checkpoint.
    pub(crate) fn newest(&self) -> Option<&SnapshotMark> {
        self.newest_chain().map(CheckpointChain::newest)
    }

    /// The whole one at this index.
    pub(crate) fn whole(&self, index: u64) -> Option<&SnapshotMark> {
        let chain = self.chains.iter().find(|it| it.whole.index == index);
        chain.map(|it| &it.whole)
    }

    /// The journal up to this index is not needed, whichever file is damaged.
    pub(crate) fn free_to(&self) -> u64 {
        let newest = self.newest_chain().map(|it| it.whole.index);
        let others = self
            .chains
            .iter()
            .filter(|it| Some(it.whole.index) != newest);
        others.map(|it| it.newest().index).max().unwrap_or(0)
    }

    /// Keeps a durable checkpoint; `base`: it is one of changes since that whole one. Returns the files that are to be removed.
    pub(crate) fn keep(&mut self, mark: SnapshotMark, base: Option<u64>) -> Vec<CheckpointFile> {
        let before: Vec<CheckpointFile> = self.files().collect();
        let Some(base) = base else {
            let (whole, changes) = (mark, None);
            self.insert(CheckpointChain { whole, changes });
            return self.trim(before);
        };
        let chain = self.chains.iter_mut().find(|it| it.whole.index == base);
        match chain {
            Some(chain) => {
                chain.changes = Some(mark);
                self.trim(before)
            }
            // The whole one was removed meanwhile.
            None => vec![CheckpointFile {
                index: mark.index,
                base: Some(base),
            }],
        }
    }

    /// Keeps durable files of a whole checkpoint and perhaps of changes. Returns the files that are to be removed.
    pub(crate) fn keep_chain(&mut self, chain: CheckpointChain) -> Vec<CheckpointFile> {
        let before: Vec<CheckpointFile> = self.files().collect();
        self.insert(chain);
        self.trim(before)
    }

    fn insert(&mut self, chain: CheckpointChain) {
        let index = chain.whole.index;
        match self
            .chains
            .binary_search_by_key(&index, |it| it.whole.index)
        {
            Ok(found) if chain.changes.is_some() => self.chains[found] = chain,
            Ok(_) => {} // it was written again, with the same bytes
            Err(place) => self.chains.insert(place, chain),
        }
    }

    /// Drops the chains that are too old. Returns the files of `before`, and those of the start, that are not kept.
    fn trim(&mut self, before: Vec<CheckpointFile>) -> Vec<CheckpointFile> {
        while self.chains.len() > CHAINS_MAX {
            let ages = self.chains.iter().map(|it| it.newest().index);
            let oldest = ages.enumerate().min_by_key(|it| it.1);
            self.chains.remove(oldest.map_or(0, |it| it.0));
        }
        let kept: Vec<CheckpointFile> = self.files().collect();
        let mut removed = before;
        if self.chains.len() == CHAINS_MAX {
            removed.append(&mut self.leftover);
        }
        removed.retain(|file| !kept.contains(file));
        removed
    }

    fn files(&self) -> impl Iterator<Item = CheckpointFile> {
        self.chains.iter().flat_map(CheckpointChain::files)
    }

    /// The checkpoint with this index and digest: its mark and its files with their lengths, in the order of its bytes.
    pub(crate) fn find(&self, index: u64, digest: [u8; 16]) -> Option<StoredFiles<'_>> {
        self.chains.iter().find_map(|chain| {
            let is_it = |it: &&SnapshotMark| it.index == index && it.digest == digest;
            let whole = CheckpointFile::whole(chain.whole.index).name();
            let (mark, changes) = match chain.changes.as_ref().filter(is_it) {
                Some(changes) => (changes, chain.changes_file()),
                None => (Some(&chain.whole).filter(is_it)?, None),
            };
            Some(StoredFiles {
                mark,
                whole: (whole, chain.whole.length),
                changes: changes.map(CheckpointFile::name),
            })
        })
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.chains.len() <= CHAINS_MAX);
        assert!(
            self.chains
                .is_sorted_by(|a, b| a.whole.index < b.whole.index)
        );
        for chain in &self.chains {
            let changes = chain.changes.as_ref();
            assert!(changes.is_none_or(|it| {
                it.index > chain.whole.index && it.length > chain.whole.length
            }));
        }
    }
}

/// The files of one checkpoint, whose bytes follow each other.
#[derive(Debug)]
pub(crate) struct StoredFiles<'a> {
    pub(crate) mark: &'a SnapshotMark,
    /// The whole one, and its length.
    pub(crate) whole: (FileName, u64),
    /// The one of changes, if there is one.
    pub(crate) changes: Option<FileName>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;
    use std::collections::BTreeSet;

    fn mark(index: u64) -> SnapshotMark {
        SnapshotMark {
            index,
            length: index,
            ..SnapshotMark::default()
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for file in [
            CheckpointFile::whole(0),
            CheckpointFile::whole(u64::MAX),
            CheckpointFile {
                index: 9,
                base: Some(7),
            },
        ] {
            assert_eq!(CheckpointFile::named(&file.name()), Some(file));
        }
        for other in [
            "checkpoint-7",
            "changes-00000000000000000009",
            "changes-9-of-7",
            "new-checkpoint",
        ] {
            let name = FileName::new(other).unwrap();
            assert_eq!(CheckpointFile::named(&name), None, "{other}");
        }
    }

    /// Is there a checkpoint without this file, from which the journal is kept on?
    fn survives(
        files: &BTreeSet<(u64, Option<u64>)>,
        damaged: (u64, Option<u64>),
        from: u64,
    ) -> bool {
        files.iter().any(|&(index, base)| {
            let is_whole = (index, base) != damaged;
            let has_base =
                base.is_none_or(|base| files.contains(&(base, None)) && (base, None) != damaged);
            is_whole && has_base && index >= from
        })
    }

    #[test]
    fn any_file_may_be_damaged() {
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut stored = StoredCheckpoints::new(None, Vec::new());
            let mut files: BTreeSet<(u64, Option<u64>)> = BTreeSet::new();
            let mut base = 0;
            for index in 1..60 {
                let kind = (base > 0 && rng.chance(0.6)).then_some(base);
                if kind.is_none() && rng.chance(0.7) {
                    base = index; // else a whole one between those that are due
                }
                files.insert((index, kind));
                for gone in stored.keep(mark(index), kind) {
                    assert!(files.remove(&(gone.index, gone.base)), "{gone:?}");
                }
                stored.check_invariants();
                assert!(files.len() <= 4, "{files:?}");
                let known: BTreeSet<_> = stored.files().map(|it| (it.index, it.base)).collect();
                assert_eq!(known, files);
                let from = stored.free_to();
                for &damaged in &files {
                    assert!(from == 0 || survives(&files, damaged, from), "{files:?}");
                }
            }
        }
    }

    #[test]
    fn what_a_start_found_stays_until_there_are_two_chains() {
        let found = CheckpointChain {
            whole: mark(5),
            changes: None,
        };
        let old = vec![CheckpointFile::whole(3)];
        let mut stored = StoredCheckpoints::new(Some(found), old);
        assert_eq!(stored.keep(mark(6), Some(5)), []);
        assert_eq!(stored.free_to(), 0);
        let changes = CheckpointFile {
            index: 6,
            base: Some(5),
        };
        assert_eq!(stored.keep(mark(7), Some(5)), [changes]);
        assert_eq!(stored.keep(mark(8), None), [CheckpointFile::whole(3)]);
        assert_eq!(stored.free_to(), 7);
    }
}
