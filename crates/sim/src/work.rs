//! What a node has under way beside its machine: its logs, its files, its jobs.

use crate::options::{DiskOptions, WorldOptions};
use crate::storage::{FileTree, MemoryStorage};
use seatrial_machine::{
    DataFolder, DiskTrouble, FileFolder, FileQueue, FileResult, FileTask, Job, LogName, LogWriter,
    OpenLog, Rng, Storage, Ticket, Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Jobs of a node that run at the same time; others wait, as in `host`.
const WORKERS: usize = 4;
/// Changes after which work that a crash meets ends at the latest.
const CUT_MAX: u64 = 12;

/// Logs, files and jobs of one node. The storage is that of the node's disk: it outlives the process, all else is of one
/// start.
///
/// Appends are written when a sync begins and are durable when it ends; those that come meanwhile wait for the next one, as
/// they do in `host`. A task on a file and a job happen at one instant, when their time has come.
#[derive(Debug)]
pub(crate) struct Work {
    storage: MemoryStorage,
    logs: BTreeMap<LogName, NodeLog>,
    folder: Option<FileFolder>,
    files: FileQueue,
    /// Tasks on files that run.
    tasks: BTreeMap<Ticket, FileTask>,
    jobs: BTreeMap<u64, (Ticket, Box<dyn Job>)>,
    jobs_begun: u64,
    /// When each worker is free.
    workers: [Time; WORKERS],
    /// An earlier state of the disk.
    snapshot: Option<FileTree>,
    /// The file that the last process wrote last.
    last_written: Option<PathBuf>,
}

/// One log that a machine appends to.
#[derive(Debug)]
struct NodeLog {
    writer: LogWriter,
    waiting: VecDeque<LogTask>,
    /// Appends that the sync under way covers; none, no sync is under way.
    covered: Vec<Ticket>,
}

#[derive(Debug)]
enum LogTask {
    Append(Vec<u8>, Ticket),
    TruncateHead(u64),
}

impl NodeLog {
    /// Writes what waits, unless a sync is under way. True when a sync is to begin.
    fn write(&mut self) -> io::Result<bool> {
        if !self.covered.is_empty() {
            return Ok(false);
        }
        while let Some(task) = self.waiting.pop_front() {
            match task {
                LogTask::Append(bytes, ticket) => {
                    self.writer.append(&bytes)?;
                    self.covered.push(ticket);
                }
                LogTask::TruncateHead(position) => {
                    self.writer.truncate_head(position)?;
                }
            }
        }
        Ok(!self.covered.is_empty())
    }
}

impl Work {
    /// An empty disk.
    pub(crate) fn new() -> Work {
        Work::over(&FileTree::default())
    }

    fn over(files: &FileTree) -> Work {
        Work {
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

    /// The folder of the machine.
    pub(crate) fn folder(&self) -> io::Result<DataFolder> {
        DataFolder::open(Arc::new(self.storage.clone()), Path::new(""))
    }

    /// Opens the logs of a machine that starts.
    pub(crate) fn start(&mut self, data: &DataFolder, logs: &[OpenLog]) -> io::Result<()> {
        let storage: Arc<dyn Storage> = Arc::clone(data.storage());
        for log in logs {
            let opened = NodeLog {
                writer: LogWriter::open(&storage, data.path(), *log)?,
                waiting: VecDeque::new(),
                covered: Vec::new(),
            };
            self.logs.insert(log.name, opened);
        }
        self.folder = Some(data.file_folder());
        Ok(())
    }

    fn log(&mut self, name: LogName) -> &mut NodeLog {
        let log = self.logs.get_mut(&name);
        log.unwrap_or_else(|| panic!("a machine uses log {name} and did not open it"))
    }

    /// Takes an append in, and writes it unless a sync is under way. True when a sync is to begin.
    pub(crate) fn append(
        &mut self,
        name: LogName,
        bytes: Vec<u8>,
        ticket: Ticket,
    ) -> io::Result<bool> {
        let log = self.log(name);
        log.waiting.push_back(LogTask::Append(bytes, ticket));
        log.write()
    }

    /// Truncates a log after the appends that came before.
    pub(crate) fn truncate_head(&mut self, name: LogName, position: u64) -> io::Result<bool> {
        let log = self.log(name);
        log.waiting.push_back(LogTask::TruncateHead(position));
        log.write()
    }

    /// A sync of a log ends: the tickets of what is durable, in order, and whether another sync is to begin.
    pub(crate) fn synced(&mut self, name: LogName) -> io::Result<(Vec<Ticket>, bool)> {
        let log = self.log(name);
        log.writer.sync()?;
        let covered = std::mem::take(&mut log.covered);
        Ok((covered, log.write()?))
    }

    /// Takes a task on a file in.
    pub(crate) fn push_file(&mut self, ticket: Ticket, task: FileTask) {
        self.files.push(ticket, task);
    }

    /// A task on a file that begins now, and whether it waits for the medium.
    pub(crate) fn start_file(&mut self) -> Option<(Ticket, bool)> {
        let (ticket, task) = self.files.start()?;
        let is_sync = task.is_sync();
        self.tasks.insert(ticket, task);
        Some((ticket, is_sync))
    }

    /// A task on a file happens.
    pub(crate) fn finish_file(&mut self, ticket: Ticket) -> Option<FileResult> {
        let task = self.tasks.remove(&ticket)?;
        self.files.finish(ticket);
        Some(self.folder.as_ref()?.run(task))
    }

    /// Takes a job in: its number, and when it runs, given how long it takes.
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

    /// Jobs and tasks on files under way.
    pub(crate) fn under_way(&self) -> usize {
        self.jobs.len() + self.files.len()
    }

    /// A job that runs now.
    pub(crate) fn take_job(&mut self, number: u64) -> Option<(Ticket, Box<dyn Job>)> {
        self.jobs.remove(&number)
    }

    /// How much longer a sync takes.
    pub(crate) fn extra_delay(&self) -> Duration {
        match self.storage.trouble() {
            Some(DiskTrouble::Slow(delay)) => delay,
            _ => Duration::ZERO,
        }
    }

    /// The process is gone, and with it what the disk had not made durable, or part of it.
    pub(crate) fn crash(&mut self, options: &WorldOptions, rng: &mut Rng) {
        self.interrupt(&options.disk, rng);
        let left = self.storage.crash(&options.disk, rng);
        self.replace(&left);
    }

    /// The power is gone, and all that was not durable.
    pub(crate) fn lose_power(&mut self) {
        let left = self.storage.lose_power();
        self.replace(&left);
    }

    /// Puts these files on the disk, of which the rest stays as it is.
    fn replace(&mut self, files: &FileTree) {
        let trouble = self.storage.trouble();
        let last_written = self.storage.last_written().or(self.last_written.take());
        let snapshot = self.snapshot.take();
        *self = Work {
            snapshot,
            last_written,
            ..Work::over(files)
        };
        self.storage.set_trouble(trouble);
    }

    /// Lets some of what is under way begin, and ends it in the middle.
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
                drop(folder.run(task)); // nobody is left to be answered
            }
        }
        for log in self.logs.values_mut() {
            if rng.chance(0.5) {
                self.storage.end_after(rng.below(CUT_MAX));
                log.covered.clear();
                let _ = log.write(); // the process ends in it
            }
        }
    }

    /// Cuts off the last durable bytes of the file that was written last; were there any?
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

    /// Goes back to the snapshot; does that change anything?
    pub(crate) fn restore(&mut self) -> bool {
        let Some(snapshot) = self.snapshot.clone() else {
            return false;
        };
        let changes = snapshot != self.storage.durable();
        self.replace(&snapshot);
        changes
    }
}
