//! Publications: messages of many threads, written to a recording by one recorder thread.
//!
//! A [`Publication`] fills a block ([`Batch`]) in place. A full block is queued, written with one call by the
//! [`Recorder`]'s thread, and returned empty. So messages are offered one by one, while the expensive steps (waking a
//! thread, the queue's lock, a system call, a header) are paid once for each block. The cost of a message is an uncontended
//! lock, a header of 8 bytes and the copy.
//!
//! An idle recorder fetches blocks that are not full: at once if a block has stopped growing, after
//! [`RecorderOptions::linger_nanoseconds`] if it has not. At low rates a message therefore waits only for the recorder's
//! thread to wake; at high rates blocks are full.
//!
//! Bounds: a publication has [`RecorderOptions::batches_per_publication`] blocks, and backpressure while all of them wait
//! to be written. A recorder has at most [`RecorderOptions::publications_max`] publications. So its queue has at most the
//! product of the two in blocks, and a few commands for each publication that joins or leaves.
//!
//! For many threads that each wait until their message is durable, use a [`GroupWriter`].
//!
//! ```
//! use seatrial_archive::publication::{Recorder, RecorderOptions};
//! use seatrial_archive::{Archive, RecordingOptions};
//! use seatrial_sim::MemoryStorage;
//! use std::{path::Path, sync::Arc};
//!
//! let storage = Arc::new(MemoryStorage::new()); // or seatrial_files::Files
//! let (mut archive, _) = Archive::open(storage, Path::new("recordings"), 0).unwrap();
//! let writer = archive.start(&RecordingOptions::default(), 0).unwrap();
//!
//! let recorder = Recorder::new(RecorderOptions::default());
//! let handle = recorder.handle();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| recorder.run(|| 0)); // with a clock, outside of a test
//!     let intake = handle.record(writer).unwrap();
//!     let mut publication = intake.publication().unwrap();
//!     publication.offer(b"one at a time").unwrap();
//!     let mut burst = publication.burst();
//!     for number in 0..10_000_u32 {
//!         burst.offer_waiting(&number.to_le_bytes()).unwrap();
//!     }
//!     drop(burst);
//!     publication.sync().unwrap();
//!     assert_eq!(publication.durable(), 10_001);
//!     let writer = intake.stop().unwrap().sink;
//!     assert_eq!(writer.next_message(), 10_001);
//!     writer.stop(0).unwrap();
//!     handle.end();
//! });
//! ```

mod command_queue;
mod group;
mod publication_slot;
mod recorder;

pub use group::{GroupError, GroupOptions, GroupWriter};
pub use recorder::{Intake, Recorder, RecorderHandle, StoppedRecorder};

use crate::batch::{
    BATCH_FRAMES_OFFSET, BATCH_LENGTH, BATCH_LENGTH_MAX, Batch, MESSAGE_LENGTH_MAX,
};
use crate::position::Position;
use crate::recording::Writer;
use command_queue::{RecorderCommand, Wakeup};
use publication_slot::{PublicationSlot, WaitGoal};
use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why a sink failed.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// A destination of blocks: the writer of a recording. Called by one thread at a time.
pub trait Sink: Debug + Send {
    /// Appends the batch and returns the position of its first message. Not called again after a failure.
    fn append(&mut self, batch: &mut Batch, now: u64) -> Result<Position, SinkError>;

    /// Makes everything appended durable; returns at once if it is.
    fn sync(&mut self) -> Result<(), SinkError>;

    /// The end: the position of the next block.
    fn end(&self) -> Position;

    /// The end of the durable messages.
    fn durable(&self) -> Position;

    /// The time at which [`Sink::tick`] is due: the sync that the durability level requires.
    fn sync_at(&self) -> Option<u64> {
        None
    }

    /// Syncs if that is due.
    fn tick(&mut self, now: u64) -> Result<(), SinkError> {
        let _ = now;
        Ok(())
    }
}

impl Sink for Writer {
    fn append(&mut self, batch: &mut Batch, now: u64) -> Result<Position, SinkError> {
        Ok(self.append_block(batch, now)?.first)
    }

    fn sync(&mut self) -> Result<(), SinkError> {
        Ok(Writer::sync(self)?)
    }

    fn end(&self) -> Position {
        Writer::end(self)
    }

    fn durable(&self) -> Position {
        Writer::durable(self)
    }

    fn sync_at(&self) -> Option<u64> {
        Writer::sync_at(self)
    }

    fn tick(&mut self, now: u64) -> Result<(), SinkError> {
        Ok(Writer::tick(self, now)?)
    }
}

