use super::*;
use crate::batch::{BATCH_FRAMES_OFFSET, BatchHeader};
use crate::recording::Durability;
use crate::{BlockKind, Frames, Walker};
use seatrial_sim::MemoryStorage;
use std::path::Path;

mod damage;
mod faults;
mod twin;

const FOLDER: &str = "recordings";

fn open(storage: &MemoryStorage) -> (Archive, Recovered) {
    Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1_000).unwrap()
}

fn options(segment_length: u64) -> RecordingOptions {
    RecordingOptions {
        label: "label".to_owned(),
        segment_length,
        durability: Durability::None,
    }
}

/// Every message in the files of a recording with its position, read by hand.
fn contents(storage: &MemoryStorage, id: RecordingId) -> Vec<(Position, Vec<u8>)> {
    let files = storage.files();
    let mut read = Vec::new();
    let mut next: Option<(Position, u64)> = None;
    for (path, bytes) in files.iter() {
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = SegmentName::parse(file).filter(|name| name.recording == id) else {
            continue;
        };
        assert!(next.is_none_or(|(end, _)| end == name.start), "{file}");
        let mut walker = Walker::new(&**bytes, 0);
        while let Some(block) = walker.next_block().unwrap() {
            let sequence = block.header.sequence;
            assert!(next.is_none_or(|(_, next)| next == sequence), "{file}");
            let at = name.start.plus(block.offset);
            next = Some((at.plus(block.header.block_length()), sequence + 1));
            if block.header.kind == BlockKind::BATCH {
                let base = at.plus(BATCH_FRAMES_OFFSET as u64);
                let (_, frames) = BatchHeader::decode(block.header.kind, block.payload).unwrap();
                for frame in Frames::new(frames) {
                    let frame = frame.unwrap();
                    read.push((base.plus(frame.offset as u64), frame.payload.to_vec()));
                }
            }
        }
    }
    read
}

#[test]
fn a_recording_is_found_again_with_its_end_and_goes_on_from_there() {
    let storage = MemoryStorage::new();
    let (mut archive, recovered) = open(&storage);
    assert!(recovered.is_clean());
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    let id = writer.recording();
    let first = writer.append_batch([&b"one"[..], b"two"], 6).unwrap();
    assert_eq!((first.first, first.end), (Position(128), Position(160)));
    for _ in 0..20 {
        writer.append_batch([&[7; 100][..]], 7).unwrap();
    }
    let end = writer.end();
    assert!(matches!(
        archive.extend(id, 8),
        Err(ArchiveError::BeingRecorded { .. })
    ));
    assert_eq!(archive.describe(id).unwrap().recording.messages(), 22);
    drop((writer, archive));

    let (mut archive, recovered) = open(&storage);
    assert_eq!(recovered.recordings.len(), 1);
    assert_eq!(recovered.recordings[0].end, end);
    let found = archive.describe(id).unwrap();
    assert_eq!(found.recording.end.message, 22);
    assert_eq!(found.segments.len(), 4);
    let writer = archive.extend(id, 9).unwrap();
    assert_eq!((writer.end(), writer.next_message()), (end, 22));
    writer.stop(10).unwrap();
    drop(archive);
    assert!(open(&storage).1.is_clean());
}
