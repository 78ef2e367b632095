//! Readers concurrent with a writer: another thread, another process, a recovery, a truncation.

use super::*;
use crate::{Archive, Batch, Durability, RecordingOptions, Writer};
use seatrial_blocks::block::BlockKind;
use seatrial_blocks::file::Files;
use seatrial_blocks::{RecordingTag, block};

const HERE: &str = "recordings";

/// An archive with one recording.
struct Desk {
    storage: Arc<dyn Storage>,
    folder: PathBuf,
    archive: Archive,
}

impl Desk {
    fn new(storage: Arc<dyn Storage>, folder: &Path) -> (Desk, Writer) {
        let (mut archive, _) = Archive::open(Arc::clone(&storage), folder, 0).unwrap();
        let options = RecordingOptions {
            label: String::new(),
            segment_length: 4_096,
            durability: Durability::None,
        };
        let writer = archive.start(&options, 0).unwrap();
        let folder = folder.to_owned();
        let desk = Desk {
            storage,
            folder,
            archive,
        };
        (desk, writer)
    }

    fn in_memory() -> (Desk, Writer) {
        Desk::new(Arc::new(MemoryStorage::new().lending()), Path::new(HERE))
    }

    fn tag(&self) -> Option<RecordingTag> {
        self.archive.recording(RecordingId(1)).unwrap().tag
    }

    fn cursor(&self, from: impl Into<Origin>, bound: CursorBound) -> Cursor {
        let storage = Arc::clone(&self.storage);
        Cursor::open(storage, &self.folder, RecordingId(1), from, bound).unwrap()
    }
}

/// A message that says its number, of some length.
fn message(number: u64) -> Vec<u8> {
    let length = 8 + (number * 7_919 % 90) as usize;
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Appends messages `from..to`, one to five at a time.
fn append(writer: &mut Writer, from: u64, to: u64) {
    let mut next = from;
    while next < to {
        let count = (1 + next % 5).min(to - next);
        let messages: Vec<Vec<u8>> = (next..next + count).map(message).collect();
        let messages = messages.iter().map(Vec::as_slice);
        let appended = writer.append_batch(messages, next).unwrap();
        assert_eq!(appended.first_message, next);
        next += count;
    }
}

/// Reads what is there, which has to go on with message `next`; answers with the number behind the last one.
fn take(cursor: &mut Cursor, next: u64) -> Result<u64, CursorError> {
    let mut next = next;
    while let Some(block) = cursor.next_block()? {
        assert_eq!(block.first_message(), next);
        for found in block.messages() {
            assert_eq!(found.payload, message(next));
            next += 1;
        }
    }
    Ok(next)
}

/// Reads until the recording is stopped.
fn take_all(cursor: &mut Cursor, next: u64) -> u64 {
    let mut next = next;
    loop {
        next = take(cursor, next).unwrap();
        match cursor.pause() {
            Pause::Live => std::thread::yield_now(),
            Pause::Stopped => return next,
            Pause::Reached => panic!("without a bound"),
        }
    }
}

fn many_readers_beside_one_writer(desk: &Desk, mut writer: Writer) {
    const COUNT: u64 = 20_000;
    append(&mut writer, 0, 700);
    let progress = writer.progress();
    let live = || CursorBound::Live(Arc::clone(&progress));
    let mut cursors = vec![
        (desk.cursor(Origin::Start, live()), 0),
        (desk.cursor(Origin::Start, CursorBound::Follow), 0),
        (desk.cursor(Origin::End, live()), 700),
        (desk.cursor(Origin::Message(650), CursorBound::Follow), 650),
        (
            desk.cursor(Origin::Time(690), live())
                .without_frame_checksums(),
            0,
        ),
    ];
    // The first batch of that time or later.
    let (cursor, next) = cursors.last_mut().unwrap();
    *next = cursor.next_block().unwrap().unwrap().first_message();
    *cursor = desk.cursor(Origin::Time(690), live());
    let mut until = desk.cursor(Origin::Start, CursorBound::To(Position(300_000)));
    std::thread::scope(|scope| {
        for (mut cursor, next) in cursors {
            scope.spawn(move || assert_eq!(take_all(&mut cursor, next), COUNT));
        }
        scope.spawn(move || {
            let mut next = 0;
            while until.pause() != Pause::Reached {
                next = take(&mut until, next).unwrap();
                assert_ne!(until.pause(), Pause::Stopped);
            }
            assert_eq!(until.position(), Position(300_000));
        });
        append(&mut writer, 700, COUNT);
        assert!(writer.end() > Position(1_000_000));
        writer.stop(COUNT).unwrap();
    });
}

#[test]
fn readers_in_threads_miss_nothing_and_get_nothing_twice() {
    let (desk, writer) = Desk::new(Arc::new(MemoryStorage::new()), Path::new(HERE));
    many_readers_beside_one_writer(&desk, writer);
}

#[test]
fn readers_of_real_files_miss_nothing_and_get_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, writer) = Desk::new(Arc::new(Files), &folder.path().join("archive"));
    many_readers_beside_one_writer(&desk, writer);
}

