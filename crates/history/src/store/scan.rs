//! Finds all whole blocks of a file that may be damaged anywhere.

use super::file::read_stored;
use seatrial_blocks::block::MAGIC;
use seatrial_blocks::root::PAGE_LENGTH;
use seatrial_blocks::{BlockHeader, HEADER_LENGTH};
use seatrial_machine::Disk;
use std::ops::Range;

/// Bytes searched at a time.
const SEARCH_LENGTH: u64 = 256 << 10;
/// Where the medium does not give bytes, so many at a time are given up.
const SECTOR_LENGTH: u64 = 4_096;
/// A file is read at most so many times over, whatever lengths its headers claim.
const PASSES_MAX: u64 = 4;

/// A whole block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) header: BlockHeader,
}

impl Place {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.header.block_length()
    }
}

/// Bytes of a file that are no whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where in the file.
    pub bytes: Range<u64>,
    /// What is wrong at its beginning.
    pub reason: String,
}

/// Looks for blocks: one behind the other as long as they are whole, else at every byte (bytes in the middle may be
/// missing, so that what follows is not where it was). What claims to be older than a block before it is not believed.
pub(super) struct Scan<'a> {
    disk: &'a dyn Disk,
    pub(super) blocks: Vec<Place>,
    pub(super) damaged: Vec<Damaged>,
    /// The sequence number of the last whole block.
    sequence: Option<u64>,
    /// Bytes that may still be read of payloads that turn out to be damaged.
    budget: u64,
    stored: Vec<u8>,
    /// Bytes of the file that are searched.
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Scan<'a> {
    /// Scans all of `disk`; `skips_page` when its first page is whole.
    pub(super) fn new(disk: &'a dyn Disk, skips_page: bool) -> Scan<'a> {
        let mut scan = Scan {
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
                Ok(place) => {
                    scan.keep(place);
                    place.end()
                }
                Err((reason, header)) => scan.skip(at, reason, header),
            };
        }
        scan
    }

    fn keep(&mut self, place: Place) {
        self.sequence = Some(place.header.sequence);
        self.blocks.push(place);
    }

    /// The whole block at `at`, or what is wrong there, with the header if at least that is whole.
    fn block(&mut self, at: u64) -> Result<Place, (String, Option<BlockHeader>)> {
        let header = self.header(at).map_err(|reason| (reason, None))?;
        if self.sequence.is_some_and(|last| header.sequence <= last) {
            let reason = format!("block number {} is here again", header.sequence);
            return Err((reason, None));
        }
        match read_stored(self.disk, at, &mut self.stored) {
            Ok(header) => Ok(Place { offset: at, header }),
            Err(reason) => Err((reason, Some(header))),
        }
    }

    fn header(&self, at: u64) -> Result<BlockHeader, String> {
        let mut bytes = [0; HEADER_LENGTH];
        let read = self.disk.read_at(at, &mut bytes);
        read.map_err(|error| error.to_string())?;
        BlockHeader::decode(&bytes).map_err(|defect| defect.to_string())
    }

    /// Steps over damage at `at`, to the next whole block or the end of the file.
    fn skip(&mut self, at: u64, reason: String, header: Option<BlockHeader>) -> u64 {
        let mut next = at + 1;
        if let Some(header) = header {
            let end = at + header.block_length();
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

    /// The next place from `from` on that starts like a block.
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
            // What cannot be read is stepped over.
            from = match held.len() {
                0 => (from + 1).next_multiple_of(SECTOR_LENGTH),
                length => from + (length - MAGIC.len() + 1) as u64,
            };
        }
        None
    }

    /// Reads what is at `from`; nothing if the medium does not give it.
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
