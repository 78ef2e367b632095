//! Segments, the files of a recording: their names and first blocks. Byte map in `docs/formats/archive.md`.

use crate::block::{self, BlockKind};
use crate::{Position, RecordingId, RecordingTag};

/// Bytes of the payload of a segment's first block.
pub const SEGMENT_HEADER_LENGTH: usize = 40;
/// Bytes of a segment's first block: its first batch starts here.
pub const SEGMENT_BLOCK_LENGTH: u64 = block::block_length(SEGMENT_HEADER_LENGTH) as u64;
/// The shortest segment that may be asked for, in bytes.
pub const SEGMENT_LENGTH_MIN: u64 = 1 << 10;
/// The longest segment that may be asked for, in bytes.
pub const SEGMENT_LENGTH_MAX: u64 = 16 << 30;
/// The length of a segment unless another is asked for, in bytes.
pub const SEGMENT_LENGTH: u64 = 128 << 20;

/// How a segment's name ends.
const SUFFIX: &str = ".segment";
/// What is appended to a segment's name while a shortened copy is being written.
const NEW: &str = ".new";
/// Digits of a recording's number in a name.
const RECORDING_DIGITS: usize = 10;
/// Digits of a position in a name.
const POSITION_DIGITS: usize = 20;

/// What the first block of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The recording that the file belongs to.
    pub recording: RecordingId,
    /// The position of the first byte of the file.
    pub start: Position,
    /// The number of the first message.
    pub first_message: u64,
    /// The length after which the next segment is begun, in bytes.
    pub segment_length: u64,
    /// When it was begun: nanoseconds since 1970, never lower than that of the batch before.
    pub time: u64,
}

/// Bytes that are not the first block's payload of the segment that belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Another kind of block.
    #[error("a block of kind {found} where a segment's first block (kind 3) belongs")]
    Kind {
        /// The kind that is there.
        found: u16,
    },
    /// Not as many bytes as a header has.
    #[error("a segment's first block holds {SEGMENT_HEADER_LENGTH} bytes, this one {found}")]
    Length {
        /// Bytes that are there.
        found: usize,
    },
    /// A file of another recording.
    #[error("segment of recording {found}, its name says {expected}")]
    Recording {
        /// The recording that the name says.
        expected: RecordingId,
        /// The recording in the block.
        found: RecordingId,
    },
    /// A file from another place of the recording.
    #[error("segment from position {found}, its name says {expected}")]
    Start {
        /// The position that the name says.
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

    /// The whole first block with its number and the tag of its recording.
    pub fn block(&self, sequence: u64, tag: Option<RecordingTag>) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_BLOCK_LENGTH as usize);
        let start = block::begin(&mut out);
        out.extend_from_slice(&self.encode());
        block::finish_tagged(&mut out, start, (BlockKind::SEGMENT, 0), sequence, tag);
        out
    }

    /// Reads the payload of a block of `kind`.
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

    /// Is it the header of the file with this name?
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

/// What a segment's file name says.
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

    /// Reads a file's name; nothing when it is not that of a segment.
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

    /// Reads the name of a shortened copy; nothing when it is not one.
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
    fn a_header_of_another_file_is_told_apart() {
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
    fn arbitrary_bytes_are_told_by_their_length() {
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