#[test]
fn a_follower_sees_a_stop_and_continues_when_the_recording_is_extended() {
    let (mut desk, mut writer) = Desk::in_memory();
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    let mut end = desk.cursor(Origin::Start, CursorBound::End);
    assert_eq!(take(&mut follower, 0).unwrap(), 0);
    append(&mut writer, 0, 30);
    assert_eq!(take(&mut follower, 0).unwrap(), 30);
    assert_eq!(follower.pause(), Pause::Live);
    writer.stop(30).unwrap();
    assert_eq!(take(&mut follower, 30).unwrap(), 30);
    assert_eq!(follower.pause(), Pause::Stopped);
    let mut writer = desk.archive.extend(RecordingId(1), 31).unwrap();
    append(&mut writer, 30, 200);
    assert_eq!(take(&mut follower, 30).unwrap(), 200);
    assert_eq!(follower.pause(), Pause::Live);
    // What was recorded after it was opened is behind its bound.
    assert_eq!(take(&mut end, 0).unwrap(), 0);
    assert_eq!(end.pause(), Pause::Reached);
}

#[test]
fn a_block_that_is_being_written_is_nothing_yet_and_no_damage() {
    let (desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 3);
    let mut batch = Batch::default();
    assert!(batch.push(0, &message(3)));
    let mut torn = Vec::new();
    let block = batch
        .seal(desk.tag(), 3, block::flags::UNORDERED, 3, 3)
        .to_vec();
    let name = SegmentName {
        recording: RecordingId(1),
        start: Position(0),
    };
    let end = writer.end().0;
    let medium = desk
        .storage
        .open_write(&desk.folder.join(name.file()))
        .unwrap();
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    assert_eq!(take(&mut follower, 0).unwrap(), 3);
    for length in 0..block.len() {
        // The rest of it zero, or not there.
        torn.clear();
        torn.extend_from_slice(&block[..length]);
        medium.write_at(end, &torn).unwrap();
        assert_eq!(take(&mut follower, 3).unwrap(), 3, "{length}");
        assert_eq!(follower.pause(), Pause::Live);
        torn.resize(block.len(), 0);
        if torn != block {
            medium.write_at(end, &torn).unwrap();
            assert_eq!(take(&mut follower, 3).unwrap(), 3, "{length}");
            medium.set_len(end).unwrap();
        }
    }
    medium.write_at(end, &block).unwrap();
    assert_eq!(take(&mut follower, 3).unwrap(), 4);
}

