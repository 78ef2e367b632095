//! Compression of payloads: LZ4 or zstd, named in the flags of each block.

use crate::block::{self, flags};
use crate::{BlockHeader, BlockKind, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
use std::io::{self, Write};
use zstd::stream::write::Encoder;

/// Payloads below this length are stored as they are: a codec would gain nothing.
const COMPRESSED_LENGTH_MIN: usize = 128;
/// A compressed payload may expand to at most this many times its length, plus [`EXPANDED_EXTRA`]: bounds the memory that a
/// forged header can demand.
const EXPANSION_MAX: usize = 256;
const EXPANDED_EXTRA: usize = 4_096;

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

/// The longest payload to which one of this stored length may expand.
fn expanded_length_max(length: usize) -> usize {
    length
        .saturating_mul(EXPANSION_MAX)
        .saturating_add(EXPANDED_EXTRA)
        .min(PAYLOAD_LENGTH_MAX)
}

/// Appends one block whose payload is compressed if that makes it shorter.
///
/// `part_ends` are rising ends of payload parts that zstd compresses with entropy tables of their own; the last one is the
/// payload's length. For parts that differ in kind, such as columns, this is smaller than one table for all
/// (docs/measures/2026-11-23-test-file-bytes); the result is one frame all the same.
pub fn write_compressed(
    out: &mut Vec<u8>,
    kind: BlockKind,
    flags: u16,
    sequence: u64,
    payload: &[u8],
    codec: Codec,
    part_ends: &[usize],
) {
    let start = block::begin(out);
    let stored = start + HEADER_LENGTH;
    if let Some(codec) = compress(out, payload, codec, part_ends) {
        let compressed = out.len() - stored;
        // Also false if the payload compresses better than a reader would accept.
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

/// Appends the compressed payload and returns the flag of its codec; `None` if it is stored as it is.
fn compress(out: &mut Vec<u8>, payload: &[u8], codec: Codec, part_ends: &[usize]) -> Option<u16> {
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
            compress_parts(out, payload, part_ends).ok()?;
            Some(flags::CODEC_ZSTD)
        }
    }
}

/// Appends one zstd frame that begins a new block, and so new entropy tables, at each of these ends.
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

/// Expands a stored payload; the result replaces the contents of `out`. Copies if there is no codec.
pub fn expand_into(header: &BlockHeader, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let length = header.uncompressed_length as usize;
    let codec = header.flags & flags::CODEC;
    if codec == flags::CODEC_NONE {
        out.clear();
        out.extend_from_slice(payload);
        return Ok(());
    }
    // Before memory is reserved: the header's checksum may be forged.
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

/// [`expand_into`] that swaps instead of copying if there is no codec. Afterwards `payload` is memory to be reused, with
/// unspecified contents.
pub fn expand_taking(
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

/// [`expand_into`] a new vector.
pub fn expand(header: &BlockHeader, payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    expand_into(header, payload, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Walker;

    #[test]
    fn payloads_come_back_from_every_codec() {
        let runs: Vec<u8> = (0..9_000_u32).map(|number| (number / 70) as u8).collect();
        let (short, noise) = (b"short".to_vec(), noise(3_000));
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            for (payload, shrinks) in [(&runs, true), (&short, false), (&noise, false)] {
                let mut log = Vec::new();
                let ends = [payload.len() / 3, payload.len()];
                write_compressed(&mut log, BlockKind(17), 1 << 8, 0, payload, codec, &ends);
                let mut walker = Walker::new(&log, 0);
                let block = walker.next_block().unwrap().unwrap();
                assert_eq!(expand(&block.header, block.payload).as_ref(), Ok(payload));
                let (mut stored, mut out) = (block.payload.to_vec(), vec![7]);
                expand_taking(&block.header, &mut stored, &mut out).unwrap();
                assert_eq!(out, *payload);
                let is_smaller = block.payload.len() < payload.len();
                assert_eq!(is_smaller, shrinks && codec != Codec::None, "{codec:?}");
                assert_eq!(block.header.flags & 1 << 8, 1 << 8);
            }
        }
    }

    #[test]
    fn a_forged_length_is_refused_before_memory_is_reserved() {
        let mut log = Vec::new();
        let zeros = vec![0; 20_000];
        write_compressed(
            &mut log,
            BlockKind(17),
            0,
            0,
            &zeros,
            Codec::Lz4,
            &[zeros.len()],
        );
        let mut walker = Walker::new(&log, 0);
        let block = walker.next_block().unwrap().unwrap();
        let mut header = block.header;
        header.uncompressed_length = PAYLOAD_LENGTH_MAX as u32;
        let error = expand(&header, &block.payload[..10]).unwrap_err();
        assert_eq!(
            error,
            "claims to expand to 67108864 bytes, at most 6656 are possible"
        );
        header.uncompressed_length = zeros.len() as u32 - 1;
        let error = expand(&header, block.payload).unwrap_err();
        assert!(error.starts_with("does not expand: "), "{error}");
        header.flags |= flags::CODEC;
        let error = expand(&header, block.payload).unwrap_err();
        assert_eq!(error, "does not expand: codec 15 is not known");
    }

    /// Bytes that no codec makes smaller.
    fn noise(length: usize) -> Vec<u8> {
        let mut rng = seatrial_machine::Rng::from_seed(5);
        (0..length).map(|_| rng.below(256) as u8).collect()
    }
}
