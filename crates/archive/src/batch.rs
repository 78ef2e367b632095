//! Batches, the blocks of a segment that hold messages, and a builder that assembles one in place. Byte map in
//! `docs/formats/archive.md`.

use seatrial_blocks::block::{self, BlockHeader, BlockKind};
use seatrial_blocks::{RecordingTag, Shift, crc32c, frame};

/// Length of a batch's header in bytes: the payload before its first frame.
pub const BATCH_HEADER_LENGTH: usize = 24;
/// Bytes from the start of a batch's block to its first frame.
pub const BATCH_FRAMES_OFFSET: usize = block::HEADER_LENGTH + BATCH_HEADER_LENGTH;
/// The longest message: 16 MiB.
pub const MESSAGE_LENGTH_MAX: usize = 16 << 20;
/// Default maximum length of a block in bytes: 256 KiB. More messages go into the next block.
pub const BATCH_LENGTH: usize = 256 << 10;
/// The longest block: one with a single message of the maximum length.
pub const BATCH_LENGTH_MAX: usize = BATCH_FRAMES_OFFSET + frame::frame_length(MESSAGE_LENGTH_MAX);

// Every message that is accepted fits a frame and a block that readers accept.
const _: () = assert!(MESSAGE_LENGTH_MAX <= frame::PAYLOAD_LENGTH_MAX);
const _: () = assert!(BATCH_LENGTH_MAX <= block::PAYLOAD_LENGTH_MAX);
// Frames start at multiples of the alignment, so a batch needs no padding after its last frame.
const _: () = assert!(BATCH_FRAMES_OFFSET.is_multiple_of(block::ALIGNMENT));

/// Set in a frame's first word when the frame has a checksum of its own.
const CHECKSUM: u32 = frame::CHECKSUM;
/// Lowest of the application's bits in a frame's first word.
const FLAGS_SHIFT: u32 = frame::FLAGS_SHIFT;
/// The application's highest flag value.
const FLAGS_MAX: u32 = frame::FLAGS;

/// The header of a batch, before its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Time of the write in nanoseconds since 1970; not before that of the previous batch.
    pub time: u64,
    /// Number of the first message.
    pub first_message: u64,
    /// Number of messages.
    pub messages: u32,
}

/// Why bytes are not the payload of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Another kind of block.
    #[error("expected a batch (block kind 4), found block kind {found}")]
    Kind {
        /// The block's kind.
        found: u16,
    },
    /// Too short for a batch's header.
    #[error("batch of {found} bytes is shorter than its header ({BATCH_HEADER_LENGTH} bytes)")]
    Length {
        /// Length of the payload in bytes.
        found: usize,
    },
    /// The reserved bytes are not zero.
    #[error("reserved word of a batch: expected 0, found {found:08x}")]
    Reserved {
        /// The word.
        found: u32,
    },
    /// More messages than fit the payload.
    #[error("batch claims {messages} messages, more than fit its {there} bytes of frames")]
    Messages {
        /// Number of messages in the header.
        messages: u32,
        /// Bytes of frames.
        there: usize,
    },
}

/// The batch header of a block, or why the block is not a batch. The payload's checksum is not checked.
pub fn batch_of(block: &[u8]) -> Result<BatchHeader, String> {
    let head = block
        .first_chunk()
        .ok_or("the block's header is incomplete")?;
    let header = BlockHeader::decode(head).map_err(|defect| defect.to_string())?;
    let payload = block.get(block::HEADER_LENGTH..);
    let payload = payload.and_then(|rest| rest.get(..header.payload_length as usize));
    let payload = payload.ok_or("the block's payload is incomplete")?;
    let decoded = BatchHeader::decode(header.kind, payload);
    decoded
        .map(|(batch, _)| batch)
        .map_err(|error| error.to_string())
}

impl BatchHeader {
    /// The header as stored: the first bytes of the payload.
    pub fn encode(&self) -> [u8; BATCH_HEADER_LENGTH] {
        let mut bytes = [0; BATCH_HEADER_LENGTH];
        bytes[0..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_message.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.messages.to_le_bytes());
        bytes
    }

    /// Decodes the payload of a block of `kind` into header and frames. The frames are not checked, but the number of
    /// messages is at most what their bytes allow, so callers may allocate by it.
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

/// A block of messages, assembled in place: allocated once, filled, written with one call, cleared, filled again. Room
/// for the headers is reserved, so the finished block is one piece of memory and its checksum is computed once. The
/// capacity is fixed, so it bounds the longest message.
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
    /// The block, with the length of the capacity; bytes after `end` are left over from earlier use.
    bytes: Box<[u8]>,
    /// Offset of the next frame.
    end: usize,
    messages: u32,
    /// Length and checksum of the frames, computed before the headers were known. Frames are only appended, so the
    /// checksum is current exactly while the length is.
    ahead: Option<(usize, u32)>,
    /// A length of frames and its [`Shift`]; kept, because blocks of equally long messages have equal lengths.
    shift: Option<(usize, Shift)>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::with_capacity(BATCH_LENGTH)
    }
}

