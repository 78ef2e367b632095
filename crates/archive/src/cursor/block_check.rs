//! Checks of a recording's blocks, and a checked block with its messages.

use super::frames::{BlockMessages, FrameWord, walk};
use crate::Position;
use crate::batch::{BATCH_FRAMES_OFFSET, BATCH_HEADER_LENGTH, BatchError, BatchHeader};
use crate::segment::{SegmentError, SegmentHeader};
use seatrial_blocks::block::{self, BlockHeader, Defect};
use seatrial_blocks::crc32c::{Shift, crc32c, crc32c_more};
use seatrial_blocks::frame::{self, FrameError};
use seatrial_blocks::{ALIGNMENT, RecordingTag};
use seatrial_machine::counted;

/// From this length on, a message with a checksum of its own is read once for both checksums: its own is combined into that
/// of the block. Below, reading the block twice while it is in the cache is cheaper.
pub(super) const JOINED_LENGTH_MIN: usize = 96;
/// Creating a [`Shift`] costs as much as reading some kilobytes: a block with more changes of length is read twice.
const CHANGES_MAX: usize = 8;

/// What the next block of a recording has to match, so that it continues the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedBlock {
    /// Its sequence number.
    pub(crate) sequence: u64,
    /// Number of its first message; `None` if the previous block was not read.
    pub(crate) message: Option<u64>,
    /// Lower bound of its time, in nanoseconds since 1970.
    pub(crate) time: u64,
}

/// Why a valid block is not the expected batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Not the payload of a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Not frames, or a frame whose own checksum does not match.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The number of frames differs from the header.
    #[error("batch header says {}, found {found}", counted(*expected, "message"))]
    Messages {
        /// Number of messages in the header.
        expected: u64,
        /// Number of frames.
        found: u64,
    },
    /// The message number does not continue the previous batch.
    #[error("expected first message number {expected}, found {found}")]
    FirstMessage {
        /// The number that continues the recording.
        expected: u64,
        /// The number in the header.
        found: u64,
    },
    /// The time of the first segment differs from the catalog: it is one of another recording.
    #[error("segment begun at {found} ns, the catalog says {expected} ns")]
    Begun {
        /// The time in the catalog.
        expected: u64,
        /// The time in the segment.
        found: u64,
    },
    /// The time of the last batch differs from the catalog: it is one of another recording.
    #[error("the last batch was written at {found} ns, the catalog says {expected} ns")]
    Ended {
        /// The time in the catalog.
        expected: u64,
        /// The time of the batch.
        found: u64,
    },
    /// The time is before that of the previous batch.
    #[error("written at {found} ns, before the previous batch ({before} ns)")]
    Time {
        /// The time of the previous batch.
        before: u64,
        /// The time in the header.
        found: u64,
    },
}

/// Why the bytes at some offset of a segment are not what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockDamage {
    /// They are not the expected block.
    #[error("{0}")]
    Block(Defect),
    /// The block is valid, but not the expected batch.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The block is valid, but not the first one of this segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl From<Defect> for BlockDamage {
    fn from(defect: Defect) -> BlockDamage {
        BlockDamage::Block(defect)
    }
}

/// Checks a block's header: magic, checksum and version, the recording's tag, the sequence number if one is expected, and
/// that the block fits the `there` bytes from its start to the end of the file. In this order, so that a block of another
/// recording is reported as such.
pub(crate) fn check_header(
    bytes: &[u8; block::HEADER_LENGTH],
    tag: Option<RecordingTag>,
    sequence: Option<u64>,
    there: u64,
) -> Result<BlockHeader, Defect> {
    let header = BlockHeader::decode(bytes)?;
    let (expected, found) = (tag, header.tag());
    if expected != found {
        return Err(Defect::Recording { expected, found });
    }
    if let Some(expected) = sequence
        && expected != header.sequence
    {
        let found = header.sequence;
        return Err(Defect::Sequence { expected, found });
    }
    let needed = header.block_length();
    if there < needed {
        return Err(Defect::Short { needed, there });
    }
    Ok(header)
}

/// Checks the payloads of blocks. Caches the [`Shift`] of the last frame length, and whether lengths repeat.
#[derive(Debug)]
pub(crate) struct BlockChecker {
    /// Are the frames' own checksums computed too?
    checksums: bool,
    /// Had most messages of the last block the length of the previous one?
    steady: bool,
    length: usize,
    shift: Shift,
}

