//! The frames of a batch: checked once, then iterated as messages without further checks.

use super::block_check::JOINED_LENGTH_MIN;
use crate::Position;
use seatrial_blocks::crc32c::instruction;
use seatrial_blocks::frame::{self, FrameError};
use seatrial_blocks::{ALIGNMENT, crc32c};

/// Up to this length a message is checksummed with the CRC instruction where many messages follow each other: the processor
/// overlaps several messages, so throughput counts and not the latency of one.
const STREAMED_LENGTH_MAX: usize = 256;

/// A frame's header as one word.
#[derive(Clone, Copy)]
pub(super) struct FrameWord(u64);

impl FrameWord {
    #[inline]
    pub(super) fn first(bytes: &[u8]) -> Option<FrameWord> {
        let word = bytes.first_chunk::<{ frame::HEADER_LENGTH }>()?;
        Some(FrameWord(u64::from_le_bytes(*word)))
    }

    #[inline]
    pub(super) fn length(self) -> usize {
        self.0 as usize & frame::PAYLOAD_LENGTH_MAX
    }

    #[inline]
    pub(super) fn has_checksum(self) -> bool {
        self.0 as u32 & frame::CHECKSUM != 0
    }

    #[inline]
    pub(super) fn flags(self) -> u32 {
        self.0 as u32 >> frame::FLAGS_SHIFT & frame::FLAGS
    }

    #[inline]
    pub(super) fn stored(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Length and checksum bit, without the application's bits.
    #[inline]
    fn marks(self) -> u32 {
        self.0 as u32 & !(frame::FLAGS << frame::FLAGS_SHIFT)
    }

    /// The correct value of [`FrameWord::stored`].
    #[inline]
    pub(super) fn computed(self, payload: &[u8]) -> u32 {
        if !self.has_checksum() {
            0
        } else if payload.len() <= STREAMED_LENGTH_MAX && instruction::is_supported() {
            instruction::crc32c(0, payload)
        } else {
            crc32c(payload)
        }
    }

    /// The accepted value of [`FrameWord::stored`] where frame checksums are not computed.
    #[inline]
    pub(super) fn expected_unchecked(self) -> u32 {
        if self.has_checksum() {
            self.stored()
        } else {
            0
        }
    }

    /// Is the message long enough to be read once for both checksums?
    #[inline]
    pub(super) fn is_joined(self) -> bool {
        self.has_checksum() && self.length() >= JOINED_LENGTH_MIN
    }
}

/// The distance from one frame to the next.
///
/// The offset of a frame depends on the length of the previous one, so a reader would wait for one load after the other.
/// While lengths repeat, the processor continues speculatively with the previous length, and the branch that compares it is
/// predicted. Where lengths change often, mispredictions cost more than that saves, so there the length is always loaded.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    length: usize,
    padded: usize,
}

impl Stride {
    #[inline]
    fn of(length: usize) -> Stride {
        Stride {
            length,
            padded: length.next_multiple_of(ALIGNMENT),
        }
    }

    /// Not inlined, so that the compiler keeps the branch: a conditional move would wait for the load.
    #[cold]
    #[inline(never)]
    fn changed(length: usize) -> Stride {
        Stride::of(length)
    }

    /// The stride of the frame with this header.
    #[inline]
    fn next<const STEADY: bool>(self, word: FrameWord) -> Stride {
        let length = word.length();
        if !STEADY {
            return Stride::of(length);
        }
        if length == self.length {
            return self;
        }
        Stride::changed(length)
    }
}

/// Counts of checked frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedFrames {
    /// Number of frames.
    pub(super) count: u64,
    /// Number of frames with another length than the previous one.
    changes: u64,
}

impl CountedFrames {
    /// Do at least 7 of 8 messages have the length of the previous one?
    pub(super) fn is_steady(self) -> bool {
        self.changes * 8 <= self.count
    }
}

/// Checks bounds and padding of all frames, and with `checksums` also their own checksums; counts them. `steady` says that
/// most have the length of the previous one.
pub(super) fn walk(
    frames: &[u8],
    checksums: bool,
    steady: bool,
) -> Result<CountedFrames, FrameError> {
    let (mut rest, mut walked, mut before) = (frames, CountedFrames::default(), None);
    while !rest.is_empty() {
        let offset = frames.len() - rest.len();
        let (word, after) = check_one(rest, offset, checksums)?;
        walked.changes += u64::from(before != Some(word.length()));
        walked.count += 1;
        before = Some(word.length());
        rest = after;
        if steady {
            let (count, after) = step_over_alike(rest, word, checksums);
            walked.count += count;
            rest = after;
        }
    }
    Ok(walked)
}

