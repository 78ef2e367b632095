//! The recorder's queue and its sleep.

use super::lane::Lane;
use super::locked;
use crate::batch::Batch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What reaches the recorder, in order.
#[derive(Debug)]
pub(super) enum Work {
    /// A sink was left for the recorder to fetch.
    Start,
    /// A publication begins.
    Join(Arc<Lane>),
    /// Write this.
    Block(Arc<Lane>, Batch),
    /// A publication has ended; its blocks are before this.
    Leave(Arc<Lane>),
    /// The intake of the recording with this number is gone.
    Release(u64),
    /// Sync the recording with this number.
    Sync(u64),
    /// Take no more for this recording.
    Stop(u64),
    /// Everything taken for this recording is before this.
    End(u64),
}

/// The queue of a recorder, its bell, and who could still ring it.
///
/// The sleep: a recorder with nothing to do says that it wants the bell, looks at every lane once more under the lane's
/// lock, and only then sleeps. A publisher pushes under that lock and looks at `wanted` afterwards. If the recorder's look
/// was first, its lock made `wanted` visible to the publisher, who rings; if the publisher's push was first, the recorder
/// sees it. So no message is left lying.
#[derive(Debug, Default)]
pub(super) struct Bell {
    inbox: Mutex<Inbox>,
    rung: Condvar,
    /// Words in the queue, to be looked at without its lock.
    length: AtomicUsize,
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    /// At most `publications_max * (batches_per_publication + 2)` words, one for each start and two for each stop of a
    /// recording, and one for each caller that waits for a sync.
    queue: VecDeque<Work>,
    /// Rung since the recorder last slept.
    rung: bool,
    /// Those who may bring new publications or recordings.
    users: usize,
    /// Publications that are there or about to be.
    publications: usize,
    /// No more work is taken: the recorder is ending.
    closing: bool,
    /// The recorder is gone.
    closed: bool,
}

impl Bell {
    /// Queues work and wakes the recorder; gives it back when the recorder is gone.
    pub(super) fn push(&self, work: Work) -> Option<Work> {
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

    /// The oldest work.
    pub(super) fn pop(&self) -> Option<Work> {
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
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Wakes the recorder.
    #[cold]
    pub(super) fn ring(&self) {
        let mut inbox = locked(&self.inbox);
        // Not for every message that comes before it is awake.
        if self.wanted.load(Ordering::Relaxed) {
            self.wake(&mut inbox);
        }
    }

    fn wake(&self, inbox: &mut Inbox) {
        self.wanted.store(false, Ordering::Relaxed);
        inbox.rung = true;
        self.rung.notify_one();
    }

    /// The recorder says that it is about to sleep, or is awake.
    pub(super) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Sleeps until there is work, somebody rings or `patience` is over.
    pub(super) fn sleep(&self, patience: Option<Duration>) {
        let mut inbox = locked(&self.inbox);
        if inbox.queue.is_empty() && !inbox.rung {
            inbox = match patience {
                None => self
                    .rung
                    .wait(inbox)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    self.rung
                        .wait_timeout(inbox, patience)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        inbox.rung = false;
    }

    /// Has somebody rung since the recorder last slept?
    #[cfg(test)]
    pub(super) fn is_rung(&self) -> bool {
        locked(&self.inbox).rung
    }

    /// Counts one more who may bring work.
    pub(super) fn arrive(&self) {
        locked(&self.inbox).users += 1;
    }

    /// One of them is gone.
    pub(super) fn depart(&self) {
        let mut inbox = locked(&self.inbox);
        inbox.users -= 1;
        self.wake(&mut inbox);
    }

    /// Takes a place for a publication, if there are fewer than `publications_max`; `None` when the recorder ends.
    pub(super) fn admit(&self, publications_max: usize) -> Option<bool> {
        let mut inbox = locked(&self.inbox);
        if inbox.closing || inbox.closed {
            return None;
        }
        let room = inbox.publications < publications_max;
        inbox.publications += usize::from(room);
        Some(room)
    }

    /// A publication's place is free again.
    pub(super) fn dismiss(&self) {
        locked(&self.inbox).publications -= 1;
    }

    /// No new recordings and publications from now on; what was offered is still written.
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

    /// The recorder is gone: nothing is taken any more. Answers with what was left.
    pub(super) fn close(&self) -> VecDeque<Work> {
        let mut inbox = locked(&self.inbox);
        inbox.closing = true;
        inbox.closed = true;
        self.length.store(0, Ordering::Release);
        std::mem::take(&mut inbox.queue)
    }
}
