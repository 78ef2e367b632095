//! The directory of chunks: a tree that grows as a counter carries, and the root that holds its open nodes.

use super::block_kinds::{long, word};
use crate::chunk::ChunkHeader;
use seatrial_machine::counted;

/// Entries of one directory block.
pub(super) const ENTRIES_MAX: usize = 256;
/// Bytes of an entry.
const ENTRY_LENGTH: usize = 80;
/// Bytes of a root before its levels.
const ROOT_LENGTH: usize = 64;
/// Bytes before the entries of a directory block, and before those of a level in the root.
const LEVEL_LENGTH: usize = 8;
/// Most levels: 256^8 chunks are more than a file can hold.
const LEVELS_MAX: u32 = 8;
/// The version that is written.
const VERSION: u32 = 1;
/// Flag of a root: its writer has sealed the history.
const COMPLETE: u32 = 1;

/// Entry of the directory: a chunk, or all chunks below a directory block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    /// Offset of the block.
    pub(super) offset: u64,
    /// Bytes of the whole block.
    pub(super) length: u32,
    /// Number of chunks.
    pub(super) chunks: u32,
    /// Number of operations.
    pub(super) operations: u64,
    /// Index of the first and the last one.
    pub(super) indices: (u64, u64),
    /// Lowest and highest time.
    pub(super) times: (i64, i64),
    /// Operations `ok`, `fail`, `info`.
    pub(super) counts: [u64; 3],
}

impl DirectoryEntry {
    /// The entry of one chunk.
    pub(super) fn of_chunk(
        header: &ChunkHeader,
        last_index: u64,
        offset: u64,
        length: u32,
    ) -> DirectoryEntry {
        DirectoryEntry {
            offset,
            length,
            chunks: 1,
            operations: u64::from(header.operations),
            indices: (header.first_index, last_index),
            times: (header.time_min, header.time_max),
            counts: [header.ok, header.fail, header.info].map(u64::from),
        }
    }

    /// The entry of a directory block that holds these.
    pub(super) fn over(entries: &[DirectoryEntry], offset: u64, length: u32) -> DirectoryEntry {
        let mut all = entries[0];
        for entry in &entries[1..] {
            // The entries may be forged: saturate here, the reader compares the sums.
            all.chunks = all.chunks.saturating_add(entry.chunks);
            all.operations = all.operations.saturating_add(entry.operations);
            all.indices.1 = entry.indices.1;
            all.times = (
                all.times.0.min(entry.times.0),
                all.times.1.max(entry.times.1),
            );
            for (sum, count) in all.counts.iter_mut().zip(entry.counts) {
                *sum = sum.saturating_add(count);
            }
        }
        DirectoryEntry {
            offset,
            length,
            ..all
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(self.offset.to_le_bytes());
        out.extend(self.length.to_le_bytes());
        out.extend(self.chunks.to_le_bytes());
        for number in [self.operations, self.indices.0, self.indices.1] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.times.0.to_le_bytes());
        out.extend(self.times.1.to_le_bytes());
        for count in self.counts {
            out.extend(count.to_le_bytes());
        }
        debug_assert_eq!(out.len() - start, ENTRY_LENGTH);
    }

    fn read(bytes: &[u8]) -> DirectoryEntry {
        DirectoryEntry {
            offset: long(bytes, 0),
            length: word(bytes, 8),
            chunks: word(bytes, 12),
            operations: long(bytes, 16),
            indices: (long(bytes, 24), long(bytes, 32)),
            times: (long(bytes, 40).cast_signed(), long(bytes, 48).cast_signed()),
            counts: [long(bytes, 56), long(bytes, 64), long(bytes, 72)],
        }
    }
}

/// Writes level and entries, in the format of directory blocks and roots.
pub(super) fn write_level(level: u32, entries: &[DirectoryEntry], out: &mut Vec<u8>) {
    assert!(entries.len() <= ENTRIES_MAX, "a level that no reader takes");
    out.extend(level.to_le_bytes());
    out.extend((entries.len() as u32).to_le_bytes());
    for entry in entries {
        entry.write(out);
    }
}

