//! From the threads that have messages to the one that writes them.
//!
//! A [`Publication`] fills a block ([`Batch`]) in place; a full one changes hands, is written with one call by the
//! [`Recorder`]'s thread, and comes back empty. So messages are offered one by one while everything that costs something
//! (waking a thread, a queue's lock, a system call, a header) is paid once a block. What stays per message is a lock that
//! nobody else wants, a header of 8 bytes and the copy.
//!
//! A block that is not full is fetched by the recorder when it has nothing else to do: at once when it has stopped growing,
//! after [`RecorderOptions::linger_nanoseconds`] when it has not. At low rates a message therefore waits for the recorder's
//! thread to wake and for nothing else; at high rates blocks are full.
//!
//! Bounds: a publication has [`RecorderOptions::batches_per_publication`] blocks and is back-pressured when all of them wait
//! to be written; a recorder has at most [`RecorderOptions::publications_max`] publications. So the recorder's queue has at
//! most the product of the two, and a few words for each that comes or goes.
//!
//! For many threads that each wait until their message is durable there is [`GroupWriter`].
//!
//! ```
//! use seatrial_archive::publication::{Recorder, RecorderOptions};
//! use seatrial_archive::{Archive, RecordingOptions};
//! use seatrial_sim::MemoryStorage;
//! use std::{path::Path, sync::Arc};
//!
//! let storage = Arc::new(MemoryStorage::new()); // or seatrial_archive::file::Files
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

mod group;
mod inbox;
mod lane;
mod recorder;

pub use group::{GroupError, GroupOptions, GroupWriter};
pub use recorder::{Intake, Recorder, RecorderHandle, Stopped};

use crate::batch::{
    BATCH_FRAMES_OFFSET, BATCH_LENGTH, BATCH_LENGTH_MAX, Batch, MESSAGE_LENGTH_MAX,
};
use crate::position::Position;
use crate::recording::Writer;
use inbox::{Bell, Work};
use lane::{Lane, Wanted};
use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why a sink failed.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// Where blocks go: the writer of a recording. Called by one thread at a time.
pub trait Sink: Debug + Send {
    /// Writes the batch behind everything before and says where its first message is. After a failure nothing else is
    /// asked of it.
    fn append(&mut self, batch: &mut Batch, now: u64) -> Result<Position, SinkError>;

    /// Makes everything appended durable; at once when it is.
    fn sync(&mut self) -> Result<(), SinkError>;

    /// Where the next block goes.
    fn end(&self) -> Position;

    /// Everything before is durable.
    fn durable(&self) -> Position;

    /// When [`Sink::tick`] is due: the sync that a durability level promises.
    fn sync_at(&self) -> Option<u64> {
        None
    }

    /// Does what is due.
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

/// The first failure of a recording, for everyone who has to do with it.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// Why a message was not taken, or not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OfferError {
    /// All blocks of the publication wait to be written. Try again, or wait ([`Publication::wait`]).
    #[error("all blocks of the publication wait to be written")]
    Backpressured,
    /// No recording holds such a message.
    #[error("a message of {length} bytes, at most {MESSAGE_LENGTH_MAX} can be recorded")]
    TooLong {
        /// Its bytes.
        length: usize,
    },
    /// The recording was stopped, or the recorder has ended.
    #[error("the recording was stopped")]
    Stopped,
    /// A write or a sync failed. Of the messages offered, [`Publication::written`] say how many are there.
    #[error("recording failed: {0}")]
    Failed(Failure),
    /// The recorder has as many publications as it may.
    #[error("the recorder has {publications_max} publications already")]
    TooMany {
        /// The bound.
        publications_max: usize,
    },
}

/// The bounds of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderOptions {
    /// Bytes of a block; longer messages get a block of their own.
    pub batch_length: usize,
    /// Blocks of one publication: being filled, waiting, being written. At least 2.
    pub batches_per_publication: usize,
    /// Publications at a time.
    pub publications_max: usize,
    /// How long a block that keeps growing waits for its end while the recorder has nothing else to do.
    pub linger_nanoseconds: u64,
    /// How often an idle recorder, or who waits for something to be written, looks again before it sleeps. A look takes about a
    /// microsecond.
    pub looks_before_sleep: u32,
    /// The same for a publisher without a block, and for a recorder whose last block was full. Many: who sleeps is woken by
    /// the other's thread, on a virtual machine as a rule on the other's processor (an idle one looks taken away), and as the
    /// two are never ready at the same time there, nothing moves them apart again.
    pub looks_under_load: u32,
}

impl Default for RecorderOptions {
    /// Blocks of 256 KiB, 8 of them per publication: together as large as two processors' second caches here (2 MiB), and
    /// enough for neither side to wait while the other is woken. 64 publications, 200 µs, 20 looks, 2,000 under load.
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
    /// The same with every bound in its range.
    fn sane(self) -> RecorderOptions {
        RecorderOptions {
            batch_length: self
                .batch_length
                .clamp(BATCH_FRAMES_OFFSET, BATCH_LENGTH_MAX),
            batches_per_publication: self.batches_per_publication.max(2),
            ..self
        }
    }
}

