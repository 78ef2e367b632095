use super::*;
use crate::batch::BATCH_FRAMES_OFFSET;
use seatrial_blocks::Frames;
use seatrial_machine::Rng;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

mod recorded;
mod sleep;

/// What a sink got, for the test to look at.
#[derive(Debug, Default)]
pub(super) struct SampleRecording {
    /// Flags and messages by position, in order.
    pub(super) messages: Vec<(Position, u32, Vec<u8>)>,
    /// Messages in each block.
    pub(super) blocks: Vec<u32>,
    pub(super) end: u64,
    pub(super) durable: u64,
    pub(super) syncs: u64,
}

/// A recording in memory.
#[derive(Debug, Default)]
pub(super) struct TapeSink {
    pub(super) tape: Arc<Mutex<SampleRecording>>,
    /// Appends that work; then they fail.
    pub(super) appends_left: Option<u64>,
    /// Syncs that work; then they fail.
    pub(super) syncs_left: Option<u64>,
    /// Appends after which the thread panics.
    pub(super) panics_after: Option<u64>,
    /// A sync is due so long after an append.
    pub(super) sync_after: Option<u64>,
    pub(super) appended_at: Option<u64>,
}

/// One less, unless there is none.
fn spend(left: &mut Option<u64>, what: &'static str) -> Result<(), SinkError> {
    match left {
        Some(0) => Err(io::Error::other(what).into()),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

impl Sink for TapeSink {
    fn append(&mut self, batch: &mut Batch, now: u64) -> Result<Position, SinkError> {
        assert!(!batch.is_empty(), "empty blocks are not written");
        spend(&mut self.appends_left, "no space")?;
        assert!(spend(&mut self.panics_after, "").is_ok(), "planned");
        let mut tape = locked(&self.tape);
        let first = Position(tape.end + BATCH_FRAMES_OFFSET as u64);
        for frame in Frames::new(batch.frames()) {
            let frame = frame.unwrap();
            let position = first.plus(frame.offset as u64);
            let message = (position, frame.flags, frame.payload.to_vec());
            tape.messages.push(message);
        }
        tape.blocks.push(batch.messages());
        let number = tape.blocks.len() as u64;
        tape.end += batch.seal(None, number, 0, now, 0).len() as u64;
        self.appended_at.get_or_insert(now);
        Ok(first)
    }

    fn sync(&mut self) -> Result<(), SinkError> {
        spend(&mut self.syncs_left, "the medium is gone")?;
        let mut tape = locked(&self.tape);
        tape.durable = tape.end;
        tape.syncs += 1;
        self.appended_at = None;
        Ok(())
    }

    fn end(&self) -> Position {
        Position(locked(&self.tape).end)
    }

    fn durable(&self) -> Position {
        Position(locked(&self.tape).durable)
    }

    fn sync_at(&self) -> Option<u64> {
        Some(self.appended_at? + self.sync_after?)
    }

    fn tick(&mut self, now: u64) -> Result<(), SinkError> {
        assert!(self.sync_at().is_some_and(|at| at <= now));
        self.sync()
    }
}

pub(super) fn tape() -> (Arc<Mutex<SampleRecording>>, TapeSink) {
    let sink = TapeSink::default();
    (Arc::clone(&sink.tape), sink)
}

/// Small blocks, few of them, so that every corner is passed often.
fn tiny(rng: &mut Rng) -> RecorderOptions {
    RecorderOptions {
        batch_length: 64 + rng.index(300),
        batches_per_publication: 1 + rng.index(4),
        publications_max: 8,
        linger_nanoseconds: rng.below(50_000),
        looks_before_sleep: rng.below(4) as u32,
        looks_under_load: rng.below(4) as u32,
    }
}

/// Polls until there is nothing, twice: the first look at a block that grows leaves it where it is.
fn drain(recorder: &mut Recorder<TapeSink>, now: u64) {
    while recorder.poll(now) || recorder.poll(now) {}
}

/// A message that says whose it is and which.
pub(super) fn message(rng: &mut Rng, publisher: u64, number: u64) -> Vec<u8> {
    let mut bytes = publisher.to_le_bytes().to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.resize(16 + rng.index(60), number as u8);
    if rng.below(200) == 0 {
        bytes.resize(5_000, number as u8);
    }
    bytes
}

/// Publisher and number of a message.
pub(super) fn signature(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (word(0), word(8))
}

/// Every publisher's messages are there from 1 on, in order, without a gap; answers with how many there are of each.
fn numbers_of<'a>(messages: impl Iterator<Item = &'a [u8]>) -> BTreeMap<u64, u64> {
    let mut last = BTreeMap::new();
    for bytes in messages {
        let (publisher, number) = signature(bytes);
        let before = last.insert(publisher, number).unwrap_or(0);
        assert_eq!(number, before + 1, "publisher {publisher}");
    }
    last
}

fn numbers(tape: &SampleRecording) -> BTreeMap<u64, u64> {
    numbers_of(tape.messages.iter().map(|(_, _, bytes)| &bytes[..]))
}

/// The twin of one publisher: what was offered to it.
struct PublicationTwin {
    publication: Option<Publication>,
    name: u64,
    recording: usize,
    offered: u64,
}

/// How messages are offered.
enum StopState<'a> {
    Burst(Burst<'a>),
    Single(&'a mut Publication),
}

impl PublicationTwin {
    /// Offers some messages, until there is no room, while the recorder does something now and then.
    fn offer_some(&mut self, recorder: &mut Recorder<TapeSink>, rng: &mut Rng, now: u64) {
        let Some(publication) = &mut self.publication else {
            return;
        };
        let mut way = if rng.chance(0.5) {
            StopState::Burst(publication.burst())
        } else {
            StopState::Single(publication)
        };
        for _ in 0..rng.below(12) {
            let bytes = message(rng, self.name, self.offered + 1);
            let flags = self.offered as u32 % 8;
            let taken = match &mut way {
                StopState::Burst(burst) => burst.offer_flagged(flags, &bytes),
                StopState::Single(publication) => publication.offer_flagged(flags, &bytes),
            };
            match taken {
                Ok(number) => {
                    self.offered += 1;
                    assert_eq!(number, self.offered);
                }
                Err(OfferError::Backpressured) => break,
                Err(error) => panic!("{error}"),
            }
            if rng.chance(0.2) {
                recorder.poll(now);
            }
        }
        drop(way);
        let publication = self.publication.as_ref();
        assert!(publication.is_some_and(|it| it.written() <= self.offered));
    }

    /// All that was taken is on the tape, and counted.
    fn compare(&self, tape: &SampleRecording) {
        let found = numbers(tape).get(&self.name).copied().unwrap_or(0);
        assert_eq!(found, self.offered, "publisher {}", self.name);
        if let Some(publication) = &self.publication {
            assert_eq!(publication.written(), self.offered);
        }
    }
}

/// One schedule of offers, polls, arrivals and departures, one step at a time, from a seed: whatever the order, all that was
/// taken is recorded once and in order, and is counted.
fn schedule(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut recorder = Recorder::new(tiny(&mut rng));
    let handle = recorder.handle();
    let (tapes, sinks): (Vec<_>, Vec<_>) = (0..2).map(|_| tape()).unzip();
    let sinks = sinks.into_iter();
    let intakes: Vec<_> = sinks.map(|sink| handle.record(sink).unwrap()).collect();
    let mut twins: Vec<PublicationTwin> = Vec::new();
    let mut now = 0;
    for _ in 0..rng.below(400) {
        now += rng.below(20_000);
        match rng.below(10) {
            0 => {
                let recording = rng.index(2);
                match intakes[recording].publication() {
                    Ok(publication) => twins.push(PublicationTwin {
                        publication: Some(publication.checksummed(rng.chance(0.5))),
                        name: twins.len() as u64,
                        recording,
                        offered: 0,
                    }),
                    Err(error) => assert!(
                        matches!(
                            error,
                            OfferError::TooMany {
                                publications_max: 8
                            }
                        ),
                        "{error}"
                    ),
                }
            }
            1 if !twins.is_empty() && rng.chance(0.3) => {
                let place = rng.index(twins.len());
                twins[place].publication = None;
            }
            2..=4 => {
                recorder.poll(now);
            }
            _ if twins.is_empty() => {}
            _ => {
                let place = rng.index(twins.len());
                twins[place].offer_some(&mut recorder, &mut rng, now);
            }
        }
    }
    // No thread waits for anything: as soon as the recorder is asked often enough, all is written.
    drain(&mut recorder, now);
    for twin in &twins {
        twin.compare(&locked(&tapes[twin.recording]));
    }
    for tape in &tapes {
        for (_, flags, bytes) in &locked(tape).messages {
            assert_eq!(u64::from(*flags), (signature(bytes).1 - 1) % 8);
        }
    }
}

#[test]
fn every_schedule_records_accepted_messages_once_and_in_order() {
    for seed in 0..2_000 {
        let outcome = std::panic::catch_unwind(|| schedule(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// Does something else for a while, or not.
fn dawdle(rng: &mut Rng) {
    match rng.below(60) {
        0 => std::thread::park_timeout(Duration::from_micros(rng.below(300))),
        1..=3 => std::thread::yield_now(),
        _ => {}
    }
}

fn clock() -> impl FnMut() -> u64 {
    let mut now = 0;
    move || {
        now += 1_000;
        now
    }
}

/// The same with threads: two recordings, two to four publishers, which pause, wait, flush, leave in the middle.
#[test]
fn threads_lose_and_double_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let recorder = Recorder::new(tiny(&mut rng));
        let handle = recorder.handle();
        let (tapes, sinks): (Vec<_>, Vec<_>) = (0..2).map(|_| tape()).unzip();
        let intakes: Vec<_> = sinks
            .into_iter()
            .map(|sink| handle.record(sink).unwrap())
            .collect();
        drop(handle);
        let offered = std::thread::scope(|scope| {
            scope.spawn(|| recorder.run(clock()));
            let publishers: Vec<_> = (0..2 + rng.below(3))
                .map(|name| {
                    let publication = intakes[name as usize % 2].publication().unwrap();
                    let rng = rng.fork(&name.to_string());
                    scope.spawn(move || publish(publication, name, rng))
                })
                .collect();
            let joined = publishers.into_iter().map(|thread| thread.join().unwrap());
            let offered: Vec<u64> = joined.collect();
            for intake in intakes {
                assert!(intake.stop().unwrap().failure.is_none());
            }
            offered
        });
        for (name, offered) in offered.into_iter().enumerate() {
            let tape = locked(&tapes[name % 2]);
            let found = numbers(&tape).get(&(name as u64)).copied().unwrap_or(0);
            assert_eq!(found, offered, "seed {seed}, publisher {name}");
        }
    }
}

/// Offers messages in all ways; answers with how many were taken.
fn publish(mut publication: Publication, name: u64, mut rng: Rng) -> u64 {
    let count = rng.below(600);
    let mut number = 0;
    while number < count {
        dawdle(&mut rng);
        if rng.below(10) == 0 {
            let mut burst = publication.burst();
            for _ in 0..rng.below(30).min(count - number) {
                dawdle(&mut rng);
                number += 1;
                let bytes = message(&mut rng, name, number);
                assert_eq!(burst.offer_waiting(&bytes).unwrap(), number);
            }
            continue;
        }
        number += 1;
        let bytes = message(&mut rng, name, number);
        assert_eq!(publication.offer_waiting(&bytes).unwrap(), number);
        match rng.below(100) {
            0 => {
                publication.flush().unwrap();
                assert_eq!(publication.written(), number);
            }
            1 => {
                publication.sync().unwrap();
                assert_eq!(publication.durable(), number);
            }
            // Without a word from here on: the recorder comes for it.
            2 => assert!(publication.wait_written(number, None).unwrap()),
            _ => {}
        }
    }
    count
}

/// A message that is offered to a recorder that sleeps, with nothing behind it.
#[test]
fn the_last_message_is_never_left_lying() {
    let options = RecorderOptions {
        looks_before_sleep: 0,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::new(options);
    let handle = recorder.handle();
    let (tape, sink) = tape();
    let intake = handle.record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| recorder.run(clock()));
        let mut rng = Rng::from_seed(1);
        for number in 1..=3_000 {
            // Now and then long enough for the other thread to fall asleep, otherwise in the middle of it.
            for _ in 0..rng.below(3_000) {
                std::hint::spin_loop();
            }
            publication.offer(b"alone").unwrap();
            let patience = Some(Duration::from_secs(20));
            assert!(
                publication.wait_written(number, patience).unwrap(),
                "message {number} is left lying"
            );
        }
        handle.end();
    });
    assert_eq!(locked(&tape).messages.len(), 3_000);
}

#[test]
fn blocks_are_the_bound_of_what_waits() {
    let options = RecorderOptions {
        batch_length: 56 + 10 * 40,
        batches_per_publication: 3,
        ..RecorderOptions::default()
    };
    let mut recorder = Recorder::new(options);
    let (tape, sink) = tape();
    let intake = recorder.handle().record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    let fill = |publication: &mut Publication| {
        let mut taken = 0;
        while publication.offer(&[7; 32]).is_ok() {
            taken += 1;
        }
        assert!(matches!(
            publication.offer(&[7; 32]),
            Err(OfferError::Backpressured)
        ));
        taken
    };
    assert_eq!(fill(&mut publication), 30);
    drain(&mut recorder, 0);
    assert_eq!(publication.written(), 30);
    assert_eq!(fill(&mut publication), 30);
    drain(&mut recorder, 0);
    assert_eq!(locked(&tape).blocks, [10; 6], "one hand-over a block");
}

/// What is left in a block goes out when it stops growing, or after the time that is named.
#[test]
fn an_idle_recorder_fetches_the_remaining_messages() {
    let options = RecorderOptions {
        linger_nanoseconds: 1_000,
        ..RecorderOptions::default()
    };
    let mut recorder = Recorder::new(options);
    let (tape, sink) = tape();
    let intake = recorder.handle().record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    drain(&mut recorder, 0);
    publication.offer(b"one").unwrap();
    assert!(!recorder.poll(10), "it has just grown");
    assert!(recorder.poll(11), "it has stopped");
    recorder.poll(12);
    assert_eq!(locked(&tape).blocks, [1]);
    for now in (100..1_100).step_by(100) {
        publication.offer(b"more").unwrap();
        assert!(!recorder.poll(now), "it grows");
    }
    publication.offer(b"more").unwrap();
    assert!(recorder.poll(1_100), "for a microsecond now");
    recorder.poll(1_101);
    assert_eq!(locked(&tape).blocks, [1, 11]);
}

#[test]
fn a_failed_write_reaches_every_publisher_of_that_recording_alone() {
    let mut recorder = Recorder::new(RecorderOptions::default());
    let handle = recorder.handle();
    let (failing, mut sink) = tape();
    sink.appends_left = Some(1);
    let failing_intake = handle.record(sink).unwrap();
    let (healthy, sink) = tape();
    let healthy_intake = handle.record(sink).unwrap();
    let mut first = failing_intake.publication().unwrap();
    let mut second = failing_intake.publication().unwrap();
    let mut other = healthy_intake.publication().unwrap();
    first.offer(b"written").unwrap();
    first.slot.hand_over(&first.wakeup);
    first.offer(b"fails").unwrap();
    first.slot.hand_over(&first.wakeup);
    second.offer(b"lost").unwrap();
    other.offer(b"fine").unwrap();
    for now in 0..10 {
        recorder.poll(now);
    }
    for publication in [&mut first, &mut second] {
        let error = publication.offer(b"more").unwrap_err();
        assert_eq!(error.to_string(), "recording failed: no space");
        let error = publication.flush().unwrap_err();
        assert!(matches!(error, OfferError::Failed(_)), "{error}");
        assert!(matches!(
            publication.wait(),
            Ok(()) | Err(OfferError::Failed(_))
        ));
    }
    assert_eq!((first.written(), second.written()), (1, 0));
    assert_eq!(locked(&failing).messages.len(), 1);
    // Later publishers get the error too.
    let mut late = failing_intake.publication().unwrap();
    recorder.poll(11);
    assert!(matches!(late.offer(b""), Err(OfferError::Failed(_))));
    other.offer(b"still fine").unwrap();
    for now in 12..20 {
        recorder.poll(now);
    }
    assert_eq!(locked(&healthy).messages.len(), 2);
    std::thread::scope(|scope| {
        scope.spawn(|| recorder.run(clock()));
        let stopped = failing_intake.stop().unwrap();
        assert_eq!(stopped.failure.unwrap().to_string(), "no space");
        handle.end();
    });
}

#[test]
fn a_failed_sync_fails_the_recording() {
    let mut recorder = Recorder::new(RecorderOptions::default());
    let (_, mut sink) = tape();
    sink.sync_after = Some(500);
    sink.syncs_left = Some(1);
    let intake = recorder.handle().record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    let mut now = 0;
    let mut until = |recorder: &mut Recorder<TapeSink>, end: u64| {
        while now < end {
            now += 10;
            recorder.poll(now);
        }
    };
    publication.offer(b"one").unwrap();
    until(&mut recorder, 200);
    assert_eq!((publication.written(), publication.durable()), (1, 0));
    until(&mut recorder, 700);
    assert_eq!((publication.written(), publication.durable()), (1, 1));
    publication.offer(b"two").unwrap();
    until(&mut recorder, 2_000);
    assert_eq!((publication.written(), publication.durable()), (2, 1));
    let error = publication.sync().unwrap_err();
    assert_eq!(error.to_string(), "recording failed: the medium is gone");
}

/// A recording is stopped while a publisher is in a burst: what was taken by then is written.
#[test]
fn a_stop_waits_for_the_end_of_bursts() {
    for end_recorder in [false, true] {
        let options = RecorderOptions {
            batch_length: 56 + 4 * 16,
            ..RecorderOptions::default()
        };
        let recorder = Recorder::new(options);
        let handle = recorder.handle();
        let (tape, sink) = tape();
        let intake = handle.record(sink).unwrap();
        let mut publication = intake.publication().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| recorder.run(clock()));
            let mut burst = publication.burst();
            for number in 1..=6 {
                assert_eq!(burst.offer(b"eight...").unwrap(), number);
            }
            let stopping = scope.spawn(|| {
                if end_recorder {
                    handle.end();
                    thread.join().unwrap();
                }
                intake.stop().unwrap().sink.end()
            });
            // It is refused as soon as a block is exchanged after the stop.
            // Until then all blocks may wait to be written.
            while !matches!(burst.offer(b"eight..."), Err(OfferError::Stopped)) {
                std::thread::yield_now();
            }
            let taken = burst.offered();
            std::thread::park_timeout(Duration::from_millis(2));
            assert!(!stopping.is_finished(), "the burst is not over");
            drop(burst);
            let end = stopping.join().unwrap();
            let tape = locked(&tape);
            assert_eq!((tape.messages.len() as u64, tape.end), (taken, end.0));
            handle.end();
        });
    }
}

