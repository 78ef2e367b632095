//! Finds all whole blocks of a file that may be damaged anywhere: in its blocks, between them, or by missing bytes.

use crate::block::{MAGIC, read_at};
use crate::root::PAGE_LENGTH;
use crate::{BlockHeader, HEADER_LENGTH};
use seatrial_machine::Disk;
use std::ops::Range;

/// Bytes searched at a time.
const SEARCH_LENGTH: u64 = 256 << 10;
/// Unreadable bytes are skipped in steps of this many.
const SECTOR_LENGTH: u64 = 4_096;
/// A scan reads at most this many times the length of the file, whatever lengths damaged headers claim.
const PASSES_MAX: u64 = 4;

/// A block whose header, payload and padding are valid.
#[derive(Clone, Copy, Debug)]
pub struct WholeBlock {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its header.
    pub header: BlockHeader,
}

impl WholeBlock {
    /// The offset of the first byte after it.
    pub fn end(&self) -> u64 {
        self.offset + self.header.block_length()
    }
}

/// Consecutive bytes of a file that belong to no whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Their range in the file.
    pub bytes: Range<u64>,
    /// What is wrong at its beginning.
    pub reason: String,
}

/// A scan of a whole file for blocks. While blocks are whole it steps from one to the next; after damage it looks for a
/// header at every byte, since missing bytes move all that follows. A block is accepted only if its sequence number is above
/// that of the block before: an older copy inside of damage is no block of the log.
///
/// Cost: linear in the file. A damaged block that claims to be long is read again for each header in it; a budget bounds
/// these reads to three more passes.
pub struct DamageScan<'a> {
    disk: &'a dyn Disk,
    /// The whole blocks, in order of offset and sequence number.
    pub blocks: Vec<WholeBlock>,
    /// All other bytes, in order.
    pub damaged: Vec<Damaged>,
    /// Sequence number of the last whole block.
    sequence: Option<u64>,
    /// Bytes that may still be read of payloads that turn out to be damaged.
    budget: u64,
    stored: Vec<u8>,
    /// Bytes of the file that are searched.
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> DamageScan<'a> {
    /// Scans all of `disk`; `skips_page` if its first page is valid and holds no blocks.
    pub fn new(disk: &'a dyn Disk, skips_page: bool) -> DamageScan<'a> {
        let mut scan = DamageScan {
            disk,
            blocks: Vec::new(),
            damaged: Vec::new(),
            sequence: None,
            budget: disk.len().saturating_mul(PASSES_MAX - 1),
            stored: Vec::new(),
            window: Vec::new(),
            window_start: 0,
        };
        let mut at = if skips_page { PAGE_LENGTH as u64 } else { 0 };
        while at < disk.len() {
            at = match scan.block(at) {
                Ok(block) => {
                    scan.keep(block);
                    block.end()
                }
                Err((reason, header)) => scan.skip(at, reason, header),
            };
        }
        debug_assert!(
            scan.blocks
                .is_sorted_by(|one, next| one.end() <= next.offset),
            "whole blocks do not overlap"
        );
        scan
    }

    fn keep(&mut self, block: WholeBlock) {
        self.sequence = Some(block.header.sequence);
        self.blocks.push(block);
    }

    /// Reads the block at `at`; the error has the header if that is valid.
    fn block(&mut self, at: u64) -> Result<WholeBlock, (String, Option<BlockHeader>)> {
        let header = self.header(at).map_err(|reason| (reason, None))?;
        if self.sequence.is_some_and(|last| header.sequence <= last) {
            let reason = format!("block number {} is here again", header.sequence);
            return Err((reason, None));
        }
        match read_at(self.disk, at, &mut self.stored) {
            Ok(header) => Ok(WholeBlock { offset: at, header }),
            Err(reason) => Err((reason, Some(header))),
        }
    }

    fn header(&self, at: u64) -> Result<BlockHeader, String> {
        let mut bytes = [0; HEADER_LENGTH];
        let read = self.disk.read_at(at, &mut bytes);
        read.map_err(|error| error.to_string())?;
        BlockHeader::decode(&bytes).map_err(|defect| defect.to_string())
    }

    /// Skips the damage at `at`: returns the offset of the next whole block, or the end of the file.
    fn skip(&mut self, at: u64, reason: String, header: Option<BlockHeader>) -> u64 {
        let mut next = at + 1;
        if let Some(header) = header {
            let end = at + header.block_length();
            // A whole block right after it confirms the claimed length: only its payload is damaged.
            let is_followed = self.block(end).is_ok();
            let cost = header.block_length().min(self.disk.len());
            if is_followed || self.budget < cost {
                next = end;
            }
            self.budget = self.budget.saturating_sub(cost);
        }
        let end = loop {
            let Some(found) = self.find_magic(next) else {
                break self.disk.len();
            };
            next = match self.block(found) {
                Ok(_) => break found,
                Err((_, Some(header))) => {
                    let cost = header.block_length().min(self.disk.len());
                    let is_dear = self.budget < cost;
                    self.budget = self.budget.saturating_sub(cost);
                    found + if is_dear { header.block_length() } else { 1 }
                }
                Err((_, None)) => found + 1,
            };
        };
        self.damaged.push(Damaged {
            bytes: at..end,
            reason,
        });
        end
    }

    /// The first offset at or after `from` whose bytes start like a block.
    fn find_magic(&mut self, from: u64) -> Option<u64> {
        let mut from = from;
        while self.disk.len().saturating_sub(from) >= HEADER_LENGTH as u64 {
            let held = self.window_start..self.window_start + self.window.len() as u64;
            if !held.contains(&from) || held.end < from + MAGIC.len() as u64 {
                self.move_window(from);
            }
            let at = (from - self.window_start) as usize;
            let held = self.window.get(at..).unwrap_or_default();
            let found = held.windows(MAGIC.len()).position(|start| start == MAGIC);
            if let Some(found) = found {
                return Some(from + found as u64);
            }
            // Skip an unreadable sector; else keep the bytes in which a header may begin.
            from = match held.len() {
                0 => (from + 1).next_multiple_of(SECTOR_LENGTH),
                length => from + (length - MAGIC.len() + 1) as u64,
            };
        }
        None
    }

    /// Fills the window from `from`: many bytes, else the rest of one sector; empty if that is unreadable.
    fn move_window(&mut self, from: u64) {
        self.window_start = from;
        let there = self.disk.len() - from;
        let to_boundary = SECTOR_LENGTH - from % SECTOR_LENGTH;
        for wanted in [SEARCH_LENGTH, to_boundary.max(HEADER_LENGTH as u64)] {
            self.window.resize(there.min(wanted) as usize, 0);
            if self.disk.read_at(from, &mut self.window).is_ok() {
                return;
            }
        }
        self.window.clear();
    }
}
