//! Batches: the blocks of a segment that carry messages, and the builder that assembles one in place. Byte map in
//! `docs/formats/archive.md`.

use crate::block::{self, BlockHeader, BlockKind};
use crate::{RecordingTag, Shift, crc32c, frame};

/// Bytes of a batch's payload before its first frame.
pub const BATCH_HEADER_LENGTH: usize = 24;
/// Bytes from the start of a batch's block to its first frame.
pub const BATCH_FRAMES_OFFSET: usize = block::HEADER_LENGTH + BATCH_HEADER_LENGTH;
/// The longest message: 16 MiB.
pub const MESSAGE_LENGTH_MAX: usize = 16 << 20;
/// Bytes of a block at which it is written even when more messages are at hand: 256 KiB.
pub const BATCH_LENGTH: usize = 256 << 10;
/// The longest block that holds the longest message.
pub const BATCH_LENGTH_MAX: usize = BATCH_FRAMES_OFFSET + frame::frame_length(MESSAGE_LENGTH_MAX);

/// Set in a frame's first word when it has a checksum of its own.
const CHECKSUM: u32 = 1 << 31;
/// The owner's bits of a frame start here.
const FLAGS_SHIFT: u32 = 28;
/// The owner's highest flag value.
const FLAGS_MAX: u32 = 0b111;

/// What stands before the frames of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// When it was written: nanoseconds since 1970, never lower than that of the batch before.
    pub time: u64,
    /// The number of the first message.
    pub first_message: u64,
    /// Messages.
    pub messages: u32,
}

/// Bytes that are not the payload of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Another kind of block.
    #[error("a block of kind {found} where a batch (kind 4) belongs")]
    Kind {
        /// The kind that is there.
        found: u16,
    },
    /// Too short for a batch's header.
    #[error(
        "a batch begins with {BATCH_HEADER_LENGTH} bytes of header, this one holds {found} bytes"
    )]
    Length {
        /// Bytes that are there.
        found: usize,
    },
    /// Bytes that are zero in this version are not.
    #[error("the reserved word of a batch is {found:08x}, not zero")]
    Reserved {
        /// What is there.
        found: u32,
    },
    /// More messages than there is room for.
    #[error("a batch of {messages} messages in {there} bytes of frames")]
    Messages {
        /// Messages that the header claims.
        messages: u32,
        /// Bytes of frames.
        there: usize,
    },
}

/// What stands before the frames of a whole block; a reason when it is not a batch. Checksums are not looked at.
pub(crate) fn batch_of(block: &[u8]) -> Result<BatchHeader, String> {
    let head = block.first_chunk().ok_or("its header is cut")?;
    let header = BlockHeader::decode(head).map_err(|defect| defect.to_string())?;
    let payload = block.get(block::HEADER_LENGTH..);
    let payload = payload.and_then(|rest| rest.get(..header.payload_length as usize));
    let payload = payload.ok_or("its payload is cut")?;
    let decoded = BatchHeader::decode(header.kind, payload);
    decoded
        .map(|(batch, _)| batch)
        .map_err(|error| error.to_string())
}

impl BatchHeader {
    /// The first bytes of the payload.
    pub fn encode(&self) -> [u8; BATCH_HEADER_LENGTH] {
        let mut bytes = [0; BATCH_HEADER_LENGTH];
        bytes[0..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_message.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.messages.to_le_bytes());
        bytes
    }

    /// Reads the payload of a block of `kind`: the header, and the frames behind it.
    pub fn decode(kind: BlockKind, payload: &[u8]) -> Result<(BatchHeader, &[u8]), BatchError> {
        if kind != BlockKind::BATCH {
            return Err(BatchError::Kind { found: kind.0 });
        }
        let found = payload.len();
        let (header, frames) = payload
            .split_first_chunk::<BATCH_HEADER_LENGTH>()
            .ok_or(BatchError::Length { found })?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (messages, reserved) = (word(16), word(20));
        if reserved != 0 {
            return Err(BatchError::Reserved { found: reserved });
        }
        let there = frames.len();
        if messages as usize > there / frame::HEADER_LENGTH {
            return Err(BatchError::Messages { messages, there });
        }
        let decoded = BatchHeader {
            time: long(0),
            first_message: long(8),
            messages,
        };
        Ok((decoded, frames))
    }
}

