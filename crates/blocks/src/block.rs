//! A block: header of 32 bytes, payload, padding. Byte map in `docs/formats/block.md`.

use crate::{RecordingTag, crc32c};
use seatrial_machine::Disk;
use std::fmt;

/// Length of a block's header in bytes.
pub const HEADER_LENGTH: usize = 32;
/// Blocks start at multiples of this many bytes.
pub const ALIGNMENT: usize = 8;
/// The longest payload that is written or accepted: 64 MiB. It bounds what a corrupt length can make a reader allocate.
pub const PAYLOAD_LENGTH_MAX: usize = 64 << 20;
/// The version of the format that is written.
pub const VERSION: u8 = 1;
/// The first three bytes of every block.
pub const MAGIC: [u8; 3] = [0x5e, 0xa1, 0xb1];

// A search steps by ALIGNMENT and must find every header; lengths are stored in 32 bits.
const _: () = assert!(HEADER_LENGTH.is_multiple_of(ALIGNMENT) && ALIGNMENT.is_power_of_two());
const _: () = assert!(PAYLOAD_LENGTH_MAX <= u32::MAX as usize);

/// Meanings of the bits in [`BlockHeader::flags`].
pub mod flags {
    /// Written before an earlier block was known to be durable. If a block before this one is invalid, that is a torn
    /// tail with this flag, and damage without it.
    pub const UNORDERED: u16 = 1;
    /// The bits that name the codec of the payload.
    pub const CODEC: u16 = 0xf0;
    /// The payload is not compressed.
    pub const CODEC_NONE: u16 = 0x00;
    /// The payload is one LZ4 block.
    pub const CODEC_LZ4: u16 = 0x10;
    /// The payload is one zstd frame.
    pub const CODEC_ZSTD: u16 = 0x20;
    /// In segments and batches: the header holds its recording's tag in place of the uncompressed length.
    pub const TAGGED: u16 = 0x0100;
}

/// The kind of a block's payload. Ranges: 1–15 archive, 16–31 test file, 32–47 key-value store, 48–63 volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKind(pub u16);

impl BlockKind {
    /// The root of a file: lists its live blocks, and is found through the first page.
    pub const ROOT: BlockKind = BlockKind(1);
    /// Frames back to back.
    pub const FRAMES: BlockKind = BlockKind(2);
    /// The first block of a segment: its recording and start position (`docs/formats/archive.md`).
    pub const SEGMENT: BlockKind = BlockKind(3);
    /// Messages of a recording, written together.
    pub const BATCH: BlockKind = BlockKind(4);
    /// An event of an archive's catalog.
    pub const CATALOG: BlockKind = BlockKind(5);
}

/// The decoded header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Kind of the payload.
    pub kind: BlockKind,
    /// Bits of [`flags`].
    pub flags: u16,
    /// Bytes of payload as stored; at most [`PAYLOAD_LENGTH_MAX`].
    pub payload_length: u32,
    /// Bytes of payload after decompression; in a block of a recording its tag, see [`BlockHeader::tag`].
    pub uncompressed_length: u32,
    /// Number of the block: one more than that of the previous block of its log.
    pub sequence: u64,
    /// CRC-32C of the payload as stored.
    pub payload_checksum: u32,
}

impl BlockHeader {
    /// Bytes from the start of this block to the start of the next.
    pub fn block_length(&self) -> u64 {
        block_length(self.payload_length as usize) as u64
    }

    /// The tag of the recording that this segment header or batch belongs to. `None` in blocks of other kinds, and in
    /// recordings written before the format had tags.
    pub fn tag(&self) -> Option<RecordingTag> {
        let has_tag = matches!(self.kind, BlockKind::SEGMENT | BlockKind::BATCH)
            && self.flags & flags::TAGGED != 0;
        has_tag.then_some(RecordingTag(self.uncompressed_length))
    }

    /// This header with the tag of another recording, or without one.
    #[must_use]
    pub fn with_tag(mut self, tag: Option<RecordingTag>) -> BlockHeader {
        self.flags &= !flags::TAGGED;
        self.uncompressed_length = self.payload_length;
        if let Some(RecordingTag(tag)) = tag {
            self.flags |= flags::TAGGED;
            self.uncompressed_length = tag;
        }
        self
    }

    /// Were all earlier blocks durable when this one was written?
    pub fn is_ordered(&self) -> bool {
        self.flags & flags::UNORDERED == 0
    }

