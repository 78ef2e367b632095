//! Draws what one crash of a node loses.

use super::media::{Media, Pending, length_after};
use super::storage_state::ChangeTracker;
use super::{FileTree, MemoryStorage, hold};
use crate::crash::{Choice, DiskOperation, Fate, tears};
use crate::world_options::DiskOptions;
use seatrial_machine::Rng;

impl MemoryStorage {
    /// The files after a crash: of the changes that were not synced, a part survives that `options` and `rng` draw. The storage
    /// must not be used afterwards: its process has ended.
    pub(crate) fn crash(&self, options: &DiskOptions, rng: &mut Rng) -> FileTree {
        let mut state = hold(&self.disk.state);
        state.fuse = Some(0);
        if let ChangeTracker::Tracks(media) = &state.watch {
            return media.build(&media.draw(options, rng));
        }
        drop(state);
        self.files()
    }

    /// The files after a crash that loses every change that was not synced.
    pub(crate) fn lose_power(&self) -> FileTree {
        hold(&self.disk.state).fuse = Some(0);
        self.durable()
    }
}

impl Media {
    /// Draws the fate of the operations that are not durable: all are lost; or a prefix survives, and perhaps a part of the next
    /// operation; or, on a disk that reorders, any subset survives, with torn writes among them.
    fn draw(&self, options: &DiskOptions, rng: &mut Rng) -> Choice {
        let pending = self.pending();
        let mut all: Vec<usize> = pending.data.iter().chain(&pending.names).copied().collect();
        all.sort_unstable();
        let keeps_all = options.kill_keeps_all > 0.0 && rng.chance(options.kill_keeps_all);
        if all.is_empty() || keeps_all {
            return Choice::default();
        }
        if rng.chance(options.crash_loses_all) {
            return self.kept(&pending, &all, |_| false);
        }
        if options.reordering > 0.0 && rng.chance(options.reordering) {
            return self.reordered(&pending, &all, options, rng);
        }
        let survivors = rng.index(all.len() + 1);
        let first_lost = all.get(survivors).copied().unwrap_or(usize::MAX);
        let mut choice = self.kept(&pending, &all, |it| it < first_lost);
        if rng.chance(options.torn_write) {
            self.tear(&pending, first_lost, &mut choice, rng);
        }
        choice
    }

    /// Draws each operation's fate on its own, in most crashes with the same probability.
    fn reordered(
        &self,
        pending: &Pending,
        all: &[usize],
        options: &DiskOptions,
        rng: &mut Rng,
    ) -> Choice {
        let lost = rng.unit();
        let survivors: Vec<usize> = all.iter().copied().filter(|_| !rng.chance(lost)).collect();
        let is_kept = |it: usize| survivors.binary_search(&it).is_ok();
        let mut choice = self.kept(pending, all, is_kept);
        // The length of a file may reach the disk before its last bytes do.
        if rng.chance(0.5) {
            choice.lengths.clear();
        }
        for &operation in all {
            if pending.halves.contains(&operation) && rng.chance(0.3) {
                choice.fates.insert(operation, Fate::Half);
            } else if rng.chance(options.torn_write) {
                self.tear(pending, operation, &mut choice, rng);
            }
        }
        choice
    }

    /// The choice in which these operations survive and the others are lost; file lengths follow from the survivors.
    fn kept(&self, pending: &Pending, all: &[usize], is_kept: impl Fn(usize) -> bool) -> Choice {
        let lost = all.iter().copied().filter(|it| !is_kept(*it));
        let mut choice = Choice {
            fates: lost.map(|it| (it, Fate::Lost)).collect(),
            ..Choice::default()
        };
        for (file, lengths) in &pending.lengths {
            let mut length = lengths[0];
            for number in pending.data.iter().filter(|it| is_kept(**it)) {
                let operation = self.operation(*number);
                if let Some(operation) = operation.filter(|it| file_of(it) == Some(*file)) {
                    length = length_after(operation, length);
                }
            }
            choice.lengths.insert(*file, length);
        }
        choice
    }

    /// Draws which part of a write survives: some of its sectors or pages, or its first bytes.
    fn tear(&self, pending: &Pending, number: usize, choice: &mut Choice, rng: &mut Rng) {
        let Some(DiskOperation::Write {
            file,
            offset,
            bytes,
            ..
        }) = self.operation(number)
        else {
            return;
        };
        if pending.data.binary_search(&number).is_err() {
            return; // its file has no name: no crash brings it back
        }
        let (end, length) = (offset + bytes.len() as u64, bytes.len() as u64);
        let reached = choice.lengths.get(file).copied();
        if rng.chance(0.5) {
            // A prefix survives and the file ends there. A write that does not grow its file is torn in sectors instead.
            let cut = offset + rng.below(length + 1);
            if reached.is_some_and(|reached| reached <= *offset) {
                choice.fates.remove(&number);
                choice.lengths.insert(*file, cut);
                return;
            }
        }
        let ways = tears(*offset, length, rng);
        choice.fates.insert(number, Fate::Torn(*rng.pick(&ways)));
        if reached.is_some_and(|reached| reached < end) {
            choice.lengths.insert(*file, end);
        }
    }
}

/// The file whose bytes or length an operation changes; `None` for changes of names and syncs.
fn file_of(operation: &DiskOperation) -> Option<u64> {
    match operation {
        DiskOperation::Write { file, .. } | DiskOperation::SetLength { file, .. } => Some(*file),
        _ => None,
    }
}
