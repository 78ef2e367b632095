use super::*;
use crate::batch::{BATCH_FRAMES_OFFSET, BatchHeader};
use crate::recording::AppendError;
use crate::recording::Durability;
use seatrial_blocks::{BlockHeader, BlockKind, Frames, Walker};
use seatrial_machine::Storage;
use seatrial_sim::MemoryStorage;
use std::path::Path;

mod catalog_repair;
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
fn a_recording_is_found_again_with_its_end_and_extended() {
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

#[test]
fn a_catalog_does_not_grow_without_end() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let length = |storage: &MemoryStorage| {
        let files = storage.files();
        files.get(Path::new(FOLDER).join("catalog")).unwrap().len()
    };
    let id = archive.start(&options(1_024), 5).unwrap().recording();
    let mut longest = 0;
    for time in 0..2_000 {
        let writer = archive.extend(id, 10 + time).unwrap();
        writer.stop(10 + time).unwrap();
        longest = longest.max(length(&storage));
    }
    // Each of the 4,000 events has 88 bytes.
    assert!((60 << 10..66 << 10).contains(&longest), "{longest}");
    let label = "x".repeat(1_000);
    for time in 3_000..3_300 {
        let options = RecordingOptions {
            label: label.clone(),
            ..options(1_024)
        };
        archive.start(&options, time).unwrap().stop(time).unwrap();
    }
    // All of it is needed, so it is left as it is.
    assert!(length(&storage) > 300 * 1_000, "{}", length(&storage));
    let before = archive.catalog();
    drop(archive);
    let (archive, recovered) = open(&storage);
    assert!(recovered.is_clean(), "{recovered:?}");
    assert_eq!(archive.catalog(), before);
    assert_eq!(before.len(), 301);
}

#[test]
fn a_copy_has_the_same_positions_and_refuses_what_does_not_come_next() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    for byte in 0..30 {
        writer.append_batch([&[byte; 90][..], b"short"], 6).unwrap();
    }
    let id = writer.recording();
    writer.stop(7).unwrap();
    let start = archive.purge(id, Position(3_000), 8).unwrap();
    assert!(start.0 > 2_000);
    let of = archive.describe(id).unwrap().recording;

    let blocks: Vec<(Position, Vec<u8>)> = batches(&storage, id);
    let source = Source {
        archive: "tcp://there".to_owned(),
        recording: id,
    };
    let copy = archive.start_copy(&options(1_024), source.clone(), of.start, 9);
    let mut copy = copy.unwrap();
    let copied = copy.recording();
    for (index, (position, bytes)) in blocks.iter().enumerate() {
        if index == 4 {
            // Resumed after the process ended.
            drop((copy, archive));
            archive = open(&storage).0;
            copy = archive.extend(copied, 10).unwrap();
        }
        let next = &blocks[(index + 1) % blocks.len()];
        let wrong = copy.append_copied(next.0, &next.1, 10);
        assert!(matches!(wrong, Err(AppendError::Next { .. })), "{wrong:?}");
        let wrong = copy.append_copied(position.plus(8), bytes, 10);
        assert!(matches!(wrong, Err(AppendError::Next { .. })), "{wrong:?}");
        for bit in (0..bytes.len() * 8).step_by(61) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                copy.append_copied(*position, &flipped, 10).is_err(),
                "bit {bit}"
            );
        }
        for length in 0..bytes.len() {
            assert!(copy.append_copied(*position, &bytes[..length], 10).is_err());
        }
        copy.append_copied(*position, bytes, 10).unwrap();
    }
    copy.stop(11).unwrap();
    let found = archive.describe(copied).unwrap().recording;
    assert_eq!((found.start, found.end), (of.start, of.end));
    assert_eq!(found.source, Some(source));
    assert_eq!(contents(&storage, copied), contents(&storage, id));
    let copies = batches(&storage, copied);
    assert_eq!(copies.len(), blocks.len());
    for ((position, copy), (expected, block)) in copies.iter().zip(&blocks) {
        assert_eq!(position, expected);
        assert!(
            seatrial_blocks::block::is_same_content(copy, block),
            "{position}"
        );
        let header = BlockHeader::decode(copy.first_chunk().unwrap()).unwrap();
        assert_eq!(header.tag(), found.tag);
        assert_ne!(header.tag(), of.tag);
    }
}

