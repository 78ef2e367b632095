//! The disk at a point of a trace: what is durable there, and what a crash may take.

use super::choice::{Choice, Fate};
use super::recorder::{Operation, Trace};
use crate::storage::{FileTree, folder_of, is_top};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plays a trace operation by operation. [`Replay::build`] answers the files after a crash at the present point.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    pub(super) operations: &'a [Operation],
    /// Operations that were done.
    pub(super) point: usize,
    files: BTreeMap<u64, PlayedFile>,
    /// Durable names.
    names: BTreeMap<PathBuf, u64>,
    /// Durable folders, without those that are always there.
    folders: BTreeSet<PathBuf>,
    /// Changes of names that are not durable, in order.
    pending_names: Vec<PendingName>,
}

/// A file while the trace is played.
#[derive(Debug, Default)]
struct PlayedFile {
    durable: Arc<Vec<u8>>,
    /// Numbers of the operations that are not durable.
    pending: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct PendingName {
    operation: usize,
    /// The new name of a rename between folders is durable, the removal of the old one is not.
    is_half: bool,
}

/// What is not durable at a point.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Writes and changes of length, in order.
    pub(super) data: Vec<usize>,
    /// Changes of names, in order.
    pub(super) names: Vec<usize>,
    /// Those of them that rename between folders and of which nothing is durable.
    pub(super) halves: Vec<usize>,
    /// Lengths that a file has had since it was synced, where there is more than one; the first is the durable one.
    pub(super) lengths: Vec<(u64, Vec<u64>)>,
}