/// What is left in a burst goes out when it ends, and not before.
#[test]
fn a_recorder_sleeps_through_a_burst_and_wakes_at_its_end() {
    let options = RecorderOptions {
        looks_before_sleep: 0,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::new(options);
    let handle = recorder.handle();
    let (tape, sink) = tape();
    let intake = handle.record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| recorder.run(clock()));
        let mut rng = Rng::from_seed(3);
        for round in 1..=1_000 {
            let mut burst = publication.burst();
            burst.offer(b"one").unwrap();
            for _ in 0..rng.below(2_000) {
                std::hint::spin_loop();
            }
            burst.offer(b"two").unwrap();
            drop(burst);
            let patience = Some(Duration::from_secs(20));
            let written = publication.wait_written(2 * round, patience).unwrap();
            assert!(written, "round {round} is left lying");
        }
        handle.end();
    });
    assert_eq!(locked(&tape).blocks, [2; 1_000]);
}

#[test]
fn waiting_publishers_get_an_error_when_the_recorder_dies() {
    let recorder = Recorder::new(RecorderOptions::default());
    let (_, mut sink) = tape();
    sink.panics_after = Some(0);
    let handle = recorder.handle();
    let intake = handle.record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    std::thread::scope(|scope| {
        let died = scope.spawn(|| recorder.run(clock()));
        publication.offer(b"never written").unwrap();
        let error = publication.flush().unwrap_err();
        assert!(matches!(error, OfferError::Stopped), "{error}");
        assert!(died.join().is_err());
    });
    assert!(matches!(publication.offer(b"x"), Err(OfferError::Stopped)));
    assert!(matches!(publication.sync(), Err(OfferError::Stopped)));
    assert!(matches!(intake.publication(), Err(OfferError::Stopped)));
    assert!(matches!(intake.stop(), Err(OfferError::Stopped)));
    let (_, sink) = tape();
    assert!(matches!(handle.record(sink), Err(OfferError::Stopped)));
}

