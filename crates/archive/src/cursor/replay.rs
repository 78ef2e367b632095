//! A block of a recording, whole and checked, and the messages in it.

use super::frames::{Messages, Word, walk};
use crate::batch::{BATCH_FRAMES_OFFSET, BATCH_HEADER_LENGTH, BatchError, BatchHeader};
use crate::block::{self, BlockHeader, Defect};
use crate::crc32c::{Shift, crc32c, crc32c_more};
use crate::frame::{self, FrameError};
use crate::segment::{SegmentError, SegmentHeader};
use crate::{ALIGNMENT, Position, RecordingTag};

/// From this length on, a message with a checksum of its own is read once for both checksums: its own is moved into that
/// of the block. Below, reading the block twice while it is in the cache costs less.
pub(super) const JOINED_LENGTH_MIN: usize = 96;
/// A [`Shift`] takes about as long as reading some kilobytes: with more lengths than this in a block it is read twice.
const CHANGES_MAX: usize = 8;

/// What the next block of a recording has to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Its number.
    pub(crate) sequence: u64,
    /// The number of its first message, if the block before was read.
    pub(crate) message: Option<u64>,
    /// Nanoseconds since 1970 below which its time is not.
    pub(crate) time: u64,
}

/// A whole block that is not the batch which belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Not the payload of a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Not frames, or a frame whose own checksum does not match.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Another number of frames than the header says.
    #[error("a batch of {expected} messages holds {found}")]
    Messages {
        /// Messages that the header says.
        expected: u64,
        /// Frames that are there.
        found: u64,
    },
    /// The batch before ended with another message.
    #[error("the first message is number {found} where {expected} belongs")]
    FirstMessage {
        /// The number that continues the recording.
        expected: u64,
        /// The number in the header.
        found: u64,
    },
    /// The first segment was begun at another time than its recording: it is one of another recording.
    #[error("begun at {found} ns, the catalog says {expected} ns")]
    Begun {
        /// The time in the catalog.
        expected: u64,
        /// The time in the segment.
        found: u64,
    },
    /// The last batch was written at another time than that of its recording: it is one of another recording.
    #[error("the last batch was written at {found} ns, the catalog says {expected} ns")]
    Ended {
        /// The time in the catalog.
        expected: u64,
        /// The time of the batch.
        found: u64,
    },
    /// Written before the batch before it.
    #[error("written at {found} ns, the batch before at {before} ns")]
    Time {
        /// The time of the batch before.
        before: u64,
        /// The time in the header.
        found: u64,
    },
}

/// What is wrong at some place of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The bytes are not the block that belongs there.
    #[error("{0}")]
    Block(Defect),
    /// The block is whole, and not the batch that belongs there.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The block is whole, and not the first one of this segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl From<Defect> for Fault {
    fn from(defect: Defect) -> Fault {
        Fault::Block(defect)
    }
}

/// Checks header and place of a block, whatever is in it: with the tag of its recording, with the number `sequence`, if one
/// is expected, and all of it in the `there` bytes that the file holds from its start on.
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

/// Checks what is behind the headers of blocks. Remembers what the latest length of a frame does to a checksum.
#[derive(Debug)]
pub(crate) struct Checker {
    /// Are the frames' own checksums computed too?
    checksums: bool,
    /// Had nearly all messages of the block before the length of the one before them?
    steady: bool,
    length: usize,
    shift: Shift,
}

impl Checker {
    /// With or without the frames' own checksums.
    pub(crate) fn new(checksums: bool) -> Checker {
        Checker {
            checksums,
            steady: true,
            length: 0,
            shift: Shift::by(0),
        }
    }

    /// Were most messages of the latest block as long as the one before them?
    pub(crate) fn is_steady(&self) -> bool {
        self.steady
    }

