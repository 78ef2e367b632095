//! The operating system's files as [`Storage`].

use crate::direct_file::DirectFile;
use crate::map;
use seatrial_machine::{DirectWrites, Disk, Mapped, Medium, Storage};
use std::any::Any;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The operating system's files. Stateless. Paths are passed on unchanged; relative ones start at the working directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

/// [`Files`] that are read, never mapped. If another program shortens a mapped file, touching the lost pages raises
/// SIGBUS; a read returns an error. The price is one copy of each byte read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFiles;

impl Storage for ReadFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Files.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let mut file = RealFile::new(regular(File::open(path)?)?, false);
        file.is_unmapped = true;
        Ok(Arc::new(file))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Files.open_write(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Files.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Files.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        Files.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        Files.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        Files.lock(path)
    }
}

impl Storage for Files {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = OpenOptions::new()
            .create_new(true)
            .read(true)
            .write(true)
            .open(path)?;
        Ok(Arc::new(RealFile::new(file, true)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Ok(Arc::new(RealFile::new(regular(File::open(path)?)?, false)))
    }

    fn open_scattered(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = regular(File::open(path)?)?;
        // Advice only: without it too much is read.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(Arc::new(RealFile::new(file, false)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Ok(Arc::new(RealFile::open(path)?))
    }

    fn open_direct(&self, path: &Path, writes: DirectWrites) -> io::Result<Arc<dyn Medium>> {
        let mut file = RealFile::open(path)?;
        // The file may be new.
        *file.needs_fsync.get_mut() = true;
        DirectFile::open(path, file, writes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    /// Durable when this returns, the folders above included.
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut there = path;
        while !there.as_os_str().is_empty() && !there.is_dir() {
            missing.push(there);
            let Some(above) = there.parent() else { break };
            there = above;
        }
        // An earlier process may have ended between creating the deepest existing folder and syncing its parent. A power
        // failure would then remove that folder with everything below it, so the parent is synced here too.
        if let Some(above) = there.parent() {
            match self.sync_folder(above) {
                // A process without permission to open the parent cannot have created a folder in it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        for folder in missing.into_iter().rev() {
            match std::fs::create_dir(folder) {
                // Another process created it first. It is synced below all the same: that process may not have done so yet.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                made => made?,
            }
            self.sync_folder(folder.parent().unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(openable(folder))? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(openable(folder))?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(LockedFile(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The empty path means the working directory, which cannot be opened by an empty name.
fn openable(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

/// Refuses folders: opening one for reading succeeds, and only a later read would fail.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// A locked file. Between fork and exec, a process started by another thread has a copy of the descriptor, so closing ours
/// would not release the lock at once.
#[derive(Debug)]
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // A failure is harmless: the last close releases the lock, only later.
        let _ = self.0.unlock();
    }
}

/// One open file of the operating system.
#[derive(Debug)]
pub(crate) struct RealFile {
    file: File,
    /// Does the next sync have to write all metadata (fsync, not fdatasync)?
    ///
    /// fdatasync suffices after writes, also after those that extend the file: POSIX requires it to write what is needed to
    /// read the data back, and that includes the length. It need not write a new file's owner and permissions, nor a length
    /// reduced by `set_len`, without which no reader loses data. But a truncation that a power failure undoes would bring
    /// old bytes back after the new end of a log. Therefore creation and `set_len` are followed by an fsync.
    needs_fsync: AtomicBool,
    /// Is the file read, never mapped ([`ReadFiles`])?
    is_unmapped: bool,
}

impl RealFile {
    /// Opens a file for reading and writing.
    pub(crate) fn open(path: &Path) -> io::Result<RealFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(RealFile::new(regular(file)?, false))
    }

    fn new(file: File, needs_fsync: bool) -> RealFile {
        RealFile {
            file,
            needs_fsync: AtomicBool::new(needs_fsync),
            is_unmapped: false,
        }
    }
}

impl Disk for RealFile {
    fn len(&self) -> u64 {
        // fstat of an open file does not fail in practice. Length 0 makes readers report a missing block, not wrong data.
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl Medium for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        // Before the call: a sync of another thread that starts in between then also writes the new length.
        self.needs_fsync.store(true, Ordering::Relaxed);
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        if self.needs_fsync.swap(false, Ordering::Relaxed) {
            self.file.sync_all()
        } else {
            self.file.sync_data()
        }
    }

    /// `None` where the kernel cannot populate pages with an error instead of a signal (Linux before 5.14, other systems):
    /// callers read there, which costs a copy. `length` may be past the end of the file, for a file that grows.
    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        if self.is_unmapped {
            return Ok(None);
        }
        map::map(&self.file, length)
    }
}

#[cfg(test)]
mod tests;
