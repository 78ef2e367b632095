//! The data folder of a machine, and what its boot returns.

use crate::file_tasks::{FileFolder, FileName};
use crate::{LogName, LogView, Medium, OpenLog, Storage};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of one machine on a [`Storage`]: its logs, its files, and nothing else.
///
/// ```text
/// <folder>/log, log-0000000004000000, …   segments of the log `log` (see LogWriter)
/// <folder>/files/checkpoint-17            files, see FileTask
/// ```
///
/// At a start the machine reads here, by plain calls: by position ([`Disk`](crate::Disk)) or from one end to the other
/// ([`Stream`](crate::Stream)), so a start needs as much memory as what it builds and not as the files have. Afterwards it
/// asks by outputs. A job may keep a clone, to read logs and published files beside the machine.
#[derive(Clone, Debug)]
pub struct DataFolder {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl DataFolder {
    /// Opens a folder, creating it durably if it is missing; its parent must be durable.
    pub fn open(storage: Arc<dyn Storage>, path: &Path) -> io::Result<DataFolder> {
        storage.create_folder(path)?;
        if let Some(above) = path.parent() {
            storage.sync_folder(above)?;
        }
        let path = path.to_owned();
        Ok(DataFolder { storage, path })
    }

    /// The storage of the folder, for jobs of machines with a layout of their own.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A log; empty if it does not exist.
    pub fn log(&self, name: LogName) -> io::Result<LogView> {
        LogView::open(&*self.storage, &self.path, name)
    }

    /// A log of which pieces are read that are far from each other ([`LogView::open_scattered`]); empty if it does not exist.
    pub fn scattered_log(&self, name: LogName) -> io::Result<LogView> {
        LogView::open_scattered(&*self.storage, &self.path, name)
    }

    /// A log that is written directly, to read it once ([`LogView::open_direct`]); empty if it does not exist.
    pub fn direct_log(&self, name: LogName) -> io::Result<LogView> {
        LogView::open_direct(&*self.storage, &self.path, name)
    }

    /// Names of all files, sorted, including files that were being written at a crash: a name implies a complete file only if
    /// [`FileTask::Publish`](crate::FileTask::Publish) alone gives such names.
    pub fn files(&self) -> io::Result<Vec<FileName>> {
        let names = match self.storage.list(&self.files_path()) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(names.iter().filter_map(|it| FileName::new(it)).collect())
    }

    /// Opens a file for reading.
    pub fn file(&self, name: &FileName) -> io::Result<Arc<dyn Medium>> {
        self.storage.open(&self.files_path().join(name.as_str()))
    }

    /// Path of the machine's files.
    pub fn files_path(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Runs the file tasks, for a driver.
    pub fn file_folder(&self) -> FileFolder {
        FileFolder::new(Arc::clone(&self.storage), self.files_path())
    }
}

/// Result of booting a machine from a [`DataFolder`].
#[derive(Debug)]
pub struct Booted<M> {
    /// The machine, before its first turn.
    pub machine: M,
    /// The logs that it appends to. The driver opens them, and panics at an append to another one.
    pub logs: Vec<OpenLog>,
}

impl<M> Booted<M> {
    /// A machine without logs.
    pub const fn new(machine: M) -> Booted<M> {
        Booted {
            machine,
            logs: Vec::new(),
        }
    }

    /// A machine with the log [`LogName::MAIN`], truncated at `end`.
    pub fn with_log(machine: M, end: u64) -> Booted<M> {
        Booted {
            machine,
            logs: vec![OpenLog::new(LogName::MAIN, end)],
        }
    }
}
