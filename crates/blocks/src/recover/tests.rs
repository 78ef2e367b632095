use super::*;
use crate::block::{self, BlockKind, Defect, HEADER_LENGTH, flags};
use seatrial_machine::Rng;

/// A log and where each of its blocks starts; the last entry is its length.
struct BlockLog {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

/// Blocks with payloads of these lengths, numbered from `first` on.
fn log_from(first: u64, lengths: &[usize], flags: u16, rng: &mut Rng) -> BlockLog {
    let mut log = BlockLog {
        bytes: Vec::new(),
        starts: vec![0],
    };
    for (index, &length) in lengths.iter().enumerate() {
        let payload: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
        let sequence = first + index as u64;
        let out = &mut log.bytes;
        block::write(
            out,
            BlockKind::FRAMES,
            flags,
            sequence,
            &payload,
            length as u32,
        );
        log.starts.push(log.bytes.len());
    }
    log
}

fn log(lengths: &[usize]) -> BlockLog {
    log_from(0, lengths, 0, &mut Rng::from_seed(1))
}

impl BlockLog {
    /// Blocks that end at or before `length`.
    fn blocks_within(&self, length: usize) -> usize {
        self.starts.iter().filter(|&&start| start <= length).count() - 1
    }

    /// The block that the byte at `offset` belongs to.
    fn block_of(&self, offset: usize) -> usize {
        self.starts.iter().filter(|&&start| start <= offset).count() - 1
    }