/// The first failure of a recording, shared by its publications.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Why a message was not accepted, or not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OfferError {
    /// All blocks of the publication wait to be written. Try again, or wait ([`Publication::wait`]).
    #[error("all blocks of the publication wait to be written")]
    Backpressured,
    /// The message is too long.
    #[error("a message of {length} bytes is over the maximum of {MESSAGE_LENGTH_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The recording was stopped, or the recorder has ended.
    #[error("the recording was stopped")]
    Stopped,
    /// A write or a sync failed. [`Publication::written`] is the number of offered messages that were written.
    #[error("recording failed: {0}")]
    Failed(Failure),
    /// The recorder has its maximum number of publications.
    #[error("the recorder already has its maximum of {publications_max} publications")]
    TooMany {
        /// The maximum.
        publications_max: usize,
    },
}

/// The bounds of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderOptions {
    /// Length of a block in bytes; longer messages get a block of their own.
    pub batch_length: usize,
    /// Number of blocks of one publication: being filled, waiting, being written. At least 2.
    pub batches_per_publication: usize,
    /// Maximum number of publications at a time.
    pub publications_max: usize,
    /// Longest time that an idle recorder leaves a block to a publication that still fills it.
    pub linger_nanoseconds: u64,
    /// How often an idle recorder, or a thread that waits for a write, polls before it sleeps. A poll takes about a
    /// microsecond.
    pub looks_before_sleep: u32,
    /// The same for a publisher without an empty block, and for a recorder whose last block was full. High, because a
    /// sleeping thread is woken by the other one, and on a virtual machine usually on the same processor (an idle one looks
    /// unavailable). The two are then never runnable at the same time, so the scheduler does not separate them again.
    pub looks_under_load: u32,
}

impl Default for RecorderOptions {
    /// Blocks of 256 KiB, 8 for each publication: together as large as the second-level caches of two processors of the
    /// machine measured (2 MiB), and enough that neither side waits while the other is woken. 64 publications, 200 µs, 20
    /// polls, 2,000 under load.
    fn default() -> RecorderOptions {
        RecorderOptions {
            batch_length: BATCH_LENGTH,
            batches_per_publication: 8,
            publications_max: 64,
            linger_nanoseconds: 200_000,
            looks_before_sleep: 20,
            looks_under_load: 2_000,
        }
    }
}

impl RecorderOptions {
    /// These options with every bound in its allowed range.
    fn within_bounds(self) -> RecorderOptions {
        RecorderOptions {
            batch_length: self
                .batch_length
                .clamp(BATCH_FRAMES_OFFSET, BATCH_LENGTH_MAX),
            batches_per_publication: self.batches_per_publication.max(2),
            ..self
        }
    }
}

/// One publisher's interface to a recording. Its messages are recorded in the order in which they are offered. It belongs
/// to one thread; other publishers of the same recording have publications of their own, in no order to this one. Messages
/// are counted from 1; the count is compared with those of [`Publication::written`] and [`Publication::durable`].
///
/// Dropping it queues what was offered, which is written without a wait.
///
/// Positions are assigned later, by the recorder. To get a message's position at once, use a [`GroupWriter`], or read it
/// from the recording.
#[derive(Debug)]
pub struct Publication {
    slot: Arc<PublicationSlot>,
    wakeup: Arc<Wakeup>,
    checksummed: bool,
}

impl Publication {
    /// Sets whether frames get a CRC-32C of their own, for readers that take them out of their blocks.
    #[must_use]
    pub fn checksummed(mut self, checksummed: bool) -> Publication {
        self.checksummed = checksummed;
        self
    }

    /// Accepts a message, if there is room, and returns its number: that of messages accepted so far. Never waits.
    #[inline]
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, OfferError> {
        self.offer_flagged(0, message)
    }