    /// The header as stored, including its own checksum.
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..6].copy_from_slice(&self.kind.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.uncompressed_length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let checksum = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes and checks a header, but not the payload after it.
    ///
    /// The checksum is checked before the version, so that a flipped bit in the version is not reported as a file of a
    /// newer program.
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<BlockHeader, Defect> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        if bytes[..3] != MAGIC {
            return Err(Defect::Magic { found: word(0) });
        }
        let (stored, computed) = (word(28), crc32c(&bytes[..28]));
        if stored != computed {
            return Err(Defect::HeaderChecksum { stored, computed });
        }
        if bytes[3] != VERSION {
            return Err(Defect::Version { found: bytes[3] });
        }
        let header = BlockHeader {
            kind: BlockKind(half(4)),
            flags: half(6),
            payload_length: word(8),
            uncompressed_length: word(12),
            sequence: u64::from(word(16)) | u64::from(word(20)) << 32,
            payload_checksum: word(24),
        };
        if header.payload_length as usize > PAYLOAD_LENGTH_MAX {
            return Err(Defect::Length {
                claimed: header.payload_length,
            });
        }
        Ok(header)
    }
}

/// Why the bytes at some offset are not the expected block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The first bytes are not those of a block.
    Magic {
        /// The first four bytes as a little-endian word.
        found: u32,
    },
    /// The header's checksum does not match.
    HeaderChecksum {
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the header's bytes in the file.
        computed: u32,
    },
    /// A valid header of a version that this program does not know.
    Version {
        /// The version in the header.
        found: u8,
    },
    /// A valid header with a payload length above [`PAYLOAD_LENGTH_MAX`].
    Length {
        /// The length in the header.
        claimed: u32,
    },
    /// The file ends inside the block.
    Short {
        /// Length of the block, or of its header if that does not fit.
        needed: u64,
        /// Bytes from the block's start to the end of the file.
        there: u64,
    },
    /// The payload's checksum does not match.
    PayloadChecksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the payload in the file.
        computed: u32,
    },
    /// The bytes between payload and next block are not zero.
    Padding,
    /// A valid block, but not the next one of this log.
    Sequence {
        /// The number that would continue the log.
        expected: u64,
        /// The number in the header.
        found: u64,
    },
    /// A valid block of another recording.
    Recording {
        /// The tag of this recording.
        expected: Option<RecordingTag>,
        /// The tag in the header.
        found: Option<RecordingTag>,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Defect::Magic { found } => write!(f, "no block starts here (first word {found:08x})"),
            Defect::HeaderChecksum { stored, computed } => write!(
                f,
                "header checksum is {computed:08x}, the header says {stored:08x}"
            ),
            Defect::Version { found } => write!(
                f,
                "block of format version {found}, this program reads version {VERSION}"
            ),
            Defect::Length { claimed } => write!(
                f,
                "payload length {claimed} is over the maximum of {PAYLOAD_LENGTH_MAX}"
            ),
            Defect::Short { needed, there } => {
                write!(
                    f,
                    "file ends inside the block: {needed} bytes needed, {there} available"
                )
            }
            Defect::PayloadChecksum { stored, computed } => write!(
                f,
                "payload checksum is {computed:08x}, the header says {stored:08x}"
            ),
            Defect::Padding => f.write_str("padding after the payload is not zero"),
            Defect::Sequence { expected, found } => {
                write!(f, "expected block number {expected}, found {found}")
            }
            Defect::Recording { expected, found } => {
                let name = |tag: Option<RecordingTag>| match tag {
                    Some(tag) => format!("tag {tag}"),
                    None => "no tag".to_owned(),
                };
                let (found, expected) = (name(found), name(expected));
                write!(
                    f,
                    "block of another recording: expected {expected}, found {found}"
                )
            }
        }
    }
}

/// Length in bytes of a block with a payload of `payload_length` bytes, padding included.
pub const fn block_length(payload_length: usize) -> usize {
    (HEADER_LENGTH + payload_length).next_multiple_of(ALIGNMENT)
}

/// Are two blocks equal apart from the tags of their recordings?
pub fn is_same_content(one: &[u8], other: &[u8]) -> bool {
    let split = |block: &[u8]| {
        let header = BlockHeader::decode(block.first_chunk()?).ok()?;
        Some(header.with_tag(None))
    };
    let (first, second) = (split(one), split(other));
    first.is_some() && first == second && one.get(HEADER_LENGTH..) == other.get(HEADER_LENGTH..)
}

