//! What a publication and the recorder share.

use super::inbox::{Bell, Work};
use super::{Failure, OfferError, RecorderOptions, locked};
use crate::batch::{Batch, MESSAGE_LENGTH_MAX};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A publication's blocks on their way round: filled on the one side (`filling`), queued in the recorder's inbox, given
/// back on the other (`returned`). The two sides have locks of their own, so that the publisher's one is taken by the
/// recorder only when it is idle. Locks are taken in the order filling, inbox; and returned alone.
#[derive(Debug)]
pub(super) struct Lane {
    pub options: RecorderOptions,
    /// The recording that it belongs to, as the recorder counts them.
    pub recording: u64,
    pub filling: Mutex<Filling>,
    pub returned: Mutex<Returned>,
    turned: Condvar,
    /// Messages pushed; written under the lock of `filling`.
    offered: AtomicU64,
    /// Itself, for the queue.
    this: Weak<Lane>,
}

/// The publisher's side.
#[derive(Debug)]
pub(super) struct Filling {
    /// The block being filled, if one was got.
    pub batch: Option<Batch>,
    /// A burst has the block, and what is in it is not counted as offered.
    pub bursting: bool,
    /// Why nothing more is taken.
    pub closed: Option<Closed>,
}

/// Why a lane takes nothing more.
#[derive(Clone, Debug)]
pub(super) enum Closed {
    Stopped,
    Failed(Failure),
}

impl From<Closed> for OfferError {
    fn from(closed: Closed) -> OfferError {
        match closed {
            Closed::Stopped => OfferError::Stopped,
            Closed::Failed(failure) => OfferError::Failed(failure),
        }
    }
}

/// The recorder's side.
#[derive(Debug)]
pub(super) struct Returned {
    /// Empty blocks.
    pub spare: Vec<Batch>,
    /// Messages written.
    pub written: u64,
    /// Messages durable.
    pub durable: u64,
    /// Nothing will be written any more.
    pub closed: Option<Closed>,
    /// What the publisher sleeps for.
    wanted: Option<Wanted>,
}

/// What a publisher waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// So many empty blocks.
    Room(usize),
    /// So many messages written.
    Written(u64),
    /// So many messages durable.
    Durable(u64),
}

impl Returned {
    fn has(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Room(batches) => self.spare.len() >= batches,
            Wanted::Written(number) => self.written >= number,
            Wanted::Durable(number) => self.durable >= number,
        }
    }
}

impl Lane {
    /// With all its blocks empty.
    pub(super) fn new(recording: u64, options: RecorderOptions) -> Arc<Lane> {
        let batches = (0..options.batches_per_publication)
            .map(|_| Batch::with_capacity(options.batch_length));
        Arc::new_cyclic(|this| Lane {
            options,
            recording,
            filling: Mutex::new(Filling {
                batch: None,
                bursting: false,
                closed: None,
            }),
            returned: Mutex::new(Returned {
                spare: batches.collect(),
                written: 0,
                durable: 0,
                closed: None,
                wanted: None,
            }),
            turned: Condvar::new(),
            offered: AtomicU64::new(0),
            this: Weak::clone(this),
        })
    }

