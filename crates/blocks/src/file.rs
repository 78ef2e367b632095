//! A log's file: append, sync, cut. Nothing else in this crate opens files.

pub use seatrial_files::{Files, ReadFiles};

use crate::recover::{RecoverError, Recovery, recover};
use seatrial_machine::{Disk, Medium, Storage};
use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why an operation on a log's file failed.
#[derive(Debug, thiserror::Error)]
pub enum BlockFileError {
    /// A call of the operating system failed.
    #[error("cannot {action} {path}")]
    System {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A write failed.
    #[error("cannot {action} {path} at {offset}")]
    Write {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset of the first byte to write.
        offset: u64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A rename failed.
    #[error("cannot rename {from} to {to}")]
    Rename {
        /// The present name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// Another process is writing this file.
    #[error("{path} is in use by another process")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file is shorter than the log that should be in it.
    #[error("{path} is too short: it has {length} bytes, its log should end at {end}")]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
        /// Expected end of the log.
        end: u64,
    },
    /// An earlier write or sync failed, so the contents of the medium are unknown. Open the file again and recover.
    #[error("{path} is no longer usable: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// The blocks in the file cannot be continued.
    #[error("{path}: {cause}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: RecoverError,
    },
}

/// A log's file, open for appending by one owner; an advisory lock excludes other processes. An append is one write
/// call; nothing is durable before [`LogFile::sync`]. After a failed write or sync the contents of the medium are
/// unknown (the kernel may have dropped dirty pages), so every later call fails too: the owner has to open the file again
/// and recover.
///
/// Works on any [`Storage`]; the functions without a storage argument use the real disk.
#[derive(Debug)]
pub struct LogFile {
    medium: Arc<dyn Medium>,
    path: PathBuf,
    /// End of the log: all appended blocks are before it.
    end: u64,
    /// The first failed write or sync; set once, never cleared.
    poison: Option<String>,
    /// Held until this is dropped; excludes other processes.
    _lock: HeldLock,
}

/// A lock, released when it is dropped.
struct HeldLock(#[expect(dead_code, reason = "only to be dropped")] Box<dyn Any + Send + Sync>);

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldLock")
    }
}

impl LogFile {
    /// Creates `path`, which must not exist, and makes its directory entry durable.
    pub fn create(path: &Path) -> Result<LogFile, BlockFileError> {
        LogFile::create_on(&Files, path)
    }

    /// [`LogFile::create`] on any storage.
    pub fn create_on(storage: &dyn Storage, path: &Path) -> Result<LogFile, BlockFileError> {
        let medium = storage.create(path);
        let medium = medium.map_err(|source| system("create", path, source))?;
        let log = LogFile::over(storage, medium, path)?;
        log.medium
            .sync()
            .map_err(|source| system("sync", path, source))?;
        sync_folder_of(storage, path)?;
        Ok(log)
    }

    /// Opens `path`; the log ends where the file does. See [`LogFile::cut`].
    pub fn open(path: &Path) -> Result<LogFile, BlockFileError> {
        LogFile::open_on(&Files, path)
    }

    /// [`LogFile::open`] on any storage.
    pub fn open_on(storage: &dyn Storage, path: &Path) -> Result<LogFile, BlockFileError> {
        let medium = storage.open_write(path);
        let medium = medium.map_err(|source| system("open", path, source))?;
        LogFile::over(storage, medium, path)
    }

