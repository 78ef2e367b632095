//! The publication slot: the state that a publication and the recorder share.

use super::command_queue::{RecorderCommand, Wakeup};
use super::{Failure, OfferError, RecorderOptions, locked};
use crate::batch::{Batch, MESSAGE_LENGTH_MAX};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A publication's blocks in circulation: filled on the publisher's side (`filling`), queued for the recorder, returned
/// empty on the recorder's side (`returned`). Each side has its own lock, so the recorder takes the publisher's lock only
/// when it is idle. Lock order: `filling`, then the queue; `returned` is never held together with another lock.
#[derive(Debug)]
pub(super) struct PublicationSlot {
    pub options: RecorderOptions,
    /// The recorder's number of its recording.
    pub recording: u64,
    pub filling: Mutex<FillingSide>,
    pub returned: Mutex<WrittenSide>,
    changed: Condvar,
    /// Number of messages pushed; written under the lock of `filling`.
    offered: AtomicU64,
    /// A reference to itself, for commands in the queue.
    this: Weak<PublicationSlot>,
}

/// The publisher's side.
#[derive(Debug)]
pub(super) struct FillingSide {
    /// The block being filled, if there is one.
    pub batch: Option<Batch>,
    /// Does a burst own the block? Its messages are not in `offered` yet.
    pub bursting: bool,
    /// Why no more messages are accepted.
    pub closed: Option<CloseReason>,
}

/// Why a slot accepts no more messages.
#[derive(Clone, Debug)]
pub(super) enum CloseReason {
    Stopped,
    Failed(Failure),
}

impl From<CloseReason> for OfferError {
    fn from(closed: CloseReason) -> OfferError {
        match closed {
            CloseReason::Stopped => OfferError::Stopped,
            CloseReason::Failed(failure) => OfferError::Failed(failure),
        }
    }
}

/// The recorder's side.
#[derive(Debug)]
pub(super) struct WrittenSide {
    /// Empty blocks.
    pub spare: Vec<Batch>,
    /// Number of messages written.
    pub written: u64,
    /// Number of durable messages.
    pub durable: u64,
    /// Why nothing more will be written.
    pub closed: Option<CloseReason>,
    /// What a sleeping publisher waits for.
    wanted: Option<WaitGoal>,
}

/// What a publisher waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitGoal {
    /// This number of empty blocks.
    Room(usize),
    /// This number of written messages.
    Written(u64),
    /// This number of durable messages.
    Durable(u64),
}

impl WrittenSide {
    fn has(&self, wanted: WaitGoal) -> bool {
        match wanted {
            WaitGoal::Room(batches) => self.spare.len() >= batches,
            WaitGoal::Written(number) => self.written >= number,
            WaitGoal::Durable(number) => self.durable >= number,
        }
    }
}

impl PublicationSlot {
    /// A slot with all its blocks empty.
    pub(super) fn new(recording: u64, options: RecorderOptions) -> Arc<PublicationSlot> {
        let batches = (0..options.batches_per_publication)
            .map(|_| Batch::with_capacity(options.batch_length));
        Arc::new_cyclic(|this| PublicationSlot {
            options,
            recording,
            filling: Mutex::new(FillingSide {
                batch: None,
                bursting: false,
                closed: None,
            }),
            returned: Mutex::new(WrittenSide {
                spare: batches.collect(),
                written: 0,
                durable: 0,
                closed: None,
                wanted: None,
            }),
            changed: Condvar::new(),
            offered: AtomicU64::new(0),
            this: Weak::clone(this),
        })
    }

