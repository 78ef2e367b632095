//! The frames of a batch, one after the other: checked once, then lent as messages.

use super::replay::JOINED_LENGTH_MIN;
use crate::frame::{self, FrameError};
use crate::{ALIGNMENT, Position, crc32c};

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

    /// What [`Word::stored`] has to be.
    #[inline]
    pub(super) fn computed(self, payload: &[u8]) -> u32 {
        if self.has_checksum() {
            crc32c(payload)
        } else {
            0
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

/// Steps through frames, checks bounds, padding and what `computed` says of each, and counts them.
#[inline]
pub(super) fn walk<const STEADY: bool>(
    frames: &[u8],
    computed: impl Fn(Word, &[u8]) -> u32,
) -> Result<Walked, FrameError> {
    let (mut rest, mut walked, mut stride) = (frames, Walked::default(), Stride::default());
    while !rest.is_empty() {
        let there = rest.len();
        let offset = frames.len() - there;
        let short = |needed| FrameError::Short {
            offset,
            needed,
            there,
        };
        let (head, behind) = rest
            .split_first_chunk::<{ frame::HEADER_LENGTH }>()
            .ok_or_else(|| short(frame::HEADER_LENGTH))?;
        let word = Word(u64::from_le_bytes(*head));
        walked.changes += u64::from(word.length() != stride.length);
        stride = stride.next::<STEADY>(word);
        let (body, behind) = behind
            .split_at_checked(stride.padded)
            .ok_or_else(|| short(frame::HEADER_LENGTH + stride.padded))?;
        let over = stride.length % ALIGNMENT;
        if over != 0
            && body
                .last_chunk()
                .is_some_and(|last| u64::from_le_bytes(*last) >> (8 * over) != 0)
        {
            return Err(FrameError::Padding { offset });
        }
        let (stored, computed) = (word.stored(), computed(word, &body[..stride.length]));
        if stored != computed {
            return Err(FrameError::Checksum {
                offset,
                stored,
                computed,
            });
        }
        walked.count += 1;
        rest = behind;
    }
    Ok(walked)
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
        self.position += (frame::HEADER_LENGTH + self.stride.padded) as u64;
        Some(message)
    }
}
