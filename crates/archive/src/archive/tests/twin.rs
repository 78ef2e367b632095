//! Random operations against a list of messages.

use super::{FOLDER, contents, open};
use crate::batch::{BATCH_FRAMES_OFFSET, Batch};
use crate::recording::{Durability, Writer};
use crate::{Archive, ArchiveError, Position, RecordingFilter, RecordingId, RecordingOptions};
use crate::{Recording, SEGMENT_BLOCK_LENGTH};
use seatrial_blocks::frame::frame_length;
use seatrial_machine::Rng;
use seatrial_sim::MemoryStorage;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A message, where its frame is, and where its block starts.
#[derive(Clone, Debug)]
struct Message {
    position: Position,
    block: Position,
    bytes: Vec<u8>,
}

/// What a recording should be.
#[derive(Debug)]
struct RecordingTwin {
    label: String,
    segment_length: u64,
    /// From the very first one on.
    messages: Vec<Message>,
    /// All there are in the folder.
    segments: Vec<Position>,
    start: Position,
    end: Position,
    time: u64,
}

impl RecordingTwin {
    fn new(label: &str, segment_length: u64, time: u64) -> RecordingTwin {
        RecordingTwin {
            label: label.to_owned(),
            segment_length,
            messages: Vec::new(),
            segments: vec![Position(0)],
            start: Position(0),
            end: Position(SEGMENT_BLOCK_LENGTH),
            time,
        }
    }

    /// The rule for segments, again.
    fn append(&mut self, messages: Vec<Vec<u8>>, now: u64) {
        if messages.is_empty() {
            return;
        }
        let frames: u64 = (messages
            .iter()
            .map(|bytes| frame_length(bytes.len()) as u64))
        .sum();
        let length = BATCH_FRAMES_OFFSET as u64 + frames;
        let offset = self.end.0 - self.segments.last().unwrap().0;
        if offset > SEGMENT_BLOCK_LENGTH && offset + length > self.segment_length {
            self.segments.push(self.end);
            self.end.0 += SEGMENT_BLOCK_LENGTH;
        }
        let block = self.end;
        let mut position = block.plus(BATCH_FRAMES_OFFSET as u64);
        for bytes in messages {
            let next = position.plus(frame_length(bytes.len()) as u64);
            self.messages.push(Message {
                position,
                block,
                bytes,
            });
            position = next;
        }
        self.end = position;
        self.time = self.time.max(now);
    }

    fn truncate(&mut self, position: Position) {
        self.messages.retain(|message| message.position < position);
        let first = self.start.plus(SEGMENT_BLOCK_LENGTH);
        // Behind the last message that stays; before the header of a block none of whose messages do.
        let end_of = |message: &Message| {
            let length = frame_length(message.bytes.len()) as u64;
            message.position.plus(length)
        };
        let behind = self.messages.last().map_or(first, end_of).max(first);
        let heads = self
            .segments
            .iter()
            .map(|start| start.plus(SEGMENT_BLOCK_LENGTH));
        self.end = heads
            .filter(|head| *head <= position)
            .fold(behind, Position::max);
        let end = self.end;
        self.segments.retain(|start| *start < end);
    }

    fn first_message(&self) -> u64 {
        let before = |message: &&Message| message.position < self.start;
        self.messages.iter().filter(before).count() as u64
    }

    fn move_start(&mut self, before: Position) {
        let at = self
            .segments
            .iter()
            .rev()
            .find(|start| **start <= before && **start < self.end);
        self.start = *at.unwrap();
    }

    fn check(&self, found: &Recording) {
        assert_eq!(found.label, self.label);
        assert_eq!(found.start.position, self.start);
        assert_eq!(found.end.position, self.end);
        assert_eq!(found.start.message, self.first_message());
        assert_eq!(found.end.message, self.messages.len() as u64);
        let from = |message: &&Message| message.position >= self.start;
        assert_eq!(
            found.messages(),
            self.messages.iter().filter(from).count() as u64
        );
    }
}

/// An archive, its twin, and the writers at work.
struct ArchiveWorld {
    rng: Rng,
    now: u64,
    storage: MemoryStorage,
    archive: Option<Archive>,
    writers: BTreeMap<RecordingId, Writer>,
    twins: BTreeMap<RecordingId, RecordingTwin>,
    next: u64,
    done: BTreeMap<&'static str, u64>,
}

impl ArchiveWorld {
    fn new(seed: u64) -> ArchiveWorld {
        let storage = MemoryStorage::new();
        let archive = Some(open(&storage).0);
        ArchiveWorld {
            rng: Rng::from_seed(seed),
            now: 1_000,
            storage,
            archive,
            writers: BTreeMap::new(),
            twins: BTreeMap::new(),
            next: 1,
            done: BTreeMap::new(),
        }
    }

