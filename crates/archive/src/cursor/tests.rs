use super::*;
use crate::batch::Batch;
use crate::segment::SegmentHeader;
use seatrial_machine::Rng;
use seatrial_sim::{FileTree, MemoryStorage};

const RECORDING: RecordingId = RecordingId(7);

/// What a reader sees of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    position: Position,
    number: u64,
    time: u64,
    flags: u32,
    payload: Vec<u8>,
}

/// A recording made by hand: its segments' bytes, and everything that is in it.
#[derive(Clone, Debug, Default)]
struct Tape {
    segments: Vec<(Position, Vec<u8>)>,
    messages: Vec<Seen>,
    /// Where blocks start.
    blocks: Vec<Position>,
    sequence: u64,
    time: u64,
}

impl Tape {
    fn end(&self) -> Position {
        let (start, bytes) = self.segments.last().unwrap();
        start.plus(bytes.len() as u64)
    }

    fn begin_segment(&mut self, start: Position) {
        let header = SegmentHeader {
            recording: RECORDING,
            start,
            first_message: self.messages.len() as u64,
            segment_length: 4096,
            time: self.time,
        };
        self.segments.push((start, header.block(self.sequence)));
        self.sequence += 1;
    }

    fn append(&mut self, rng: &mut Rng, count: usize, length_max: usize) {
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
        let block = batch.seal(self.sequence, 0, self.time, first);
        self.sequence += 1;
        self.blocks.push(start);
        self.segments.last_mut().unwrap().1.extend_from_slice(block);
    }

    /// Some segments of some blocks.
    fn random(rng: &mut Rng) -> Tape {
        let mut tape = Tape {
            time: 1_000,
            sequence: rng.below(2) * 5,
            ..Tape::default()
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

    fn tree(&self) -> FileTree {
        let mut tree = FileTree::default();
        tree.insert_folder("a");
        for (start, bytes) in &self.segments {
            tree.insert(Path::new("a").join(name(*start).file()), bytes.clone());
        }
        tree
    }

    fn storage(&self, lends: bool) -> Arc<dyn Storage> {
        let storage = MemoryStorage::from_files(&self.tree());
        if lends {
            Arc::new(storage.lending())
        } else {
            Arc::new(storage)
        }
    }
}

fn name(start: Position) -> SegmentName {
    SegmentName {
        recording: RECORDING,
        start,
    }
}

fn open(
    storage: &Arc<dyn Storage>,
    from: impl Into<Origin>,
    bound: Bound,
) -> Result<Cursor, CursorError> {
    Cursor::open(Arc::clone(storage), Path::new("a"), RECORDING, from, bound)
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

fn read(storage: &Arc<dyn Storage>, from: Origin, bound: Bound) -> Vec<Seen> {
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
        let tape = Tape::random(&mut rng);
        let storage = tape.storage(rng.chance(0.5));
        let (start, end) = (tape.segments[0].0, tape.end());
        assert_eq!(
            read(&storage, Origin::Start, Bound::End),
            tape.messages,
            "seed {seed}"
        );
        for _ in 0..20 {
            let from = Position(start.0 + rng.below(end.since(start) + 1));
            let to = Position(start.0 + rng.below(end.since(start) + 1));
            let seen = read(&storage, Origin::Position(from), Bound::To(to));
            let twin = tape.messages.iter();
            let twin = twin.filter(|seen| (from..to).contains(&seen.position));
            assert!(seen.iter().eq(twin), "seed {seed}: {from} to {to}");
            let number = rng.below(tape.messages.len() as u64 + 2);
            let seen = read(&storage, Origin::Message(number), Bound::End);
            let twin = tape.messages.iter().filter(|seen| seen.number >= number);
            assert!(seen.iter().eq(twin), "seed {seed}: message {number}");
            let time = 998 + rng.below(tape.time - 998 + 2);
            let seen = read(&storage, Origin::Time(time), Bound::To(to));
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
        let tape = Tape::random(&mut rng);
        let storage = tape.storage(true);
        let mut seen = Vec::new();
        let mut cursor = open(&storage, Origin::Start, Bound::End).unwrap();
        while let Some(block) = cursor.next_block().unwrap() {
            // As if only some messages of the block were processed.
            let count = rng.index(block.messages_count() as usize + 1);
            let mut messages = block.messages();
            for message in messages.by_ref().take(count) {
                seen.push(message.payload.to_vec());
            }
            let (_, position) = messages.rest();
            cursor = open(&storage, position, Bound::End).unwrap();
        }
        let twin = tape.messages.iter().map(|message| &message.payload);
        assert!(seen.iter().eq(twin), "seed {seed}");
    }
}

#[test]
fn outside_of_the_recording_is_an_error() {
    let mut rng = Rng::from_seed(3);
    let mut tape = Tape::default();
    tape.begin_segment(Position(800));
    tape.append(&mut rng, 3, 10);
    let storage = tape.storage(true);
    let error = open(&storage, Position(799), Bound::End).unwrap_err();
    assert!(matches!(
        error,
        CursorError::BeforeStart {
            start: Position(800),
            ..
        }
    ));
    let error = open(&storage, tape.end().plus(1), Bound::End).unwrap_err();
    assert!(matches!(error, CursorError::BehindEnd { .. }));
    let mut at_end = open(&storage, tape.end(), Bound::End).unwrap();
    assert!(at_end.next_block().unwrap().is_none());
    let other = Cursor::open(
        storage,
        Path::new("a"),
        RecordingId(8),
        Origin::Start,
        Bound::End,
    );
    assert!(matches!(other, Err(CursorError::NoRecording { .. })));
}

/// Every damaged variant of a small recording that was stopped: what is read before the error is true, and there is an error
/// that names the place.
fn check_damaged(tape: &Tape, tree: &FileTree, what: &str) {
    let lent: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(tree).lending());
    let read: Arc<dyn Storage> = Arc::new(MemoryStorage::from_files(tree));
    for storage in [lent, read] {
        let mut seen = Vec::new();
        let error = match stopped(&storage, tape.end()) {
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

/// A cursor over all of a recording that the catalog says was stopped at `end`.
fn stopped(storage: &Arc<dyn Storage>, end: Position) -> Result<Cursor, CursorError> {
    let progress = Arc::new(Progress::new(end));
    progress.stop();
    open(storage, Origin::Start, Bound::Live(progress))
}

fn small() -> Tape {
    let mut rng = Rng::from_seed(11);
    let mut tape = Tape::default();
    tape.begin_segment(Position(0));
    tape.append(&mut rng, 2, 9);
    tape.append(&mut rng, 1, 5);
    tape.begin_segment(tape.end());
    tape.append(&mut rng, 3, 9);
    tape.begin_segment(tape.end());
    tape.append(&mut rng, 1, 700);
    tape
}

#[test]
fn every_flipped_bit_is_found() {
    let tape = small();
    for (start, bytes) in &tape.segments {
        for bit in 0..bytes.len() * 8 {
            let mut tree = tape.tree();
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            tree.insert(Path::new("a").join(name(*start).file()), flipped);
            check_damaged(&tape, &tree, &format!("segment {start}, bit {bit}"));
        }
    }
}

#[test]
fn every_shorter_file_is_found() {
    let tape = small();
    for (start, bytes) in &tape.segments {
        for length in 0..bytes.len() {
            let mut tree = tape.tree();
            let file = Path::new("a").join(name(*start).file());
            tree.insert(&file, bytes[..length].to_vec());
            check_damaged(&tape, &tree, &format!("segment {start}, length {length}"));
        }
    }
}
