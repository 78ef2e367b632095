//! Random and hostile bytes.

use super::*;
use crate::{BatchHeader, SegmentHeader};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::{self, BlockKind};

/// Changes some bytes.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.index(4) {
        if bytes.is_empty() {
            return;
        }
        let from = rng.index(bytes.len());
        let to = bytes.len().min(from + 1 + rng.index(64));
        match rng.below(5) {
            0 => bytes[from] ^= 1 << rng.below(8),
            1 => bytes[from..to].fill(0),
            2 => bytes[from..to].fill_with(|| rng.word() as u8),
            3 => bytes.truncate(from),
            _ => {
                let copied = bytes[from..to].to_vec();
                let at = rng.index(bytes.len());
                bytes.splice(at..at, copied);
            }
        }
    }
}

fn any_origin(rng: &mut Rng, tape: &SampleRecording) -> Origin {
    let end = tape.end().0;
    match rng.below(5) {
        0 => Origin::Start,
        1 => Origin::End,
        2 => Origin::Position(Position(rng.below(end.saturating_add(9)))),
        3 => Origin::Message(rng.below(tape.messages.len() as u64 + 3)),
        _ => Origin::Time(rng.below(tape.time + 3)),
    }
}

fn any_bound(rng: &mut Rng, tape: &SampleRecording) -> CursorBound {
    match rng.below(4) {
        0 => CursorBound::End,
        1 => CursorBound::Follow,
        2 => CursorBound::To(Position(rng.below(tape.end().0.saturating_add(9)))),
        _ => {
            let end = crate::Boundary {
                position: tape.end(),
                ..crate::Boundary::default()
            };
            CursorBound::Live(Arc::new(WriterProgress::new(end)))
        }
    }
}

#[test]
fn whatever_is_in_the_files_only_true_messages_are_lent() {
    let (mut failed, mut read) = (0, 0);
    for seed in 0..4_000 {
        let mut rng = Rng::from_seed(seed);
        let tape = SampleRecording::random(&mut rng);
        let mut tree = tape.tree();
        let paths: Vec<PathBuf> = tree.iter().map(|(path, _)| path.to_owned()).collect();
        for _ in 0..=rng.index(2) {
            let path = rng.pick(&paths);
            let mut bytes = tree.get(path).unwrap().to_vec();
            mutate(&mut rng, &mut bytes);
            tree.insert(path, bytes);
        }
        let storage = MemoryStorage::from_files(&tree);
        let storage: Arc<dyn Storage> = if rng.chance(0.5) {
            Arc::new(storage.lending())
        } else {
            Arc::new(storage)
        };
        let (origin, bound) = (any_origin(&mut rng, &tape), any_bound(&mut rng, &tape));
        let Ok(mut cursor) = open(&storage, origin, bound) else {
            failed += 1;
            continue;
        };
        let mut seen = Vec::new();
        let first = read_on(&mut cursor, &mut seen);
        let again = read_on(&mut cursor, &mut seen);
        // An error is not forgotten.
        assert_eq!(first.is_err(), again.is_err(), "seed {seed}");
        if first.is_err() {
            failed += 1;
        } else {
            read += 1;
        }
        let is_true = seen.iter().all(|seen| tape.messages.contains(seen));
        assert!(is_true, "seed {seed}");
        let is_ordered = seen
            .windows(2)
            .all(|two| two[0].number + 1 == two[1].number);
        assert!(is_ordered, "seed {seed}");
    }
    assert!(failed > 1_000 && read > 500, "{failed} failed, {read} read");
}

/// A number at one of the ends of what there is, or any.
fn any(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(4),
        1 => u64::MAX - rng.below(3),
        2 => u64::from(u32::MAX) + rng.below(3),
        _ => rng.word(),
    }
}

/// A segment of whole blocks with any content, and its first block's.
fn hostile(rng: &mut Rng) -> (SampleRecording, SegmentHeader) {
    let start = if rng.chance(0.9) { 0 } else { u64::MAX - 400 };
    let header = SegmentHeader {
        recording: RECORDING,
        start: Position(start),
        first_message: any(rng),
        segment_length: any(rng),
        time: any(rng),
    };
    let sequence = any(rng);
    let tag = rng.chance(0.5).then(|| RecordingTag(rng.word() as u32));
    let mut bytes = header.block(sequence, tag);
    let mut message = header.first_message;
    for index in 0..rng.below(5) {
        let mut frames = Vec::new();
        for _ in 0..rng.below(4) {
            let length = rng.index(30);
            seatrial_blocks::frame::write(&mut frames, 0, &vec![1; length]);
        }
        if rng.chance(0.3) {
            mutate(rng, &mut frames);
        }
        let count = if rng.chance(0.7) {
            seatrial_blocks::Frames::new(&frames)
                .filter_map(Result::ok)
                .count() as u32
        } else {
            any(rng) as u32
        };
        let batch = BatchHeader {
            time: header.time,
            first_message: message,
            messages: count,
        };
        message = message.wrapping_add(u64::from(count));
        let payload = [&batch.encode()[..], &frames].concat();
        let kind = BlockKind(if rng.chance(0.9) {
            4
        } else {
            rng.below(70) as u16
        });
        let number = sequence.wrapping_add(1 + index);
        let begun = block::begin(&mut bytes);
        bytes.extend_from_slice(&payload);
        let tag = if rng.chance(0.95) { tag } else { None };
        block::finish_tagged(&mut bytes, begun, (kind, 0), number, tag);
    }
    let tape = SampleRecording {
        segments: vec![(Position(start), bytes)],
        is_stopped: rng.chance(0.5),
        time: 9,
        tag,
        ..SampleRecording::default()
    };
    (tape, header)
}

#[test]
fn whole_blocks_of_any_content_do_no_harm() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let (tape, header) = hostile(&mut rng);
        let storage = tape.storage(rng.chance(0.5));
        let origin = match rng.below(3) {
            0 => Origin::Message(any(&mut rng)),
            1 => Origin::Time(any(&mut rng)),
            _ => Origin::Start,
        };
        let bound = any_bound(&mut rng, &tape);
        if let Ok(mut cursor) = open(&storage, origin, bound) {
            let mut count = 0_u64;
            while let Ok(Some(block)) = cursor.next_block() {
                count += block.messages().count() as u64;
                assert!(block.first_message() >= header.first_message);
            }
            assert!(count <= 20, "seed {seed}");
        }
        let options = crate::VerifyOptions {
            threads: 1,
            checksums: true,
        };
        let report = crate::verify(&*storage, Path::new(FOLDER), &[RECORDING], options, &|_| ());
        assert_eq!(report.unwrap().len(), 1, "seed {seed}");
    }
}