#[test]
fn a_hole_before_a_newer_ordered_block_is_damage_to_a_follower() {
    let (desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 1);
    let end = writer.end().0;
    let mut bytes = Vec::new();
    for number in 1..3 {
        let start = block::begin(&mut bytes);
        bytes.extend_from_slice(&[0; 24]);
        let kind = (BlockKind::BATCH, 0);
        block::finish_tagged(&mut bytes, start, kind, number + 1, desk.tag());
    }
    bytes[40] ^= 1;
    let name = SegmentName {
        recording: RecordingId(1),
        start: Position(0),
    };
    let medium = desk
        .storage
        .open_write(&desk.folder.join(name.file()))
        .unwrap();
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    assert_eq!(take(&mut follower, 0).unwrap(), 1);
    medium.write_at(end, &bytes).unwrap();
    let error = take(&mut follower, 1).unwrap_err();
    let CursorError::Damaged {
        position, fault, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(position, Position(end));
    assert!(matches!(
        fault,
        BlockDamage::Block(Defect::PayloadChecksum { .. })
    ));
}

#[test]
fn a_follower_outlives_a_crash_of_the_writer_and_its_recovery() {
    let (desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 40);
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    assert_eq!(take(&mut follower, 0).unwrap(), 40);
    let description = desk.archive.describe(RecordingId(1)).unwrap();
    let last = description.segments.last().unwrap();
    // Half a block, and the process ends.
    let medium = desk.storage.open_write(&last.file).unwrap();
    medium
        .write_at(last.length, &[0x5e, 0xa1, 0xb1, 1, 4])
        .unwrap();
    assert_eq!(take(&mut follower, 40).unwrap(), 40);
    drop((writer, desk.archive));
    let (mut archive, recovered) =
        Archive::open(Arc::clone(&desk.storage), &desk.folder, 50).unwrap();
    assert!(!recovered.is_clean());
    assert_eq!(take(&mut follower, 40).unwrap(), 40);
    let mut writer = archive.extend(RecordingId(1), 51).unwrap();
    append(&mut writer, 40, 300);
    writer.stop(301).unwrap();
    assert_eq!(take_all(&mut follower, 40), 300);
}

#[test]
fn a_reader_gets_an_error_when_its_recording_is_truncated() {
    for bound in [CursorBound::End, CursorBound::Follow] {
        let (mut desk, mut writer) = Desk::in_memory();
        append(&mut writer, 0, 500);
        writer.stop(500).unwrap();
        let mut behind = desk.cursor(Origin::Start, bound.clone());
        let mut at_end = desk.cursor(Origin::Start, CursorBound::Follow);
        let mut before = desk.cursor(Origin::Start, bound);
        let mut next = 0;
        let mut cut = Position(0);
        while next < 250 {
            let block = behind.next_block().unwrap().unwrap();
            next = block.first_message() + u64::from(block.messages_count());
            if next < 200 {
                assert!(before.next_block().unwrap().is_some());
                cut = block.end();
            }
        }
        assert_eq!(take(&mut at_end, 0).unwrap(), 500);
        desk.archive.truncate(RecordingId(1), cut, 501).unwrap();
        // The files that are open go on; what comes behind them is gone.
        let error = take(&mut behind, next).unwrap_err();
        assert!(matches!(error, CursorError::Truncated { .. }), "{error}");
        let error = take(&mut at_end, 500).unwrap_err();
        assert!(matches!(error, CursorError::Truncated { .. }), "{error}");
        // One that is exactly at the cut continues with the new messages.
        let mut writer = desk.archive.extend(RecordingId(1), 502).unwrap();
        let first = writer.next_message();
        append(&mut writer, first, first + 300);
        let error = take(&mut at_end, 500).unwrap_err();
        assert!(matches!(error, CursorError::Truncated { .. }), "{error}");
        let mut again = desk.cursor(Origin::Start, CursorBound::Follow);
        assert_eq!(take(&mut again, 0).unwrap(), first + 300);
    }
}

#[test]
fn a_follower_at_a_truncation_continues_with_the_new_messages() {
    let (mut desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 3);
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    assert_eq!(take(&mut follower, 0).unwrap(), 3);
    let cut = follower.position();
    append(&mut writer, 3, 9);
    writer.stop(9).unwrap();
    desk.archive.truncate(RecordingId(1), cut, 10).unwrap();
    let mut writer = desk.archive.extend(RecordingId(1), 11).unwrap();
    append(&mut writer, 3, 200);
    // Its own file still holds the old messages: it lends those, and knows where they end.
    let seen = take(&mut follower, 3);
    assert!(
        matches!(seen, Err(CursorError::Truncated { .. })),
        "{seen:?}"
    );

    let (mut desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 3);
    writer.stop(9).unwrap();
    let mut follower = desk.cursor(Origin::Start, CursorBound::Follow);
    assert_eq!(take(&mut follower, 0).unwrap(), 3);
    assert_eq!(follower.pause(), Pause::Stopped);
    let mut writer = desk.archive.extend(RecordingId(1), 11).unwrap();
    append(&mut writer, 3, 9);
    writer.stop(9).unwrap();
    desk.archive
        .truncate(RecordingId(1), follower.position(), 10)
        .unwrap();
    let mut writer = desk.archive.extend(RecordingId(1), 11).unwrap();
    append(&mut writer, 3, 4);
    drop(writer);
}

#[test]
fn a_reader_gets_an_error_when_its_segments_are_purged_or_deleted() {
    let (mut desk, mut writer) = Desk::in_memory();
    append(&mut writer, 0, 500);
    let mut reader = desk.cursor(Origin::Start, CursorBound::Follow);
    let live = CursorBound::Live(writer.progress());
    let mut live = desk.cursor(Origin::Start, live);
    for cursor in [&mut reader, &mut live] {
        assert_eq!(cursor.next_block().unwrap().unwrap().first_message(), 0);
    }
    let end = writer.end();
    desk.archive.purge(RecordingId(1), end, 501).unwrap();
    for cursor in [&mut reader, &mut live] {
        // The first segment is open.
        let error = take(cursor, 1).unwrap_err();
        assert!(matches!(error, CursorError::Purged { .. }), "{error}");
        assert!(cursor.position() > Position(3_000));
    }
    let mut kept = desk.cursor(Origin::Start, CursorBound::Follow);
    let first = kept.next_block().unwrap().unwrap().first_message();
    assert!(first > 400);
    let behind = desk.cursor(Origin::Message(first), CursorBound::Follow);
    assert_eq!(
        behind.position(),
        kept.extent.start.plus(SEGMENT_BLOCK_LENGTH)
    );
    let early = Cursor::open(
        Arc::clone(&desk.storage),
        &desk.folder,
        RecordingId(1),
        Origin::Message(first - 1),
        CursorBound::End,
    );
    assert!(matches!(early, Err(CursorError::BeforeFirst { .. })));
    writer.stop(502).unwrap();
    desk.archive.delete(RecordingId(1), 503).unwrap();
    let next = kept.chain.as_ref().and_then(|chain| chain.message).unwrap();
    let error = take(&mut kept, next).unwrap_err();
    assert!(matches!(error, CursorError::Deleted { .. }), "{error}");
}
