//! The first page of a file, and the newest root block that it leads to.

use crate::block::{BlockHeader, BlockKind};
use crate::crc32c;
use crate::walk::{WalkError, Walker};
use seatrial_machine::Disk;
use std::io;

/// Length of the first page in bytes; the first block starts there.
pub const PAGE_LENGTH: usize = 4096;
/// Length of a slot in bytes.
pub const SLOT_LENGTH: usize = 40;

/// The first bytes of a file with a first page.
const MAGIC: [u8; 8] = *b"SEATRIAL";
/// The version that is written.
const VERSION: u32 = 1;
/// The first bytes of a slot.
const SLOT_MAGIC: [u8; 4] = *b"SLOT";
/// Offsets of the slots: in different sectors, so that one torn write damages at most one of them.
const SLOT_OFFSETS: [usize; 2] = [1024, 2048];

/// Why a file has no root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// A read failed.
    #[error("cannot read at {offset}: {cause}")]
    Fault {
        /// Offset of the read.
        offset: u64,
        /// The disk's error.
        cause: io::Error,
    },
    /// The file has neither a valid first page nor a root block.
    #[error("not a Seatrial file: no valid first page and no root block")]
    Foreign,
    /// A Seatrial file with another purpose.
    #[error("expected a file of purpose {expected:?}, found {found:?}")]
    Purpose {
        /// The purpose asked for.
        expected: String,
        /// The one in the file.
        found: String,
    },
    /// A first page of a version that this program does not know.
    #[error("first page of format version {found}, this program reads version {VERSION}")]
    Version {
        /// The version in the page.
        found: u32,
    },
}

/// The contents of a slot of the first page, ready to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset in the file.
    pub offset: u64,
    /// The bytes to write there.
    pub bytes: [u8; SLOT_LENGTH],
}

/// The next slot to write. Alternates between the two slots, so that a torn write of one leaves the other valid; a
/// generation number, higher with each write, shows which is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootSlots {
    generation: u64,
}

impl RootSlots {
    /// For a new file.
    pub fn new() -> RootSlots {
        RootSlots::default()
    }

    /// The slot to write once the root block at `offset` with this sequence number is durable. Not before: a slot is a
    /// promise that its root was durable ([`hint`]).
    pub fn next(&mut self, offset: u64, sequence: u64) -> Slot {
        self.generation += 1;
        let mut bytes = [0; SLOT_LENGTH];
        bytes[..4].copy_from_slice(&SLOT_MAGIC);
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..24].copy_from_slice(&offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&sequence.to_le_bytes());
        let checksum = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        Slot {
            offset: SLOT_OFFSETS[(self.generation % 2) as usize] as u64,
            bytes,
        }
    }
}

/// The first page of a new file; `purpose` names its contents (`hist`, `ckpt`, …).
pub fn first_page(purpose: [u8; 4]) -> [u8; PAGE_LENGTH] {
    let mut page = [0; PAGE_LENGTH];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&purpose);
    let checksum = crc32c(&page[..16]);
    page[16..20].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// The newest root block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Offset of the root block.
    pub offset: u64,
    /// Its header; header and payload were checked.
    pub header: BlockHeader,
    /// Was it found by walking the whole file, because neither slot led to a root?
    pub walked: bool,
    /// Continues the slots' generations of this file.
    pub slots: RootSlots,
}

/// Finds the newest valid root of a file with this purpose; `None` if it has no root yet.
///
/// With a valid slot this reads the first page, the root, and the headers after it. Without one it reads the whole
/// file. A damaged identity in the first page does not hide the roots.
pub fn newest(disk: &dyn Disk, purpose: [u8; 4]) -> Result<Option<Root>, RootError> {
    let hints = read_hints(disk, purpose)?;
    let slots = RootSlots {
        generation: hints.generation,
    };
    for (offset, sequence) in hints.slots.into_iter().flatten() {
        if let Some(header) = root_at(disk, offset)?
            && header.sequence == sequence
        {
            let mut root = Root {
                offset,
                header,
                walked: false,
                slots,
            };
            // The slot may be older than the newest root: a crash can come between writing the two.
            while let Some((offset, header)) = next_root(disk, root.offset, root.header)? {
                assert!(offset > root.offset, "roots are found in file order");
                (root.offset, root.header) = (offset, header);
            }
            return Ok(Some(root));
        }
    }
    let found = walk_for_root(disk)?;
    if found.is_none() && !hints.identified {
        return Err(RootError::Foreign);
    }
    Ok(found.map(|(offset, header)| Root {
        offset,
        header,
        walked: true,
        slots,
    }))
}

