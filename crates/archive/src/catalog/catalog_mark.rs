//! The mark of a catalog's newest event, in its own file: it detects a catalog that has lost its last events. Byte map in
//! `docs/formats/archive.md`.

use crate::archive_folder::{ArchiveFolder, StorageError};
use seatrial_blocks::block::BlockHeader;
use seatrial_blocks::crc32c;
use seatrial_machine::{Disk, Medium, Storage};
use std::path::Path;
use std::sync::Arc;

/// The file's name.
pub(crate) const MARK: &str = "catalog.mark";
/// Length of the file in bytes.
const LENGTH: usize = 40;
/// Its first bytes.
const MAGIC: [u8; 8] = *b"SEATMARK";

/// The mark of a catalog's newest event. It is written after that event was synced, and is not synced itself: a power
/// failure may leave an older mark, or none, but never one of an event that was not durable. A catalog without the marked
/// event has lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatalogMark {
    /// Number of events in the catalog.
    pub(crate) events: u64,
    /// Length of the catalog in bytes.
    pub(crate) length: u64,
    /// The header checksum of the newest event's block.
    checksum: u32,
}

impl CatalogMark {
    /// The mark of a block at `offset`.
    pub(crate) fn after(offset: u64, header: &BlockHeader) -> CatalogMark {
        let bytes = header.encode();
        let [.., a, b, c, d] = bytes;
        CatalogMark {
            events: header.sequence.saturating_add(1),
            length: offset + header.block_length(),
            checksum: u32::from_le_bytes([a, b, c, d]),
        }
    }

    /// The mark of the last of the blocks that are written at `offset`; `None` if there is none.
    pub(crate) fn of_blocks(offset: u64, blocks: &[u8]) -> Option<CatalogMark> {
        let (mut at, mut mark) = (0, None);
        while let Some(bytes) = blocks.get(at..).and_then(|rest| rest.first_chunk()) {
            let header = BlockHeader::decode(bytes).ok()?;
            mark = Some(CatalogMark::after(offset + at as u64, &header));
            at += header.block_length() as usize;
        }
        assert_eq!(at, blocks.len(), "whole blocks");
        mark
    }

    /// Reads the mark of a folder; `None` if there is no valid one.
    pub(crate) fn read(storage: &dyn Storage, folder: &Path) -> Option<CatalogMark> {
        let medium = storage.open(&folder.join(MARK)).ok()?;
        let mut bytes = [0; LENGTH];
        Disk::read_at(&*medium, 0, &mut bytes).ok()?;
        CatalogMark::decode(&bytes)
    }

    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.events.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; LENGTH]) -> Option<CatalogMark> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        let is_whole = bytes.starts_with(&MAGIC) && word(9) == crc32c(&bytes[..36]);
        is_whole.then(|| CatalogMark {
            events: long(2),
            length: long(4),
            checksum: word(6),
        })
    }
}

/// The mark's file, open for writing. Failures are ignored: without a mark, only the detection of a loss is missing.
#[derive(Debug)]
pub(crate) struct MarkFile {
    medium: Option<Arc<dyn Medium>>,
}

impl MarkFile {
    /// Opens the file, creating it if missing.
    pub(crate) fn open(folder: &ArchiveFolder) -> MarkFile {
        let medium = folder.open_write(MARK).or_else(|_| folder.create(MARK));
        MarkFile {
            medium: medium.ok(),
        }
    }

    /// Writes the mark of the newest event, which is durable.
    pub(crate) fn write(&self, folder: &ArchiveFolder, mark: &CatalogMark) {
        if let Some(medium) = &self.medium {
            let _ = folder.write(MARK, &**medium, 0, &mark.encode());
        }
    }
}

/// Clears the mark, durably, before another catalog replaces the one that it belongs to.
pub(crate) fn clear(folder: &ArchiveFolder) -> Result<(), StorageError> {
    let medium = match folder.open_write(MARK) {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?,
    };
    folder.write(MARK, &*medium, 0, &[0; LENGTH])?;
    folder.sync_file(MARK, &*medium)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_decodes_to_itself_and_no_flipped_bit_does() {
        let mark = CatalogMark {
            events: 0x1122_3344_5566,
            length: 0x99_8877,
            checksum: 0xdead_beef,
        };
        let bytes = mark.encode();
        assert_eq!(CatalogMark::decode(&bytes), Some(mark));
        for bit in 0..LENGTH * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(CatalogMark::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(CatalogMark::decode(&[0; LENGTH]), None);
    }
}
