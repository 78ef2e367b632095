//! The context of a stored block: its version, its key, and what authenticates it. Byte map in `docs/formats/volume.md`.

use crate::geometry::BlockNumber;
use seatrial_blocks::{crc32c, crc32c_more};

/// The version of a block: of two, the larger one was written later. Also the nonce of its encryption, so no two blocks of a
/// volume ever share one: a generation is granted once, and its upstairs counts the blocks that it seals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockVersion {
    /// The generation that wrote it; 0: never written.
    pub generation: u32,
    /// Its number among the blocks that were sealed in this generation.
    pub counter: u64,
}

impl BlockVersion {
    /// The version of a block that was never written.
    pub const ABSENT: BlockVersion = BlockVersion {
        generation: 0,
        counter: 0,
    };

    /// The nonce of the block's encryption: both numbers, big-endian.
    pub fn nonce(self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.generation.to_be_bytes());
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        nonce
    }
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockContent {
    /// It was never written: zeros, with nothing to authenticate them.
    Absent,
    /// Bytes, encrypted, after the context.
    Data,
    /// Zeros: it was trimmed. No bytes follow the context.
    Zeros,
}

/// Bytes of an encoded context.
pub const CONTEXT_LENGTH: usize = 40;
/// Offset of the checksum.
const CHECKSUM_AT: usize = 32;

/// The context of a block as stored and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockContext {
    /// Its version.
    pub version: BlockVersion,
    /// Number of the key.
    pub epoch: u16,
    /// What it holds.
    pub content: BlockContent,
    /// Authenticates version, epoch, content, volume, block number and bytes.
    pub tag: [u8; 16],
    /// CRC-32C, see [`BlockContext::checksum_of`].
    pub checksum: u32,
}

impl BlockContext {
    /// The context of a block that was never written.
    pub const ABSENT: BlockContext = BlockContext {
        version: BlockVersion::ABSENT,
        epoch: 0,
        content: BlockContent::Absent,
        tag: [0; 16],
        checksum: 0,
    };

    /// The context as stored.
    pub fn encode(&self) -> [u8; CONTEXT_LENGTH] {
        let mut bytes = [0; CONTEXT_LENGTH];
        bytes[..4].copy_from_slice(&self.version.generation.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.version.counter.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[14] = self.content as u8;
        bytes[16..32].copy_from_slice(&self.tag);
        bytes[CHECKSUM_AT..36].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes the context at the start of `bytes`; `None` if no context begins like this. The checksum is not checked.
    pub fn decode(bytes: &[u8]) -> Option<BlockContext> {
        let bytes: &[u8; CONTEXT_LENGTH] = bytes.first_chunk()?;
        let content = match bytes[14] {
            0 => BlockContent::Absent,
            1 => BlockContent::Data,
            2 => BlockContent::Zeros,
            _ => return None,
        };
        let context = BlockContext {
            version: BlockVersion {
                generation: u32::from_le_bytes(*bytes[..4].first_chunk()?),
                counter: u64::from_le_bytes(*bytes[4..12].first_chunk()?),
            },
            epoch: u16::from_le_bytes(*bytes[12..14].first_chunk()?),
            content,
            tag: *bytes[16..32].first_chunk()?,
            checksum: u32::from_le_bytes(*bytes[CHECKSUM_AT..36].first_chunk()?),
        };
        let is_absent = content == BlockContent::Absent;
        let is_whole = bytes[15] == 0 && bytes[36..] == [0; 4];
        (is_whole && is_absent == (context.version == BlockVersion::ABSENT)).then_some(context)
    }

    /// The checksum of a block: of its number, its context before the checksum, and its stored bytes. With the number in it, a
    /// block that is found at another place is damaged.
    pub fn checksum_of(&self, block: BlockNumber, bytes: &[u8]) -> u32 {
        if self.content == BlockContent::Absent {
            return 0;
        }
        let number = crc32c(&block.0.to_le_bytes());
        let context = crc32c_more(number, &self.encode()[..CHECKSUM_AT]);
        crc32c_more(context, bytes)
    }

    /// Bytes of the slot: context and stored bytes.
    pub const fn slot_length(&self, block_length: u32) -> usize {
        match self.content {
            BlockContent::Data => CONTEXT_LENGTH + block_length as usize,
            BlockContent::Absent | BlockContent::Zeros => CONTEXT_LENGTH,
        }
    }
}

/// A context, and the stored bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct BlockSlot<'a> {
    /// The context.
    pub context: BlockContext,
    /// Context and stored bytes.
    pub bytes: &'a [u8],
}

impl<'a> BlockSlot<'a> {
    /// The stored bytes: as long as a block, or none.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[CONTEXT_LENGTH..]
    }

    /// Does the checksum fit the block of this number?
    pub fn is_intact(&self, block: BlockNumber) -> bool {
        self.context.checksum == self.context.checksum_of(block, self.data())
    }
}

/// Splits `count` slots that stand back to back and nothing else; `None` if the bytes are something else.
pub fn split_slots(bytes: &[u8], count: u32, block_length: u32) -> Option<Vec<BlockSlot<'_>>> {
    // Every slot has a context, so a claimed count reserves no more than what has arrived.
    let count = count as usize;
    if count > bytes.len() / CONTEXT_LENGTH {
        return None;
    }
    let mut slots = Vec::with_capacity(count);
    let mut rest = bytes;
    for _ in 0..count {
        let context = BlockContext::decode(rest)?;
        let (bytes, after) = rest.split_at_checked(context.slot_length(block_length))?;
        slots.push(BlockSlot { context, bytes });
        rest = after;
    }
    rest.is_empty().then_some(slots)
}
