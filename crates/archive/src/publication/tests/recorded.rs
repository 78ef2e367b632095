//! From publications through an archive to a cursor.

use super::{clock, numbers_of, publish, tiny};
use crate::publication::{GroupOptions, GroupWriter, OfferError, Recorder};
use crate::{
    Archive, Cursor, CursorBound, Durability, Origin, Position, RecordingId, RecordingOptions,
};
use seatrial_machine::{Rng, Storage};
use seatrial_sim::MemoryStorage;
use seatrial_sim::single_fault::{Access, BlockFault, Site};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "recordings";

fn options(rng: &mut Rng) -> RecordingOptions {
    RecordingOptions {
        segment_length: 1_024 << rng.below(6),
        durability: match rng.below(3) {
            0 => Durability::None,
            1 => Durability::Batch,
            _ => Durability::Group {
                milliseconds: 1,
                bytes: 1_000,
            },
        },
        ..RecordingOptions::default()
    }
}

/// What a cursor finds.
fn read(storage: &MemoryStorage, id: RecordingId) -> Vec<(Position, Vec<u8>)> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let cursor = Cursor::open(
        storage,
        Path::new(FOLDER),
        id,
        Origin::Start,
        CursorBound::End,
    );
    let mut cursor = cursor.unwrap();
    let mut messages = Vec::new();
    while let Some(block) = cursor.next_block().unwrap() {
        let found = block.messages();
        messages.extend(found.map(|message| (message.position, message.payload.to_vec())));
    }
    messages
}

/// What publishers offered comes out of the archive, in order, through segments of all lengths and at all levels of
/// durability.
#[test]
fn offered_messages_are_replayed() {
    for seed in 0..25 {
        let mut rng = Rng::from_seed(seed);
        let storage = MemoryStorage::new();
        let (mut archive, _) =
            Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1).unwrap();
        let recorder = Recorder::new(tiny(&mut rng));
        let handle = recorder.handle();
        let offered = std::thread::scope(|scope| {
            scope.spawn(|| recorder.run(clock()));
            let writer = archive.start(&options(&mut rng), 1).unwrap();
            let intake = handle.record(writer).unwrap();
            let publishers: Vec<_> = (0..3)
                .map(|name| {
                    let publication = intake.publication().unwrap();
                    let publication = publication.checksummed(rng.chance(0.5));
                    let rng = rng.fork(&name.to_string());
                    scope.spawn(move || publish(publication, name, rng))
                })
                .collect();
            let joined = publishers.into_iter().map(|thread| thread.join().unwrap());
            let offered: Vec<u64> = joined.collect();
            intake.stop().unwrap().sink.stop(u64::MAX).unwrap();
            handle.end();
            offered
        });
        let messages = read(&storage, RecordingId(1));
        let found = numbers_of(messages.iter().map(|(_, bytes)| &bytes[..]));
        let offered = (0..).zip(offered).filter(|(_, count)| *count > 0);
        assert_eq!(found, offered.collect(), "seed {seed}");
    }
}

/// A disk that fails in the middle: publishers get an error, and earlier messages are there.
#[test]
fn a_failing_disk_is_an_error_and_loses_nothing_written() {
    for (access, fault, turn) in [
        (Access::Write, BlockFault::Error, 0),
        (Access::Write, BlockFault::NoSpace, 1),
        (Access::Sync, BlockFault::Error, 2),
    ] {
        let storage = MemoryStorage::new();
        let site = Site {
            path: Path::new(FOLDER).join("0000000001-00000000000000000000.segment"),
            block: if access == Access::Sync { 0 } else { 2 },
            access,
        };
        let faulty = storage.with_fault(4_096, site, turn, true, fault);
        let files: Arc<dyn Storage> = Arc::new(faulty.clone());
        let (mut archive, _) = Archive::open(files, Path::new(FOLDER), 1).unwrap();
        let options = RecordingOptions {
            durability: Durability::Batch,
            ..RecordingOptions::default()
        };
        let writer = archive.start(&options, 1).unwrap();
        let recorder = Recorder::new(tiny(&mut Rng::from_seed(turn)));
        let handle = recorder.handle();
        let (error, written) = std::thread::scope(|scope| {
            scope.spawn(|| recorder.run(clock()));
            let intake = handle.record(writer).unwrap();
            let mut publication = intake.publication().unwrap();
            let error = loop {
                if let Err(error) = publication.offer_waiting(&[7; 100]) {
                    break error;
                }
                if let Err(error) = publication.flush() {
                    break error;
                }
            };
            let written = publication.written();
            drop(publication);
            let stopped = intake.stop().unwrap();
            assert!(stopped.failure.is_some() && stopped.sink.durable() <= stopped.sink.end());
            handle.end();
            (error, written)
        });
        assert!(faulty.has_fired(), "{access:?}");
        assert!(matches!(error, OfferError::Failed(_)), "{error}");
        drop(archive);
        Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 2).unwrap();
        let found = read(&storage, RecordingId(1)).len() as u64;
        assert!(found >= written && written > 0, "{written} and {found}");
    }
}

/// The positions that a group commit answers are those where a cursor finds the messages.
#[test]
fn a_group_answers_positions_of_the_recording() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1).unwrap();
    let options = RecordingOptions {
        segment_length: 2_048,
        ..RecordingOptions::default()
    };
    let writer = archive.start(&options, 1).unwrap();
    let progress = writer.progress();
    let group = GroupWriter::new(writer, GroupOptions::default());
    let answered = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u8)
            .map(|name| {
                let (group, progress) = (&group, &progress);
                scope.spawn(move || {
                    let append = |number: u8| {
                        let message = vec![name, number];
                        let position = group.append_durable(&message, u64::from(number));
                        let position = position.unwrap();
                        assert!(progress.durable() > position);
                        (position, message)
                    };
                    (0..50).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect::<BTreeMap<_, _>>()
    });
    group.into_sink().unwrap().stop(100).unwrap();
    let found = read(&storage, RecordingId(1));
    assert_eq!(found, answered.into_iter().collect::<Vec<_>>());
}
