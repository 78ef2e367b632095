//! The thread that writes.

use super::inbox::{Bell, Work};
use super::lane::{Closed, Lane};
use super::{Failure, OfferError, Publication, RecorderOptions, Sink, SinkError, locked};
use crate::batch::Batch;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Pauses between two looks: together about a microsecond.
pub(super) const PAUSES_PER_LOOK: u32 = 32;
/// A recorder's looks grow to so many times the first one's length.
const LOOK_LENGTH_MAX: u32 = 8;
/// Blocks written before the clock is asked again and what is due is done.
const BLOCKS_PER_POLL: usize = 16;

/// Writes what publications hand over, in order, for any number of recordings, in the thread that calls
/// [`Recorder::run`]. It owns the sinks; everyone else has a [`RecorderHandle`].
///
/// Its loop: write the blocks that are queued; let sinks do what is due; when there is nothing, fetch the messages of
/// publications that have stopped offering (or have been at one block for too long); when there are none either, look
/// again a few times, then sleep until somebody has something.
///
/// A sink that fails ends its recording alone: all its publications are told, the others go on. Its downside: recordings
/// of one recorder wait for each other's writes and syncs; one that syncs often deserves a recorder of its own.
#[derive(Debug)]
pub struct Recorder<S: Sink> {
    shared: Arc<Shared<S>>,
    recordings: BTreeMap<u64, Recorded<S>>,
    lanes: Vec<Followed>,
    /// Recordings that end as soon as bursts are over.
    ending: Vec<u64>,
    /// The last block was full: the next one is under way.
    busy: bool,
}

/// What handles and the recorder share.
#[derive(Debug)]
struct Shared<S: Sink> {
    options: RecorderOptions,
    bell: Arc<Bell>,
    /// Sinks on their way to the recorder, and the next one's number.
    arriving: Mutex<(u64, Vec<Recorded<S>>)>,
}

/// A recording in the recorder.
#[derive(Debug)]
struct Recorded<S> {
    number: u64,
    sink: S,
    failure: Option<Failure>,
    /// Its intake is gone.
    released: bool,
    /// Where the sink goes in the end.
    ended: Arc<Ended<S>>,
}

/// The way back of a sink.
#[derive(Debug)]
struct Ended<S> {
    result: Mutex<Way<S>>,
    there: Condvar,
}

#[derive(Debug)]
enum Way<S> {
    /// Still being recorded.
    Open,
    /// Here it is.
    Here(Stopped<S>),
    /// The recorder died, or it was fetched.
    Gone,
}

/// A lane, and what the recorder knows of it.
#[derive(Debug)]
struct Followed {
    lane: Arc<Lane>,
    /// Messages that came out of it.
    taken: u64,
    /// Messages offered at the last look.
    seen: u64,
    /// When an idle recorder first saw messages that were not handed over.
    since: Option<u64>,
}

/// What is left of a recording that was stopped.
#[derive(Debug)]
pub struct Stopped<S> {
    /// The sink: everything taken was written to it, unless it failed.
    pub sink: S,
    /// Its failure. What was taken and not yet written when it came is lost.
    pub failure: Option<Failure>,
}

impl<S: Sink> Recorder<S> {
    /// A recorder without recordings.
    pub fn new(options: RecorderOptions) -> Recorder<S> {
        let shared = Shared {
            options: options.sane(),
            bell: Arc::default(),
            arriving: Mutex::new((0, Vec::new())),
        };
        Recorder {
            shared: Arc::new(shared),
            recordings: BTreeMap::new(),
            lanes: Vec::new(),
            ending: Vec::new(),
            busy: false,
        }
    }