/// Appends one block to `out`, whose length must be a multiple of [`ALIGNMENT`] (which it is if it holds blocks only).
/// `uncompressed_length` equals the payload's length when no codec is set in `flags`.
///
/// Panics when the payload is longer than [`PAYLOAD_LENGTH_MAX`].
pub fn write(
    out: &mut Vec<u8>,
    kind: BlockKind,
    flags: u16,
    sequence: u64,
    payload: &[u8],
    uncompressed_length: u32,
) {
    let start = begin(out);
    out.extend_from_slice(payload);
    finish(out, start, kind, flags, sequence, uncompressed_length);
}

/// Reserves room for a header at the end of `out` and returns its offset. The caller appends the payload in place, then
/// calls [`finish`], [`finish_plain`] or [`finish_tagged`]. This saves a copy of the payload.
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    assert!(start.is_multiple_of(ALIGNMENT), "block at {start}");
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    start
}

/// Turns everything in `out` after the header at `start` into the payload of a block: writes checksum, header and
/// padding. Panics when the payload is longer than [`PAYLOAD_LENGTH_MAX`].
pub fn finish(
    out: &mut Vec<u8>,
    start: usize,
    kind: BlockKind,
    flags: u16,
    sequence: u64,
    uncompressed_length: u32,
) {
    seal(out, start, |payload_length, payload_checksum| BlockHeader {
        kind,
        flags,
        payload_length,
        uncompressed_length,
        sequence,
        payload_checksum,
    });
}

/// [`finish`] for a block of a recording, whose payload is not compressed.
pub fn finish_tagged(
    out: &mut Vec<u8>,
    start: usize,
    (kind, flags): (BlockKind, u16),
    sequence: u64,
    tag: Option<RecordingTag>,
) {
    seal(out, start, |payload_length, payload_checksum| {
        let header = BlockHeader {
            kind,
            flags,
            payload_length,
            uncompressed_length: payload_length,
            sequence,
            payload_checksum,
        };
        header.with_tag(tag)
    });
}

/// [`finish`] for a payload that is not compressed.
pub fn finish_plain(out: &mut Vec<u8>, start: usize, kind: BlockKind, flags: u16, sequence: u64) {
    let length = out.len() - start - HEADER_LENGTH;
    finish(out, start, kind, flags, sequence, length as u32);
}

/// Writes the header that `make` returns for the payload's length and checksum, and pads the block at `start`.
fn seal(out: &mut Vec<u8>, start: usize, make: impl FnOnce(u32, u32) -> BlockHeader) {
    let payload = &out[start + HEADER_LENGTH..];
    assert!(payload.len() <= PAYLOAD_LENGTH_MAX, "{}", payload.len());
    let header = make(payload.len() as u32, crc32c(payload));
    assert_eq!(header.payload_length as usize, payload.len());
    out[start..start + HEADER_LENGTH].copy_from_slice(&header.encode());
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    assert_eq!((out.len() - start) as u64, header.block_length());
}