/// Every batch in the files of a recording with its position.
fn batches(storage: &MemoryStorage, id: RecordingId) -> Vec<(Position, Vec<u8>)> {
    let files = storage.files();
    let mut read = Vec::new();
    for (path, bytes) in files.iter() {
        let file = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = SegmentName::parse(file).filter(|name| name.recording == id) else {
            continue;
        };
        let mut walker = Walker::new(&**bytes, 0);
        while let Some((offset, header)) = walker.next_header().unwrap() {
            if header.kind == BlockKind::BATCH {
                let end = offset + header.block_length();
                let block = bytes[offset as usize..end as usize].to_vec();
                read.push((name.start.plus(offset), block));
            }
        }
    }
    read
}

#[test]
fn positions_inside_messages_and_headers_are_refused_with_their_neighbours() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    let id = writer.recording();
    writer
        .append_batch([&[1; 20][..], &[2; 20], &[3; 20]], 6)
        .unwrap();
    writer.append_batch([&[4; 990][..]], 6).unwrap();
    writer.stop(7).unwrap();
    // Segment 0: header to 72, block at 72, messages at 128, 160, 192 up to 224. The next segment starts there.
    let before = storage.files();
    for (position, neighbours) in [
        (8, (0, 72)),
        (80, (72, 128)),
        (136, (128, 160)),
        (184, (160, 192)),
        (200, (192, 224)),
        (232, (224, 296)),
        (304, (296, 352)),
        (360, (352, 1_352)),
    ] {
        let refused = archive.truncate(id, Position(position), 8);
        let Err(ArchiveError::Inside { before, after, .. }) = refused else {
            panic!("{position}: {refused:?}");
        };
        assert_eq!((before.0, after.0), neighbours, "{position}");
    }
    assert_eq!(storage.files(), before);
    for (position, end) in [
        (1_352, 1_352),
        (352, 296),
        (224, 224),
        (160, 160),
        (128, 72),
        (0, 72),
    ] {
        assert_eq!(
            archive.truncate(id, Position(position), 8).unwrap(),
            Position(end)
        );
    }
}

#[test]
fn impossible_requests_are_refused_by_name() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let there = Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1);
    assert!(matches!(there, Err(ArchiveError::Locked { .. })));
    let id = RecordingId(1);
    assert!(matches!(
        archive.extend(id, 1),
        Err(ArchiveError::Unknown { .. })
    ));
    assert!(matches!(
        archive.describe(id),
        Err(ArchiveError::Unknown { .. })
    ));
    assert!(matches!(
        archive.delete(id, 1),
        Err(ArchiveError::Unknown { .. })
    ));
    assert!(matches!(
        archive.relabel(id, "", 1),
        Err(ArchiveError::Unknown { .. })
    ));
    assert!(matches!(
        archive.attach(id, 1),
        Err(ArchiveError::Unknown { .. })
    ));
    for length in [0, SEGMENT_LENGTH_MIN - 1, SEGMENT_LENGTH_MAX + 1] {
        let refused = archive.start(&options(length), 1);
        assert!(matches!(refused, Err(ArchiveError::SegmentLength { .. })));
    }
    let long = RecordingOptions {
        label: "x".repeat(LABEL_LENGTH_MAX + 1),
        ..RecordingOptions::default()
    };
    assert!(matches!(
        archive.start(&long, 1),
        Err(ArchiveError::LabelLength { .. })
    ));
    assert!(archive.list(&RecordingFilter::default()).is_empty());
    let mut writer = archive.start(&options(1_024), 1).unwrap();
    let long = vec![0; crate::MESSAGE_LENGTH_MAX + 1];
    let refused = writer.append_batch([&b"before"[..], &long], 1);
    assert!(matches!(refused, Err(AppendError::MessageLength { .. })));
    assert_eq!(
        writer
            .append_batch([&b"behind"[..]], 1)
            .unwrap()
            .first_message,
        0
    );
    drop(archive);
    // The writer holds the lock as well.
    let there = Archive::open(Arc::new(storage.clone()), Path::new(FOLDER), 1);
    assert!(matches!(there, Err(ArchiveError::Locked { .. })));
    drop(writer);
    open(&storage);
}

