//! Real files: [`Files`] is the storage under an archive, [`LogFile`] the file under a single log. Nothing else of this
//! crate opens files.
#![expect(
    clippy::disallowed_types,
    reason = "the one place where the archive touches real files"
)]

mod files;
mod map;

pub use files::Files;

use crate::recover::{RecoverError, Recovery, recover};
use seatrial_machine::Disk;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why a log's file did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot {action} {path}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
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
    #[error("{path} holds {length} bytes, the log in it should end at {end}")]
    Short {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        length: u64,
        /// Where the log should end.
        end: u64,
    },
    /// An earlier write or sync failed, so it is unknown what the medium holds. Open the file again and recover.
    #[error("{path} is out of use: {reason}")]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// The blocks in the file cannot be continued.
    #[error("{path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
}

/// A log's file, open for writing at its end by one owner (an advisory lock keeps other processes out). An append is
/// one write call; nothing is durable before [`LogFile::sync`]. After a failed write or sync nobody knows what the
/// medium holds, so every later call fails too: the owner has to open the file again and recover.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
    end: u64,
    poison: Option<String>,
}

impl LogFile {
    /// Creates `path`, which must not exist, and makes its directory entry durable.
    pub fn create(path: &Path) -> Result<LogFile, FileError> {
        let log = LogFile::open_with(path, OpenOptions::new().create_new(true), "create")?;
        log.file
            .sync_all()
            .map_err(|source| system("sync", path, source))?;
        let directory = path.parent().filter(|parent| *parent != Path::new(""));
        sync_directory(directory.unwrap_or(Path::new(".")))?;
        Ok(log)
    }

    /// Opens `path` with everything in it as its end; see [`LogFile::cut`].
    pub fn open(path: &Path) -> Result<LogFile, FileError> {
        LogFile::open_with(path, &mut OpenOptions::new(), "open")
    }

    /// [`LogFile::open`], or [`LogFile::create`] if there is no such file.
    pub fn open_or_create(path: &Path) -> Result<LogFile, FileError> {
        match LogFile::open(path) {
            Err(FileError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                LogFile::create(path)
            }
            other => other,
        }
    }

    /// Opens `path`, which holds a log that ends at `end`: [`LogFile::open`], then [`LogFile::cut`].
    pub fn open_append(path: &Path, end: u64) -> Result<LogFile, FileError> {
        let mut log = LogFile::open(path)?;
        log.cut(end)?;
        Ok(log)
    }

    /// Opens `path`, finds where its blocks (from `from_offset` on) end, and cuts off a torn tail.
    pub fn open_recover(path: &Path, from_offset: u64) -> Result<(LogFile, Recovery), FileError> {
        let mut log = LogFile::open(path)?;
        let recovery = recover(&log, from_offset).map_err(|source| FileError::Log {
            path: path.to_owned(),
            source,
        })?;
        log.cut(recovery.end)?;
        Ok((log, recovery))
    }

    /// Opens for reading and writing, and locks.
    fn open_with(
        path: &Path,
        options: &mut OpenOptions,
        action: &'static str,
    ) -> Result<LogFile, FileError> {
        let file = options
            .read(true)
            .write(true)
            .open(path)
            .map_err(|source| system(action, path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FileError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(system("lock", path, source)),
        }
        let metadata = file.metadata();
        let end = metadata
            .map_err(|source| system("measure", path, source))?
            .len();
        Ok(LogFile {
            file,
            path: path.to_owned(),
            end,
            poison: None,
        })
    }

    /// Cuts off everything behind `end` and makes what stays durable: bytes that a crashed process had written but
    /// not synced may be readable and still be lost later.
    pub fn cut(&mut self, end: u64) -> Result<(), FileError> {
        self.check()?;
        if end > self.end {
            return Err(FileError::Short {
                path: self.path.clone(),
                length: self.end,
                end,
            });
        }
        let cut = if end < self.end {
            self.file.set_len(end)
        } else {
            Ok(())
        };
        self.carry_out("cut", cut)?;
        self.end = end;
        let synced = self.file.sync_all();
        self.carry_out("sync", synced)
    }

    /// Appends whole blocks with one write. Not durable before [`LogFile::sync`].
    pub fn append(&mut self, blocks: &[u8]) -> Result<(), FileError> {
        self.check()?;
        let written = self.file.write_all_at(blocks, self.end);
        self.carry_out("append to", written)?;
        self.end += blocks.len() as u64;
        Ok(())
    }

    /// Overwrites a slot of the first page ([`crate::root::RootSlots`]), the only bytes that ever change in place.
    pub fn write_slot(&mut self, slot: &crate::root::Slot) -> Result<(), FileError> {
        self.check()?;
        let written = self.file.write_all_at(&slot.bytes, slot.offset);
        self.carry_out("write to", written)
    }

    /// Makes every append so far durable (fdatasync). A failure is final.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.check()?;
        let synced = self.file.sync_data();
        self.carry_out("sync", synced)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if an earlier call did.
    fn check(&self) -> Result<(), FileError> {
        match &self.poison {
            None => Ok(()),
            Some(reason) => Err(FileError::Poisoned {
                path: self.path.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// Remembers a failure for ever.
    fn carry_out(&mut self, action: &'static str, result: io::Result<()>) -> Result<(), FileError> {
        result.map_err(|source| {
            self.poison = Some(format!("an earlier {action} failed: {source}"));
            system(action, &self.path, source)
        })
    }
}

/// A process that is just being started by another thread holds a copy of the file for a moment; closing ours alone would
/// leave it locked.
impl Drop for LogFile {
    fn drop(&mut self) {
        // Closing unlocks as well, a little later.
        let _ = self.file.unlock();
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
        self.file.read_exact_at(buffer, offset)
    }
}

/// A file open for reading only: whatever its length is when it is opened. Takes no lock, so a log can be read while
/// it is written.
#[derive(Debug)]
pub struct ReadFile {
    file: File,
    length: u64,
}

impl ReadFile {
    /// Opens `path`.
    pub fn open(path: &Path) -> Result<ReadFile, FileError> {
        let file = File::open(path).map_err(|source| system("open", path, source))?;
        let metadata = file.metadata();
        let length = metadata
            .map_err(|source| system("measure", path, source))?
            .len();
        Ok(ReadFile { file, length })
    }
}

impl Disk for ReadFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Makes the names in `directory` durable: to be called after a file in it was created, renamed or removed.
pub fn sync_directory(directory: &Path) -> Result<(), FileError> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(|source| system("sync directory", directory, source))
}

/// A failure of the operating system.
fn system(action: &'static str, path: &Path, source: io::Error) -> FileError {
    FileError::System {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
