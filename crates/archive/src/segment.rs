//! Names and first blocks of segments, the files of a recording. Byte map in `docs/formats/archive.md`.

use crate::{Position, RecordingId};
use seatrial_blocks::RecordingTag;
use seatrial_blocks::block::{self, BlockKind};

/// Length in bytes of the payload of a segment's first block.
pub const SEGMENT_HEADER_LENGTH: usize = 40;
/// Length of a segment's first block in bytes: the offset of its first batch.
pub const SEGMENT_BLOCK_LENGTH: u64 = block::block_length(SEGMENT_HEADER_LENGTH) as u64;
/// The lowest allowed segment length in bytes.
pub const SEGMENT_LENGTH_MIN: u64 = 1 << 10;
/// The highest allowed segment length in bytes.
pub const SEGMENT_LENGTH_MAX: u64 = 16 << 30;
/// The default segment length in bytes.
pub const SEGMENT_LENGTH: u64 = 128 << 20;

// A segment has room for more than its first block, or a new one would be begun for ever.
const _: () = assert!(SEGMENT_BLOCK_LENGTH < SEGMENT_LENGTH_MIN);
const _: () = assert!(SEGMENT_LENGTH_MIN < SEGMENT_LENGTH && SEGMENT_LENGTH < SEGMENT_LENGTH_MAX);

/// The extension of a segment's name.
const SUFFIX: &str = ".segment";
/// What is appended to a segment's name while a shortened copy is being written.
const NEW: &str = ".new";
/// Digits of a recording's number in a name.
const RECORDING_DIGITS: usize = 10;
/// Digits of a position in a name.
const POSITION_DIGITS: usize = 20;

/// The contents of a segment's first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The recording that the file belongs to.
    pub recording: RecordingId,
    /// The position of the first byte of the file.
    pub start: Position,
    /// Number of the first message.
    pub first_message: u64,
    /// Length in bytes from which on the next segment is begun.
    pub segment_length: u64,
    /// Time of creation in nanoseconds since 1970; not before that of the previous batch.
    pub time: u64,
}

/// Why bytes are not the first block of the expected segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Another kind of block.
    #[error("expected a segment's first block (block kind 3), found block kind {found}")]
    Kind {
        /// The block's kind.
        found: u16,
    },
    /// Not the length of a segment header.
    #[error("first block of a segment: expected {SEGMENT_HEADER_LENGTH} bytes, found {found}")]
    Length {
        /// Length of the payload in bytes.
        found: usize,
    },
    /// A file of another recording.
    #[error("segment of recording {found}, its name says {expected}")]
    Recording {
        /// The recording in the file's name.
        expected: RecordingId,
        /// The recording in the block.
        found: RecordingId,
    },
    /// A file of another position of the recording.
    #[error("segment from position {found}, its name says {expected}")]
    Start {
        /// The position in the file's name.
        expected: Position,
        /// The position in the block.
        found: Position,
    },
}

impl SegmentHeader {
    /// The payload of the first block.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LENGTH] {
        let mut bytes = [0; SEGMENT_HEADER_LENGTH];
        let fields = [
            self.recording.0,
            self.start.0,
            self.first_message,
            self.segment_length,
            self.time,
        ];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// The first block as stored, with this sequence number and the tag of its recording.
    pub fn block(&self, sequence: u64, tag: Option<RecordingTag>) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_BLOCK_LENGTH as usize);
        let start = block::begin(&mut out);
        out.extend_from_slice(&self.encode());
        block::finish_tagged(&mut out, start, (BlockKind::SEGMENT, 0), sequence, tag);
        out
    }

    /// Decodes the payload of a block of `kind`.
    pub fn decode(kind: BlockKind, payload: &[u8]) -> Result<SegmentHeader, SegmentError> {
        if kind != BlockKind::SEGMENT {
            return Err(SegmentError::Kind { found: kind.0 });
        }
        let found = payload.len();
        let (words, rest) = payload.as_chunks::<8>();
        let [recording, start, first_message, segment_length, time] = *words else {
            return Err(SegmentError::Length { found });
        };
        if !rest.is_empty() {
            return Err(SegmentError::Length { found });
        }
        Ok(SegmentHeader {
            recording: RecordingId(u64::from_le_bytes(recording)),
            start: Position(u64::from_le_bytes(start)),
            first_message: u64::from_le_bytes(first_message),
            segment_length: u64::from_le_bytes(segment_length),
            time: u64::from_le_bytes(time),
        })
    }

    /// Checks that this is the header of the file with this name.
    pub fn check(&self, name: SegmentName) -> Result<(), SegmentError> {
        if self.recording != name.recording {
            return Err(SegmentError::Recording {
                expected: name.recording,
                found: self.recording,
            });
        }
        if self.start != name.start {
            return Err(SegmentError::Start {
                expected: name.start,
                found: self.start,
            });
        }
        Ok(())
    }
}

