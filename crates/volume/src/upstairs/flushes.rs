//! Flushes: their numbers, who waits for them, and when they are durable.

use crate::guest::{GuestError, GuestReply};
use crate::status::MirrorState;
use crate::upstairs::activation::ActivationPhase;
use crate::upstairs::stream_items::ItemKind;
use crate::upstairs::{Outputs, Upstairs};
use crate::volume_bug::VolumeBug;
use crate::volume_message::is_name;
use seatrial_machine::{Ticket, Time};
use std::collections::VecDeque;

/// A flush that is not durable on a quorum.
#[derive(Debug)]
struct PendingFlush {
    flush: u64,
    item: u64,
    /// When it got its place in the stream.
    since: Time,
    waiters: Vec<Ticket>,
    /// A snapshot that it makes, one that it drops.
    snapshot: String,
    drops: String,
}

/// The flushes of a generation.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// Number of the last one.
    last: u64,
    /// The last one that is durable on a quorum, and its item.
    durable: u64,
    durable_item: u64,
    pending: VecDeque<PendingFlush>,
    /// When the oldest write after the last flush arrived.
    dirty_since: Option<Time>,
}

impl Flushes {
    /// Number of the last flush.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// The last flush that is durable on a quorum.
    pub(crate) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Its item in the stream.
    pub(crate) const fn durable_item(&self) -> u64 {
        self.durable_item
    }

    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Is a flush under way that makes or drops a snapshot?
    pub(crate) fn is_snapshot_pending(&self) -> bool {
        let is_one = |it: &PendingFlush| !it.snapshot.is_empty() || !it.drops.is_empty();
        self.pending.iter().any(is_one)
    }

    /// Number of requests that wait.
    pub(crate) fn waiters(&self) -> usize {
        self.pending.iter().map(|it| it.waiters.len()).sum()
    }

    /// A write arrives.
    pub(crate) fn dirty(&mut self, now: Time) {
        self.dirty_since.get_or_insert(now);
    }

    /// Continues after a flush of an earlier generation, which is durable.
    pub(crate) fn continue_after(&mut self, flush: u64) {
        *self = Flushes {
            last: flush,
            durable: 0,
            ..Flushes::default()
        };
    }

    /// Gives up what is pending; returns who waits.
    pub(crate) fn give_up(&mut self) -> Vec<Ticket> {
        self.dirty_since = None;
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().flat_map(|it| it.waiters).collect()
    }
}

impl Upstairs {
    /// Puts a flush into the stream, unless the last item is one. The ticket is answered when it is durable on a quorum.
    pub(super) fn begin_flush(&mut self, now: Time, waiter: Option<Ticket>, out: &mut Outputs) {
        let last = self.items.last();
        let is_lost = self.has_bug(VolumeBug::BarrierLost);
        let flushes = &mut self.flushes;
        if flushes.dirty_since.is_none() && flushes.pending.is_empty() && flushes.durable > 0 {
            if let Some(ticket) = waiter {
                self.done[2] += 1;
                self.reply(ticket, GuestReply::Done, out);
            }
            return;
        }
        if let Some(pending) = flushes.pending.back_mut()
            && (pending.item == last || is_lost)
        {
            pending.waiters.extend(waiter);
            return;
        }
        self.push_flush(now, waiter, String::new(), String::new(), out);
    }

    /// Puts a flush into the stream.
    pub(super) fn push_flush(
        &mut self,
        now: Time,
        waiter: Option<Ticket>,
        snapshot: String,
        drops: String,
        out: &mut Outputs,
    ) {
        let flushes = &mut self.flushes;
        flushes.last += 1;
        flushes.dirty_since = None;
        let flush = flushes.last;
        let kind = ItemKind::Flush {
            flush,
            snapshot: snapshot.clone(),
            drops: drops.clone(),
        };
        let item = self.items.push(kind, flush, 128);
        flushes.pending.push_back(PendingFlush {
            flush,
            item,
            since: now,
            waiters: waiter.into_iter().collect(),
            snapshot,
            drops,
        });
        self.send_items(now, out);
    }

