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

/// Chunks of a group: 128 MiB of a volume with blocks of 4 KiB.
const GROUP_CHUNKS: usize = 512;

/// The chunks of one group; none: all blocks of a chunk are absent.
type ChunkGroup = [Option<Arc<MapChunk>>; GROUP_CHUNKS];

/// The entries of all blocks. A clone shares everything and costs 8 bytes a group; a group is copied when one of its chunks is
/// first changed, without the chunks, and so is that chunk.
///
/// Memory: 24 bytes a written block, in whole chunks, and 4 KiB for each group with one; 8 bytes for each group of the volume.
#[derive(Clone, Debug)]
pub(crate) struct BlockMap {
    /// Number of chunks.
    chunks: u64,
    groups: Vec<Option<Arc<ChunkGroup>>>,
}

impl BlockMap {
    /// A map of blocks that were never written.
    pub(crate) fn new(blocks: u64) -> BlockMap {
        let chunks = blocks.div_ceil(CHUNK_BLOCKS);
        let groups = usize::try_from(chunks.div_ceil(GROUP_CHUNKS as u64));
        BlockMap {
            chunks,
            groups: vec![None; groups.unwrap_or(usize::MAX)],
        }
    }

    /// Number of chunks.
    pub(crate) const fn chunks(&self) -> u64 {
        self.chunks
    }

    pub(crate) fn get(&self, block: BlockNumber) -> BlockEntry {
        let number = block.0 / CHUNK_BLOCKS;
        assert!(number < self.chunks, "block {} is in the volume", block.0);
        self.chunk(number).map_or(BlockEntry::ABSENT, |chunk| {
            chunk[(block.0 % CHUNK_BLOCKS) as usize]
        })
    }

    /// Replaces an entry; returns the one before.
    pub(crate) fn set(&mut self, block: BlockNumber, entry: BlockEntry) -> BlockEntry {
        let number = block.0 / CHUNK_BLOCKS;
        if self.chunk(number).is_none() && entry.is_absent() {
            return BlockEntry::ABSENT;
        }
        let chunk = self.place(number).unwrap_or_else(|| {
            panic!("block {} is not in the volume", block.0);
        });
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
        let (group, place) = split(number)?;
        self.groups.get(group)?.as_ref()?[place].as_ref()
    }

    /// Where a chunk is to be; `None`: there is no such chunk.
    fn place(&mut self, number: u64) -> Option<&mut Option<Arc<MapChunk>>> {
        if number >= self.chunks {
            return None;
        }
        let (group, place) = split(number)?;
        let group = self.groups.get_mut(group)?;
        let group = group.get_or_insert_with(|| Arc::new([const { None }; GROUP_CHUNKS]));
        Some(&mut Arc::make_mut(group)[place])
    }

    /// Sets all entries of a chunk; false if there is no such chunk.
    pub(crate) fn set_chunk(&mut self, number: u64, entries: &MapChunk) -> bool {
        match self.place(number) {
            Some(chunk) => {
                *chunk = Some(Arc::new(*entries));
                true
            }
            None => false,
        }
    }
}

/// The group of a chunk, and the chunk's place in it; `None`: the number is longer than those of any table.
fn split(number: u64) -> Option<(usize, usize)> {
    let number = usize::try_from(number).ok()?;
    Some((number / GROUP_CHUNKS, number % GROUP_CHUNKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;
    use std::collections::BTreeMap;

    fn entry(rng: &mut Rng) -> BlockEntry {
        let version = BlockVersion {
            generation: 1,
            counter: 1 + rng.below(1 << 40),
        };
        let contents = [
            BlockContent::Absent,
            BlockContent::Data,
            BlockContent::Zeros,
        ];
        BlockEntry::new(rng.below(1 << 40), version, contents[rng.index(3)])
    }

    /// Changes of a map and of its clones, each with a plain map beside it; blocks of three groups.
    #[test]
    fn a_map_and_its_clones_do_not_change_each_other() {
        const BLOCKS: u64 = 2 * GROUP_CHUNKS as u64 * CHUNK_BLOCKS + 100;
        let mut rng = Rng::from_seed(1);
        let mut maps = vec![(BlockMap::new(BLOCKS), BTreeMap::<u64, BlockEntry>::new())];
        // Few, so that they are changed again: at both ends of chunks and groups, and in between.
        let ends = [0, 63, 64, 32_767, 32_768, 65_535, 65_536, BLOCKS - 1];
        let blocks = ends.into_iter().chain((0..40).map(|_| rng.below(BLOCKS)));
        let blocks: Vec<u64> = blocks.collect();
        for _ in 0..4_000 {
            let at = rng.index(maps.len());
            if rng.below(100) == 0 && maps.len() < 8 {
                maps.push(maps[at].clone());
            }
            let (block, entry) = (blocks[rng.index(blocks.len())], entry(&mut rng));
            let (map, twin) = &mut maps[at];
            let before = map.set(BlockNumber(block), entry);
            let expected = twin.insert(block, entry).unwrap_or(BlockEntry::ABSENT);
            assert_eq!(before, expected, "block {block}");
        }
        assert_eq!(maps.len(), 8);
        for (map, twin) in &maps {
            for block in 0..BLOCKS {
                let expected = twin.get(&block).copied().unwrap_or(BlockEntry::ABSENT);
                assert_eq!(map.get(BlockNumber(block)), expected, "block {block}");
            }
        }
    }

    #[test]
    fn a_chunk_outside_of_the_volume_is_refused() {
        let mut map = BlockMap::new(CHUNK_BLOCKS + 1);
        let chunk = [BlockEntry::ABSENT; CHUNK_BLOCKS as usize];
        assert_eq!(map.chunks(), 2);
        assert!(map.set_chunk(1, &chunk));
        assert!(!map.set_chunk(2, &chunk));
        assert!(!map.set_chunk(u64::MAX, &chunk));
        assert!(map.chunk(1).is_some() && map.chunk(2).is_none());
    }

    /// The table of a volume of 64 TiB: 4 MiB, where a pointer for each chunk would be 2 GiB.
    #[test]
    fn a_map_of_a_large_volume_is_small() {
        let mut map = BlockMap::new(1 << 34);
        assert_eq!(map.groups.len(), 1 << 19);
        let last = BlockNumber((1 << 34) - 1);
        let entry = entry(&mut Rng::from_seed(3));
        map.set(last, entry);
        assert_eq!(map.clone().get(last), entry);
    }
}
