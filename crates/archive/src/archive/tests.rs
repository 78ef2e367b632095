use super::*;
use crate::recording::Durability;
use seatrial_sim::MemoryStorage;
use std::path::Path;

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
