//! The log of a machine, as a real file.

use rustix::fs::{FlockOperation, flock};
use seatrial_machine::{Disk, Ticket};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::HostError;

/// The file `log` in a data folder that no other process uses. Appends go to its end; it never changes anything before.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    length: u64,
    /// Holds the lock of the folder.
    _folder: File,
}

/// Makes a folder, and its name as durable as what will be written into it.
fn create_durably(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    match folder.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl LogFile {
    /// Opens the log in `folder`, making both when they are missing, and keeps every other process out until it is
    /// dropped.
    pub fn open(folder: &Path) -> Result<LogFile, HostError> {
        let wrong = |path: &Path, error| HostError::File {
            path: path.to_owned(),
            error,
        };
        create_durably(folder).map_err(|error| wrong(folder, error))?;
        let lock = File::open(folder).map_err(|error| wrong(folder, error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(HostError::Locked(folder.to_owned()));
            }
            Err(error) => return Err(wrong(folder, error.into())),
        }
        let path = folder.join("log");
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(&path).map_err(|error| wrong(&path, error))?;
        // The name has to be as durable as what will be written under it.
        lock.sync_all().map_err(|error| wrong(folder, error))?;
        let length = file.metadata().map_err(|error| wrong(&path, error))?.len();
        Ok(LogFile {
            path,
            file,
            length,
            _folder: lock,
        })
    }

    /// Cuts off what is behind `end`, and makes all that stays durable: a process that was killed may have written and not
    /// synced the last blocks, and the next one says that everything before it was durable.
    pub(crate) fn truncate(&mut self, end: u64) -> Result<(), HostError> {
        let is_cut = end < self.length;
        let cut = if is_cut {
            self.file.set_len(end)
        } else {
            Ok(())
        };
        // An empty log has no bytes to lose.
        let cut = cut.and_then(|()| match self.length {
            0 => Ok(()),
            _ => self.file.sync_all(),
        });
        cut.map_err(|error| HostError::File {
            path: self.path.clone(),
            error,
        })?;
        self.length = self.length.min(end);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }
}

impl Disk for LogFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Appends that may wait for the disk; a machine that has more of them under way holds up its own turns.
const APPENDS_MAX: usize = 4_096;
/// Bytes that share one write and one sync.
const BATCH_LENGTH_MAX: usize = 16 << 20;

/// The thread that writes and syncs. Dropping this waits until it has written what it was given and let go of the log.
pub(crate) struct DiskThread {
    /// `None` when it is to end.
    appends: Option<SyncSender<(Vec<u8>, Ticket)>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.appends = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // if it panicked, it said so
        }
    }
}

impl DiskThread {
    /// Starts the thread. For every batch it calls `done` with the tickets that are durable, or with the error after
    /// which it writes no more: a sync that failed is never tried again as if it had worked.
    pub(crate) fn start(
        log: LogFile,
        done: impl FnMut(Result<Vec<Ticket>, HostError>) + Send + 'static,
    ) -> Result<DiskThread, HostError> {
        let (appends, queue) = sync_channel(APPENDS_MAX);
        let run = move || write_all(log, &queue, done);
        let thread = thread::Builder::new().name("disk".into()).spawn(run);
        let thread = Some(thread.map_err(HostError::Thread)?);
        Ok(DiskThread {
            appends: Some(appends),
            thread,
        })
    }

    /// Queues an append. A thread that has ended has said so.
    pub(crate) fn append(&self, bytes: Vec<u8>, ticket: Ticket) {
        if let Some(appends) = &self.appends {
            let _ = appends.send((bytes, ticket));
        }
    }
}

fn write_all(
    mut log: LogFile,
    queue: &Receiver<(Vec<u8>, Ticket)>,
    mut done: impl FnMut(Result<Vec<Ticket>, HostError>),
) {
    while let Ok((mut bytes, ticket)) = queue.recv() {
        let mut tickets = vec![ticket];
        while bytes.len() < BATCH_LENGTH_MAX
            && let Ok((more, ticket)) = queue.try_recv()
        {
            bytes.extend_from_slice(&more);
            tickets.push(ticket);
        }
        if let Err(error) = log.append(&bytes) {
            done(Err(HostError::Append {
                path: log.path,
                error,
            }));
            return;
        }
        done(Ok(tickets));
    }
}