    /// [`Publication::offer`] with the application's `flags` (0 to 7) in the frame.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn offer_flagged(&mut self, flags: u32, message: &[u8]) -> Result<u64, OfferError> {
        let mut filling = locked(&self.slot.filling);
        loop {
            if let Some(batch) = &mut filling.batch {
                let taken = if self.checksummed {
                    batch.push_checksummed(flags, message)
                } else {
                    batch.push(flags, message)
                };
                if taken {
                    let number = self.slot.count();
                    drop(filling);
                    if self.wakeup.is_sleep_planned() {
                        self.wakeup.notify();
                    }
                    return Ok(number);
                }
            }
            self.slot
                .make_room(&mut filling, &self.wakeup, message.len())?;
        }
    }

    /// [`Publication::offer`] that waits for room.
    #[inline]
    pub fn offer_waiting(&mut self, message: &[u8]) -> Result<u64, OfferError> {
        loop {
            match self.offer(message) {
                Err(OfferError::Backpressured) => self.wait()?,
                other => return other,
            }
        }
    }

    /// For messages in quick succession: locks and checks for a sleeping recorder only once a block. Until the burst is
    /// dropped, the recorder gets full blocks only.
    pub fn burst(&mut self) -> Burst<'_> {
        let mut filling = locked(&self.slot.filling);
        filling.bursting = true;
        let (batch, offered) = (filling.batch.take(), self.slot.offered());
        drop(filling);
        Burst {
            publication: self,
            batch,
            offered,
        }
    }

    /// Waits for empty blocks: until half of the publication's blocks are returned, so that it is not woken for each.
    pub fn wait(&mut self) -> Result<(), OfferError> {
        let half = self.slot.options.batches_per_publication / 2;
        self.slot.wait(WaitGoal::Room(half), None).map(|_| ())
    }

    /// Number of messages offered.
    pub fn offered(&self) -> u64 {
        self.slot.offered()
    }

    /// Number of messages written: they survive the end of the process.
    pub fn written(&self) -> u64 {
        locked(&self.slot.returned).written
    }

    /// Number of durable messages: they survive a power failure.
    pub fn durable(&self) -> u64 {
        locked(&self.slot.returned).durable
    }

    /// Waits until the first `number` messages are written, for at most `patience` if it is given; false if they are not
    /// written then.
    pub fn wait_written(
        &mut self,
        number: u64,
        patience: Option<Duration>,
    ) -> Result<bool, OfferError> {
        let number = number.min(self.slot.offered());
        self.slot.wait(WaitGoal::Written(number), patience)
    }

    /// Queues what was offered and waits until it is written.
    pub fn flush(&mut self) -> Result<(), OfferError> {
        let number = self.slot.hand_over(&self.wakeup);
        self.slot.wait(WaitGoal::Written(number), None).map(|_| ())
    }

    /// Queues what was offered, requests a sync and waits until it is durable.
    pub fn sync(&mut self) -> Result<(), OfferError> {
        let number = self.slot.hand_over(&self.wakeup);
        self.wakeup.push(RecorderCommand::Sync(self.slot.recording));
        self.slot.wait(WaitGoal::Durable(number), None).map(|_| ())
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.slot.leave(&self.wakeup);
    }
}

/// Messages offered in quick succession ([`Publication::burst`]). It owns the block being filled, so an offer costs a
/// header and a copy, without a lock.
///
/// The messages in a block that is not full stay with the burst, so drop it when no more messages are at hand. A recording
/// that is stopped during the burst ends with it.
#[derive(Debug)]
pub struct Burst<'a> {
    publication: &'a mut Publication,
    /// The block being filled, if there is one.
    batch: Option<Batch>,
    /// Number of messages accepted by the publication, those in the block included.
    offered: u64,
}

impl Burst<'_> {
    /// Accepts a message, if there is room, and returns its number, as [`Publication::offer`] does. Never waits.
    #[inline]
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, OfferError> {
        self.offer_flagged(0, message)
    }

    /// [`Burst::offer`] with the application's `flags` (0 to 7) in the frame.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn offer_flagged(&mut self, flags: u32, message: &[u8]) -> Result<u64, OfferError> {
        loop {
            if let Some(batch) = &mut self.batch {
                let taken = if self.publication.checksummed {
                    batch.push_checksummed(flags, message)
                } else {
                    batch.push(flags, message)
                };
                if taken {
                    self.offered += 1;
                    return Ok(self.offered);
                }
            }
            self.make_room(message.len())?;
        }
    }

    /// [`Burst::offer`] that waits for room.
    #[inline]
    pub fn offer_waiting(&mut self, message: &[u8]) -> Result<u64, OfferError> {
        loop {
            match self.offer(message) {
                Err(OfferError::Backpressured) => self.publication.wait()?,
                other => return other,
            }
        }
    }

    /// Number of messages offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Exchanges the full block for an empty one.
    #[cold]
    fn make_room(&mut self, length: usize) -> Result<(), OfferError> {
        let Publication { slot, wakeup, .. } = &*self.publication;
        let mut filling = locked(&slot.filling);
        filling.batch = self.batch.take();
        slot.count_all(self.offered);
        let made = slot.make_room(&mut filling, wakeup, length);
        self.batch = filling.batch.take();
        made
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        let Publication { slot, wakeup, .. } = &*self.publication;
        slot.settle_burst(self.batch.take(), self.offered, wakeup);
    }
}

/// Locks a mutex. A panic of another thread is ignored: counts and batches are consistent after every statement.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
