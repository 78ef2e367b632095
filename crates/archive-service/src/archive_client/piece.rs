//! A piece of a replay: checked blocks and their messages.

use crate::archive_answer::{Refusal, RefusalCode};
use seatrial_archive::BATCH_FRAMES_OFFSET;
use seatrial_archive::BatchHeader;
use seatrial_blocks::block::{self, BlockHeader, BlockKind};
use seatrial_blocks::crc32c;
use seatrial_blocks::frame::Frames;
use seatrial_machine::counted;
use std::ops::Range;

/// The requested messages of the blocks: those that meet every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trim {
    /// At or after this position.
    pub(crate) position: u64,
    /// With this number or a higher one.
    pub(crate) message: u64,
    /// Before this position.
    pub(crate) until: u64,
}

/// A message of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedMessage<'a> {
    /// Where its frame starts.
    pub position: u64,
    /// Its number within the recording.
    pub number: u64,
    /// When its batch was written: nanoseconds since 1970.
    pub time: u64,
    /// The application's bits, 0 to 7.
    pub flags: u32,
    /// The message.
    pub payload: &'a [u8],
}

/// A block as it is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedBlock<'a> {
    /// Where it starts.
    pub position: u64,
    /// Its header.
    pub header: BlockHeader,
    /// The header of its frames.
    pub batch: BatchHeader,
    /// The whole block: header, payload, padding.
    pub bytes: &'a [u8],
}

/// Blocks of a recording that follow each other, each checked when it arrived: both checksums, padding, and that it
/// continues the one before. It owns the bytes of the message that brought them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayPiece {
    bytes: Vec<u8>,
    /// Per block its position and where it is in `bytes`.
    blocks: Vec<(u64, Range<usize>)>,
    trim: Trim,
}

/// The end of the previous block, which the next one must continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The end of the previous block.
    pub(crate) end: u64,
    /// Its number and the number of the message after it.
    pub(crate) last: Option<(u64, u64)>,
}

fn wrong(position: u64, text: impl std::fmt::Display) -> Refusal {
    let text = format!("received block at position {position}: {text}");
    Refusal::new(RefusalCode::Damaged, text)
}

impl ReplayPiece {
    /// Takes the blocks of a data message, which start at `offset` of `bytes`, and checks that they continue `chain`.
    pub(crate) fn take(
        bytes: Vec<u8>,
        offset: usize,
        trim: Trim,
        chain: &mut Chain,
    ) -> Result<ReplayPiece, Refusal> {
        let mut blocks = Vec::new();
        let mut at = offset;
        while at < bytes.len() {
            let (position, range) = check(&bytes, at, chain)?;
            at = range.end;
            blocks.push((position, range));
        }
        Ok(ReplayPiece {
            bytes,
            blocks,
            trim,
        })
    }

    /// The blocks, in order. The first may begin before the requested range, the last may end after it.
    pub fn blocks(&self) -> impl Iterator<Item = ReplayedBlock<'_>> {
        self.blocks.iter().filter_map(|(position, range)| {
            let bytes = &self.bytes[range.clone()];
            let header = BlockHeader::decode(bytes.first_chunk()?).ok()?;
            let payload = &bytes[block::HEADER_LENGTH..];
            let payload = &payload[..header.payload_length as usize];
            let (batch, _) = BatchHeader::decode(header.kind, payload).ok()?;
            Some(ReplayedBlock {
                position: *position,
                header,
                batch,
                bytes,
            })
        })
    }

    /// The requested messages, in order.
    pub fn messages(&self) -> impl Iterator<Item = ReplayedMessage<'_>> {
        let trim = self.trim;
        self.blocks().flat_map(move |block| {
            let payload = block::HEADER_LENGTH + block.header.payload_length as usize;
            let frames = Frames::new(&block.bytes[BATCH_FRAMES_OFFSET..payload]);
            let messages = frames.flatten().zip(0_u64..);
            messages
                .map(move |(frame, index)| ReplayedMessage {
                    position: block
                        .position
                        .wrapping_add((BATCH_FRAMES_OFFSET + frame.offset) as u64),
                    number: block.batch.first_message.wrapping_add(index),
                    time: block.batch.time,
                    flags: frame.flags,
                    payload: frame.payload,
                })
                .filter(move |message| {
                    message.number >= trim.message
                        && message.position >= trim.position
                        && message.position < trim.until
                })
        })
    }

    /// Bytes of the blocks.
    pub fn length(&self) -> usize {
        self.blocks.iter().map(|(_, range)| range.len()).sum()
    }

    /// The position after the last block.
    pub fn end(&self) -> Option<u64> {
        let (position, range) = self.blocks.last()?;
        Some(position.wrapping_add(range.len() as u64))
    }
}

/// Checks the block at `at` and advances `at` to its end.
fn check(bytes: &[u8], at: usize, chain: &mut Chain) -> Result<(u64, Range<usize>), Refusal> {
    let (position, rest) = bytes[at..]
        .split_first_chunk()
        .ok_or_else(|| wrong(chain.end, "the position is incomplete"))?;
    let position = u64::from_le_bytes(*position);
    let header = rest
        .first_chunk()
        .ok_or_else(|| wrong(position, "the header is incomplete"))?;
    let header = BlockHeader::decode(header).map_err(|defect| wrong(position, defect))?;
    let length = header.block_length() as usize;
    let whole = rest.get(..length).ok_or_else(|| {
        wrong(
            position,
            format!("received {} bytes, expected {length}", rest.len()),
        )
    })?;
    let (payload, padding) = whole[block::HEADER_LENGTH..].split_at(header.payload_length as usize);
    let (stored, computed) = (header.payload_checksum, crc32c(payload));
    if stored != computed {
        let text = format!("the payload checksum is {computed:08x}, expected {stored:08x}");
        return Err(wrong(position, text));
    }
    if padding.iter().any(|&byte| byte != 0) {
        return Err(wrong(position, "the padding is not zero"));
    }
    let (batch, frames) = BatchHeader::decode(BlockKind(header.kind.0), payload)
        .map_err(|error| wrong(position, error))?;
    let mut count = 0_u32;
    for frame in Frames::new(frames) {
        frame.map_err(|error| wrong(position, error))?;
        count += 1;
    }
    if count != batch.messages {
        let text = format!(
            "{}, expected {}",
            counted(count.into(), "message"),
            batch.messages
        );
        return Err(wrong(position, text));
    }
    chain.advance(position, &header, &batch)?;
    let start = at + 8;
    Ok((position, start..start + length))
}

impl Chain {
    /// Checks that a block continues the previous one, directly or across the first block of a segment, and advances.
    fn advance(
        &mut self,
        position: u64,
        header: &BlockHeader,
        batch: &BatchHeader,
    ) -> Result<(), Refusal> {
        if let Some((sequence, message)) = self.last {
            let next = (self.end, sequence.wrapping_add(1), message);
            let next_segment = (
                self.end
                    .wrapping_add(seatrial_archive::SEGMENT_BLOCK_LENGTH),
                sequence.wrapping_add(2),
                message,
            );
            let found = (position, header.sequence, batch.first_message);
            if found != next && found != next_segment {
                let (position, sequence, message) = next;
                let text = format!(
                    "block {} with message {}, expected block {sequence} with message {message} at {position}",
                    found.1, found.2
                );
                return Err(wrong(found.0, text));
            }
        }
        self.end = position.wrapping_add(header.block_length());
        let next_message = batch.first_message.wrapping_add(u64::from(batch.messages));
        self.last = Some((header.sequence, next_message));
        Ok(())
    }
}
