//! The history recorder: writes operations to the test file during the test.

use seatrial_history::{HistoryWriter, Op};
use std::error::Error;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Sends recorded operations in batches to a thread that owns the test file. The queue between them is bounded: when the disk is
/// too slow, the driver waits. A recorded operation is in the file within 100 ms: it waits at most [`BATCH_AGE_MAX`] here, and
/// the thread flushes every [`FLUSH_INTERVAL`]. The file is synced every [`SYNC_INTERVAL`], so a power failure loses at most the
/// last second.
///
/// ```text
/// driver ── push ──► batch ── queue, ≤ 64 batches ──► thread ──► HistoryWriter
///                      ▲                                 │
///                      └───────── empty batches ─────────┘   (their memory is reused)
/// ```
pub(crate) struct HistoryRecorder {
    batch: Vec<Op>,
    /// When the first operation of the batch was pushed.
    since: Option<Instant>,
    queue: SyncSender<Vec<Op>>,
    /// Empty batches, returned by the thread.
    spare: Receiver<Vec<Op>>,
    thread: JoinHandle<Result<(), WriteError>>,
}

/// Destination of a recorder: the test file, or memory in tests.
pub(crate) trait Journal: Send {
    /// Appends one operation.
    fn push(&mut self, op: &Op) -> Result<(), WriteError>;

    /// After this a kill of this process loses none of the operations pushed so far.
    fn flush(&mut self) -> Result<(), WriteError>;

    /// After this a power failure loses none of the operations pushed so far.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Ends the journal: no operation follows.
    fn seal(self: Box<Self>) -> Result<(), WriteError>;
}

impl Journal for HistoryWriter {
    fn push(&mut self, op: &Op) -> Result<(), WriteError> {
        HistoryWriter::push(self, op).map_err(|error| error_chain(&error))
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        HistoryWriter::flush(self).map_err(|error| error_chain(&error))
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        HistoryWriter::sync(self).map_err(|error| error_chain(&error))
    }

    fn seal(self: Box<Self>) -> Result<(), WriteError> {
        HistoryWriter::seal(*self).map_err(|error| error_chain(&error))
    }
}

/// The text of an error and of all its causes, separated by colons.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The text of a write error and its causes.
pub(crate) type WriteError = String;

/// The writing thread has ended; [`HistoryRecorder::finish`] returns the reason.
#[derive(Debug)]
pub(crate) struct WriterEnded;

/// Number of operations in a full batch.
const BATCH_LENGTH_MAX: usize = 1024;
/// Maximum time that an operation waits for its batch to fill.
const BATCH_AGE_MAX: Duration = Duration::from_millis(25);
/// Interval at which the thread flushes.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which the thread syncs: together with a flush interval and the sync itself this is less than a second.
const SYNC_INTERVAL: Duration = Duration::from_millis(800);
/// Maximum number of batches that wait for the disk: 64 × 1,024 operations, a few megabytes.
const QUEUE_LENGTH_MAX: usize = 64;

impl HistoryRecorder {
    /// Starts the thread that owns `journal`.
    pub(crate) fn start(journal: Box<dyn Journal>) -> std::io::Result<HistoryRecorder> {
        let (queue, batches) = mpsc::sync_channel(QUEUE_LENGTH_MAX);
        let (returned, spare) = mpsc::sync_channel(QUEUE_LENGTH_MAX);
        let thread = thread::Builder::new()
            .name("history".into())
            .spawn(move || write(journal, &batches, &returned))?;
        Ok(HistoryRecorder {
            batch: Vec::with_capacity(BATCH_LENGTH_MAX),
            since: None,
            queue,
            spare,
            thread,
        })
    }

    /// Records one operation.
    pub(crate) fn push(&mut self, op: Op, now: Instant) -> Result<(), WriterEnded> {
        self.batch.push(op);
        self.since.get_or_insert(now);
        debug_assert!(
            self.batch.len() <= BATCH_LENGTH_MAX,
            "a full batch is sent at once"
        );
        if self.batch.len() < BATCH_LENGTH_MAX {
            return Ok(());
        }
        self.hand_over()
    }

    /// When [`HistoryRecorder::hand_over`] must be called; `None` while the batch is empty.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + BATCH_AGE_MAX)
    }

    /// Sends the batch to the thread; blocks while the queue is full.
    pub(crate) fn hand_over(&mut self) -> Result<(), WriterEnded> {
        self.since = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        let next = self.spare.try_recv();
        let next = next.unwrap_or_else(|_| Vec::with_capacity(BATCH_LENGTH_MAX));
        debug_assert!(next.is_empty(), "the thread returns empty batches");
        let batch = std::mem::replace(&mut self.batch, next);
        self.queue.send(batch).map_err(|_| WriterEnded)
    }

    /// Writes the remaining operations and seals the file.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        let _ = self.hand_over(); // the thread's own error is returned below
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
                // Counted from the begin of the sync: operations pushed meanwhile are not covered by it.
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

    /// A disk that fails after a number of operations, and the operations that reached it.
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

    fn recorder(room: usize) -> (HistoryRecorder, Arc<Mutex<Vec<u64>>>) {
        let flushed = Arc::default();
        let disk = Disk {
            room,
            pending: Vec::new(),
            flushed: Arc::clone(&flushed),
            synced: Arc::default(),
        };
        (HistoryRecorder::start(Box::new(disk)).unwrap(), flushed)
    }

    #[test]
    fn recorded_operations_are_durable_within_a_second() {
        let synced = Arc::<Mutex<Vec<Instant>>>::default();
        let disk = Disk {
            room: usize::MAX,
            pending: Vec::new(),
            flushed: Arc::default(),
            synced: Arc::clone(&synced),
        };
        let mut recorder = HistoryRecorder::start(Box::new(disk)).unwrap();
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