/// A block of messages being assembled in place: allocated once, filled, written with one call, cleared, filled again.
/// Headers are left room for, so that the finished block is one piece of memory and its checksum is computed once.
/// Its downside: what does not fit has to wait for the next one, so the capacity bounds the longest message.
///
/// ```
/// use seatrial_archive::Batch;
///
/// let mut batch = Batch::with_capacity(128);
/// assert!(batch.push(0, b"a message"));
/// assert!(batch.push(0, b"another"));
/// assert!(!batch.push(0, &[0; 100]), "full");
/// assert_eq!(batch.messages(), 2);
/// ```
#[derive(Debug)]
pub struct Batch {
    /// The block, as long as the capacity; what is behind `end` is left over from before.
    bytes: Box<[u8]>,
    /// Where the next frame goes.
    end: usize,
    messages: u32,
    /// The checksum of this many bytes of frames, taken before the headers were known. Frames are only added, so it is
    /// that of all of them while their length is this.
    ahead: Option<(usize, u32)>,
    /// What this many bytes of frames do to the checksum of what is before them; kept, as blocks of messages of one length
    /// are equally long.
    shift: Option<(usize, Shift)>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::with_capacity(BATCH_LENGTH)
    }
}

impl Batch {
    /// For a block of up to `capacity` bytes, headers included (56 of them): at least that and at most
    /// [`BATCH_LENGTH_MAX`]. [`Batch::default`] holds [`BATCH_LENGTH`].
    pub fn with_capacity(capacity: usize) -> Batch {
        let capacity = capacity.clamp(BATCH_FRAMES_OFFSET, BATCH_LENGTH_MAX);
        let capacity = capacity / block::ALIGNMENT * block::ALIGNMENT;
        Batch {
            bytes: vec![0; capacity].into_boxed_slice(),
            end: BATCH_FRAMES_OFFSET,
            messages: 0,
            ahead: None,
            shift: None,
        }
    }

    /// For a block that holds one message of `length` bytes and no more, but never less than [`BATCH_LENGTH`].
    pub fn for_message(length: usize) -> Batch {
        let needed = BATCH_FRAMES_OFFSET + frame::frame_length(length.min(MESSAGE_LENGTH_MAX));
        Batch::with_capacity(needed.max(BATCH_LENGTH))
    }