    fn archive(&mut self) -> &mut Archive {
        self.archive.as_mut().unwrap()
    }

    /// One that is there, if there are any.
    fn any(&mut self) -> Option<RecordingId> {
        let ids: Vec<RecordingId> = self.twins.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.rng.index(ids.len())])
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn start(&mut self) {
        if self.twins.len() >= 4 {
            return;
        }
        let id = RecordingId(self.next);
        let options = RecordingOptions {
            label: format!("recording {}", self.next),
            segment_length: [1_024, 1_500, 6_000][self.rng.index(3)],
            durability: match self.rng.below(3) {
                0 => Durability::None,
                1 => Durability::Group {
                    milliseconds: 1,
                    bytes: 700,
                },
                _ => Durability::Batch,
            },
        };
        let now = self.now;
        let writer = self.archive().start(&options, now).unwrap();
        assert_eq!(writer.recording(), id);
        let twin = RecordingTwin::new(&options.label, options.segment_length, self.now);
        self.twins.insert(id, twin);
        self.writers.insert(id, writer);
        self.next += 1;
        self.did("start");
    }

    fn append(&mut self) {
        let ids: Vec<RecordingId> = self.writers.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.index(ids.len())];
        let count = [0, 1, 1, 3, 8][self.rng.index(5)];
        let length_max = [0, 40, 200, 1_400][self.rng.index(4)];
        let messages: Vec<Vec<u8>> = (0..count)
            .map(|_| vec![self.rng.word() as u8; self.rng.index(length_max + 1)])
            .collect();
        let (writer, twin) = (
            self.writers.get_mut(&id).unwrap(),
            self.twins.get_mut(&id).unwrap(),
        );
        let before = writer.durable();
        let appended = if self.rng.below(2) == 0 {
            let messages = messages.iter().map(Vec::as_slice);
            writer.append_batch(messages, self.now)
        } else {
            let mut batch = Batch::default();
            assert!(
                messages
                    .iter()
                    .all(|message| batch.push_checksummed(3, message))
            );
            writer.append_block(&mut batch, self.now)
        };
        let appended = appended.unwrap();
        assert_eq!(appended.first_message, twin.messages.len() as u64);
        twin.append(messages, self.now);
        assert_eq!(appended.end, twin.end);
        if let Some(first) = twin.messages.get(appended.first_message as usize) {
            assert_eq!(appended.first, first.position);
        }
        assert!(appended.durable >= before && appended.durable <= appended.end);
        assert_eq!(appended.durable, writer.progress().durable());
        self.did("append");
    }

    fn end_writer(&mut self) {
        let Some((id, mut writer)) = self.writers.pop_first() else {
            return;
        };
        match self.rng.below(4) {
            0 => drop(writer),
            1 => {
                writer.sync().unwrap();
                assert_eq!(writer.durable(), writer.end());
                self.writers.insert(id, writer);
            }
            _ => {
                let end = writer.stop(self.now).unwrap();
                assert_eq!(end.durable, self.twins[&id].end);
            }
        }
        self.did("end writer");
    }

    fn extend(&mut self) {
        let Some(id) = self.any() else { return };
        let now = self.now;
        let extended = self.archive().extend(id, now);
        if self.writers.contains_key(&id) {
            assert!(matches!(extended, Err(ArchiveError::BeingRecorded { .. })));
            return;
        }
        let writer = extended.unwrap();
        assert_eq!(writer.end(), self.twins[&id].end);
        self.writers.insert(id, writer);
        self.did("extend");
    }

    /// A place that may be asked for, and some that may not.
    fn place(&mut self, id: RecordingId) -> Position {
        let twin = &self.twins[&id];
        let places: Vec<Position> = (twin.messages.iter())
            .flat_map(|message| [message.position, message.block])
            .chain(twin.segments.iter().copied())
            .chain([twin.start, twin.end, twin.end.plus(8)])
            .collect();
        places[self.rng.index(places.len())]
    }

    fn truncate(&mut self) {
        let Some(id) = self.any() else { return };
        let (place, now) = (self.place(id), self.now);
        let truncated = self.archive().truncate(id, place, now);
        let twin = self.twins.get_mut(&id).unwrap();
        if self.writers.contains_key(&id) {
            assert!(matches!(truncated, Err(ArchiveError::BeingRecorded { .. })));
        } else if place < twin.start || place > twin.end {
            assert!(matches!(truncated, Err(ArchiveError::Outside { .. })));
        } else {
            let end = truncated.unwrap();
            twin.truncate(place);
            assert_eq!(end, twin.end, "truncated to {place}");
            self.did("truncate");
        }
    }

    fn move_start(&mut self) {
        let Some(id) = self.any() else { return };
        let (place, now, purge) = (self.place(id), self.now, self.rng.below(2) == 0);
        let archive = self.archive.as_mut().unwrap();
        let moved = if purge {
            archive.purge(id, place, now)
        } else {
            archive.detach(id, place, now)
        };
        let twin = self.twins.get_mut(&id).unwrap();
        if place < twin.start || place > twin.end {
            assert!(matches!(moved, Err(ArchiveError::Outside { .. })));
            return;
        }
        twin.move_start(place);
        assert_eq!(moved.unwrap(), twin.start);
        if purge {
            let start = twin.start;
            twin.segments.retain(|segment| *segment >= start);
        }
        self.did(if purge { "purge" } else { "detach" });
    }

    fn attach(&mut self) {
        let Some(id) = self.any() else { return };
        let now = self.now;
        let start = self.archive().attach(id, now).unwrap();
        let twin = self.twins.get_mut(&id).unwrap();
        twin.start = twin.segments[0];
        assert_eq!(start, twin.start);
        self.did("attach");
    }

    fn rarely(&mut self) {
        let now = self.now;
        match self.rng.below(4) {
            0 => {
                let Some(id) = self.any() else { return };
                let deleted = self.archive().delete(id, now);
                if self.writers.contains_key(&id) {
                    assert!(matches!(deleted, Err(ArchiveError::BeingRecorded { .. })));
                } else {
                    deleted.unwrap();
                    self.twins.remove(&id);
                    self.did("delete");
                }
            }
            1 => {
                let Some(id) = self.any() else { return };
                let label = format!("label {now}");
                self.archive().relabel(id, &label, now).unwrap();
                self.twins.get_mut(&id).unwrap().label = label;
                self.did("relabel");
            }
            2 => {
                let before = self.archive().catalog();
                self.archive().compact().unwrap();
                assert_eq!(self.archive().catalog(), before);
                self.did("compact");
            }
            _ => self.reopen(),
        }
    }

    /// The process ends, sometimes in the middle of a write.
    fn reopen(&mut self) {
        self.archive = None;
        let live: Vec<RecordingId> = std::mem::take(&mut self.writers).into_keys().collect();
        let files = self.storage.files();
        self.storage = MemoryStorage::from_files(&files);
        let (archive, recovered) = open(&self.storage);
        assert!(recovered.problems.is_empty(), "{:?}", recovered.problems);
        assert!(recovered.orphans.is_empty() && recovered.catalog.is_none());
        for id in live {
            let found = recovered
                .recordings
                .iter()
                .find(|found| found.recording == id);
            let found = found.unwrap();
            assert_eq!((found.end, found.cuts.len()), (self.twins[&id].end, 0));
        }
        self.archive = Some(archive);
        self.did("reopen");
    }

    fn check(&self) {
        let archive = self.archive.as_ref().unwrap();
        let found = archive.list(&RecordingFilter::default());
        assert!(
            found
                .iter()
                .map(|found| found.id)
                .eq(self.twins.keys().copied())
        );
        let view = Archive::view(Arc::new(self.storage.clone()), Path::new(FOLDER)).unwrap();
        assert_eq!(view.len(), found.len());
        for recording in &found {
            let twin = &self.twins[&recording.id];
            twin.check(recording);
            twin.check(view.recording(recording.id).unwrap());
            let described = archive.describe(recording.id).unwrap();
            assert_eq!(described.is_live, self.writers.contains_key(&recording.id));
            let files = described.detached.iter().chain(&described.segments);
            assert!(
                files
                    .map(|segment| segment.start)
                    .eq(twin.segments.iter().copied())
            );
            let read = contents(&self.storage, recording.id);
            // Those of detached segments are read too, those of purged ones are gone.
            let first = twin.messages.len() - read.len();
            for (message, read) in twin.messages[first..].iter().zip(&read) {
                assert_eq!((message.position, &message.bytes), (read.0, &read.1));
            }
            assert!(first as u64 <= twin.first_message());
        }
    }
}

#[test]
fn random_operations_leave_what_a_list_of_messages_says() {
    let mut done = BTreeMap::new();
    for seed in 0..80 {
        println!("seed {seed}");
        let mut world = ArchiveWorld::new(seed);
        for _ in 0..120 {
            world.now += world.rng.below(1_500_000);
            match world.rng.below(20) {
                0 => world.start(),
                1..=10 => world.append(),
                11 => world.end_writer(),
                12 | 13 => world.extend(),
                14 | 15 => world.truncate(),
                16 | 17 => world.move_start(),
                18 => world.attach(),
                _ => world.rarely(),
            }
            world.check();
        }
        for (what, count) in world.done {
            *done.entry(what).or_insert(0) += count;
        }
    }
    println!("{done:?}");
    assert_eq!(done.len(), 12);
    assert!(done.values().all(|count| *count >= 20), "{done:?}");
}
