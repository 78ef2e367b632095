//! The frames of a batch, one after the other: checked once, then lent as messages.

use super::replay::JOINED_LENGTH_MIN;
use crate::crc32c::instruction;
use crate::frame::{self, FrameError};
use crate::{ALIGNMENT, Position, crc32c};

/// Up to this many bytes a message's checksum is left to the CRC instruction where many messages follow each other: the
/// processor works on several of them at a time, so it is the steps that count and not how long one waits for another.
const STREAMED_LENGTH_MAX: usize = 256;

/// A frame's header.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Word {
    #[inline]
    pub(super) fn first(bytes: &[u8]) -> Option<Word> {
        let word = bytes.first_chunk::<{ frame::HEADER_LENGTH }>()?;
        Some(Word(u64::from_le_bytes(*word)))
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

    /// Length and mark of a checksum, without the owner's bits.
    #[inline]
    fn marks(self) -> u32 {
        self.0 as u32 & !(frame::FLAGS << frame::FLAGS_SHIFT)
    }

    /// What [`Word::stored`] has to be.
    #[inline]
    pub(super) fn computed(self, payload: &[u8]) -> u32 {
        if !self.has_checksum() {
            0
        } else if payload.len() <= STREAMED_LENGTH_MAX && instruction::is_there() {
            instruction::crc32c(0, payload)
        } else {
            crc32c(payload)
        }
    }

    /// What [`Word::stored`] has to be where its block's checksum is enough.
    #[inline]
    pub(super) fn believed(self) -> u32 {
        if self.has_checksum() {
            self.stored()
        } else {
            0
        }
    }

    /// Is its message read once for both checksums?
    #[inline]
    pub(super) fn is_joined(self) -> bool {
        self.has_checksum() && self.length() >= JOINED_LENGTH_MIN
    }
}

/// How far it is from one frame to the next.
///
/// The place of a frame follows from the length of the one before, so a reader would wait for one load after the other.
/// While messages stay as long as they were, the processor goes on with the length that it has, and checks it later: the
/// branch that does so is predicted. Where lengths change all the time that costs more than it gives, so there the length is
/// always taken from the frame.
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

    /// Not inlined: a selection without a branch would wait for the load again.
    #[cold]
    #[inline(never)]
    fn changed(length: usize) -> Stride {
        Stride::of(length)
    }

    /// That of the frame with this header.
    #[inline]
    fn next<const STEADY: bool>(self, word: Word) -> Stride {
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

/// What was found by stepping through frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walked {
    /// How many there are.
    pub(super) count: u64,
    /// How many are not as long as the one before them.
    changes: u64,
}

impl Walked {
    /// Are most messages as long as the one before them?
    pub(super) fn is_steady(self) -> bool {
        self.changes * 8 <= self.count
    }
}

/// Steps through frames, checks bounds and padding of each, and, with `checksums`, its own checksum; counts them. If
/// `steady`, most are expected to be as long as the one before them.
pub(super) fn walk(frames: &[u8], checksums: bool, steady: bool) -> Result<Walked, FrameError> {
    let (mut rest, mut walked, mut before) = (frames, Walked::default(), None);
    while !rest.is_empty() {
        let offset = frames.len() - rest.len();
        let (word, behind) = check_one(rest, offset, checksums)?;
        walked.changes += u64::from(before != Some(word.length()));
        walked.count += 1;
        before = Some(word.length());
        rest = behind;
        if steady {
            let (count, behind) = step_over_alike(rest, word, checksums);
            walked.count += count;
            rest = behind;
        }
    }
    Ok(walked)
}

