//! Reads of a replica's log, outside of its turns.

use crate::block_context::BlockContext;
use crate::downstairs::region_record::{REGION_LOG, RegionRecord, read_records};
use crate::downstairs::zone_use::FreeZones;
use crate::geometry::BlockNumber;
use seatrial_blocks::block::BlockHeader;
use seatrial_blocks::{HEADER_LENGTH, ReadAhead, WalkError, Walker};
use seatrial_machine::{Computed, DataFolder, Disk, Job, LogName, LogReader, LogView};
use std::ops::Range;
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
    /// An earlier piece, whose open log and memory serve again.
    pub(crate) earlier: Option<HeadRead>,
    /// Position of a block.
    pub(crate) from: u64,
    /// Reads to the end of the block that reaches this.
    pub(crate) to: u64,
    /// Zones that need not be read.
    pub(crate) free: FreeZones,
    pub(crate) block_length: u32,
}

/// Slots of a piece of the log.
#[derive(Debug)]
pub(crate) struct HeadRead {
    log: Arc<LogView>,
    buffer: ReadAhead,
    /// The slots.
    pub(crate) slots: Vec<HeadSlot>,
    /// Their bytes, one after the other.
    bytes: Vec<u8>,
    /// Position of the next block.
    pub(crate) next: u64,
}

/// A slot in a piece of the log.
#[derive(Clone, Debug)]
pub(crate) struct HeadSlot {
    pub(crate) block: BlockNumber,
    /// In the log.
    pub(crate) position: u64,
    /// In the bytes that were read.
    at: Range<usize>,
}

impl HeadRead {
    /// The bytes of one of its slots.
    pub(crate) fn bytes(&self, slot: &HeadSlot) -> &[u8] {
        &self.bytes[slot.at.clone()]
    }

    /// Most of a head is stepped over. Read ahead, all of it would be read.
    fn open(data: &DataFolder) -> std::io::Result<HeadRead> {
        Ok(HeadRead {
            log: Arc::new(data.scattered_log(LogName::MAIN)?),
            buffer: ReadAhead::default(),
            slots: Vec::new(),
            bytes: Vec::new(),
            next: 0,
        })
    }

    fn gather(&mut self, record: &RegionRecord<'_>, payload_at: u64) {
        match record {
            RegionRecord::Data {
                span, slots, at, ..
            } => {
                let mut position = payload_at + *at as u64;
                for (block, slot) in span.blocks().zip(slots) {
                    self.push(block, position, slot.bytes);
                    position += slot.bytes.len() as u64;
                }
            }
            RegionRecord::Moved {
                block, slot, at, ..
            } => self.push(*block, payload_at + *at as u64, slot.bytes),
            _ => {}
        }
    }

    fn push(&mut self, block: BlockNumber, position: u64, slot: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(slot);
        let at = start..self.bytes.len();
        self.slots.push(HeadSlot {
            block,
            position,
            at,
        });
    }
}

impl Job for ReadHead {
    fn run(self: Box<Self>) -> Computed {
        Box::new(self.read())
    }
}

impl ReadHead {
    fn read(mut self) -> std::io::Result<HeadRead> {
        let mut read = match self.earlier.take() {
            Some(earlier) => earlier,
            None => HeadRead::open(&self.data)?,
        };
        read.slots.clear();
        read.bytes.clear();
        let log = Arc::clone(&read.log);
        // The part before may have been freed; a segment begins with a block.
        read.next = self.from.max(log.start());
        while read.next < self.to {
            if let Some(next) = self.after_free(&log, read.next) {
                read.next = next;
                continue;
            }
            let buffer = std::mem::take(&mut read.buffer);
            let mut walker = Walker::new(&*log, read.next).reusing(buffer);
            let walked = self.walk(&mut walker, &mut read);
            read.buffer = walker.into_buffer();
            match walked {
                Ok(true) => {}
                Ok(false) => break,
                // What is damaged stays where it is: its blocks are written anew when they are read.
                Err(WalkError::Damaged(damage)) => read.next = damage.newer_offset,
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        Ok(read)
    }

    /// The end of the block at a position, if nothing in it is in use: only its header is read, and damage to the rest is none.
    fn after_free(&self, log: &LogView, position: u64) -> Option<u64> {
        if !self.is_free(position) {
            return None;
        }
        let mut header = [0; HEADER_LENGTH];
        log.read_at(position, &mut header).ok()?;
        let end = position + BlockHeader::decode(&header).ok()?.block_length();
        (end <= log.len() && self.free.have(position..end)).then_some(end)
    }

    /// Does no slot in use begin near this position?
    fn is_free(&self, position: u64) -> bool {
        self.free.have(position..position + 1)
    }

    /// Reads up to `to`, or to a block that need not be read; false at the end of the log.
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
                    read.gather(record, payload_at);
                }
            }
            read.next = walker.offset();
            if self.is_free(read.next) {
                break;
            }
        }
        Ok(true)
    }
}
