mod fuzz;
mod live;

use super::*;
use crate::batch::Batch;
use crate::sample_recording::{FOLDER, RECORDING, SampleRecording, Seen, name, small};
use seatrial_machine::Rng;
use seatrial_sim::{FileTree, MemoryStorage};

fn open(
    storage: &Arc<dyn Storage>,
    from: impl Into<Origin>,
    bound: CursorBound,
) -> Result<Cursor, CursorError> {
    Cursor::open(
        Arc::clone(storage),
        Path::new(FOLDER),
        RECORDING,
        from,
        bound,
    )
}

/// Reads on until there is nothing more, checking what blocks say of themselves.
fn read_on(cursor: &mut Cursor, seen: &mut Vec<Seen>) -> Result<(), CursorError> {
    loop {
        let before = cursor.position();
        let Some(block) = cursor.next_block()? else {
            assert!(cursor.position() >= before.min(cursor.until));
            return Ok(());
        };
        assert!(block.position() >= before);
        let from = seen.len();
        for (index, message) in block.messages().enumerate() {
            seen.push(Seen {
                position: message.position,
                number: block.first_message() + index as u64,
                time: block.time(),
                flags: message.flags,
                payload: message.payload.to_vec(),
            });
        }
        assert!(seen.len() > from, "an empty block");
        assert_eq!(seen.len() - from, block.messages_count() as usize);
        assert_eq!(seen[from].position, block.position());
        let end = block.end();
        assert!(end.min(cursor.until) <= cursor.position());
    }
}

fn read(storage: &Arc<dyn Storage>, from: Origin, bound: CursorBound) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut cursor = open(storage, from, bound).unwrap();
    read_on(&mut cursor, &mut seen).unwrap();
    assert_eq!(cursor.pause(), Pause::Reached);
    seen
}

#[test]
fn any_range_of_any_recording_is_what_the_twin_says() {
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed);
        let tape = SampleRecording::random(&mut rng);
        let storage = tape.storage(rng.chance(0.5));
        let (start, end) = (tape.segments[0].0, tape.end());
        assert_eq!(
            read(&storage, Origin::Start, CursorBound::End),
            tape.messages,
            "seed {seed}"
        );
        for _ in 0..20 {
            let from = Position(start.0 + rng.below(end.since(start) + 1));
            let to = Position(start.0 + rng.below(end.since(start) + 1));
            let seen = read(&storage, Origin::Position(from), CursorBound::To(to));
            let twin = tape.messages.iter();
            let twin = twin.filter(|seen| (from..to).contains(&seen.position));
            assert!(seen.iter().eq(twin), "seed {seed}: {from} to {to}");
            let number = rng.below(tape.messages.len() as u64 + 2);
            let seen = read(&storage, Origin::Message(number), CursorBound::End);
            let twin = tape.messages.iter().filter(|seen| seen.number >= number);
            assert!(seen.iter().eq(twin), "seed {seed}: message {number}");
            let time = 998 + rng.below(tape.time - 998 + 2);
            let seen = read(&storage, Origin::Time(time), CursorBound::To(to));
            let twin = tape.messages.iter();
            let twin = twin.filter(|seen| seen.time >= time && seen.position < to);
            assert!(seen.iter().eq(twin), "seed {seed}: time {time} to {to}");
        }
    }
}

#[test]
fn a_cursor_from_where_another_was_left_continues_it() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let tape = SampleRecording::random(&mut rng);
        let storage = tape.storage(true);
        let mut seen = Vec::new();
        let mut cursor = open(&storage, Origin::Start, CursorBound::End).unwrap();
        while let Some(block) = cursor.next_block().unwrap() {
            // As if only some messages of the block were processed.
            let count = rng.index(block.messages_count() as usize + 1);
            let mut messages = block.messages();
            for message in messages.by_ref().take(count) {
                seen.push(message.payload.to_vec());
            }
            let (_, position) = messages.rest();
            cursor = open(&storage, position, CursorBound::End).unwrap();
        }
        let twin = tape.messages.iter().map(|message| &message.payload);
        assert!(seen.iter().eq(twin), "seed {seed}");
    }
}

#[test]
fn outside_of_the_recording_is_an_error() {
    let mut rng = Rng::from_seed(3);
    let mut tape = SampleRecording::default();
    tape.begin_segment(Position(800));
    tape.append(&mut rng, 3, 10);
    let storage = tape.storage(true);
    let error = open(&storage, Position(799), CursorBound::End).unwrap_err();
    assert!(matches!(
        error,
        CursorError::BeforeStart {
            start: Position(800),
            ..
        }
    ));
    let error = open(&storage, tape.end().plus(1), CursorBound::End).unwrap_err();
    assert!(matches!(error, CursorError::PastEnd { .. }));
    let mut at_end = open(&storage, tape.end(), CursorBound::End).unwrap();
    assert!(at_end.next_block().unwrap().is_none());
    let other = Cursor::open(
        storage,
        Path::new(FOLDER),
        RecordingId(8),
        Origin::Start,
        CursorBound::End,
    );
    assert!(matches!(other, Err(CursorError::NoRecording { .. })));
}