    fn blocks(&self) -> usize {
        self.starts.len() - 1
    }
}

#[track_caller]
fn damage(result: Result<Recovery, RecoverError>) -> Damage {
    match result {
        Err(RecoverError::Damaged(damage)) => damage,
        other => panic!("expected damage, got {other:?}"),
    }
}

#[track_caller]
fn torn(bytes: &[u8]) -> Torn {
    let recovery = recover(&bytes, 0).expect("a torn tail is no error");
    let torn = recovery.torn.expect("a torn tail");
    assert_eq!(torn.offset, recovery.end);
    assert_eq!(torn.offset + torn.length, bytes.len() as u64);
    torn
}

#[test]
fn a_whole_log_is_read_back() {
    // Longer than the read-ahead, shorter, and empty.
    let log = log(&[0, 1, 300_000, 7, 8, 700_001, 9, 262_144]);
    let mut walker = Walker::new(&log.bytes, 0);
    let mut count = 0;
    while let Some(block) = walker.next_block().unwrap() {
        let start = log.starts[count];
        let length = block.header.payload_length as usize;
        assert_eq!(block.offset, start as u64);
        assert_eq!(block.header.sequence, count as u64);
        let payload = &log.bytes[start + HEADER_LENGTH..start + HEADER_LENGTH + length];
        assert_eq!(block.payload, payload);
        count += 1;
    }
    assert_eq!(count, log.blocks());
    let recovery = recover(&log.bytes, 0).unwrap();
    let expected = Recovery {
        end: log.bytes.len() as u64,
        next_sequence: 8,
        blocks: 8,
        torn: None,
    };
    assert_eq!(recovery, expected);
    let mut headers = Walker::new(&log.bytes, 0);
    for start in &log.starts[..log.blocks()] {
        assert_eq!(headers.next_header().unwrap().unwrap().0, *start as u64);
    }
    assert!(headers.next_header().unwrap().is_none());
}

#[test]
fn an_empty_log_starts_at_zero() {
    let recovery = recover(&Vec::new(), 0).unwrap();
    assert_eq!((recovery.end, recovery.next_sequence), (0, 0));
    assert_eq!(recovery.torn, None);
}

#[test]
fn every_truncation_recovers_exactly_the_blocks_before_it() {
    let log = log(&[0, 13, 64, 1, 40]);
    for length in 0..=log.bytes.len() {
        let recovery = recover(&&log.bytes[..length], 0).unwrap();
        let blocks = log.blocks_within(length);
        assert_eq!(recovery.blocks, blocks as u64, "cut at {length}");
        assert_eq!(recovery.end, log.starts[blocks] as u64, "cut at {length}");
        assert_eq!(recovery.next_sequence, blocks as u64, "cut at {length}");
        let is_torn = length != log.starts[blocks];
        assert_eq!(recovery.torn.is_some(), is_torn, "cut at {length}");
    }
}

#[test]
fn every_flipped_bit_is_found_and_placed() {
    let log = log(&[5, 0, 13, 64, 33]);
    let last = log.blocks() - 1;
    for bit in 0..log.bytes.len() * 8 {
        let mut bytes = log.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let hit = log.block_of(bit / 8);
        let start = log.starts[hit] as u64;
        if hit == last {
            let torn = torn(&bytes);
            assert_eq!((torn.offset, torn.unordered), (start, 0), "bit {bit}");
        } else {
            let damage = damage(recover(&bytes, 0));
            assert_eq!(damage.offset, start, "bit {bit}");
            let newer = (log.starts[hit + 1] as u64, hit as u64 + 1);
            let found = (damage.newer_offset, damage.newer_sequence);
            assert_eq!(found, newer, "bit {bit}");
        }
    }
}

#[test]
fn damage_names_both_checksums() {
    let log = log(&[100, 100, 100]);
    let mut bytes = log.bytes.clone();
    bytes[log.starts[1] + HEADER_LENGTH + 50] ^= 0x10;
    let damage = damage(recover(&bytes, 0));
    let stored = u32::from_le_bytes(bytes[log.starts[1] + 24..][..4].try_into().unwrap());
    let payload = &bytes[log.starts[1] + HEADER_LENGTH..][..100];
    let computed = crate::crc32c(payload);
    assert_eq!(damage.defect, Defect::PayloadChecksum { stored, computed });
    let text = damage.to_string();
    assert!(text.contains(&format!("{stored:08x}")), "{text}");
    assert!(text.contains(&format!("{computed:08x}")), "{text}");
    assert!(text.contains(&format!("at {}", log.starts[1])), "{text}");
}

#[test]
fn a_last_write_that_lost_any_sectors_is_a_torn_tail() {
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed);
        let log = log_from(0, &[700, 90, 6_000], 0, &mut rng);
        let last = log.starts[2];
        let mut bytes = log.bytes.clone();
        let mut lost = 0;
        for sector in (last.next_multiple_of(512) - 512..bytes.len()).step_by(512) {
            let range = sector.max(last)..(sector + 512).min(bytes.len());
            if rng.chance(0.3) {
                let garbage = rng.chance(0.5);
                let before = bytes[range.clone()].to_vec();
                let fill = |_| if garbage { rng.word() as u8 } else { 0 };
                let after: Vec<u8> = range.clone().map(fill).collect();
                lost += usize::from(before != after);
                bytes[range].copy_from_slice(&after);
            }
        }
        let recovery = recover(&bytes, 0).unwrap();
        let blocks = if lost == 0 { 3 } else { 2 };
        assert_eq!(recovery.blocks, blocks, "seed {seed}");
        assert_eq!(recovery.torn.is_some(), lost > 0, "seed {seed}");
    }
}

#[test]
fn a_zeroed_page_is_damage_in_the_middle_and_torn_at_the_end() {
    let log = log(&[3_000; 12]);
    let mut middle = log.bytes.clone();
    middle[8_192..12_288].fill(0);
    let damage = damage(recover(&middle, 0));
    assert_eq!(damage.offset, log.starts[log.block_of(8_192)] as u64);
    let mut end = log.bytes.clone();
    end.resize(end.len() + 100_000, 0);
    assert_eq!(torn(&end).offset, log.bytes.len() as u64);
}