impl<'a> Replay<'a> {
    pub(super) fn new<P>(trace: &'a Trace<P>) -> Replay<'a> {
        let mut replay = Replay {
            operations: &trace.operations,
            point: 0,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            folders: trace.start.folders().map(Path::to_owned).collect(),
            pending_names: Vec::new(),
        };
        for (number, (path, bytes)) in (0..).zip(trace.start.iter()) {
            let file = PlayedFile {
                durable: Arc::clone(bytes),
                pending: Vec::new(),
            };
            replay.files.insert(number, file);
            replay.names.insert(path.to_owned(), number);
        }
        replay
    }

    /// Plays up to a point.
    pub(super) fn advance_to(&mut self, point: usize) {
        while self.point < point.min(self.operations.len()) {
            self.advance();
        }
    }

    /// Plays one operation.
    fn advance(&mut self) {
        let operation = self.point;
        self.point += 1;
        match &self.operations[operation] {
            Operation::Write { file, .. } | Operation::SetLength { file, .. } => {
                self.files.entry(*file).or_default().pending.push(operation);
            }
            Operation::Sync { file, .. } => {
                let synced = self.content(*file, &Choice::default());
                let file = self.files.entry(*file).or_default();
                file.durable = synced;
                file.pending.clear();
            }
            Operation::SyncFolder { path } => self.sync_folder(path),
            Operation::Create { .. }
            | Operation::Rename { .. }
            | Operation::Remove { .. }
            | Operation::CreateFolder { .. } => self.pending_names.push(PendingName {
                operation,
                is_half: false,
            }),
        }
    }

    /// Makes the names in `folder` durable.
    fn sync_folder(&mut self, folder: &Path) {
        let pending = std::mem::take(&mut self.pending_names);
        for name in pending {
            let is_in = |path: &Path| folder_of(path) == folder;
            let (is_due, becomes_half) = match &self.operations[name.operation] {
                Operation::Create { path, .. }
                | Operation::Remove { path, .. }
                | Operation::CreateFolder { path } => (is_in(path), false),
                Operation::Rename { from, to, .. } => {
                    (is_in(from), is_in(to) && !name.is_half && !is_in(from))
                }
                _ => (true, false),
            };
            if is_due {
                let (names, folders) = (&mut self.names, &mut self.folders);
                rename(self.operations, name, None, names, folders);
            } else if becomes_half {
                let (names, folders) = (&mut self.names, &mut self.folders);
                rename(self.operations, name, Some(Fate::Half), names, folders);
                self.pending_names.push(PendingName {
                    is_half: true,
                    ..name
                });
            } else {
                self.pending_names.push(name);
            }
        }
    }

    /// What is not durable, of files that may have a name.
    pub(super) fn pending(&self) -> Pending {
        let mut reachable: BTreeSet<u64> = self.names.values().copied().collect();
        let mut pending = Pending::default();
        for name in &self.pending_names {
            pending.names.push(name.operation);
            match &self.operations[name.operation] {
                Operation::Create { file, .. } => drop(reachable.insert(*file)),
                Operation::Rename { from, to, file } => {
                    reachable.insert(*file);
                    if folder_of(from) != folder_of(to) && !name.is_half {
                        pending.halves.push(name.operation);
                    }
                }
                _ => {}
            }
        }
        for (&number, file) in &self.files {
            if file.pending.is_empty() || !reachable.contains(&number) {
                continue;
            }
            pending.data.extend(&file.pending);
            let mut length = file.durable.len() as u64;
            let mut lengths = vec![length];
            for &operation in &file.pending {
                length = length_after(&self.operations[operation], length);
                if !lengths.contains(&length) {
                    lengths.push(length);
                }
            }
            if lengths.len() > 1 {
                pending.lengths.push((number, lengths));
            }
        }
        pending.data.sort_unstable();
        pending
    }

    /// The files after a crash.
    pub(super) fn build(&self, choice: &Choice) -> FileTree {
        let (mut names, mut folders) = (self.names.clone(), self.folders.clone());
        for &name in &self.pending_names {
            let fate = choice.fates.get(&name.operation).copied();
            rename(self.operations, name, fate, &mut names, &mut folders);
        }
        let is_there =
            |path: &Path| (path.ancestors().skip(1)).all(|it| is_top(it) || folders.contains(it));
        let mut tree = FileTree::default();
        for (path, file) in names {
            if is_there(&path) {
                tree.insert(path, self.content(file, choice));
            }
        }
        for folder in &folders {
            if is_there(folder) {
                tree.insert_folder(folder);
            }
        }
        tree
    }

    /// The bytes of a file after a crash.
    fn content(&self, number: u64, choice: &Choice) -> Arc<Vec<u8>> {
        let Some(file) = self.files.get(&number) else {
            return Arc::default();
        };
        let length = choice.lengths.get(&number);
        if file.pending.is_empty() && length.is_none() {
            return Arc::clone(&file.durable);
        }
        let mut bytes = Vec::clone(&file.durable);
        let mut length_now = bytes.len() as u64;
        for &number in &file.pending {
            let operation = &self.operations[number];
            let fate = choice.fates.get(&number);
            match operation {
                Operation::Write {
                    offset, bytes: new, ..
                } => {
                    length_now = length_after(operation, length_now);
                    let (start, end) = (*offset as usize, *offset as usize + new.len());
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    match fate {
                        None | Some(Fate::Half) => bytes[start..end].copy_from_slice(new),
                        Some(Fate::Lost) => {}
                        Some(Fate::Torn(tear)) => tear.write(&mut bytes, start, new),
                    }
                }
                Operation::SetLength { length, .. } if fate.is_none() => {
                    length_now = *length;
                    bytes.resize(length_now as usize, 0);
                }
                _ => {}
            }
        }
        bytes.resize(*length.unwrap_or(&length_now) as usize, 0);
        Arc::new(bytes)
    }
}

/// The length of a file after a change of its bytes.
fn length_after(operation: &Operation, before: u64) -> u64 {
    match operation {
        Operation::Write { offset, bytes, .. } => before.max(offset + bytes.len() as u64),
        Operation::SetLength { length, .. } => *length,
        _ => before,
    }
}

/// Carries out a change of names, as far as it has arrived.
fn rename(
    operations: &[Operation],
    name: PendingName,
    fate: Option<Fate>,
    names: &mut BTreeMap<PathBuf, u64>,
    folders: &mut BTreeSet<PathBuf>,
) {
    if fate == Some(Fate::Lost) {
        return;
    }
    match &operations[name.operation] {
        Operation::Create { path, file } => drop(names.insert(path.clone(), *file)),
        Operation::Remove { path, .. } => drop(names.remove(path)),
        Operation::CreateFolder { path } => drop(folders.insert(path.clone())),
        Operation::Rename { from, to, file } => {
            if !name.is_half {
                names.insert(to.clone(), *file);
            }
            // The old name may belong to a newer file by now.
            if fate != Some(Fate::Half) && names.get(from) == Some(file) {
                names.remove(from);
            }
        }
        _ => {}
    }
}
