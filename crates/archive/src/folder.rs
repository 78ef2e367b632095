//! An archive's folder: the storage's calls with the file's name in every error.

use seatrial_machine::{Medium, Storage};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is told when a file's sync failed.
const SYNC: &str = "sync";
/// What is told when a folder's sync failed.
const SYNC_FOLDER: &str = "sync folder";

/// A call of the storage that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}{}: {source}", .offset.map_or_else(String::new, |at| format!(" at {at}")))]
pub struct StorageError {
    /// What was tried.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Where in it; nothing for a call that has no place.
    pub offset: Option<u64>,
    /// What the storage said.
    pub source: io::Error,
}

impl StorageError {
    /// Is there no such file?
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Was it a sync that failed? Then it is unknown what the medium holds.
    pub fn is_sync(&self) -> bool {
        self.action == SYNC || self.action == SYNC_FOLDER
    }

    /// Is there no room left?
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

/// Files of one folder, by name.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(storage: Arc<dyn Storage>, path: &Path) -> Folder {
        Folder {
            storage,
            path: path.to_owned(),
        }
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn told<T>(
        &self,
        action: &'static str,
        name: &str,
        result: io::Result<T>,
    ) -> Result<T, StorageError> {
        result.map_err(|source| StorageError {
            action,
            path: self.path(name),
            offset: None,
            source,
        })
    }

    /// The same for a call about bytes from `offset` on.
    fn told_at<T>(
        &self,
        action: &'static str,
        name: &str,
        offset: u64,
        result: io::Result<T>,
    ) -> Result<T, StorageError> {
        self.told(action, name, result)
            .map_err(|error| StorageError {
                offset: Some(offset),
                ..error
            })
    }

    /// Makes the folder and those above it, with durable names.
    pub(crate) fn make(&self) -> Result<(), StorageError> {
        let is_missing = |folder: &&Path| {
            let listed = self.storage.list(folder);
            listed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let above = self.path.ancestors();
        let missing: Vec<&Path> = (above.take_while(|folder| *folder != Path::new("")))
            .take_while(is_missing)
            .collect();
        self.told("make folder", "", self.storage.create_folder(&self.path))?;
        for folder in missing.into_iter().rev() {
            let parent = folder.parent().filter(|parent| *parent != Path::new(""));
            let parent = parent.unwrap_or(Path::new("."));
            let synced = self.storage.sync_folder(parent);
            synced.map_err(|source| StorageError {
                action: SYNC_FOLDER,
                path: parent.to_owned(),
                offset: None,
                source,
            })?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self, name: &str) -> Result<Box<dyn Any + Send + Sync>, StorageError> {
        self.told("lock", name, self.storage.lock(&self.path(name)))
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, StorageError> {
        self.told("list folder", "", self.storage.list(&self.path))
    }

    /// Makes the names durable.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.told(SYNC_FOLDER, "", self.storage.sync_folder(&self.path))
    }

    pub(crate) fn create(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.told("create", name, self.storage.create(&self.path(name)))
    }

    pub(crate) fn open(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.told("open", name, self.storage.open(&self.path(name)))
    }

    pub(crate) fn open_write(&self, name: &str) -> Result<Arc<dyn Medium>, StorageError> {
        self.told("open", name, self.storage.open_write(&self.path(name)))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        let renamed = self.storage.rename(&self.path(from), &self.path(to));
        self.told("rename", from, renamed)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.told("remove", name, self.storage.remove(&self.path(name)))
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
        self.told_at("write to", name, offset, medium.write_at(offset, bytes))
    }

    pub(crate) fn read(
        &self,
        name: &str,
        medium: &dyn Medium,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), StorageError> {
        self.told_at("read", name, offset, medium.read_at(offset, buffer))
    }

    /// Cuts the file off behind `length` bytes.
    pub(crate) fn cut(
        &self,
        name: &str,
        medium: &dyn Medium,
        length: u64,
    ) -> Result<(), StorageError> {
        self.told_at("cut", name, length, medium.set_len(length))
    }

    /// Makes the file's bytes and length durable.
    pub(crate) fn sync_file(&self, name: &str, medium: &dyn Medium) -> Result<(), StorageError> {
        self.told(SYNC, name, medium.sync())
    }
}