/// Checks the frame that starts `rest`, `offset` bytes behind the first one; answers with its header and what is behind it.
#[inline]
fn check_one(rest: &[u8], offset: usize, checksums: bool) -> Result<(Word, &[u8]), FrameError> {
    let there = rest.len();
    let short = |needed| FrameError::Short {
        offset,
        needed,
        there,
    };
    let (head, behind) = rest
        .split_first_chunk::<{ frame::HEADER_LENGTH }>()
        .ok_or_else(|| short(frame::HEADER_LENGTH))?;
    let word = Word(u64::from_le_bytes(*head));
    let length = word.length();
    let padded = length.next_multiple_of(ALIGNMENT);
    let (body, behind) = behind
        .split_at_checked(padded)
        .ok_or_else(|| short(frame::HEADER_LENGTH + padded))?;
    if !is_padded(body, length) {
        return Err(FrameError::Padding { offset });
    }
    let stored = word.stored();
    let computed = if checksums {
        word.computed(&body[..length])
    } else {
        word.believed()
    };
    if stored != computed {
        return Err(FrameError::Checksum {
            offset,
            stored,
            computed,
        });
    }
    Ok((word, behind))
}

/// Is what is behind the `length` bytes of a message zero? `body` is both.
#[inline]
fn is_padded(body: &[u8], length: usize) -> bool {
    let over = length % ALIGNMENT;
    over == 0
        || body
            .last_chunk()
            .is_none_or(|last| u64::from_le_bytes(*last) >> (8 * over) == 0)
}

/// Steps over the frames that start `rest` and are as long as one with the header `like`, as long as nothing is wrong with
/// them; answers how many, and what is behind them.
fn step_over_alike(rest: &[u8], like: Word, checksums: bool) -> (u64, &[u8]) {
    let (length, marks) = (like.length(), like.marks());
    if !like.has_checksum() {
        return step_over(rest, length, |word, _| {
            word.marks() == marks && word.stored() == 0
        });
    }
    if !checksums {
        return step_over(rest, length, |word, _| word.marks() == marks);
    }
    let is_right = |word: Word, computed: u32| word.marks() == marks && word.stored() == computed;
    // Each kind in a loop of its own, in which nothing is decided for every frame.
    if length > STREAMED_LENGTH_MAX || !instruction::is_there() {
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

/// Steps over frames of messages of `length` bytes for which `is_right` holds.
#[inline]
fn step_over(rest: &[u8], length: usize, is_right: impl Fn(Word, &[u8]) -> bool) -> (u64, &[u8]) {
    let total = frame::frame_length(length);
    let (mut rest, mut count) = (rest, 0);
    while let Some((frame, behind)) = rest.split_at_checked(total) {
        let Some((head, body)) = frame.split_first_chunk::<{ frame::HEADER_LENGTH }>() else {
            break;
        };
        let word = Word(u64::from_le_bytes(*head));
        if !is_right(word, &body[..length]) || !is_padded(body, length) {
            break;
        }
        rest = behind;
        count += 1;
    }
    (count, rest)
}

/// A message of a recording, lent by its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Where its frame starts.
    pub position: Position,
    /// The application's bits, 0 to 7.
    pub flags: u32,
    /// What was recorded.
    pub payload: &'a [u8],
}

/// The messages of a checked block, in order. Nothing can be wrong with them any more.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    frames: &'a [u8],
    position: u64,
    steady: bool,
    stride: Stride,
}

impl<'a> Messages<'a> {
    /// The messages in `frames`, which were checked and start at `position`; if `steady`, most are as long as the one before
    /// them.
    pub(crate) fn new(frames: &'a [u8], position: Position, steady: bool) -> Messages<'a> {
        Messages {
            frames,
            position: position.0,
            steady,
            stride: Stride::default(),
        }
    }

    /// The frames not yet stepped over, as stored, and the position of the first.
    pub fn rest(&self) -> (&'a [u8], Position) {
        (self.frames, Position(self.position))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        let (head, behind) = self
            .frames
            .split_first_chunk::<{ frame::HEADER_LENGTH }>()?;
        let word = Word(u64::from_le_bytes(*head));
        self.stride = if self.steady {
            self.stride.next::<true>(word)
        } else {
            self.stride.next::<false>(word)
        };
        let (body, behind) = behind.split_at_checked(self.stride.padded)?;
        let message = Message {
            position: Position(self.position),
            flags: word.flags(),
            payload: &body[..self.stride.length],
        };
        self.frames = behind;
        let total = frame::HEADER_LENGTH + self.stride.padded;
        // Overflows only in a file whose name claims the last positions there are, which is never written.
        self.position = self.position.wrapping_add(total as u64);
        Some(message)
    }
}
