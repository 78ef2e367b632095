//! What one crash takes, drawn.

use super::media::{Media, Pending, length_after};
use super::state::Watch;
use super::{FileTree, MemoryStorage, hold};
use crate::crash::{Choice, Fate, Operation, tears};
use crate::options::DiskOptions;
use seatrial_machine::Rng;

impl MemoryStorage {
    /// The files after a crash: of what was not synced, a part that `options` and `rng` draw. The storage itself is out of
    /// use from then on: the process that held it has ended.
    pub(crate) fn crash(&self, options: &DiskOptions, rng: &mut Rng) -> FileTree {
        let mut state = hold(&self.disk.state);
        state.fuse = Some(0);
        if let Watch::Tracks(media) = &state.watch {
            return media.build(&media.draw(options, rng));
        }
        drop(state);
        self.files()
    }

    /// The same with everything lost that was not synced.
    pub(crate) fn lose_power(&self) -> FileTree {
        hold(&self.disk.state).fuse = Some(0);
        self.durable()
    }
}

impl Media {
    /// What becomes of the operations that are not durable: all are lost; or the first of them survive in order, and of the
    /// next one perhaps a part; or, when the disk reorders, any of them survive, with torn ones among them.
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

    /// Each operation survives by itself, in most crashes with the same chance.
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
        // A length may be written before bytes that are below it.
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

    /// These operations survive whole and the others not at all; files are as long as those that survive make them.
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

    /// A part of a write arrives: some of its sectors or pages, or its first bytes.
    fn tear(&self, pending: &Pending, number: usize, choice: &mut Choice, rng: &mut Rng) {
        let Some(Operation::Write {
            file,
            offset,
            bytes,
            ..
        }) = self.operation(number)
        else {
            return;
        };
        if pending.data.binary_search(&number).is_err() {
            return; // of a file that has no name
        }
        let (end, length) = (offset + bytes.len() as u64, bytes.len() as u64);
        let reached = choice.lengths.get(file).copied();
        if rng.chance(0.5) {
            // Its first bytes, and the file ends there; where it does not grow the file, sectors are torn instead.
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

/// The file whose bytes or length an operation changes.
fn file_of(operation: &Operation) -> Option<u64> {
    match operation {
        Operation::Write { file, .. } | Operation::SetLength { file, .. } => Some(*file),
        _ => None,
    }
}
