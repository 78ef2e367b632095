//! Reads of a replica's log, outside of its turns.

use crate::block_context::BlockContext;
use crate::downstairs::region_record::{REGION_LOG, RegionRecord, read_records};
use crate::geometry::BlockNumber;
use seatrial_blocks::{HEADER_LENGTH, WalkError, Walker};
use seatrial_machine::{Computed, DataFolder, Job, LogName, LogReader};
use std::sync::Arc;

/// A part of a reply to a read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotPiece {
    /// A block that was never written.
    Absent,
    /// Slots that stand back to back at a position of the log.
    Log { position: u64, length: usize },
}

/// Reads slots and appends them to the beginning of a reply.
pub(crate) struct ReadSlots {
    pub(crate) log: Arc<LogReader>,
    pub(crate) pieces: Vec<SlotPiece>,
    pub(crate) reply: Vec<u8>,
}

/// The reply, or why it could not be read.
pub(crate) type SlotsRead = std::io::Result<Vec<u8>>;

impl Job for ReadSlots {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.read())
    }
}

impl ReadSlots {
    fn read(mut self) -> SlotsRead {
        for piece in &self.pieces {
            match *piece {
                SlotPiece::Absent => self.reply.extend_from_slice(&BlockContext::ABSENT.encode()),
                SlotPiece::Log { position, length } => {
                    let start = self.reply.len();
                    self.reply.resize(start + length, 0);
                    self.log.read_at(position, &mut self.reply[start..])?;
                }
            }
        }
        Ok(self.reply)
    }
}

/// Reads a piece of the log's head, to move what is in use.
pub(crate) struct ReadHead {
    pub(crate) data: DataFolder,
    /// Position of a block.
    pub(crate) from: u64,
    /// Reads to the end of the block that reaches this.
    pub(crate) to: u64,
    pub(crate) block_length: u32,
}

/// Slots of a piece of the log.
#[derive(Debug)]
pub(crate) struct HeadRead {
    /// Block, position and bytes of each slot.
    pub(crate) slots: Vec<(BlockNumber, u64, Vec<u8>)>,
    /// Position of the next block.
    pub(crate) next: u64,
}

impl Job for ReadHead {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.read())
    }
}

impl ReadHead {
    fn read(&self) -> std::io::Result<HeadRead> {
        let log = self.data.log(LogName::MAIN)?;
        let mut read = HeadRead {
            slots: Vec::new(),
            // The part before may have been freed; a segment begins with a block.
            next: self.from.max(log.start()),
        };
        while read.next < self.to {
            let mut walker = Walker::new(&log, read.next);
            match self.walk(&mut walker, &mut read) {
                Ok(true) => {}
                Ok(false) => break,
                // What is damaged stays where it is: its blocks are written anew when they are read.
                Err(WalkError::Damaged(damage)) => read.next = damage.newer_offset,
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        Ok(read)
    }

    /// Reads up to `to`; false at the end of the log.
    fn walk(&self, walker: &mut Walker<'_>, read: &mut HeadRead) -> Result<bool, WalkError> {
        while read.next < self.to {
            let Some(block) = walker.next_block()? else {
                return Ok(false);
            };
            let payload_at = block.offset + HEADER_LENGTH as u64;
            if block.header.kind == REGION_LOG
                && let Ok(records) = read_records(block.payload, self.block_length)
            {
                for record in &records {
                    gather(record, payload_at, &mut read.slots);
                }
            }
            read.next = walker.offset();
        }
        Ok(true)
    }
}

fn gather(
    record: &RegionRecord<'_>,
    payload_at: u64,
    slots: &mut Vec<(BlockNumber, u64, Vec<u8>)>,
) {
    match record {
        RegionRecord::Data {
            span,
            slots: data,
            at,
            ..
        } => {
            let mut position = payload_at + *at as u64;
            for (block, slot) in span.blocks().zip(data) {
                slots.push((block, position, slot.bytes.to_vec()));
                position += slot.bytes.len() as u64;
            }
        }
        RegionRecord::Moved {
            block, slot, at, ..
        } => slots.push((*block, payload_at + *at as u64, slot.bytes.to_vec())),
        _ => {}
    }
}
