//! Writes the history while the test runs.

use seatrial_history::{HistoryWriter, Op};
use std::error::Error;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Hands recorded operations in batches to a thread that owns the test file. The queue between them is bounded: when
/// the disk is too slow, the test waits. What was recorded is in the file within 100 ms: an operation waits at most
/// [`BATCH_AGE_MAX`] here, and the thread flushes every [`FLUSH_INTERVAL`]. Every [`SYNC_INTERVAL`] the file is synced, so a
/// loss of power takes at most the last second.
pub(crate) struct Recorder {
    batch: Vec<Op>,
    /// When the first operation of the batch came.
    since: Option<Instant>,
    queue: SyncSender<Vec<Op>>,
    /// Empty batches that come back.
    spare: Receiver<Vec<Op>>,
    thread: JoinHandle<Result<(), WriteError>>,
}

/// Where a recorder writes: the test file.
pub(crate) trait Journal: Send {
    /// Takes one operation.
    fn push(&mut self, op: &Op) -> Result<(), WriteError>;

    /// Makes sure that a kill of the bench loses nothing of what came so far.
    fn flush(&mut self) -> Result<(), WriteError>;

    /// [`Journal::flush`], and makes sure that a loss of power loses none of it either.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Nothing comes any more.
    fn seal(self: Box<Self>) -> Result<(), WriteError>;
}

impl Journal for HistoryWriter {
    fn push(&mut self, op: &Op) -> Result<(), WriteError> {
        HistoryWriter::push(self, op).map_err(|error| in_words(&error))
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        HistoryWriter::flush(self).map_err(|error| in_words(&error))
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        HistoryWriter::sync(self).map_err(|error| in_words(&error))
    }

    fn seal(self: Box<Self>) -> Result<(), WriteError> {
        HistoryWriter::seal(*self).map_err(|error| in_words(&error))
    }
}

/// An error with all its causes.
pub(crate) fn in_words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Why the history cannot be written, in words.
pub(crate) type WriteError = String;

/// The writing thread has ended; [`Recorder::finish`] says why.
#[derive(Debug)]
pub(crate) struct Gone;

/// Operations handed over at once.
const BATCH_LENGTH_MAX: usize = 1024;
/// Longest wait of a recorded operation for its batch to fill.
const BATCH_AGE_MAX: Duration = Duration::from_millis(25);
/// How often the thread makes sure that what it has is in the file.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);
/// How often the thread makes the file durable: with a flush interval and the sync itself this stays under a second.
const SYNC_INTERVAL: Duration = Duration::from_millis(800);
/// Batches that may wait for the disk: 64 × 1,024 operations, a few megabytes.
const QUEUE_LENGTH_MAX: usize = 64;

impl Recorder {
    /// Starts the thread that owns `journal`.
    pub(crate) fn start(journal: Box<dyn Journal>) -> std::io::Result<Recorder> {
        let (queue, batches) = mpsc::sync_channel(QUEUE_LENGTH_MAX);
        let (returned, spare) = mpsc::sync_channel(QUEUE_LENGTH_MAX);
        let thread = thread::Builder::new()
            .name("history".into())
            .spawn(move || write(journal, &batches, &returned))?;
        Ok(Recorder {
            batch: Vec::with_capacity(BATCH_LENGTH_MAX),
            since: None,
            queue,
            spare,
            thread,
        })
    }

    /// Takes one operation.
    pub(crate) fn push(&mut self, op: Op, now: Instant) -> Result<(), Gone> {
        self.batch.push(op);
        self.since.get_or_insert(now);
        if self.batch.len() < BATCH_LENGTH_MAX {
            return Ok(());
        }
        self.hand_over()
    }

    /// When [`Recorder::hand_over`] must be called; `None` while nothing waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + BATCH_AGE_MAX)
    }

    /// Gives what waits to the thread.
    pub(crate) fn hand_over(&mut self) -> Result<(), Gone> {
        self.since = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = self.spare.try_recv();
        let next = next.unwrap_or_else(|_| Vec::with_capacity(BATCH_LENGTH_MAX));
        let batch = std::mem::replace(&mut self.batch, next);
        self.queue.send(batch).map_err(|_| Gone)
    }

    /// Writes the rest and seals the file.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        let _ = self.hand_over(); // the thread's own error says more
        drop(self.queue);
        let written = self.thread.join();
        written.map_err(|_| String::from("the writing thread panicked"))?
    }
}