    /// Counts a pushed message; under the lock of `filling`, so a load and a store suffice.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        let number = self.offered.load(Ordering::Relaxed) + 1;
        self.offered.store(number, Ordering::Relaxed);
        number
    }

    /// Sets the count after messages of a burst; under the lock of `filling`.
    pub(super) fn count_all(&self, offered: u64) {
        assert!(offered >= self.offered(), "messages are never taken back");
        self.offered.store(offered, Ordering::Relaxed);
    }

    /// Number of messages pushed.
    pub(super) fn offered(&self) -> u64 {
        self.offered.load(Ordering::Relaxed)
    }

    /// Queues the block and gets an empty one, because the next message of `length` bytes did not fit.
    #[cold]
    pub(super) fn make_room(
        &self,
        filling: &mut FillingSide,
        wakeup: &Wakeup,
        length: usize,
    ) -> Result<(), OfferError> {
        if length > MESSAGE_LENGTH_MAX && filling.closed.is_none() {
            return Err(OfferError::TooLong { length });
        }
        self.pass(filling, wakeup);
        if let Some(closed) = &filling.closed {
            return Err(closed.clone().into());
        }
        let batch = if let Some(batch) = filling.batch.take() {
            batch
        } else {
            let spare = locked(&self.returned).spare.pop();
            let mut batch = spare.ok_or(OfferError::Backpressured)?;
            batch.claim_cache_lines();
            batch
        };
        filling.batch = Some(if batch.fits(length) {
            batch
        } else {
            // A message longer than a block gets a block of its own, which is replaced by a normal one afterwards.
            Batch::for_message(length)
        });
        Ok(())
    }

    /// Queues the block being filled if it has messages; under the lock of `filling`, so that publisher and recorder queue
    /// blocks in order.
    pub(super) fn pass(&self, filling: &mut FillingSide, wakeup: &Wakeup) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let Some(mut batch) = filling.batch.take_if(|batch| !batch.is_empty()) else {
            return;
        };
        // Here and not in the recorder: the bytes are in this processor's cache.
        batch.checksum_frames();
        if wakeup.push(RecorderCommand::Block(this, batch)).is_some() {
            filling.closed.get_or_insert(CloseReason::Stopped);
        }
    }

    /// Queues what was offered and returns the number of messages offered.
    pub(super) fn hand_over(&self, wakeup: &Wakeup) -> u64 {
        let mut filling = locked(&self.filling);
        self.pass(&mut filling, wakeup);
        self.offered()
    }

    /// Queues what was offered and accepts no more.
    pub(super) fn close(&self, wakeup: &Wakeup, closed: CloseReason) {
        let mut filling = locked(&self.filling);
        if filling.closed.is_none() {
            self.pass(&mut filling, wakeup);
            filling.closed = Some(closed);
        }
        // Without a block the publisher's next offer does not fit, and it sees the reason.
        filling.batch = None;
    }

    /// Ends a burst, which returns its block.
    pub(super) fn settle_burst(&self, batch: Option<Batch>, offered: u64, wakeup: &Wakeup) {
        let mut filling = locked(&self.filling);
        filling.batch = batch;
        self.count_all(offered);
        if filling.closed.is_some() {
            self.pass(&mut filling, wakeup);
            filling.batch = None;
        }
        filling.bursting = false;
        drop(filling);
        if wakeup.is_sleep_planned() {
            wakeup.notify();
        }
    }

    /// Is there a burst, which may still have messages?
    pub(super) fn is_bursting(&self) -> bool {
        locked(&self.filling).bursting
    }

    /// Does the block being filled have no messages?
    pub(super) fn is_drained(&self) -> bool {
        let filling = locked(&self.filling);
        filling.batch.as_ref().is_none_or(Batch::is_empty)
    }

    /// Called when the publication is dropped: queues the rest and leaves.
    pub(super) fn leave(&self, wakeup: &Wakeup) {
        self.close(wakeup, CloseReason::Stopped);
        // A burst that was leaked with `mem::forget` ends here too.
        locked(&self.filling).bursting = false;
        if let Some(this) = self.this.upgrade() {
            wakeup.push(RecorderCommand::Leave(this));
        }
    }

    /// Takes back a block of which `messages` messages were written, and empties it.
    pub(super) fn give_back(&self, mut batch: Batch, messages: u64) {
        if batch.capacity() > self.options.batch_length {
            batch = Batch::with_capacity(self.options.batch_length);
        }
        batch.clear();
        let mut returned = locked(&self.returned);
        returned.spare.push(batch);
        assert!(returned.spare.len() <= self.options.batches_per_publication);
        returned.written += messages;
        self.turn(&mut returned);
    }

    /// Records that everything written is durable.
    pub(super) fn settle(&self) {
        let mut returned = locked(&self.returned);
        if returned.durable < returned.written {
            returned.durable = returned.written;
            self.turn(&mut returned);
        }
    }

    /// Records that nothing more will be written, and wakes the publisher.
    pub(super) fn end(&self, closed: CloseReason) {
        let mut returned = locked(&self.returned);
        returned.closed.get_or_insert(closed);
        self.turn(&mut returned);
    }

    /// Wakes the publisher if what it waits for has happened.
    fn turn(&self, returned: &mut WrittenSide) {
        let done = |wanted| returned.has(wanted) || returned.closed.is_some();
        if returned.wanted.is_some_and(done) {
            returned.wanted = None;
            self.changed.notify_one();
        }
    }

    /// Waits for a goal, for at most `patience`; false if it is not reached then. Polls first, then sleeps.
    pub(super) fn wait(
        &self,
        wanted: WaitGoal,
        patience: Option<Duration>,
    ) -> Result<bool, OfferError> {
        let looks = match wanted {
            WaitGoal::Room(_) => self.options.looks_under_load,
            WaitGoal::Written(_) | WaitGoal::Durable(_) => self.options.looks_before_sleep,
        };
        for _ in 0..looks {
            if locked(&self.returned).has(wanted) {
                return Ok(true);
            }
            // Yield: the recorder may be waiting for this processor.
            std::thread::yield_now();
            for _ in 0..super::recorder::PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
        }
        let mut returned = locked(&self.returned);
        let waits = |returned: &mut WrittenSide| {
            let waits = !returned.has(wanted) && returned.closed.is_none();
            returned.wanted = waits.then_some(wanted);
            waits
        };
        returned = match patience {
            None => self
                .changed
                .wait_while(returned, waits)
                .unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                self.changed
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
