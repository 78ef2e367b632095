//! Messages inside a block: header of 8 bytes, payload, padding. Byte map in `docs/formats/block.md`.

use crate::{ALIGNMENT, crc32c};

/// Length of a frame's header in bytes.
pub const HEADER_LENGTH: usize = 8;
/// The longest payload of a frame: the largest number of the length's 28 bits.
pub const PAYLOAD_LENGTH_MAX: usize = LENGTH as usize;

/// The bits of the first word that hold the length.
const LENGTH: u32 = (1 << 28) - 1;
/// Set when the second word holds a checksum.
pub const CHECKSUM: u32 = 1 << 31;
/// Lowest of the owner's bits.
pub const FLAGS_SHIFT: u32 = 28;
/// The largest value of the owner's flags.
pub const FLAGS: u32 = 0b111;

// Length, flags and checksum bit share the first word without overlap, and fill it.
const _: () = assert!(LENGTH | FLAGS << FLAGS_SHIFT | CHECKSUM == u32::MAX);
const _: () = assert!(LENGTH & (FLAGS << FLAGS_SHIFT) == 0 && CHECKSUM >> 31 == 1);

/// Length in bytes of a frame with a payload of `payload_length` bytes, padding included.
pub const fn frame_length(payload_length: usize) -> usize {
    (HEADER_LENGTH + payload_length).next_multiple_of(ALIGNMENT)
}

/// Appends one frame to `out`; `flags` are the owner's (0 to 7). The frame has no checksum of its own, because its block
/// has one.
///
/// Panics when the payload is longer than [`PAYLOAD_LENGTH_MAX`] or `flags` above 7.
pub fn write(out: &mut Vec<u8>, flags: u32, payload: &[u8]) {
    let start = begin(out);
    out.extend_from_slice(payload);
    finish(out, start, flags);
}

/// Like [`write()`], with a checksum, for frames that leave their block, for example over a network.
pub fn write_checksummed(out: &mut Vec<u8>, flags: u32, payload: &[u8]) {
    let start = begin(out);
    out.extend_from_slice(payload);
    seal(out, start, flags, Some(crc32c(payload)));
}

/// Reserves room for a frame's header and returns its offset. The caller appends the payload in place, then calls
/// [`finish`].
pub fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    start
}

/// Turns everything in `out` after the header at `start` into the payload of a frame without checksum.
pub fn finish(out: &mut Vec<u8>, start: usize, flags: u32) {
    seal(out, start, flags, None);
}

/// Writes header and padding of the frame at `start`.
fn seal(out: &mut Vec<u8>, start: usize, flags: u32, checksum: Option<u32>) {
    let length = out.len() - start - HEADER_LENGTH;
    assert!(length <= PAYLOAD_LENGTH_MAX, "{length}");
    assert!(flags <= FLAGS, "{flags}");
    let mark = if checksum.is_some() { CHECKSUM } else { 0 };
    let first = length as u32 | flags << FLAGS_SHIFT | mark;
    out[start..start + 4].copy_from_slice(&first.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&checksum.unwrap_or(0).to_le_bytes());
    out.resize(start + frame_length(length), 0);
    assert!((out.len() - start).is_multiple_of(ALIGNMENT));
}

/// One frame of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The owner's bits, 0 to 7.
    pub flags: u32,
    /// Offset of the frame in the block's payload.
    pub offset: usize,
    /// Does the frame have a checksum of its own?
    pub is_checksummed: bool,
    /// The message.
    pub payload: &'a [u8],
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The payload ends inside the frame.
    #[error("frame at {offset}: block ends inside it, {needed} bytes needed, {there} available")]
    Short {
        /// Offset of the frame.
        offset: usize,
        /// Length of the frame, or of its header if that does not fit.
        needed: usize,
        /// Bytes from the frame's start to the end of the payload.
        there: usize,
    },
    /// The frame's checksum does not match.
    #[error("frame at {offset}: checksum is {computed:08x}, the frame says {stored:08x}")]
    Checksum {
        /// Offset of the frame.
        offset: usize,
        /// The checksum in the frame.
        stored: u32,
        /// The checksum of the payload.
        computed: u32,
    },
    /// The bytes between payload and next frame are not zero.
    #[error("frame at {offset}: padding is not zero")]
    Padding {
        /// Offset of the frame.
        offset: usize,
    },
}

