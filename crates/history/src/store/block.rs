//! Blocks of a test file: kinds, codecs, documents.

use crate::chunk::layout;
use seatrial_blocks::block::flags;
use seatrial_blocks::{BlockHeader, BlockKind, HEADER_LENGTH, PAYLOAD_LENGTH_MAX, block};
use std::io::{self, Write};
use zstd::stream::write::Encoder;

/// A part of the attributes.
pub(super) const ATTRIBUTES: BlockKind = BlockKind(16);
/// Operations in columns.
pub(super) const CHUNK: BlockKind = BlockKind(17);
/// Operations of the chunk that is still open, in columns.
pub(super) const JOURNAL: BlockKind = BlockKind(18);
/// Entries of one level of the directory.
pub(super) const DIRECTORY: BlockKind = BlockKind(19);
/// What a whole analysis found, in short.
pub(super) const RESULTS: BlockKind = BlockKind(20);
/// A part of the results.
pub(super) const RESULTS_PART: BlockKind = BlockKind(21);

/// Set on a part of a document that continues the part before.
pub(super) const CONTINUES: u16 = 1 << 8;
/// Most bytes of text in one part of a document.
pub(super) const PART_LENGTH_MAX: usize = 16 << 20;
/// Payloads below this length are not worth a codec.
const COMPRESSED_LENGTH_MIN: usize = 128;

/// How payloads are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    None,
    /// LZ4: fast to write and to read.
    Lz4,
    /// Zstandard at level 1: a third smaller, half as fast to read.
    #[default]
    Zstd,
}

/// Most bytes that a payload of this length may claim to become.
fn expanded_length_max(length: usize) -> usize {
    length
        .saturating_mul(256)
        .saturating_add(4_096)
        .min(PAYLOAD_LENGTH_MAX)
}

/// Appends one block, compressed if that helps.
pub(super) fn write(
    out: &mut Vec<u8>,
    kind: BlockKind,
    flags: u16,
    sequence: u64,
    payload: &[u8],
    codec: Codec,
) {
    let start = block::begin(out);
    let stored = start + HEADER_LENGTH;
    if let Some(codec) = compress(out, kind, payload, codec) {
        let compressed = out.len() - stored;
        if compressed < payload.len() && payload.len() <= expanded_length_max(compressed) {
            let length = payload.len() as u32;
            block::finish(out, start, kind, flags | codec, sequence, length);
            return;
        }
    }
    out.truncate(stored);
    out.extend_from_slice(payload);
    block::finish_plain(out, start, kind, flags, sequence);
}

/// Appends the compressed payload; the flag of what it was compressed with.
fn compress(out: &mut Vec<u8>, kind: BlockKind, payload: &[u8], codec: Codec) -> Option<u16> {
    if payload.len() < COMPRESSED_LENGTH_MIN {
        return None;
    }
    let start = out.len();
    match codec {
        Codec::None => None,
        Codec::Lz4 => {
            let length_max = lz4_flex::block::get_maximum_output_size(payload.len());
            out.resize(start + length_max, 0);
            let length = lz4_flex::block::compress_into(payload, &mut out[start..]).ok()?;
            out.truncate(start + length);
            Some(flags::CODEC_LZ4)
        }
        // Compression in memory fails only where memory does.
        Codec::Zstd => {
            let ends = match kind {
                CHUNK | JOURNAL => parts(payload),
                _ => vec![payload.len()],
            };
            compress_parts(out, payload, &ends).ok()?;
            Some(flags::CODEC_ZSTD)
        }
    }
}

/// Shorter runs of columns share a block of zstd: its tables cost more than they gain.
const ZSTD_PART_LENGTH_MIN: usize = 1_024;

/// Appends one frame of zstd that begins a new block, with entropy tables of its own, at each of these ends, the last
/// of which is the payload's: columns differ more than rows (docs/measures/2026-11-23-test-file-bytes).
fn compress_parts(out: &mut Vec<u8>, payload: &[u8], ends: &[usize]) -> io::Result<()> {
    assert_eq!(
        ends.last(),
        Some(&payload.len()),
        "the parts are the payload"
    );
    let mut encoder = Encoder::new(out, 1)?;
    encoder.set_pledged_src_size(Some(payload.len() as u64))?;
    let mut begin = 0;
    for &end in ends {
        encoder.write_all(&payload[begin..end])?;
        encoder.flush()?;
        begin = end;
    }
    encoder.finish().map(drop)
}

/// Ends of the parts of a chunk that are compressed with tables of their own: columns, short ones together.
fn parts(chunk: &[u8]) -> Vec<usize> {
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

/// The payload as it was before its codec; replaces what is in `out`.
pub(super) fn expand_into(
    header: &BlockHeader,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let length = header.uncompressed_length as usize;
    let codec = header.flags & flags::CODEC;
    if codec == flags::CODEC_NONE {
        out.clear();
        out.extend_from_slice(payload);
        return Ok(());
    }
    let max = expanded_length_max(payload.len());
    if length > max {
        return Err(format!(
            "claims to expand to {length} bytes, at most {max} are possible"
        ));
    }
    out.resize(length, 0);
    let expanded = match codec {
        flags::CODEC_LZ4 => {
            lz4_flex::block::decompress_into(payload, out).map_err(|e| e.to_string())
        }
        flags::CODEC_ZSTD => {
            zstd::bulk::decompress_to_buffer(payload, out.as_mut_slice()).map_err(|e| e.to_string())
        }
        other => Err(format!("codec {} is not known", other >> 4)),
    };
    let expanded = expanded.map_err(|error| format!("does not expand: {error}"))?;
    if expanded != length {
        return Err(format!("expands to {expanded} bytes, not to {length}"));
    }
    Ok(())
}

/// [`expand_into`] without a copy where there is no codec. Leaves anything in `payload`, as memory to be used again.
pub(super) fn expand_taking(
    header: &BlockHeader,
    payload: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    if header.flags & flags::CODEC == flags::CODEC_NONE {
        std::mem::swap(payload, out);
        return Ok(());
    }
    expand_into(header, payload, out)
}

/// [`expand_into`] memory of its own.
pub(super) fn expand(header: &BlockHeader, payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    expand_into(header, payload, &mut out)?;
    Ok(out)
}

/// Reads little-endian numbers from a payload whose length was checked.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The same, eight bytes.
pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