    /// [`LogFile::open`], or [`LogFile::create`] if there is no such file.
    pub fn open_or_create(path: &Path) -> Result<LogFile, BlockFileError> {
        match LogFile::open(path) {
            Err(BlockFileError::System { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                LogFile::create(path)
            }
            other => other,
        }
    }

    /// Opens `path`, which holds a log that ends at `end`: [`LogFile::open`], then [`LogFile::cut`].
    pub fn open_append(path: &Path, end: u64) -> Result<LogFile, BlockFileError> {
        let mut log = LogFile::open(path)?;
        log.cut(end)?;
        Ok(log)
    }

    /// Opens `path`, finds where its blocks (from `from_offset` on) end, and cuts off a torn tail.
    pub fn open_recover(
        path: &Path,
        from_offset: u64,
    ) -> Result<(LogFile, Recovery), BlockFileError> {
        let mut log = LogFile::open(path)?;
        let recovery = recover(&log, from_offset).map_err(|cause| BlockFileError::Log {
            path: path.to_owned(),
            cause,
        })?;
        log.cut(recovery.end)?;
        Ok((log, recovery))
    }

    /// Locks an open file.
    fn over(
        storage: &dyn Storage,
        medium: Arc<dyn Medium>,
        path: &Path,
    ) -> Result<LogFile, BlockFileError> {
        let lock = match storage.lock(path) {
            Ok(lock) => HeldLock(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(BlockFileError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(source) => return Err(system("lock", path, source)),
        };
        Ok(LogFile {
            end: medium.len(),
            medium,
            path: path.to_owned(),
            poison: None,
            _lock: lock,
        })
    }

    /// Cuts off everything after `end` and syncs the rest: bytes that a crashed process wrote without a sync may be
    /// readable now and still be lost by a power failure.
    pub fn cut(&mut self, end: u64) -> Result<(), BlockFileError> {
        self.check()?;
        if end > self.end {
            return Err(BlockFileError::Short {
                path: self.path.clone(),
                length: self.end,
                end,
            });
        }
        let cut = if end < self.end {
            self.medium.set_len(end)
        } else {
            Ok(())
        };
        self.carry_out("cut", cut)?;
        assert!(end <= self.end, "cutting never extends the log");
        self.end = end;
        let synced = self.medium.sync();
        self.carry_out("sync", synced)
    }

    /// Appends whole blocks, or the bytes that a repair keeps, with one write call. Not durable before [`LogFile::sync`].
    pub fn append(&mut self, blocks: &[u8]) -> Result<(), BlockFileError> {
        self.check()?;
        self.write_at("append to", self.end, blocks)?;
        self.end += blocks.len() as u64;
        Ok(())
    }

    /// Overwrites a slot of the first page ([`crate::root::RootSlots`]), the only bytes that ever change in place.
    pub fn write_slot(&mut self, slot: &crate::root::Slot) -> Result<(), BlockFileError> {
        self.check()?;
        self.write_at("write to", slot.offset, &slot.bytes)
    }

    /// Makes all appends so far durable (fdatasync). A failure is final.
    pub fn sync(&mut self) -> Result<(), BlockFileError> {
        self.check()?;
        let synced = self.medium.sync();
        self.carry_out("sync", synced)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if an earlier write or sync failed.
    fn check(&self) -> Result<(), BlockFileError> {
        match &self.poison {
            None => Ok(()),
            Some(reason) => Err(BlockFileError::Poisoned {
                path: self.path.clone(),
                reason: reason.clone(),
            }),
        }
    }

    fn write_at(
        &mut self,
        action: &'static str,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BlockFileError> {
        self.medium.write_at(offset, bytes).map_err(|source| {
            self.poison = Some(format!("an earlier write at {offset} failed: {source}"));
            BlockFileError::Write {
                action,
                path: self.path.clone(),
                offset,
                source,
            }
        })
    }

    /// Records a failure: no later call succeeds.
    fn carry_out(
        &mut self,
        action: &'static str,
        result: io::Result<()>,
    ) -> Result<(), BlockFileError> {
        result.map_err(|source| {
            self.poison = Some(format!("an earlier {action} failed: {source}"));
            system(action, &self.path, source)
        })
    }
}

impl Disk for LogFile {
    fn len(&self) -> u64 {
        self.end
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let fits = offset
            .checked_add(buffer.len() as u64)
            .is_some_and(|end| end <= self.end);
        if !fits {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.medium.read_at(offset, buffer)
    }
}

/// A file open for reading only, with the length that it had when it was opened. Takes no lock, so a log can be read
/// while it is written.
#[derive(Debug)]
pub struct ReadFile {
    medium: Arc<dyn Medium>,
    length: u64,
}

impl ReadFile {
    /// Opens `path`.
    pub fn open(path: &Path) -> Result<ReadFile, BlockFileError> {
        ReadFile::open_on(&Files, path)
    }

    /// [`ReadFile::open`] on any storage.
    pub fn open_on(storage: &dyn Storage, path: &Path) -> Result<ReadFile, BlockFileError> {
        let medium = storage.open(path);
        let medium = medium.map_err(|source| system("open", path, source))?;
        Ok(ReadFile {
            length: medium.len(),
            medium,
        })
    }
}

impl Disk for ReadFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.medium.read_at(offset, buffer)
    }
}

/// Renames a file, replacing any file with the new name; durable once the folder is synced ([`sync_folder_of`]).
pub fn rename(storage: &dyn Storage, from: &Path, to: &Path) -> Result<(), BlockFileError> {
    let renamed = storage.rename(from, to);
    renamed.map_err(|source| BlockFileError::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
        source,
    })
}

/// Removes a file.
pub fn remove(storage: &dyn Storage, path: &Path) -> Result<(), BlockFileError> {
    let removed = storage.remove(path);
    removed.map_err(|source| system("remove", path, source))
}

/// Makes the names in the folder of `path` durable: call it after the file was created, renamed or removed.
pub fn sync_folder_of(storage: &dyn Storage, path: &Path) -> Result<(), BlockFileError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let synced = storage.sync_folder(folder);
    synced.map_err(|source| system("sync the folder of", path, source))
}

/// The error of a failed call of the operating system.
fn system(action: &'static str, path: &Path, source: io::Error) -> BlockFileError {
    BlockFileError::System {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
