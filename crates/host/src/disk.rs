//! The disk of a machine: its folder, a thread for each of its logs, the tasks on its files.

use crate::HostError;
use seatrial_files::Files;
use seatrial_machine::{
    DataFolder, FileFolder, FileQueue, FileTask, LogName, LogWriter, OpenLog, Storage, Ticket,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// A data folder that no other process uses.
pub(crate) struct OwnedFolder {
    pub(crate) data: DataFolder,
    /// The lock of the folder, held until this is dropped.
    lock: Box<dyn Any + Send + Sync>,
}

/// Opens a data folder, making it when it is missing, and keeps every other process out.
pub(crate) fn open(folder: &Path) -> Result<OwnedFolder, HostError> {
    let wrong = |error| HostError::File {
        path: folder.to_owned(),
        error,
    };
    let data = DataFolder::open(Arc::new(Files), folder).map_err(wrong)?;
    let lock = match Files.lock(&folder.join("lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(HostError::Locked(folder.to_owned()));
        }
        Err(error) => return Err(wrong(error)),
    };
    Ok(OwnedFolder { data, lock })
}

/// Says that appends are durable, or that they never will be.
pub(crate) type Durable = Arc<dyn Fn(Result<Vec<Ticket>, HostError>) + Send + Sync>;

/// What a machine does to its disk. Each log has a thread, so that one log's sync does not hold up another's; tasks on files
/// run where jobs run.
pub(crate) struct MachineDisk {
    logs: BTreeMap<LogName, DiskThread>,
    folder: Option<FileFolder>,
    pub(crate) files: FileQueue,
    /// Released when the threads have ended.
    lock: Option<Box<dyn Any + Send + Sync>>,
}

impl MachineDisk {
    /// Of a machine that has none.
    pub(crate) fn none() -> MachineDisk {
        MachineDisk {
            logs: BTreeMap::new(),
            folder: None,
            files: FileQueue::default(),
            lock: None,
        }
    }

    /// Opens the logs that a machine appends to.
    pub(crate) fn open(
        folder: OwnedFolder,
        logs: &[OpenLog],
        done: &Durable,
    ) -> Result<MachineDisk, HostError> {
        let mut disk = MachineDisk::none();
        let storage = Arc::clone(folder.data.storage());
        for log in logs {
            let opened = LogWriter::open(&storage, folder.data.path(), *log);
            let writer = opened.map_err(|error| HostError::File {
                path: folder.data.path().to_owned(),
                error,
            })?;
            let thread = DiskThread::start(writer, Arc::clone(done))?;
            disk.logs.insert(log.name, thread);
        }
        disk.folder = Some(folder.data.file_folder());
        disk.lock = Some(folder.lock);
        Ok(disk)
    }

    /// Queues something for a log. Panics when the machine did not open it: that is a bug of the machine.
    pub(crate) fn log(&self, name: LogName, task: LogTask) {
        let Some(thread) = self.logs.get(&name) else {
            panic!("a machine uses log {name} and did not open it");
        };
        thread.push(task);
    }

    /// The next task on a file that may run, with what runs it.
    pub(crate) fn start_file(&mut self) -> Option<(Ticket, FileTask, FileFolder)> {
        let (ticket, task) = self.files.start()?;
        let folder = self.folder.clone();
        let folder =
            folder.unwrap_or_else(|| panic!("a machine without a folder uses {}", task.file()));
        Some((ticket, task, folder))
    }
}

/// What is done to a log, in this order.
pub(crate) enum LogTask {
    /// Append bytes and make them durable.
    Append(Vec<u8>, Ticket),
    /// Give back the space before a position.
    TruncateHead(u64),
}

/// Appends of one log that may wait for the disk; a machine that has more of them under way holds up its own turns.
const APPENDS_MAX: usize = 4_096;
/// Bytes that share one write and one sync.
const BATCH_LENGTH_MAX: usize = 16 << 20;

/// The thread that writes and syncs a log. Dropping this waits until it has written what it was given.
struct DiskThread {
    /// `None` when it is to end.
    tasks: Option<SyncSender<LogTask>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // if it panicked, it said so
        }
    }
}

impl DiskThread {
    /// Starts the thread. For every batch it calls `done` with the tickets that are durable, or with the error after
    /// which it writes no more: a sync that failed is never tried again as if it had worked.
    fn start(log: LogWriter, done: Durable) -> Result<DiskThread, HostError> {
        let (tasks, queue) = sync_channel(APPENDS_MAX);
        let name = format!("disk {}", log.name());
        let run = move || write_all(log, &queue, &*done);
        let thread = thread::Builder::new().name(name).spawn(run);
        let thread = Some(thread.map_err(HostError::Thread)?);
        Ok(DiskThread {
            tasks: Some(tasks),
            thread,
        })
    }

    /// Queues a task. A thread that has ended has said so.
    fn push(&self, task: LogTask) {
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send(task);
        }
    }
}

fn write_all(
    mut log: LogWriter,
    queue: &Receiver<LogTask>,
    done: &(dyn Fn(Result<Vec<Ticket>, HostError>) + Send + Sync),
) {
    while let Ok(task) = queue.recv() {
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let result = match task {
                LogTask::TruncateHead(position) => log.truncate_head(position).map(|_| Vec::new()),
                LogTask::Append(bytes, ticket) => {
                    let tickets;
                    (tickets, next) = append(&mut log, queue, bytes, ticket);
                    tickets
                }
            };
            let result = result.map_err(|error| append_error(log.path(), error));
            let has_failed = result.is_err();
            if let Err(error) = &result {
                tracing::error!("{error}");
            }
            done(result);
            if has_failed {
                return;
            }
        }
    }
}

/// Appends bytes and all that wait behind them as one write and one sync. Returns the tickets that are durable, and a task
/// that came after them and is no append.
fn append(
    log: &mut LogWriter,
    queue: &Receiver<LogTask>,
    mut bytes: Vec<u8>,
    ticket: Ticket,
) -> (io::Result<Vec<Ticket>>, Option<LogTask>) {
    let (mut tickets, mut next) = (vec![ticket], None);
    while bytes.len() < BATCH_LENGTH_MAX {
        match queue.try_recv() {
            Ok(LogTask::Append(more, ticket)) => {
                bytes.extend_from_slice(&more);
                tickets.push(ticket);
            }
            Ok(other) => {
                next = Some(other);
                break;
            }
            Err(_) => break,
        }
    }
    let durable = log.append(&bytes).and_then(|()| log.sync());
    (durable.map(|()| tickets), next)
}

fn append_error(path: PathBuf, error: io::Error) -> HostError {
    HostError::Append { path, error }
}
