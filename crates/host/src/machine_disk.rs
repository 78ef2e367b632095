//! The disk of a machine: its folder, a thread per log, the order of file tasks.

use crate::HostError;
use crate::stage_times::StageTimes;
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
use std::time::Instant;

/// A data folder that is locked against other processes.
pub(crate) struct OwnedFolder {
    pub(crate) data: DataFolder,
    /// The lock, held until this is dropped.
    lock: Box<dyn Any + Send + Sync>,
}

/// Opens and locks a data folder, and creates it if it is missing.
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

/// Receives the tickets of durable appends, or the error after which no append will be durable.
pub(crate) type Durable = Arc<dyn Fn(Result<Vec<Ticket>, HostError>) + Send + Sync>;

/// Carries out a machine's disk outputs. Each log has a thread, so that the sync of one log does not delay another; file tasks
/// run on the job threads.
pub(crate) struct MachineDisk {
    logs: BTreeMap<LogName, LogThread>,
    folder: Option<FileFolder>,
    pub(crate) files: FileQueue,
    /// Released after the threads have ended.
    lock: Option<Box<dyn Any + Send + Sync>>,
}

impl MachineDisk {
    /// The disk of a machine without logs and files.
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
        stages: &StageTimes,
    ) -> Result<MachineDisk, HostError> {
        let mut disk = MachineDisk::none();
        let storage = Arc::clone(folder.data.storage());
        for log in logs {
            let opened = LogWriter::open(&storage, folder.data.path(), *log);
            let writer = opened.map_err(|error| HostError::File {
                path: folder.data.path().to_owned(),
                error,
            })?;
            let thread = LogThread::start(writer, Arc::clone(done), stages.clone())?;
            disk.logs.insert(log.name, thread);
        }
        disk.folder = Some(folder.data.file_folder());
        disk.lock = Some(folder.lock);
        Ok(disk)
    }

    /// Queues a task for a log. Panics if the machine did not open the log at boot, which is a bug of the machine.
    pub(crate) fn log(&self, name: LogName, task: LogTask) {
        let Some(thread) = self.logs.get(&name) else {
            panic!("log {name} is not open: its machine did not list it at boot");
        };
        thread.push(task);
    }

    /// The next file task that may run, with the folder that runs it.
    pub(crate) fn start_file(&mut self) -> Option<(Ticket, FileTask, FileFolder)> {
        if self.files.is_empty() {
            return None; // after nearly every turn of a machine
        }
        let (ticket, task) = self.files.start()?;
        let folder = self.folder.clone();
        let folder = folder
            .unwrap_or_else(|| panic!("a machine without a data folder uses file {}", task.file()));
        Some((ticket, task, folder))
    }
}

/// Tasks of a log, executed in order.
pub(crate) enum LogTask {
    /// Append bytes and make them durable.
    Append(Vec<u8>, Ticket),
    /// Append bytes.
    Write(Vec<u8>, Ticket),
    /// Free the space before a position.
    TruncateHead(u64),
}

/// Maximum number of appends of one log that wait for the disk; a machine that makes more blocks in its own turn.
const APPENDS_MAX: usize = 4_096;
/// Maximum number of bytes that share one sync.
const BATCH_LENGTH_MAX: usize = 16 << 20;
/// Appends of this length are written as they are; shorter ones are gathered: a copy costs less than a write.
const OWN_WRITE_LENGTH: usize = 64 << 10;

/// The thread that writes and syncs one log. Dropping this waits until all queued tasks are written.
struct LogThread {
    /// `None` when the thread must end.
    tasks: Option<SyncSender<LogTask>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was printed by the thread
        }
    }
}

impl LogThread {
    /// Starts the thread. After every batch it calls `done` with the tickets that are durable, or with the error after which it
    /// writes no more: a failed sync is never retried, because the kernel may have dropped the dirty pages.
    fn start(log: LogWriter, done: Durable, stages: StageTimes) -> Result<LogThread, HostError> {
        let (tasks, queue) = sync_channel(APPENDS_MAX);
        let name = format!("disk {}", log.name());
        let run = move || write_all(log, &queue, &*done, &stages);
        let thread = thread::Builder::new().name(name).spawn(run);
        let thread = Some(thread.map_err(HostError::Thread)?);
        Ok(LogThread {
            tasks: Some(tasks),
            thread,
        })
    }

    /// Queues a task; no effect if the thread has ended, which it has reported itself.
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
    stages: &StageTimes,
) {
    while let Ok(task) = queue.recv() {
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let result = match task {
                LogTask::TruncateHead(position) => log.truncate_head(position).map(|_| Vec::new()),
                LogTask::Append(..) | LogTask::Write(..) => {
                    let tickets;
                    (tickets, next) = append(&mut log, queue, task, stages);
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
    if let Err(error) = log.close() {
        tracing::debug!("{error}"); // the next start cuts the end off
    }
}

/// Carries out an append or a write, and those queued after it, in as few writes as copy no long one, and with at most one sync.
/// Returns their tickets, and the task that ended the batch because it is neither.
fn append(
    log: &mut LogWriter,
    queue: &Receiver<LogTask>,
    first: LogTask,
    stages: &StageTimes,
) -> (io::Result<Vec<Ticket>>, Option<LogTask>) {
    let (mut gathered, mut tickets, mut is_durable) =
        (GatheredAppends::default(), Vec::new(), false);
    let (mut task, mut length) = (Some(first), 0);
    let began = Instant::now();
    while let Some(next) = task.take() {
        let (bytes, ticket) = match next {
            LogTask::Append(bytes, ticket) => {
                is_durable = true;
                (bytes, ticket)
            }
            LogTask::Write(bytes, ticket) => (bytes, ticket),
            LogTask::TruncateHead(_) => {
                task = Some(next);
                break;
            }
        };
        tickets.push(ticket);
        length += bytes.len();
        gathered.add(bytes);
        if length >= BATCH_LENGTH_MAX {
            break;
        }
        task = queue.try_recv().ok();
    }
    let mut written = gathered.write(log);
    if is_durable {
        written = written.and_then(|()| log.sync());
    }
    stages.log_written(began, tickets.len(), length);
    (written.map(|()| tickets), task)
}

/// Appends that are written together. Short ones are copied into one, long ones stay as they are.
#[derive(Debug, Default)]
struct GatheredAppends {
    appends: Vec<Vec<u8>>,
    /// Is the last of them short, or made of short ones?
    is_short: bool,
}

impl GatheredAppends {
    fn add(&mut self, bytes: Vec<u8>) {
        let is_short = bytes.len() < OWN_WRITE_LENGTH;
        match self.appends.last_mut() {
            Some(last) if is_short && self.is_short => last.extend_from_slice(&bytes),
            _ => self.appends.push(bytes),
        }
        self.is_short = is_short;
    }

    fn write(&self, log: &mut LogWriter) -> io::Result<()> {
        let appends: Vec<&[u8]> = self.appends.iter().map(Vec::as_slice).collect();
        log.append_all(&appends)
    }
}

fn append_error(path: PathBuf, error: io::Error) -> HostError {
    HostError::Append { path, error }
}