/// Checks the first frame of `rest`, which is at `offset`; returns its header and the remaining frames.
#[inline]
fn check_one(
    rest: &[u8],
    offset: usize,
    checksums: bool,
) -> Result<(FrameWord, &[u8]), FrameError> {
    let there = rest.len();
    let short = |needed| FrameError::Short {
        offset,
        needed,
        there,
    };
    let (head, after) = rest
        .split_first_chunk::<{ frame::HEADER_LENGTH }>()
        .ok_or_else(|| short(frame::HEADER_LENGTH))?;
    let word = FrameWord(u64::from_le_bytes(*head));
    let length = word.length();
    let padded = length.next_multiple_of(ALIGNMENT);
    let (body, after) = after
        .split_at_checked(padded)
        .ok_or_else(|| short(frame::HEADER_LENGTH + padded))?;
    if !is_padded(body, length) {
        return Err(FrameError::Padding { offset });
    }
    let stored = word.stored();
    let computed = if checksums {
        word.computed(&body[..length])
    } else {
        word.expected_unchecked()
    };
    if stored != computed {
        return Err(FrameError::Checksum {
            offset,
            stored,
            computed,
        });
    }
    Ok((word, after))
}

/// Are the bytes of `body` after the `length` bytes of the message zero?
#[inline]
fn is_padded(body: &[u8], length: usize) -> bool {
    let over = length % ALIGNMENT;
    over == 0
        || body
            .last_chunk()
            .is_none_or(|last| u64::from_le_bytes(*last) >> (8 * over) == 0)
}

/// Steps over the frames at the start of `rest` that are valid and as long as one with the header `like`; returns their
/// number and the remaining frames.
fn step_over_alike(rest: &[u8], like: FrameWord, checksums: bool) -> (u64, &[u8]) {
    let (length, marks) = (like.length(), like.marks());
    if !like.has_checksum() {
        return step_over(rest, length, |word, _| {
            word.marks() == marks && word.stored() == 0
        });
    }
    if !checksums {
        return step_over(rest, length, |word, _| word.marks() == marks);
    }
    let is_right =
        |word: FrameWord, computed: u32| word.marks() == marks && word.stored() == computed;
    // A loop for each kind, so that no loop has a decision for each frame.
    if length > STREAMED_LENGTH_MAX || !instruction::is_supported() {
        step_over(rest, length, |word, message| {
            is_right(word, crc32c(message))
        })
    } else if length == 32 {
        step_over(rest, 32, |word, message| {
            let whole: Option<&[u8; 32]> = message.first_chunk();
            whole.is_some_and(|message| is_right(word, instruction::crc32c(0, message)))
        })
    } else {
        step_over(rest, length, |word, message| {
            is_right(word, instruction::crc32c(0, message))
        })
    }
}

/// Steps over frames with messages of `length` bytes for which `is_right` holds.
#[inline]
fn step_over(
    rest: &[u8],
    length: usize,
    is_right: impl Fn(FrameWord, &[u8]) -> bool,
) -> (u64, &[u8]) {
    let total = frame::frame_length(length);
    let (mut rest, mut count) = (rest, 0);
    while let Some((frame, after)) = rest.split_at_checked(total) {
        let Some((head, body)) = frame.split_first_chunk::<{ frame::HEADER_LENGTH }>() else {
            break;
        };
        let word = FrameWord(u64::from_le_bytes(*head));
        if !is_right(word, &body[..length]) || !is_padded(body, length) {
            break;
        }
        rest = after;
        count += 1;
    }
    (count, rest)
}

/// A message of a recording, borrowed from its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Position of its frame.
    pub position: Position,
    /// The application's bits, 0 to 7.
    pub flags: u32,
    /// The recorded bytes.
    pub payload: &'a [u8],
}

/// The messages of a checked block, in order.
#[derive(Clone, Debug)]
pub struct BlockMessages<'a> {
    frames: &'a [u8],
    position: u64,
    steady: bool,
    stride: Stride,
}

impl<'a> BlockMessages<'a> {
    /// The messages of `frames`, which were checked and start at `position`; `steady` says that most have the length of
    /// the previous one.
    pub(crate) fn new(frames: &'a [u8], position: Position, steady: bool) -> BlockMessages<'a> {
        BlockMessages {
            frames,
            position: position.0,
            steady,
            stride: Stride::default(),
        }
    }

    /// The remaining frames as stored, and the position of the first.
    pub fn rest(&self) -> (&'a [u8], Position) {
        (self.frames, Position(self.position))
    }
}

impl<'a> Iterator for BlockMessages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        let (head, after) = self
            .frames
            .split_first_chunk::<{ frame::HEADER_LENGTH }>()?;
        let word = FrameWord(u64::from_le_bytes(*head));
        self.stride = if self.steady {
            self.stride.next::<true>(word)
        } else {
            self.stride.next::<false>(word)
        };
        let (body, after) = after.split_at_checked(self.stride.padded)?;
        let message = Message {
            position: Position(self.position),
            flags: word.flags(),
            payload: &body[..self.stride.length],
        };
        self.frames = after;
        let total = frame::HEADER_LENGTH + self.stride.padded;
        // Overflows only in a file whose name claims the last positions, which is never written.
        self.position = self.position.wrapping_add(total as u64);
        Some(message)
    }
}