/// Every damaged variant of a small recording that was stopped: what is read before the error is true, and there is an error
/// that names the place.
fn check_damaged(tape: &SampleRecording, tree: &FileTree, what: &str) {
    let lent: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(tree).lending());
    let read: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(tree));
    for storage in [lent, read] {
        let mut seen = Vec::new();
        let error = match open(&storage, Origin::Start, CursorBound::End) {
            Ok(mut cursor) => read_on(&mut cursor, &mut seen).expect_err(what),
            Err(error) => error,
        };
        assert!(tape.messages.starts_with(&seen), "{what}");
        match error {
            CursorError::Damaged {
                path,
                offset,
                position,
                ..
            } => {
                let segment = tape.segments.iter();
                let mut segment = segment.filter(|(start, _)| path.ends_with(name(*start).file()));
                let (start, _) = segment.next().expect("one of its files");
                assert_eq!(start.plus(offset), position, "{what}");
                let before = seen.last().map_or(Position(0), |last| last.position);
                assert!(before < position || seen.is_empty(), "{what}");
            }
            CursorError::Missing { .. } => {}
            other => panic!("{what}: {other}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let tape = SampleRecording {
        is_stopped: true,
        ..small()
    };
    for (start, bytes) in &tape.segments {
        for bit in 0..bytes.len() * 8 {
            let mut tree = tape.tree();
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            tree.insert(Path::new(FOLDER).join(name(*start).file()), flipped);
            check_damaged(&tape, &tree, &format!("segment {start}, bit {bit}"));
        }
    }
}

#[test]
fn every_shorter_file_is_found() {
    let tape = SampleRecording {
        is_stopped: true,
        ..small()
    };
    for (start, bytes) in &tape.segments {
        for length in 0..bytes.len() {
            let mut tree = tape.tree();
            let file = Path::new(FOLDER).join(name(*start).file());
            tree.insert(&file, bytes[..length].to_vec());
            check_damaged(&tape, &tree, &format!("segment {start}, length {length}"));
        }
    }
}

/// A block whose own checksum is right, with `spoil` done to its frames before it was sealed.
fn sealed_wrongly(lengths: &[usize], spoil: impl Fn(&mut [u8])) -> SampleRecording {
    let mut tape = SampleRecording {
        is_stopped: true,
        ..SampleRecording::default()
    };
    tape.begin_segment(Position(0));
    let mut batch = Batch::with_capacity(1 << 20);
    for &length in lengths {
        assert!(batch.push_checksummed(0, &vec![length as u8; length]));
    }
    let sound = batch.seal(tape.tag, tape.sequence, 0, 0, 0);
    let mut payload = sound[HEADER_LENGTH..].to_vec();
    spoil(&mut payload[crate::BATCH_HEADER_LENGTH..]);
    let mut block = Vec::new();
    let length = payload.len() as u32;
    let kind = seatrial_blocks::BlockKind::BATCH;
    seatrial_blocks::block::write(&mut block, kind, 0, tape.sequence, &payload, length);
    tape.segments[0].1.extend_from_slice(&block);
    // So that the end in the catalog is where this block leads.
    tape.sequence += 1;
    let message = |number| Seen {
        position: Position(0),
        number,
        time: 0,
        flags: 0,
        payload: Vec::new(),
    };
    tape.messages = (0..lengths.len() as u64).map(message).collect();
    tape
}

#[test]
fn a_frame_that_was_sealed_wrongly_is_found_at_any_place_and_length() {
    for length in [0, 1, 8, 31, 32, 33, 96, 100, 256, 257, 600, 3_000] {
        let total = seatrial_blocks::frame::frame_length(length);
        for place in [0, 1, 2, 9] {
            for first in [length, 5] {
                let mut lengths = vec![length; 10];
                lengths[0] = first;
                let at = match place {
                    0 => 0,
                    _ => seatrial_blocks::frame::frame_length(first) + (place - 1) * total,
                };
                let tape = sealed_wrongly(&lengths, |frames| frames[at + 4] ^= 1);
                let storage = tape.storage(true);
                let mut cursor = open(&storage, Origin::Start, CursorBound::End).unwrap();
                let error = cursor.next_block().unwrap_err();
                let what = format!("length {length}, place {place}: {error}");
                let CursorError::Damaged { fault, .. } = error else {
                    panic!("{what}");
                };
                let BlockDamage::Content(ContentError::Frame(found)) = fault else {
                    panic!("{what}");
                };
                let seatrial_blocks::FrameError::Checksum {
                    offset,
                    stored,
                    computed,
                } = found
                else {
                    panic!("{what}");
                };
                assert_eq!((offset, stored), (at, computed ^ 1), "{what}");
                // The block's own says that this is what was sealed.
                let cursor = open(&storage, Origin::Start, CursorBound::End).unwrap();
                let mut cursor = cursor.without_frame_checksums();
                assert_eq!(cursor.next_block().unwrap().unwrap().messages_count(), 10);
            }
        }
    }
}

#[test]
fn lengths_that_change_often_or_seldom_are_read_alike() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let choices = [rng.index(700), rng.index(120), 32];
        let change = [0.02, 0.3, 1.0][rng.index(3)];
        let mut length = choices[0];
        let mut batch = Batch::with_capacity(1 << 20);
        let mut messages = Vec::new();
        let mut tape = SampleRecording::default();
        tape.begin_segment(Position(0));
        for number in 0..3 {
            batch.clear();
            for _ in 0..60 {
                if rng.chance(change) {
                    length = *rng.pick(&choices);
                }
                let message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
                let flags = if rng.chance(0.1) { 5 } else { 0 };
                let fits = if seed % 2 == 0 || rng.chance(0.9) {
                    batch.push_checksummed(flags, &message)
                } else {
                    batch.push(flags, &message)
                };
                assert!(fits);
                messages.push((flags, message));
            }
            let block = batch.seal(tape.tag, 1 + number, 0, 0, number * 60);
            tape.segments[0].1.extend_from_slice(block);
        }
        let storage = tape.storage(true);
        let mut cursor = open(&storage, Origin::Start, CursorBound::End).unwrap();
        let mut found = Vec::new();
        while let Some(block) = cursor.next_block().unwrap() {
            found.extend(
                block
                    .messages()
                    .map(|seen| (seen.flags, seen.payload.to_vec())),
            );
        }
        assert_eq!(found, messages, "seed {seed}");
    }
}