/// The frames of a block's payload, in order. Ends after the first error. O(1) for each frame without a checksum.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Frames<'a> {
    /// Reads frames from the start of `payload`.
    pub fn new(payload: &'a [u8]) -> Frames<'a> {
        Frames {
            bytes: payload,
            offset: 0,
        }
    }

    /// The frame at the current offset.
    fn read(&self) -> Result<Frame<'a>, FrameError> {
        let offset = self.offset;
        let rest = &self.bytes[offset..];
        let there = rest.len();
        let short = |needed| FrameError::Short {
            offset,
            needed,
            there,
        };
        let (first, after) = rest.split_first_chunk().ok_or(short(HEADER_LENGTH))?;
        let stored = after.first_chunk().ok_or(short(HEADER_LENGTH))?;
        let (first, stored) = (u32::from_le_bytes(*first), u32::from_le_bytes(*stored));
        let length = (first & LENGTH) as usize;
        let needed = frame_length(length);
        let whole = rest.get(HEADER_LENGTH..needed).ok_or(short(needed))?;
        let (payload, padding) = whole.split_at(length);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(FrameError::Padding { offset });
        }
        // A frame without a checksum stores 0, which the comparison below also enforces.
        let computed = if first & CHECKSUM == 0 {
            0
        } else {
            crc32c(payload)
        };
        if stored != computed {
            return Err(FrameError::Checksum {
                offset,
                stored,
                computed,
            });
        }
        Ok(Frame {
            flags: first >> FLAGS_SHIFT & FLAGS,
            offset,
            is_checksummed: first & CHECKSUM != 0,
            payload,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.bytes.len() {
            return None;
        }
        let frame = self.read();
        self.offset = match &frame {
            Ok(frame) => self.offset + frame_length(frame.payload.len()),
            Err(_) => self.bytes.len(),
        };
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn frames_come_back_in_order() {
        let mut out = Vec::new();
        let messages: Vec<Vec<u8>> = (0..40).map(|length| vec![length as u8; length]).collect();
        for (index, message) in messages.iter().enumerate() {
            if index % 2 == 0 {
                write(&mut out, index as u32 % 8, message);
            } else {
                write_checksummed(&mut out, index as u32 % 8, message);
            }
            assert!(out.len().is_multiple_of(ALIGNMENT));
        }
        let frames: Vec<Frame<'_>> = Frames::new(&out).map(Result::unwrap).collect();
        assert_eq!(frames.len(), messages.len());
        for (index, frame) in frames.iter().enumerate() {
            assert_eq!(frame.payload, messages[index]);
            assert_eq!(frame.flags, index as u32 % 8);
        }
    }

    #[test]
    fn a_cut_frame_and_a_wrong_checksum_are_named() {
        let mut out = Vec::new();
        write(&mut out, 0, b"one");
        write_checksummed(&mut out, 0, b"twelve bytes");
        let cut: Vec<_> = Frames::new(&out[..out.len() - 1]).collect();
        let short = FrameError::Short {
            offset: 16,
            needed: 24,
            there: 23,
        };
        assert!(matches!(cut[..], [Ok(_), Err(error)] if error == short));
        out[30] ^= 1;
        let error = Frames::new(&out).nth(1).unwrap().unwrap_err();
        assert!(matches!(error, FrameError::Checksum { offset: 16, .. }));
        out[30] ^= 1;
        out[12] = 1;
        let error = Frames::new(&out).next().unwrap().unwrap_err();
        assert_eq!(error, FrameError::Padding { offset: 0 });
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_always_end() {
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let mut bytes = Vec::new();
            for _ in 0..rng.below(5) {
                let length = rng.index(40);
                write_checksummed(&mut bytes, 0, &vec![rng.word() as u8; length]);
            }
            for _ in 0..rng.below(6) {
                if !bytes.is_empty() {
                    let at = rng.index(bytes.len());
                    bytes[at] = rng.word() as u8;
                }
            }
            bytes.truncate(rng.index(bytes.len() + 1));
            assert!(Frames::new(&bytes).count() <= bytes.len() / 8 + 1);
        }
    }
}