#[test]
fn messages_of_all_lengths_are_split_into_blocks_and_time_never_runs_backwards() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1 << 20), 50).unwrap();
    let id = writer.recording();
    let lengths = [
        0, 1, 300_000, 5, 262_088, 100_000, 100_000, 100_000, 2_000_000, 7,
    ];
    let messages: Vec<Vec<u8>> = lengths.map(|length| vec![length as u8; length]).to_vec();
    let appended = writer
        .append_batch(messages.iter().map(Vec::as_slice), 40)
        .unwrap();
    assert_eq!(appended.first, Position(128));
    let read = contents(&storage, id);
    assert!(read.iter().map(|(_, bytes)| bytes).eq(&messages));
    let mut time = 50;
    let mut blocks = 0;
    for (_, bytes) in batches(&storage, id) {
        let (header, _) = BatchHeader::decode(BlockKind::BATCH, &bytes[32..]).unwrap();
        assert!(header.time >= time);
        time = header.time;
        blocks += 1;
    }
    assert_eq!(blocks, 8);
    let empty = writer.append_batch([], 60).unwrap();
    assert_eq!((empty.first_message, empty.end), (10, writer.end()));
    assert_eq!(empty.first, writer.end().plus(56));
}

#[test]
fn durability_levels_sync_when_they_say() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut start = |durability| {
        let options = RecordingOptions {
            durability,
            ..options(1_024)
        };
        archive.start(&options, 0).unwrap()
    };
    let message = || [&[0; 40][..]];
    let mut writer = start(Durability::None);
    let begin = writer.end();
    assert_eq!(writer.append_batch(message(), 1).unwrap().durable, begin);
    assert_eq!(writer.sync_at(), None);
    let rolled = writer.append_batch([&[0; 950][..]], 2).unwrap();
    assert_eq!(
        rolled.durable.0,
        72 + 104 + 72,
        "what is before a new segment is durable"
    );
    writer.sync().unwrap();
    assert_eq!(writer.durable(), writer.end());

    let mut writer = start(Durability::Batch);
    let appended = writer.append_batch(message(), 1).unwrap();
    assert_eq!(appended.durable, appended.end);

    let milliseconds = 3;
    let mut writer = start(Durability::Group {
        milliseconds,
        bytes: 300,
    });
    let begin = writer.end();
    assert_eq!(writer.sync_at(), None);
    for now in 1..3 {
        assert_eq!(writer.append_batch(message(), now).unwrap().durable, begin);
        assert_eq!(writer.sync_at(), Some(3_000_001));
    }
    let full = writer.append_batch(message(), 3).unwrap();
    assert_eq!((full.durable, writer.sync_at()), (full.end, None));
    writer.append_batch(message(), 10).unwrap();
    writer.tick(3_000_009).unwrap();
    assert_eq!(writer.durable(), full.end);
    writer.tick(3_000_010).unwrap();
    assert_eq!(writer.durable(), writer.end());
    // Written while the one before was not durable: no promise, so a hole before it is a torn tail.
    writer.append_batch(message(), 11).unwrap();
    writer.append_batch(message(), 12).unwrap();
    let flags = batches(&storage, writer.recording());
    let flags: Vec<u8> = flags.iter().map(|(_, bytes)| bytes[6] & 1).collect();
    assert_eq!(flags, [0, 1, 1, 0, 0, 1]);
}

#[test]
fn recordings_are_listed_by_label_time_and_position() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    for (number, label) in ["orders", "trades", "orders of today"]
        .into_iter()
        .enumerate()
    {
        let options = RecordingOptions {
            label: label.to_owned(),
            ..options(1_024)
        };
        let now = 100 * (number as u64 + 1);
        let mut writer = archive.start(&options, now).unwrap();
        for _ in 0..=number {
            writer.append_batch([&[0; 400][..]], now + 50).unwrap();
        }
        writer.stop(now + 60).unwrap();
    }
    let check = |set: &dyn Fn(&mut RecordingFilter), expected: &[u64]| {
        let mut filter = RecordingFilter::default();
        set(&mut filter);
        let listed = archive.list(&filter);
        assert!(
            listed
                .iter()
                .map(|one| one.id.0)
                .eq(expected.iter().copied())
        );
        assert!(archive.catalog().list(&filter).eq(&listed));
    };
    check(&|_| {}, &[1, 2, 3]);
    check(&|filter| filter.label = Some("orders".to_owned()), &[1, 3]);
    check(&|filter| filter.time = Some(0..=99), &[]);
    check(&|filter| filter.time = Some(150..=200), &[1, 2]);
    check(&|filter| filter.time = Some(151..=199), &[]);
    check(&|filter| filter.time = Some(350..=900), &[3]);
    check(&|filter| filter.position = Some(Position(600)), &[2, 3]);
    check(&|filter| filter.from = RecordingId(2), &[2, 3]);
    check(&|filter| filter.count_max = 1, &[1]);
}

