//! The durable part of a disk, and the changes that a crash may lose.

use super::tree::{FileTree, folder_of, is_top};
use crate::crash::{Choice, DiskOperation, Fate};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A disk as seen by a crash: durable bytes and names, and the operations since then that are not durable, by number. Operations
/// are applied one by one; a sync makes durable the operations that it covers. [`Media::build`] returns the files after a crash,
/// given the fate of each operation.
///
/// Cost: an operation is a look-up by file; a sync copies the bytes that it makes durable once. A look-up by number is a linear
/// search, which only crashes make.
#[derive(Debug, Default)]
pub(crate) struct Media {
    /// Number of operations applied.
    count: usize,
    files: BTreeMap<u64, MediaFile>,
    /// Durable names.
    names: BTreeMap<PathBuf, u64>,
    /// Durable folders, without the root and the working folder, which always exist.
    folders: BTreeSet<PathBuf>,
    /// Changes of names that are not durable, in order.
    pending_names: Vec<PendingName>,
    /// The file that was written last.
    last_written: Option<u64>,
}

/// A file with its durable bytes.
#[derive(Debug, Default)]
struct MediaFile {
    durable: Arc<Vec<u8>>,
    /// Writes and changes of length that are not durable, in order.
    pending: Vec<(usize, DiskOperation)>,
}

#[derive(Clone, Debug)]
struct PendingName {
    number: usize,
    operation: DiskOperation,
    /// Of a rename between folders: the new name is durable and the removal of the old one is not.
    is_half: bool,
}

/// The changes that are not durable at one point of a run, by operation number.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Writes and changes of length, in order.
    pub(crate) data: Vec<usize>,
    /// Changes of names, in order.
    pub(crate) names: Vec<usize>,
    /// The `names` that are renames between folders of which neither side is durable.
    pub(crate) halves: Vec<usize>,
    /// By file with more than one possible length: all lengths since its last sync; the first is the durable one.
    pub(crate) lengths: Vec<(u64, Vec<u64>)>,
}

impl Media {
    /// These files, all durable, numbered by path, as a storage numbers them.
    pub(crate) fn new(tree: &FileTree) -> Media {
        let mut media = Media {
            folders: tree.folders().map(Path::to_owned).collect(),
            ..Media::default()
        };
        for (number, (path, bytes)) in (0..).zip(tree.iter()) {
            let file = MediaFile {
                durable: Arc::clone(bytes),
                pending: Vec::new(),
            };
            media.files.insert(number, file);
            media.names.insert(path.to_owned(), number);
        }
        media
    }

    /// An operation that is not durable; `None` if it is durable, or forgotten with its file.
    pub(super) fn operation(&self, number: usize) -> Option<&DiskOperation> {
        let names = self.pending_names.iter();
        let names = names.map(|it| (it.number, &it.operation));
        let data = self.files.values().flat_map(|it| &it.pending);
        let mut all = names.chain(data.map(|(number, operation)| (*number, operation)));
        all.find(|it| it.0 == number).map(|it| it.1)
    }

    /// The file that was written last.
    pub(crate) const fn last_written(&self) -> Option<u64> {
        self.last_written
    }

    /// Number and durable length of each file that has a durable name.
    pub(crate) fn lengths(&self) -> Vec<(u64, u64)> {
        let files = self.names.values();
        let length = |file: &u64| self.files.get(file).map_or(0, |it| it.durable.len() as u64);
        files.map(|file| (*file, length(file))).collect()
    }

    /// Flips bits of a durable byte.
    pub(crate) fn flip(&mut self, file: u64, place: usize, bits: u8) {
        if let Some(file) = self.files.get_mut(&file)
            && place < file.durable.len()
        {
            Arc::make_mut(&mut file.durable)[place] ^= bits;
        }
    }

    /// Applies an operation that took effect.
    pub(crate) fn apply(&mut self, operation: DiskOperation) {
        let number = self.count;
        self.count += 1;
        match &operation {
            DiskOperation::Write { file, .. } | DiskOperation::SetLength { file, .. } => {
                self.last_written = Some(*file);
                let file = self.files.entry(*file).or_default();
                file.pending.push((number, operation));
            }
            DiskOperation::Sync { file, .. } => self.sync(*file),
            DiskOperation::SyncFolder { path } => self.sync_folder(path),
            DiskOperation::Create { .. }
            | DiskOperation::Rename { .. }
            | DiskOperation::Remove { .. }
            | DiskOperation::CreateFolder { .. } => {
                self.pending_names.push(PendingName {
                    number,
                    operation,
                    is_half: false,
                });
            }
        }
    }