/// Reads and checks the one block at `offset`; its payload, as stored, replaces the contents of `stored`. Reads nothing else,
/// in contrast to a [`Walker`](crate::Walker), so it does not distinguish damage from a torn tail.
pub fn read_at(disk: &dyn Disk, offset: u64, stored: &mut Vec<u8>) -> Result<BlockHeader, String> {
    let fault = |error: std::io::Error| error.to_string();
    let there = disk.len().saturating_sub(offset);
    let fits = |needed: u64| {
        if needed > there {
            return Err(Defect::Short { needed, there }.to_string());
        }
        Ok(())
    };
    fits(HEADER_LENGTH as u64)?;
    let mut header = [0; HEADER_LENGTH];
    disk.read_at(offset, &mut header).map_err(fault)?;
    let header = BlockHeader::decode(&header).map_err(|defect| defect.to_string())?;
    fits(header.block_length())?;
    // With the padding, which is checked as well: every bit of the file is covered.
    let length = header.payload_length as usize;
    stored.resize(header.block_length() as usize - HEADER_LENGTH, 0);
    disk.read_at(offset + HEADER_LENGTH as u64, stored)
        .map_err(fault)?;
    let computed = crc32c(&stored[..length]);
    if computed != header.payload_checksum {
        let defect = Defect::PayloadChecksum {
            stored: header.payload_checksum,
            computed,
        };
        return Err(defect.to_string());
    }
    if stored[length..].iter().any(|&byte| byte != 0) {
        return Err(Defect::Padding.to_string());
    }
    stored.truncate(length);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_map_is_the_documented_one() {
        let mut out = Vec::new();
        write(
            &mut out,
            BlockKind(0x0102),
            0x0304,
            0x1122_3344_5566_7788,
            b"123456789",
            9,
        );
        let expected = [
            &[0x5e, 0xa1, 0xb1, 1, 2, 1, 4, 3, 9, 0, 0, 0, 9, 0, 0, 0][..],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &0xe306_9283_u32.to_le_bytes(),
        ]
        .concat();
        assert_eq!(out[..28], expected);
        assert_eq!(out[28..32], crc32c(&expected).to_le_bytes());
        assert_eq!(&out[32..], b"123456789\0\0\0\0\0\0\0");
    }

    #[test]
    fn building_in_place_equals_writing() {
        let (mut written, mut built) = (Vec::new(), Vec::new());
        for length in [0, 1, 7, 8, 9, 500] {
            let payload = vec![7; length];
            write(
                &mut written,
                BlockKind::FRAMES,
                0,
                3,
                &payload,
                length as u32,
            );
            let start = begin(&mut built);
            built.extend_from_slice(&payload);
            finish_plain(&mut built, start, BlockKind::FRAMES, 0, 3);
            assert_eq!(written, built);
            assert_eq!(written.len() - start, block_length(length));
        }
    }

    #[test]
    fn a_header_decodes_to_itself_and_no_flipped_bit_does() {
        let header = BlockHeader {
            kind: BlockKind::ROOT,
            flags: flags::UNORDERED | flags::CODEC_ZSTD,
            payload_length: 77,
            uncompressed_length: 1_000_000,
            sequence: u64::MAX,
            payload_checksum: 0xdead_beef,
        };
        let bytes = header.encode();
        assert_eq!(BlockHeader::decode(&bytes), Ok(header));
        for bit in 0..HEADER_LENGTH * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_tag_of_a_recording_is_in_the_header_and_changes_nothing_else() {
        let (mut plain, mut tagged) = (Vec::new(), Vec::new());
        for (out, tag) in [
            (&mut plain, None),
            (&mut tagged, Some(RecordingTag(0x1122_3344))),
        ] {
            let start = begin(out);
            out.extend_from_slice(b"some messages");
            finish_tagged(out, start, (BlockKind::BATCH, flags::UNORDERED), 7, tag);
        }
        let header = |block: &[u8]| BlockHeader::decode(block.first_chunk().unwrap()).unwrap();
        assert_eq!(tagged[6..8], [1, 1]);
        assert_eq!(tagged[12..16], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(header(&plain).tag(), None);
        assert_eq!(header(&plain).uncompressed_length, 13);
        assert_eq!(header(&tagged).tag(), Some(RecordingTag(0x1122_3344)));
        assert_eq!(header(&tagged).with_tag(None), header(&plain));
        assert_eq!(
            header(&plain).with_tag(header(&tagged).tag()),
            header(&tagged)
        );
        assert!(is_same_content(&plain, &tagged));
        // A block of a test file has other bits there.
        let document = BlockHeader {
            kind: BlockKind(16),
            ..header(&tagged)
        };
        assert_eq!(document.tag(), None);
        for byte in (0..plain.len()).filter(|byte| !(28..32).contains(byte)) {
            let mut other = tagged.clone();
            other[byte] ^= 0x10;
            assert!(!is_same_content(&plain, &other), "{byte}");
        }
    }

    #[test]
    fn another_version_and_an_impossible_length_are_named() {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[..3].copy_from_slice(&MAGIC);
        let seal = |mut bytes: [u8; HEADER_LENGTH]| {
            let checksum = crc32c(&bytes[..28]).to_le_bytes();
            bytes[28..].copy_from_slice(&checksum);
            BlockHeader::decode(&bytes)
        };
        bytes[3] = 2;
        assert_eq!(seal(bytes), Err(Defect::Version { found: 2 }));
        bytes[3] = VERSION;
        bytes[8..12].copy_from_slice(&(PAYLOAD_LENGTH_MAX as u32 + 1).to_le_bytes());
        let claimed = PAYLOAD_LENGTH_MAX as u32 + 1;
        assert_eq!(seal(bytes), Err(Defect::Length { claimed }));
    }
}