    /// Appends a message with the application's `flags` (0 to 7), without a checksum of its own. False, and nothing has
    /// changed, when it does not fit.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn push(&mut self, flags: u32, message: &[u8]) -> bool {
        assert!(flags <= FLAGS_MAX, "{flags}");
        let Some(place) = self.frame(flags << FLAGS_SHIFT, 0, message.len()) else {
            return false;
        };
        copy(place, message);
        true
    }

    /// Like [`Batch::push`], with a CRC-32C of the message in its frame.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn push_checksummed(&mut self, flags: u32, message: &[u8]) -> bool {
        assert!(flags <= FLAGS_MAX, "{flags}");
        if !self.fits(message.len()) {
            return false;
        }
        let checksum = crc32c(message);
        let Some(place) = self.frame(flags << FLAGS_SHIFT | CHECKSUM, checksum, message.len())
        else {
            return false;
        };
        copy(place, message);
        true
    }

    /// Appends a message of `length` bytes without a checksum of its own, to be filled in by the caller: what is in the
    /// slice before is left over from an earlier use. Nothing when it does not fit.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn claim(&mut self, flags: u32, length: usize) -> Option<&mut [u8]> {
        assert!(flags <= FLAGS_MAX, "{flags}");
        self.frame(flags << FLAGS_SHIFT, 0, length)
    }

    /// Writes header and padding of the next frame and answers with the place of its message.
    #[inline]
    fn frame(&mut self, marks: u32, checksum: u32, length: usize) -> Option<&mut [u8]> {
        let behind = self.bytes.get_mut(self.end..)?;
        if length > behind.len() {
            return None;
        }
        let needed = frame::frame_length(length);
        let place = behind.get_mut(..needed)?;
        // The last word first: it is padding, or overwritten by the message, or the header itself.
        *place.last_chunk_mut()? = [0; 8];
        let (header, rest) = place.split_first_chunk_mut::<{ frame::HEADER_LENGTH }>()?;
        let words = u64::from(length as u32 | marks) | u64::from(checksum) << 32;
        *header = words.to_le_bytes();
        self.end += needed;
        self.messages += 1;
        rest.get_mut(..length)
    }

    /// Is there room for a message of `length` bytes?
    #[inline]
    pub fn fits(&self, length: usize) -> bool {
        length <= MESSAGE_LENGTH_MAX && frame::frame_length(length) <= self.bytes.len() - self.end
    }

    /// Messages pushed since it was made or cleared.
    #[inline]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Has no message been pushed?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes that its block takes, headers included.
    #[inline]
    pub fn block_length(&self) -> usize {
        self.end
    }

    /// Bytes that its block may take.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The frames pushed so far, back to back.
    pub fn frames(&self) -> &[u8] {
        &self.bytes[BATCH_FRAMES_OFFSET..self.end]
    }

    /// Forgets all messages; nothing is freed.
    #[inline]
    pub fn clear(&mut self) {
        self.end = BATCH_FRAMES_OFFSET;
        self.messages = 0;
        self.ahead = None;
    }

    /// Overwrites the room that is left, for a block that another processor has read last: its lines then come over in one
    /// stream, not one by one under small messages, each of which would wait for its own.
    pub fn bring_near(&mut self) {
        if let Some(room) = self.bytes.get_mut(self.end..) {
            room.fill(0);
        }
    }

    /// Computes the checksum of what was pushed now, while the bytes are in this processor's cache, so that [`Batch::seal`]
    /// need not read them, on whichever processor that is called.
    pub fn checksum_frames(&mut self) {
        let frames = self.frames();
        let length = frames.len();
        self.ahead = Some((length, crc32c(frames)));
        if self.shift.is_none_or(|(known, _)| known != length) {
            self.shift = Some((length, Shift::by(length as u64)));
        }
    }

    /// The finished block of the recording with this tag. Messages may still be pushed, and it be sealed again.
    pub fn seal(
        &mut self,
        tag: Option<RecordingTag>,
        sequence: u64,
        flags: u16,
        time: u64,
        first_message: u64,
    ) -> &[u8] {
        let head = BatchHeader {
            time,
            first_message,
            messages: self.messages,
        };
        let head = head.encode();
        self.bytes[block::HEADER_LENGTH..BATCH_FRAMES_OFFSET].copy_from_slice(&head);
        let payload = &self.bytes[block::HEADER_LENGTH..self.end];
        let frames = self.end - BATCH_FRAMES_OFFSET;
        let payload_checksum = match (self.ahead, self.shift) {
            (Some((length, checksum)), Some((shifted, shift)))
                if length == frames && shifted == frames =>
            {
                shift.combine(crc32c(&head), checksum)
            }
            _ => crc32c(payload),
        };
        let header = BlockHeader {
            kind: BlockKind::BATCH,
            flags,
            payload_length: payload.len() as u32,
            uncompressed_length: payload.len() as u32,
            sequence,
            payload_checksum,
        };
        let header = header.with_tag(tag);
        self.bytes[..block::HEADER_LENGTH].copy_from_slice(&header.encode());
        // Frames end at multiples of 8, so there is no padding behind them.
        &self.bytes[..self.end]
    }
}

