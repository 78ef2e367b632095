//! The real disk as [`Storage`].

use super::map;
use seatrial_machine::{Disk, Mapped, Medium, Storage};
use std::any::Any;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The files of the operating system. Holds nothing; paths are taken as they are given, relative ones from the process's
/// folder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

/// [`Files`] that are read, never mapped. A mapped file that another program shortens meanwhile is a signal (SIGBUS) to
/// whoever touches it; a read is an error. It costs a copy of what is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFiles;

impl Storage for ReadFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        Files.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let mut file = RealFile::new(regular(File::open(path)?)?, false);
        file.is_read = true;
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

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn Medium>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile::new(regular(file)?, false)))
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
        // A process that ended between making the deepest folder that is there and syncing the one that names it left a
        // name that a loss of power takes away, with everything below.
        if let Some(above) = there.parent() {
            match self.sync_folder(above) {
                // Whoever may not look into it has not made anything in it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        for folder in missing.into_iter().rev() {
            match std::fs::create_dir(folder) {
                // Another process was faster; its name is made durable all the same.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                made => made?,
            }
            self.sync_folder(folder.parent().unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(here(folder))? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(here(folder))?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Locked(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The empty path is the process's folder, which must be called by a name to be opened.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    }
}

/// Opening a folder for reading works and reading it does not, which would be told much later.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// A file whose lock is held. A process that another thread is just starting has a copy of the open file for a moment, so
/// closing ours alone would leave it locked.
#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing unlocks as well, a little later.
        let _ = self.0.unlock();
    }
}

/// One open file.
#[derive(Debug)]
struct RealFile {
    file: File,
    /// The next sync has to write all of the file's metadata.
    ///
    /// fdatasync is enough after writes, also those behind the end: POSIX asks of it what is needed to read the data back,
    /// and the length is. It is not asked to write a new file's owner and rights, nor a length cut by `set_len` as nothing
    /// is lost to a reader without it; a cut that comes undone is the end of an older life showing up behind the new one.
    /// So these two are followed by an fsync.
    whole: AtomicBool,
    /// Read, never mapped.
    is_read: bool,
}

impl RealFile {
    fn new(file: File, whole: bool) -> RealFile {
        let whole = AtomicBool::new(whole);
        RealFile {
            file,
            whole,
            is_read: false,
        }
    }
}

impl Disk for RealFile {
    fn len(&self) -> u64 {
        // fstat of an open file has no reason to fail; a reader of length 0 finds nothing, which is told.
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
        self.whole.store(true, Ordering::Relaxed);
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        if self.whole.swap(false, Ordering::Relaxed) {
            self.file.sync_all()
        } else {
            self.file.sync_data()
        }
    }

    /// Nothing where the kernel cannot bring pages in with an error instead of a signal (Linux before 5.14, other systems):
    /// reading costs a copy there. `length` may lie behind the file's end, for a file that grows.
    fn map(&self, length: u64) -> io::Result<Option<Arc<dyn Mapped>>> {
        if self.is_read {
            return Ok(None);
        }
        map::map(&self.file, length)
    }
}

#[cfg(test)]
mod tests;