    /// Answers the flushes that are durable on a quorum of replicas that have everything.
    pub(super) fn check_flushes(&mut self, now: Time, out: &mut Outputs) {
        let needed = if self.has_bug(VolumeBug::FlushAtOneCopy) {
            1
        } else {
            self.options.quorum
        };
        while let Some(first) = self.flushes.pending.front() {
            let flush = first.flush;
            let has = self.mirrors.iter().filter(|it| {
                // A later flush, by which it was repaired, includes this one.
                it.state == MirrorState::Active && it.flushed >= flush.max(it.complete_from)
            });
            if has.count() < needed {
                return;
            }
            let Some(done) = self.flushes.pending.pop_front() else {
                return;
            };
            (self.flushes.durable, self.flushes.durable_item) = (done.flush, done.item);
            self.figures.flushed.add(now.since(done.since));
            if !done.snapshot.is_empty() {
                self.snapshots.push((done.snapshot, done.flush));
            }
            self.snapshots.retain(|it| it.0 != done.drops);
            for ticket in done.waiters {
                self.done[2] += 1;
                self.reply(ticket, GuestReply::Done, out);
            }
            self.flush_is_durable(now, out);
        }
    }

    /// Flushes what waits for too long.
    pub(super) fn flush_in_time(&mut self, now: Time, out: &mut Outputs) {
        let interval = self.options.flush_interval;
        if self.is_active()
            && self
                .flushes
                .dirty_since
                .is_some_and(|it| it + interval <= now)
        {
            self.begin_flush(now, None, out);
        }
    }

    /// A snapshot is a flush with a name.
    pub(super) fn begin_snapshot(
        &mut self,
        now: Time,
        ticket: Ticket,
        name: String,
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        let is_pending = self.flushes.pending.iter().any(|it| it.snapshot == name);
        if is_pending || self.snapshots.iter().any(|it| it.0 == name) {
            return Err(GuestError::Snapshot(format!("there is a snapshot {name}")));
        }
        if !is_name(&name) {
            return Err(GuestError::Snapshot(
                "a snapshot's name has 1 to 64 letters, digits, `-`, `_` and `.`".to_owned(),
            ));
        }
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            return Err(GuestError::Snapshot(format!(
                "there are {SNAPSHOTS_MAX} snapshots"
            )));
        }
        self.push_flush(now, Some(ticket), name, String::new(), out);
        Ok(())
    }

    pub(super) fn drop_snapshot(
        &mut self,
        now: Time,
        ticket: Ticket,
        name: String,
        out: &mut Outputs,
    ) -> Result<(), GuestError> {
        if !self.snapshots.iter().any(|it| it.0 == name) {
            return Err(GuestError::Snapshot(format!("there is no snapshot {name}")));
        }
        self.push_flush(now, Some(ticket), String::new(), name, out);
        Ok(())
    }

    /// Fails all requests that wait for the replicas.
    pub(super) fn fail_all(&mut self, error: &GuestError, out: &mut Outputs) {
        self.sweeps.stop();
        self.parent_reads.give_up();
        let mut tickets = self.flushes.give_up();
        tickets.extend(std::mem::take(&mut self.waiting).into_iter().map(|it| it.0));
        tickets.extend(self.reads.give_up());
        tickets.extend(self.locks.give_up());
        if let ActivationPhase::Asking { waiters, .. }
        | ActivationPhase::Attaching { waiters, .. }
        | ActivationPhase::Reconciling { waiters, .. } = &mut self.phase
        {
            tickets.append(waiters);
        }
        for ticket in tickets {
            self.fail(ticket, error.clone(), out);
        }
    }
}

/// Most snapshots of a volume.
const SNAPSHOTS_MAX: usize = 64;