    /// Makes the bytes and the length of a file durable.
    fn sync(&mut self, file: u64) {
        let Some(file) = self.files.get_mut(&file) else {
            return;
        };
        if file.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut file.durable);
        for (_, operation) in file.pending.drain(..) {
            match operation {
                DiskOperation::Write { offset, bytes, .. } => {
                    let (start, end) = (offset as usize, offset as usize + bytes.len());
                    if durable.len() == start {
                        durable.extend_from_slice(&bytes);
                        continue;
                    }
                    if durable.len() < end {
                        durable.resize(end, 0);
                    }
                    durable[start..end].copy_from_slice(&bytes);
                }
                DiskOperation::SetLength { length, .. } => durable.resize(length as usize, 0),
                _ => {}
            }
        }
    }

    /// Makes the names in `folder` durable.
    fn sync_folder(&mut self, folder: &Path) {
        for name in std::mem::take(&mut self.pending_names) {
            let operation = &name.operation;
            let is_in = |path: &Path| folder_of(path) == folder;
            let (is_due, becomes_half) = match operation {
                DiskOperation::Create { path, .. }
                | DiskOperation::Remove { path, .. }
                | DiskOperation::CreateFolder { path } => (is_in(path), false),
                DiskOperation::Rename { from, to, .. } => {
                    (is_in(from), is_in(to) && !name.is_half && !is_in(from))
                }
                _ => (true, false),
            };
            let (names, folders) = (&mut self.names, &mut self.folders);
            if is_due {
                rename(operation, name.is_half, None, names, folders);
            } else if becomes_half {
                rename(operation, name.is_half, Some(Fate::Half), names, folders);
                self.pending_names.push(PendingName {
                    is_half: true,
                    ..name
                });
            } else {
                self.pending_names.push(name);
            }
        }
        self.forget_nameless();
    }

    /// Drops files that no crash can bring back: files without a durable name or a pending one. A program may still have such a
    /// file open; its writes there are lost in every crash.
    fn forget_nameless(&mut self) {
        let reachable = self.reachable();
        self.files.retain(|number, _| reachable.contains(number));
    }

    /// Files that have a name after at least one possible crash.
    fn reachable(&self) -> BTreeSet<u64> {
        let mut reachable: BTreeSet<u64> = self.names.values().copied().collect();
        for name in &self.pending_names {
            if let DiskOperation::Create { file, .. } | DiskOperation::Rename { file, .. } =
                &name.operation
            {
                reachable.insert(*file);
            }
        }
        reachable
    }

    /// The changes that are not durable, of files that may have a name.
    pub(crate) fn pending(&self) -> Pending {
        let reachable = self.reachable();
        let mut pending = Pending::default();
        for name in &self.pending_names {
            pending.names.push(name.number);
            if let DiskOperation::Rename { from, to, .. } = &name.operation
                && folder_of(from) != folder_of(to)
                && !name.is_half
            {
                pending.halves.push(name.number);
            }
        }
        for (&number, file) in &self.files {
            if file.pending.is_empty() || !reachable.contains(&number) {
                continue;
            }
            pending.data.extend(file.pending.iter().map(|(it, _)| *it));
            let mut length = file.durable.len() as u64;
            let mut lengths = vec![length];
            for (_, operation) in &file.pending {
                length = length_after(operation, length);
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

    /// The files after a crash that loses everything that is not durable.
    pub(crate) fn durable(&self) -> FileTree {
        let bytes = |file: u64| self.files.get(&file).map(|it| Arc::clone(&it.durable));
        tree(&self.names, &self.folders, |file| {
            bytes(file).unwrap_or_default()
        })
    }

    /// The files after a crash in which `choice` holds.
    pub(crate) fn build(&self, choice: &Choice) -> FileTree {
        let (mut names, mut folders) = (self.names.clone(), self.folders.clone());
        for name in &self.pending_names {
            let fate = choice.fates.get(&name.number).copied();
            let (operation, is_half) = (&name.operation, name.is_half);
            rename(operation, is_half, fate, &mut names, &mut folders);
        }
        tree(&names, &folders, |file| self.content(file, choice))
    }

    /// The bytes of a file after a crash in which `choice` holds.
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
        for (number, operation) in &file.pending {
            let fate = choice.fates.get(number);
            match operation {
                DiskOperation::Write {
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
                DiskOperation::SetLength { length, .. } if fate.is_none() => {
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

/// Files and folders that are reachable from the root.
fn tree(
    names: &BTreeMap<PathBuf, u64>,
    folders: &BTreeSet<PathBuf>,
    content: impl Fn(u64) -> Arc<Vec<u8>>,
) -> FileTree {
    let is_there =
        |path: &Path| (path.ancestors().skip(1)).all(|it| is_top(it) || folders.contains(it));
    let files = names.iter().filter(|(path, _)| is_there(path));
    let files = files.map(|(path, file)| (path.clone(), content(*file)));
    let folders = folders.iter().filter(|path| is_there(path));
    FileTree::of_plain(files.collect(), folders.cloned().collect())
}

/// The length of a file after a change of its bytes.
pub(super) fn length_after(operation: &DiskOperation, before: u64) -> u64 {
    match operation {
        DiskOperation::Write { offset, bytes, .. } => before.max(offset + bytes.len() as u64),
        DiskOperation::SetLength { length, .. } => *length,
        _ => before,
    }
}

/// Applies the part of a change of names that survived.
fn rename(
    operation: &DiskOperation,
    is_half: bool,
    fate: Option<Fate>,
    names: &mut BTreeMap<PathBuf, u64>,
    folders: &mut BTreeSet<PathBuf>,
) {
    if fate == Some(Fate::Lost) {
        return;
    }
    match operation {
        DiskOperation::Create { path, file } => drop(names.insert(path.clone(), *file)),
        DiskOperation::Remove { path, .. } => drop(names.remove(path)),
        DiskOperation::CreateFolder { path } => drop(folders.insert(path.clone())),
        DiskOperation::Rename { from, to, file } => {
            if !is_half {
                names.insert(to.clone(), *file);
            }
            // Another file may have taken the old name since: only this file's entry is removed.
            if fate != Some(Fate::Half) && names.get(from) == Some(file) {
                names.remove(from);
            }
        }
        _ => {}
    }
}
