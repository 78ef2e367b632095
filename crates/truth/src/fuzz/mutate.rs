//! Damages files: at random places, and with corrected checksums.

use seatrial_blocks::{ALIGNMENT, BlockHeader, BlockKind, HEADER_LENGTH, crc32c};
use seatrial_machine::Rng;
use std::ops::Range;

/// What a file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileShape {
    /// Blocks with checksums (`docs/formats/block.md`) from this offset on.
    Blocks(usize),
    /// Lines and numbers.
    Text,
    /// Anything.
    Binary,
}

/// Numbers at which lengths and counts go wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Texts in place of a number.
const TEXTS: [&str; 12] = [
    "",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "1e-400",
    "NaN",
    "nil",
    "\"\\ud800\"",
    "[[[[[[[[",
];

/// Levels of brackets that no reader may take on its stack.
const NESTED: usize = 30_000;

/// A damaged copy of `bytes`; pieces of `other` may get into it.
pub(super) fn mutate(rng: &mut Rng, bytes: &[u8], other: &[u8], shape: FileShape) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let times = if rng.chance(0.6) { 1 } else { 1 + rng.index(4) };
    for _ in 0..times {
        match shape {
            FileShape::Blocks(start) if rng.chance(0.6) => under_checksum(rng, &mut bytes, start),
            FileShape::Text if rng.chance(0.6) => in_text(rng, &mut bytes),
            FileShape::Blocks(_) | FileShape::Text | FileShape::Binary => {
                anywhere(rng, &mut bytes, other);
            }
        }
    }
    bytes
}

/// A range of at most `length_max` bytes.
fn range(rng: &mut Rng, bytes: &[u8], length_max: usize) -> Range<usize> {
    let from = rng.index(bytes.len() + 1);
    let to = from + rng.index(length_max.min(bytes.len() - from) + 1);
    from..to
}

/// Damage that knows nothing of the format.
fn anywhere(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        bytes.extend_from_slice(other);
        return;
    }
    let place = range(rng, bytes, 4_096);
    match rng.below(8) {
        0 | 1 => {
            for _ in 0..=rng.index(8) {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        2 => bytes.truncate(place.start),
        3 => bytes[place].fill(0),
        4 => bytes[place].fill_with(|| rng.word() as u8),
        5 => drop(bytes.drain(place)),
        6 => {
            let piece = range(rng, other, 4_096);
            let place = if rng.chance(0.5) {
                place.start..place.start
            } else {
                place
            };
            bytes.splice(place, other[piece].iter().copied());
        }
        _ => number(rng, bytes),
    }
}

/// Overwrites a number of 4 or 8 bytes.
fn number(rng: &mut Rng, bytes: &mut [u8]) {
    let width = if rng.chance(0.5) { 4 } else { 8 };
    if bytes.len() < width {
        return;
    }
    let at = rng.index(bytes.len() - width + 1);
    let at = if rng.chance(0.7) { at / 4 * 4 } else { at };
    let word = if rng.chance(0.7) {
        NUMBERS[rng.index(NUMBERS.len())]
    } else {
        rng.word()
    };
    bytes[at..at + width].copy_from_slice(&word.to_le_bytes()[..width]);
}

/// Damages the payload or header of one block and computes its checksums again, so that the readers of payloads see it.
fn under_checksum(rng: &mut Rng, bytes: &mut Vec<u8>, start: usize) {
    let blocks = blocks(bytes, start);
    if blocks.is_empty() {
        return;
    }
    let (at, mut header) = blocks[rng.index(blocks.len())];
    let from = at + HEADER_LENGTH;
    let to = from + header.payload_length as usize;
    let mut payload = bytes[from..to].to_vec();
    match rng.below(10) {
        0 => header.kind = BlockKind(rng.below(64) as u16),
        1 => header.flags ^= 1 << rng.below(16),
        2 => header.uncompressed_length = NUMBERS[rng.index(8)] as u32,
        3 => header.sequence = NUMBERS[rng.index(NUMBERS.len())],
        4 => payload.truncate(rng.index(payload.len() + 1)),
        5 => payload.resize(payload.len() + 1 + rng.index(64), rng.word() as u8),
        6 if !payload.is_empty() => {
            let at = rng.index(payload.len());
            payload[at] ^= 1 << rng.below(8);
        }
        _ => number(rng, &mut payload),
    }
    let is_plain = header.uncompressed_length == header.payload_length;
    header.payload_length = payload.len() as u32;
    if is_plain {
        header.uncompressed_length = header.payload_length;
    }
    header.payload_checksum = crc32c(&payload);
    let mut block = header.encode().to_vec();
    block.extend_from_slice(&payload);
    block.resize(block.len().next_multiple_of(ALIGNMENT), 0);
    let end = to.next_multiple_of(ALIGNMENT).min(bytes.len());
    bytes.splice(at..end, block);
}

/// Offset and header of each whole block.
fn blocks(bytes: &[u8], start: usize) -> Vec<(usize, BlockHeader)> {
    let (mut at, mut blocks) = (start, Vec::new());
    while let Some(header) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let Ok(header) = BlockHeader::decode(header) else {
            break;
        };
        let next = at + header.block_length() as usize;
        if next > bytes.len() {
            break;
        }
        blocks.push((at, header));
        at = next;
    }
    blocks
}