/// One publisher's end of a recording: messages in, in order. It belongs to one thread; another publisher of the same
/// recording has a publication of its own, and the two are recorded in any order to each other. Messages are counted from
/// 1 as they are offered; the count is how their way is followed.
///
/// Dropping it hands over what was offered, which is written without anybody waiting for it.
///
/// Its downside: positions are given by the recorder, later. Whoever needs a message's position at once uses a
/// [`GroupWriter`] or reads it from the recording.
#[derive(Debug)]
pub struct Publication {
    lane: Arc<Lane>,
    bell: Arc<Bell>,
    checksummed: bool,
}

impl Publication {
    /// Frames carry a CRC-32C of their own from now on (or not), for readers that take them out of their blocks.
    #[must_use]
    pub fn checksummed(mut self, checksummed: bool) -> Publication {
        self.checksummed = checksummed;
        self
    }

    /// Takes a message, if there is room, and answers with its number: the messages taken so far. Never waits.
    #[inline]
    pub fn offer(&mut self, message: &[u8]) -> Result<u64, OfferError> {
        self.offer_flagged(0, message)
    }

    /// [`Publication::offer`] with the application's `flags` (0 to 7) in the frame.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn offer_flagged(&mut self, flags: u32, message: &[u8]) -> Result<u64, OfferError> {
        let mut filling = locked(&self.lane.filling);
        loop {
            if let Some(batch) = &mut filling.batch {
                let taken = if self.checksummed {
                    batch.push_checksummed(flags, message)
                } else {
                    batch.push(flags, message)
                };
                if taken {
                    let number = self.lane.count();
                    drop(filling);
                    if self.bell.is_wanted() {
                        self.bell.ring();
                    }
                    return Ok(number);
                }
            }
            self.lane
                .make_room(&mut filling, &self.bell, message.len())?;
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

    /// For messages that come thick and fast: no lock and no look at the recorder but once a block. Until the burst is
    /// dropped, the recorder gets full blocks only.
    pub fn burst(&mut self) -> Burst<'_> {
        let mut filling = locked(&self.lane.filling);
        filling.bursting = true;
        let (batch, offered) = (filling.batch.take(), self.lane.offered());
        drop(filling);
        Burst {
            publication: self,
            batch,
            offered,
        }
    }

    /// Waits until there is a block to fill: until half of the publication's blocks are back, so that it is not woken for
    /// each.
    pub fn wait(&mut self) -> Result<(), OfferError> {
        let half = self.lane.options.batches_per_publication / 2;
        self.lane.wait(Wanted::Room(half), None).map(|_| ())
    }

    /// Messages offered.
    pub fn offered(&self) -> u64 {
        self.lane.offered()
    }

    /// Messages written: after an end of the process they are still there.
    pub fn written(&self) -> u64 {
        locked(&self.lane.returned).written
    }

    /// Messages that are durable: after a loss of power they are still there.
    pub fn durable(&self) -> u64 {
        locked(&self.lane.returned).durable
    }

    /// Waits until the first `number` messages are written, no longer than `patience` if it is given; false when they are
    /// not by then.
    pub fn wait_written(
        &mut self,
        number: u64,
        patience: Option<Duration>,
    ) -> Result<bool, OfferError> {
        let number = number.min(self.lane.offered());
        self.lane.wait(Wanted::Written(number), patience)
    }

    /// Waits until the first `number` messages are durable, no longer than `patience` if it is given; false when they are
    /// not by then. This asks for no sync: it is for durability levels that have one.
    pub fn wait_durable(
        &mut self,
        number: u64,
        patience: Option<Duration>,
    ) -> Result<bool, OfferError> {
        let number = number.min(self.lane.offered());
        self.lane.wait(Wanted::Durable(number), patience)
    }

    /// Hands over what was offered and waits until it is written.
    pub fn flush(&mut self) -> Result<(), OfferError> {
        let number = self.lane.hand_over(&self.bell);
        self.lane.wait(Wanted::Written(number), None).map(|_| ())
    }

    /// Hands over what was offered, has it synced and waits until it is durable.
    pub fn sync(&mut self) -> Result<(), OfferError> {
        let number = self.lane.hand_over(&self.bell);
        self.bell.push(Work::Sync(self.lane.recording));
        self.lane.wait(Wanted::Durable(number), None).map(|_| ())
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        self.lane.leave(&self.bell);
    }
}

/// Messages that are offered in quick succession ([`Publication::burst`]). It has the block being filled to itself, so an
/// offer is a header and a copy.
///
/// Its downside: the messages in a block that is not full stay with it, so it should end when no more messages are at hand.
/// A recording that is stopped meanwhile ends with the burst.
#[derive(Debug)]
pub struct Burst<'a> {
    publication: &'a mut Publication,
    /// The block being filled, if one was got.
    batch: Option<Batch>,
    /// Messages taken by the publication, those in the block included.
    offered: u64,
}

impl Burst<'_> {
    /// Takes a message, if there is room, and answers with its number, as [`Publication::offer`] does. Never waits.
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

    /// Messages offered.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// Exchanges the block that is full for an empty one.
    #[cold]
    fn make_room(&mut self, length: usize) -> Result<(), OfferError> {
        let Publication { lane, bell, .. } = &*self.publication;
        let mut filling = locked(&lane.filling);
        filling.batch = self.batch.take();
        lane.count_all(self.offered);
        let made = lane.make_room(&mut filling, bell, length);
        self.batch = filling.batch.take();
        made
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        let Publication { lane, bell, .. } = &*self.publication;
        lane.settle_burst(self.batch.take(), self.offered, bell);
    }
}

/// Locks; a thread that died in the middle leaves counts and whole batches, which are as good as before.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
