//! The recorder: the thread that writes what publications queue.

use super::command_queue::{RecorderCommand, Wakeup};
use super::publication_slot::{CloseReason, PublicationSlot};
use super::{Failure, OfferError, Publication, RecorderOptions, Sink, SinkError, locked};
use crate::batch::Batch;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Spin-loop pauses between two polls: together about a microsecond.
pub(super) const PAUSES_PER_LOOK: u32 = 32;
/// The pause between a recorder's polls grows up to this many times the first one.
const LOOK_LENGTH_MAX: u32 = 8;
/// Number of blocks written before the clock is read again and due syncs are done.
const BLOCKS_PER_POLL: usize = 16;

/// Writes what publications queue, in order, for any number of recordings, in the thread that calls [`Recorder::run`]. It
/// owns the sinks; other threads have a [`RecorderHandle`].
///
/// Its loop: write the queued blocks; do due syncs; if there was nothing, fetch the messages of publications that have
/// stopped offering, or have filled one block for too long; if there were none either, poll a few times, then sleep until
/// it is woken.
///
/// A sink that fails ends only its own recording: its publications get the error, others continue. Recordings of one
/// recorder wait for each other's writes and syncs, so use another recorder for one that syncs often.
#[derive(Debug)]
pub struct Recorder<S: Sink> {
    shared: Arc<RecorderShared<S>>,
    recordings: BTreeMap<u64, RecorderEntry<S>>,
    slots: Vec<FollowedSlot>,
    /// Recordings that end when their bursts are dropped.
    ending: Vec<u64>,
    /// Was the last block full? Then the next one will come soon.
    busy: bool,
}

/// State shared by handles and the recorder.
#[derive(Debug)]
struct RecorderShared<S: Sink> {
    options: RecorderOptions,
    wakeup: Arc<Wakeup>,
    /// Number of the last sink, and sinks that the recorder has not fetched yet.
    arriving: Mutex<(u64, Vec<RecorderEntry<S>>)>,
}

/// A recording in the recorder.
#[derive(Debug)]
struct RecorderEntry<S> {
    number: u64,
    sink: S,
    failure: Option<Failure>,
    /// Was its intake dropped?
    released: bool,
    /// Receives the sink when the recording ends.
    ended: Arc<StopResult<S>>,
}

/// The channel that returns a sink to the thread that stops its recording.
#[derive(Debug)]
struct StopResult<S> {
    result: Mutex<StopState<S>>,
    there: Condvar,
}

#[derive(Debug)]
enum StopState<S> {
    /// The recording continues.
    Open,
    /// The sink is ready.
    Here(StoppedRecorder<S>),
    /// The recorder has ended without it, or the sink was fetched.
    Gone,
}

/// A slot, and the recorder's counts of it.
#[derive(Debug)]
struct FollowedSlot {
    slot: Arc<PublicationSlot>,
    /// Number of messages received from it.
    taken: u64,
    /// Number of messages offered at the last poll.
    seen: u64,
    /// Time at which an idle recorder first saw messages that were not queued.
    since: Option<u64>,
}

/// The result of stopping a recording.
#[derive(Debug)]
pub struct StoppedRecorder<S> {
    /// The sink: everything accepted was written to it, unless it failed.
    pub sink: S,
    /// Its failure. Messages accepted but not written before the failure are lost.
    pub failure: Option<Failure>,
}

impl<S: Sink> Recorder<S> {
    /// A recorder without recordings.
    pub fn new(options: RecorderOptions) -> Recorder<S> {
        let shared = RecorderShared {
            options: options.within_bounds(),
            wakeup: Arc::default(),
            arriving: Mutex::new((0, Vec::new())),
        };
        Recorder {
            shared: Arc::new(shared),
            recordings: BTreeMap::new(),
            slots: Vec::new(),
            ending: Vec::new(),
            busy: false,
        }
    }

