//! The recorder's command queue, and its sleep and wakeup.

use super::locked;
use super::publication_slot::PublicationSlot;
use crate::batch::Batch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A command to the recorder; commands are carried out in order.
#[derive(Debug)]
pub(super) enum RecorderCommand {
    /// Fetch new sinks.
    Start,
    /// Add a publication.
    Join(Arc<PublicationSlot>),
    /// Write this block.
    Block(Arc<PublicationSlot>, Batch),
    /// Remove a publication; all its blocks come before this.
    Leave(Arc<PublicationSlot>),
    /// The intake of the recording with this number was dropped.
    Release(u64),
    /// Sync the recording with this number.
    Sync(u64),
    /// Accept no more for this recording.
    Stop(u64),
    /// End this recording; everything accepted for it comes before this.
    End(u64),
}

/// The command queue of a recorder, its wakeup, and the number of handles that could still wake it.
///
/// The protocol of the sleep: a recorder without work sets `wanted`, checks every slot once more under the slot's lock, and
/// only then sleeps. A publisher pushes under that lock and loads `wanted` afterwards. If the recorder's check was first,
/// its unlock made `wanted` visible to the publisher, which wakes it; if the push was first, the recorder's check sees it.
/// So no message is missed. `publication/tests/sleep.rs` runs every interleaving of these steps.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    inbox: Mutex<CommandQueue>,
    notified: Condvar,
    /// Length of the queue, readable without its lock.
    length: AtomicUsize,
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct CommandQueue {
    /// At most `publications_max * (batches_per_publication + 2)` commands, one for each start and two for each stop of a
    /// recording, and one for each caller that waits for a sync.
    queue: VecDeque<RecorderCommand>,
    /// Was the recorder woken since it last slept?
    notified: bool,
    /// Number of handles and intakes, which may add publications or recordings.
    users: usize,
    /// Number of publications, including those whose command is still queued.
    publications: usize,
    /// Is the recorder ending? Then no more recordings and publications are accepted.
    closing: bool,
    /// Has the recorder ended?
    closed: bool,
}

impl Wakeup {
    /// Queues a command and wakes the recorder; returns the command if the recorder has ended.
    pub(super) fn push(&self, work: RecorderCommand) -> Option<RecorderCommand> {
        let mut inbox = locked(&self.inbox);
        if inbox.closed {
            return Some(work);
        }
        inbox.queue.push_back(work);
        self.length.store(inbox.queue.len(), Ordering::Release);
        if self.wanted.load(Ordering::Relaxed) {
            self.wake(&mut inbox);
        }
        None
    }

    /// Removes the oldest command.
    pub(super) fn pop(&self) -> Option<RecorderCommand> {
        if self.length.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut inbox = locked(&self.inbox);
        let work = inbox.queue.pop_front();
        self.length.store(inbox.queue.len(), Ordering::Release);
        work
    }

    /// Is the recorder going to sleep?
    #[inline]
    pub(super) fn is_sleep_planned(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Wakes the recorder.
    #[cold]
    pub(super) fn notify(&self) {
        let mut inbox = locked(&self.inbox);
        // Once only, not for every message offered before the recorder is awake.
        if self.wanted.load(Ordering::Relaxed) {
            self.wake(&mut inbox);
        }
    }

    fn wake(&self, inbox: &mut CommandQueue) {
        self.wanted.store(false, Ordering::Relaxed);
        inbox.notified = true;
        self.notified.notify_one();
    }

    /// Called by the recorder before a sleep (true) and after it (false).
    pub(super) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Sleeps until there is a command, a wakeup, or `patience` is over.
    pub(super) fn sleep(&self, patience: Option<Duration>) {
        let mut inbox = locked(&self.inbox);
        if inbox.queue.is_empty() && !inbox.notified {
            inbox = match patience {
                None => self
                    .notified
                    .wait(inbox)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    self.notified
                        .wait_timeout(inbox, patience)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        inbox.notified = false;
    }

    /// Was the recorder woken since it last slept?
    #[cfg(test)]
    pub(super) fn is_notified(&self) -> bool {
        locked(&self.inbox).notified
    }

    /// Counts a new handle or intake.
    pub(super) fn arrive(&self) {
        locked(&self.inbox).users += 1;
    }

    /// Counts a dropped handle or intake.
    pub(super) fn depart(&self) {
        let mut inbox = locked(&self.inbox);
        assert!(inbox.users > 0, "each arrived once");
        inbox.users -= 1;
        self.wake(&mut inbox);
    }

    /// Counts a new publication if there are fewer than `publications_max`; `None` if the recorder is ending.
    pub(super) fn admit(&self, publications_max: usize) -> Option<bool> {
        let mut inbox = locked(&self.inbox);
        if inbox.closing || inbox.closed {
            return None;
        }
        let room = inbox.publications < publications_max;
        inbox.publications += usize::from(room);
        Some(room)
    }

    /// Counts a publication that has left.
    pub(super) fn dismiss(&self) {
        let mut inbox = locked(&self.inbox);
        assert!(inbox.publications > 0, "each was admitted once");
        inbox.publications -= 1;
    }

    /// Refuses new recordings and publications from now on; what was offered is still written.
    pub(super) fn begin_end(&self) {
        let mut inbox = locked(&self.inbox);
        inbox.closing = true;
        self.wake(&mut inbox);
    }

    /// Is the recorder to end?
    pub(super) fn is_ending(&self) -> bool {
        let inbox = locked(&self.inbox);
        inbox.closing || inbox.users == 0 && inbox.publications == 0 && inbox.queue.is_empty()
    }

    /// Closes the queue at the recorder's end; returns the remaining commands.
    pub(super) fn close(&self) -> VecDeque<RecorderCommand> {
        let mut inbox = locked(&self.inbox);
        inbox.closing = true;
        inbox.closed = true;
        self.length.store(0, Ordering::Release);
        std::mem::take(&mut inbox.queue)
    }
}