    /// Checks that what stands behind `header`, payload and padding, is the batch that continues `chain`: the block's
    /// checksum, the batch's header, bounds and padding of every frame, the checksums of those that have one.
    pub(crate) fn check(
        &mut self,
        header: &BlockHeader,
        body: &[u8],
        chain: &Chain,
    ) -> Result<BatchHeader, Fault> {
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

    /// The checksum of a batch's payload out of those of its frames, each of which was computed and found right; nothing
    /// when there are no long frames with checksums, or one is wrong: the block's own then tells whose fault it is.
    fn joined(&mut self, payload: &[u8]) -> Option<u32> {
        let first = Word::first(payload.get(BATCH_HEADER_LENGTH..)?)?;
        if !self.checksums || !self.steady || !first.is_joined() {
            return None;
        }
        let (mut checksum, mut done, mut at) = (0, 0, BATCH_HEADER_LENGTH);
        let mut changes = 0;
        while at < payload.len() {
            let word = Word::first(payload.get(at..)?)?;
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

/// Checks payload and padding of any block; `computed` is the payload's checksum if it is known.
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

impl Chain {
    /// Does a batch of `found` frames come next?
    fn check(&self, batch: &BatchHeader, found: u64) -> Result<(), ContentError> {
        let expected = u64::from(batch.messages);
        if found != expected {
            return Err(ContentError::Messages { expected, found });
        }
        self.check_place(batch.first_message, batch.time)
    }

    /// Does this segment come next?
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

    /// What comes behind a batch with this block number.
    pub(crate) fn after(sequence: u64, batch: &BatchHeader) -> Chain {
        Chain {
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

/// A block of a recording, whole and checked, without the messages before the place that the reader asked for and
/// behind its bound. Lends the bytes of the mapped file, or of the reader's buffer where files are not mapped.
#[derive(Clone, Copy, Debug)]
pub struct ReplayBlock<'a> {
    /// The whole block as stored.
    pub(crate) bytes: &'a [u8],
    /// Where it starts.
    pub(crate) start: Position,
    pub(crate) batch: BatchHeader,
    pub(crate) sequence: u64,
    pub(crate) trim: Trim,
    /// Are most of its messages as long as the one before them?
    pub(crate) steady: bool,
}

/// What of a block's messages is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trim {
    /// Messages left out at the front.
    pub(crate) skipped: u32,
    /// Messages left.
    pub(crate) messages: u32,
    /// Offset of the first one's frame in the block.
    pub(crate) from: usize,
    /// Offset behind the last one's frame.
    pub(crate) to: usize,
}

impl<'a> ReplayBlock<'a> {
    /// Where its first message is.
    pub fn position(&self) -> Position {
        self.start.plus(self.trim.from as u64)
    }

    /// Where the messages in it end: a reader that goes on from here misses none and gets none twice.
    pub fn end(&self) -> Position {
        self.start.plus(self.trim.to as u64)
    }

    /// When it was written: nanoseconds since 1970.
    pub fn time(&self) -> u64 {
        self.batch.time
    }

    /// The number of its first message within the recording.
    pub fn first_message(&self) -> u64 {
        let skipped = u64::from(self.trim.skipped);
        self.batch.first_message.saturating_add(skipped)
    }

    /// How many messages.
    pub fn messages_count(&self) -> u32 {
        self.trim.messages
    }

    /// The messages.
    pub fn messages(&self) -> Messages<'a> {
        Messages::new(self.frames(), self.position(), self.steady)
    }

    /// Their frames as stored, back to back.
    pub fn frames(&self) -> &'a [u8] {
        &self.bytes[self.trim.from..self.trim.to]
    }

    /// The block's number within the recording.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The whole block as stored, with the messages that were not asked for, and where it starts: for copies.
    pub fn stored(&self) -> (&'a [u8], Position) {
        (self.bytes, self.start)
    }
}

impl Trim {
    /// No message.
    pub(crate) const NONE: Trim = Trim {
        skipped: 0,
        messages: 0,
        from: 0,
        to: 0,
    };

    /// All messages of a block of `length` bytes.
    pub(crate) fn all(length: usize, batch: &BatchHeader) -> Trim {
        Trim {
            skipped: 0,
            messages: batch.messages,
            from: BATCH_FRAMES_OFFSET,
            to: length,
        }
    }

    /// Only the messages of a checked block that start at offset `from` or behind it, and before `to`.
    pub(crate) fn offsets(block: &[u8], from: usize, to: usize) -> Trim {
        let start = Position(BATCH_FRAMES_OFFSET as u64);
        let mut trim = Trim {
            skipped: 0,
            messages: 0,
            from: block.len(),
            to: block.len(),
        };
        for message in Messages::new(&block[BATCH_FRAMES_OFFSET..], start, false) {
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
        trim
    }

    /// The same without the first `count` messages.
    pub(crate) fn without(self, block: &[u8], count: u32) -> Trim {
        let mut messages = Messages::new(
            &block[self.from..self.to],
            Position(self.from as u64),
            false,
        );
        let skipped = messages.by_ref().take(count as usize).count() as u32;
        Trim {
            skipped: self.skipped + skipped,
            messages: self.messages - skipped,
            from: messages.rest().1.0 as usize,
            to: self.to,
        }
    }
}
