//! The simulated disk: files in memory with every fault of a disk. The only [`Storage`] of this crate.

mod loss;
mod media;
mod medium;
mod storage_state;
mod tree;

use crate::crash::DiskOperation;
use crate::single_fault::{Access, BlockFault, Site};
use medium::{MemoryFile, MemoryMedium};
use seatrial_machine::{DiskTrouble, Medium, Rng, Storage};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage_state::{Call, ChangeTracker, StorageState};

pub(crate) use crate::single_fault::accesses::{Accesses, PlantedFault};
pub(crate) use media::{Media, Pending};
pub use tree::FileTree;
use tree::name_in;
pub(crate) use tree::{folder_of, is_top, plain};

/// Locks a mutex, also a poisoned one: the data of this module is consistent after every statement, so a panic of another thread
/// cannot have left it half changed.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A [`Storage`] in memory, for tests and simulations. It behaves like a file system: an open file outlives its renaming and
/// removal, a file cannot be created in a missing folder, a file has one lock. A clone is another handle of the same files;
/// [`MemoryStorage::files`] is a copy-on-write snapshot, so a thousand variants of a folder cost little.
///
/// Every fault of a disk in this crate is one of this type:
///
/// | fault | how |
/// | --- | --- |
/// | unsynced bytes lost or torn, names lost | [`crash`](crate::crash): all of them; [`World`](crate::World): drawn |
/// | one access of one block: error, no space, zeros, flipped bit, noise | [`MemoryStorage::with_fault`] |
/// | the disk is full | [`MemoryStorage::set_room`], [`DiskTrouble::NoSpace`] |
/// | every read or write fails | [`MemoryStorage::set_trouble`] |
/// | every sync fails | [`MemoryStorage::fail_syncs`] |
/// | bits rot | [`MemoryStorage::rot`] |
/// | a process ends in the middle of its writes | [`MemoryStorage::end_after`] |
///
/// Its downside: the first write to a file after a snapshot copies the file.
///
/// ```
/// use seatrial_machine::Storage;
/// use seatrial_sim::MemoryStorage;
/// use std::path::Path;
///
/// let storage = MemoryStorage::new();
/// let file = storage.create(Path::new("log"))?;
/// file.write_at(0, b"one")?;
/// let before = storage.files();
/// storage.rename(Path::new("log"), Path::new("old"))?;
/// file.write_at(3, b" two")?;
/// assert_eq!(storage.files().get("old"), Some(&b"one two"[..]));
/// assert_eq!(MemoryStorage::from_files(&before).list(Path::new(""))?, ["log"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    disk: Arc<SharedDisk>,
    lends: bool,
    /// Counts of accesses, and the planted fault, of this handle alone.
    accesses: Option<Arc<Accesses>>,
}

/// The state that all handles share.
#[derive(Debug, Default)]
struct SharedDisk {
    /// Locked before `names`, and before a file's bytes.
    state: Mutex<StorageState>,
    names: Mutex<Directory>,
}

impl SharedDisk {
    /// Begins a call, or returns the error of a fault. A call is atomic while the returned guard is held.
    fn enter(&self, call: Call) -> io::Result<MutexGuard<'_, StorageState>> {
        let mut state = hold(&self.state);
        state.enter(call)?;
        Ok(state)
    }
}

/// Files and folders by path.
#[derive(Debug, Default)]
struct Directory {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    folders: BTreeSet<PathBuf>,
    next_number: u64,
}

impl Directory {
    fn file(&self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        let file = self.files.get(&plain(path));
        Ok(Arc::clone(file.ok_or(ErrorKind::NotFound)?))
    }

    fn add(&mut self, path: PathBuf, bytes: Arc<Vec<u8>>) -> Arc<MemoryFile> {
        let file = Arc::new(MemoryFile::new(self.next_number, bytes));
        self.next_number += 1;
        self.files.insert(path, Arc::clone(&file));
        file
    }

    fn is_folder(&self, path: &Path) -> bool {
        is_top(path) || self.folders.contains(path)
    }

