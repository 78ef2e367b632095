//! Block kinds of a test file, and how their payloads are compressed.

use crate::chunk::layout;
use seatrial_blocks::BlockKind;
use seatrial_blocks::codec::{Codec, write_compressed};

/// A part of the attributes.
pub(super) const ATTRIBUTES: BlockKind = BlockKind(16);
/// A sealed chunk: operations in columns.
pub(super) const CHUNK: BlockKind = BlockKind(17);
/// Operations of the open chunk, in columns; replaced by the next [`CHUNK`].
pub(super) const JOURNAL: BlockKind = BlockKind(18);
/// Entries of one level of the directory.
pub(super) const DIRECTORY: BlockKind = BlockKind(19);
/// The head of an analysis: number, validity, and the place of the results.
pub(super) const RESULTS: BlockKind = BlockKind(20);
/// A part of the results.
pub(super) const RESULTS_PART: BlockKind = BlockKind(21);

/// Flag of a part of a document that continues the part before.
pub(super) const CONTINUES: u16 = 1 << 8;
/// Most bytes of text in one part of a document.
pub(super) const PART_LENGTH_MAX: usize = 16 << 20;
/// Runs of columns shorter than this share a zstd block: entropy tables of their own cost more than they gain.
const ZSTD_PART_LENGTH_MIN: usize = 1_024;

/// Appends one block, compressed if that makes it shorter; the columns of chunks with entropy tables of their own.
pub(super) fn write(
    out: &mut Vec<u8>,
    kind: BlockKind,
    flags: u16,
    sequence: u64,
    payload: &[u8],
    codec: Codec,
) {
    let ends = match kind {
        CHUNK | JOURNAL => column_ends(payload),
        _ => vec![payload.len()],
    };
    write_compressed(out, kind, flags, sequence, payload, codec, &ends);
}

/// Ends of the runs of columns of a chunk that are compressed together: each column alone, short ones together.
fn column_ends(chunk: &[u8]) -> Vec<usize> {
    let columns = usize::from(u16::from_le_bytes([chunk[60], chunk[61]]));
    let values = layout::HEADER_LENGTH + layout::DESCRIPTOR_LENGTH * columns;
    let (mut begin, mut end, mut ends) = (0, values, Vec::new());
    for descriptor in (layout::HEADER_LENGTH..values).step_by(layout::DESCRIPTOR_LENGTH) {
        end += usize::from(chunk[descriptor + 1]) * word(chunk, descriptor + 4) as usize;
        if end - begin >= ZSTD_PART_LENGTH_MIN || end == chunk.len() {
            ends.push(end);
            begin = end;
        }
    }
    assert_eq!(end, chunk.len(), "the columns are the rest of the chunk");
    ends.dedup();
    ends
}

/// Reads four bytes, little-endian, from a payload whose length was checked.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads eight bytes, little-endian, from a payload whose length was checked.
pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