/// Offset and sequence number of the root that the first page points to, if it has a valid slot. A slot is written once
/// its root is durable, so a file that ends before that root has lost its end.
pub fn hint(disk: &dyn Disk, purpose: [u8; 4]) -> Result<Option<(u64, u64)>, RootError> {
    Ok(read_hints(disk, purpose)?.slots[0])
}

/// The decoded first page.
struct Hints {
    /// Is the identity (magic, version, purpose) valid?
    identified: bool,
    /// Offset and sequence number of the roots that the slots point to, newest first.
    slots: [Option<(u64, u64)>; 2],
    /// The highest generation in a valid slot.
    generation: u64,
}

/// Reads the first page.
fn read_hints(disk: &dyn Disk, purpose: [u8; 4]) -> Result<Hints, RootError> {
    let mut page = [0; PAGE_LENGTH];
    let there = disk.len().min(PAGE_LENGTH as u64) as usize;
    disk.read_at(0, &mut page[..there])
        .map_err(|cause| RootError::Fault { offset: 0, cause })?;
    let identified = page[..8] == MAGIC && word(&page, 16) == crc32c(&page[..16]);
    if identified && word(&page, 8) != VERSION {
        return Err(RootError::Version {
            found: word(&page, 8),
        });
    }
    if identified && page[12..16] != purpose {
        let text = |letters: &[u8]| String::from_utf8_lossy(letters).into_owned();
        return Err(RootError::Purpose {
            expected: text(&purpose),
            found: text(&page[12..16]),
        });
    }
    let mut found = SLOT_OFFSETS.map(|at| read_slot(&page[at..at + SLOT_LENGTH]));
    // `None` sorts before every generation, so after reversal the invalid slots come last.
    found.sort_by_key(|slot| std::cmp::Reverse(slot.map(|(generation, ..)| generation)));
    assert!(
        found[0].is_some() || found[1].is_none(),
        "valid slots come first"
    );
    Ok(Hints {
        identified,
        slots: found.map(|slot| slot.map(|(_, offset, sequence)| (offset, sequence))),
        generation: found[0].map_or(0, |(generation, ..)| generation),
    })
}

/// Generation, offset and sequence number of a valid slot.
fn read_slot(bytes: &[u8]) -> Option<(u64, u64, u64)> {
    let valid = bytes[..4] == SLOT_MAGIC && word(bytes, 36) == crc32c(&bytes[..36]);
    let long = |at| u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32;
    valid.then(|| (long(8), long(16), long(24)))
}

/// The little-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The header of the root block at `offset`, if there is a valid one.
fn root_at(disk: &dyn Disk, offset: u64) -> Result<Option<BlockHeader>, RootError> {
    if offset < PAGE_LENGTH as u64 || offset >= disk.len() {
        return Ok(None);
    }
    match Walker::new(disk, offset).next_block() {
        Ok(Some(block)) if block.header.kind == BlockKind::ROOT => Ok(Some(block.header)),
        Err(WalkError::Fault { offset, cause }) => Err(RootError::Fault { offset, cause }),
        _ => Ok(None),
    }
}

/// The first valid root after the given one, following headers until one is invalid.
fn next_root(
    disk: &dyn Disk,
    offset: u64,
    header: BlockHeader,
) -> Result<Option<(u64, BlockHeader)>, RootError> {
    let after = offset + header.block_length();
    let mut walker = Walker::new(disk, after).expecting(header.sequence.wrapping_add(1));
    loop {
        match walker.next_header() {
            Ok(Some((offset, header))) if header.kind == BlockKind::ROOT => {
                if let Some(header) = root_at(disk, offset)? {
                    return Ok(Some((offset, header)));
                }
            }
            Ok(Some(_)) => {}
            Err(WalkError::Fault { offset, cause }) => {
                return Err(RootError::Fault { offset, cause });
            }
            Ok(None) | Err(_) => return Ok(None),
        }
    }
}

/// The newest valid root of the whole file; damaged blocks are skipped.
fn walk_for_root(disk: &dyn Disk) -> Result<Option<(u64, BlockHeader)>, RootError> {
    let mut newest: Option<(u64, BlockHeader)> = None;
    let mut walker = Walker::new(disk, PAGE_LENGTH as u64);
    loop {
        match walker.next_block() {
            Ok(Some(block)) => {
                let newer = newest.is_none_or(|(_, root)| root.sequence < block.header.sequence);
                if block.header.kind == BlockKind::ROOT && newer {
                    newest = Some((block.offset, block.header));
                }
            }
            Err(WalkError::Damaged(damage)) => walker = Walker::new(disk, damage.newer_offset),
            Err(WalkError::Fault { offset, cause }) => {
                return Err(RootError::Fault { offset, cause });
            }
            Ok(None) | Err(_) => return Ok(newest),
        }
    }
}

#[cfg(test)]
mod tests;
