//! What a writer needs of the world, narrow enough for a recording one to stand in for it.

use seatrial_archive::root::Slot;
use seatrial_archive::{FileError, LogFile, file};
use seatrial_machine::Disk;
use std::fmt::Debug;
use std::path::Path;

/// A file that is written at its end.
pub(super) trait Medium: Disk + Debug + Send + Sync {
    /// Appends whole blocks with one write. Not durable before [`Medium::sync`].
    fn append(&mut self, blocks: &[u8]) -> Result<(), FileError>;
    /// Overwrites a slot of the first page.
    fn write_slot(&mut self, slot: &Slot) -> Result<(), FileError>;
    /// Makes everything so far durable. A failure is final.
    fn sync(&mut self) -> Result<(), FileError>;
    /// Cuts off everything behind `end` and makes the rest durable.
    fn cut(&mut self, end: u64) -> Result<(), FileError>;
    /// The file's path.
    fn path(&self) -> &Path;
}

impl Medium for LogFile {
    fn append(&mut self, blocks: &[u8]) -> Result<(), FileError> {
        LogFile::append(self, blocks)
    }

    fn write_slot(&mut self, slot: &Slot) -> Result<(), FileError> {
        LogFile::write_slot(self, slot)
    }

    fn sync(&mut self) -> Result<(), FileError> {
        LogFile::sync(self)
    }

    fn cut(&mut self, end: u64) -> Result<(), FileError> {
        LogFile::cut(self, end)
    }

    fn path(&self) -> &Path {
        LogFile::path(self)
    }
}

/// Where files are made.
pub(super) trait Storage {
    /// Creates a file that must not exist; its name is durable.
    fn create(&self, path: &Path) -> Result<Box<dyn Medium>, FileError>;
    /// Gives a file another name in the same folder, in place of the file that has it. Not durable before
    /// [`Storage::sync_folder`].
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError>;
    /// Makes the names in the folder of this file durable.
    fn sync_folder(&self, of: &Path) -> Result<(), FileError>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<(), FileError>;
}

/// The file system.
pub(super) struct Files;

impl Storage for Files {
    fn create(&self, path: &Path) -> Result<Box<dyn Medium>, FileError> {
        Ok(Box::new(LogFile::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        std::fs::rename(from, to).map_err(|source| FileError::System {
            action: "rename to",
            path: to.to_owned(),
            source,
        })
    }

    fn sync_folder(&self, of: &Path) -> Result<(), FileError> {
        let folder = of.parent().filter(|parent| *parent != Path::new(""));
        file::sync_directory(folder.unwrap_or(Path::new(".")))
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        std::fs::remove_file(path).map_err(|source| FileError::System {
            action: "remove",
            path: path.to_owned(),
            source,
        })
    }
}