/// A segment's file name, decoded. Names sort by recording, then by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// The recording that the file belongs to.
    pub recording: RecordingId,
    /// The position of the first byte of the file.
    pub start: Position,
}

impl SegmentName {
    /// The file's name.
    pub fn file(self) -> String {
        let (recording, start) = (self.recording.0, self.start.0);
        format!("{recording:0RECORDING_DIGITS$}-{start:0POSITION_DIGITS$}{SUFFIX}")
    }

    /// The name of a shortened copy before it takes the file's place.
    pub fn file_new(self) -> String {
        self.file() + NEW
    }

    /// Parses a file's name; `None` if it is not that of a segment.
    pub fn parse(file: &str) -> Option<SegmentName> {
        let (recording, start) = file.strip_suffix(SUFFIX)?.split_once('-')?;
        let number = |digits: &str, count: usize| {
            let plain = digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        Some(SegmentName {
            recording: RecordingId(number(recording, RECORDING_DIGITS)?),
            start: Position(number(start, POSITION_DIGITS)?),
        })
    }

    /// Parses the name of a shortened copy; `None` if it is not one.
    pub fn parse_new(file: &str) -> Option<SegmentName> {
        SegmentName::parse(file.strip_suffix(NEW)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    const HEADER: SegmentHeader = SegmentHeader {
        recording: RecordingId(3),
        start: Position(0x1122_3344),
        first_message: 7,
        segment_length: 1 << 20,
        time: 99,
    };

    #[test]
    fn the_byte_map_is_the_documented_one() {
        let bytes = HEADER.encode();
        assert_eq!(bytes[0..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [0, 0, 16, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], [99, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            SegmentHeader::decode(BlockKind::SEGMENT, &bytes),
            Ok(HEADER)
        );
        assert_eq!(HEADER.block(5, None).len() as u64, SEGMENT_BLOCK_LENGTH);
    }

    #[test]
    fn names_sort_as_positions_do_and_come_back() {
        let name = |recording, start| SegmentName {
            recording: RecordingId(recording),
            start: Position(start),
        };
        assert_eq!(
            name(7, 4096).file(),
            "0000000007-00000000000000004096.segment"
        );
        let mut names = [
            name(2, 0),
            name(1, u64::MAX),
            name(1, 9),
            name(1, 10),
            name(9_999_999_999, 3),
        ];
        names.sort();
        let mut files = names.map(SegmentName::file);
        files.sort();
        assert_eq!(
            files.each_ref().map(|file| SegmentName::parse(file)),
            names.map(Some)
        );
        for name in names {
            assert_eq!(SegmentName::parse_new(&name.file_new()), Some(name));
            assert_eq!(SegmentName::parse(&name.file_new()), None);
        }
    }

    #[test]
    fn other_names_are_not_segments() {
        for file in [
            "",
            "catalog",
            ".segment",
            "-.segment",
            "7-4096.segment",
            "+000000007-00000000000000004096.segment",
            "0000000007-00000000000000004096.segment.new",
            "0000000007-99999999999999999999.segment",
            "0000000007-0000000000000000409é.segment",
        ] {
            assert_eq!(SegmentName::parse(file), None, "{file}");
        }
    }

    #[test]
    fn a_header_of_another_file_is_refused() {
        let name = SegmentName {
            recording: RecordingId(3),
            start: HEADER.start,
        };
        assert_eq!(HEADER.check(name), Ok(()));
        let other = SegmentName {
            recording: RecordingId(4),
            ..name
        };
        assert!(matches!(
            HEADER.check(other),
            Err(SegmentError::Recording { .. })
        ));
        let other = SegmentName {
            start: Position(0),
            ..name
        };
        assert!(matches!(
            HEADER.check(other),
            Err(SegmentError::Start { .. })
        ));
    }

    #[test]
    fn arbitrary_bytes_are_refused_unless_they_have_the_length_of_a_header() {
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let bytes: Vec<u8> = (0..rng.index(100)).map(|_| rng.word() as u8).collect();
            let decoded = SegmentHeader::decode(BlockKind::SEGMENT, &bytes);
            match decoded {
                Ok(header) => assert_eq!(header.encode()[..], bytes),
                Err(error) => assert_eq!(error, SegmentError::Length { found: bytes.len() }),
            }
        }
        let wrong = SegmentHeader::decode(BlockKind::BATCH, &HEADER.encode());
        assert_eq!(wrong, Err(SegmentError::Kind { found: 4 }));
    }
}
