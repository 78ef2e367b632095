//! An archive's folder: storage calls that name the file in every error.

use seatrial_machine::{Medium, Storage};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The action of a failed sync of a file.
const SYNC: &str = "sync";
/// The action of a failed sync of a folder.
const SYNC_FOLDER: &str = "sync folder";

/// A storage call that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}{}: {cause}", .offset.map_or_else(String::new, |at| format!(" at {at}")))]
pub struct StorageError {
    /// The call, as a verb.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Offset in the file, for reads and writes.
    pub offset: Option<u64>,
    /// The storage's error.
    pub cause: io::Error,
}

impl StorageError {
    /// Does the file not exist?
    pub fn is_not_found(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
    }

    /// Did a sync fail? Then the contents of the medium are unknown.
    pub fn is_sync(&self) -> bool {
        self.action == SYNC || self.action == SYNC_FOLDER
    }

    /// Is the medium full, or a quota reached?
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.cause.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

/// The files of one folder, addressed by name. Stateless but for storage and path.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveFolder {
    pub(crate) storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl ArchiveFolder {
    pub(crate) fn new(storage: Arc<dyn Storage>, path: &Path) -> ArchiveFolder {
        ArchiveFolder {
            storage,
            path: path.to_owned(),
        }
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn with_context<T>(
        &self,
        action: &'static str,
        name: &str,
        result: io::Result<T>,
    ) -> Result<T, StorageError> {
        result.map_err(|cause| StorageError {
            action,
            path: self.path(name),
            offset: None,
            cause,
        })
    }

    /// [`ArchiveFolder::with_context`] for a read or write at `offset`.
    fn with_offset<T>(
        &self,
        action: &'static str,
        name: &str,
        offset: u64,
        result: io::Result<T>,
    ) -> Result<T, StorageError> {
        self.with_context(action, name, result)
            .map_err(|error| StorageError {
                offset: Some(offset),
                ..error
            })
    }

    /// Creates the folder and missing parents, and makes their names durable.
    pub(crate) fn make(&self) -> Result<(), StorageError> {
        let is_missing = |folder: &&Path| {
            let listed = self.storage.list(folder);
            listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let above = self.path.ancestors();
        let missing: Vec<&Path> = (above.take_while(|folder| *folder != Path::new("")))
            .take_while(is_missing)
            .collect();
        self.with_context("make folder", "", self.storage.create_folder(&self.path))?;
        for folder in missing.into_iter().rev() {
            let parent = folder.parent().filter(|parent| *parent != Path::new(""));
            let parent = parent.unwrap_or(Path::new("."));
            let synced = self.storage.sync_folder(parent);
            synced.map_err(|cause| StorageError {
                action: SYNC_FOLDER,
                path: parent.to_owned(),
                offset: None,
                cause,
            })?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self, name: &str) -> Result<Box<dyn Any + Send + Sync>, StorageError> {
        self.with_context("lock", name, self.storage.lock(&self.path(name)))
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, StorageError> {
        self.with_context("list folder", "", self.storage.list(&self.path))
    }

    /// Makes the files' names durable.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.with_context(SYNC_FOLDER, "", self.storage.sync_folder(&self.path))
    }

    pub(crate) fn create(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.with_context("create", name, self.storage.create(&self.path(name)))
    }

    pub(crate) fn open(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.with_context("open", name, self.storage.open(&self.path(name)))
    }

    pub(crate) fn open_write(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.with_context("open", name, self.storage.open_write(&self.path(name)))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let renamed = self.storage.rename(&self.path(from), &self.path(to));
        self.with_context("rename", from, renamed)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.with_context("remove", name, self.storage.remove(&self.path(name)))
    }

    pub(crate) fn remove_if_there(&self, name: &str) -> Result<(), StorageError> {
        match self.remove(name) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    pub(crate) fn write(
        &self,
        name: &str,
        medium: &dyn Medium,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        self.with_offset("write to", name, offset, medium.write_at(offset, bytes))
    }

    pub(crate) fn read(
        &self,
        name: &str,
        medium: &dyn Medium,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), StorageError> {
        self.with_offset("read", name, offset, medium.read_at(offset, buffer))
    }

    /// Truncates the file to `length` bytes.
    pub(crate) fn cut(
        &self,
        name: &str,
        medium: &dyn Medium,
        length: u64,
    ) -> Result<(), StorageError> {
        self.with_offset("cut", name, length, medium.set_len(length))
    }

    /// Makes the file's bytes and length durable.
    pub(crate) fn sync_file(&self, name: &str, medium: &dyn Medium) -> Result<(), StorageError> {
        self.with_context(SYNC, name, medium.sync())
    }
}