/// Reads a level that [`write_level`] wrote; returns also the bytes after it.
fn read_level(bytes: &[u8]) -> Result<(u32, Vec<DirectoryEntry>, &[u8]), String> {
    if bytes.len() < LEVEL_LENGTH {
        return Err("ends within a level of the directory".into());
    }
    let (level, count) = (word(bytes, 0), word(bytes, 4) as usize);
    let entries = &bytes[LEVEL_LENGTH..];
    let length = count.saturating_mul(ENTRY_LENGTH);
    if count > ENTRIES_MAX || length > entries.len() || level >= LEVELS_MAX {
        return Err(format!(
            "a level {level} of {count} entries in {} bytes",
            entries.len()
        ));
    }
    let (entries, rest) = entries.split_at(length);
    let entries: Vec<DirectoryEntry> = entries
        .chunks(ENTRY_LENGTH)
        .map(DirectoryEntry::read)
        .collect();
    let is_sound =
        |entry: &DirectoryEntry| entry.operations > 0 && (entry.chunks == 1) == (level == 0);
    if !entries.iter().all(is_sound) {
        return Err(format!("a level {level} with an entry of another level"));
    }
    Ok((level, entries, rest))
}

/// The entries of a directory block of this level.
pub(super) fn read_block(bytes: &[u8], expected: u32) -> Result<Vec<DirectoryEntry>, String> {
    let (level, entries, rest) = read_level(bytes)?;
    if level != expected || !rest.is_empty() || entries.is_empty() {
        return Err(format!("is no directory block of level {expected}"));
    }
    Ok(entries)
}

/// The entries of a directory block of any level.
pub(super) fn read_any_block(bytes: &[u8]) -> Result<Vec<DirectoryEntry>, String> {
    let level = bytes.get(..LEVEL_LENGTH).map_or(0, |bytes| word(bytes, 0));
    read_block(bytes, level)
}

/// A JSON text in one or more adjacent blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// Offset of its first part; 0 if there is no document.
    pub(super) offset: u64,
    /// Parts.
    pub(super) parts: u32,
    /// Bytes of text.
    pub(super) length: u64,
}

impl Document {
    /// Bytes of a reference to a document.
    pub(super) const LENGTH: usize = 24;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.parts.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.length.to_le_bytes());
    }

    /// Reads a document from bytes that are long enough.
    pub(super) fn read(bytes: &[u8]) -> Document {
        Document {
            offset: long(bytes, 0),
            parts: word(bytes, 8),
            length: long(bytes, 16),
        }
    }
}

/// The live contents of a file, as a root block lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RootContents {
    /// Did its writer seal it?
    pub(super) complete: bool,
    /// Operations.
    pub(super) operations: u64,
    /// The attributes.
    pub(super) attributes: Document,
    /// Offset of the newest results head; 0 if there is none.
    pub(super) results: u64,
    /// Analyses.
    pub(super) analyses: u64,
    /// Entries that are in no directory block yet, by level. After a kill of the writer the lowest level may have more than a
    /// root can hold.
    pub(super) levels: Vec<Vec<DirectoryEntry>>,
}

impl RootContents {
    /// The payload of a root block.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(VERSION.to_le_bytes());
        out.extend(if self.complete { COMPLETE } else { 0 }.to_le_bytes());
        out.extend(self.operations.to_le_bytes());
        self.attributes.write(out);
        out.extend(self.results.to_le_bytes());
        out.extend(self.analyses.to_le_bytes());
        out.extend((self.levels.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        debug_assert_eq!(out.len() - start, ROOT_LENGTH);
        for (level, entries) in self.levels.iter().enumerate().rev() {
            write_level(level as u32, entries, out);
        }
    }

    /// Reads the payload of a root block.
    pub(super) fn read(bytes: &[u8]) -> Result<RootContents, String> {
        if bytes.len() < ROOT_LENGTH {
            return Err(format!("a root of {} bytes", bytes.len()));
        }
        if word(bytes, 0) != VERSION {
            let version = word(bytes, 0);
            return Err(format!(
                "a root of version {version}, this program reads {VERSION}"
            ));
        }
        let count = word(bytes, 56);
        if count > LEVELS_MAX {
            return Err(format!("a root of {}", counted(count.into(), "level")));
        }
        let mut levels = vec![Vec::new(); count as usize];
        let mut rest = &bytes[ROOT_LENGTH..];
        for expected in (0..count).rev() {
            let (level, entries, after) = read_level(rest)?;
            if level != expected {
                return Err(format!("level {level} where level {expected} should be"));
            }
            levels[expected as usize] = entries;
            rest = after;
        }
        let operations = long(bytes, 8);
        let entries = levels.iter().flatten();
        let sum = entries.fold(0_u64, |sum, entry: &DirectoryEntry| {
            sum.saturating_add(entry.operations)
        });
        if sum != operations || !rest.is_empty() {
            return Err(format!(
                "a root over {operations} operations whose directory has {sum}"
            ));
        }
        Ok(RootContents {
            complete: word(bytes, 4) & COMPLETE != 0,
            operations,
            attributes: Document::read(&bytes[16..]),
            results: long(bytes, 40),
            analyses: long(bytes, 48),
            levels,
        })
    }
}