#[test]
fn leftovers_of_an_older_log_are_not_newer() {
    let mut rng = Rng::from_seed(3);
    let old = log_from(0, &[80; 40], 0, &mut rng);
    let new = log_from(40, &[80, 200, 11], 0, &mut rng);
    // Over whole old blocks, so that one starts exactly where the new log ends.
    let mut bytes = old.bytes.clone();
    bytes[..new.bytes.len()].copy_from_slice(&new.bytes);
    let recovery = recover(&bytes, 0).unwrap();
    assert_eq!((recovery.blocks, recovery.end), (3, new.bytes.len() as u64));
    for cut in 0..new.bytes.len() {
        let mut bytes = old.bytes.clone();
        bytes[..cut].copy_from_slice(&new.bytes[..cut]);
        let mut walker = Walker::new(&bytes, 0).expecting(40);
        let mut blocks = 0;
        let stopped = loop {
            match walker.next_block() {
                Ok(Some(_)) => blocks += 1,
                Ok(None) => panic!("the old blocks are still there"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(stopped, WalkError::Torn(_)),
            "cut {cut}: {stopped}"
        );
        // A cut that only loses bytes that were the same anyway loses nothing.
        assert!(blocks >= new.blocks_within(cut), "cut {cut}");
        assert!(walker.offset() as usize <= new.bytes.len(), "cut {cut}");
    }
}

#[test]
fn a_missing_block_is_damage() {
    let log = log(&[20; 5]);
    let mut bytes = log.bytes.clone();
    bytes.drain(log.starts[2]..log.starts[3]);
    let damage = damage(recover(&bytes, 0));
    let (expected, found) = (2, 3);
    assert_eq!(damage.defect, Defect::Sequence { expected, found });
    assert_eq!(damage.offset, log.starts[2] as u64);
}

#[test]
fn a_hole_before_unordered_blocks_is_a_torn_tail() {
    let mut rng = Rng::from_seed(4);
    let mut bytes = log_from(0, &[50, 50], 0, &mut rng).bytes;
    let hole = bytes.len();
    bytes.extend(log_from(2, &[50, 50, 50], flags::UNORDERED, &mut rng).bytes);
    bytes[hole..hole + 40].fill(0);
    let found = torn(&bytes);
    assert_eq!((found.offset, found.unordered), (hole as u64, 2));
    // One ordered block after them proves that all of them had been durable.
    bytes.extend(log_from(5, &[50], 0, &mut rng).bytes);
    let damage = damage(recover(&bytes, 0));
    assert_eq!((damage.offset, damage.newer_sequence), (hole as u64, 5));
}

#[test]
fn numbers_that_cannot_follow_are_no_evidence() {
    let mut rng = Rng::from_seed(6);
    let whole = log_from(0, &[50, 50, 50], 0, &mut rng);
    let hole = whole.starts[2];
    // The invalid block is 88 bytes long: at most two blocks fit between its start and the block after it.
    for (sequence, is_newer) in [(1, false), (2, false), (3, true), (4, true), (5, false)] {
        let mut bytes = whole.bytes.clone();
        bytes[hole] ^= 1;
        bytes.extend(log_from(sequence, &[50], 0, &mut rng).bytes);
        let is_damage = matches!(recover(&bytes, 0), Err(RecoverError::Damaged(_)));
        assert_eq!(is_damage, is_newer, "number {sequence}");
    }
}

#[test]
fn blocks_inside_an_unordered_block_are_no_evidence() {
    let mut rng = Rng::from_seed(7);
    let mut bytes = log_from(0, &[50, 50], 0, &mut rng).bytes;
    let copy = log_from(3, &[16], 0, &mut rng).bytes;
    let length = copy.len() as u32;
    block::write(
        &mut bytes,
        BlockKind::FRAMES,
        flags::UNORDERED,
        2,
        &copy,
        length,
    );
    bytes[88] ^= 1;
    let found = torn(&bytes);
    assert_eq!((found.offset, found.unordered), (88, 1));
}

#[test]
fn blocks_inside_a_torn_payload_are_no_evidence() {
    let mut rng = Rng::from_seed(5);
    let mut bytes = log_from(0, &[50, 50], 0, &mut rng).bytes;
    let last = bytes.len();
    let copies = log_from(3, &[16; 4], 0, &mut rng).bytes;
    block::write(
        &mut bytes,
        BlockKind::FRAMES,
        0,
        2,
        &copies,
        copies.len() as u32,
    );
    bytes[last + HEADER_LENGTH + copies.len() - 1] ^= 1;
    assert_eq!(torn(&bytes).offset, last as u64);
}

#[test]
fn a_new_walk_reads_the_blocks_after_damage() {
    let log = log(&[100; 6]);
    let mut bytes = log.bytes.clone();
    bytes[log.starts[2] + 3] ^= 0xff;
    let mut walker = Walker::new(&bytes, 0);
    let damage = loop {
        match walker.next_block() {
            Ok(Some(_)) => {}
            Err(WalkError::Damaged(damage)) => break damage,
            other => panic!("{other:?}"),
        }
    };
    assert!(walker.next_block().unwrap().is_none(), "it stopped");
    let rest = recover(&bytes, damage.newer_offset).unwrap();
    assert_eq!((rest.blocks, rest.next_sequence), (3, 6));
}

/// A disk that fails to read bytes from the given offset on.
struct BadDisk(Vec<u8>, u64);

impl Disk for BadDisk {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset + buffer.len() as u64 > self.1 {
            return Err(io::Error::other("unreadable sector"));
        }
        self.0[..].read_at(offset, buffer)
    }
}

#[test]
fn a_read_error_is_neither_tail_nor_damage() {
    let log = log(&[300_000, 300_000]);
    let disk = BadDisk(log.bytes, 400_000);
    let error = recover(&disk, 0).unwrap_err();
    assert!(matches!(error, RecoverError::Fault { .. }), "{error}");
}

/// Recovers arbitrary bytes: the result is within the bounds of the input. Returns the number of valid blocks.
fn fuzz_one(bytes: &[u8]) -> Option<u64> {
    let recovery = recover(&bytes, 0).ok()?;
    assert!(recovery.end <= bytes.len() as u64);
    assert_eq!(recovery.torn.is_none(), recovery.end == bytes.len() as u64);
    Some(recovery.blocks)
}

#[test]
fn mutations_never_yield_a_block_that_was_not_written() {
    for seed in 0..6_000 {
        let mut rng = Rng::from_seed(seed);
        let lengths: Vec<usize> = (0..rng.index(8)).map(|_| rng.index(200)).collect();
        let log = log_from(rng.below(5), &lengths, 0, &mut rng);
        let mut bytes = log.bytes.clone();
        let mut first = bytes.len();
        for _ in 0..=rng.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = rng.index(bytes.len());
            match rng.below(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => {
                    let end = (at + rng.index(100)).min(bytes.len());
                    bytes[at..end].fill(0);
                }
                3 => bytes.insert(at, rng.word() as u8),
                _ => {
                    let from = rng.index(bytes.len());
                    let length = rng.index(bytes.len() - from.max(at) + 1);
                    bytes.copy_within(from..from + length, at);
                }
            }
            first = first.min(at);
        }
        if let Some(blocks) = fuzz_one(&bytes) {
            let untouched = log.blocks_within(first.min(bytes.len()));
            assert!(blocks as usize >= untouched, "seed {seed}");
            let end = log.starts[(blocks as usize).min(log.blocks())];
            assert_eq!(bytes[..end], log.bytes[..end], "seed {seed}");
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    for seed in 0..3_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes: Vec<u8> = (0..rng.index(400)).map(|_| rng.word() as u8).collect();
        for at in (0..bytes.len().saturating_sub(4)).step_by(8) {
            if rng.chance(0.3) {
                bytes[at..at + 4].copy_from_slice(&[0x5e, 0xa1, 0xb1, 1]);
            }
        }
        assert!(fuzz_one(&bytes).unwrap_or(0) == 0, "seed {seed}");
    }
}