    /// Counts a message that was pushed; under the lock of `filling`.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        let number = self.offered.load(Ordering::Relaxed) + 1;
        self.offered.store(number, Ordering::Relaxed);
        number
    }

    /// Counts messages of a burst; under the lock of `filling`.
    pub(super) fn count_all(&self, offered: u64) {
        self.offered.store(offered, Ordering::Relaxed);
    }

    /// Messages pushed.
    pub(super) fn offered(&self) -> u64 {
        self.offered.load(Ordering::Relaxed)
    }

    /// The next message of `length` bytes did not fit: hands the block over and gets an empty one.
    #[cold]
    pub(super) fn make_room(
        &self,
        filling: &mut Filling,
        bell: &Bell,
        length: usize,
    ) -> Result<(), OfferError> {
        if length > MESSAGE_LENGTH_MAX && filling.closed.is_none() {
            return Err(OfferError::TooLong { length });
        }
        self.pass(filling, bell);
        if let Some(closed) = &filling.closed {
            return Err(closed.clone().into());
        }
        let batch = if let Some(batch) = filling.batch.take() {
            batch
        } else {
            let spare = locked(&self.returned).spare.pop();
            let mut batch = spare.ok_or(OfferError::Backpressured)?;
            batch.bring_near();
            batch
        };
        filling.batch = Some(if batch.fits(length) {
            batch
        } else {
            // A message that is longer than a block gets one that is made for it and let go afterwards.
            Batch::for_message(length)
        });
        Ok(())
    }

    /// Queues the block being filled if anything is in it; under the lock of `filling`, so that blocks are queued in order
    /// whoever does it.
    pub(super) fn pass(&self, filling: &mut Filling, bell: &Bell) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let Some(mut batch) = filling.batch.take_if(|batch| !batch.is_empty()) else {
            return;
        };
        // Now, while the bytes are in this processor's cache.
        batch.checksum_frames();
        if bell.push(Work::Block(this, batch)).is_some() {
            filling.closed.get_or_insert(Closed::Stopped);
        }
    }

    /// Queues what was offered and says how many messages that were.
    pub(super) fn hand_over(&self, bell: &Bell) -> u64 {
        let mut filling = locked(&self.filling);
        self.pass(&mut filling, bell);
        self.offered()
    }

    /// Queues what was offered and takes no more.
    pub(super) fn close(&self, bell: &Bell, closed: Closed) {
        let mut filling = locked(&self.filling);
        if filling.closed.is_none() {
            self.pass(&mut filling, bell);
            filling.closed = Some(closed);
        }
        // Nothing fits where there is no block, so that the publisher sees the reason.
        filling.batch = None;
    }

    /// Ends a burst: the block that it had is back.
    pub(super) fn settle_burst(&self, batch: Option<Batch>, offered: u64, bell: &Bell) {
        let mut filling = locked(&self.filling);
        filling.batch = batch;
        self.count_all(offered);
        if filling.closed.is_some() {
            self.pass(&mut filling, bell);
            filling.batch = None;
        }
        filling.bursting = false;
        drop(filling);
        if bell.is_wanted() {
            bell.ring();
        }
    }

    /// Has a burst taken messages that may still come?
    pub(super) fn is_bursting(&self) -> bool {
        locked(&self.filling).bursting
    }

    /// Is nothing waiting in the block being filled?
    pub(super) fn is_drained(&self) -> bool {
        let filling = locked(&self.filling);
        filling.batch.as_ref().is_none_or(Batch::is_empty)
    }

    /// The publication is dropped.
    pub(super) fn leave(&self, bell: &Bell) {
        self.close(bell, Closed::Stopped);
        // One that was forgotten is over, too.
        locked(&self.filling).bursting = false;
        if let Some(this) = self.this.upgrade() {
            bell.push(Work::Leave(this));
        }
    }

    /// Takes a written block back, empty: `messages` more are written.
    pub(super) fn give_back(&self, mut batch: Batch, messages: u64) {
        if batch.capacity() > self.options.batch_length {
            batch = Batch::with_capacity(self.options.batch_length);
        }
        batch.clear();
        let mut returned = locked(&self.returned);
        returned.spare.push(batch);
        returned.written += messages;
        self.turn(&mut returned);
    }

    /// Everything written is durable.
    pub(super) fn settle(&self) {
        let mut returned = locked(&self.returned);
        if returned.durable < returned.written {
            returned.durable = returned.written;
            self.turn(&mut returned);
        }
    }

    /// Nothing will be written any more: whoever waits is told.
    pub(super) fn end(&self, closed: Closed) {
        let mut returned = locked(&self.returned);
        returned.closed.get_or_insert(closed);
        self.turn(&mut returned);
    }

    /// Wakes the publisher if it waits for this.
    fn turn(&self, returned: &mut Returned) {
        let done = |wanted| returned.has(wanted) || returned.closed.is_some();
        if returned.wanted.is_some_and(done) {
            returned.wanted = None;
            self.turned.notify_one();
        }
    }

    /// Waits for something, no longer than `patience`; false when it has not come by then.
    pub(super) fn wait(
        &self,
        wanted: Wanted,
        patience: Option<Duration>,
    ) -> Result<bool, OfferError> {
        let looks = match wanted {
            Wanted::Room(_) => self.options.looks_under_load,
            Wanted::Written(_) | Wanted::Durable(_) => self.options.looks_before_sleep,
        };
        for _ in 0..looks {
            if locked(&self.returned).has(wanted) {
                return Ok(true);
            }
            // The recorder may wait for this very processor.
            std::thread::yield_now();
            for _ in 0..super::recorder::PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
        }
        let mut returned = locked(&self.returned);
        let waits = |returned: &mut Returned| {
            let waits = !returned.has(wanted) && returned.closed.is_none();
            returned.wanted = waits.then_some(wanted);
            waits
        };
        returned = match patience {
            None => self
                .turned
                .wait_while(returned, waits)
                .unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                self.turned
                    .wait_timeout_while(returned, patience, waits)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        returned.wanted = None;
        match &returned.closed {
            _ if returned.has(wanted) => Ok(true),
            Some(closed) => Err(closed.clone().into()),
            None => Ok(false),
        }
    }
}