#[test]
fn it_ends_without_publishers_after_a_last_sync() {
    for stop in [false, true] {
        let recorder = Recorder::new(RecorderOptions::default());
        let handle = recorder.handle();
        let (tape, sink) = tape();
        let intake = handle.record(sink).unwrap();
        let mut publication = intake.publication().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| recorder.run(clock()));
            publication.offer(b"left by one who goes").unwrap();
            if stop {
                handle.end();
                thread.join().unwrap();
                assert!(matches!(
                    publication.offer(b"late"),
                    Err(OfferError::Stopped)
                ));
                // Its end has come, and with it the sink.
                assert_eq!(intake.stop().unwrap().sink.end().0, 88);
            } else {
                drop(publication);
                drop(intake);
                drop(handle);
                thread.join().unwrap();
            }
        });
        let tape = locked(&tape);
        assert_eq!((tape.messages.len(), tape.durable), (1, tape.end));
        assert_eq!(tape.syncs, 1);
    }
}

#[test]
fn messages_longer_than_a_block_and_too_long() {
    let options = RecorderOptions {
        batch_length: 100,
        batches_per_publication: 2,
        ..RecorderOptions::default()
    };
    let mut recorder = Recorder::new(options);
    let (tape, sink) = tape();
    let intake = recorder.handle().record(sink).unwrap();
    let mut publication = intake.publication().unwrap();
    let longest = vec![1; MESSAGE_LENGTH_MAX];
    let longer = vec![1; MESSAGE_LENGTH_MAX + 1];
    for _ in 0..2 {
        publication.offer(b"short").unwrap();
        publication.offer(&longest).unwrap();
        assert!(matches!(
            publication.offer(&longer),
            Err(OfferError::TooLong { .. } | OfferError::Backpressured)
        ));
        drain(&mut recorder, 0);
        publication.offer(b"").unwrap();
    }
    drain(&mut recorder, 0);
    let tape = locked(&tape);
    let lengths = tape.messages.iter().map(|(_, _, bytes)| bytes.len());
    let expected = [5, MESSAGE_LENGTH_MAX, 0, 5, MESSAGE_LENGTH_MAX, 0];
    assert!(lengths.eq(expected));
}