    /// What brings recordings and ends the recorder, from any thread.
    pub fn handle(&self) -> RecorderHandle<S> {
        self.shared.bell.arrive();
        RecorderHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Records until it is told to end ([`RecorderHandle::end`]) or nobody is left who could offer anything; everything
    /// taken until then is written and synced, and the sinks of recordings that were not stopped are dropped. `clock` tells
    /// nanoseconds since 1970.
    pub fn run(mut self, mut clock: impl FnMut() -> u64) {
        let mut looks = 0;
        loop {
            let now = clock();
            if self.poll(now) {
                looks = 0;
            } else if self.shared.bell.is_ending() {
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

    /// Looks in vain before it sleeps.
    fn looks_max(&self) -> u32 {
        let options = &self.shared.options;
        if self.busy {
            options.looks_under_load / LOOK_LENGTH_MAX
        } else {
            options.looks_before_sleep
        }
    }

    /// Writes what is queued, up to a bound, or else fetches what publishers have left; false when there was nothing. For
    /// callers that have a loop of their own.
    pub fn poll(&mut self, now: u64) -> bool {
        let mut worked = false;
        for _ in 0..BLOCKS_PER_POLL {
            let Some(work) = self.shared.bell.pop() else {
                break;
            };
            self.carry_out(work, now);
            worked = true;
        }
        worked |= self.tick(now);
        worked || self.resume_ends() || self.fetch(now)
    }

    /// Has a publisher of a recording messages in a burst?
    fn is_bursting(&self, number: u64) -> bool {
        self.lanes_of(number)
            .any(|followed| followed.lane.is_bursting())
    }

    /// Goes on with the ends of recordings whose bursts are over: what was in them is queued by now.
    fn resume_ends(&mut self) -> bool {
        let over = |&number: &u64| !self.is_bursting(number);
        let Some(place) = self.ending.iter().position(over) else {
            return false;
        };
        let number = self.ending.swap_remove(place);
        self.shared.bell.push(Work::End(number));
        true
    }

    /// Writes and syncs all that was taken, and takes no more; the sinks are there for those who stop their recordings
    /// later.
    fn finish(&mut self, now: u64) {
        self.shared.bell.begin_end();
        self.drain(now);
        for followed in &self.lanes {
            followed.lane.close(&self.shared.bell, Closed::Stopped);
        }
        let bell = Arc::clone(&self.shared.bell);
        let bursting = |followed: &Followed| followed.lane.is_bursting();
        while self.lanes.iter().any(bursting) {
            self.drain(now);
            bell.want(true);
            if self.lanes.iter().any(bursting) {
                bell.sleep(None);
            }
            bell.want(false);
        }
        self.drain(now);
        let numbers: Vec<u64> = self.recordings.keys().copied().collect();
        for number in numbers {
            self.sync(number);
            self.end(number);
        }
    }

    fn drain(&mut self, now: u64) {
        while let Some(work) = self.shared.bell.pop() {
            self.carry_out(work, now);
        }
    }

    fn carry_out(&mut self, work: Work, now: u64) {
        match work {
            Work::Start => {
                let arrived = std::mem::take(&mut locked(&self.shared.arriving).1);
                for recorded in arrived {
                    self.recordings.insert(recorded.number, recorded);
                }
            }
            Work::Join(lane) => self.join(lane),
            Work::Block(lane, batch) => self.write(&lane, batch, now),
            Work::Leave(lane) => {
                self.lanes
                    .retain(|followed| !Arc::ptr_eq(&followed.lane, &lane));
                self.shared.bell.dismiss();
                self.retire(lane.recording);
            }
            Work::Release(number) => {
                if let Some(recorded) = self.recordings.get_mut(&number) {
                    recorded.released = true;
                    self.retire(number);
                }
            }
            Work::Sync(number) => self.sync(number),
            Work::Stop(number) => {
                for followed in self.lanes_of(number) {
                    followed.lane.close(&self.shared.bell, Closed::Stopped);
                }
                self.shared.bell.push(Work::End(number));
            }
            Work::End(number) if self.is_bursting(number) => self.ending.push(number),
            Work::End(number) => self.end(number),
        }
    }

    fn lanes_of(&self, number: u64) -> impl Iterator<Item = &Followed> {
        self.lanes
            .iter()
            .filter(move |followed| followed.lane.recording == number)
    }

    fn join(&mut self, lane: Arc<Lane>) {
        let closed = match self.recordings.get(&lane.recording) {
            None => Some(Closed::Stopped),
            Some(recorded) => recorded.failure.clone().map(Closed::Failed),
        };
        if let Some(closed) = closed {
            lane.close(&self.shared.bell, closed.clone());
            lane.end(closed);
        }
        self.lanes.push(Followed {
            lane,
            taken: 0,
            seen: 0,
            since: None,
        });
    }

    /// Writes one block and gives it back.
    fn write(&mut self, lane: &Arc<Lane>, mut batch: Batch, now: u64) {
        let messages = u64::from(batch.messages());
        self.busy = batch.block_length() >= lane.options.batch_length / 2;
        let followed = self
            .lanes
            .iter_mut()
            .find(|followed| Arc::ptr_eq(&followed.lane, lane));
        if let Some(followed) = followed {
            followed.taken += messages;
            followed.since = None;
        }
        let recorded = self.recordings.get_mut(&lane.recording);
        let Some(recorded) = recorded.filter(|recorded| recorded.failure.is_none()) else {
            return lane.give_back(batch, 0);
        };
        match recorded.sink.append(&mut batch, now) {
            Ok(_) => {
                let durable = recorded.sink.durable() >= recorded.sink.end();
                lane.give_back(batch, messages);
                if durable {
                    self.settle(lane.recording);
                }
            }
            Err(error) => {
                lane.give_back(batch, 0);
                self.fail(lane.recording, error);
            }
        }
    }

    /// Everything written to a recording is durable.
    fn settle(&self, number: u64) {
        for followed in self.lanes_of(number) {
            followed.lane.settle();
        }
    }

    /// A sink has failed: its publishers are told.
    fn fail(&mut self, number: u64, error: SinkError) {
        let failure: Failure = Arc::from(error);
        if let Some(recorded) = self.recordings.get_mut(&number) {
            recorded.failure.get_or_insert_with(|| Arc::clone(&failure));
        }
        for followed in self.lanes_of(number) {
            let closed = Closed::Failed(Arc::clone(&failure));
            followed.lane.close(&self.shared.bell, closed.clone());
            followed.lane.end(closed);
        }
    }

    fn sync(&mut self, number: u64) {
        self.attend(number, |sink| sink.sync());
    }

    /// Lets a sink do something that may make all of its recording durable.
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

    /// Lets sinks do what is due; false when nothing was.
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

    /// A recording's last block is written: its sink goes back.
    fn end(&mut self, number: u64) {
        let Some(recorded) = self.recordings.remove(&number) else {
            return;
        };
        for followed in self.lanes_of(number) {
            followed.lane.end(Closed::Stopped);
        }
        recorded.ended.tell(Some(Stopped {
            sink: recorded.sink,
            failure: recorded.failure,
        }));
    }

    /// Lets go of a recording that nobody can offer anything to any more.
    fn retire(&mut self, number: u64) {
        let recorded = self.recordings.get(&number);
        let released = recorded.is_some_and(|recorded| recorded.released);
        if released && self.lanes_of(number).next().is_none() {
            self.sync(number);
            self.recordings.remove(&number);
        }
    }

    /// Queues the messages of publications that have stopped offering, or have been at one block for too long.
    fn fetch(&mut self, now: u64) -> bool {
        let bell = &self.shared.bell;
        let mut fetched = false;
        for followed in &mut self.lanes {
            let offered = followed.lane.offered();
            if offered == followed.taken {
                followed.since = None;
                continue;
            }
            let since = *followed.since.get_or_insert(now);
            let linger = followed.lane.options.linger_nanoseconds;
            let grows = followed.seen != offered;
            followed.seen = offered;
            if !grows || now.saturating_sub(since) >= linger {
                followed.lane.hand_over(bell);
                followed.since = None;
                fetched = true;
            }
        }
        fetched
    }

    /// Are there messages that were not handed over?
    fn is_awaited(&self) -> bool {
        self.lanes.iter().any(|followed| followed.since.is_some())
    }

    /// Sleeps until somebody rings, or a sink is due.
    fn sleep(&mut self, now: u64) {
        let bell = Arc::clone(&self.shared.bell);
        bell.want(true);
        // A look under the lock of each lane: whoever pushes after it sees that the bell is wanted.
        let idle = self.lanes.iter().all(|followed| followed.lane.is_drained())
            && self.ending.iter().all(|&number| self.is_bursting(number));
        if idle {
            let due = self.recordings.values();
            let due = due
                .filter(|recorded| recorded.failure.is_none())
                .filter_map(|recorded| recorded.sink.sync_at());
            let patience = due
                .min()
                .map(|at| Duration::from_nanos(at.saturating_sub(now)));
            bell.sleep(patience);
        }
        bell.want(false);
    }
}

/// Whoever waits is told that nothing will be written any more.
impl<S: Sink> Drop for Recorder<S> {
    fn drop(&mut self) {
        let left = self.shared.bell.close();
        for followed in &self.lanes {
            followed.lane.close(&self.shared.bell, Closed::Stopped);
            followed.lane.end(Closed::Stopped);
        }
        for work in left {
            if let Work::Join(lane) | Work::Block(lane, _) = work {
                lane.end(Closed::Stopped);
            }
        }
        let arriving = std::mem::take(&mut locked(&self.shared.arriving).1);
        for recorded in arriving {
            recorded.ended.tell(None);
        }
        for recorded in self.recordings.values() {
            recorded.ended.tell(None);
        }
    }
}

impl<S> Ended<S> {
    fn tell(&self, stopped: Option<Stopped<S>>) {
        let mut result = locked(&self.result);
        if matches!(*result, Way::Open) {
            *result = stopped.map_or(Way::Gone, Way::Here);
        }
        self.there.notify_all();
    }
}

/// Lets other threads go on, longer after each look in vain: looking takes what is looked at out of the publisher's cache.
/// When something is expected, each time: a publisher that waits for this very processor would seem to have stopped.
fn pause(looks: u32, expects: bool) {
    if expects || looks.is_multiple_of(8) {
        std::thread::yield_now();
    }
    for _ in 0..PAUSES_PER_LOOK * looks.min(LOOK_LENGTH_MAX) {
        std::hint::spin_loop();
    }
}

/// Brings recordings to a [`Recorder`], from any thread.
#[derive(Debug)]
pub struct RecorderHandle<S: Sink> {
    shared: Arc<Shared<S>>,
}

impl<S: Sink> RecorderHandle<S> {
    /// Hands a recording's sink to the recorder. [`OfferError::Stopped`] when the recorder has ended; the sink is dropped
    /// then.
    pub fn record(&self, sink: S) -> Result<Intake<S>, OfferError> {
        let ended = Arc::new(Ended {
            result: Mutex::new(Way::Open),
            there: Condvar::new(),
        });
        let number = {
            let mut arriving = locked(&self.shared.arriving);
            arriving.0 += 1;
            let number = arriving.0;
            arriving.1.push(Recorded {
                number,
                sink,
                failure: None,
                released: false,
                ended: Arc::clone(&ended),
            });
            number
        };
        if self.shared.bell.push(Work::Start).is_some() {
            let mut arriving = locked(&self.shared.arriving);
            arriving.1.retain(|recorded| recorded.number != number);
            return Err(OfferError::Stopped);
        }
        self.shared.bell.arrive();
        Ok(Intake {
            shared: Arc::clone(&self.shared),
            number,
            ended,
        })
    }

    /// Ends the recorder once everything offered until now is written and synced.
    pub fn end(&self) {
        self.shared.bell.begin_end();
    }
}

impl<S: Sink> Clone for RecorderHandle<S> {
    fn clone(&self) -> Self {
        self.shared.bell.arrive();
        RecorderHandle {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: Sink> Drop for RecorderHandle<S> {
    fn drop(&mut self) {
        self.shared.bell.depart();
    }
}

/// One recording in a [`Recorder`]: makes publications for it and stops it. Dropping it leaves the recording to its
/// publications.
#[derive(Debug)]
pub struct Intake<S: Sink> {
    shared: Arc<Shared<S>>,
    number: u64,
    ended: Arc<Ended<S>>,
}

impl<S: Sink> Intake<S> {
    /// A publication of its own for one more publisher.
    pub fn publication(&self) -> Result<Publication, OfferError> {
        let Shared { options, bell, .. } = &*self.shared;
        match bell.admit(options.publications_max) {
            None => return Err(OfferError::Stopped),
            Some(false) => {
                return Err(OfferError::TooMany {
                    publications_max: options.publications_max,
                });
            }
            Some(true) => {}
        }
        let lane = Lane::new(self.number, *options);
        if bell.push(Work::Join(Arc::clone(&lane))).is_some() {
            return Err(OfferError::Stopped);
        }
        Ok(Publication {
            lane,
            bell: Arc::clone(bell),
            checksummed: false,
        })
    }

    /// Takes no more for this recording, waits until everything taken is written, and gives the sink back.
    /// [`OfferError::Stopped`] when the recorder's thread died, and the sink with it.
    pub fn stop(self) -> Result<Stopped<S>, OfferError> {
        self.shared.bell.push(Work::Stop(self.number));
        let result = self
            .ended
            .there
            .wait_while(locked(&self.ended.result), |way| matches!(way, Way::Open));
        let mut way = result.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *way, Way::Gone) {
            Way::Here(stopped) => Ok(stopped),
            Way::Open | Way::Gone => Err(OfferError::Stopped),
        }
    }
}

impl<S: Sink> Drop for Intake<S> {
    fn drop(&mut self) {
        self.shared.bell.push(Work::Release(self.number));
        self.shared.bell.depart();
    }
}