    fn create(&mut self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        let path = plain(path);
        if self.files.contains_key(&path) || self.is_folder(&path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !self.is_folder(folder_of(&path)) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(self.add(path, Arc::default()))
    }

    /// Folders on a plain path that do not exist, from the top down.
    fn missing_folders(&self, path: &Path) -> Vec<PathBuf> {
        let missing = path.ancestors().filter(|folder| !self.is_folder(folder));
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        missing
    }
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// A storage with these files.
    pub fn from_files(tree: &FileTree) -> MemoryStorage {
        MemoryStorage::watched(tree, ChangeTracker::Nothing)
    }

    /// A storage with these files, all durable, that records every change.
    pub(crate) fn recording(tree: &FileTree) -> MemoryStorage {
        MemoryStorage::watched(tree, ChangeTracker::Keeps(Vec::new()))
    }

    /// A storage with these files, all durable, that tracks which later changes are not durable ([`MemoryStorage::crash`]).
    pub(crate) fn forgetful(tree: &FileTree) -> MemoryStorage {
        MemoryStorage::watched(tree, ChangeTracker::Tracks(Box::new(Media::new(tree))))
    }

    fn watched(tree: &FileTree, watch: ChangeTracker) -> MemoryStorage {
        let mut names = Directory {
            folders: tree.folders().map(Path::to_owned).collect(),
            ..Directory::default()
        };
        for (path, bytes) in tree.iter() {
            names.add(path.to_owned(), Arc::clone(bytes));
        }
        let disk = SharedDisk {
            state: Mutex::new(StorageState::new(watch)),
            names: Mutex::new(names),
        };
        MemoryStorage {
            disk: Arc::new(disk),
            lends: false,
            accesses: None,
        }
    }

    /// The same files, also readable through [`Medium::map`]; otherwise a caller has to read.
    #[must_use]
    pub fn lending(mut self) -> MemoryStorage {
        self.lends = true;
        self
    }

    /// Another handle of the same files with one planted fault: access number `turn` (from 0) of a block meets it, and if it
    /// `lasts`, every later access too. Blocks have `block_length` bytes.
    #[must_use]
    pub fn with_fault(
        &self,
        block_length: u64,
        site: Site,
        turn: u64,
        lasts: bool,
        fault: BlockFault,
    ) -> MemoryStorage {
        let plan = PlantedFault {
            site,
            turn,
            lasts,
            fault,
            seed: 0,
        };
        self.counting(block_length, Some(plan))
    }

    /// Another handle of the same files that counts accesses, one of which may meet a planted fault.
    pub(crate) fn counting(&self, block_length: u64, plan: Option<PlantedFault>) -> MemoryStorage {
        MemoryStorage {
            accesses: Some(Arc::new(Accesses::new(block_length, plan))),
            ..self.clone()
        }
    }

    /// Number of accesses of each block through this handle; empty unless the handle has a planted fault.
    pub fn met(&self) -> BTreeMap<Site, u64> {
        self.accesses
            .as_ref()
            .map_or_else(BTreeMap::new, |it| it.met())
    }

    /// Has an access met this handle's planted fault?
    pub fn has_fired(&self) -> bool {
        self.accesses.as_ref().is_some_and(|it| it.has_fired())
    }

    /// Snapshot of all files.
    pub fn files(&self) -> FileTree {
        let names = hold(&self.disk.names);
        let files = names.files.iter();
        let files = files.map(|(path, file)| (path.clone(), file.bytes()));
        FileTree::of_plain(files.collect(), names.folders.clone())
    }

    /// Sets the number of bytes that may still be written; a write that does not fit is made in part. `None`: no bound.
    pub fn set_room(&self, bytes: Option<u64>) {
        hold(&self.disk.state).room = bytes;
    }

    /// Sets the disk's fault, for every handle. `Slow` has an effect in a [`World`](crate::World) only.
    pub fn set_trouble(&self, trouble: Option<DiskTrouble>) {
        hold(&self.disk.state).trouble = trouble;
    }

    /// The disk's fault.
    pub fn trouble(&self) -> Option<DiskTrouble> {
        hold(&self.disk.state).trouble
    }

    /// Makes syncs of files and folders fail, or succeed again.
    pub fn fail_syncs(&self, fails: bool) {
        hold(&self.disk.state).fails_syncs = fails;
    }

    /// Lets `calls` more changes through; then every call fails, as if the process had ended there.
    pub fn end_after(&self, calls: u64) {
        hold(&self.disk.state).fuse = Some(calls);
    }

    /// Flips `bits` random bits, of durable bytes if durability is tracked. False if there are no bytes.
    pub fn rot(&self, bits: u32, rng: &mut Rng) -> bool {
        let mut state = hold(&self.disk.state);
        let names = hold(&self.disk.names);
        let mut files: Vec<(u64, u64)> = if let ChangeTracker::Tracks(media) = &state.watch {
            media.lengths()
        } else {
            let live = names.files.values();
            live.map(|file| (file.number, file.bytes().len() as u64))
                .collect()
        };
        files.retain(|(_, length)| *length > 0);
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        if total == 0 {
            return false;
        }
        for _ in 0..bits {
            let (mut place, bit) = (rng.below(total), 1 << rng.below(8));
            for (number, length) in &files {
                if place < *length {
                    if let ChangeTracker::Tracks(media) = &mut state.watch {
                        media.flip(*number, place as usize, bit);
                    }
                    let live = names.files.values().find(|file| file.number == *number);
                    if let Some(file) = live {
                        file.flip(place as usize, bit);
                    }
                    break;
                }
                place -= length;
            }
        }
        bits > 0
    }

    /// The files after a crash that loses everything that was not synced.
    pub(crate) fn durable(&self) -> FileTree {
        match &hold(&self.disk.state).watch {
            ChangeTracker::Tracks(media) => media.durable(),
            _ => self.files(),
        }
    }

    /// Number of syncs of files and folders so far.
    pub(crate) fn syncs(&self) -> u64 {
        hold(&self.disk.state).syncs
    }

    /// The recorded changes.
    pub(crate) fn operations(&self) -> Vec<DiskOperation> {
        match &hold(&self.disk.state).watch {
            ChangeTracker::Keeps(operations) => operations.clone(),
            _ => Vec::new(),
        }
    }

    /// Number of recorded changes.
    pub(crate) fn operations_len(&self) -> usize {
        match &hold(&self.disk.state).watch {
            ChangeTracker::Keeps(operations) => operations.len(),
            _ => 0,
        }
    }

    /// Path of the file that was written last, if it has one.
    pub(crate) fn last_written(&self) -> Option<PathBuf> {
        let state = hold(&self.disk.state);
        let last = match &state.watch {
            ChangeTracker::Tracks(media) => media.last_written()?,
            _ => return None,
        };
        let names = hold(&self.disk.names);
        let found = names.files.iter().find(|(_, file)| file.number == last);
        found.map(|(path, _)| path.clone())
    }

    fn call(&self, path: &Path) -> io::Result<()> {
        match &self.accesses {
            Some(accesses) => accesses.call(&plain(path), Access::Name),
            None => Ok(()),
        }
    }

    fn medium(&self, file: Arc<MemoryFile>, path: &Path, is_writable: bool) -> Arc<dyn Medium> {
        Arc::new(MemoryMedium {
            file,
            path: plain(path),
            is_writable,
            storage: self.clone(),
        })
    }
}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.call(path)?;
        let mut state = self.disk.enter(Call::Create)?;
        let file = hold(&self.disk.names).create(path)?;
        state.watch.note(|| DiskOperation::Create {
            path: plain(path),
            file: file.number,
        });
        Ok(self.medium(file, path, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.call(path)?;
        let _state = self.disk.enter(Call::Open)?;
        let file = hold(&self.disk.names).file(path)?;
        Ok(self.medium(file, path, false))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        self.call(path)?;
        let _state = self.disk.enter(Call::Open)?;
        let file = hold(&self.disk.names).file(path)?;
        Ok(self.medium(file, path, true))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(from)?;
        let mut state = self.disk.enter(Call::Rename)?;
        let mut names = hold(&self.disk.names);
        let (from, to) = (plain(from), plain(to));
        if names.is_folder(&to) {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !names.is_folder(folder_of(&to)) {
            return Err(ErrorKind::NotFound.into());
        }
        let file = names.files.remove(&from).ok_or(ErrorKind::NotFound)?;
        let number = file.number;
        names.files.insert(to.clone(), file);
        state.watch.note(|| DiskOperation::Rename {
            from,
            to,
            file: number,
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(path)?;
        let mut state = self.disk.enter(Call::Remove)?;
        let path = plain(path);
        let removed = hold(&self.disk.names).files.remove(&path);
        let file = removed.ok_or(ErrorKind::NotFound)?.number;
        state.watch.note(|| DiskOperation::Remove { path, file });
        Ok(())
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.call(path)?;
        let path = plain(path);
        let is_there = hold(&self.disk.names).is_folder(&path);
        let call = if is_there { Call::Open } else { Call::Create };
        let mut state = self.disk.enter(call)?;
        let mut names = hold(&self.disk.names);
        if path.ancestors().any(|it| names.files.contains_key(it)) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        for folder in names.missing_folders(&path) {
            names.folders.insert(folder.clone());
            state
                .watch
                .note(|| DiskOperation::CreateFolder { path: folder });
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call(folder)?;
        let _state = self.disk.enter(Call::Open)?;
        let names = hold(&self.disk.names);
        let folder = plain(folder);
        if !names.is_folder(&folder) {
            return Err(ErrorKind::NotFound.into());
        }
        let all = names.files.keys().chain(&names.folders);
        let inside = all.filter_map(|path| name_in(&folder, path));
        let mut sorted: Vec<String> = inside.map(str::to_owned).collect();
        sorted.sort_unstable();
        Ok(sorted)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(folder)?;
        let mut state = self.disk.enter(Call::Sync)?;
        let path = plain(folder);
        if !hold(&self.disk.names).is_folder(&path) {
            return Err(ErrorKind::NotFound.into());
        }
        state.watch.note(|| DiskOperation::SyncFolder { path });
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.call(path)?;
        let mut state = self.disk.enter(Call::Open)?;
        let mut names = hold(&self.disk.names);
        let (file, is_new) = match names.file(path) {
            Ok(file) => (file, false),
            Err(_) => (names.create(path)?, true),
        };
        let number = file.number;
        let lock = file.lock()?;
        if is_new {
            state.watch.note(|| DiskOperation::Create {
                path: plain(path),
                file: number,
            });
        }
        Ok(lock)
    }
}

#[cfg(test)]
mod tests;