impl BlockChecker {
    /// A checker with or without the frames' own checksums.
    pub(crate) fn new(checksums: bool) -> BlockChecker {
        BlockChecker {
            checksums,
            steady: true,
            length: 0,
            shift: Shift::by(0),
        }
    }

    /// Had most messages of the last block the length of the previous one?
    pub(crate) fn is_steady(&self) -> bool {
        self.steady
    }

    /// Checks that `body`, the payload and padding after `header`, is the batch that `chain` expects: the block's checksum,
    /// the batch's header, bounds and padding of every frame, and the checksums of frames that have one.
    pub(crate) fn check(
        &mut self,
        header: &BlockHeader,
        body: &[u8],
        chain: &ExpectedBlock,
    ) -> Result<BatchHeader, BlockDamage> {
        let payload = &body[..header.payload_length as usize];
        let joined = self.joined(payload);
        check_payload(header, body, joined)?;
        let (batch, frames) =
            BatchHeader::decode(header.kind, payload).map_err(ContentError::Batch)?;
        let walked = walk(frames, self.checksums && joined.is_none(), self.steady);
        let walked = walked.map_err(ContentError::Frame)?;
        self.steady = walked.is_steady();
        chain.check(&batch, walked.count)?;
        Ok(batch)
    }

    /// The checksum of a batch's payload, combined from those of its frames, each of which is computed and compared. `None`
    /// if the frames are short or have no checksums, or one differs: the block's checksum is then computed and shows
    /// whether block or frame is wrong.
    fn joined(&mut self, payload: &[u8]) -> Option<u32> {
        let first = FrameWord::first(payload.get(BATCH_HEADER_LENGTH..)?)?;
        if !self.checksums || !self.steady || !first.is_joined() {
            return None;
        }
        let (mut checksum, mut done, mut at) = (0, 0, BATCH_HEADER_LENGTH);
        let mut changes = 0;
        while at < payload.len() {
            let word = FrameWord::first(payload.get(at..)?)?;
            let (start, length) = (at + frame::HEADER_LENGTH, word.length());
            let message = payload.get(start..start + length)?;
            let computed = word.computed(message);
            if computed != word.stored() {
                return None;
            }
            if word.is_joined() {
                if self.length != length {
                    changes += 1;
                    if changes > CHANGES_MAX {
                        return None;
                    }
                    (self.length, self.shift) = (length, Shift::by(length as u64));
                }
                checksum = crc32c_more(checksum, &payload[done..start]);
                checksum = self.shift.combine(checksum, computed);
                done = start + length;
            }
            at = start + length.next_multiple_of(ALIGNMENT);
        }
        Some(crc32c_more(checksum, payload.get(done..)?))
    }
}

/// Checks payload checksum and padding of any block; `computed` is the payload's checksum if it is known.
pub(crate) fn check_payload(
    header: &BlockHeader,
    body: &[u8],
    computed: Option<u32>,
) -> Result<(), Defect> {
    let (payload, padding) = body.split_at(header.payload_length as usize);
    let stored = header.payload_checksum;
    let computed = computed.unwrap_or_else(|| crc32c(payload));
    if stored != computed {
        return Err(Defect::PayloadChecksum { stored, computed });
    }
    if padding.iter().any(|&byte| byte != 0) {
        return Err(Defect::Padding);
    }
    Ok(())
}

impl ExpectedBlock {
    /// Checks that a batch with `found` frames is the expected one.
    fn check(&self, batch: &BatchHeader, found: u64) -> Result<(), ContentError> {
        let expected = u64::from(batch.messages);
        if found != expected {
            return Err(ContentError::Messages { expected, found });
        }
        self.check_place(batch.first_message, batch.time)
    }

    /// Checks that this segment is the expected one.
    pub(crate) fn check_segment(&self, segment: &SegmentHeader) -> Result<(), ContentError> {
        self.check_place(segment.first_message, segment.time)
    }

    pub(crate) fn check_place(&self, first_message: u64, time: u64) -> Result<(), ContentError> {
        if let Some(expected) = self.message
            && expected != first_message
        {
            let found = first_message;
            return Err(ContentError::FirstMessage { expected, found });
        }
        let (before, found) = (self.time, time);
        if found < before {
            return Err(ContentError::Time { before, found });
        }
        Ok(())
    }

