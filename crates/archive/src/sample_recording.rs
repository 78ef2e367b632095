//! Recordings built for tests, together with the messages that a reader of them must return.

use crate::batch::Batch;
use crate::catalog::{Boundary, CATALOG, CatalogEvent, EventKind};
use crate::recording::Durability;
use crate::segment::{SegmentHeader, SegmentName};
use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::{self, BlockKind};
use seatrial_machine::{Rng, Storage};
use seatrial_sim::{FileTree, MemoryStorage};
use std::path::Path;
use std::sync::Arc;

pub(crate) const RECORDING: RecordingId = RecordingId(7);
pub(crate) const FOLDER: &str = "a";

/// A message as a reader must return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) position: Position,
    pub(crate) number: u64,
    pub(crate) time: u64,
    pub(crate) flags: u32,
    pub(crate) payload: Vec<u8>,
}

/// A recording built for a test: the bytes of its segments, and the messages in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleRecording {
    pub(crate) segments: Vec<(Position, Vec<u8>)>,
    pub(crate) messages: Vec<Seen>,
    /// Start positions of the batches.
    pub(crate) blocks: Vec<Position>,
    pub(crate) sequence: u64,
    pub(crate) time: u64,
    /// The tag in its blocks.
    pub(crate) tag: Option<RecordingTag>,
    /// Is it stopped in the catalog?
    pub(crate) is_stopped: bool,
}

impl SampleRecording {
    pub(crate) fn end(&self) -> Position {
        let (start, bytes) = self.segments.last().unwrap();
        start.plus(bytes.len() as u64)
    }

    pub(crate) fn begin_segment(&mut self, start: Position) {
        let header = SegmentHeader {
            recording: RECORDING,
            start,
            first_message: self.messages.len() as u64,
            segment_length: 4096,
            time: self.time,
        };
        self.segments
            .push((start, header.block(self.sequence, self.tag)));
        self.sequence += 1;
    }

    pub(crate) fn append(&mut self, rng: &mut Rng, count: usize, length_max: usize) {
        self.time += rng.below(3);
        let mut batch = Batch::with_capacity(1 << 20);
        let (start, first) = (self.end(), self.messages.len() as u64);
        for index in 0..count {
            let length = rng.index(length_max + 1);
            let payload: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
            let flags = rng.below(8) as u32;
            self.messages.push(Seen {
                position: start.plus(batch.block_length() as u64),
                number: first + index as u64,
                time: self.time,
                flags,
                payload: payload.clone(),
            });
            let fits = if rng.chance(0.5) {
                batch.push(flags, &payload)
            } else {
                batch.push_checksummed(flags, &payload)
            };
            assert!(fits);
        }
        let block = batch.seal(self.tag, self.sequence, 0, self.time, first);
        self.sequence += 1;
        self.blocks.push(start);
        self.segments.last_mut().unwrap().1.extend_from_slice(block);
    }

    /// A random recording: up to 5 segments of up to 5 batches.
    pub(crate) fn random(rng: &mut Rng) -> SampleRecording {
        let mut tape = SampleRecording {
            time: 1_000,
            sequence: rng.below(2) * 5,
            is_stopped: rng.chance(0.5),
            tag: rng.chance(0.7).then(|| RecordingTag(rng.word() as u32)),
            ..SampleRecording::default()
        };
        let mut start = Position(rng.below(3) * 800);
        for _ in 0..=rng.index(4) {
            tape.begin_segment(start);
            for _ in 0..rng.index(6) {
                let length_max = if rng.chance(0.2) { 3_000 } else { 60 };
                let count = rng.index(8);
                tape.append(rng, count, length_max);
            }
            start = tape.end();
        }
        tape
    }

    pub(crate) fn tree(&self) -> FileTree {
        let mut tree = FileTree::default();
        tree.insert_folder(FOLDER);
        for (start, bytes) in &self.segments {
            tree.insert(Path::new(FOLDER).join(name(*start).file()), bytes.clone());
        }
        tree.insert(Path::new(FOLDER).join(CATALOG), self.catalog());
        tree
    }

    /// The recording's start, from its first block.
    fn start(&self) -> Boundary {
        let (position, bytes) = &self.segments[0];
        let header = block::BlockHeader::decode(bytes.first_chunk().unwrap()).unwrap();
        let payload = &bytes[block::HEADER_LENGTH..][..header.payload_length as usize];
        let segment = SegmentHeader::decode(header.kind, payload).unwrap();
        Boundary {
            position: *position,
            message: segment.first_message,
            sequence: header.sequence,
            time: segment.time,
        }
    }

    fn catalog(&self) -> Vec<u8> {
        let started = EventKind::Started {
            tag: self.tag,
            start: self.start(),
            segment_length: 4096,
            durability: Durability::None,
            label: String::new(),
        };
        let stopped = EventKind::Stopped {
            end: Boundary {
                position: self.end(),
                message: self.messages.len() as u64,
                sequence: self.sequence,
                time: self.time,
            },
        };
        let count = if self.is_stopped { 2 } else { 1 };
        let mut bytes = Vec::new();
        for (kind, sequence) in [started, stopped].into_iter().zip(0..count) {
            let event = CatalogEvent {
                recording: RECORDING,
                time: 0,
                kind,
            };
            let begun = block::begin(&mut bytes);
            event.encode(&mut bytes);
            block::finish_plain(&mut bytes, begun, BlockKind::CATALOG, 0, sequence);
        }
        bytes
    }

    pub(crate) fn storage(&self, lends: bool) -> Arc<dyn Storage> {
        let storage = MemoryStorage::from_files(&self.tree());
        if lends {
            Arc::new(storage.lending())
        } else {
            Arc::new(storage)
        }
    }
}

pub(crate) fn name(start: Position) -> SegmentName {
    SegmentName {
        recording: RECORDING,
        start,
    }
}

/// Three segments of a few short blocks.
pub(crate) fn small() -> SampleRecording {
    let mut rng = Rng::from_seed(11);
    let mut tape = SampleRecording {
        tag: Some(RecordingTag(0x5ea7_ab1e)),
        ..SampleRecording::default()
    };
    tape.begin_segment(Position(0));
    tape.append(&mut rng, 2, 9);
    tape.append(&mut rng, 1, 5);
    tape.begin_segment(tape.end());
    tape.append(&mut rng, 3, 9);
    tape.begin_segment(tape.end());
    tape.append(&mut rng, 1, 700);
    tape
}
