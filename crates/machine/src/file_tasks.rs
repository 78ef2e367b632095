//! File tasks of a machine: their kinds, their order, and their execution.

use crate::{Medium, Storage, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of a file of a machine: 1 to 128 characters out of letters, digits, `-`, `_` and `.`, not beginning with `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(Arc<str>);

/// Longest name of a file in bytes.
const NAME_LENGTH_MAX: usize = 128;

impl FileName {
    /// `None` if the name is not valid.
    pub fn new(name: &str) -> Option<FileName> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=NAME_LENGTH_MAX).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(is_allowed);
        is_name.then(|| FileName(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A task on a file, reported by [`Input::FileDone`](crate::Input::FileDone).
///
/// Tasks that name the same file run in the order in which they were pushed, others in any order. Only [`FileTask::Sync`],
/// [`FileTask::Publish`] and [`FileTask::Remove`] make anything durable; until then a crash may keep earlier tasks completely,
/// in part or not at all.
///
/// After a failed change or sync the contents of the file are unknown: all further tasks on it but `Create` and `Remove` fail.
/// So a failed sync cannot be repeated as if it had worked, and of a series of tasks up to a `Publish` only the last result
/// needs to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTask {
    /// Creates an empty file; truncates an existing one.
    Create {
        /// The file.
        file: FileName,
    },
    /// Writes bytes to an existing file; it grows if they end past its end.
    Write {
        /// The file.
        file: FileName,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Truncates a file, or extends it with zeros.
    SetLength {
        /// The file.
        file: FileName,
        /// Its new length, in bytes.
        length: u64,
    },
    /// Makes the bytes, the length and the name of a file durable.
    Sync {
        /// The file.
        file: FileName,
    },
    /// Renames a file atomically and durably: its bytes are synced, it is renamed, the folder is synced. After a crash the name
    /// `to` has all of this file or all of the earlier one, never a part.
    Publish {
        /// The file.
        file: FileName,
        /// The name for readers; an existing file of this name is replaced.
        to: FileName,
    },
    /// Reads bytes; fails if the file ends before they are complete.
    Read {
        /// The file.
        file: FileName,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        length: usize,
    },
    /// Removes a file durably; no error if it does not exist.
    Remove {
        /// The file.
        file: FileName,
    },
}

impl FileTask {
    /// The file.
    pub fn file(&self) -> &FileName {
        match self {
            FileTask::Create { file }
            | FileTask::Write { file, .. }
            | FileTask::SetLength { file, .. }
            | FileTask::Sync { file }
            | FileTask::Publish { file, .. }
            | FileTask::Read { file, .. }
            | FileTask::Remove { file } => file,
        }
    }

    /// All files that it names.
    fn files(&self) -> impl Iterator<Item = &FileName> {
        let to = match self {
            FileTask::Publish { to, .. } => Some(to),
            _ => None,
        };
        std::iter::once(self.file()).chain(to)
    }

    /// Does it sync the medium?
    pub const fn is_sync(&self) -> bool {
        matches!(
            self,
            FileTask::Sync { .. } | FileTask::Publish { .. } | FileTask::Remove { .. }
        )
    }
}

/// The result of a file task.
pub type FileResult = Result<FileAnswer, FileError>;

/// The result of a successful file task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAnswer {
    /// Done, without a value.
    Done,
    /// The bytes that were read.
    Bytes(Vec<u8>),
}

/// The error of a file task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: FileName,
    /// The kind of error: `StorageFull`, `NotFound`, `UnexpectedEof`, …
    pub kind: io::ErrorKind,
    /// The system's error.
    pub text: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.text)
    }
}

impl std::error::Error for FileError {}

/// Maximum number of files kept open between tasks, besides those with unsynced bytes.
const OPEN_MAX: usize = 64;

/// An open file.
#[derive(Debug)]
struct OpenFile {
    medium: Arc<dyn Medium>,
    /// Bytes or length may not be durable.
    is_dirty: bool,
    /// The name is durable.
    is_named: bool,
}

/// State of the files of a folder.
#[derive(Debug, Default)]
struct Known {
    open: BTreeMap<FileName, OpenFile>,
    /// Files with a failed change or sync.
    failed: BTreeSet<FileName>,
}

/// Runs file tasks for a driver, on any thread. It keeps files open between tasks: a file with unsynced bytes is not closed
/// before its sync, because closing would lose the error of a failed write-back.
///
/// Two tasks that name the same file must not run at the same time: [`FileQueue`] ensures that.
#[derive(Clone, Debug)]
pub struct FileFolder {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    /// The folder exists and its name is durable.
    is_there: Arc<AtomicBool>,
    known: Arc<Mutex<Known>>,
}

impl FileFolder {
    /// The files in a folder of a storage.
    pub fn new(storage: Arc<dyn Storage>, folder: PathBuf) -> FileFolder {
        FileFolder {
            storage,
            folder,
            is_there: Arc::default(),
            known: Arc::default(),
        }
    }

    /// Runs one task; blocks as long as the storage does.
    pub fn run(&self, task: FileTask) -> FileResult {
        let file = task.file().clone();
        let is_change = !matches!(task, FileTask::Read { .. });
        self.carry_out(task).map_err(|error| {
            if is_change {
                self.lock().failed.insert(file.clone());
            }
            FileError {
                kind: error.kind(),
                text: error.to_string(),
                file,
            }
        })
    }

    fn carry_out(&self, task: FileTask) -> io::Result<FileAnswer> {
        match task {
            FileTask::Create { file } => self.create(file)?,
            FileTask::Write {
                file,
                offset,
                bytes,
            } => {
                self.changing(&file)?.write_at(offset, &bytes)?;
            }
            FileTask::SetLength { file, length } => {
                self.changing(&file)?.set_len(length)?;
            }
            FileTask::Sync { file } => self.sync(&file)?,
            FileTask::Publish { file, to } => self.publish(&file, &to)?,
            FileTask::Read {
                file,
                offset,
                length,
            } => return self.read(&file, offset, length),
            FileTask::Remove { file } => self.remove(&file)?,
        }
        Ok(FileAnswer::Done)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No statement under the lock can panic half-way, so a poisoned lock is harmless.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, file: &FileName) -> PathBuf {
        self.folder.join(file.as_str())
    }

    fn create(&self, file: FileName) -> io::Result<()> {
        let path = self.path(&file);
        if !self.is_there.load(Ordering::Relaxed) {
            self.storage.create_folder(&self.folder)?;
            if let Some(above) = self.folder.parent() {
                self.storage.sync_folder(above)?;
            }
            self.is_there.store(true, Ordering::Relaxed);
        }
        self.lock().open.remove(&file);
        let medium = match self.storage.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let medium = self.storage.open_write(&path)?;
                medium.set_len(0)?;
                medium
            }
            created => created?,
        };
        self.lock().failed.remove(&file);
        self.keep(file, medium, true);
        Ok(())
    }

    /// Keeps a file open; closes another one without unsynced bytes if there are too many.
    fn keep(&self, file: FileName, medium: Arc<dyn Medium>, is_dirty: bool) {
        let open = &mut self.lock().open;
        if open.len() >= OPEN_MAX {
            let is_idle = |it: &OpenFile| !it.is_dirty && it.is_named;
            let idle = open.iter().find(|(_, it)| is_idle(it));
            if let Some(idle) = idle.map(|(name, _)| name.clone()) {
                open.remove(&idle);
            }
        }
        let kept = OpenFile {
            medium,
            is_dirty,
            // A process that created an existing file may have been killed before it synced the name.
            is_named: false,
        };
        open.insert(file, kept);
    }

    /// A file, opened if it is not open.
    fn opened(&self, file: &FileName) -> io::Result<Arc<dyn Medium>> {
        let known = self.lock();
        if known.failed.contains(file) {
            let text = "an earlier change or sync of this file failed";
            return Err(io::Error::other(text));
        }
        if let Some(open) = known.open.get(file) {
            return Ok(Arc::clone(&open.medium));
        }
        drop(known);
        let medium = self.storage.open_write(&self.path(file))?;
        // Bytes written by an earlier process may be readable and not durable.
        self.keep(file.clone(), Arc::clone(&medium), true);
        Ok(medium)
    }

    /// A file that is about to be changed.
    fn changing(&self, file: &FileName) -> io::Result<Arc<dyn Medium>> {
        let medium = self.opened(file)?;
        if let Some(open) = self.lock().open.get_mut(file) {
            open.is_dirty = true;
        }
        Ok(medium)
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        let medium = self.opened(file)?;
        let (is_dirty, is_named) = {
            let known = self.lock();
            let open = known.open.get(file);
            open.map_or((true, false), |it| (it.is_dirty, it.is_named))
        };
        if is_dirty {
            medium.sync()?;
        }
        if !is_named {
            self.storage.sync_folder(&self.folder)?;
        }
        if let Some(open) = self.lock().open.get_mut(file) {
            (open.is_dirty, open.is_named) = (false, true);
        }
        Ok(())
    }

    fn publish(&self, file: &FileName, to: &FileName) -> io::Result<()> {
        let medium = self.opened(file)?;
        medium.sync()?;
        self.storage.rename(&self.path(file), &self.path(to))?;
        let mut known = self.lock();
        known.failed.remove(to);
        known.open.remove(to);
        if let Some(mut open) = known.open.remove(file) {
            (open.is_dirty, open.is_named) = (false, true);
            known.open.insert(to.clone(), open);
        }
        drop(known);
        let named = self.storage.sync_folder(&self.folder);
        if named.is_err() {
            // The file's name may be undone by a crash.
            self.lock().failed.insert(to.clone());
        }
        named
    }

    fn read(&self, file: &FileName, offset: u64, length: usize) -> io::Result<FileAnswer> {
        let medium = self.opened(file)?;
        // Reserves only as much as the file has, whatever length was requested.
        if offset
            .checked_add(length as u64)
            .is_none_or(|end| end > medium.len())
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        medium.read_at(offset, &mut bytes)?;
        Ok(FileAnswer::Bytes(bytes))
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.lock().open.remove(file);
        match self.storage.remove(&self.path(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed?;
                self.storage.sync_folder(&self.folder)?;
            }
        }
        self.lock().failed.remove(file);
        Ok(())
    }
}

/// Decides which tasks may run: those that share no file with a running task or with an earlier waiting one.
///
/// Cost: a pass over the waiting tasks, whose number the driver bounds by holding messages back.
#[derive(Debug, Default)]
pub struct FileQueue {
    waiting: VecDeque<(Ticket, FileTask)>,
    running: BTreeMap<Ticket, Vec<FileName>>,
}

impl FileQueue {
    /// Queues a task. Its ticket must be unique among the tasks under way.
    pub fn push(&mut self, ticket: Ticket, task: FileTask) {
        let is_new = !self.running.contains_key(&ticket);
        assert!(is_new, "two tasks on files have the ticket {}", ticket.0);
        self.waiting.push_back((ticket, task));
    }

    /// Removes a task that may run now, if there is one.
    pub fn start(&mut self) -> Option<(Ticket, FileTask)> {
        let mut busy: BTreeSet<&FileName> = self.running.values().flatten().collect();
        let place = self.waiting.iter().position(|(_, task)| {
            let is_free = task.files().all(|file| !busy.contains(file));
            busy.extend(task.files());
            is_free
        })?;
        let (ticket, task) = self.waiting.remove(place)?;
        let files = task.files().cloned().collect();
        self.running.insert(ticket, files);
        Some((ticket, task))
    }

    /// Ends the task with this ticket.
    pub fn finish(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// Number of tasks that wait or run.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// Is nothing under way?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text).unwrap()
    }

    #[test]
    fn names_stay_in_their_folder() {
        for text in ["a", "checkpoint-17.new", "A_1", &"x".repeat(128)] {
            assert_eq!(name(text).as_str(), text);
        }
        for text in [
            "",
            ".",
            "..",
            ".a",
            "a/b",
            "a b",
            "ä",
            "a\0",
            &"x".repeat(129),
        ] {
            assert_eq!(FileName::new(text), None, "{text:?}");
        }
    }

    #[test]
    fn tasks_on_one_file_keep_their_order_and_others_do_not_wait() {
        let sync = |file: &str| FileTask::Sync { file: name(file) };
        let publish = FileTask::Publish {
            file: name("a"),
            to: name("b"),
        };
        let mut queue = FileQueue::default();
        let tasks = [sync("a"), publish, sync("b"), sync("c"), sync("a")];
        for (number, task) in (0..).zip(tasks) {
            queue.push(Ticket(number), task);
        }
        let mut started = || queue.start().map(|(ticket, _)| ticket.0);
        assert_eq!([started(), started(), started()], [Some(0), Some(3), None]);
        queue.finish(Ticket(0));
        let mut started = || queue.start().map(|(ticket, _)| ticket.0);
        assert_eq!([started(), started()], [Some(1), None]);
        queue.finish(Ticket(1));
        let mut started = || queue.start().map(|(ticket, _)| ticket.0);
        assert_eq!([started(), started(), started()], [Some(2), Some(4), None]);
        for ticket in [2, 3, 4] {
            queue.finish(Ticket(ticket));
        }
        assert!(queue.is_empty());
    }
}
