//! Where the slot of each block is.

use crate::block_context::{BlockContent, BlockVersion, CONTEXT_LENGTH};
use crate::geometry::{BlockNumber, BlockSpan};
use std::sync::Arc;

/// Blocks of a chunk: the unit in which changes are remembered and maps are shared.
pub const CHUNK_BLOCKS: u64 = 64;

/// Where a block's slot is, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    /// Position of the slot in the log; the highest bit is set for a block of zeros. [`BlockEntry::ABSENT`]: none.
    place: u64,
    pub(crate) version: BlockVersion,
}

/// Set in the place of a slot without bytes.
const ZEROS: u64 = 1 << 63;

impl BlockEntry {
    pub(crate) const ABSENT: BlockEntry = BlockEntry {
        place: u64::MAX,
        version: BlockVersion::ABSENT,
    };

    pub(crate) fn new(position: u64, version: BlockVersion, content: BlockContent) -> BlockEntry {
        debug_assert!(position < ZEROS, "a log has less than 2^63 bytes");
        match content {
            BlockContent::Absent => BlockEntry::ABSENT,
            BlockContent::Data => BlockEntry {
                place: position,
                version,
            },
            BlockContent::Zeros => BlockEntry {
                place: position | ZEROS,
                version,
            },
        }
    }

    pub(crate) const fn is_absent(self) -> bool {
        self.place == u64::MAX
    }

    /// Position of the slot; `None` for an absent block.
    pub(crate) fn position(self) -> Option<u64> {
        (!self.is_absent()).then_some(self.place & !ZEROS)
    }

    /// Does it hold bytes?
    pub(crate) const fn has_data(self) -> bool {
        self.place & ZEROS == 0
    }

    /// Bytes of the slot; an absent block's is made up.
    pub(crate) const fn slot_length(self, block_length: u32) -> usize {
        if self.has_data() {
            CONTEXT_LENGTH + block_length as usize
        } else {
            CONTEXT_LENGTH
        }
    }

    /// Both numbers, for a map file.
    pub(crate) const fn parts(self) -> (u64, BlockVersion) {
        (self.place, self.version)
    }

    /// The entry with these parts; `None` if no entry has them.
    pub(crate) fn from_parts(place: u64, version: BlockVersion) -> Option<BlockEntry> {
        let entry = BlockEntry { place, version };
        (entry.is_absent() == (version == BlockVersion::ABSENT)).then_some(entry)
    }
}

/// The entries of one chunk.
pub(crate) type MapChunk = [BlockEntry; CHUNK_BLOCKS as usize];

/// The entries of all blocks. A clone shares all chunks and costs 8 bytes a chunk; a chunk is copied when it is first changed.
///
/// Memory: 24 bytes a written block, in whole chunks.
#[derive(Clone, Debug)]
pub(crate) struct BlockMap {
    chunks: Vec<Option<Arc<MapChunk>>>,
}

impl BlockMap {
    /// A map of blocks that were never written.
    pub(crate) fn new(blocks: u64) -> BlockMap {
        let chunks = usize::try_from(blocks.div_ceil(CHUNK_BLOCKS)).unwrap_or(usize::MAX);
        BlockMap {
            chunks: vec![None; chunks],
        }
    }

    /// Number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks.len() as u64
    }

    pub(crate) fn get(&self, block: BlockNumber) -> BlockEntry {
        let chunk = &self.chunks[(block.0 / CHUNK_BLOCKS) as usize];
        chunk.as_ref().map_or(BlockEntry::ABSENT, |chunk| {
            chunk[(block.0 % CHUNK_BLOCKS) as usize]
        })
    }

    /// Replaces an entry; returns the one before.
    pub(crate) fn set(&mut self, block: BlockNumber, entry: BlockEntry) -> BlockEntry {
        let chunk = &mut self.chunks[(block.0 / CHUNK_BLOCKS) as usize];
        if chunk.is_none() && entry.is_absent() {
            return BlockEntry::ABSENT;
        }
        let chunk =
            chunk.get_or_insert_with(|| Arc::new([BlockEntry::ABSENT; CHUNK_BLOCKS as usize]));
        let here = &mut Arc::make_mut(chunk)[(block.0 % CHUNK_BLOCKS) as usize];
        std::mem::replace(here, entry)
    }

    /// The entries of a span, which is in the volume.
    pub(crate) fn span(&self, span: BlockSpan) -> impl Iterator<Item = BlockEntry> {
        span.blocks().map(|block| self.get(block))
    }

    /// A chunk; `None`: all its blocks are absent.
    pub(crate) fn chunk(&self, number: u64) -> Option<&Arc<MapChunk>> {
        self.chunks.get(number as usize)?.as_ref()
    }

    /// Sets all entries of a chunk; false if there is no such chunk.
    pub(crate) fn set_chunk(&mut self, number: u64, entries: &MapChunk) -> bool {
        let place = usize::try_from(number).ok();
        match place.and_then(|at| self.chunks.get_mut(at)) {
            Some(chunk) => {
                *chunk = Some(Arc::new(*entries));
                true
            }
            None => false,
        }
    }
}