/// Copies a message to its place. Short ones in two overlapping pieces of a fixed size: a call of `memcpy` would cost as
/// much as everything else about them.
#[inline]
fn copy(place: &mut [u8], message: &[u8]) {
    if !(copy_pieces::<32>(place, message) || copy_pieces::<16>(place, message)) {
        place.copy_from_slice(message);
    }
}

/// Copies `N` to `2 * N` bytes; false when they are fewer or more.
#[inline]
fn copy_pieces<const N: usize>(place: &mut [u8], message: &[u8]) -> bool {
    if message.len() > 2 * N {
        return false;
    }
    let (Some(head), Some(tail)) = (message.first_chunk::<N>(), message.last_chunk::<N>()) else {
        return false;
    };
    if let Some(place) = place.first_chunk_mut() {
        *place = *head;
    }
    if let Some(place) = place.last_chunk_mut() {
        *place = *tail;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALIGNMENT, Frames, Walker};
    use seatrial_machine::Rng;

    #[test]
    fn the_byte_map_is_the_documented_one() {
        let mut batch = Batch::with_capacity(200);
        assert!(batch.push(5, b"nine bytes"));
        let block = batch
            .seal(None, 8, block::flags::UNORDERED, 0x11, 0x22)
            .to_vec();
        let header = BlockHeader::decode(block[..32].try_into().unwrap()).unwrap();
        assert_eq!(
            (header.kind, header.flags, header.sequence),
            (BlockKind(4), 1, 8)
        );
        assert_eq!(block[32..40], [0x11, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[40..48], [0x22, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[48..56], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(block[56..64], [10, 0, 0, 0x50, 0, 0, 0, 0]);
        assert_eq!(block[64..], *b"nine bytes\0\0\0\0\0\0");
    }

    /// The same block from the plain functions.
    fn twin(messages: &[(u32, bool, Vec<u8>)], sequence: u64, header: BatchHeader) -> Vec<u8> {
        let mut out = Vec::new();
        let start = block::begin(&mut out);
        out.extend_from_slice(&header.encode());
        for (flags, checksummed, message) in messages {
            match checksummed {
                true => frame::write_checksummed(&mut out, *flags, message),
                false => frame::write(&mut out, *flags, message),
            }
        }
        block::finish_plain(&mut out, start, BlockKind::BATCH, 0, sequence);
        out
    }

    #[test]
    fn a_batch_equals_the_block_of_plain_frames_also_when_it_is_used_again() {
        let mut rng = Rng::from_seed(7);
        let mut batch = Batch::with_capacity(4_000);
        for round in 0..300 {
            batch.clear();
            let mut messages = Vec::new();
            let length_max = [3, 20, 70, 600][rng.index(4)];
            loop {
                let length = rng.index(length_max + 1);
                let message: Vec<u8> = (0..length).map(|_| rng.word() as u8).collect();
                let (flags, checksummed) = (rng.below(8) as u32, rng.below(2) == 0);
                let fits = batch.fits(message.len());
                let pushed = match (checksummed, rng.below(2)) {
                    (true, _) => batch.push_checksummed(flags, &message),
                    (false, 0) => batch.push(flags, &message),
                    (false, _) => batch
                        .claim(flags, length)
                        .map(|place| place.copy_from_slice(&message))
                        .is_some(),
                };
                assert_eq!(pushed, fits, "round {round}");
                if !pushed {
                    break;
                }
                messages.push((flags, checksummed, message));
                // What was pushed stays.
                if rng.below(8) == 0 {
                    batch.bring_near();
                }
            }
            let mut header = BatchHeader {
                time: rng.word(),
                first_message: rng.word(),
                messages: messages.len() as u32,
            };
            assert_eq!(batch.messages(), header.messages);
            // The checksum is the same whether it was taken ahead or not, also of frames pushed since.
            if rng.below(2) == 0 {
                batch.checksum_frames();
            }
            if rng.below(2) == 0 && batch.push(3, b"") {
                messages.push((3, false, Vec::new()));
                header.messages += 1;
            }
            let sealed = batch.seal(None, round, 0, header.time, header.first_message);
            assert_eq!(sealed, twin(&messages, round, header), "round {round}");
            assert!(sealed.len() <= 4_000 && sealed.len().is_multiple_of(ALIGNMENT));
            let sealed = sealed.to_vec();
            let mut walker = Walker::new(&sealed, 0);
            let block = walker.next_block().unwrap().unwrap();
            let (found, frames) = BatchHeader::decode(block.header.kind, block.payload).unwrap();
            assert_eq!(found, header);
            let read: Vec<Vec<u8>> = Frames::new(frames)
                .map(|frame| frame.unwrap().payload.to_vec())
                .collect();
            assert!(
                read.iter()
                    .eq(messages.iter().map(|(_, _, message)| message))
            );
        }
    }

    #[test]
    fn every_length_is_copied_whole() {
        let message: Vec<u8> = (0..200).map(|byte| byte as u8).collect();
        for length in 0..message.len() {
            let mut batch = Batch::with_capacity(512);
            batch.bytes.fill(0xee);
            assert!(batch.push(0, &message[..length]));
            let frame = Frames::new(batch.frames()).next().unwrap().unwrap();
            assert_eq!(frame.payload, &message[..length]);
        }
    }

    #[test]
    fn the_longest_message_has_a_batch_and_a_longer_one_has_none() {
        let mut batch = Batch::for_message(MESSAGE_LENGTH_MAX + 1);
        assert_eq!(batch.capacity(), BATCH_LENGTH_MAX);
        assert!(!batch.push(0, &vec![0; MESSAGE_LENGTH_MAX + 1]));
        assert!(!batch.fits(usize::MAX) && batch.claim(0, usize::MAX).is_none());
        assert!(batch.push(0, &vec![1; MESSAGE_LENGTH_MAX]));
        assert!(!batch.push(0, b""));
        assert_eq!(batch.seal(None, 0, 0, 0, 0).len(), BATCH_LENGTH_MAX);
    }

    #[test]
    fn what_is_not_a_batch_is_named() {
        let decode =
            |bytes: &[u8]| BatchHeader::decode(BlockKind::BATCH, bytes).map(|found| found.0);
        let mut bytes = [0; 32];
        let other = BatchHeader::decode(BlockKind::SEGMENT, &bytes);
        assert_eq!(other, Err(BatchError::Kind { found: 3 }));
        assert_eq!(decode(&bytes[..23]), Err(BatchError::Length { found: 23 }));
        bytes[16] = 2;
        let messages = BatchError::Messages {
            messages: 2,
            there: 8,
        };
        assert_eq!(decode(&bytes), Err(messages));
        bytes[16] = 1;
        assert!(decode(&bytes).is_ok());
        bytes[20] = 1;
        assert_eq!(decode(&bytes), Err(BatchError::Reserved { found: 1 }));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_what_decodes_encodes_to_itself() {
        let mut decoded = 0;
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let header = BatchHeader {
                time: rng.word(),
                first_message: rng.word(),
                messages: rng.below(4) as u32,
            };
            let mut bytes = header.encode().to_vec();
            bytes.resize(BATCH_HEADER_LENGTH + rng.index(40), 0);
            for _ in 0..rng.below(3) {
                let at = rng.index(bytes.len());
                bytes[at] = rng.word() as u8;
            }
            bytes.truncate(rng.index(bytes.len() + 20));
            if let Ok((header, frames)) = BatchHeader::decode(BlockKind::BATCH, &bytes) {
                assert_eq!(header.encode()[..], bytes[..BATCH_HEADER_LENGTH]);
                assert_eq!(frames.len(), bytes.len() - BATCH_HEADER_LENGTH);
                decoded += 1;
            }
        }
        assert!((1_000..5_000).contains(&decoded), "{decoded}");
    }
}