    /// A handle that adds recordings and ends the recorder, from any thread.
    pub fn handle(&self) -> RecorderHandle<S> {
        self.shared.wakeup.arrive();
        RecorderHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Records until [`RecorderHandle::end`], or until no handle, intake or publication is left. Everything accepted until
    /// then is written and synced, and the sinks of recordings that were not stopped are dropped. `clock` returns
    /// nanoseconds since 1970.
    pub fn run(mut self, mut clock: impl FnMut() -> u64) {
        let mut looks = 0;
        loop {
            let now = clock();
            if self.poll(now) {
                looks = 0;
            } else if self.shared.wakeup.is_ending() {
                break;
            } else if looks < self.looks_max() || self.is_awaited() {
                looks += 1;
                pause(looks, self.busy || self.is_awaited());
            } else {
                self.sleep(now);
                looks = 0;
            }
        }
        self.finish(clock());
    }

    /// Number of polls without work before it sleeps.
    fn looks_max(&self) -> u32 {
        let options = &self.shared.options;
        if self.busy {
            options.looks_under_load / LOOK_LENGTH_MAX
        } else {
            options.looks_before_sleep
        }
    }

    /// Carries out queued commands, up to a bound, or else fetches messages of incomplete blocks; false if there was
    /// nothing to do. For callers with a loop of their own.
    pub fn poll(&mut self, now: u64) -> bool {
        let mut worked = false;
        for _ in 0..BLOCKS_PER_POLL {
            let Some(work) = self.shared.wakeup.pop() else {
                break;
            };
            self.carry_out(work, now);
            worked = true;
        }
        worked |= self.tick(now);
        worked || self.resume_ends() || self.fetch(now)
    }

    /// Does a publisher of the recording have a burst?
    fn is_bursting(&self, number: u64) -> bool {
        self.slots_of(number)
            .any(|followed| followed.slot.is_bursting())
    }

    /// Continues ending a recording whose bursts were dropped: their messages are queued by now.
    fn resume_ends(&mut self) -> bool {
        let over = |&number: &u64| !self.is_bursting(number);
        let Some(place) = self.ending.iter().position(over) else {
            return false;
        };
        let number = self.ending.swap_remove(place);
        self.shared.wakeup.push(RecorderCommand::End(number));
        true
    }

    /// Accepts no more, writes and syncs everything accepted, and returns the sinks to threads that stop their recordings
    /// later.
    fn finish(&mut self, now: u64) {
        self.shared.wakeup.begin_end();
        self.drain(now);
        for followed in &self.slots {
            followed
                .slot
                .close(&self.shared.wakeup, CloseReason::Stopped);
        }
        let wakeup = Arc::clone(&self.shared.wakeup);
        let bursting = |followed: &FollowedSlot| followed.slot.is_bursting();
        while self.slots.iter().any(bursting) {
            self.drain(now);
            wakeup.want(true);
            if self.slots.iter().any(bursting) {
                wakeup.sleep(None);
            }
            wakeup.want(false);
        }
        self.drain(now);
        let numbers: Vec<u64> = self.recordings.keys().copied().collect();
        for number in numbers {
            self.sync(number);
            self.end(number);
        }
    }

    fn drain(&mut self, now: u64) {
        while let Some(work) = self.shared.wakeup.pop() {
            self.carry_out(work, now);
        }
    }

    fn carry_out(&mut self, work: RecorderCommand, now: u64) {
        match work {
            RecorderCommand::Start => {
                let arrived = std::mem::take(&mut locked(&self.shared.arriving).1);
                for recorded in arrived {
                    self.recordings.insert(recorded.number, recorded);
                }
            }
            RecorderCommand::Join(slot) => self.join(slot),
            RecorderCommand::Block(slot, batch) => self.write(&slot, batch, now),
            RecorderCommand::Leave(slot) => {
                self.slots
                    .retain(|followed| !Arc::ptr_eq(&followed.slot, &slot));
                self.shared.wakeup.dismiss();
                self.retire(slot.recording);
            }
            RecorderCommand::Release(number) => {
                if let Some(recorded) = self.recordings.get_mut(&number) {
                    recorded.released = true;
                    self.retire(number);
                }
            }
            RecorderCommand::Sync(number) => self.sync(number),
            RecorderCommand::Stop(number) => {
                for followed in self.slots_of(number) {
                    followed
                        .slot
                        .close(&self.shared.wakeup, CloseReason::Stopped);
                }
                self.shared.wakeup.push(RecorderCommand::End(number));
            }
            RecorderCommand::End(number) if self.is_bursting(number) => self.ending.push(number),
            RecorderCommand::End(number) => self.end(number),
        }
    }

    fn slots_of(&self, number: u64) -> impl Iterator<Item = &FollowedSlot> {
        self.slots
            .iter()
            .filter(move |followed| followed.slot.recording == number)
    }

    fn join(&mut self, slot: Arc<PublicationSlot>) {
        let closed = match self.recordings.get(&slot.recording) {
            None => Some(CloseReason::Stopped),
            Some(recorded) => recorded.failure.clone().map(CloseReason::Failed),
        };
        if let Some(closed) = closed {
            slot.close(&self.shared.wakeup, closed.clone());
            slot.end(closed);
        }
        self.slots.push(FollowedSlot {
            slot,
            taken: 0,
            seen: 0,
            since: None,
        });
    }

    /// Writes one block and returns it to its slot.
    fn write(&mut self, slot: &Arc<PublicationSlot>, mut batch: Batch, now: u64) {
        let messages = u64::from(batch.messages());
        self.busy = batch.block_length() >= slot.options.batch_length / 2;
        let followed = self
            .slots
            .iter_mut()
            .find(|followed| Arc::ptr_eq(&followed.slot, slot));
        if let Some(followed) = followed {
            followed.taken += messages;
            followed.since = None;
        }
        let recorded = self.recordings.get_mut(&slot.recording);
        let Some(recorded) = recorded.filter(|recorded| recorded.failure.is_none()) else {
            return slot.give_back(batch, 0);
        };
        match recorded.sink.append(&mut batch, now) {
            Ok(_) => {
                let durable = recorded.sink.durable() >= recorded.sink.end();
                slot.give_back(batch, messages);
                if durable {
                    self.settle(slot.recording);
                }
            }
            Err(error) => {
                slot.give_back(batch, 0);
                self.fail(slot.recording, error);
            }
        }
    }

    /// Reports to a recording's slots that everything written is durable.
    fn settle(&self, number: u64) {
        for followed in self.slots_of(number) {
            followed.slot.settle();
        }
    }

    /// Ends a recording whose sink has failed: its publishers get the error.
    fn fail(&mut self, number: u64, error: SinkError) {
        let failure: Failure = Arc::from(error);
        if let Some(recorded) = self.recordings.get_mut(&number) {
            recorded.failure.get_or_insert_with(|| Arc::clone(&failure));
        }
        for followed in self.slots_of(number) {
            let closed = CloseReason::Failed(Arc::clone(&failure));
            followed.slot.close(&self.shared.wakeup, closed.clone());
            followed.slot.end(closed);
        }
    }

    fn sync(&mut self, number: u64) {
        self.attend(number, |sink| sink.sync());
    }

    /// Calls a sink's operation that may sync it, and reports the result to its slots.
    fn attend(&mut self, number: u64, act: impl FnOnce(&mut S) -> Result<(), SinkError>) {
        let recorded = self.recordings.get_mut(&number);
        let Some(recorded) = recorded.filter(|recorded| recorded.failure.is_none()) else {
            return;
        };
        match act(&mut recorded.sink) {
            Ok(()) if recorded.sink.durable() >= recorded.sink.end() => self.settle(number),
            Ok(()) => {}
            Err(error) => self.fail(number, error),
        }
    }

    /// Does the syncs that are due; false if there were none.
    fn tick(&mut self, now: u64) -> bool {
        let due: Vec<u64> = self
            .recordings
            .values()
            .filter(|recorded| recorded.failure.is_none())
            .filter(|recorded| recorded.sink.sync_at().is_some_and(|at| at <= now))
            .map(|recorded| recorded.number)
            .collect();
        for &number in &due {
            self.attend(number, |sink| sink.tick(now));
        }
        !due.is_empty()
    }

    /// Ends a recording whose last block is written: returns its sink.
    fn end(&mut self, number: u64) {
        let Some(recorded) = self.recordings.remove(&number) else {
            return;
        };
        for followed in self.slots_of(number) {
            followed.slot.end(CloseReason::Stopped);
        }
        recorded.ended.complete(Some(StoppedRecorder {
            sink: recorded.sink,
            failure: recorded.failure,
        }));
    }

    /// Drops a recording that has neither an intake nor a publication left.
    fn retire(&mut self, number: u64) {
        let recorded = self.recordings.get(&number);
        let released = recorded.is_some_and(|recorded| recorded.released);
        if released && self.slots_of(number).next().is_none() {
            self.sync(number);
            self.recordings.remove(&number);
        }
    }

    /// Queues the incomplete blocks of publications that have stopped offering, or have filled one block for too long.
    fn fetch(&mut self, now: u64) -> bool {
        let wakeup = &self.shared.wakeup;
        let mut fetched = false;
        for followed in &mut self.slots {
            let offered = followed.slot.offered();
            if offered == followed.taken {
                followed.since = None;
                continue;
            }
            let since = *followed.since.get_or_insert(now);
            let linger = followed.slot.options.linger_nanoseconds;
            let grows = followed.seen != offered;
            followed.seen = offered;
            if !grows || now.saturating_sub(since) >= linger {
                followed.slot.hand_over(wakeup);
                followed.since = None;
                fetched = true;
            }
        }
        fetched
    }

    /// Are there messages that were not queued yet?
    fn is_awaited(&self) -> bool {
        self.slots.iter().any(|followed| followed.since.is_some())
    }

    /// Sleeps until it is woken, or a sync is due.
    fn sleep(&mut self, now: u64) {
        let wakeup = Arc::clone(&self.shared.wakeup);
        wakeup.want(true);
        // Check each slot under its lock: a publisher that pushes after this check sees that a sleep is planned.
        let idle = self.slots.iter().all(|followed| followed.slot.is_drained())
            && self.ending.iter().all(|&number| self.is_bursting(number));
        if idle {
            let due = self.recordings.values();
            let due = due
                .filter(|recorded| recorded.failure.is_none())
                .filter_map(|recorded| recorded.sink.sync_at());
            let patience = due
                .min()
                .map(|at| Duration::from_nanos(at.saturating_sub(now)));
            wakeup.sleep(patience);
        }
        wakeup.want(false);
    }
}

/// Reports to all waiting threads that nothing more will be written.
impl<S: Sink> Drop for Recorder<S> {
    fn drop(&mut self) {
        let left = self.shared.wakeup.close();
        for followed in &self.slots {
            followed
                .slot
                .close(&self.shared.wakeup, CloseReason::Stopped);
            followed.slot.end(CloseReason::Stopped);
        }
        for work in left {
            if let RecorderCommand::Join(slot) | RecorderCommand::Block(slot, _) = work {
                slot.end(CloseReason::Stopped);
            }
        }
        let arriving = std::mem::take(&mut locked(&self.shared.arriving).1);
        for recorded in arriving {
            recorded.ended.complete(None);
        }
        for recorded in self.recordings.values() {
            recorded.ended.complete(None);
        }
    }
}

impl<S> StopResult<S> {
    fn complete(&self, stopped: Option<StoppedRecorder<S>>) {
        let mut result = locked(&self.result);
        if matches!(*result, StopState::Open) {
            *result = stopped.map_or(StopState::Gone, StopState::Here);
        }
        self.there.notify_all();
    }
}

/// Pauses, longer after each poll without work: polling moves the polled cache lines away from the publisher. Yields every
/// eighth time, and each time if work is expected: a publisher that waits for this processor would seem to have stopped.
fn pause(looks: u32, expects: bool) {
    if expects || looks.is_multiple_of(8) {
        std::thread::yield_now();
    }
    for _ in 0..PAUSES_PER_LOOK * looks.min(LOOK_LENGTH_MAX) {
        std::hint::spin_loop();
    }
}

/// Adds recordings to a [`Recorder`], from any thread.
#[derive(Debug)]
pub struct RecorderHandle<S: Sink> {
    shared: Arc<RecorderShared<S>>,
}

impl<S: Sink> RecorderHandle<S> {
    /// Moves a recording's sink to the recorder. [`OfferError::Stopped`] if the recorder has ended; the sink is dropped
    /// then.
    pub fn record(&self, sink: S) -> Result<Intake<S>, OfferError> {
        let ended = Arc::new(StopResult {
            result: Mutex::new(StopState::Open),
            there: Condvar::new(),
        });
        let number = {
            let mut arriving = locked(&self.shared.arriving);
            arriving.0 += 1;
            let number = arriving.0;
            arriving.1.push(RecorderEntry {
                number,
                sink,
                failure: None,
                released: false,
                ended: Arc::clone(&ended),
            });
            number
        };
        if self.shared.wakeup.push(RecorderCommand::Start).is_some() {
            let mut arriving = locked(&self.shared.arriving);
            arriving.1.retain(|recorded| recorded.number != number);
            return Err(OfferError::Stopped);
        }
        self.shared.wakeup.arrive();
        Ok(Intake {
            shared: Arc::clone(&self.shared),
            number,
            ended,
        })
    }