#[test]
fn orphans_are_reported_and_removed_and_their_numbers_are_not_reused() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    archive.start(&options(1_024), 1).unwrap().stop(2).unwrap();
    drop(archive);
    let mut files = storage.files();
    let orphan = Path::new(FOLDER).join("0000000007-00000000000000000000.segment");
    let behind = Path::new(FOLDER).join("0000000001-00000000000000000072.segment");
    let half = Path::new(FOLDER).join("0000000001-00000000000000000000.segment.new");
    for path in [&orphan, &behind, &half] {
        files.insert(path, b"anything".to_vec());
    }
    let storage = MemoryStorage::from_files(&files);
    let (mut archive, recovered) = open(&storage);
    assert_eq!(recovered.orphans, [behind.clone(), orphan.clone()]);
    assert_eq!(recovered.removed, [half]);
    assert_eq!(
        archive.start(&options(1_024), 3).unwrap().recording(),
        RecordingId(8)
    );
    assert_eq!(archive.remove_orphans().unwrap(), [behind, orphan]);
    assert!(archive.orphans().unwrap().is_empty());
    assert!(archive.extend(RecordingId(1), 4).is_ok());
}

#[test]
fn segments_that_were_moved_away_are_attached_again_after_they_were_checked() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    let id = writer.recording();
    for byte in 0..20 {
        writer.append_batch([&[byte; 300][..]], 6).unwrap();
    }
    let whole = contents(&storage, id);
    let before = storage.files();
    // While it is being recorded.
    let start = archive.purge(id, writer.end(), 7).unwrap();
    writer.append_batch([&b"behind"[..]], 8).unwrap();
    assert_eq!(
        archive.attach(id, 9).unwrap(),
        start,
        "there is nothing to attach"
    );
    drop((writer, archive));

    let mut files = storage.files();
    let mut put_back = Vec::new();
    for (path, bytes) in before.iter() {
        if files.get(path).is_none() {
            files.insert(path, bytes.clone());
            put_back.push(path.to_owned());
        }
    }
    let storage = MemoryStorage::from_files(&files);
    let (mut archive, recovered) = open(&storage);
    assert!(recovered.orphans.is_empty());
    assert_eq!(archive.attach(id, 10).unwrap(), Position(0));
    let found = archive.describe(id).unwrap().recording;
    assert_eq!((found.messages(), found.start.time), (21, 5));
    assert_eq!(contents(&storage, id)[..20], whole);
    drop(archive);

    // The nearest, then one that is not the nearest, is damaged.
    for damaged in [put_back.len() - 1, 0] {
        let path = &put_back[damaged];
        let mut files = files.clone();
        let mut bytes = files.get(path).unwrap().to_vec();
        bytes[300] ^= 1;
        files.insert(path, bytes);
        let (mut archive, _) = open(&MemoryStorage::from_files(&files));
        let refused = archive.attach(id, 10).unwrap_err();
        assert!(
            refused.to_string().contains(path.to_str().unwrap()),
            "{refused}"
        );
        assert_eq!(
            archive.describe(id).unwrap().recording.start.position,
            start
        );
    }
}

#[test]
fn an_open_reader_of_a_truncated_segment_keeps_what_it_was() {
    let storage = MemoryStorage::new();
    let (mut archive, _) = open(&storage);
    let mut writer = archive.start(&options(1_024), 5).unwrap();
    let id = writer.recording();
    let first = writer
        .append_batch([&b"one"[..], b"two", b"three"], 6)
        .unwrap();
    writer.stop(7).unwrap();
    let path = archive.describe(id).unwrap().segments[0].file.clone();
    let reader = storage.open(&path).unwrap();
    let before = reader.len();
    archive.truncate(id, first.first.plus(16), 8).unwrap();
    assert_eq!(
        (reader.len(), storage.open(&path).unwrap().len()),
        (before, 144)
    );
    let mut writer = archive.extend(id, 9).unwrap();
    let appended = writer.append_batch([&b"other"[..]], 10).unwrap();
    assert_eq!(appended.first_message, 1);
    let found: Vec<Vec<u8>> = contents(&storage, id)
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(found, [b"one".to_vec(), b"other".to_vec()]);
}