/// Damage to lines and numbers.
fn in_text(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let line = rng.index(lines.len().max(1));
    let piece = |from: usize, to: usize| lines[from..to].concat();
    let changed = match rng.below(8) {
        // A line is gone, twice there, or elsewhere.
        0 if line < lines.len() => [piece(0, line), piece(line + 1, lines.len())].concat(),
        1 if line < lines.len() => [piece(0, line + 1), piece(line, lines.len())].concat(),
        2 if line < lines.len() => {
            let rest = [piece(0, line), piece(line + 1, lines.len())].concat();
            [lines[line], &rest].concat()
        }
        3 => {
            let bracket = [b'[', b'{', b'(', b'<'][rng.index(4)];
            let at = rng.index(bytes.len() + 1);
            [&bytes[..at], &vec![bracket; NESTED], &bytes[at..]].concat()
        }
        4 => {
            let at = rng.index(bytes.len() + 1);
            let odd: &[u8] = [&b"\xff\xfe"[..], b"\0", b"\"", b"\\", b"\xe2\x80\xae"][rng.index(5)];
            [&bytes[..at], odd, &bytes[at..]].concat()
        }
        _ => other_number(rng, bytes),
    };
    *bytes = changed;
}

/// Puts another text in place of one number.
fn other_number(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let from = rng.index(bytes.len() + 1);
    let Some(first) = bytes[from..].iter().position(u8::is_ascii_digit) else {
        return bytes.to_vec();
    };
    let first = from + first;
    let digits = bytes[first..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let end = first + digits.count();
    let text = if rng.chance(0.5) {
        TEXTS[rng.index(TEXTS.len())].to_owned()
    } else {
        rng.below(40).to_string()
    };
    [&bytes[..first], text.as_bytes(), &bytes[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_under_checksums_leaves_whole_blocks() {
        let mut whole = Vec::new();
        for sequence in 0..6 {
            let payload = [sequence as u8; 50];
            seatrial_blocks::block::write(&mut whole, BlockKind::FRAMES, 0, sequence, &payload, 50);
        }
        let mut changed = 0;
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let mut bytes = whole.clone();
            under_checksum(&mut rng, &mut bytes, 0);
            changed += u32::from(bytes != whole);
            assert_eq!(blocks(&bytes, 0).len(), 6, "{seed}");
            for (at, header) in blocks(&bytes, 0) {
                let payload = &bytes[at + HEADER_LENGTH..][..header.payload_length as usize];
                assert_eq!(crc32c(payload), header.payload_checksum, "{seed}");
            }
        }
        assert!(changed > 400, "{changed}");
    }

    #[test]
    fn any_file_can_be_damaged() {
        for seed in 0..3_000 {
            let mut rng = Rng::from_seed(seed);
            let bytes: Vec<u8> = (0..rng.index(200)).map(|_| rng.below(128) as u8).collect();
            for shape in [
                FileShape::Blocks(0),
                FileShape::Blocks(4_096),
                FileShape::Text,
                FileShape::Binary,
            ] {
                mutate(&mut rng, &bytes, b"another", shape);
            }
        }
    }
}
