//! What a machine finds on its disk at a start, and what it makes of it.

use crate::file::{FileFolder, FileName};
use crate::{Log, LogName, Medium, OpenLog, Storage};
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
    /// Opens a folder, making it durably when it is missing; the folder above it must be durable.
    pub fn open(storage: Arc<dyn Storage>, path: &Path) -> io::Result<DataFolder> {
        storage.create_folder(path)?;
        if let Some(above) = path.parent() {
            storage.sync_folder(above)?;
        }
        let path = path.to_owned();
        Ok(DataFolder { storage, path })
    }

    /// The storage that the folder is on, for jobs of machines that have a layout of their own.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A log; empty when there is none.
    pub fn log(&self, name: LogName) -> io::Result<Log> {
        Log::open(&*self.storage, &self.path, name)
    }

    /// The names of all files, sorted. Files that were being written at a crash are among them: names say what is whole
    /// only where nothing but [`FileTask::Publish`](crate::FileTask::Publish) gives them.
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

    /// Where the machine's files are.
    pub fn files_path(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Carries the tasks on files out, for a driver.
    pub fn file_folder(&self) -> FileFolder {
        FileFolder::new(Arc::clone(&self.storage), self.files_path())
    }
}

/// What a start made of a [`DataFolder`].
#[derive(Debug)]
pub struct Booted<M> {
    /// The machine, before its first turn.
    pub machine: M,
    /// The logs that it will append to. The driver opens them, and panics at an append to another one.
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

    /// A machine with the log [`LogName::MAIN`], which ends at a position; what is after it is cut off.
    pub fn with_log(machine: M, end: u64) -> Booted<M> {
        Booted {
            machine,
            logs: vec![OpenLog::new(LogName::MAIN, end)],
        }
    }
}