fn write(
    mut journal: Box<dyn Journal>,
    batches: &Receiver<Vec<Op>>,
    returned: &SyncSender<Vec<Op>>,
) -> Result<(), WriteError> {
    let (mut flushed, mut synced) = (Instant::now(), Instant::now());
    loop {
        match batches.recv_timeout(FLUSH_INTERVAL.saturating_sub(flushed.elapsed())) {
            Ok(mut batch) => {
                for op in &batch {
                    journal.push(op)?;
                }
                batch.clear();
                let _ = returned.try_send(batch);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return journal.seal(),
        }
        if flushed.elapsed() >= FLUSH_INTERVAL {
            if synced.elapsed() >= SYNC_INTERVAL {
                // Counted from its beginning: what comes meanwhile is not in it.
                synced = Instant::now();
                journal.sync()?;
            } else {
                journal.flush()?;
            }
            flushed = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_history::{Process, Value};
    use std::sync::{Arc, Mutex};

    /// What reached a disk that fails after so many operations.
    struct Disk {
        room: usize,
        pending: Vec<u64>,
        flushed: Arc<Mutex<Vec<u64>>>,
        /// When it was synced.
        synced: Arc<Mutex<Vec<Instant>>>,
    }

    impl Journal for Disk {
        fn push(&mut self, op: &Op) -> Result<(), WriteError> {
            if self.room == 0 {
                return Err("no space left".into());
            }
            self.room -= 1;
            self.pending.push(op.index);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), WriteError> {
            self.flushed.lock().unwrap().append(&mut self.pending);
            Ok(())
        }

        fn sync(&mut self) -> Result<(), WriteError> {
            self.synced.lock().unwrap().push(Instant::now());
            self.flush()
        }

        fn seal(mut self: Box<Self>) -> Result<(), WriteError> {
            self.flush()
        }
    }

    fn recorder(room: usize) -> (Recorder, Arc<Mutex<Vec<u64>>>) {
        let flushed = Arc::default();
        let disk = Disk {
            room,
            pending: Vec::new(),
            flushed: Arc::clone(&flushed),
            synced: Arc::default(),
        };
        (Recorder::start(Box::new(disk)).unwrap(), flushed)
    }

    #[test]
    fn what_is_recorded_is_durable_within_a_second() {
        let synced = Arc::<Mutex<Vec<Instant>>>::default();
        let disk = Disk {
            room: usize::MAX,
            pending: Vec::new(),
            flushed: Arc::default(),
            synced: Arc::clone(&synced),
        };
        let mut recorder = Recorder::start(Box::new(disk)).unwrap();
        let began = Instant::now();
        for index in 0..250 {
            recorder.push(op(index), Instant::now()).unwrap();
            recorder.hand_over().unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        let ended = Instant::now();
        recorder.finish().unwrap();
        let mut last = began;
        for &at in synced.lock().unwrap().iter().chain([&ended]) {
            let gap = at - last;
            assert!(gap < Duration::from_secs(1), "{gap:?}");
            last = at;
        }
    }

    fn op(index: u64) -> Op {
        let op = Op::invoke(Process::Client(0), "read", Value::Nil);
        Op { index, ..op }
    }

    #[test]
    fn everything_arrives_in_order() {
        let (mut recorder, flushed) = recorder(usize::MAX);
        for index in 0..200_000 {
            recorder.push(op(index), Instant::now()).unwrap();
        }
        recorder.finish().unwrap();
        let flushed = flushed.lock().unwrap();
        assert!(flushed.iter().copied().eq(0..200_000));
    }

    #[test]
    fn a_quiet_test_is_flushed_too() {
        let (mut recorder, flushed) = recorder(usize::MAX);
        assert_eq!(recorder.due(), None);
        let began = Instant::now();
        recorder.push(op(0), began).unwrap();
        let due = recorder.due().unwrap();
        assert_eq!(due, began + BATCH_AGE_MAX);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        recorder.hand_over().unwrap();
        assert_eq!(recorder.due(), None);
        while flushed.lock().unwrap().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(5), "never flushed");
            thread::sleep(Duration::from_millis(1));
        }
        recorder.finish().unwrap();
        assert!(BATCH_AGE_MAX + FLUSH_INTERVAL < Duration::from_millis(100));
    }

    #[test]
    fn a_full_disk_ends_the_recording_and_says_why() {
        let (mut recorder, flushed) = recorder(5000);
        let pushed = (0..).take_while(|index| recorder.push(op(*index), Instant::now()).is_ok());
        assert!(pushed.count() < 5000 + (QUEUE_LENGTH_MAX + 2) * BATCH_LENGTH_MAX);
        assert_eq!(recorder.finish().unwrap_err(), "no space left");
        assert!(flushed.lock().unwrap().len() <= 5000);
    }
}