    /// Ends the recorder after everything offered so far is written and synced.
    pub fn end(&self) {
        self.shared.wakeup.begin_end();
    }
}

impl<S: Sink> Clone for RecorderHandle<S> {
    fn clone(&self) -> Self {
        self.shared.wakeup.arrive();
        RecorderHandle {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: Sink> Drop for RecorderHandle<S> {
    fn drop(&mut self) {
        self.shared.wakeup.depart();
    }
}

/// One recording in a [`Recorder`]: creates its publications and stops it. If it is dropped, the recording ends with its
/// last publication.
#[derive(Debug)]
pub struct Intake<S: Sink> {
    shared: Arc<RecorderShared<S>>,
    number: u64,
    ended: Arc<StopResult<S>>,
}

impl<S: Sink> Intake<S> {
    /// A new publication, for one more publisher.
    pub fn publication(&self) -> Result<Publication, OfferError> {
        let RecorderShared {
            options, wakeup, ..
        } = &*self.shared;
        match wakeup.admit(options.publications_max) {
            None => return Err(OfferError::Stopped),
            Some(false) => {
                return Err(OfferError::TooMany {
                    publications_max: options.publications_max,
                });
            }
            Some(true) => {}
        }
        let slot = PublicationSlot::new(self.number, *options);
        if wakeup
            .push(RecorderCommand::Join(Arc::clone(&slot)))
            .is_some()
        {
            return Err(OfferError::Stopped);
        }
        Ok(Publication {
            slot,
            wakeup: Arc::clone(wakeup),
            checksummed: false,
        })
    }

    /// Accepts no more for this recording, waits until everything accepted is written, and returns the sink.
    /// [`OfferError::Stopped`] if the recorder's thread panicked, and the sink is lost.
    pub fn stop(self) -> Result<StoppedRecorder<S>, OfferError> {
        self.shared.wakeup.push(RecorderCommand::Stop(self.number));
        let result = self
            .ended
            .there
            .wait_while(locked(&self.ended.result), |way| {
                matches!(way, StopState::Open)
            });
        let mut way = result.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *way, StopState::Gone) {
            StopState::Here(stopped) => Ok(stopped),
            StopState::Open | StopState::Gone => Err(OfferError::Stopped),
        }
    }
}

impl<S: Sink> Drop for Intake<S> {
    fn drop(&mut self) {
        self.shared
            .wakeup
            .push(RecorderCommand::Release(self.number));
        self.shared.wakeup.depart();
    }
}
