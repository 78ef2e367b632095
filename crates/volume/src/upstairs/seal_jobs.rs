//! Encryption and decryption, outside of the upstairs' turns.

use crate::block_context::{BlockContent, BlockVersion, split_slots};
use crate::geometry::{BlockNumber, BlockSpan};
use crate::seal::KeyRing;
use seatrial_machine::{Computed, Job, Time};
use std::ops::Range;
use std::sync::Arc;

/// Seals the blocks of a write.
pub(crate) struct SealBlocks {
    pub(crate) keys: KeyRing,
    /// The item of the stream.
    pub(crate) id: u64,
    pub(crate) span: BlockSpan,
    /// The version of the first block; the others follow.
    pub(crate) version: BlockVersion,
    /// Those of the blocks; none: zeros.
    pub(crate) bytes: BytesPart,
    pub(crate) block_length: u32,
    /// The turn that asks for it.
    pub(crate) begun: Time,
}

/// A part of the bytes of a request or message, which is not copied.
#[derive(Clone, Default)]
pub(crate) struct BytesPart {
    pub(crate) whole: Arc<Vec<u8>>,
    pub(crate) part: Range<usize>,
}

impl BytesPart {
    /// The last `length` bytes, of at least as many.
    pub(crate) fn last(whole: Vec<u8>, length: usize) -> BytesPart {
        let part = whole.len() - length..whole.len();
        let whole = Arc::new(whole);
        BytesPart { whole, part }
    }

    pub(crate) fn len(&self) -> usize {
        self.part.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.whole[self.part.clone()]
    }
}

/// The slots of a write.
pub(crate) struct SealedSlots {
    pub(crate) id: u64,
    pub(crate) slots: Vec<u8>,
    pub(crate) begun: Time,
}

impl Job for SealBlocks {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.seal())
    }
}

impl SealBlocks {
    pub(crate) fn seal(&self) -> SealedSlots {
        let length = self.block_length as usize;
        let count = self.span.count as usize;
        let plain = self.bytes.bytes();
        let mut slots = Vec::with_capacity(count * crate::CONTEXT_LENGTH + plain.len());
        for at in 0..count {
            let version = BlockVersion {
                counter: self.version.counter + at as u64,
                ..self.version
            };
            let block = BlockNumber(self.span.first.0 + at as u64);
            let bytes = if plain.is_empty() {
                &[][..]
            } else {
                &plain[at * length..(at + 1) * length]
            };
            self.keys.seal(&mut slots, block, version, bytes);
        }
        SealedSlots {
            id: self.id,
            slots,
            begun: self.begun,
        }
    }
}

/// Opens the slots that a replica delivered.
pub(crate) struct OpenSlots {
    pub(crate) keys: KeyRing,
    pub(crate) span: BlockSpan,
    pub(crate) slots: BytesPart,
    pub(crate) block_length: u32,
    /// The turn that asks for it.
    pub(crate) begun: Time,
}

/// The plain bytes, or the first block that is not intact; and the slots.
pub(crate) struct OpenedSlots {
    pub(crate) result: Result<Vec<u8>, BlockNumber>,
    /// Blocks that were never written, as places in the span.
    pub(crate) absent: Vec<u32>,
    pub(crate) slots: BytesPart,
    pub(crate) begun: Time,
}

impl Job for OpenSlots {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.open())
    }
}

impl OpenSlots {
    pub(crate) fn open(self) -> OpenedSlots {
        let mut absent = Vec::new();
        let result = self.plain(&mut absent);
        OpenedSlots {
            result,
            absent,
            slots: self.slots,
            begun: self.begun,
        }
    }

    fn plain(&self, absent: &mut Vec<u32>) -> Result<Vec<u8>, BlockNumber> {
        let slots = split_slots(self.slots.bytes(), self.span.count, self.block_length);
        let slots = slots.ok_or(self.span.first)?;
        let mut plain = Vec::with_capacity(self.span.count as usize * self.block_length as usize);
        for (place, (block, slot)) in (0..).zip(self.span.blocks().zip(&slots)) {
            if slot.context.content == BlockContent::Absent {
                absent.push(place);
            }
            if !self.keys.open(&mut plain, block, slot, self.block_length) {
                return Err(block);
            }
        }
        Ok(plain)
    }
}
