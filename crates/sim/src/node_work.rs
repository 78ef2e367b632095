//! Work of a node outside its machine: logs, file tasks, jobs, and the disk under them.

use crate::simulated_storage::{FileTree, MemoryStorage};
use crate::world_options::{DiskOptions, WorldOptions};
use seatrial_machine::{
    DataFolder, DiskTrouble, FileFolder, FileQueue, FileResult, FileTask, Job, LogName, LogWriter,
    OpenLog, Rng, Storage, Ticket, Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Jobs of one node that run at the same time; further ones wait, as in `host`.
const WORKERS: usize = 4;
/// Bound of the changes that a job or task makes before a crash interrupts it.
const CUT_MAX: u64 = 12;

/// Logs, file tasks and jobs of one node, over its disk. The storage outlives the process; all other fields belong to one start.
///
/// Appends are written when a sync begins and are durable when it ends; appends that arrive meanwhile wait for the next sync
/// (group commit, as in `host`). A file task or a job takes effect at one instant, when it ends.
#[derive(Debug)]
pub(crate) struct NodeWork {
    storage: MemoryStorage,
    logs: BTreeMap<LogName, NodeLog>,
    folder: Option<FileFolder>,
    files: FileQueue,
    /// File tasks under way, with their tickets.
    tasks: BTreeMap<Ticket, FileTask>,
    jobs: BTreeMap<u64, (Ticket, Box<dyn Job>)>,
    jobs_begun: u64,
    /// Times at which each worker becomes free, ascending.
    workers: [Time; WORKERS],
    /// Snapshot of the durable files, for [`Fault::Restore`](seatrial_machine::Fault::Restore).
    snapshot: Option<FileTree>,
    /// The file that an earlier process of this node wrote last.
    last_written: Option<PathBuf>,
}

/// One log of a machine.
#[derive(Debug)]
struct NodeLog {
    writer: LogWriter,
    waiting: VecDeque<QueuedLogTask>,
    /// Tickets of the appends and writes that the sync under way covers. Empty: no sync is under way.
    covered: Vec<Ticket>,
    /// Does that sync make them durable? Writes alone are only reported at its end.
    is_sync: bool,
}

#[derive(Debug)]
enum QueuedLogTask {
    Append(Vec<u8>, Ticket),
    Write(Vec<u8>, Ticket),
    TruncateHead(u64),
}

impl NodeLog {
    /// Writes all waiting appends, unless a sync is under way. True if the caller must begin a sync.
    fn write(&mut self) -> io::Result<bool> {
        if !self.covered.is_empty() {
            return Ok(false);
        }
        self.is_sync = false;
        while let Some(task) = self.waiting.pop_front() {
            match task {
                QueuedLogTask::Append(bytes, ticket) => {
                    self.writer.append(&bytes)?;
                    self.covered.push(ticket);
                    self.is_sync = true;
                }
                QueuedLogTask::Write(bytes, ticket) => {
                    self.writer.append(&bytes)?;
                    self.covered.push(ticket);
                }
                QueuedLogTask::TruncateHead(position) => {
                    self.writer.truncate_head(position)?;
                }
            }
        }
        Ok(!self.covered.is_empty())
    }
}

impl NodeWork {
    /// An empty disk.
    pub(crate) fn new() -> NodeWork {
        NodeWork::over(&FileTree::default())
    }

    fn over(files: &FileTree) -> NodeWork {
        NodeWork {
            storage: MemoryStorage::forgetful(files),
            logs: BTreeMap::new(),
            folder: None,
            files: FileQueue::default(),
            tasks: BTreeMap::new(),
            jobs: BTreeMap::new(),
            jobs_begun: 0,
            workers: [Time::ZERO; WORKERS],
            snapshot: None,
            last_written: None,
        }
    }

    /// The disk.
    pub(crate) const fn storage(&self) -> &MemoryStorage {
        &self.storage
    }

    /// The machine's data folder, as its boot sees it.
    pub(crate) fn folder(&self) -> io::Result<DataFolder> {
        DataFolder::open(Arc::new(self.storage.clone()), Path::new(""))
    }

    /// Opens the logs of a machine that is being started.
    pub(crate) fn start(&mut self, data: &DataFolder, logs: &[OpenLog]) -> io::Result<()> {
        let storage: Arc<dyn Storage> = Arc::clone(data.storage());
        for log in logs {
            let opened = NodeLog {
                writer: LogWriter::open(&storage, data.path(), *log)?,
                waiting: VecDeque::new(),
                covered: Vec::new(),
                is_sync: false,
            };
            self.logs.insert(log.name, opened);
        }
        self.folder = Some(data.file_folder());
        Ok(())
    }

    fn log(&mut self, name: LogName) -> &mut NodeLog {
        let log = self.logs.get_mut(&name);
        log.unwrap_or_else(|| panic!("log {name} is not open: its machine did not list it at boot"))
    }

    /// Queues an append, and writes it unless a sync is under way. True if the caller must begin a sync.
    pub(crate) fn append(
        &mut self,
        name: LogName,
        bytes: Vec<u8>,
        ticket: Ticket,
    ) -> io::Result<bool> {
        let log = self.log(name);
        log.waiting.push_back(QueuedLogTask::Append(bytes, ticket));
        log.write()
    }

    /// Queues a write, which the next sync of an append makes durable. True as for [`NodeWork::append`].
    pub(crate) fn write(
        &mut self,
        name: LogName,
        bytes: Vec<u8>,
        ticket: Ticket,
    ) -> io::Result<bool> {
        let log = self.log(name);
        log.waiting.push_back(QueuedLogTask::Write(bytes, ticket));
        log.write()
    }

    /// Truncates a log after the appends that were queued before. True if the caller must begin a sync.
    pub(crate) fn truncate_head(&mut self, name: LogName, position: u64) -> io::Result<bool> {
        let log = self.log(name);
        log.waiting.push_back(QueuedLogTask::TruncateHead(position));
        log.write()
    }

    /// Ends a sync of a log. Returns the tickets of the appends that are now durable, in order, and whether the next sync
    /// begins.
    pub(crate) fn synced(&mut self, name: LogName) -> io::Result<(Vec<Ticket>, bool)> {
        let log = self.log(name);
        if log.is_sync {
            log.writer.sync()?;
        }
        let covered = std::mem::take(&mut log.covered);
        Ok((covered, log.write()?))
    }

    /// Queues a file task.
    pub(crate) fn push_file(&mut self, ticket: Ticket, task: FileTask) {
        self.files.push(ticket, task);
    }

    /// Starts a file task that may run now. Returns its ticket and whether it syncs the medium.
    pub(crate) fn start_file(&mut self) -> Option<(Ticket, bool)> {
        let (ticket, task) = self.files.start()?;
        let is_sync = task.is_sync();
        self.tasks.insert(ticket, task);
        Some((ticket, is_sync))
    }

    /// Runs a file task, at its end. `None`: the task belongs to no start of this node.
    pub(crate) fn finish_file(&mut self, ticket: Ticket) -> Option<FileResult> {
        let task = self.tasks.remove(&ticket)?;
        self.files.finish(ticket);
        Some(self.folder.as_ref()?.run(task))
    }

    /// Queues a job that takes `takes`. Returns its number and the time at which it ends.
    pub(crate) fn push_job(
        &mut self,
        ticket: Ticket,
        job: Box<dyn Job>,
        now: Time,
        takes: Duration,
    ) -> (u64, Time) {
        self.jobs_begun += 1;
        self.jobs.insert(self.jobs_begun, (ticket, job));
        let [free, ..] = &mut self.workers;
        *free = (*free).max(now) + takes;
        let due = *free;
        self.workers.sort_unstable();
        (self.jobs_begun, due)
    }

    /// Number of jobs and file tasks under way.
    pub(crate) fn under_way(&self) -> usize {
        self.jobs.len() + self.files.len()
    }

    /// Removes a job from the queue, to run it now.
    pub(crate) fn take_job(&mut self, number: u64) -> Option<(Ticket, Box<dyn Job>)> {
        self.jobs.remove(&number)
    }

    /// Additional time of each sync, on a slow disk.
    pub(crate) fn extra_delay(&self) -> Duration {
        match self.storage.trouble() {
            Some(DiskTrouble::Slow(delay)) => delay,
            _ => Duration::ZERO,
        }
    }

    /// Crashes the process: bytes and names that are not durable are lost, in part or all, as `options` and `rng` draw.
    pub(crate) fn crash(&mut self, options: &WorldOptions, rng: &mut Rng) {
        self.interrupt(&options.disk, rng);
        let left = self.storage.crash(&options.disk, rng);
        self.replace(&left);
    }

    /// Power failure: everything that is not durable is lost.
    pub(crate) fn lose_power(&mut self) {
        let left = self.storage.lose_power();
        self.replace(&left);
    }

    /// Starts over with these files. The disk's fault, the snapshot and the name of the last written file survive.
    fn replace(&mut self, files: &FileTree) {
        let trouble = self.storage.trouble();
        let last_written = self.storage.last_written().or(self.last_written.take());
        let snapshot = self.snapshot.take();
        *self = NodeWork {
            snapshot,
            last_written,
            ..NodeWork::over(files)
        };
        self.storage.set_trouble(trouble);
    }

    /// Draws which work under way at a crash has begun, runs it, and ends it after a drawn number of changes.
    fn interrupt(&mut self, options: &DiskOptions, rng: &mut Rng) {
        if options.crash_within == 0.0 || !rng.chance(options.crash_within) {
            return;
        }
        for (_, job) in std::mem::take(&mut self.jobs).into_values() {
            if rng.chance(0.5) {
                self.storage.end_after(rng.below(CUT_MAX));
                drop(job.run());
            }
        }
        let tasks = std::mem::take(&mut self.tasks).into_values();
        for (folder, task) in tasks.filter_map(|task| Some((self.folder.clone()?, task))) {
            if rng.chance(0.5) {
                self.storage.end_after(rng.below(CUT_MAX));
                drop(folder.run(task)); // the process that waited for the result is dead
            }
        }
        for log in self.logs.values_mut() {
            if rng.chance(0.5) {
                self.storage.end_after(rng.below(CUT_MAX));
                log.covered.clear();
                let _ = log.write(); // an error is the point at which the process ended
            }
        }
    }

    /// Truncates the file that was written last by `bytes` durable bytes; false if there is no such file or it is empty.
    pub(crate) fn cut_off(&mut self, bytes: u64) -> bool {
        let mut files = self.storage.durable();
        let Some(path) = self.last_written.clone().filter(|_| bytes > 0) else {
            return false;
        };
        let content = files.get(&path).unwrap_or_default();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let cut = content[..content.len().saturating_sub(bytes)].to_vec();
        if cut.len() == content.len() {
            return false;
        }
        files.insert(path, cut);
        self.replace(&files);
        true
    }

    pub(crate) fn keep_snapshot(&mut self) {
        self.snapshot = Some(self.storage.durable());
    }

    /// Replaces the files by the snapshot; false if there is none or nothing differs.
    pub(crate) fn restore(&mut self) -> bool {
        let Some(snapshot) = self.snapshot.clone() else {
            return false;
        };
        let changes = snapshot != self.storage.durable();
        self.replace(&snapshot);
        changes
    }
}
