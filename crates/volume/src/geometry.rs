//! Identity and size of a volume.

use std::fmt;

/// Identifies a volume: 128 random bits, drawn when it is created. Replicas of one volume share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u128);

impl VolumeId {
    /// Parses 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<VolumeId> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().map(VolumeId)
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Number of a block of a volume, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

/// Consecutive blocks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpan {
    /// The first block.
    pub first: BlockNumber,
    /// Number of blocks.
    pub count: u32,
}

impl BlockSpan {
    /// The block after the last one; saturates.
    pub const fn end(self) -> u64 {
        self.first.0.saturating_add(self.count as u64)
    }

    /// Do both contain a block?
    pub const fn overlaps(self, other: BlockSpan) -> bool {
        self.first.0 < other.end() && other.first.0 < self.end()
    }

    /// The numbers of the blocks.
    pub fn blocks(self) -> impl Iterator<Item = BlockNumber> {
        (self.first.0..self.end()).map(BlockNumber)
    }
}

/// Blocks in all these spans; saturates.
pub(crate) fn block_count(spans: &[BlockSpan]) -> u64 {
    let counts = spans.iter().map(|it| u64::from(it.count));
    counts.fold(0, u64::saturating_add)
}

impl fmt::Display for BlockSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks {} to {}", self.first.0, self.end())
    }
}

/// Smallest and largest length of a block in bytes.
pub const BLOCK_LENGTH_RANGE: std::ops::RangeInclusive<u32> = 512..=32_768;

/// The shape of a volume, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes of a block: a power of two of [`BLOCK_LENGTH_RANGE`].
    pub block_length: u32,
    /// Number of blocks, at least 1.
    pub blocks: u64,
}

/// Largest number of blocks, 2^40: 4 PiB of 4 KiB.
pub const BLOCKS_MAX: u64 = 1 << 40;

impl Geometry {
    /// Checks the bounds; the error says which one is exceeded.
    pub fn check(&self) -> Result<(), String> {
        if !BLOCK_LENGTH_RANGE.contains(&self.block_length) || !self.block_length.is_power_of_two()
        {
            return Err(format!(
                "a block of {} bytes is not a power of two from {} to {}",
                self.block_length,
                BLOCK_LENGTH_RANGE.start(),
                BLOCK_LENGTH_RANGE.end()
            ));
        }
        if !(1..=BLOCKS_MAX).contains(&self.blocks) {
            return Err(format!("{} blocks are not 1 to {BLOCKS_MAX}", self.blocks));
        }
        Ok(())
    }

    /// Bytes of the volume.
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block_length as u64
    }

    /// Does the volume have all these blocks, and at least one?
    pub const fn contains(&self, range: BlockSpan) -> bool {
        range.count > 0 && range.end() <= self.blocks
    }
}