    /// What the block after this batch, which has this sequence number, has to match.
    pub(crate) fn after(sequence: u64, batch: &BatchHeader) -> ExpectedBlock {
        ExpectedBlock {
            sequence: sequence.wrapping_add(1),
            message: Some(
                batch
                    .first_message
                    .saturating_add(u64::from(batch.messages)),
            ),
            time: batch.time,
        }
    }
}

/// A checked block of a recording, restricted to the messages between the reader's origin and bound. Borrows the bytes of
/// the mapped file, or of the reader's buffer where files are not mapped.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBlock<'a> {
    /// The whole block as stored.
    pub(crate) bytes: &'a [u8],
    /// Its position.
    pub(crate) start: Position,
    pub(crate) batch: BatchHeader,
    pub(crate) sequence: u64,
    pub(crate) trim: MessageRange,
    /// Do most of its messages have the length of the previous one?
    pub(crate) steady: bool,
}

/// A range of a block's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageRange {
    /// Number of messages before the range.
    pub(crate) skipped: u32,
    /// Number of messages in the range.
    pub(crate) messages: u32,
    /// Offset of the first frame in the block.
    pub(crate) from: usize,
    /// Offset of the end of the last frame.
    pub(crate) to: usize,
}

impl<'a> ReplayBlock<'a> {
    /// Position of its first message.
    pub fn position(&self) -> Position {
        self.start.plus(self.trim.from as u64)
    }

    /// End of its messages: a reader that resumes here misses no message and gets none twice.
    pub fn end(&self) -> Position {
        self.start.plus(self.trim.to as u64)
    }

    /// Time of the write, in nanoseconds since 1970.
    pub fn time(&self) -> u64 {
        self.batch.time
    }

    /// Number of its first message in the recording.
    pub fn first_message(&self) -> u64 {
        let skipped = u64::from(self.trim.skipped);
        self.batch.first_message.saturating_add(skipped)
    }

    /// Number of its messages.
    pub fn messages_count(&self) -> u32 {
        self.trim.messages
    }

    /// Its messages.
    pub fn messages(&self) -> BlockMessages<'a> {
        BlockMessages::new(self.frames(), self.position(), self.steady)
    }

    /// The frames of its messages as stored, back to back.
    pub fn frames(&self) -> &'a [u8] {
        &self.bytes[self.trim.from..self.trim.to]
    }

    /// Sequence number of the block in the recording.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The whole block as stored, with all its messages, and its position: for copies.
    pub fn stored(&self) -> (&'a [u8], Position) {
        (self.bytes, self.start)
    }
}

impl MessageRange {
    /// The empty range.
    pub(crate) const NONE: MessageRange = MessageRange {
        skipped: 0,
        messages: 0,
        from: 0,
        to: 0,
    };

    /// All messages of a block of `length` bytes.
    pub(crate) fn all(length: usize, batch: &BatchHeader) -> MessageRange {
        MessageRange {
            skipped: 0,
            messages: batch.messages,
            from: BATCH_FRAMES_OFFSET,
            to: length,
        }
    }

    /// The messages of a checked block that start at or after offset `from` and before `to`.
    pub(crate) fn offsets(block: &[u8], from: usize, to: usize) -> MessageRange {
        let start = Position(BATCH_FRAMES_OFFSET as u64);
        let mut trim = MessageRange {
            skipped: 0,
            messages: 0,
            from: block.len(),
            to: block.len(),
        };
        for message in BlockMessages::new(&block[BATCH_FRAMES_OFFSET..], start, false) {
            let at = message.position.0 as usize;
            if at >= to {
                trim.to = at;
                break;
            }
            if at < from {
                trim.skipped += 1;
                continue;
            }
            trim.from = trim.from.min(at);
            trim.messages += 1;
        }
        trim.from = trim.from.min(trim.to);
        assert!(trim.from <= trim.to && trim.to <= block.len());
        trim
    }

    /// This range without its first `count` messages.
    pub(crate) fn without(self, block: &[u8], count: u32) -> MessageRange {
        let mut messages = BlockMessages::new(
            &block[self.from..self.to],
            Position(self.from as u64),
            false,
        );
        let skipped = messages.by_ref().take(count as usize).count() as u32;
        MessageRange {
            skipped: self.skipped + skipped,
            messages: self.messages - skipped,
            from: messages.rest().1.0 as usize,
            to: self.to,
        }
    }
}