impl Batch {
    /// A batch with a block of up to `capacity` bytes, 56 bytes of headers included; clamped to at least the headers and
    /// at most [`BATCH_LENGTH_MAX`]. [`Batch::default`] has [`BATCH_LENGTH`].
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

    /// A batch with room for one message of `length` bytes, and not less than [`BATCH_LENGTH`].
    pub fn for_message(length: usize) -> Batch {
        let needed = BATCH_FRAMES_OFFSET + frame::frame_length(length.min(MESSAGE_LENGTH_MAX));
        Batch::with_capacity(needed.max(BATCH_LENGTH))
    }

    /// Appends a message with the application's `flags` (0 to 7), without a checksum of its own. Returns false and changes
    /// nothing if it does not fit.
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

    /// Appends a message of `length` bytes without a checksum of its own, to be filled in by the caller: the slice has
    /// bytes of an earlier use. `None` if it does not fit.
    ///
    /// Panics when `flags` is above 7.
    #[inline]
    pub fn claim(&mut self, flags: u32, length: usize) -> Option<&mut [u8]> {
        assert!(flags <= FLAGS_MAX, "{flags}");
        self.frame(flags << FLAGS_SHIFT, 0, length)
    }

    /// Writes header and padding of the next frame and returns the slice for its message.
    #[inline]
    fn frame(&mut self, marks: u32, checksum: u32, length: usize) -> Option<&mut [u8]> {
        let room = self.bytes.get_mut(self.end..)?;
        // Before the sum below, which could overflow with a huge length.
        if length > room.len() {
            return None;
        }
        let needed = frame::frame_length(length);
        let place = room.get_mut(..needed)?;
        // Zero the last word first: it holds the padding, and header or message overwrite the rest of it.
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

    /// Number of messages pushed since the batch was created or cleared.
    #[inline]
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Has no message been pushed?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Length of the block in bytes, headers included.
    #[inline]
    pub fn block_length(&self) -> usize {
        self.end
    }

    /// Maximum length of the block in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The frames pushed so far, back to back.
    pub fn frames(&self) -> &[u8] {
        &self.bytes[BATCH_FRAMES_OFFSET..self.end]
    }

    /// Removes all messages; frees no memory.
    #[inline]
    pub fn clear(&mut self) {
        self.end = BATCH_FRAMES_OFFSET;
        self.messages = 0;
        self.ahead = None;
    }

    /// Overwrites the free room of a block that another processor has read last. The cache lines are then transferred in
    /// one stream; otherwise each small message would wait for its own line.
    pub fn claim_cache_lines(&mut self) {
        if let Some(room) = self.bytes.get_mut(self.end..) {
            room.fill(0);
        }
    }

    /// Computes the checksum of the frames while they are in this processor's cache, so that [`Batch::seal`] need not read
    /// them, possibly on another processor.
    pub fn checksum_frames(&mut self) {
        let frames = self.frames();
        let length = frames.len();
        self.ahead = Some((length, crc32c(frames)));
        if self.shift.is_none_or(|(known, _)| known != length) {
            self.shift = Some((length, Shift::by(length as u64)));
        }
    }

    /// Writes the headers and returns the finished block, for the recording with this tag. The batch stays usable: more
    /// messages can be pushed and the block sealed again.
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
        // Frames end at multiples of the alignment, so the block needs no padding.
        assert_eq!(self.end as u64, header.block_length());
        &self.bytes[..self.end]
    }
}

/// Copies a message to its place. Short ones as two overlapping pieces of a fixed size: a call of `memcpy` would cost as
/// much as the rest of a push.
#[inline]
fn copy(place: &mut [u8], message: &[u8]) {
    if !(copy_pieces::<32>(place, message) || copy_pieces::<16>(place, message)) {
        place.copy_from_slice(message);
    }
}

/// Copies a message of `N` to `2 * N` bytes; false if it has another length.
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
    use seatrial_blocks::{ALIGNMENT, Frames, Walker};
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

    /// The same block, built with the functions of the crate `blocks`.
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
                    batch.claim_cache_lines();
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
    fn bytes_that_are_no_batch_are_refused_with_the_reason() {
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
